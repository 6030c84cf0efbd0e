"""Rolling a thread back: an earlier checkpoint is copied to its head.

That is what LangGraph itself does to fork a thread (`update_state` with `as_node="__copy__"`).
The copy has the state and the parent of the original, but an id of its own. So the tasks that
follow have new ids too: what they wrote after the original cannot be taken for theirs. Nothing
is removed, and any checkpointer would take the copy for the newest checkpoint.

Needs no LangGraph, so that the command line does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from random import getrandbits
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid1

from ropewalk.adapters.langgraph._entries import Address, Entry, Record
from ropewalk.adapters.langgraph._index import ROOT, Index, Listed
from ropewalk.adapters.langgraph._names import CHECKPOINTS
from ropewalk.codec import inspection_codec
from ropewalk.errors import NotFound, RefMoved
from ropewalk.history import History
from ropewalk.store import Move, Operation, Scalar
from ropewalk.tree import ObjectId
from ropewalk.tree._builder import Builder
from ropewalk.tree._load import Loader
from ropewalk.tree._parts import links_in

_KEPT: Final = ("counters_since_delta_snapshot", "ropewalk_memory")
"""What the metadata of a copy takes over from the original."""
_EMPTY: Final[dict[str, Any]] = {
    "v": 4,
    "channel_versions": {},
    "versions_seen": {},
    "updated_channels": None,
}
_NOT_BEGUN: Final = -2
"""The step number of a graph that has not run yet."""


class Head(NamedTuple):
    """The newest checkpoint of a graph, and the index in which it was seen."""

    root: ObjectId | None
    id: str | None


def head_of(history: History, root: ObjectId | None) -> Head:
    """The newest checkpoint in an index."""
    index = Index(root, history.read)
    found = index.newest(ROOT, Loader(history.read, inspection_codec))
    return Head(root, None if found is None else found.address.id)


def fork_at(
    history: History,
    id: str,
    head: str | None,
    action: str,
    about: Mapping[str, Scalar] | None = None,
) -> tuple[Operation, str]:
    """Copy a checkpoint to the head of its thread, and give back the id of the copy.

    Raises `RefMoved` if `head` is not the newest checkpoint any more.
    """
    while True:
        ref = history.store.ref(history.space, CHECKPOINTS)
        seen = head_of(history, None if ref is None else ref.target)
        if seen.id != head:
            raise RefMoved(CHECKPOINTS, None, seen.root)
        fork = _Fork(history, seen.root)
        made = fork.copy(Address(ROOT, id), None)
        for namespace in fork.index.namespaces():
            # The memory of subgraphs that have one. Others have the ids of tasks in theirs.
            if namespace != ROOT and ":" not in namespace:
                fork.take_back(namespace, id, made)
        try:
            return fork.land(action, about or {}), made
        except RefMoved:
            continue  # Others wrote to the thread. If it was a checkpoint, the next look raises.


class _Fork:
    """Copies in the making."""

    def __init__(self, history: History, root: ObjectId | None) -> None:
        self._history, self._root = history, root
        read = history.read
        self.index = Index(root, read)
        self._builder, self._loader = Builder(read), Loader(read, inspection_codec)
        self._parts: dict[str | int, bytes | None] = {}
        self._needs: list[ObjectId] = []

    def take_back(self, namespace: str, id: str, fork: str) -> None:
        """Have a subgraph remember what it did when a checkpoint of its graph was put."""
        newest = self.index.newest(namespace, self._loader)
        if newest is None or newest.address.id < id:
            return
        found = self._then(namespace, id)
        if found is not None:
            self.copy(found.address, fork)
            return
        address = Address(namespace, self._next_id(namespace))
        checkpoint = {**_EMPTY, "id": address.id, "ts": _now()}
        about = {"source": "fork", "step": _NOT_BEGUN, "parents": {ROOT: fork}}
        self._put(Record(checkpoint, about, None), address, inspection_codec.encode({}))

    def _then(self, namespace: str, id: str) -> Listed | None:
        """Where a subgraph was when a checkpoint of its graph was put.

        If it ran next, that is where it had been given its input: a graph that goes on without
        a new one resumes it there.
        """
        begun: Listed | None = None
        for found in self.index.newest_first(namespace):
            record = Record.read(found.entry, self._loader)
            about = record.metadata
            if not record.aside and found.address.id < id:
                return begun or found
            if about.get("source") == "input" and (about.get("parents") or {}).get(ROOT) == id:
                begun = found
        return begun

    def copy(self, address: Address, fork: str | None) -> str:
        """Copy a checkpoint, of a subgraph for a `fork` of its graph; the id of the copy."""
        entry = self.index.get(address)
        if entry is None:
            raise NotFound(f"the thread has no checkpoint {address.id!r:.80} any more")
        record = Record.read(entry, self._loader)
        made = self._next_id(address.namespace)
        known = record.metadata
        parents = known.get("parents") or {}
        step = known.get("step")
        about: dict[str, Any] = {
            "source": "fork",
            "step": step + 1 if isinstance(step, int) else step,
            "parents": parents if fork is None else {**parents, ROOT: fork},
            **{name: known[name] for name in _KEPT if name in known},
        }
        checkpoint = {**record.checkpoint, "id": made, "ts": _now(), "updated_channels": None}
        self._needs += links_in(entry.values)
        self._needs += [] if entry.before is None else [entry.before]
        original = record.copy_of or address.id
        copied = Record(checkpoint, about, record.parent, copy_of=original)
        self._put(copied, Address(address.namespace, made), entry.values, entry.before)
        return made

    def land(self, action: str, about: Mapping[str, Scalar]) -> Operation:
        """Store the copies; raises `RefMoved` if somebody wrote to the thread meanwhile."""
        _, edited = self.index.edit(self._parts, self._builder)
        made = {one.id for one in edited.objects}
        needs = dict.fromkeys([*self._needs, *edited.needs, edited.root])
        moves = [Move(CHECKPOINTS, self._root, edited.root)]
        return self._history.apply(
            action, moves, about, edited.objects, [id for id in needs if id not in made]
        )

    def _put(
        self, record: Record, address: Address, values: bytes, before: ObjectId | None = None
    ) -> None:
        part = record.part(inspection_codec, self._builder)
        self._parts[address.key] = Entry(part, values, before).part(self._builder)

    def _next_id(self, namespace: str) -> str:
        """An id that sorts after those that there are, as LangGraph makes them."""
        made = _uuid6()
        last = next((one.address.id for one in self.index.newest_first(namespace)), "")
        if made > last:
            return made
        try:  # The clock was set back.
            return str(UUID(int=UUID(last).int + 1))
        except ValueError:
            return f"{last}0"


def _uuid6() -> str:
    time = uuid1(node=getrandbits(48))
    low, rest = time.time & 0xFFF, time.time >> 12
    return str(UUID(int=rest << 80 | 6 << 76 | low << 64 | time.int & (1 << 64) - 1))


def _now() -> str:
    return datetime.now(UTC).isoformat()
