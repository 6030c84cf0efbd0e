"""What stands beside history: an index of words and small values, both of which may be lost.

Nothing here is needed to read or write history. An engine may forget all of it at any
moment, and whoever asks finds that out and goes without it or makes it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

RARE = 32
"""So few positions are sooner looked at by who asks than compared with other words."""

Change: TypeAlias = tuple[int, Collection[str] | None]
"""A position and its words; None if the position is gone."""


class Within(NamedTuple):
    """Which positions are asked for, in what order, and how many of them at most."""

    limit: int
    after: int | None = None
    before: int | None = None
    newest_first: bool = False

    def holds(self, position: int) -> bool:
        """Whether a position is among them."""
        return (self.after is None or position > self.after) and (
            self.before is None or position < self.before
        )


class TextIndex(ABC):
    """Which positions of a scope have words that begin so.

    A scope is a name; a position is a whole number from 0 on. Words are normalised already:
    they hold no spaces and at most 50 characters each. The index says up to where it is
    built, its state, in bytes that only its users understand. Safe to share between threads.
    """

    @abstractmethod
    def state(self, scope: str) -> bytes | None:
        """Up to where a scope was indexed; None if it was not, or if that was lost."""

    @abstractmethod
    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        """Bring a scope from one state to another: all of it, or nothing.

        With `before=None` it begins anew, whatever there was. False, with nothing changed,
        if the scope is in another state than `before`, or if there is no room or no time
        for it now.
        """

    @abstractmethod
    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        """The positions that have, for every prefix, a word that begins so; in order.

        There may be positions among them that do not, or that are gone, but none is
        missing. None if the scope is not in this state. A prefix that is likely to be rare
        should come first: the others need not be looked at if it is.
        """

    @abstractmethod
    def drop(self, scope: str) -> None:
        """Forget a scope."""


class Scratch(ABC):
    """Small values by name, for some time. Each may vanish at any moment.

    Safe to share between threads.
    """

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value of a key, unless it vanished or its time is over."""

    @abstractmethod
    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Keep a value, for so many seconds; without them, as long as there is room."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Forget a key."""

    @abstractmethod
    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so, sorted."""
