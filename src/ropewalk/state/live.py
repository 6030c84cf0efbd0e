"""State in process, and the base of all states: a mapping that also keeps events."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from ropewalk.errors import InvalidInput, InvalidName, MissingObjects
from ropewalk.store.forking import freed_after_fork

S = TypeVar("S", bound="State")
_REQUIRED: Final = object()

MOST_RECORDS = 10_000
LONGEST_NAME = 200
"""The longest name of a namespace."""


class Recorded(NamedTuple):
    """A stored event, and the commits around it."""

    record: Mapping[str, Any]
    before: str | None
    """The commit the event's step started from, in hex; None if there was none."""
    after: str | None
    """The commit the event's step made; None if it is not committed."""


class State(MutableMapping[Any, Any]):
    """The values an agent keeps by name, and the events of its tasks."""

    # A KeyError may also report missing stored data, in which case no default applies.

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default if the key is absent."""
        try:
            return self[key]
        except MissingObjects:
            raise
        except KeyError:
            return default

    def pop(self, key: Any, default: Any = _REQUIRED) -> Any:
        """Remove a key and return its value, or a default if the key is absent."""
        try:
            value = self[key]
        except MissingObjects:
            raise
        except KeyError:
            if default is _REQUIRED:
                raise
            return default
        del self[key]
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key, which is set to the default if it is absent."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self: S, other: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> S:
        self.update(other)
        return self

    def __reduce__(self) -> NoReturn:
        # `copy` calls this too, and a copy that shares a state's internals would be wrong.
        raise TypeError(
            f"a {type(self).__name__} is neither copied nor pickled: dict(state) has its values, "
            "and another process opens the same store, path or URL itself"
        )

    @abstractmethod
    def namespace(self, name: str) -> State:
        """The nested state of this name, for example of a sub-agent."""

    @abstractmethod
    def note(self, event: Mapping[str, Any]) -> None:
        """Add the record of an event, stored with the next commit if the state has commits."""

    def _moment(self, what: str) -> str | None:
        """The commit of the current values, in hex; made off the branch if there is none.

        `what` describes it. None if the state has no commits; empty if it cannot be made.
        """
        return None

    @abstractmethod
    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first."""


def check_namespace(name: str) -> str:
    """Return the name if a namespace may have it; raises `InvalidName`."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidName(
            f"{name!r:.80} cannot be the name of a namespace: it is a text of 1 to "
            f"{LONGEST_NAME} characters"
        )
    return name


class _Part:
    """One level: the values of a state or a namespace, and the namespaces in it."""

    __slots__ = ("parts", "values")

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.parts: dict[str, _Part] = {}

    def holds_something(self) -> bool:
        return bool(self.values) or any(part.holds_something() for part in self.parts.values())


class Live(State):
    """A state in this process: holds any object, as it is, until the process ends.

    Nothing is copied or committed, so nothing can be rolled back. Threads may share one: each
    single operation is atomic, and iteration covers the keys present when it began. `state["n"] +=
    1` is two operations and needs the caller's own lock. The newest 10,000 events are kept.
    """

    def __init__(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        self._part = _Part()
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InvalidInput(f"Live takes a mapping of what it is to hold, not {values!r:.80}")
        self._part.values.update(values)
        self._place: tuple[str, ...] = ()
        # A process may run for months, so the number of events is bounded.
        self._log: deque[tuple[tuple[str, ...], Mapping[str, Any]]] = deque(maxlen=MOST_RECORDS)
        self._lock = freed_after_fork(threading.Lock())

    @property
    def place(self) -> tuple[str, ...]:
        """The names of the namespaces that lead here; empty for the state itself."""
        return self._place

    def __getitem__(self, key: Any) -> Any:
        return self._part.values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._part.values[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._part.values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._part.values))

    def __len__(self) -> int:
        return len(self._part.values)

    def __contains__(self, key: object) -> bool:
        return key in self._part.values

    def clear(self) -> None:
        """Remove all keys; namespaces and events stay."""
        self._part.values.clear()

    def pop(self, key: Any, *default: Any) -> Any:
        """Atomically remove a key and return its value."""
        return self._part.values.pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Atomically return the value of a key, setting it to the default if absent."""
        return self._part.values.setdefault(key, default)

    def namespace(self, name: str) -> Live:
        """The nested state of this name; the same name returns the same state.

        Its keys are separate from those of this state.
        """
        part = self._part.parts.setdefault(check_namespace(name), _Part())
        inner = Live()
        inner._part, inner._place = part, (*self._place, name)
        inner._log, inner._lock = self._log, self._lock
        return inner

    def namespaces(self) -> list[str]:
        """The names of the non-empty namespaces, sorted."""
        return sorted(
            name for name, part in list(self._part.parts.items()) if part.holds_something()
        )

    def note(self, event: Mapping[str, Any]) -> None:
        """Add the record of an event; it is kept until the process ends."""
        if not isinstance(event, Mapping):
            raise InvalidInput(f"the record of an event is a mapping, not {type(event).__name__}")
        with self._lock:
            self._log.append((self._place, dict(event)))

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events in this part and those inside it, newest first."""
        with self._lock:
            log = list(self._log)
        depth = len(self._place)
        found = (
            Recorded(record, None, None)
            for place, record in reversed(log)
            if place[:depth] == self._place
        )
        return islice(found, limit)

    def __repr__(self) -> str:
        where = f" of {'/'.join(self._place)!r:.80}" if self._place else ""
        count = len(self)
        return f"<Live{where} with {count} key{'' if count == 1 else 's'}>"
