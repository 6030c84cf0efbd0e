"""Whether a log is whole: every number there, every record of the version that is expected."""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple

from ropewalk.coherence._logs._files import field_of, lines_of
from ropewalk.coherence._logs._records import (
    BEGIN,
    CONTENT_AUDIT_LOG,
    CONTROL,
    DROPPED,
    END,
    FIELDS,
    SCHEMAS,
    STATE_LOG,
    Record,
)
from ropewalk.errors import InvalidInput


class Gap(NamedTuple):
    """Records are missing: `expected` would have come, `found` came instead.

    `found` is None where the log just stops: its process still writes, was killed, or the
    end was cut off. `at_index` is the line, counted from 0.
    """

    stream: str
    expected: int
    found: int | None
    at_index: int
    instance_id: str


class SchemaMismatch(NamedTuple):
    """A record has another version of its fields than the one that was expected."""

    stream: str
    found_version: str
    expected_version: str
    at_index: int


def validate_log(
    path: str | PathLike[str],
    stream: str | None = None,
    schema_version: str | None = None,
    *,
    complete: bool = True,
) -> tuple[list[Gap], list[SchemaMismatch]]:
    """What is missing from a log, and what in it is of another version.

    `stream` is "state_log", "content_audit_log" or "metric"; without it, the one that the
    first record is of, and the state log if it is of none. Instances that wrote to one file
    are told apart. A log that was begun and not ended is a gap at its end; say
    `complete=False` for one that is still written to. A record without a field that it
    must have raises `InvalidInput`, which is a `ValueError`.
    """
    stream = _stream_in(path) if stream is None else _stream(stream)
    whole = Wholeness(path, stream, schema_version or SCHEMAS[stream])
    for index, record in lines_of(path):
        if record is None:
            whole.torn(index)
        else:
            whole.see(index, record)
    return whole.gaps + whole.open_ends(complete), whole.mismatches


class _Instance:
    def __init__(self, first: int, begun: bool) -> None:
        self.next = first
        self.begun = begun
        self.ended = False
        self.torn: int | None = None


class Wholeness:
    """What was seen of a log so far."""

    def __init__(self, path: str | PathLike[str], stream: str, schema: str) -> None:
        self.gaps: list[Gap] = []
        self.mismatches: list[SchemaMismatch] = []
        self._path, self._stream, self._schema = path, stream, schema
        self._instances: dict[str, _Instance] = {}
        self._latest = ""
        self._lines = 0

    def torn(self, index: int) -> None:
        """A line that nobody can read: whose it was is not known, but who wrote before it."""
        self._lines = index + 1
        self._instances.setdefault(self._latest, _Instance(1, begun=False)).torn = index

    def see(self, index: int, record: Record) -> None:
        """One more record."""
        self._lines = index + 1
        number = field_of(record, "sequence_number", self._path, index)
        name = field_of(record, "instance_id", self._path, index)
        schema = field_of(record, "schema_version", self._path, index)
        if schema != self._schema:
            self.mismatches.append(SchemaMismatch(self._stream, schema, self._schema, index))
        self._latest = name
        kind = record.get(CONTROL)
        if kind == BEGIN:
            self._begin(index, name, number)
            return
        if kind is None and schema == SCHEMAS[self._stream]:
            for field in FIELDS[self._stream]:
                field_of(record, field, self._path, index)
        # Who counts from 0 is right as well as who counts from 1.
        instance = self._instances.setdefault(name, _Instance(min(number, 1), begun=False))
        if kind == DROPPED:
            after = field_of(record, "last_sequence_number", self._path, index) + 1
            self._gap(instance.next, after, index, name)
            number = after - 1
        elif number != instance.next:
            self._gap(instance.next, number, index, name)
        instance.next, instance.ended, instance.torn = number + 1, kind == END, None

    def open_ends(self, complete: bool) -> list[Gap]:
        """Where instances stop without having ended."""
        return [
            gap
            for name, one in self._instances.items()
            for gap in self._open_end(name, one, complete)
        ]

    def _begin(self, index: int, name: str, number: int) -> None:
        # A name may come back: the one before it must then have ended.
        before = self._instances.get(name)
        if before is not None:
            self.gaps += self._open_end(name, before, True)
        self._instances[name] = _Instance(number + 1, begun=True)

    def _open_end(self, name: str, one: _Instance, complete: bool) -> list[Gap]:
        if one.torn is not None:
            return [Gap(self._stream, one.next, None, one.torn, name)]
        if complete and one.begun and not one.ended:
            return [Gap(self._stream, one.next, None, self._lines, name)]
        return []

    def _gap(self, expected: int, found: int, index: int, name: str) -> None:
        self.gaps.append(Gap(self._stream, expected, found, index, name))


def _stream_in(path: str | PathLike[str]) -> str:
    """The stream that the first record of a log is of."""
    first = next((record for _, record in lines_of(path) if record is not None), {})
    schema = first.get("schema_version")
    return next((stream for stream, known in SCHEMAS.items() if known == schema), STATE_LOG)


def _stream(name: str) -> str:
    if name == "content_audit":
        return CONTENT_AUDIT_LOG
    if name not in SCHEMAS:
        raise InvalidInput(f"there is no stream {name!r}; there are {', '.join(SCHEMAS)}.")
    return name
