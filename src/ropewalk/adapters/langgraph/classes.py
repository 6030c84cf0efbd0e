"""Which classes one saver stores and reads back.

Reading never imports what stored bytes name. A class is known if it is built in here, was
declared by the program, stands in the schema of the graph that asks, or if this process
itself stored an object of it.
"""

from __future__ import annotations

import enum
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ropewalk.adapters.langgraph.built_in import BUILT_IN, model_v1_forms
from ropewalk.codec import Classes, Registry, default_registry
from ropewalk.codec.atoms import atom_of
from ropewalk.codec.classes import find_class
from ropewalk.codec.records import plan_of, record_plan_of
from ropewalk.codec.registry import Entry, can_declare
from ropewalk.errors import InvalidInput, NotStorable


class UnknownTypeWarning(UserWarning):
    """A stored value is of a class that the program did not declare, and came back raw."""


class GraphTypes:
    """The classes of one saver.

    `types` are declared from the start; plain classes that are loaded need not be. With
    `strict`, a value of an unknown class raises `UndeclaredClass` instead of coming back raw
    with an `UnknownTypeWarning`.
    """

    def __init__(
        self,
        types: Iterable[type] = (),
        strict: bool = False,
        classes: Classes = "plain",
    ) -> None:
        self.registry = Registry(parent=default_registry, classes=classes)
        self.registry.adopt(BUILT_IN)
        self.strict = strict
        self.source: Callable[[], Iterable[type]] | None = None
        """What else may be known: asked for classes when an unknown one is read."""
        self._pending: dict[str, tuple[str, str]] = {}
        self._warned: set[str] = set()
        self._frozen: dict[type, bool] = {}
        for cls in types:
            if not self._is_declared(cls):
                self._register(cls)

    def declare(self, classes: Iterable[type]) -> None:
        """Allow classes; those that need no declaration, or cannot be stored, are left out."""
        for cls in classes:
            if isinstance(cls, type):
                self.learn(cls)

    def allow(self, names: Iterable[Any]) -> None:
        """Allow classes, or pairs of module and name, which are looked up but not imported."""
        for name in names:
            if isinstance(name, type):
                self.learn(name)
            elif len(name) == 2 and not self._allow(*name):
                self._pending[".".join(name)] = (name[0], name[1])

    def _allow(self, module: str, name: str) -> bool:
        found: Any = sys.modules.get(module)
        for step in name.split("."):
            found = getattr(found, step, None)
        return isinstance(found, type) and self.learn(found)

    def learn(self, cls: type) -> bool:
        """Whether objects of a class can be stored; it is declared from now on."""
        if self._is_declared(cls):
            return True
        if not can_declare(cls) and not _is_model_v1(cls):
            return False
        try:
            self._register(cls)
        except InvalidInput:
            return False  # Its name is too long, or stands for another class.
        return True

    def _is_declared(self, cls: type) -> bool:
        """Whether somebody declared a class: that it is plain and loaded is not enough."""
        known = self.registry.of(cls)
        return known is not None and self.registry.declared(known.name) is known

    def _register(self, cls: type) -> None:
        if isinstance(cls, type) and _is_model_v1(cls):
            encode, decode = model_v1_forms(cls)
            self.registry.register(cls, encode=encode, decode=decode)
        else:
            self.registry.register(cls)

    def find(self, name: str) -> Entry | None:
        """The declared class of a name that was met in stored bytes; asks who may know it."""
        found = self.registry.declared(name)
        if found is None and name in self._pending:
            self._allow(*self._pending[name])
            found = self.registry.declared(name)
        if found is None and self.source is not None:
            self.declare(self.source())
            found = self.registry.declared(name)
        return found

    def warn_of(self, name: str, reason: Exception | None = None) -> None:
        """Warn, once, that values of a class come back raw."""
        if name in self._warned:
            return
        self._warned.add(name)
        cls = name.rpartition(".")[2]
        cls = cls if cls.isidentifier() else "TheClass"
        loaded = find_class(name)[0] is not None
        why = "which this program did not declare" if loaded else self.registry.why_unknown(name)
        text = (
            f"stored values come back raw: they are of class {name!r}, "
            f"{why}. To declare it: RopewalkSaver(..., types=[{cls}])"
            if reason is None
            else f"stored values of class {name!r} come back as raw values: {reason}"
        )
        warnings.warn(text, UnknownTypeWarning, stacklevel=2)

    def stand_in(self, value: Any) -> Any:
        """What is stored in place of a value, as LangGraph does; the value if nothing is."""
        base = None if self.strict else _base_of(value)
        if base is None:
            return value
        return repr(value) if base is BaseException else base(value)

    def check(self, value: Any) -> None:
        """Raise `NotStorable` for what LangGraph would make something else of."""
        base = _base_of(value)
        if base is not None:
            raise NotStorable(_refusal(type(value), base))

    def is_frozen(self, cls: type) -> bool:
        """Whether values of a class cannot be changed."""
        found = self._frozen.get(cls)
        if found is None:
            atom = atom_of(cls) is not None and cls is not bytearray
            found = self._frozen[cls] = atom or issubclass(cls, enum.Enum)
        return found

    def is_built_in(self, name: Any) -> bool:
        """Whether a stored name is that of a class which is always known."""
        return isinstance(name, str) and BUILT_IN.named(name) is not None

    def names_of(self, entry: Entry) -> list[str]:
        """The fields of a record, in the order in which they are stored."""
        if entry.shape == "model":
            return plan_of(entry).names
        return record_plan_of(entry).names

    def plain_fields(self, entry: Entry) -> list[str]:
        """The fields of a dataclass, if they are all that its objects hold; else none."""
        plan = record_plan_of(entry)
        return plan.names if plan.only_dict else []


_BASES: tuple[Any, ...] = (
    BaseException, str, bool, int, float, bytes, dict, list, tuple, set, frozenset,
)  # fmt: skip


def _base_of(value: Any) -> Any:
    return next((one for one in _BASES if isinstance(value, one)), None)


def _refusal(cls: type, base: type) -> str:
    name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
    if base is BaseException:
        return (
            f"{name} is an exception, which would come back as text, and strict=True refuses that; "
            "store str(error), or fields of it"
        )
    return (
        f"{name} would come back as a plain {base.__name__}, and strict=True refuses that; store "
        f"{base.__name__}(value), or declare it with ropewalk.register({cls.__qualname__}, "
        "encode=..., decode=...)"
    )


def _is_model_v1(cls: type) -> bool:
    module = sys.modules.get("pydantic.v1")
    return module is not None and issubclass(cls, module.BaseModel)
