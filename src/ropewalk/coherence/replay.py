"""Replay: whether the promises were kept, as the logs of all processes of a run show.

A log says when an operation was over, and of a read also when it began. So a version is
*superseded* when some operation was over that saw or wrote a later one: from then on
nobody may begin to read it, beyond the bound.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from ropewalk.coherence.records import (
    BEGIN,
    CONTENT_AUDIT_LOG,
    CONTROL,
    METRIC,
    SCHEMAS,
    STATE_LOG,
    Gap,
    Record,
    Wholeness,
    field_of,
    lines_of,
)
from ropewalk.errors import InvalidInput, NotFound

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
    time = _time_of(record)
    found = Delivery(
        key=ArtifactKey(promise.space, record["artifact_id"]),
        agent=_agent_of(record),
        instance=record["instance_id"],
        version=record["version"],
        content_hash=record["content_hash"],
        source=record["source"],
        is_write=record["source"] in WRITES,
        deleted=record["outcome"] == "empty",
        began=record.get("began", time),
        time=time,
        order=_order_of(record),
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
        agent=_agent_of(record),
        instance=record["instance_id"],
        version=record["version"],
        holds=record["to_state"] in HOLDING,
        trigger=record["trigger"],
        token=record.get("token") or None,
        time=_time_of(record),
        order=_order_of(record),
        at=at,
    )


def _agent_of(record: Record) -> str:
    return str(record["agent_name"] or record["agent_id"])


def _time_of(record: Record) -> int:
    # Who writes no time counts at least the operations.
    return int(record["time"] if "time" in record else record["tick"])


def _order_of(record: Record) -> int:
    return int(record["order"] if "order" in record else record["sequence_number"])


_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken in a recorded run, or may have been.

    `certain` is False if something that is missing from the logs could explain it. `at`
    is the file and the line that show it.
    """

    invariant: str
    space: str
    artifact: str
    agent: str
    instance_id: str
    version: int | None
    message: str
    certain: bool
    at: str

    def __str__(self) -> str:
        where = f"{self.space}/{self.artifact}" if self.space else self.artifact
        doubt = "" if self.certain else " (perhaps: not everything was recorded)"
        return f"{where}: {self.agent} {self.message}{doubt} [{self.at}]"


class Trust(NamedTuple):
    """How far the logs can be believed: whether they say all, and how clocks may differ."""

    complete: bool = True
    skew: int = 0


class Violation(NamedTuple):
    """Who broke a rule, and how."""

    who: Delivery | Turn
    how: str
    certain: bool = True


Rule: TypeAlias = Callable[[Facts, Trust], Iterator[Violation]]


def stale_reads(facts: Facts, trust: Trust) -> Iterator[Violation]:
    """A read gives a version that was current, within the bound, while it went on."""
    late: dict[tuple[Reader, int], int] = defaultdict(int)
    for read in facts.reads:
        if read.degraded:
            continue  # It says itself that it is not fresh.
        behind = read.began - trust.skew - facts.superseded(read.key, read.version)
        if behind <= 0:
            continue
        late[read.reader, read.version] += 1
        count, allowed = late[read.reader, read.version], read.promise.bound_reads
        seconds = read.promise.bound_seconds
        # A bound in reads promises nothing about time.
        if allowed:
            if count <= allowed:
                continue
            how = f"which was overwritten, {count} times; {allowed} are allowed"
        elif seconds is not None and behind > seconds * _SECOND:
            how = (
                f"which was overwritten {behind / _SECOND:.6f} s before; {seconds:g} s are allowed"
            )
        else:
            continue
        what = "found nothing, since" if read.deleted else "read"
        yield Violation(read, f"{what} version {read.version}, {how}")


def lost_updates(facts: Facts, trust: Trust) -> Iterator[Violation]:
    """A write replaces nothing that its writer had not seen, unless it was merged."""
    seen: dict[Reader, int] = {}
    for one in sorted(facts.deliveries, key=lambda one: (one.instance, one.order)):
        # Who does not say what a write was made from has made it from what it saw last.
        base = one.read_version if one.read_version is not None else seen.get(one.reader)
        seen[one.reader] = one.version
        if not one.is_write or one.merged or not base:
            continue
        if one.deleted and one.read_version is None:
            continue  # Nothing is made from anything.
        written = facts.writes[one.key]
        lost = [
            number
            for number in range(base + 1, one.version)
            if all(other.reader != one.reader for other in written.get(number, ()))
        ]
        if lost:
            what = f"version {lost[0]}" if len(lost) == 1 else f"versions {lost[0]} to {lost[-1]}"
            how = f"wrote version {one.version} from version {base}"
            yield Violation(one, f"{how}: what {what} changed is lost")


