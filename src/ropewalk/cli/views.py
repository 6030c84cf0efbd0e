"""How the content of a timeline is displayed, and how paths in it are written.

That of an agent is displayed as it is. A thread is stored as one map, with messages at their
positions and some bookkeeping; people see its record, its state and its messages. A thread of
LangGraph is displayed by its channels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph.deferred import class_name, is_deferred, raw
from ropewalk.adapters.langgraph.saver.checkpoints import ROOT, record_of
from ropewalk.adapters.langgraph.saver.log import Log, listed
from ropewalk.adapters.langgraph.saver.timeline import checkpoint_id_of, graph_names, log_of
from ropewalk.codec import Path, Undeclared, inspection_codec, parse_path, spell_path
from ropewalk.errors import InvalidInput, PathNotFound
from ropewalk.store import Store, split_name
from ropewalk.threads import Message
from ropewalk.threads.contents import IDS, ITEM, MARKS, RECORD, STATE, Contents, is_item
from ropewalk.threads.fields import from_microseconds
from ropewalk.threads.message import message_of
from ropewalk.threads.parts import content_to_stored
from ropewalk.timeline import Checkpoint, Diff
from ropewalk.timeline.checkpoint import Past, shown_lines
from ropewalk.tree import ABSENT, Change, Loader

_MESSAGES = "messages"
_METADATA = "metadata"
_ABOUT = "about"
_TIMES = ("created_at", "updated_at")
_HIDDEN = (MARKS, IDS)

_INTERNAL: Final = ("branch:", "start:", "join:", "__")
"""Prefixes of LangGraph's internal channels."""

_MESSAGE: Final = re.compile(r"langchain(_core\.messages\.\w+)?\.\w*Message(Chunk)?")
"""The stored names of LangChain's messages."""

_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


class View:
    """The content of an agent's timeline, as it is."""

    def parse(self, written: str, past: Past) -> Path:
        """Parse a path."""
        return parse_path(written)

    def spell(self, path: Path) -> str:
        """Format a path the way `parse` reads it."""
        return spell_path(path)

    def whole(self, value: Any) -> Any:
        """The whole content, as displayed."""
        return value

    def part(self, path: Path, value: Any) -> Any:
        """The value at a path, as displayed."""
        return value

    def diff(self, found: Diff) -> Diff:
        """The displayed differences, without internal ones."""
        return Diff(tuple(self._shown(one) for one in found.changes if not self.hides(one.path)))

    def _shown(self, change: Change) -> Change:
        path, added, removed = change.path, change.kind == "added", change.kind == "removed"
        return Change(
            path,
            change.kind,
            lambda: None if added else self.part(path, change.old),
            lambda: None if removed else self.part(path, change.new),
        )

    def hides(self, path: Path) -> bool:
        """Whether a path is internal."""
        return False

    def lines(self, change: Change) -> Iterable[str]:
        """A difference, for people."""
        return shown_lines(change)

    def title(self, step: Checkpoint) -> str:
        """The title of a step in a list."""
        return step.description or step.logic_step or "(no description)"

    def facts(self, step: Checkpoint) -> dict[str, str]:
        """Further facts about a step."""
        return {}

    def ref(self, name: str) -> tuple[str, str]:
        """The kind of a ref, and its name."""
        return split_name(name)


class ThreadView(View):
    """A thread: its record, its state and its messages."""

    def parse(self, written: str, past: Past) -> Path:
        """`state.step`, `thread.thread_name`, `messages[3].content`; also by a message's id."""
        if not written:
            return ()
        # `state` is a path here, not the keyword for the whole.
        steps = parse_path(f"state{'' if written.startswith('[') else '.'}{written}")
        if steps[0] != _MESSAGES:
            return steps
        if len(steps) == 1:
            raise InvalidInput(
                'name one message, by its position or its id: messages[3], messages["m1"]'
            )
        return _stored((_position(steps[1], past), *steps[2:]), past)

    def spell(self, path: Path) -> str:
        """Format a path the way `parse` reads it."""
        root, rest = _apart(path)
        spelled = spell_path(("", *rest)).removeprefix('[""]') if rest else ""
        return f"{root}{spelled}"

    def whole(self, value: Any) -> Any:
        """The record and the state, if any, and the messages in order."""
        shown = {name: self.part((name,), value[name]) for name in (RECORD, STATE) if name in value}
        found = sorted(key for key in value if isinstance(key, int))
        shown[_MESSAGES] = [{"position": key, **_message(value[key])} for key in found]
        return shown

    def part(self, path: Path, value: Any) -> Any:
        """The value at a path, as displayed."""
        if value is ABSENT:
            return value
        if path == (RECORD,):
            return {name: _time(value[name]) if name in _TIMES else value[name] for name in value}
        if len(path) == 1 and isinstance(path[0], int):
            return _message(value)
        if len(path) == 2 and path[0] != STATE and path[1] in _TIMES:
            return _time(value)
        return value

    def hides(self, path: Path) -> bool:
        """Whether it is bookkeeping: marks, ids, and the original form of a message's dict."""
        return bool(path) and (
            path[0] in _HIDDEN or (isinstance(path[0], int) and path[1:2] == ("source",))
        )

    def lines(self, change: Change) -> Iterable[str]:
        """A difference, for people."""
        root, rest = _apart(change.path)
        moved = Change(rest, change.kind, lambda: change.old, lambda: change.new)
        return shown_lines(moved, root)


