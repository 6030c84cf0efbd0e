"""What a recorded run says, put in order.

What is known about time is kept apart from what is guessed. A version has begun when the
operation that wrote it was invoked, and is superseded when some operation has returned that
saw or wrote a later one. An operation whose end nobody saw may have happened at any time after
it was invoked, or never; the authority's own history says which.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tests.coherence.histories.recording import OK, REFUSED, Operation, Record, Seen, Version


class Facts:
    """What a record says, put in order."""

    def __init__(self, record: Record) -> None:
        self.operations = sorted(record.operations, key=lambda one: one.invoked)
        self.by_name = {one.name: one for one in self.operations}
        self.versions: dict[str, list[Version]] = defaultdict(list)
        for version in sorted(record.versions, key=lambda one: one.version):
            self.versions[version.artifact].append(version)
        self.names = {
            (one.artifact, one.version): name
            for line in self.versions.values()
            for one, name in zip(line, _writers(line), strict=True)
        }
        self.landed = {(at, name): version for (at, version), name in self.names.items() if name}
        self.deletes = {
            (artifact, one.expected + 1): one
            for one in sorted(self.operations, key=lambda one: one.outcome == OK)
            for artifact in one.artifacts
            if one.kind == "delete" and one.expected is not None and one.outcome != REFUSED
        }
        self._known = {name: self._evidence(name) for name in self.versions}
        self._deleted = {name: self._deletions(line) for name, line in self.versions.items()}

    def told(self) -> Iterator[tuple[Operation, str, Seen]]:
        """Everything that anybody was told of an artifact."""
        for operation in self.operations:
            for artifact, seen in operation.seen.items():
                yield operation, artifact, seen

    def writer(self, artifact: str, version: int) -> Operation | None:
        """Who wrote a version; None if nobody says so."""
        name = self.names.get((artifact, version))
        if name is None:
            return self.deletes.get((artifact, version))
        return self.by_name.get(name)

    def begun(self, artifact: str, version: int) -> float:
        """When a version can have been written first."""
        operation = self.writer(artifact, version)
        return -math.inf if operation is None else operation.invoked

    def superseded(self, artifact: str, version: int) -> float:
        """When somebody knew of a later version."""
        times, newest = self._known.get(artifact, ([], []))
        at = bisect_right(newest, version)
        return times[at] if at < len(times) else math.inf

    def current(self, artifact: str, version: int, since: float, until: float) -> bool:
        """Whether a version can have been the newest at some instant between two."""
        begun = self.begun(artifact, version) if version else -math.inf
        return begun <= until and self.superseded(artifact, version) >= since

    def absences(self, artifact: str, floor: int, since: float, until: float) -> list[int]:
        """Deleted versions from one on that can have been the newest between two instants."""
        deleted, earliest = self._deleted.get(artifact, ([], []))
        times, newest = self._known.get(artifact, ([], []))
        known = bisect_left(times, since)
        first = bisect_left(deleted, max(floor, newest[known - 1] if known else 0))
        found = []
        for version, begun in zip(deleted[first:], earliest[first:], strict=True):
            if begun > until:
                break
            if self.current(artifact, version, since, until):
                found.append(version)
        return found

    def _deletions(self, line: Sequence[Version]) -> tuple[list[int], list[float]]:
        """The deleted versions, and when the first of each and all later ones can have begun."""
        deleted = [one.version for one in line if one.deleted]
        begun = [self.begun(one.artifact, one.version) for one in line if one.deleted]
        return deleted, list(accumulate(reversed(begun), min))[::-1]

    def _evidence(self, artifact: str) -> tuple[list[float], list[int]]:
        found = sorted(
            (one.returned, seen.version)
            for one in self.operations
            for name, seen in one.seen.items()
            if name == artifact
        )
        newest, most = [], 0
        for _, version in found:
            most = max(most, version)
            newest.append(most)
        return [at for at, _ in found], newest


def _writers(line: Sequence[Version]) -> Iterator[str | None]:
    """The name of the operation behind each version; None behind one that was deleted."""
    before: set[str] = set()
    for version in line:
        if version.deleted:
            yield None
        elif "items" in version.value:
            items = version.value["items"]
            yield next((name for name in reversed(items) if name not in before), None)
            before = set(items)
        else:
            yield version.value["by"]