def several_writers(facts: Facts, trust: Trust) -> Iterator[Violation]:
    """Only one agent at a time has the grant, and nobody else writes meanwhile."""
    for versions in facts.writes.values():
        line = [found[0] for _, found in sorted(versions.items())]
        yield from _writes_between(line)
        yield from _writes_after(line)
    holders: dict[ArtifactKey, list[Turn]] = defaultdict(list)
    for turn in facts.turns:
        held = holders[turn.key]
        others = [one for one in held if (one.agent, one.instance) != (turn.agent, turn.instance)]
        if turn.holds:
            for other in others:
                yield from _overlap(turn, other, trust)
        # Who takes a grant away writes that down for the one who had it, in a log of its own.
        reclaimed = turn.agent if turn.trigger.startswith("reclaim") else None
        held[:] = [one for one in others if one.agent != reclaimed]
        if turn.holds:
            held.append(turn)


def versions_that_go_back(facts: Facts, trust: Trust) -> Iterator[Violation]:
    """Every version is written once, in order, and nobody is given an older one later."""
    for key, versions in facts.writes.items():
        for version, found in versions.items():
            for first, other in pairwise(found):
                yield Violation(other, f"wrote version {version}, which {first} has written too")
            if facts.superseded(key, version) < found[0].began - trust.skew:
                how = f"began to write version {version} when a later one was known"
                yield Violation(found[0], how)
    by_reader: dict[Reader, list[Delivery]] = defaultdict(list)
    for one in facts.deliveries:
        if not one.degraded:
            by_reader[one.reader].append(one)
    for found in by_reader.values():
        yield from _reads_that_go_back(found)


def versions_of_nobody(facts: Facts, trust: Trust) -> Iterator[Violation]:
    """What is read was written, and has the content that was written."""
    reported: set[tuple[ArtifactKey, int]] = set()
    for read in facts.reads:
        if read.degraded:
            continue  # It may be what waits to be written.
        written = facts.writes.get(read.key, {})
        if read.version in written:
            writer = written[read.version][0]
            hashes = {read.content_hash, writer.content_hash} - {None}
            if len(hashes) > 1:
                how = f"read version {read.version}, but not the content that {writer} wrote"
                yield Violation(read, how)
        # What is older than everything here was written before these logs began.
        elif written and read.version > min(written) and (read.key, read.version) not in reported:
            reported.add((read.key, read.version))
            how = f"read version {read.version}, which nobody in these logs wrote"
            yield Violation(read, how, trust.complete and read.key not in facts.doubtful)


INVARIANTS: Final[Mapping[str, Rule]] = {
    "stale-read": stale_reads,
    "lost-update": lost_updates,
    "single-writer": several_writers,
    "monotonic-version": versions_that_go_back,
    "unwritten-version": versions_of_nobody,
}


OF_READS: Final = frozenset({"stale-read", "monotonic-version", "unwritten-version"})
"""Those about what was read."""


def blind_writes(facts: Facts) -> Iterator[Delivery]:
    """Writes that replaced what another agent wrote and their own had not read.

    They break no promise: what nobody has read may be replaced.
    """
    for one in facts.deliveries:
        if one.replaced:
            # Made from what it read, but for what is newer, it has lost an update.
            if one.read_version in (0, one.version - 1):
                yield one
        elif one.is_write and one.read_version == 0 and not (one.merged or one.deleted):
            before = facts.writes[one.key].get(one.version - 1, [])
            if any(other.reader != one.reader and not other.deleted for other in before):
                yield one


def findings_of(facts: Facts, trust: Trust, invariants: Iterable[str]) -> list[Finding]:
    """Everything that a run broke."""
    return [
        Finding(
            invariant=name,
            space=one.who.key.space,
            artifact=one.who.key.artifact,
            agent=one.who.agent,
            instance_id=one.who.instance,
            version=one.who.version,
            message=one.how,
            certain=one.certain,
            at=one.who.at,
        )
        for name in invariants
        for one in INVARIANTS[name](facts, trust)
    ]


