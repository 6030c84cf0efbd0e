"""The records of the three logs: their fields, how they are made, read back and validated.

Every record of a stream has a `sequence_number`, gap-free within its instance, and an
`order`, which counts through all streams of the instance. The first record that an
instance writes to a file is a `begin`, the last an `end`; `dropped` stands where records
were lost. These three have a field `record`, the others have none.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Final, NamedTuple, Protocol, TextIO, TypeAlias

from ropewalk.errors import InvalidInput, NotAllowed

Record: TypeAlias = dict[str, Any]
ContentHash: TypeAlias = str | Callable[[], str | None] | None
"""The hash of a content, or what computes it: that is then called by the worker thread."""

STATE_LOG: Final = "state_log"
CONTENT_AUDIT_LOG: Final = "content_audit_log"
METRIC: Final = "metric"

STATE_LOG_SCHEMA: Final = "ropewalk.state_log.v1"
CONTENT_AUDIT_SCHEMA: Final = "ropewalk.content_audit.v1"
METRIC_SCHEMA: Final = "ropewalk.metric.v1"

SCHEMAS: Final = {
    STATE_LOG: STATE_LOG_SCHEMA,
    CONTENT_AUDIT_LOG: CONTENT_AUDIT_SCHEMA,
    METRIC: METRIC_SCHEMA,
}

STATE_LOG_FIELDS: Final = (
    "tick artifact_id agent_id agent_name from_state to_state trigger version content_hash "
    "sequence_number instance_id schema_version"
).split()
CONTENT_AUDIT_FIELDS: Final = (
    "tick agent_id agent_name artifact_id version content_hash source outcome "
    "sequence_number instance_id schema_version"
).split()
METRIC_FIELDS: Final = (
    "operation namespace key agent_name tokens_consumed cache_hit tick tokens_saved_estimate "
    "sequence_number instance_id schema_version"
).split()

FIELDS: Final = {
    STATE_LOG: STATE_LOG_FIELDS,
    CONTENT_AUDIT_LOG: CONTENT_AUDIT_FIELDS,
    METRIC: METRIC_FIELDS,
}
"""What a record of each stream always has; it may have more."""

CONTROL: Final = "record"
"""The field that only the records have which are about the log itself."""
BEGIN: Final = "begin"
END: Final = "end"
DROPPED: Final = "dropped"


class StoreMetricEvent(NamedTuple):
    """One operation, as `on_metric` and exporters of telemetry get it.

    `operation` is "get", "put", "delete", "search.hit" or "degraded". After a put that took the
    place of what others wrote and its agent had not read, there is one more, "replaced".
    `time` is in microseconds, `seconds` is how long it took, if that was measured.
    """

    operation: str
    namespace: tuple[str, ...]
    key: str
    agent_name: str
    tokens_consumed: int
    cache_hit: bool
    tick: int
    tokens_saved_estimate: int
    sequence_number: int
    instance_id: str
    schema_version: str
    order: int
    time: int
    seconds: float | None = None


class Mark(NamedTuple):
    """When a record was taken: its numbers, its time in microseconds, and its tick."""

    number: int
    order: int
    time: int
    tick: int


@dataclass(frozen=True, slots=True)
class About:
    """What the first record of a log says about the instance that writes it."""

    instance_id: str
    space: str
    strategy: str
    bound_seconds: float | None
    bound_reads: int | None
    tick_seconds: float
    process: int
    from_start: bool = True
    """Whether everything that the instance did is in its logs."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the records of one stream are made."""

    stream: str

    def make(self, mark: Mark, instance: str, fields: Record) -> Any:
        """A record of what happened; a hash that is not computed yet is computed here."""
        made = {
            "tick": mark.tick,
            **fields,
            "sequence_number": mark.number,
            "instance_id": instance,
            "schema_version": SCHEMAS[self.stream],
            "order": mark.order,
            "time": mark.time,
        }
        if self.stream == METRIC:
            return StoreMetricEvent(**made)
        content = made["content_hash"]
        if callable(content):
            made["content_hash"] = content()
        return {name: made[name] for name in FIELDS[self.stream]} | made

    def begin(self, about: About, time: int) -> Record:
        """The first record."""
        return self._control(BEGIN, 0, about.instance_id, time) | {
            one: value for one, value in asdict(about).items() if one != "instance_id"
        }

    def end(self, number: int, instance: str, time: int, dropped: int) -> Record:
        """The last record; `records` is how many there were before it."""
        counts = {"records": number - 1, "dropped": dropped}
        return self._control(END, number, instance, time) | counts

    def dropped(self, first: int, last: int, instance: str, time: int) -> Record:
        """What stands where the records `first` to `last` were lost."""
        span = {"last_sequence_number": last, "count": last - first + 1}
        return self._control(DROPPED, first, instance, time) | span

    def _control(self, kind: str, number: int, instance: str, time: int) -> Record:
        return {
            CONTROL: kind,
            "stream": self.stream,
            "sequence_number": number,
            "instance_id": instance,
            "schema_version": SCHEMAS[self.stream],
            "time": time,
        }


