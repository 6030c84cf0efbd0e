"""Whether a recorded run kept every promise of coherence. Pure: a record in, violations out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise
from typing import NamedTuple

from tests.coherence.histories.facts import Facts
from tests.coherence.histories.recording import (
    ABSENT,
    BROKEN,
    OK,
    REFUSED,
    Operation,
    Record,
    Seen,
)

READS = ("read", "snapshot")
LONGEST_BLOCK = 60.0
"""Seconds. Grants of the campaigns last 2 at most; machines are slow."""


class Violation(NamedTuple):
    """A promise that was not kept."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


# The rules. Each takes the facts and yields what was broken.


def errors(facts: Facts) -> Iterator[str]:
    """No operation ends with an error that nobody should see."""
    for operation in facts.operations:
        if operation.outcome == BROKEN:
            yield str(operation)


def versions(facts: Facts) -> Iterator[str]:
    """Versions are unique and contiguous, each written by one operation that was not refused."""
    owners: dict[tuple[str, str], int] = {}
    for artifact, line in facts.versions.items():
        numbers = [one.version for one in line]
        if numbers != list(range(1, len(line) + 1)):
            yield f"{artifact} has the versions {numbers}"
        for version in line:
            writer = facts.writer(artifact, version.version)
            if writer is None:
                yield f"nobody wrote version {version.version} of {artifact}: {version.value}"
                continue
            if writer.outcome == REFUSED or artifact not in writer.artifacts or not writer.writes:
                yield f"version {version.version} of {artifact} was not to be written by {writer}"
            first = owners.setdefault((artifact, writer.name), version.version)
            if first != version.version:
                yield f"versions {first} and {version.version} of {artifact} are both by {writer}"


def values(facts: Facts) -> Iterator[str]:
    """What was read is what was written with that version, and what was written is there."""
    for operation, artifact, seen in facts.told():
        line = facts.versions.get(artifact, [])
        found = line[seen.version - 1] if 0 < seen.version <= len(line) else None
        if found is None or found.deleted != (operation.kind == "delete"):
            yield f"version {seen.version} of {artifact} is not there: {operation}"
        elif found.value != seen.value:
            yield f"version {seen.version} of {artifact} is {found.value}, not as in: {operation}"
        elif operation.writes:
            writer = facts.writer(artifact, seen.version)
            if writer is not None and writer.name != operation.name:
                yield f"version {seen.version} of {artifact} is by {writer}, not by: {operation}"


def bounds(facts: Facts) -> Iterator[str]:
    """What was read was current, within the bound, at some instant between call and return."""
    for operation in facts.operations:
        since = operation.invoked - _lateness(operation)
        for artifact, seen in operation.seen.items():
            if not facts.current(artifact, seen.version, since, operation.returned):
                late = operation.invoked - facts.superseded(artifact, seen.version)
                yield f"late by {late:.4f} s, {operation.within:.4f} s are allowed: {operation}"
        if operation.outcome == ABSENT and not _absences(facts, operation, 0):
            yield f"it was there: {operation}"


def _lateness(operation: Operation) -> float:
    if operation.kind not in READS:
        return 0.0
    return operation.within if operation.accesses is None else math.inf


def _absences(facts: Facts, operation: Operation, floor: int) -> list[int]:
    """The deleted versions that a read may have met that found nothing; 0 is the beginning."""
    (artifact,) = operation.artifacts
    since = operation.invoked - _lateness(operation)
    found = facts.absences(artifact, floor, since, operation.returned)
    never = floor <= 0 and facts.current(artifact, 0, since, operation.returned)
    return [0, *found] if never else found


def accesses(facts: Facts) -> Iterator[str]:
    """An agent is served a version that was overwritten at most as often as it may be."""
    late: dict[tuple[str, str, int], int] = defaultdict(int)
    for operation, artifact, seen in facts.told():
        if operation.accesses is None or operation.kind not in READS:
            continue
        if facts.superseded(artifact, seen.version) < operation.invoked:
            key = operation.agent, artifact, seen.version
            late[key] += 1
            if late[key] > operation.accesses:
                yield f"late for the {late[key]}th time: {operation}"


