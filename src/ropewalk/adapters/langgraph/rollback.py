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
from typing import Any, Final
from uuid import UUID, uuid1

from ropewalk.adapters.langgraph.checkpoints import (
    ROOT,
    Address,
    Draft,
    Record,
    Step,
    encode_record,
    record_of,
)
from ropewalk.adapters.langgraph.log import Log, Steps, listed
from ropewalk.adapters.langgraph.names import CHECKPOINTS
from ropewalk.codec import inspection_codec
from ropewalk.errors import NotFound, RefMoved
from ropewalk.history import History
from ropewalk.store import Operation
from ropewalk.store.model import Scalar
from ropewalk.tree import Loader, Object, ObjectId, TreeWriter

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


def newest_at(history: History, head: ObjectId | None) -> str | None:
    """The id of a graph's newest checkpoint, as a head of its thread says it."""
    if head is None:
        return None
    steps = Steps(history.read)
    newest = steps.step(head).state.newest
    address = None if newest is None else steps.step(newest).address
    return None if address is None else address.id


def fork_at(
    history: History,
    thread: str,
    id: str,
    head: str | None,
    action: str,
    about: Mapping[str, Scalar] | None = None,
) -> tuple[Operation, str]:
    """Copy a checkpoint to the head of its thread, and give back the id of the copy.

    Raises `RefMoved` if `head` is not the newest checkpoint any more.
    """
    while True:
        log = Log(history.store, history.space, history.read, Steps(history.read))
        newest = log.newest(ROOT)
        if (newest and newest.address and newest.address.id) != head:
            raise RefMoved(CHECKPOINTS, None, log.target)
        fork = _Fork(log)
        made = fork.copy(Address(ROOT, id), None)
        for namespace, steps in fork.steps.items():
            # The memory of subgraphs that have one. Others have the ids of tasks in theirs.
            if namespace != ROOT and ":" not in namespace:
                fork.take_back(namespace, steps, id, made)
        landing = log.landing(thread, fork.drafts, fork.objects, several=True)
        try:
            done = history.apply(
                action,
                [landing.move],
                {**landing.metadata, **(about or {}), "action": action},
                landing.objects,
                landing.needs,
                step=landing.steps[-1].commit,
            )
        except RefMoved:
            continue  # Others wrote to the thread. If it was a checkpoint, the next look raises.
        return done, made


class _Fork:
    """Copies in the making."""

    def __init__(self, log: Log) -> None:
        self._log, self._loader = log, Loader(log.read, inspection_codec)
        self.drafts: list[Draft] = []
        self.objects: list[Object] = []
        self.steps: dict[str, list[Step]] = {}
        """The checkpoints by namespace, the newest first."""
        for one in listed(log):
            self.steps.setdefault(one.address.namespace, []).append(one.step)

    def take_back(self, namespace: str, steps: list[Step], id: str, fork: str) -> None:
        """Have a subgraph remember what it did when a checkpoint of its graph was put."""
        newest = next((one for one in steps if not one.aside), None)
        if newest is None or newest.address is None or newest.address.id < id:
            return
        found = self._then(steps, id)
        if found is not None and found.address is not None:
            self.copy(found.address, fork)
            return
        address = Address(namespace, self._next_id(namespace))
        checkpoint = {**_EMPTY, "id": address.id, "ts": _now()}
        about = {"source": "fork", "step": _NOT_BEGUN, "parents": {ROOT: fork}}
        empty = TreeWriter(inspection_codec).write({})
        self.objects += empty.objects
        self._put(Record(checkpoint, about), Draft(empty.root, address))

    def _then(self, steps: list[Step], id: str) -> Step | None:
        """Where a subgraph was when a checkpoint of its graph was put.

        If it ran next, that is where it had been given its input: a graph that goes on without
        a new one resumes it there.
        """
        begun: Step | None = None
        for step in steps:
            about = record_of(step, self._loader).metadata
            if not step.aside and step.address is not None and step.address.id < id:
                return begun or step
            if about.get("source") == "input" and (about.get("parents") or {}).get(ROOT) == id:
                begun = step
        return begun

    def copy(self, address: Address, fork: str | None) -> str:
        """Copy a checkpoint, of a subgraph for a `fork` of its graph; the id of the copy."""
        put = self._log.find(address).put
        if put is None:
            raise NotFound(f"the thread has no checkpoint {address.id!r:.80} any more")
        step = self._log.step(put)
        record = record_of(step, self._loader)
        made = self._next_id(address.namespace)
        known = record.metadata
        parents = known.get("parents") or {}
        number = known.get("step")
        about: dict[str, Any] = {
            "source": "fork",
            "step": number + 1 if isinstance(number, int) else number,
            "parents": parents if fork is None else {**parents, ROOT: fork},
            **{name: known[name] for name in _KEPT if name in known},
        }
        checkpoint = {**record.checkpoint, "id": made, "ts": _now(), "updated_channels": None}
        copied = Draft(
            step.commit.root,
            Address(address.namespace, made),
            step.parent,
            copy_of=step.origin,
            description=f"fork {about['step']}",
        )
        self._put(Record(checkpoint, about, record.before), copied)
        return made

    def _put(self, record: Record, draft: Draft) -> None:
        plain, objects = encode_record(inspection_codec, record)
        self.objects += objects
        root = objects[-1].id if objects else None
        draft.record, draft.metadata = plain, root
        self.drafts.append(draft)

    def _next_id(self, namespace: str) -> str:
        """An id that sorts after those that there are, as LangGraph makes them."""
        made = _uuid6()
        last = next((one.address.id for one in self.steps.get(namespace, ()) if one.address), "")
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