def _writes_between(line: list[Delivery]) -> Iterator[Violation]:
    """Writes of others between two writes under one grant."""
    last = {one.token: at for at, one in enumerate(line)}
    grant: Delivery | None = None
    for at, one in enumerate(line):
        if grant is not None and one.token != grant.token and at < last[grant.token]:
            how = f"wrote version {one.version} while {grant} had the grant {grant.token}"
            yield Violation(one, how)
        elif one.token is not None:
            grant = one


def _writes_after(line: list[Delivery]) -> Iterator[Violation]:
    """Writes under a grant that another one had followed, or that two agents have."""
    newest: Delivery | None = None
    for one in line:
        if one.token is None:
            continue
        if newest is not None and one.token < (newest.token or 0):
            how = f"with the grant {one.token} after {newest} wrote with {newest.token}"
            yield Violation(one, f"wrote version {one.version} {how}")
        elif newest is not None and one.token == newest.token and one.reader != newest.reader:
            how = f"wrote version {one.version} with the grant {one.token}, which {newest} has too"
            yield Violation(one, how)
        else:
            newest = one


def _overlap(turn: Turn, other: Turn, trust: Trust) -> Iterator[Violation]:
    if turn.token is not None and other.token is not None:
        # A later grant ends an earlier one, whenever its holder gets to know that.
        if turn.token == other.token:
            yield Violation(turn, f"got the grant {turn.token}, which {other} has too")
        return
    # Two processes may write down in another order than the one in which it happened.
    certain = trust.complete and turn.instance == other.instance
    yield Violation(turn, f"got the grant while {other} had it", certain)


def _reads_that_go_back(found: list[Delivery]) -> Iterator[Violation]:
    """Reads that began after the same agent had been given a later version."""
    over: list[tuple[int, int]] = []
    newest = 0
    for one in found:  # In the order in which they began.
        while over and over[0][0] < one.began:
            newest = max(newest, heapq.heappop(over)[1])
        if one.version < newest:
            verb = "wrote" if one.is_write else "read"
            yield Violation(one, f"{verb} version {one.version} after version {newest}")
        heapq.heappush(over, (one.time, one.version))


_SUFFIX = ".jsonl"
# The fields that only records of one stream have.
_TELLING = {STATE_LOG: "trigger", CONTENT_AUDIT_LOG: "outcome", METRIC: "operation"}


@dataclass(frozen=True, slots=True)
class Replay:
    """What the logs of a run show.

    `findings` are promises that were broken. `gaps` are records that are missing: a run
    without findings is proven only if there are none. `unbounded` counts reads of which no
    log says how late they may be, `unaudited` the processes whose reads were to be judged and
    are in no log (only a content audit log has reads), and `blind` the writes that replaced
    what their agents had not read, which is allowed.
    """

    findings: list[Finding]
    gaps: list[Gap]
    files: int
    records: int
    reads: int
    writes: int
    degraded: int
    unbounded: int
    unaudited: int
    blind: int
    artifacts: int
    agents: int
    instances: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found that is certain."""
        return not any(one.certain for one in self.findings)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing from the logs."""
        return not self.gaps and not self.unaudited

    @property
    def empty(self) -> bool:
        """Whether the logs hold nothing that could be judged."""
        return not self.records


