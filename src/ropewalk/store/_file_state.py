"""What the log of a space comes to: its refs, its last number and its recent writes.

A state follows its log: it reads only what was appended since it last looked. A snapshot
beside the log saves a new process from reading all of it. The log alone is the truth; a
snapshot that cannot be read is passed over.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from errno import ENOENT
from pathlib import Path
from typing import Any

from ropewalk.errors import Corrupt
from ropewalk.store import _file_log as log
from ropewalk.store._decide import Recorded
from ropewalk.store._file_paths import HEADER, LOG, SNAPSHOT, SPACE
from ropewalk.store._records import REMEMBERED_WRITES, Operation, Ref

_STEP = 64  # Of so many operations, the place of one is remembered.
_LOOKS = 3  # A writer may cut a torn end while a reader looks at it.

_NOT_LOOKED = (-1, -1, -1)


class State:
    """One space, as far as its log was read. For one thread at a time: hold its `lock`."""

    def __init__(self, folder: Path, space: str) -> None:
        self.folder, self.space = folder, space
        self.log = folder / LOG
        self.lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self.refs: dict[str, Ref] = {}
        self.sequence = 0
        self.end = 0
        """Where the sound part of the log ends."""
        self.size = 0
        """How long the log was; more than `end` if its end is torn."""
        self.durable = True
        """Whether the last operation was acknowledged only after a sync."""
        self.snapshot_end = 0
        self.snapshot_size = 0
        self._writes: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._places: list[int] = []
        self._last = (0, b"")
        self._signature: tuple[int, int, int] | None = _NOT_LOOKED

    # Reading.

    def refresh(self) -> None:
        """Read what was appended; `Corrupt` if the log is not what it was."""
        signature = self._sign()
        if signature == self._signature:
            return
        for look in range(_LOOKS):
            try:
                if signature is None:
                    self._expect_nothing()
                else:
                    self._follow()
            except log.Broken as broken:
                self._forget()
                if look + 1 == _LOOKS:
                    raise damaged(self.log, broken.place) from broken
                signature = self._sign()
            else:
                self._signature = signature
                return

    def _expect_nothing(self) -> None:
        root = self.folder.parents[2]
        if self.sequence and not (root / HEADER).exists():
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(root))  # All of it is away.
        if self.sequence or (self.folder / SNAPSHOT).exists():
            raise log.Broken(0)
        self._expect_none_synced()

    def _expect_none_synced(self) -> None:
        """A log in which nothing is sound has a torn end, unless it was synced before."""
        if (self.folder / SPACE).exists():
            raise log.Broken(0)

    def _follow(self) -> None:
        if self.end == 0:
            self._restore()
        place, last = self._last
        with open(self.log, "rb", buffering=0) as file:
            file.seek(place)
            data = file.read()
        self.size = place + len(data)
        if not data.startswith(last):
            raise log.Broken(place)
        begin = len(last)
        if self.end == 0:
            begin = self._read_start(data)
        self.end = max(self.end, place + begin)
        self._apply(data[begin:], place + begin)

    def _read_start(self, data: bytes) -> int:
        first = data.find(b"\n") + 1
        if log.unseal(data[:first]) is None:
            log.read_lines(data, 0, self.space, 0)  # Broken, unless all of it is torn.
            self._expect_none_synced()
            return 0
        log.read_start(data[:first], self.space)
        self._last = (0, data[:first])
        return first

    def _apply(self, data: bytes, place: int) -> None:
        if place == 0:
            return
        found = log.read_lines(data, place, self.space, self.sequence)
        for line in found.lines:
            self._add(line)
        if found.lines:
            line = found.lines[-1]
            self._last = (line.start, data[line.start - place : line.end - place])
        self.durable = self.durable or found.synced == self.sequence
        self.end = max(self.end, found.end)

    def _add(self, line: log.Line) -> None:
        operation = line.recorded.operation
        self.sequence, self.durable = operation.sequence, line.durable
        for name, _, target in operation.moves:
            if target is None:
                self.refs.pop(name, None)
            else:
                self.refs[name] = Ref(name, target, operation.sequence)
        if (operation.sequence - 1) % _STEP == 0:
            self._places.append(line.start)
        self._writes.pop(operation.write_id, None)
        self._writes[operation.write_id] = (operation.sequence, line.start)
        while len(self._writes) > REMEMBERED_WRITES:
            self._writes.popitem(last=False)

    def _sign(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.log)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    # Asking.

    def recorded(self, write_id: str) -> Recorded | None:
        """The write with this id, if it is among the last ones."""
        known = self._writes.get(write_id)
        if known is None:
            return None
        sequence, place = known
        return self._read(place, sequence - 1, sequence)[0].recorded

    def operations(self, after: int, limit: int) -> list[Operation]:
        """Operations from number `after + 1` on."""
        last = min(self.sequence, after + limit)
        if last <= after:
            return []
        first = after // _STEP
        lines = self._read(self._places[first], first * _STEP, last)
        return [line.recorded.operation for line in lines[after - first * _STEP :]]

    def _read(self, place: int, before: int, last: int) -> list[log.Line]:
        """The lines behind number `before` up to `last`, of which the first is at `place`."""
        following = (last - 1) // _STEP + 1
        end = self._places[following] if following < len(self._places) else self.end
        with open(self.log, "rb", buffering=0) as file:
            file.seek(place)
            data = file.read(end - place)
        try:
            found = log.read_lines(data, place, self.space, before)
        except log.Broken as broken:
            raise damaged(self.log, broken.place) from broken
        if len(found.lines) < last - before:
            raise damaged(self.log, found.end)
        return found.lines[: last - before]

    # Snapshots.

    def snapshot(self) -> bytes:
        """All of it, spelled."""
        place, last = self._last
        return log.seal(
            {
                "space": self.space,
                "snapshot": log.VERSION,
                "sequence": self.sequence,
                "place": place,
                "last": last.decode("utf-8", "surrogatepass"),
                "refs": [[ref.name, ref.target.hex(), ref.sequence] for ref in self._sorted()],
                "writes": [[id, *known] for id, known in self._writes.items()],
                "places": self._places,
            }
        )

    def _sorted(self) -> Iterable[Ref]:
        return sorted(self.refs.values())

    def _restore(self) -> None:
        with suppress(FileNotFoundError, KeyError, TypeError, ValueError):
            data = (self.folder / SNAPSHOT).read_bytes()
            spelled = log.unseal(data)
            if spelled and spelled["snapshot"] == log.VERSION and spelled["space"] == self.space:
                self._take(spelled, len(data))

    def _take(self, spelled: dict[str, Any], size: int) -> None:
        last = spelled["last"].encode("utf-8", "surrogatepass")
        refs = [Ref(name, bytes.fromhex(id), sequence) for name, id, sequence in spelled["refs"]]
        writes = OrderedDict((id, (number, place)) for id, number, place in spelled["writes"])
        self.refs = {ref.name: ref for ref in refs}
        self._writes, self._places = writes, spelled["places"]
        self.sequence, self._last = spelled["sequence"], (spelled["place"], last)
        self.end = self.snapshot_end = spelled["place"] + len(last)
        self.snapshot_size = size


def damaged(path: Path, place: int) -> Corrupt:
    """What is said of a log that lost something."""
    return Corrupt(
        f"the log {path} is damaged from byte {place} on: operations that were acknowledged are "
        "missing. Restore the file from a copy; other spaces are not affected."
    )
