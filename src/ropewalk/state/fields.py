"""How the fields of a typed state are declared, and when their annotations are resolved."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from ropewalk.errors import InvalidInput
from ropewalk.state.content_ref import ContentRef

T = TypeVar("T")

Reduce: TypeAlias = Callable[[Any, Any], Any]
"""Reduces two updates of a field to one."""

_CLASS_VARIABLE = re.compile(r"(\w+\.)*ClassVar\b")


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
"""Marks a field without a default."""


class _Marker(Generic[T]):
    """What a type checker sees of a field: reading yields T, and T can be assigned."""

    @overload
    def __get__(self, instance: None, owner: type) -> StateField: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        raise AttributeError("a marker is for annotations: declare a field as `name: Inline[int]`")


class Inline(_Marker[T]):
    """Marks a small field whose value every checkpoint contains."""

    def __set__(self, instance: object, value: T) -> None:
        raise AttributeError("a marker is for annotations: declare a field as `name: Inline[int]`")


class Externalized(_Marker[T]):
    """Marks a large field: its value is stored, and checkpoints keep a reference to it."""

    def __set__(self, instance: object, value: T | ContentRef) -> None:
        raise AttributeError("a marker is for annotations: declare a field as `name: Inline[int]`")


def default(value: Any) -> Any:
    """A default that type checkers accept: `step: Inline[int] = default(0)`.

    At run time it means the same as `step: Inline[int] = 0`.
    """
    return value


@dataclass(frozen=True, slots=True)
class StateField:
    """A field of a typed state."""

    name: str
    kind: Literal["inline", "externalized"]
    type: Any
    """The declared type; it is not enforced."""
    reducer: Reduce | None = None
    """Reduces two updates to one; None if undeclared."""
    default: Any = UNSET
    """The default, copied for each new state; `UNSET` if there is none."""
    metadata: tuple[Any, ...] = ()
    """The rest of its annotation, for the framework."""

    @property
    def is_externalized(self) -> bool:
        """Whether checkpoints keep only a reference."""
        return self.kind == "externalized"


class FieldDescriptor:
    """A field on its class: delegates reading, assigning and deleting to the state."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, state: Any, owner: Any) -> Any:
        return owner.fields()[self.name] if state is None else state[self.name]

    def __set__(self, state: Any, value: Any) -> None:
        state[self.name] = value

    def __delete__(self, state: Any) -> None:
        del state[self.name]


class Declared:
    """The fields that one class itself declares, resolved as early as possible.

    An annotation may refer to a later definition, so it may be resolved at first use.
    """

    def __init__(self, cls: type, frame: FrameType | None) -> None:
        self._cls = cls
        self._raw = {
            name: raw
            for name, raw in _annotations_of(cls).items()
            if not name.startswith("_") and not _is_class_variable(raw)
        }
        self._defaults = {name: vars(cls).get(name, UNSET) for name in self._raw}
        self._fields: dict[str, StateField] = {}
        local = {} if frame is None else dict(frame.f_locals)
        for name in list(self._raw):
            try:
                self._resolve(name, local)
            except NameError:
                continue

    @property
    def names(self) -> list[str]:
        """The names, in declaration order."""
        return list(self._raw)

    def fields(self) -> dict[str, StateField]:
        """The fields; raises `InvalidInput` for an annotation that cannot be resolved."""
        for name, raw in self._raw.items():
            if name not in self._fields:
                try:
                    self._resolve(name, {})
                except NameError as error:
                    raise InvalidInput(
                        f"field {name!r} of {self._cls.__qualname__}: its annotation {raw!r} "
                        f"cannot be resolved: {error}. Define or import that name before the "
                        "class, and not only for type checkers."
                    ) from error
        return {name: self._fields[name] for name in self._raw}

    def _resolve(self, name: str, local: Mapping[str, Any]) -> None:
        hint = _resolved(self._cls, name, self._raw[name], local)
        if get_origin(hint) is ClassVar or hint is ClassVar:
            raise InvalidInput(
                f"{name!r} of {self._cls.__qualname__} is a class variable under another name: "
                "write ClassVar[...]"
            )
        self._fields[name] = _field(self._cls, name, hint, self._defaults[name])


