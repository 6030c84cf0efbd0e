"""The classes that one saver may store and load.

Reading never imports a class because stored bytes name it. A class is known if it is built in
here, was declared by the program, is in the schema of the calling graph, or if this process itself
stored an object of it.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import sys
import typing
import warnings
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

import langgraph.store.base as store
import langgraph.types as graph
import pydantic
from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ropewalk.codec import Classes, Registry, default_registry
from ropewalk.codec.atoms import atom_of
from ropewalk.codec.classes import default_name, find_class
from ropewalk.codec.records import plan_of, record_plan_of
from ropewalk.codec.registry import Entry, can_declare
from ropewalk.errors import InvalidInput, NotStorable


class UnknownTypeWarning(UserWarning):
    """A stored value has an undeclared class, and is returned raw."""


class GraphTypes:
    """The classes of one saver.

    `types` are declared from the start; plain classes that are loaded need no declaration. With
    `strict`, a value of an unknown class raises `UndeclaredClass` instead of being returned raw
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
        """Declare classes, ignoring those that need no declaration or cannot be stored."""
        for cls in classes:
            if isinstance(cls, type):
                self.learn(cls)

    def allow(self, names: Iterable[Any]) -> None:
        """Declare classes, or pairs of module and name, which are looked up but not imported."""
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
        """Whether objects of a class can be stored; the class is declared from now on."""
        if self._is_declared(cls):
            return True
        if not can_declare(cls) and not _is_model_v1(cls):
            return False
        try:
            self._register(cls)
        except InvalidInput:
            return False  # Its name is too long, or belongs to another class.
        return True

    def _is_declared(self, cls: type) -> bool:
        """Whether a class was declared explicitly: being plain and loaded does not count."""
        known = self.registry.of(cls)
        return known is not None and self.registry.declared(known.name) is known

    def _register(self, cls: type) -> None:
        if isinstance(cls, type) and _is_model_v1(cls):
            encode, decode = model_v1_forms(cls)
            self.registry.register(cls, encode=encode, decode=decode)
        else:
            self.registry.register(cls)

    def find(self, name: str) -> Entry | None:
        """The declared class of a stored name, asking the calling graphs if needed."""
        found = self.registry.declared(name)
        if found is None and name in self._pending:
            self._allow(*self._pending[name])
            found = self.registry.declared(name)
        if found is None and self.source is not None:
            self.declare(self.source())
            found = self.registry.declared(name)
        return found

    def warn_of(self, name: str, reason: Exception | None = None) -> None:
        """Warn, once, that values of a class are returned raw."""
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
        """What is stored in place of a value, as LangGraph does; otherwise the value itself."""
        base = None if self.strict else _base_of(value)
        if base is None:
            return value
        return repr(value) if base is BaseException else base(value)

    def check(self, value: Any) -> None:
        """Raise `NotStorable` for values that LangGraph would change."""
        base = _base_of(value)
        if base is not None:
            raise NotStorable(_refusal(type(value), base))

    def is_frozen(self, cls: type) -> bool:
        """Whether values of a class are immutable."""
        found = self._frozen.get(cls)
        if found is None:
            atom = atom_of(cls) is not None and cls is not bytearray
            found = self._frozen[cls] = atom or issubclass(cls, enum.Enum)
        return found

    def is_built_in(self, name: Any) -> bool:
        """Whether a stored name belongs to a built-in class."""
        return isinstance(name, str) and BUILT_IN.named(name) is not None

    def names_of(self, entry: Entry) -> list[str]:
        """The fields of a record, in their stored order."""
        if entry.shape == "model":
            return plan_of(entry).names
        return record_plan_of(entry).names

    def plain_fields(self, entry: Entry) -> list[str]:
        """The fields of a dataclass, if its objects hold nothing else; otherwise none."""
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


# The classes declared by a graph's schema, and finding the graph that calls a saver.  LangGraph
# passes classes to a saver only with LANGGRAPH_STRICT_MSGPACK. Without it, the graph is found on
# the call stack.


_MAX_FRAMES: Final = 200
_MAX_CLASSES: Final = 10_000
_PLAIN: Final = (str, int, float, bool, bytes, type(None))

_known: WeakKeyDictionary[Any, frozenset[type]] = WeakKeyDictionary()
"""Cached classes of graphs."""


def classes_of(graph: Any) -> frozenset[type]:
    """The classes in the schemas and channels of a graph and its subgraphs.

    Takes a StateGraph, a compiled graph, a Pregel, or a loop that runs one.
    """
    try:
        found = _known.get(graph)
        if found is None:
            found = _known[graph] = _collect(graph)
        return found
    except TypeError:  # It supports no weak references, or is not hashable.
        return _collect(graph)


