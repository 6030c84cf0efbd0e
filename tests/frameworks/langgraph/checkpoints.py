"""Checkpoints made by hand, as LangGraph's loop would make them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6

TIME = "2026-01-02T03:04:05.678901+00:00"


def config_of(thread_id: Any = "t", namespace: str | None = "", at: str | None = None) -> Any:
    """A config; it names a namespace and a checkpoint if they are given."""
    named = {"thread_id": thread_id}
    if namespace is not None:
        named["checkpoint_ns"] = namespace
    if at is not None:
        named["checkpoint_id"] = at
    return {"configurable": named}


def id_of(config: Any) -> str:
    """The checkpoint that a config names."""
    found: str = config["configurable"]["checkpoint_id"]
    return found


def new_id() -> str:
    """An id that is greater than all before it."""
    return str(uuid6(clock_seq=-1))


def checkpoint_of(
    values: Mapping[str, Any] | None = None, *, at: str | None = None, version: Any = 1
) -> Checkpoint:
    """A checkpoint with these values, all of one version."""
    return Checkpoint(
        v=4,
        id=at or new_id(),
        ts=TIME,
        channel_values=dict(values or {}),
        channel_versions=dict.fromkeys(values or {}, version),
        versions_seen={"node": {"start": 1}},
        updated_channels=sorted(values or {}),
    )


def metadata_of(step: int = 0, **more: Any) -> Any:
    """What is known of a step."""
    return {"source": "loop", "step": step, "parents": {}, **more}


def put(saver: Any, config: Any, values: Mapping[str, Any] | None = None, **metadata: Any) -> Any:
    """Put a checkpoint whose channels all changed."""
    made = checkpoint_of(values, version=new_id())
    return saver.put(config, made, metadata_of(**metadata), made["channel_versions"])


def put_chain(saver: Any, config: Any, states: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Put checkpoints, each the parent of the next; their configs, the oldest first."""
    configs = []
    for step, values in zip(itertools.count(), states, strict=False):
        config = put(saver, config, values, step=step)
        configs.append(config)
    return configs


def written(saver: Any, config: Any) -> list[tuple[str, str, Any]]:
    """The pending writes of a checkpoint."""
    found = saver.get_tuple(config)
    assert found is not None
    return [tuple(one) for one in found.pending_writes or []]


def steps(found: Iterable[Any]) -> list[int]:
    """The steps of checkpoints."""
    return [one.metadata["step"] for one in found]
