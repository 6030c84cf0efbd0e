"""The events of a state's tasks: how they are stored and queried.

An event is stored as a plain dict of its class name and fields, so reading it needs no class, and
an event of a kind that only a newer version knows is read as a plain `Event`. Events are written
at every step, so values are copied if they are plain, and described if they have a class of their
own, are large or are deeply nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, Protocol, TypeAlias, TypeVar, overload
from uuid import UUID

from ropewalk.codec import Codec, Registry
from ropewalk.codec.classes import default_name
from ropewalk.errors import InvalidInput, NotStorable
from ropewalk.state.live import Recorded

MOST_CHARACTERS: Final = 16_000
"""About how much of one value an event keeps."""
_MOST_DEPTH: Final = 16
_LONGEST_ATOM: Final = 4_000
_LONGEST_DESCRIPTION: Final = 200
_LONGEST_SAMPLE: Final = 1_000
_MOST_BITS: Final = 14_000
_DESCRIBED: Final = "$described"
_AS_IT_IS: Final = "$dict"

_SMALL = (type(None), bool, float, complex)
_ATOMS = (bytes, bytearray, date, datetime, time, timedelta, Decimal, UUID)
_codec = Codec(Registry())


@dataclass(frozen=True, slots=True)
class Described:
    """Stands in an event for a value that was not kept: a short description of it."""

    type: str
    """The name of its class."""
    text: str
    """The beginning of its repr."""

    def __repr__(self) -> str:
        return f"<{self.type}: {self.text}>"


class _Hidden:
    def __repr__(self) -> str:
        return "hidden"


HIDDEN: Final = _Hidden()
"""Stands for a hidden argument."""


def to_plain(value: Any) -> Any:
    """A plain copy of a value for an event, of at most about `MOST_CHARACTERS`."""
    return _Copy().of(value, 0)


def from_plain(value: Any) -> Any:
    """Decode a value of an event, turning descriptions into `Described`."""
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            ((key, held),) = value.items()
            if key == _DESCRIBED:
                return Described(*held)
            if key == _AS_IT_IS:
                value = held
        return {key: from_plain(held) for key, held in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(map(from_plain, value))
    return value


def cut(text: str, most: int) -> str:
    """Make a text valid UTF-8, and shorten it in the middle if it is too long."""
    if len(text) > most:
        half = most // 2
        left_out = f" ... ({len(text) - 2 * half:,} characters left out) ... "
        text = text[:half] + left_out + text[-half:]
    return text.encode("utf-8", "backslashreplace").decode()


def name_of(cls: type) -> str:
    """The display name of a class."""
    return default_name(cls).removeprefix("builtins.")


def describe(value: Any) -> dict[str, Any]:
    """The plain form of a `Described`."""
    if value is HIDDEN:
        return {_DESCRIBED: ["hidden", "hidden"]}
    return {_DESCRIBED: [name_of(type(value)), _shown(value)]}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return cut(value, _LONGEST_SAMPLE)
    if type(value) is int:
        return f"a number of {value.bit_length():,} bits"
    try:
        if isinstance(value, (bytes, bytearray)):
            return f"{len(value):,} bytes, from {bytes(value[:40])!r} on"
        if isinstance(value, Sized) and isinstance(value, Iterable):
            # The repr of a collection may be as long as the collection.
            return f"{len(value):,} long"
        return cut(repr(value), _LONGEST_DESCRIPTION)
    except Exception as error:  # noqa: BLE001 - an event is kept, whatever an object does
        return f"(it cannot be shown: {type(error).__qualname__})"


class _Copy:
    """A bounded copy of one value; whatever exceeds the bound is described."""

    def __init__(self) -> None:
        self._room = MOST_CHARACTERS

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self._room -= 8
        if kind is str:
            return self._text(value)
        if kind in (list, tuple, dict, set, frozenset):
            if self._room < 0 or depth == _MOST_DEPTH:
                return describe(value)
            return self._mapping(value, depth) if kind is dict else self._items(value, depth)
        return self._atom(value)

    def _atom(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SMALL:
            return value
        if kind is int:
            return value if value.bit_length() <= _MOST_BITS else describe(value)
        if kind not in _ATOMS and not isinstance(value, PurePath):
            return describe(value)
        if kind in (bytes, bytearray) and len(value) > _LONGEST_ATOM:
            return describe(value)
        try:
            # A date may have a custom time zone, a path a custom class.
            data = _codec.encode(value)
        except NotStorable:
            return describe(value)
        self._room -= len(data)
        return _codec.decode(data)

    def _text(self, value: str) -> Any:
        if len(value) > max(self._room, 80):
            return describe(value)
        self._room -= len(value)
        return cut(value, MOST_CHARACTERS)

    def _items(self, value: Any, depth: int) -> Any:
        if len(value) * 8 > self._room:
            return describe(value)
        kind = type(value)
        copied = [self.of(item, depth + 1) for item in value]
        if kind in (set, frozenset) and any(type(item) is dict for item in copied):
            return describe(value)
        return kind(copied)

    def _mapping(self, value: dict[Any, Any], depth: int) -> Any:
        if len(value) * 16 > self._room:
            return describe(value)
        copied: dict[Any, Any] = {}
        for key, held in list(value.items()):
            name = self.of(key, depth + 1)
            try:
                copied[name] = self.of(held, depth + 1)
            except TypeError:  # The key needs a description, which cannot be a key.
                return describe(value)
        if len(copied) == 1 and next(iter(copied)) in (_DESCRIBED, _AS_IT_IS):
            return {_AS_IT_IS: copied}
        return copied


class Keeper(Protocol):
    """An object with events: a state, a namespace or a checkout."""

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a call of a task.

    An event of a kind that this version does not know is a plain `Event`: `kind` is its name, and
    `content` its stored fields.
    """

    time: datetime
    """When it happened, in UTC. Informative: events are ordered by their position in the list."""
    task: str = ""
    """The name of the task; empty for an event recorded outside of one."""
    run: str = ""
    """The id of the call, shared by all its events."""
    parent: str = ""
    """The id of the enclosing call, if any."""
    namespace: tuple[str, ...] = ()
    """The names of the namespaces that lead to the part of the state the task used."""
    before: str | None = None
    """The commit the step started from; None if there was none, or in a `Live` state."""
    after: str | None = None
    """The commit the step made; None in a `Live` state, and before it is made."""
    at: str | None = None
    """For an event that `record` added during a task: the commit of the state at that moment.

    Empty if that could not be stored. None for all other events.
    """
    kind: str = ""
    """The name of its class."""
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Its stored fields besides those above."""

    @property
    def commit_hash(self) -> str | None:
        """The commit to check out to see the state.

        For an event that `record` added during a task, the state at that moment. For any other
        event, the state after its step.
        """
        return self.after if self.at is None else self.at or None


@dataclass(frozen=True, kw_only=True)
class TaskStartEvent(Event):
    """A task was called."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The arguments by name; `Described` stands for values that cannot be kept."""


