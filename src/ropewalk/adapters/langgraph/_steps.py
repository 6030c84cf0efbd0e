"""Checkpoints as steps of a timeline: what each of them says of itself there.

No commits are stored for them. A checkpoint has all that a commit would say, so commits are
made when somebody looks: see `_shown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ropewalk.adapters.langgraph._entries import Record
from ropewalk.history import MAIN
from ropewalk.tree import Commit, Object, ObjectId, make_commit

CHECKPOINT: Final = "checkpoint"
"""Under this name the extension of a commit has the id of its checkpoint."""

_HIDDEN: Final = ("__input__", "__start__", "__interrupt__")


def make_step(
    thread: str, record: Record, values: ObjectId, parent: Commit | None, nodes: str
) -> tuple[Commit, Object]:
    """The commit of a checkpoint."""
    metadata = record.metadata
    return make_commit(
        values,
        () if parent is None else (parent.id,),
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