def _collect(graph: Any) -> frozenset[type]:
    collector = _Collector()
    pending, seen = [graph], set[int]()
    while pending and len(seen) < _MAX_CLASSES:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for hint in _hints_of(one):
            collector.add(hint)
        pending += _graphs_in(one)
    return frozenset(collector.classes)


def _hints_of(graph: Any) -> Iterator[Any]:
    """The type hints of a graph's values."""
    builder = getattr(graph, "builder", graph)
    schemas = getattr(builder, "schemas", None)
    yield from schemas if isinstance(schemas, dict) else ()
    for name in ("state_schema", "input_schema", "output_schema", "context_schema"):
        yield getattr(builder, name, None)
    for node in _values(getattr(builder, "nodes", None)):
        yield getattr(node, "input_schema", None)
    for holder in ("channels", "specs"):
        for channel in _values(getattr(graph, holder, None)):
            yield _type_of(channel, "ValueType")
            yield _type_of(channel, "UpdateType")


def _type_of(channel: Any, name: str) -> Any:
    try:
        return getattr(channel, name, None)
    except Exception:  # noqa: BLE001 - a channel of the user's own may raise anything
        return None


def _graphs_in(graph: Any) -> list[Any]:
    """The subgraphs in the nodes of a graph."""
    found: list[Any] = []
    for node in _values(getattr(graph, "nodes", None)):
        found += getattr(node, "subgraphs", None) or ()
        bound = getattr(node, "runnable", None)
        found += [one for one in (bound, getattr(bound, "func", None)) if _is_graph(one)]
    return found


def _values(found: Any) -> Iterable[Any]:
    return list(found.values()) if isinstance(found, dict) else ()


class _Collector:
    """Finds the classes in type hints."""

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self._seen: set[int] = set()
        self._kept: list[Any] = []

    def add(self, hint: Any) -> None:
        pending = [hint]
        while pending and len(self._seen) < _MAX_CLASSES:
            one = pending.pop()
            if one is None or isinstance(one, str) or id(one) in self._seen:
                continue
            self._seen.add(id(one))
            self._kept.append(one)  # Keeps the hint alive, so that its id is not reused.
            pending += self._inside(one)

    def _inside(self, hint: Any) -> list[Any]:
        origin = typing.get_origin(hint)
        if origin is typing.Literal:
            return [type(one) for one in typing.get_args(hint)]
        if origin is not None:
            arguments = list(typing.get_args(hint))
            # The other arguments of Annotated are not types.
            return [origin, *(arguments[:1] if origin is typing.Annotated else arguments)]
        if isinstance(hint, list):  # The arguments of a Callable.
            return hint
        for name in ("__supertype__", "__value__", "__bound__"):
            inner = getattr(hint, name, None)
            if inner is not None and not isinstance(hint, type):
                return [inner, *getattr(hint, "__constraints__", ())]
        return self._of_class(hint) if isinstance(hint, type) else []

    def _of_class(self, cls: type) -> list[Any]:
        if cls.__module__ in ("builtins", "typing"):
            return []
        if typing.is_typeddict(cls) or hasattr(cls, "__required_keys__"):
            return _field_hints(cls)
        fields = _field_hints(cls) if _has_fields(cls) else []
        if fields or _has_fields(cls) or issubclass(cls, enum.Enum):
            self.classes.add(cls)
        return fields