@dataclass(frozen=True, kw_only=True)
class ActionEvent(Event):
    """A task ran its body, or reported an action with `ropewalk.record`."""

    name: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutputEvent(Event):
    """A task produced output."""

    output: Any = None


@dataclass(frozen=True, kw_only=True)
class SuccessEvent(Event):
    """A call succeeded."""

    result: Any = None
    duration: float = 0.0
    """Its duration in seconds."""


@dataclass(frozen=True, kw_only=True)
class FailEvent(Event):
    """A call raised an error or was interrupted; its changes were dropped."""

    error: str = ""
    """The class name of the error."""
    message: str = ""
    traceback: str = ""
    """The traceback, cut to its end if it is long."""
    duration: float = 0.0


_KINDS: Final[dict[str, type[Event]]] = {
    cls.__name__: cls for cls in (TaskStartEvent, ActionEvent, OutputEvent, SuccessEvent, FailEvent)
}
_COMMON: Final = frozenset(one.name for one in fields(Event))

E = TypeVar("E", bound=Event)
Kind: TypeAlias = type[Event] | str
"""A class of events, or its name."""


def make_record(
    kind: type[Event],
    content: Mapping[str, Any],
    *,
    task: str = "",
    run: str = "",
    parent: str = "",
    namespace: tuple[str, ...] = (),
    at: str | None = None,
) -> dict[str, Any]:
    """The plain dict stored for an event, without empty fields."""
    about = {"task": task, "run": run, "parent": parent, "namespace": list(namespace)}
    return {
        "kind": kind.__name__,
        "time": datetime.now(UTC),
        **{name: value for name, value in about.items() if value},
        **({} if at is None else {"at": at}),
        "content": {name: to_plain(value) for name, value in content.items()},
    }


