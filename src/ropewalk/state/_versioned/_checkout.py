"""A state as a commit left it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ropewalk.errors import InvalidInput, NotFound, PathNotFound
from ropewalk.history import At, Commit, History
from ropewalk.state._state import Recorded
from ropewalk.state._versioned._namespace import place_of
from ropewalk.state._versioned._shelves import NAMESPACES, Place
from ropewalk.tree import Map

_BEGINNING: Final = re.compile(r"[0-9a-f]{6,63}")


class Checkout(Mapping[Any, Any]):
    """A read-only view of one commit of a state. Nothing moves, and nothing can be changed.

    What it gives is the caller's own: each read gives a new object.
    """

    def __init__(self, history: History, commit: Commit, place: Place = ()) -> None:
        self._history = history
        self.commit = commit
        """The commit that is looked at."""
        self.place = place
        """The names of the namespaces from the top to here."""
        found: Map | None = Map(commit.root, history.read, history.codec)
        for key in (key for name in place for key in (NAMESPACES, name)):
            found = None if found is None else found.inner(key)
        self._map: Mapping[Any, Any] = {} if found is None else found

    def __repr__(self) -> str:
        at = f" {'/'.join(self.place)!r}" if self.place else ""
        return f"<Checkout{at} at {self.commit.short}>"

    @property
    def commit_hash(self) -> str:
        """The hash of the commit, in hex."""
        return self.commit.id.hex()

    @property
    def metadata(self) -> Any:
        """What `commit(metadata=...)` said about the step; None if nothing was said."""
        return self._history.metadata(self.commit)

    def __getitem__(self, key: Any) -> Any:
        if key == NAMESPACES:
            raise PathNotFound(f"the state has no key {key!r}")
        return self._map[key]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default if there is no such key."""
        return self[key] if key in self else default  # noqa: SIM401 - that is what this is

    def __contains__(self, key: object) -> bool:
        return key != NAMESPACES and key in self._map

    def __iter__(self) -> Iterator[Any]:
        return (key for key in self._map if key != NAMESPACES)

    def __len__(self) -> int:
        return len(self._map) - (NAMESPACES in self._map)

    def namespace(self, name: str) -> Checkout:
        """A namespace as the commit left it; empty if there was none."""
        return Checkout(self._history, self.commit, place_of(self.place, name))

    def namespaces(self) -> list[str]:
        """The names of the namespaces that held something, sorted."""
        names = self._map.inner(NAMESPACES) if isinstance(self._map, Map) else None
        return sorted(name for name in names or () if self.namespace(name)._is_used())

    def _is_used(self) -> bool:
        return len(self) > 0 or bool(self.namespaces())

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events up to this commit, newest first."""
        return islice(recorded(self._history, self.commit), limit)


def recorded(history: History, start: Commit | None) -> Iterator[Recorded]:
    """The events of a commit and of all that it comes from, newest first."""
    for commit in () if start is None else history.ancestors(start):
        if commit.events is None:
            continue
        before = commit.parents[0].hex() if commit.parents else None
        for record in reversed(history.events(commit)):
            yield Recorded(record, before, commit.id.hex())


def resolve(history: History, at: At) -> Commit:
    """The commit that is named; by the first digits of its hash, one that a branch comes from."""
    try:
        return history.resolve(at)
    except NotFound:
        if not isinstance(at, str) or not _BEGINNING.fullmatch(at):
            raise
        heads = set(history.branches().values())
        known = {one.id: one for head in heads for one in history.ancestors(head)}
        found = [one for id, one in known.items() if id.hex().startswith(at)]
        if not found:
            raise
        if len(found) > 1:
            raise InvalidInput(
                f"{at!r} is the beginning of {len(found)} hashes: give more digits"
            ) from None
        return found[0]