def _has_fields(cls: Any) -> bool:
    return (
        dataclasses.is_dataclass(cls)
        or hasattr(cls, "__pydantic_fields__")
        or hasattr(cls, "__fields__")
        or hasattr(cls, "__struct_fields__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def _field_hints(cls: Any) -> list[Any]:
    hints: list[Any] = []
    models = getattr(cls, "__pydantic_fields__", None) or getattr(cls, "__fields__", None)
    if isinstance(models, dict):
        hints += [
            getattr(field, "annotation", None) or getattr(field, "outer_type_", None)
            for field in models.values()
        ]
    try:
        hints += typing.get_type_hints(cls, include_extras=True).values()
    except Exception:  # noqa: BLE001 - a name in a hint may not be found, or raise anything
        hints += vars(cls).get("__annotations__", {}).values()
    return hints


# The caller.


def calling_graph(saver: Any) -> Any:
    """The graph, or the loop of one, that is calling a saver or a copy of it; None if none is."""
    return next(calling_graphs(saver), None)


def classes_of_callers(saver: Any) -> set[type]:
    """The classes of all graphs that are calling a saver."""
    return {cls for graph in calling_graphs(saver) for cls in classes_of(graph)}


def calling_graphs(saver: Any) -> Iterator[Any]:
    """All graphs and loops that are calling a saver, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[int] = set()
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        found = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if found is not None and id(found) not in seen and _is_graph(found):
            seen.add(id(found))
            if _waits_for(found, frame, saver):
                yield found
        frame = frame.f_back


def _is_graph(one: Any) -> bool:
    for name, module in (
        ("Pregel", "langgraph.pregel.main"),
        ("PregelLoop", "langgraph.pregel._loop"),
    ):
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and isinstance(one, cls):
            return True
    return False


def _waits_for(graph: Any, frame: FrameType, saver: Any) -> bool:
    if _is_family(getattr(graph, "checkpointer", None), saver):
        return True
    # A subgraph has no checkpointer of its own, but was passed one.
    given = frame.f_locals
    return any(_is_family(given.get(name), saver) for name in ("checkpointer", "saver"))


def _is_family(one: Any, saver: Any) -> bool:
    """Whether an object is a saver, or a shallow copy of it."""
    if one is saver:
        return True
    if type(one) is not type(saver) or not hasattr(one, "__dict__"):
        return False
    mine, other = vars(saver), vars(one)
    return any(
        other.get(name) is held for name, held in mine.items() if not isinstance(held, _PLAIN)
    )


# The classes that every saver knows, under names that stay when a module moves.  They cover what
# LangGraph's own serializer accepts, except for anything that stored bytes could choose.


BUILT_IN = Registry(parent=Registry())
"""Must never change."""

_MESSAGES = (
    "BaseMessage BaseMessageChunk HumanMessage HumanMessageChunk AIMessage AIMessageChunk "
    "SystemMessage SystemMessageChunk ToolMessage ToolMessageChunk FunctionMessage "
    "FunctionMessageChunk ChatMessage ChatMessageChunk RemoveMessage"
).split()
_GRAPH = (
    "Interrupt Command Overwrite TimeoutPolicy RetryPolicy CachePolicy StateSnapshot "
    "PregelTask StateUpdate GraphOutput CacheKey"
).split()
_STORE = "GetOp PutOp SearchOp ListNamespacesOp MatchCondition".split()


def _declare(prefix: str, cls: Any) -> None:
    BUILT_IN.register(cls, name=f"{prefix}.{cls.__name__}", aliases=(default_name(cls),))


def _declare_custom(
    prefix: str, cls: Any, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    name = f"{prefix}.{cls.__name__}"
    BUILT_IN.register(cls, name=name, encode=encode, decode=decode)


def _declare_all() -> None:
    for name in _MESSAGES:
        _declare("langchain", getattr(messages, name))
    _declare("langchain", Document)
    for module, names in ((graph, _GRAPH), (store, _STORE)):
        for name in names:
            # Missing in older releases.
            if hasattr(module, name):
                _declare("langgraph", getattr(module, name))
    BUILT_IN.register(_DeltaSnapshot, name="langgraph.DeltaSnapshot")
    _declare_custom("langgraph", graph.Send, _send_parts, _send)
    _declare_custom("langgraph", store.Item, _item_parts, lambda parts: store.Item(**parts))
    _declare_custom(
        "langgraph", store.SearchItem, _item_parts, lambda parts: store.SearchItem(**parts)
    )
    _declare_standard()


def _send_parts(send: Any) -> list[Any]:
    timeout = getattr(send, "timeout", None)
    return [send.node, send.arg] if timeout is None else [send.node, send.arg, timeout]


def _send(parts: list[Any]) -> Any:
    node, arg, *timeout = parts
    return graph.Send(node, arg, timeout=timeout[0]) if timeout else graph.Send(node, arg)


_ITEM = ("value", "key", "namespace", "created_at", "updated_at")


def _item_parts(item: Any) -> dict[str, Any]:
    parts = {name: getattr(item, name) for name in _ITEM}
    return {**parts, "score": item.score} if isinstance(item, store.SearchItem) else parts


def _declare_standard() -> None:
    _declare_custom("python", datetime.timezone, _offset, _zone)
    _declare_custom("python", zoneinfo.ZoneInfo, _zone_key, zoneinfo.ZoneInfo)
    for secret in (pydantic.SecretStr, pydantic.SecretBytes):
        _declare_custom("pydantic", secret, lambda one: one.get_secret_value(), secret)


def _offset(zone: datetime.timezone) -> list[Any]:
    delta, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return [delta, *name]


def _zone(parts: list[Any]) -> datetime.timezone:
    return datetime.timezone(*parts)


def _zone_key(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise ValueError("a time zone that was read from a file has no key")
    return zone.key


def model_v1_forms(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How a pydantic v1 model is stored and rebuilt."""

    def encode(value: Any) -> list[Any]:
        private = {
            name: getattr(value, name)
            for name in cls.__private_attributes__
            if hasattr(value, name)
        }
        return [dict(value.__dict__), sorted(value.__fields_set__), private]

    def decode(parts: list[Any]) -> Any:
        fields, named, private = parts
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__fields_set__", set(named))
        for name, value in private.items():
            object.__setattr__(made, name, value)
        return made

    return encode, decode


_declare_all()