def message_record(message: Message) -> dict[str, Any]:
    """A message as a JSON object, before its values are converted."""
    content, usage = message.content, message.usage
    return {
        "id": message.id,
        "role": message.role,
        "name": message.name,
        "created_at": message.created_at.isoformat(),
        "text": message.text,
        "content": None if content is None else content_to_stored(content),
        "tool_calls": [call.to_stored() for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "usage": None if usage is None else usage.to_stored(),
        "metadata": dict(message.metadata),
        "extra": dict(message.extra),
    }


def _message(stored: Any) -> dict[str, Any]:
    """A stored message without redundant fields; an item as its framework handed it over."""
    if is_item(stored):
        return {"created_at": _time(stored["at"]), "item": stored["item"]}
    told = message_record(message_of(dict(stored)))
    del told["text"]
    return {name: value for name, value in told.items() if value not in (None, [], {})}


def _position(place: Any, past: Past) -> int:
    if isinstance(place, int):
        return place
    history = past._history
    contents = Contents.at(past.checkpoint.commit.root, history.read, history.codec)
    found = contents.position_of(place) if isinstance(place, str) else None
    if found is None:
        raise PathNotFound(f"the thread has no message {place!r:.80} there")
    return found


def _stored(path: Path, past: Past) -> Path:
    """Where a path in a message is stored: metadata of a put are separate from its own."""
    if len(path) == 1:
        return path
    try:
        message = past.get(path[:1])
    except PathNotFound:
        return path
    if is_item(message):
        item = message[ITEM]
        shown = path[1] == ITEM and not (isinstance(item, dict) and ITEM in item)
        return path if shown else (path[0], ITEM, *path[1:])
    if path[1] != _METADATA:
        return path
    own, shared = message.get(_METADATA, {}), message.get(_ABOUT, {})
    is_shared = path[2] in shared and path[2] not in own if len(path) > 2 else not own
    return (path[0], _ABOUT, *path[2:]) if shared and is_shared else path


def _apart(path: Path) -> tuple[str, Path]:
    """The displayed beginning of a path, and the rest of it."""
    if not path:
        return "", ()
    if not isinstance(path[0], int):
        return str(path[0]), path[1:]
    if path[1:2] == (ITEM,):
        return _MESSAGES, (path[0], *path[2:])
    return _MESSAGES, (path[0], _METADATA, *path[2:]) if path[1:2] == (_ABOUT,) else path


def _time(stored: Any) -> Any:
    return from_microseconds(stored).isoformat() if isinstance(stored, int) else stored


class GraphView(View):
    """The state of a graph, without the channels that schedule nodes."""

    def whole(self, value: Any) -> Any:
        """The state, as displayed."""
        if not isinstance(value, dict):
            return readable(value)
        return {name: readable(one) for name, one in value.items() if not is_internal(name)}

    def part(self, path: Path, value: Any) -> Any:
        """The value at a path, as displayed."""
        return value if value is ABSENT else readable(value)

    def hides(self, path: Path) -> bool:
        """Whether a path is LangGraph's own."""
        return bool(path) and is_internal(path[0])

    def title(self, step: Checkpoint) -> str:
        """The source and number of a step, and the nodes that ran."""
        told = step.description or "(no description)"
        return f"{told}: {step.logic_step}" if step.logic_step else told

    def facts(self, step: Checkpoint) -> dict[str, str]:
        """LangGraph's id of the step."""
        id = checkpoint_id_of(step)
        return {} if id is None else {"checkpoint_id": id}


def is_internal(name: Any) -> bool:
    """Whether a channel is LangGraph's own."""
    return isinstance(name, str) and name.startswith(_INTERNAL)


def readable(value: Any) -> Any:
    """A value in which messages of LangChain are reduced to their essentials."""
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
        return _graph_message(value.content)
    return Undeclared(value.name, value.version, readable(value.content), value.opened)


def _graph_message(fields: dict[str, Any]) -> dict[str, Any]:
    """Author and text first; then everything else."""
    told: dict[str, Any] = {
        "type": fields.get("type"),
        "content": readable(fields.get("content")),
    }
    for name, one in fields.items():
        if name not in told and one not in _EMPTY and not name.startswith("_"):
            told[name.removeprefix("+")] = readable(one)
    return told


class GraphRow(NamedTuple):
    """A thread of LangGraph in a list."""

    changed: datetime
    name: str
    checkpoints: int
    namespaces: int
    step: int | None
    source: str | None

    def record(self) -> dict[str, Any]:
        """The row as a JSON object."""
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
        _graph_time(None if record is None else record.checkpoint.get("ts")),
        name,
        len(put),
        len({step.address.namespace for step in put if step.address}),
        step if isinstance(step, int) else None,
        source if isinstance(source, str) else None,
    )


def _graph_time(written: Any) -> datetime:
    try:
        return datetime.fromisoformat(written).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)
