"""A part of a state that belongs to somebody, such as a sub-agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ropewalk.errors import InvalidName
from ropewalk.state._state import Recorded, State
from ropewalk.state._versioned._shelves import NAMESPACES, Place
from ropewalk.tree import Mergers

if TYPE_CHECKING:
    from ropewalk.state._versioned._versioned import Versioned

_LONGEST = 200


class Namespace(State):
    """A mapping inside a `Versioned`, with the same commits.

    Its keys are its own: those of the whole, and of other namespaces, are not seen.
    """

    def __init__(self, state: Versioned, place: Place, mergers: Mergers | None = None) -> None:
        self.state = state
        """The whole."""
        self.place = place
        """The names from the top to here."""
        if mergers is not None:
            state._add_mergers({_moved(place, key): one for key, one in mergers.items()})

    def __repr__(self) -> str:
        return f"<Namespace {'/'.join(self.place)!r} of {self.state!r}>"

    def __getitem__(self, key: Any) -> Any:
        return self.state._get(self.place, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.state._set(self.place, key, value)

    def __delitem__(self, key: Any) -> None:
        self.state._remove(self.place, key)

    def __contains__(self, key: object) -> bool:
        return self.state._has(self.place, key)

    def __iter__(self) -> Iterator[Any]:
        return self.state._keys(self.place)

    def __len__(self) -> int:
        return self.state._count(self.place)

    def clear(self) -> None:
        """Remove every key of this namespace. Namespaces inside stay."""
        self.state._clear(self.place)

    def namespace(self, name: str, *, mergers: Mergers | None = None) -> Namespace:
        """A namespace inside this one."""
        return Namespace(self.state, place_of(self.place, name), mergers)

    def namespaces(self) -> list[str]:
        """The names of the namespaces inside that hold something, sorted."""
        return self.state._names(self.place)

    def commit(self, description: str = "", **options: Any) -> str | None:
        """Commit the whole state: takes what `Versioned.commit` takes."""
        return self.state.commit(description, **options)

    def transaction(self, description: str = "") -> AbstractContextManager[Versioned]:
        """A transaction of the whole state: see `Versioned.transaction`."""
        return self.state.transaction(description)

    def note(self, event: Mapping[str, Any]) -> None:
        """Keep the record of an event with the whole state."""
        self.state.note(event)

    def _moment(self, what: str) -> str | None:
        return self.state._moment(what)

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events of the whole state, newest first."""
        return self.state.records(limit)


def place_of(place: Place, name: str) -> Place:
    """The place of a namespace; raises `InvalidName`."""
    if type(name) is not str or not name or len(name) > _LONGEST:
        raise InvalidName(f"a namespace has a name of 1 to {_LONGEST} characters, not {name!r:.80}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(f"the name {name!r:.80} is no valid text: {error.reason}") from error
    return (*place, name)


def _moved(place: Place, key: Any) -> Any:
    """The path of a merger, from the top of the whole state."""
    path = key if isinstance(key, tuple) else (key,)
    return (*(step for name in place for step in (NAMESPACES, name)), *path)
