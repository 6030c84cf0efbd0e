"""What all kinds of state have in common: a mutable mapping that also keeps events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from ropewalk.errors import MissingObjects

S = TypeVar("S", bound="State")
_REQUIRED: Final = object()


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
