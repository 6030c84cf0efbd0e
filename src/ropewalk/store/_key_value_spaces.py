"""The spaces of a key-value store, as one store object follows them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ropewalk.errors import Corrupt, RopewalkError
from ropewalk.store._decide import Recorded
from ropewalk.store._key_value_calls import Cells
from ropewalk.store._key_value_cells import SPACES, page_key, refs_key, space_key
from ropewalk.store._key_value_records import (
    PAGE,
    Entry,
    Position,
    Record,
    Segment,
    decode_page,
    decode_record,
    decode_refs,
    encode_page,
    encode_record,
    encode_refs,
    move_refs,
    nowhere,
)
from ropewalk.store._records import Operation
from ropewalk.store.forking import freed_after_fork

_FOLLOWED = 256  # Spaces that are kept in memory.
_LOOKS = 3  # A copy of refs may be replaced while somebody wants to read it.
_FEWEST = 16 * PAGE  # Operations after which refs are copied, however few they are.


class _Broken(Exception):
    """What was read does not go together."""


class Followed:
    """One space, as it was last seen. For one thread at a time: hold its `lock`."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.lock = freed_after_fork(threading.Lock())
        self.raw: bytes | None = None
        """The bytes of the record; None if the space does not exist."""
        self.record = Record(epoch=0)
        self.position = nowhere()

    def take(self, raw: bytes | None, record: Record, position: Position) -> None:
        """See the space so from now on."""
        self.raw, self.record, self.position = raw, record, position


