"""What happened to a state: the events of its tasks, and how they are found again.

An event is stored as a plain dict: the name of its class and its fields. So a program
needs no class to read it, and an event of a kind that only a newer version knows comes
back as an `Event`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar, overload

from ropewalk.errors import InvalidInput
from ropewalk.state._state import Recorded
from ropewalk.state._tasks._plain import from_plain, to_plain


class Keeper(Protocol):
    """What has events: a state, a namespace, a checkout."""

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a call of a task.

    An event of a kind that this version does not know is an `Event` itself: `kind` is
    its name, and `content` what was stored of it.
    """

    time: datetime
    """When, in UTC. Only for people: the order of events is that of the list."""
    task: str = ""
    """The name of the task; empty for what was recorded outside of one."""
    run: str = ""
    """The id of the call: all events of one call have the same."""
    parent: str = ""
    """The id of the call inside which this one was made, if any."""
    namespace: tuple[str, ...] = ()
    """The names of the namespaces that lead to the part of the state that was used."""
    before: str | None = None
    """The commit that the step went on from; None if there was none, or in a `Live` state."""
    after: str | None = None
    """The commit that the step made; None in a `Live` state, and before it is made."""
    at: str | None = None
    """For what `record` noted in the middle of a task: the commit of what the state held then.

    Empty if that could not be stored. None for all other events.
    """
    kind: str = ""
    """The name of its class."""
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is stored of it beside the fields above."""

    @property
    def commit_hash(self) -> str | None:
        """The commit to check out, to see what the state was.

        Of what `record` noted in the middle of a task: what the task held at that moment. Of
        any other event: what the state was after its step.
        """
        return self.after if self.at is None else self.at or None


@dataclass(frozen=True, kw_only=True)
class TaskStartEvent(Event):
    """A task was called."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The arguments by name; `Described` stands for what cannot be kept."""


@dataclass(frozen=True, kw_only=True)
class ActionEvent(Event):
    """A task did something: it ran its body, or it said so with `ropewalk.record`."""

    name: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutputEvent(Event):
    """A task gave something out."""

    output: Any = None


@dataclass(frozen=True, kw_only=True)
class SuccessEvent(Event):
    """A call ended well."""

    result: Any = None
    duration: float = 0.0
    """How long it took, in seconds."""


@dataclass(frozen=True, kw_only=True)
class FailEvent(Event):
    """A call raised an error, or was interrupted; what it had changed was dropped."""

    error: str = ""
    """The name of the error's class."""
    message: str = ""
    traceback: str = ""
    """The end of it, if it is long."""
    duration: float = 0.0


_KINDS: Final[dict[str, type[Event]]] = {
    cls.__name__: cls for cls in (TaskStartEvent, ActionEvent, OutputEvent, SuccessEvent, FailEvent)
}
_COMMON: Final = frozenset(one.name for one in fields(Event))

E = TypeVar("E", bound=Event)
Kind: TypeAlias = type[Event] | str
"""A class of events, or the name of one."""


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
    """The plain dict that is stored for an event. What is empty is left out."""
    about = {"task": task, "run": run, "parent": parent, "namespace": list(namespace)}
    return {
        "kind": kind.__name__,
        "time": datetime.now(UTC),
        **{name: value for name, value in about.items() if value},
        **({} if at is None else {"at": at}),
        "content": {name: to_plain(value) for name, value in content.items()},
    }


def event_of(recorded: Recorded) -> Event:
    """The event that a record stands for; one of an unknown shape is an `Event` too."""
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

    Those of a checkout are the ones that led to it. `kind` is a class, a name of one,
    or several of them; `namespace` is a name, or the names that lead to a nested one
    from the state that is given, and what is inside it counts too. `since` and `until`
    are times with a zone, both included. `limit` takes the newest of what was found, in
    whatever order they come.
    """
    if not callable(getattr(state, "records", None)):
        raise InvalidInput(
            f"{type(state).__name__} keeps no events: events() takes a Live or Versioned state, "
            "a namespace or a checkout"
        )
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"limit is how many events to give at most, not {limit!r:.80}")
    place = (*getattr(state, "place", ()), *_path(namespace))
    wanted = _Wanted(_kinds(kind), task, run, place, _moment(since), _moment(until))
    found = list(islice(filter(wanted, map(event_of, state.records())), limit))
    return found if newest_first else found[::-1]


@dataclass(frozen=True)
class _Wanted:
    kinds: Callable[[Event], bool]
    task: str | None
    run: str | None
    namespace: tuple[str, ...]
    since: datetime | None
    until: datetime | None

    def __call__(self, event: Event) -> bool:
        return (
            (self.task is None or event.task == self.task)
            and (self.run is None or event.run == self.run)
            and event.namespace[: len(self.namespace)] == self.namespace
            and (self.since is None or event.time >= self.since)
            and (self.until is None or event.time <= self.until)
            and self.kinds(event)
        )


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


def _path(namespace: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if namespace is None:
        return ()
    return (namespace,) if isinstance(namespace, str) else tuple(namespace)


def _moment(given: datetime | None) -> datetime | None:
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
    """What a record holds that was not made here."""
    return {name: value for name, value in record.items() if name not in _COMMON}


def _text(stored: Any) -> str:
    return stored if isinstance(stored, str) else ""


def _names(stored: Any) -> tuple[str, ...]:
    names = stored if isinstance(stored, (list, tuple)) else ()
    return tuple(name for name in names if isinstance(name, str))
