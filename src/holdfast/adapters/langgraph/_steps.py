"""Checkpoints as steps of a timeline: which branches lead to them.

Each checkpoint of a graph is a commit. The newest one is the head of `main`. Where a
checkpoint does not follow the head, the thread forks: the old head stays reachable by a
branch of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from holdfast.adapters.langgraph._entries import Record
from holdfast.history import MAIN
from holdfast.store import Move, ref_name
from holdfast.tree import Commit, Object, ObjectId, make_commit

CHECKPOINTS: Final = ref_name("langgraph", "checkpoints")
"""The ref that leads to the index of a thread."""
BRANCHES: Final = "branch/"
CHECKPOINT: Final = "checkpoint"
"""Under this name the extension of a commit has the id of its checkpoint."""

_MAIN: Final = ref_name("branch", MAIN)
_HIDDEN: Final = ("__input__", "__start__", "__interrupt__")


class Steps:
    """Where the branches of a thread are, and where they shall be."""

    def __init__(self, refs: Mapping[str, ObjectId]) -> None:
        self._before = {name: id for name, id in refs.items() if name.startswith(BRANCHES)}
        self._after = dict(self._before)

    def add(self, commit: ObjectId, parent: ObjectId | None, *, aside: bool) -> None:
        """Put a commit on top of its parent; or aside, if it lost a race."""
        names = [name for name, id in self._after.items() if id == parent and name != _MAIN]
        if aside:
            self._after[names[0] if names else _branch("aside", commit)] = commit
            return
        head = self._after.get(_MAIN)
        if head not in (None, parent):
            assert head is not None
            self._after[_branch("fork", head)] = head
        for name in names:
            del self._after[name]
        self._after[_MAIN] = commit

    def replace(self, old: ObjectId, new: ObjectId) -> None:
        """Put a commit in the place of another one of the same checkpoint."""
        names = [name for name, id in self._after.items() if id == old]
        for name in names or [_branch("fork", new)]:
            self._after[name] = new

    def reset(self, heads: Mapping[ObjectId, bool], newest: ObjectId | None) -> None:
        """Lead to these commits and to no others; each may be aside."""
        self._after = {_branch("aside" if aside else "fork", id): id for id, aside in heads.items()}
        if newest is not None:
            self._after.pop(_branch("fork", newest), None)
            self._after[_MAIN] = newest

    def moves(self) -> list[Move]:
        """What takes the branches there."""
        names = dict.fromkeys([*self._before, *self._after])
        pairs = [(name, self._before.get(name), self._after.get(name)) for name in names]
        return [Move(*pair) for pair in pairs if pair[1] != pair[2]]


def _branch(kind: str, commit: ObjectId) -> str:
    return ref_name("branch", f"{kind}-{commit.hex()[:12]}")


def make_step(
    thread: str, record: Record, values: ObjectId, parent: Commit | None, nodes: str
) -> tuple[Commit, Object]:
    """The commit of a checkpoint."""
    metadata = record.metadata
    return make_commit(
        values,
        () if parent is None else (parent.id,),
        base=None if parent is None else parent.id,
        generation=1 if parent is None else parent.generation + 1,
        time=_microseconds(record.checkpoint.get("ts")),
        agent=thread,
        branch=MAIN,
        description=f"{metadata.get('source', 'put')} {metadata.get('step', '')}".strip(),
        logic_step=nodes,
        extension={CHECKPOINT: str(record.checkpoint["id"])},
    )


def nodes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """The names of the nodes that ran between two checkpoints."""
    seen = (before or {}).get("versions_seen") or {}
    now = after.get("versions_seen") or {}
    ran = [node for node in now if now[node] != seen.get(node) and node not in _HIDDEN]
    return ", ".join(map(str, ran))


def _microseconds(time: Any) -> int:
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1_000_000)
    except (TypeError, ValueError, OverflowError):
        return 0