def replay(
    *paths: str | PathLike[str],
    invariants: Iterable[str] = tuple(INVARIANTS),
    skew_seconds: float = 0.0,
) -> Replay:
    """Look for stale reads, lost updates and other broken promises in recorded logs.

    `paths` are files, or folders whose files `*.jsonl` are read: the state logs and the
    content audit logs of all processes of one run. `invariants` are "stale-read",
    "lost-update", "single-writer", "monotonic-version" and "unwritten-version".
    `skew_seconds` is by how much the clocks of machines may differ.
    """
    wanted = tuple(invariants)
    for name in wanted:
        if name not in INVARIANTS:
            raise InvalidInput(
                f"there is no invariant {name!r}; there are {', '.join(INVARIANTS)}."
            )
    files = [file for path in paths for file in _files(Path(path))]
    run = _Run()
    for file in files:
        run.read(file)
    facts = Facts(run.deliveries, run.turns, run.doubtful)
    gaps = run.gaps()
    trust = Trust(complete=not gaps and not run.begun_late, skew=int(skew_seconds * 1_000_000))
    reads = [one for one in facts.reads if not one.degraded]
    seen: list[Delivery | Turn] = [*facts.deliveries, *facts.turns]
    return Replay(
        findings=findings_of(facts, trust, wanted),
        gaps=gaps,
        files=len(files),
        records=run.records,
        reads=len(reads),
        writes=sum(one.is_write for one in facts.deliveries),
        degraded=sum(one.degraded for one in facts.deliveries),
        unbounded=sum(one.promise[1:] == (None, None) for one in reads),
        unaudited=len(run.instances - run.audited) if OF_READS.intersection(wanted) else 0,
        blind=sum(1 for _ in blind_writes(facts)),
        artifacts=len({one.key for one in seen}),
        agents=len({one.agent for one in seen}),
        instances=len(run.instances),
    )


class _Run:
    """What was read so far."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.instances: set[str] = set()
        self.audited: set[str] = set()
        """Those whose content audit log was read."""
        self.records = 0
        self.begun_late = False
        self.doubtful: set[ArtifactKey] = set()
        self._audited: list[Delivery] = []
        self._committed: list[Delivery] = []
        self._wholes: list[Wholeness] = []
        self._promises: dict[str, Promise] = {}

    @property
    def deliveries(self) -> list[Delivery]:
        """What was delivered; of an instance without content audit log only what it wrote."""
        audited = {one.instance for one in self._audited}
        return self._audited + [one for one in self._committed if one.instance not in audited]

    def gaps(self) -> list[Gap]:
        """What is missing."""
        return [gap for one in self._wholes for gap in (*one.gaps, *one.open_ends(True))]

    def read(self, path: Path) -> None:
        """All records of a file."""
        wholes: dict[str, Wholeness] = {}
        for index, record in lines_of(path):
            if record is None:
                for whole in wholes.values():
                    whole.torn(index)
                continue
            stream = _stream_of(record, path, index)
            if stream == METRIC:
                continue
            if stream not in wholes:
                wholes[stream] = Wholeness(path, stream, SCHEMAS[stream])
            wholes[stream].see(index, record)
            self._see(stream, record, path, index)
        self._wholes += wholes.values()

    def _see(self, stream: str, record: Record, path: Path, index: int) -> None:
        instance = record["instance_id"]
        self.instances.add(instance)
        if stream == CONTENT_AUDIT_LOG:
            self.audited.add(instance)
        if record.get(CONTROL) == BEGIN:
            bounds = record.get("bound_seconds"), record.get("bound_reads")
            self._promises[instance] = Promise(record.get("space", ""), *bounds)
            self.begun_late |= not record.get("from_start", True)
        if CONTROL in record:
            return
        self.records += 1
        promise = self._promises.get(instance, Promise())
        at = f"{path.name}:{index + 1}"
        try:
            self._take(stream, record, promise, at)
        except KeyError as error:
            field_of(record, error.args[0], path, index)

    def _take(self, stream: str, record: Record, promise: Promise, at: str) -> None:
        if stream == STATE_LOG:
            self.turns.append(turn_of(record, promise, at))
            self._committed += written_by(record, promise, at)
        else:
            self._audited += delivery_of(record, promise, at)
            if record["outcome"] == "error" and record["source"] in WRITES:
                self.doubtful.add(ArtifactKey(promise.space, record["artifact_id"]))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.suffix == _SUFFIX)
    if not found:
        raise NotFound(
            f"there is no file *{_SUFFIX} in {path}. `record_to` makes them while a run goes on."
        )
    return found


def _stream_of(record: Record, path: Path, index: int) -> str:
    if CONTROL in record and record.get("stream") in SCHEMAS:
        return str(record["stream"])
    for stream, field in _TELLING.items():
        if field in record:
            return stream
    raise InvalidInput(
        f"line {index + 1} of {path} is no record of a state log or a content audit log. "
        "Name the files, or the folder, that a run was recorded to."
    )
