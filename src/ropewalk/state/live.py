"""State in process, and what all kinds of state are: a mapping that also keeps events."""

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
"""The longest name that a namespace may have."""


class Recorded(NamedTuple):
    """An event as it was kept, and the commits that it stands between."""

    record: Mapping[str, Any]
    before: str | None
    """The commit that the step of the event went on from, in hex; None if there was none."""
    after: str | None
    """The commit that the step of the event made; None if it is not committed."""


class State(MutableMapping[Any, Any]):
    """What an agent holds by name, and what happened to it."""

    # A key error may also say that something stored is missing: then there is no default.

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default if there is no such key."""
        try:
            return self[key]
        except MissingObjects:
            raise
        except KeyError:
            return default

    def pop(self, key: Any, default: Any = _REQUIRED) -> Any:
        """Remove a key and give its value, or a default if there is no such key."""
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
        """The value of a key, which is the default from now on if there is no such key."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self: S, other: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> S:
        self.update(other)
        return self

    def __reduce__(self) -> NoReturn:
        # Copying asks for this too. A copy that shares the insides of a state would be none.
        raise TypeError(
            f"a {type(self).__name__} is neither copied nor pickled: dict(state) has its values, "
            "and another process opens the same store, path or URL itself"
        )

    @abstractmethod
    def namespace(self, name: str) -> State:
        """The part of the state that belongs to somebody of this name, as a state."""

    @abstractmethod
    def note(self, event: Mapping[str, Any]) -> None:
        """Keep the record of an event. It is stored with the next commit, where there are any."""

    def _moment(self, what: str) -> str | None:
        """The commit of what is held at this moment, in hex, made aside if there is none.

        `what` describes it. None where there are no commits; empty if it cannot be made.
        """
        return None

    @abstractmethod
    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first."""


def check_namespace(name: str) -> str:
    """The name, if a namespace may have it; raises `InvalidName`."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidName(
            f"{name!r:.80} cannot be the name of a namespace: it is a text of 1 to "
            f"{LONGEST_NAME} characters"
        )
    return name


class _Part:
    """One level: the values of a state or of a namespace, and the namespaces in it."""

    __slots__ = ("parts", "values")

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.parts: dict[str, _Part] = {}

    def holds_something(self) -> bool:
        return bool(self.values) or any(part.holds_something() for part in self.parts.values())


class Live(State):
    """A state in this process: holds any object, as it is, until the process ends.

    Nothing is copied and nothing is committed, so there is no way back. Threads may
    share one: each single operation is atomic, and iterating goes over the keys that
    were there when it began. `state["n"] += 1` is two operations and needs a lock of
    the caller's own. Of events the newest 10,000 are kept.
    """

    def __init__(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        self._part = _Part()
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InvalidInput(f"Live takes a mapping of what it is to hold, not {values!r:.80}")
        self._part.values.update(values)
        self._place: tuple[str, ...] = ()
        # A process may run for months, so what happened in it is not kept without end.
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
        """Remove a key and give what it held, in one operation."""
        return self._part.values.pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """What a key holds, which is the default if it was not there, in one operation."""
        return self._part.values.setdefault(key, default)

    def namespace(self, name: str) -> Live:
        """The part of the state that belongs to somebody of this name, as a state.

        Its keys are its own: they are not among those of this state. The same name
        gives the same part.
        """
        part = self._part.parts.setdefault(check_namespace(name), _Part())
        inner = Live()
        inner._part, inner._place = part, (*self._place, name)
        inner._log, inner._lock = self._log, self._lock
        return inner

    def namespaces(self) -> list[str]:
        """The names of the namespaces that hold something, sorted."""
        return sorted(
            name for name, part in list(self._part.parts.items()) if part.holds_something()
        )

    def note(self, event: Mapping[str, Any]) -> None:
        """Keep the record of an event, until the process ends."""
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