def swaps(facts: Facts) -> Iterator[str]:
    """A compare-and-swap succeeds with the next version, and fails only if there is another."""
    held = {artifact for one in facts.operations if one.grant for artifact in one.artifacts}
    for operation in facts.operations:
        artifact = operation.artifacts[0]
        if (
            operation.outcome == REFUSED
            and "ArtifactHeld" in operation.why
            and artifact not in held
        ):
            yield f"nobody ever held it: {operation}"
        if operation.expected is None or len(operation.artifacts) > 1:
            continue
        if operation.outcome == OK and not _follows(facts, artifact, operation):
            yield f"it was to follow version {operation.expected}: {operation}"
        refused = operation.outcome == REFUSED and "VersionConflict" in operation.why
        if refused and not _passed(facts, artifact, operation):
            yield f"nobody else had written: {operation}"


def _follows(facts: Facts, artifact: str, operation: Operation) -> bool:
    """Whether a swap wrote just after what it expected; 0 is that there is nothing."""
    before = operation.seen[artifact].version - 1
    return before == operation.expected or (
        operation.expected == 0 and before > 0 and facts.versions[artifact][before - 1].deleted
    )


def _passed(facts: Facts, artifact: str, operation: Operation) -> bool:
    """Whether somebody else can have written what a swap did not expect."""
    return any(
        facts.current(artifact, one.version, operation.invoked, operation.returned)
        for one in facts.versions[artifact]
        if (one.version != operation.expected if operation.expected else not one.deleted)
    )


def bases(facts: Facts) -> Iterator[str]:
    """A plain write follows what its agent saw, and is refused only if somebody wrote since."""
    saw: dict[tuple[str, str, str], int] = {}
    for operation in facts.operations:
        # What an agent saw before its process was killed, it has forgotten.
        life = operation.name.rpartition(".")[0], operation.agent
        if operation.kind in ("write", "publish") and operation.expected is None:
            known = {at: saw[*life, at] for at in operation.artifacts if (*life, at) in saw}
            yield from _baseless(facts, operation, known)
        for at, seen in operation.seen.items():
            saw[*life, at] = max(seen.version, saw.get((*life, at), 0))


def _baseless(facts: Facts, operation: Operation, known: Mapping[str, int]) -> Iterator[str]:
    if operation.outcome == OK:
        for at, base in known.items():
            if operation.seen[at].version != base + 1 and not _is_log(operation.seen[at]):
                yield f"version {base} of {at} was what it had seen: {operation}"
    elif operation.outcome == REFUSED and "VersionConflict" in operation.why:
        has_seen_all = known.keys() == set(operation.artifacts)
        if has_seen_all and not _written_since(facts, known, operation.returned):
            yield f"nobody had written after {known}: {operation}"


def _is_log(seen: Seen) -> bool:
    """Whether two who write at once are merged."""
    return "items" in seen.value


def _written_since(facts: Facts, known: Mapping[str, int], until: float) -> bool:
    """Whether one of several artifacts can have been written after what is known of it."""
    return any(
        len(facts.versions[at]) > base and facts.begun(at, base + 1) <= until
        for at, base in known.items()
    )


def counters(facts: Facts) -> Iterator[str]:
    """Every increment of a counter is in it once, because each version has one more."""
    for artifact, line in facts.versions.items():
        counts = [one.value["count"] for one in line if not one.deleted and "count" in one.value]
        for number, (before, after) in enumerate(pairwise(counts), 2):
            if after != before + 1:
                yield f"{artifact} goes from {before} to {after} with version {number}"


def logs(facts: Facts) -> Iterator[str]:
    """What was added to a log stays there, once, until somebody begins it anew on purpose."""
    for artifact, line in facts.versions.items():
        before: list[str] = []
        for version in line:
            if version.deleted or "items" not in version.value:
                continue
            items, writer = version.value["items"], facts.writer(artifact, version.version)
            kept = [] if writer is not None and writer.kind == "begin anew" else before
            added = [] if writer is None else [writer.name]
            if sorted(items) != sorted(kept + added):
                yield f"version {version.version} of {artifact} has {items} after {before}"
            if version.value["total"] != len(items):
                yield f"version {version.version} of {artifact} does not add up: {version.value}"
            before = items