def declare(cls: type, reserved: frozenset[str]) -> Declared:
    """Process a new class: put descriptors where its fields are."""
    declared = Declared(cls, _defining_frame())
    for name in declared.names:
        if name in reserved or not isinstance(_inherited(cls, name), FieldDescriptor | None):
            raise InvalidInput(
                f"a field of {cls.__qualname__} cannot be called {name!r}: a state has something "
                "else of that name"
            )
        setattr(cls, name, FieldDescriptor(name))
    for name, held in vars(cls).items():
        if isinstance(_inherited(cls, name), FieldDescriptor) and not isinstance(
            held, FieldDescriptor
        ):
            raise InvalidInput(
                f"{name!r} of {cls.__qualname__} hides a field of the same name: annotate it again "
                "to change it"
            )
    return declared


def _inherited(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)


def _annotations_of(cls: type) -> dict[str, Any]:
    """The annotations of a class itself; undefined names are left unresolved."""
    if sys.version_info >= (3, 14):
        import annotationlib

        found: dict[str, Any] = annotationlib.get_annotations(
            cls, format=annotationlib.Format.FORWARDREF
        )
        return found
    return dict(inspect.get_annotations(cls))


def _is_class_variable(raw: Any) -> bool:
    if isinstance(raw, str):
        return _CLASS_VARIABLE.match(raw.strip()) is not None
    return raw is ClassVar or get_origin(raw) is ClassVar


def _defining_frame() -> FrameType | None:
    """The frame in which a class statement runs, for the local names it uses."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    while frame.f_back is not None and frame.f_code.co_name in ("__init_subclass__", "__new__"):
        frame = frame.f_back
    return frame


def _resolved(cls: type, name: str, raw: Any, local: Mapping[str, Any]) -> Any:
    """Resolve an annotation; NameError if it uses an undefined name."""
    # One at a time, so that errors are about this field; in a class, because ClassVar is allowed
    # there.
    alone = type(cls.__name__, (), {"__annotations__": {name: raw}, "__module__": cls.__module__})
    module = sys.modules.get(cls.__module__)
    parameters = {one.__name__: one for one in getattr(cls, "__type_params__", ())}
    nested = {one: held for one, held in vars(cls).items() if isinstance(held, type)}
    names = {**local, **nested, cls.__name__: cls, **parameters}
    try:
        return get_type_hints(alone, vars(module) if module else {}, names, include_extras=True)[
            name
        ]
    except NameError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"field {name!r} of {cls.__qualname__}: its annotation {raw!r} is not a type: {error}"
        ) from error


def _field(cls: type, name: str, hint: Any, default: Any) -> StateField:
    metadata: tuple[Any, ...] = ()
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        metadata += tuple(more)
    marker = get_origin(hint) or hint
    if marker is not Inline and marker is not Externalized:
        raise InvalidInput(_unmarked(cls, name, hint))
    (held,) = get_args(hint) or (Any,)
    if _has_marker(held):
        raise InvalidInput(
            f"field {name!r} of {cls.__qualname__} has a marker inside another one: a field is "
            "Inline or Externalized as a whole"
        )
    # A class is metadata for a framework, not a reducer.
    reducers = [one for one in metadata if callable(one) and not isinstance(one, type)]
    if len(reducers) > 1:
        raise InvalidInput(f"field {name!r} of {cls.__qualname__} has more than one reducer")
    kind: Literal["inline", "externalized"] = "inline" if marker is Inline else "externalized"
    reducer = reducers[0] if reducers else None
    return StateField(name, kind, held, reducer, default, metadata)


def _has_marker(hint: Any) -> bool:
    marker = get_origin(hint) or hint
    return marker is Inline or marker is Externalized or any(map(_has_marker, get_args(hint)))


def _unmarked(cls: type, name: str, hint: Any) -> str:
    shown = getattr(hint, "__qualname__", None) if isinstance(hint, type) else None
    what = shown or str(hint)
    if get_origin(hint) in (Union, UnionType):
        return (
            f"field {name!r} of {cls.__qualname__} is {what}: the marker goes around it all, as in "
            f"Inline[str | None]"
        )
    return (
        f"field {name!r} of {cls.__qualname__} is not marked: write Inline[{what}] to keep it in "
        f"checkpoints, Externalized[{what}] to store it outside of them, or ClassVar[{what}] if it "
        "is no field"
    )