def event_of(recorded: Recorded) -> Event:
    """The event in a record; one of an unknown shape is a plain `Event`."""
    record = recorded.record
    kind = record.get("kind")
    stored = record.get("content")
    content = stored if isinstance(stored, Mapping) else _others(record)
    cls = _KINDS.get(kind, Event) if isinstance(kind, str) else Event
    own = {one.name for one in fields(cls)} - _COMMON
    read = {name: from_plain(value) for name, value in content.items()}
    return cls(
        time=_time(record.get("time")),
        task=_text(record.get("task")),
        run=_text(record.get("run")),
        parent=_text(record.get("parent")),
        namespace=_names(record.get("namespace")),
        before=recorded.before,
        after=recorded.after,
        at=_text(record["at"]) if "at" in record else None,
        kind=_text(kind) or "Event",
        content=read,
        **{name: value for name, value in read.items() if name in own},
    )


@overload
def events(
    state: Keeper,
    *,
    kind: type[E],
    task: str | None = ...,
    run: str | None = ...,
    namespace: str | tuple[str, ...] | None = ...,
    since: datetime | None = ...,
    until: datetime | None = ...,
    limit: int | None = ...,
    newest_first: bool = ...,
) -> list[E]: ...
@overload
def events(
    state: Keeper,
    *,
    kind: Kind | Iterable[Kind] | None = ...,
    task: str | None = ...,
    run: str | None = ...,
    namespace: str | tuple[str, ...] | None = ...,
    since: datetime | None = ...,
    until: datetime | None = ...,
    limit: int | None = ...,
    newest_first: bool = ...,
) -> list[Event]: ...
def events(  # noqa: PLR0913 - each narrows down what is found
    state: Keeper,
    *,
    kind: Kind | Iterable[Kind] | None = None,
    task: str | None = None,
    run: str | None = None,
    namespace: str | tuple[str, ...] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
    newest_first: bool = False,
) -> list[Any]:
    """The events of a state, a namespace or a checkout, oldest first.

    Those of a checkout are the ones that led to it. `kind` is a class, a class name, or several of
    them. `namespace` is a name, or the names that lead from the given state to a nested namespace,
    and includes everything inside it. `since` and `until` are times with a zone, both inclusive.
    `limit` selects the newest matches, in whatever order they are returned.
    """
    if not callable(getattr(state, "records", None)):
        raise InvalidInput(
            f"{type(state).__name__} keeps no events: events() takes a Live or Versioned state, "
            "a namespace or a checkout"
        )
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"limit is how many events to give at most, not {limit!r:.80}")
    inner = (namespace,) if isinstance(namespace, str) else namespace or ()
    place = (*getattr(state, "place", ()), *inner)
    is_kind, since, until = _kinds(kind), _zoned(since), _zoned(until)

    def is_wanted(event: Event) -> bool:
        return (
            (task is None or event.task == task)
            and (run is None or event.run == run)
            and event.namespace[: len(place)] == place
            and (since is None or event.time >= since)
            and (until is None or event.time <= until)
            and is_kind(event)
        )

    found = list(islice(filter(is_wanted, map(event_of, state.records())), limit))
    return found if newest_first else found[::-1]


def _kinds(kind: Kind | Iterable[Kind] | None) -> Callable[[Event], bool]:
    if kind is None:
        return lambda event: True
    alone = isinstance(kind, (str, type)) or not isinstance(kind, Iterable)
    several: list[Any] = [kind] if alone else list(kind)  # type: ignore[arg-type]
    for one in several:
        if not isinstance(one, str) and not (isinstance(one, type) and issubclass(one, Event)):
            raise InvalidInput(
                f"kind is a class of events, the name of one, or several of them, not {one!r:.80}"
            )
    names = {one for one in several if isinstance(one, str)}
    classes = tuple(one for one in several if isinstance(one, type))
    return lambda event: event.kind in names or isinstance(event, classes)


def _zoned(given: datetime | None) -> datetime | None:
    if given is not None and (not isinstance(given, datetime) or given.utcoffset() is None):
        raise InvalidInput(
            f"since and until are datetimes with a zone, not {given!r:.80}: take "
            "datetime.now(timezone.utc), for example"
        )
    return given


def _time(stored: Any) -> datetime:
    if isinstance(stored, datetime) and stored.utcoffset() is not None:
        return stored
    return datetime.fromtimestamp(0, UTC)


def _others(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _COMMON}


def _text(stored: Any) -> str:
    return stored if isinstance(stored, str) else ""


def _names(stored: Any) -> tuple[str, ...]:
    names = stored if isinstance(stored, (list, tuple)) else ()
    return tuple(name for name in names if isinstance(name, str))
