"""What recorded logs say, put in order. Pure: records in, facts out.

A log says when an operation was over, and of a read also when it began. So a version is
*superseded* when some operation was over that saw or wrote a later one: from then on
nobody may begin to read it, beyond the bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from ropewalk.coherence._logs._records import Record

WRITES = frozenset({"write", "write_cas", "register", "publish", "delete", "edit"})
"""The sources of deliveries that are writes."""
COMMITS = frozenset({"register", "commit", "commit_cas", "commit_all", "publish", "delete"})
"""The triggers of transitions that are writes, if they are the writer's own."""
HOLDING = frozenset({"MODIFIED", "EXCLUSIVE"})
"""The states of who has the grant."""


class Promise(NamedTuple):
    """What the first record of a log says about the instance."""

    space: str = ""
    bound_seconds: float | None = None
    bound_reads: int | None = None


class ArtifactKey(NamedTuple):
    """An artifact of a space."""

    space: str
    artifact: str

    def __str__(self) -> str:
        return f"{self.space}/{self.artifact}" if self.space else self.artifact


Reader: TypeAlias = tuple[str, str, ArtifactKey]
"""An instance, an agent of it, and an artifact: what has one copy in its cache."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A content that an agent read or wrote; times are in microseconds."""

    key: ArtifactKey
    agent: str
    instance: str
    version: int
    content_hash: str | None
    source: str
    is_write: bool
    deleted: bool
    began: int
    time: int
    order: int
    read_version: int | None
    merged: bool
    replaced: bool
    degraded: bool
    token: int | None
    promise: Promise
    at: str

    @property
    def reader(self) -> Reader:
        """Whose copy it is."""
        return self.instance, self.agent, self.key

    def __str__(self) -> str:
        return f"{self.agent} in {self.instance[:8]}"


@dataclass(frozen=True, slots=True)
class Turn:
    """A change of an agent's state at an artifact."""

    key: ArtifactKey
    agent: str
    instance: str
    version: int
    holds: bool
    trigger: str
    token: int | None
    time: int
    order: int
    at: str

    def __str__(self) -> str:
        return f"{self.agent} in {self.instance[:8]}"


class Facts:
    """What all logs say together."""

    def __init__(
        self,
        deliveries: Iterable[Delivery],
        turns: Iterable[Turn],
        doubtful: Iterable[ArtifactKey] = (),
    ) -> None:
        self.deliveries = sorted(deliveries, key=attrgetter("began", "instance", "order"))
        self.turns = sorted(turns, key=attrgetter("time", "instance", "order"))
        self.doubtful = frozenset(doubtful)
        """Artifacts with writes of which nobody knows whether they were made."""
        self.writes: dict[ArtifactKey, dict[int, list[Delivery]]] = {}
        by_key: dict[ArtifactKey, list[Delivery]] = defaultdict(list)
        for one in self.deliveries:
            by_key[one.key].append(one)
            if one.is_write:
                self.writes.setdefault(one.key, {}).setdefault(one.version, []).append(one)
        self._known = {key: _evidence(found) for key, found in by_key.items()}

    @property
    def reads(self) -> Iterable[Delivery]:
        """The deliveries that are no writes."""
        return (one for one in self.deliveries if not one.is_write)

    def superseded(self, key: ArtifactKey, version: int) -> float:
        """When somebody knew of a later version; never, if nobody did."""
        times, newest = self._known[key]
        at = bisect_right(newest, version)
        return times[at] if at < len(times) else math.inf


def _evidence(found: list[Delivery]) -> tuple[list[int], list[int]]:
    """When which version was the newest that anybody knew."""
    times, newest, most = [], [], 0
    for one in sorted(found, key=attrgetter("time")):
        most = max(most, one.version)
        times.append(one.time)
        newest.append(most)
    return times, newest


def delivery_of(record: Record, promise: Promise, at: str) -> list[Delivery]:
    """What a record of the content audit log says that was delivered: nothing, or one thing."""
    if record["outcome"] == "error":
        return []
    time = _time(record)
    found = Delivery(
        key=ArtifactKey(promise.space, record["artifact_id"]),
        agent=_agent(record),
        instance=record["instance_id"],
        version=record["version"],
        content_hash=record["content_hash"],
        source=record["source"],
        is_write=record["source"] in WRITES,
        deleted=record["outcome"] == "empty",
        began=record.get("began", time),
        time=time,
        order=_order(record),
        read_version=record.get("read_version"),
        merged=record.get("merged", False),
        replaced=record.get("replaced", False),
        degraded=record.get("degraded", False),
        token=record.get("token") or None,
        promise=promise,
        at=at,
    )
    return [found]


def written_by(record: Record, promise: Promise, at: str) -> list[Delivery]:
    """The same for a write, from a record of the state log."""
    if record["trigger"] not in COMMITS or record["to_state"] == "INVALID":
        return []
    # When it began is not said: it may have been at any time before.
    audited: Mapping[str, object] = {"source": "write", "outcome": "content", "began": 0}
    return delivery_of({**record, **audited}, promise, at)


def turn_of(record: Record, promise: Promise, at: str) -> Turn:
    """A turn from a record of the state log."""
    return Turn(
        key=ArtifactKey(promise.space, record["artifact_id"]),
        agent=_agent(record),
        instance=record["instance_id"],
        version=record["version"],
        holds=record["to_state"] in HOLDING,
        trigger=record["trigger"],
        token=record.get("token") or None,
        time=_time(record),
        order=_order(record),
        at=at,
    )


def _agent(record: Record) -> str:
    return str(record["agent_name"] or record["agent_id"])


def _time(record: Record) -> int:
    # Who writes no time counts at least the operations.
    return int(record["time"] if "time" in record else record["tick"])


def _order(record: Record) -> int:
    return int(record["order"] if "order" in record else record["sequence_number"])
