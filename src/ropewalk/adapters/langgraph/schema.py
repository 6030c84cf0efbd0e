"""The classes that a graph itself names, and which graph it is that calls a saver.

LangGraph tells a saver its classes only with LANGGRAPH_STRICT_MSGPACK. Without it, the graph
is found where it is: among those that wait for the saver to return.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import typing
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

_MAX_FRAMES: Final = 200
_MAX_CLASSES: Final = 10_000
_PLAIN: Final = (str, int, float, bool, bytes, type(None))

_known: WeakKeyDictionary[Any, frozenset[type]] = WeakKeyDictionary()
"""The classes of graphs that were looked at."""


def classes_of(graph: Any) -> frozenset[type]:
    """The classes in the schemas and channels of a graph, and of the graphs in its nodes.

    Takes a StateGraph, a compiled graph, a Pregel, or a loop that runs one.
    """
    try:
        found = _known.get(graph)
        if found is None:
            found = _known[graph] = _collect(graph)
        return found
    except TypeError:  # It cannot be held weakly, or not be hashed.
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
    """What a graph says of the types of its values."""
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
    """The graphs that stand in the nodes of a graph."""
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
            self._kept.append(one)  # So that no other hint has its id.
            pending += self._inside(one)

    def _inside(self, hint: Any) -> list[Any]:
        origin = typing.get_origin(hint)
        if origin is typing.Literal:
            return [type(one) for one in typing.get_args(hint)]
        if origin is not None:
            arguments = list(typing.get_args(hint))
            # What else stands in Annotated is no type.
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


# Who calls.


def calling_graph(saver: Any) -> Any:
    """The graph, or the loop of one, that waits for a saver, or a copy of it; None if none is."""
    return next(calling_graphs(saver), None)


def classes_of_callers(saver: Any) -> set[type]:
    """The classes of all graphs that wait for a saver."""
    return {cls for graph in calling_graphs(saver) for cls in classes_of(graph)}


def calling_graphs(saver: Any) -> Iterator[Any]:
    """All graphs and loops that wait for a saver, the nearest first."""
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
    # A graph inside another one has no checkpointer of its own, but was handed one.
    given = frame.f_locals
    return any(_is_family(given.get(name), saver) for name in ("checkpointer", "saver"))


def _is_family(one: Any, saver: Any) -> bool:
    """Whether one is a saver, or a shallow copy of it."""
    if one is saver:
        return True
    if type(one) is not type(saver) or not hasattr(one, "__dict__"):
        return False
    mine, other = vars(saver), vars(one)
    return any(
        other.get(name) is held for name, held in mine.items() if not isinstance(held, _PLAIN)
    )
