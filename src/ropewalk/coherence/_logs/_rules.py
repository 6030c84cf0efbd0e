"""What must hold in a recorded run. Each rule takes the facts and yields what was broken."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from ropewalk.coherence._logs._facts import ArtifactKey, Delivery, Facts, Reader, Turn

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


class Broken(NamedTuple):
    """Who broke a rule, and how."""

    who: Delivery | Turn
    how: str
    certain: bool = True


Rule: TypeAlias = Callable[[Facts, Trust], Iterator[Broken]]


def stale_reads(facts: Facts, trust: Trust) -> Iterator[Broken]:
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
        # Whoever counts reads promises nothing about time.
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
        yield Broken(read, f"{what} version {read.version}, {how}")


def lost_updates(facts: Facts, trust: Trust) -> Iterator[Broken]:
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
        lost = [
            number for number in range(base + 1, one.version) if not _is_own(facts, one, number)
        ]
        if lost:
            what = f"version {lost[0]}" if len(lost) == 1 else f"versions {lost[0]} to {lost[-1]}"
            how = f"wrote version {one.version} from version {base}"
            yield Broken(one, f"{how}: what {what} changed is lost")


def several_writers(facts: Facts, trust: Trust) -> Iterator[Broken]:
    """Only one agent at a time has the grant, and nobody else writes meanwhile."""
    for versions in facts.writes.values():
        line = [found[0] for _, found in sorted(versions.items())]
        yield from _writes_between(line)
        yield from _writes_after(line)
    holders: dict[ArtifactKey, list[Turn]] = defaultdict(list)
    for turn in facts.turns:
        held = holders[turn.key]
        others = [one for one in held if not _is_same(turn, one)]
        if turn.holds:
            for other in others:
                yield from _overlap(turn, other, trust)
        held[:] = [one for one in others if not _reclaims(turn, one)]
        if turn.holds:
            held.append(turn)


def versions_that_go_back(facts: Facts, trust: Trust) -> Iterator[Broken]:
    """Every version is written once, in order, and nobody is given an older one later."""
    for key, versions in facts.writes.items():
        for version, found in versions.items():
            for first, other in pairwise(found):
                yield Broken(other, f"wrote version {version}, which {first} has written too")
            if facts.superseded(key, version) < found[0].began - trust.skew:
                how = f"began to write version {version} when a later one was known"
                yield Broken(found[0], how)
    by_reader: dict[Reader, list[Delivery]] = defaultdict(list)
    for one in facts.deliveries:
        if not one.degraded:
            by_reader[one.reader].append(one)
    for found in by_reader.values():
        yield from _reads_that_go_back(found)


def versions_of_nobody(facts: Facts, trust: Trust) -> Iterator[Broken]:
    """What is read was written, and has the content that was written."""
    told: set[tuple[ArtifactKey, int]] = set()
    for read in facts.reads:
        if read.degraded:
            continue  # It may be what waits to be written.
        written = facts.writes.get(read.key, {})
        if read.version in written:
            writer = written[read.version][0]
            hashes = {read.content_hash, writer.content_hash} - {None}
            if len(hashes) > 1:
                how = f"read version {read.version}, but not the content that {writer} wrote"
                yield Broken(read, how)
        # What is older than everything here was written before these logs began.
        elif written and read.version > min(written) and (read.key, read.version) not in told:
            told.add((read.key, read.version))
            how = f"read version {read.version}, which nobody in these logs wrote"
            yield Broken(read, how, trust.complete and read.key not in facts.doubtful)


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


def _is_own(facts: Facts, one: Delivery, version: int) -> bool:
    found = facts.writes[one.key].get(version, [])
    return any(other.reader == one.reader for other in found)


def _writes_between(line: list[Delivery]) -> Iterator[Broken]:
    """Writes of others between two writes under one grant."""
    last = {one.token: at for at, one in enumerate(line)}
    grant: Delivery | None = None
    for at, one in enumerate(line):
        if grant is not None and one.token != grant.token and at < last[grant.token]:
            how = f"wrote version {one.version} while {grant} had the grant {grant.token}"
            yield Broken(one, how)
        elif one.token is not None:
            grant = one


def _writes_after(line: list[Delivery]) -> Iterator[Broken]:
    """Writes under a grant that another one had followed, or that two agents have."""
    newest: Delivery | None = None
    for one in line:
        if one.token is None:
            continue
        if newest is not None and one.token < (newest.token or 0):
            how = f"with the grant {one.token} after {newest} wrote with {newest.token}"
            yield Broken(one, f"wrote version {one.version} {how}")
        elif newest is not None and one.token == newest.token and one.reader != newest.reader:
            how = f"wrote version {one.version} with the grant {one.token}, which {newest} has too"
            yield Broken(one, how)
        else:
            newest = one


def _is_same(turn: Turn, other: Turn) -> bool:
    return (turn.agent, turn.instance) == (other.agent, other.instance)


def _reclaims(turn: Turn, held: Turn) -> bool:
    # Who takes a grant away writes that down for the one who had it, in a log of its own.
    return turn.trigger.startswith("reclaim") and turn.agent == held.agent


def _overlap(turn: Turn, other: Turn, trust: Trust) -> Iterator[Broken]:
    if turn.token is not None and other.token is not None:
        # A later grant ends an earlier one, whenever its holder gets to know that.
        if turn.token == other.token:
            yield Broken(turn, f"got the grant {turn.token}, which {other} has too")
        return
    # Two processes may write down in another order than the one in which it happened.
    certain = trust.complete and turn.instance == other.instance
    yield Broken(turn, f"got the grant while {other} had it", certain)


def _reads_that_go_back(found: list[Delivery]) -> Iterator[Broken]:
    """Reads that began after the same agent had been given a later version."""
    over: list[tuple[int, int]] = []
    newest = 0
    for one in found:  # In the order in which they began.
        while over and over[0][0] < one.began:
            newest = max(newest, heapq.heappop(over)[1])
        if one.version < newest:
            verb = "wrote" if one.is_write else "read"
            yield Broken(one, f"{verb} version {one.version} after version {newest}")
        heapq.heappush(over, (one.time, one.version))
