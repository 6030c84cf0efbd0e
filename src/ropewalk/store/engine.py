"""What every engine supplies: few steps, each atomic, with everything already checked.

`Store` is written on top of these. Names and ids that arrive here are valid; frames
are made. Each method may be called from many threads at once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ropewalk.store.model import (
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    View,
)
from ropewalk.store.scratch import Scratch
from ropewalk.store.search_index import TextIndex


class Engine(ABC):
    """The abstract methods of a store."""

    @property
    @abstractmethod
    def header(self) -> Header:
        """The store's id, format and algorithm; `decode_header` refuses newer ones."""

    @property
    @abstractmethod
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""

    @abstractmethod
    def _ref(self, space: str, name: str) -> Ref | None:
        """One ref."""

    @abstractmethod
    def _view(self, space: str, prefix: str) -> View:
        """Sequence, epoch and the refs with a prefix, sorted by name, at one moment.

        A space that does not exist has sequence 0, and the epoch that it would begin with.
        """

    @abstractmethod
    def _spaces(self, prefix: str) -> list[str]:
        """The names of the spaces that have operations, sorted."""

    @abstractmethod
    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        """Operations from number `after + 1` on, in order, at most `limit`."""

    @abstractmethod
    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        """A lease that was granted and not given back."""

    @abstractmethod
    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        """All of them with a prefix, sorted by name."""

    @abstractmethod
    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        """Replace the record `expected` by a new one, or return None if it is not that.

        The token is the next of the space's counter, which only grows and outlives leases.
        """

    @abstractmethod
    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        """Replace (or remove) the record `expected`; False if it is not that."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of files, connections and threads."""

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        """What is wrong with the engine's own files or tables: each with what it is about.

        Objects, refs and logs are checked by who calls this.
        """
        return ()

    def _disk_bytes(self) -> int | None:
        """How many bytes the engine takes for everything; None if it cannot say."""
        return None

    def _make_text_index(self) -> TextIndex:
        """The index of words beside history; in this process, unless the engine has a better one.

        An engine that encrypts what it stores keeps this one: words are plain text.
        """
        from ropewalk.store.search_index import MemoryTextIndex

        return MemoryTextIndex()

    def _make_scratch(self) -> Scratch:
        """The small values beside history; in this process, unless the engine can share them."""
        from ropewalk.store.scratch import MemoryScratch

        return MemoryScratch(time.monotonic)

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, soon after an operation; the way to stop that.

        A hint: it may come too often, and an engine with `poll_seconds` may lose it.
        """
        return _nothing


def _nothing() -> None:
    pass