STATE_SHAPE: Final = Shape(STATE_LOG)
AUDIT_SHAPE: Final = Shape(CONTENT_AUDIT_LOG)
METRIC_SHAPE: Final = Shape(METRIC)


def control_of(record: Any) -> str | None:
    """What a record says about the log itself; None if it says what happened."""
    return record.get(CONTROL) if isinstance(record, dict) else None


class Line(NamedTuple):
    """One line of a log, and where it stands; `record` is None if it is no whole record."""

    at: int
    record: Record | None


def lines_of(path: str | PathLike[str]) -> Iterator[Line]:
    """The lines of a log, counted from 0, without empty ones."""
    with open(path, "rb") as file:
        index = -1
        for text in file:
            if text.strip():
                index += 1
                yield Line(index, _record(text))


def field_of(record: Record, name: str, path: str | PathLike[str], index: int) -> Any:
    """A field that a record must have."""
    try:
        return record[name]
    except KeyError:
        raise InvalidInput(
            f"line {index + 1} of {path} has no field {name!r}, so it is no record of this log. "
            "Check that this is the right file, and the right stream."
        ) from None


def _record(text: bytes) -> Record | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


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
    stream = _stream_in(path) if stream is None else _stream_named(stream)
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


def _stream_named(name: str) -> str:
    if name == "content_audit":
        return CONTENT_AUDIT_LOG
    if name not in SCHEMAS:
        raise InvalidInput(f"there is no stream {name!r}; there are {', '.join(SCHEMAS)}.")
    return name


# Writing records.

Sink: TypeAlias = str | PathLike[str] | TextIO | Callable[[Any], object]
"""A path, an open text file, or what is called with every record."""

Failed: TypeAlias = Callable[[BaseException], None]


class SinkFailed(Exception):
    """A sink failed after it had taken `taken` of the records."""

    def __init__(self, taken: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.taken = taken


class Outlet(Protocol):
    """What the worker of a stream writes to."""

    keeps_controls: bool
    """Whether it takes the records `begin`, `end` and `dropped`."""

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        """Take all records, or raise `SinkFailed`; `failed` is called for one that was refused."""

    def close(self) -> None:
        """Give back what was opened."""


def outlet_of(sink: Sink, name: str) -> Outlet:
    """What writes to a sink; `name` is the parameter that it was given as."""
    if isinstance(sink, str | PathLike):
        return _Path(sink)
    if callable(sink):
        return _Callback(sink)
    if hasattr(sink, "write"):
        return _File(sink)
    raise InvalidInput(
        f"{name} is of {type(sink).__name__}. Give it a path, an open text file, or a function "
        "that takes one record."
    )


class _Path:
    """Lines of JSON at the end of a file, which other processes may write to as well."""

    keeps_controls = True

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotAllowed(
                f"the log {os.fspath(path)!r:.200} cannot be written: {error.strerror}. Name a "
                "file in a folder that is there and that may be written to."
            ) from error
        # A line that a process began and did not finish stays, alone: readers pass over it.
        self._torn = not _ends_a_line(self._file)

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        data = "".join(map(line_of, records)).encode()
        start = b"\n" if self._torn else b""
        written = 0
        # One write for all lines, so that those of several processes do not mix.
        rest = memoryview(start + data)
        try:
            while written < len(rest):
                written += os.write(self._file, rest[written:])
        except OSError as error:
            whole = bytes(rest[:written])
            if written:
                self._torn = not whole.endswith(b"\n")
            raise SinkFailed(whole[len(start) :].count(b"\n"), error) from error
        self._torn = False

    def close(self) -> None:
        os.close(self._file)


class _File:
    keeps_controls = True

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        try:
            self._file.write("".join(map(line_of, records)))
            self._file.flush()
        except Exception as error:
            raise SinkFailed(0, error) from error

    def close(self) -> None:
        """Leave it open: it is the caller's."""


class _Callback:
    # A callback reads the fields of a record; what was dropped it sees in the numbers.
    keeps_controls = False

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call = call

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        for record in records:
            try:
                self._call(record)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the next one is called
                # Also what ends a program or a task elsewhere: here it would end the log.
                failed(error)

    def close(self) -> None:
        """Nothing was opened."""


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def line_of(record: Any) -> str:
    """A record as one line of JSON."""
    fields: Record = record if isinstance(record, dict) else record._asdict()
    return _encode(fields) + "\n"


def _ends_a_line(file: int) -> bool:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return True  # A pipe, or new.
    return os.pread(file, 1, found.st_size - 1) == b"\n"