class Spaces:
    """Reads and swaps the records of spaces. Safe to share between threads."""

    def __init__(self, calls: Cells) -> None:
        self._calls = calls
        self._lock = freed_after_fork(threading.Lock())
        self._followed: OrderedDict[str, Followed] = OrderedDict()

    # Reading.

    @contextmanager
    def looking(self, space: str) -> Iterator[Followed]:
        """A space as it is now."""
        raw = self._calls.get(space_key(space))
        found = self._find(space)
        with found.lock:
            self._refresh(found, raw)
            yield found

    @contextmanager
    def recalling(self, space: str) -> Iterator[Followed]:
        """A space as it was last seen, without asking; its `raw` is None if it never was.

        A swap tells whether it is still so.
        """
        found = self._find(space)
        with found.lock:
            yield found

    def record(self, space: str) -> Record | None:
        """The record of a space as it is now; None if the space does not exist."""
        with self.looking(space) as found:
            return None if found.raw is None else found.record

    def names(self, prefix: str) -> list[str]:
        """The spaces that have a record."""
        return sorted(key.removeprefix(SPACES) for key in self._calls.keys(SPACES + prefix))

    def with_operations(self, prefix: str) -> list[str]:
        """The spaces that have operations."""
        names = self.names(prefix)
        found = self._calls.get_many([space_key(name) for name in names])
        return [
            name
            for name in names
            if (data := found.get(space_key(name))) is not None
            and decode_record(name, data).sequence > 0
        ]

    def operations(self, space: str, after: int, limit: int) -> list[Operation]:
        """Operations from number `after + 1` on."""
        record = self.record(space)
        if record is None:
            return []
        last = min(record.sequence, after + limit)
        found: list[Operation] = []
        for segment in self._segments(space, record, after, last):
            for number, _, entry in segment.links():
                if after < number <= last:
                    found.append(_opened(space, number, entry))
        return found

    def recorded(self, space: str, record: Record, write_id: str) -> Recorded | None:
        """The write with this id, if it is among the last ones."""
        for number in record.marked(write_id):
            for segment in self._segments(space, record, number - 1, number):
                entry = segment.entries[number - 1 - segment.first]
                operation = _opened(space, number, entry)
                if operation.write_id == write_id:
                    return Recorded(entry.digest, operation)
        return None

    def _find(self, space: str) -> Followed:
        with self._lock:
            found = self._followed.get(space)
            if found is None:
                found = self._followed[space] = Followed(space)
                if len(self._followed) > _FOLLOWED:
                    self._followed.popitem(last=False)
            else:
                self._followed.move_to_end(space)
            return found

    def _segments(self, space: str, record: Record, after: int, last: int) -> Iterator[Segment]:
        """The pages, and the end of the log, that hold operations `after + 1` to `last`."""
        paged = min(last, record.tail.first)
        keys = [page_key(space, page) for page in range(after // PAGE, -(-paged // PAGE))]
        if after < paged:
            found = self._calls.get_many(keys)
            for key in keys:
                if key not in found:
                    raise _lost(key)
                page = decode_page(key, found[key])
                if len(page.entries) != PAGE or page_key(space, page.first // PAGE) != key:
                    raise _lost(key)
                yield page
        if last > record.tail.first:
            yield record.tail

    # Following.

    def _refresh(self, found: Followed, raw: bytes | None) -> None:
        if raw == found.raw:
            return None
        record = self._decoded(found.space, raw)
        if found.raw is not None and (record is None or record.revision < found.record.revision):
            # It was read before another thread read a newer one; or what was newer is lost.
            raw = self._calls.get(space_key(found.space))
            record = self._decoded(found.space, raw)
        for _ in range(_LOOKS):
            if record is None:
                return found.take(None, Record(epoch=0), nowhere())
            try:
                return found.take(raw, record, self._follow(found, record))
            except _Broken:
                again = self._calls.get(space_key(found.space))
                if again == raw:
                    raise _lost(space_key(found.space)) from None
                raw, record = again, self._decoded(found.space, again)
        raise _lost(space_key(found.space))

    def _decoded(self, space: str, raw: bytes | None) -> Record | None:
        return None if raw is None else decode_record(space, raw)

    def _follow(self, found: Followed, record: Record) -> Position:
        """The refs at a record, from where the space was followed to, or from the start."""
        known = found.position
        # Its refs are changed in place: if that fails, nothing is known any more.
        found.take(None, Record(epoch=0), nowhere())
        if known.sequence:
            with suppress(_Broken):  # Operations that it followed were lost: a new past.
                return self._replay(found.space, record, known)
        return self._replay(found.space, record, nowhere())

    def _replay(self, space: str, record: Record, known: Position) -> Position:
        if record.sequence < known.sequence:
            raise _Broken
        if known.sequence < record.copied:
            known = self._copy(space, record.copied)
        sequence, chain, refs = known
        for segment in self._segments(space, record, sequence, record.sequence):
            if segment.first == sequence and segment.chain != chain:
                raise _Broken
            for number, link, entry in segment.links():
                if number == sequence and link != chain:
                    raise _Broken
                if number > sequence:
                    move_refs(refs, _opened(space, number, entry))
                    sequence, chain = number, link
        return Position(sequence, chain, refs)

    def _copy(self, space: str, sequence: int) -> Position:
        key = refs_key(space, sequence)
        data = self._calls.get(key)
        if data is None:
            raise _Broken
        return decode_refs(key, data)

    # Writing.

    def create(self, space: str, epoch: int) -> None:
        """Make the record of a space, unless somebody else did."""
        self._calls.swap(space_key(space), None, encode_record(space, Record(epoch)))

    def swap(self, space: str, raw: bytes, record: Record) -> bool:
        """Put a record in the place of another; False if that is no longer there."""
        return self._calls.swap(space_key(space), raw, encode_record(space, record))

    def append(self, space: str, raw: bytes, record: Record, recorded: Recorded) -> bool:
        """Add an operation: the moment at which a commit happens.

        False if the record has changed since; then nothing has happened.
        """
        grown = record.grown(recorded)
        page = record.page
        if page is not None:
            values = dict([encode_page(space, page)])
            copy = self._copy_due(space, raw, record)
            if copy is not None:
                values |= dict([encode_refs(space, copy)])
                grown = grown.changed(copied=copy.sequence)
            self._calls.set_many(values)
        data = encode_record(space, grown)
        if not self._calls.swap(space_key(space), raw, data):
            return False
        self._accept(space, raw, data, grown, recorded.operation)
        if grown.copied != record.copied and record.copied:
            self._remove_copy(space, record.copied)
        return True

    def _copy_due(self, space: str, raw: bytes, record: Record) -> Position | None:
        """The refs, if so much was done since they were last copied that it is time.

        The more there are, the more rarely: so a commit costs the same with many.
        """
        found = self._find(space)
        with found.lock:
            due = max(_FEWEST, len(found.position.refs) // 4)
            if found.raw != raw or record.sequence - record.copied < due:
                return None
            return found.position._replace(refs=dict(found.position.refs))

    def _accept(
        self, space: str, raw: bytes, data: bytes, grown: Record, operation: Operation
    ) -> None:
        found = self._find(space)
        with found.lock:
            if found.raw == raw:
                refs = found.position.refs
                move_refs(refs, operation)
                found.take(data, grown, Position(grown.sequence, grown.tail.end(), refs))

    def _remove_copy(self, space: str, sequence: int) -> None:
        key = refs_key(space, sequence)
        with suppress(RopewalkError):  # What stays is in nobody's way.
            data = self._calls.get(key)
            if data is not None:
                self._calls.swap(key, data, None)


def _opened(space: str, number: int, entry: Entry) -> Operation:
    operation = entry.operation(space)
    if operation.sequence != number:
        raise _lost(f"operation {number} of {space}")
    return operation


def _lost(what: str) -> Corrupt:
    return Corrupt(
        f"{what} is missing or not as it was written in the key-value store: operations that were "
        "acknowledged cannot be read. Restore it from a copy."
    )
