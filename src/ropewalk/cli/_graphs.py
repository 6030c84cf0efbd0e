"""Threads of LangGraph: how their states are shown, and which there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph._deferred import class_name, is_deferred, raw
from ropewalk.adapters.langgraph.checkpoints import ROOT, record_of
from ropewalk.adapters.langgraph.log import Log, listed
from ropewalk.adapters.langgraph.timeline import checkpoint_id_of, graph_names, log_of
from ropewalk.cli._views import View
from ropewalk.codec import Path, Undeclared, inspection_codec
from ropewalk.store import Store
from ropewalk.timeline import Checkpoint, Diff
from ropewalk.tree import ABSENT, Change, Loader

_INTERNAL: Final = ("branch:", "start:", "join:", "__")
"""What the names of channels begin with that LangGraph keeps for itself."""
_MESSAGE: Final = re.compile(r"langchain(_core\.messages\.\w+)?\.\w*Message(Chunk)?")
"""The stored names of LangChain's messages."""
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


class GraphView(View):
    """The state of a graph, without the channels that say which nodes run next."""

    def whole(self, value: Any) -> Any:
        """The state, as it is shown."""
        if not isinstance(value, dict):
            return readable(value)
        return {name: readable(one) for name, one in value.items() if not is_internal(name)}

    def part(self, path: Path, value: Any) -> Any:
        """What is at a path, as it is shown."""
        return value if value is ABSENT else readable(value)

    def diff(self, found: Diff) -> Diff:
        """The differences, without those of internal channels."""
        return Diff(tuple(_shown(one) for one in found.changes if not self.hides(one.path)))

    def hides(self, path: Path) -> bool:
        """Whether what is at a path is LangGraph's own."""
        return bool(path) and is_internal(path[0])

    def title(self, step: Checkpoint) -> str:
        """What put it and its number, and the nodes that ran."""
        told = step.description or "(no description)"
        return f"{told}: {step.logic_step}" if step.logic_step else told

    def facts(self, step: Checkpoint) -> dict[str, str]:
        """The id that LangGraph knows it by."""
        id = checkpoint_id_of(step)
        return {} if id is None else {"checkpoint_id": id}


def is_internal(name: Any) -> bool:
    """Whether a channel is LangGraph's own."""
    return isinstance(name, str) and name.startswith(_INTERNAL)


def _shown(change: Change) -> Change:
    added, removed = change.kind == "added", change.kind == "removed"
    return Change(
        change.path,
        change.kind,
        lambda: None if added else readable(change.old),
        lambda: None if removed else readable(change.new),
    )


def readable(value: Any) -> Any:
    """A value in which messages of LangChain are what they say, and little else."""
    if isinstance(value, list):
        return [readable(one) for one in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(readable(one) for one in value)
    if isinstance(value, dict):
        return {name: readable(one) for name, one in value.items()}
    if type(value) is not Undeclared:
        return value
    if is_deferred(value.name):
        content = readable(raw(value.content))
        return Undeclared(class_name(value.name), value.version, content, value.opened)
    if _MESSAGE.fullmatch(value.name) and isinstance(value.content, dict):
        return _message(value.content)
    return Undeclared(value.name, value.version, readable(value.content), value.opened)


def _message(fields: dict[str, Any]) -> dict[str, Any]:
    """Who says what; then what else there is."""
    told: dict[str, Any] = {
        "type": fields.get("type"),
        "content": readable(fields.get("content")),
    }
    for name, one in fields.items():
        if name not in told and one not in _EMPTY and not name.startswith("_"):
            told[name.removeprefix("+")] = readable(one)
    return told


class GraphRow(NamedTuple):
    """A thread of LangGraph, for a list."""

    changed: datetime
    name: str
    checkpoints: int
    namespaces: int
    step: int | None
    source: str | None

    def record(self) -> dict[str, Any]:
        """The row as one object of JSON."""
        return {
            "kind": "langgraph",
            "thread_id": self.name,
            "changed": self.changed.isoformat(),
            "checkpoints": self.checkpoints,
            "namespaces": self.namespaces,
            "step": self.step,
            "source": self.source,
        }


def graph_rows(store: Store) -> Iterator[GraphRow]:
    """The threads of LangGraph in a store."""
    for name in graph_names(store):
        log = log_of(store, name)
        if log.head is not None:
            yield _row(name, log)


def _row(name: str, log: Log) -> GraphRow:
    put = [one.step for one in listed(log)]
    own = (step for step in put if step.address and step.address.namespace == ROOT)
    newest = next(own, None) or next(iter(put), None)
    record = None if newest is None else record_of(newest, Loader(log.read, inspection_codec))
    about = {} if record is None else record.metadata
    step, source = about.get("step"), about.get("source")
    return GraphRow(
        _time(None if record is None else record.checkpoint.get("ts")),
        name,
        len(put),
        len({step.address.namespace for step in put if step.address}),
        step if isinstance(step, int) else None,
        source if isinstance(source, str) else None,
    )


def _time(written: Any) -> datetime:
    try:
        return datetime.fromisoformat(written).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)