def together(facts: Facts) -> Iterator[str]:
    """What is published together is there as a whole, and a snapshot shows one moment."""
    for operation in facts.operations:
        if operation.kind == "publish":
            landed = {at for at in operation.artifacts if (at, operation.name) in facts.landed}
            if landed and landed != set(operation.artifacts):
                yield f"only {sorted(landed)} were written: {operation}"
        if operation.kind == "snapshot":
            for (one, first), (other, second) in combinations(operation.seen.items(), 2):
                if _apart(facts, one, first, other, second):
                    yield f"{one} and {other} were never so at one moment: {operation}"


def _apart(facts: Facts, one: str, first: Seen, other: str, second: Seen) -> bool:
    return (
        facts.superseded(one, first.version) < facts.begun(other, second.version)
        or facts.superseded(other, second.version) < facts.begun(one, first.version)
        or _halves(facts, one, first, other, second)
    )


def _halves(facts: Facts, one: str, first: Seen, other: str, second: Seen) -> bool:
    """Whether one half of something that was published is seen and the other not yet."""
    for near, far, here, there in ((one, other, first, second), (other, one, second, first)):
        writer = facts.writer(near, here.version)
        if writer is None or writer.kind != "publish":
            continue
        if there.version < facts.landed.get((far, writer.name), 0):
            return True
    return False


def backwards(facts: Facts) -> Iterator[str]:
    """What an agent sees of an artifact never goes back in versions."""
    floors: dict[tuple[str, str], int] = defaultdict(int)
    for operation in facts.operations:
        for artifact, seen in operation.seen.items():
            key = operation.agent, artifact
            if seen.version < floors[key]:
                yield f"version {floors[key]} of {artifact} was seen before: {operation}"
            floors[key] = max(floors[key], seen.version)
        if operation.outcome == ABSENT:
            key = operation.agent, operation.artifacts[0]
            found = _absences(facts, operation, floors[key])
            if not found:
                yield f"version {floors[key]} was seen, and not deleted since: {operation}"
            floors[key] = min(found, default=floors[key])


def grants(facts: Facts) -> Iterator[str]:
    """Nobody else writes between two writes under one grant."""
    for artifact, line in facts.versions.items():
        writers = [facts.writer(artifact, one.version) for one in line]
        span: dict[str, list[int]] = defaultdict(list)
        for number, writer in enumerate(writers):
            if writer is not None and writer.grant is not None:
                span[writer.grant].append(number)
        for grant, numbers in span.items():
            for between in range(numbers[0], numbers[-1]):
                writer = writers[between]
                if writer is None or writer.grant != grant:
                    yield f"{artifact} was written under grant {grant}, between: {writer}"


def blocked(facts: Facts) -> Iterator[str]:
    """Nobody keeps others from writing for long, whether it was killed, stopped or cut off."""
    first: dict[str, float] = {}
    for operation in facts.operations:
        for artifact in operation.artifacts:
            if operation.outcome == OK and operation.writes:
                first.pop(artifact, None)
            elif operation.outcome == REFUSED and "ArtifactHeld" in operation.why:
                since = first.setdefault(artifact, operation.invoked)
                if operation.invoked - since > LONGEST_BLOCK:
                    yield f"held for {operation.invoked - since:.1f} s: {operation}"


def dead(facts: Facts) -> Iterator[str]:
    """At the end everything can be written."""
    alive = {one.artifacts[0] for one in facts.operations if one.kind == "last" and one.seen}
    for artifact in sorted(set(facts.versions) - alive):
        tries = [one for one in facts.operations if one.kind == "last"]
        told = [str(one) for one in tries if artifact in one.artifacts]
        yield f"{artifact} cannot be written at the end: {told[-3:]}"


RULES: Mapping[str, Callable[[Facts], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        errors, versions, values, bounds, accesses, swaps, bases, counters, logs, together,
        backwards, grants, blocked, dead,
    )
}  # fmt: skip


def check(record: Record) -> list[Violation]:
    """Everything that a run broke."""
    facts = Facts(record)
    return [Violation(name, what) for name, rule in RULES.items() for what in rule(facts)]
