"""Watching artifacts: new versions as they come, for threads and for event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from ropewalk.coherence._authorities._authority import ArtifactChange, Authority
from ropewalk.store._checks import expect, expect_timeout, expect_whole
from ropewalk.store._watching import Patience, awatch, watch
from ropewalk.store.asynchronous import Threads


class Watching:
    """Who watches the artifacts of one client."""

    def __init__(self, authority: Authority, check_open: Callable[[], None]) -> None:
        self._authority, self._check_open = authority, check_open
        self._wakes: set[Callable[[], None]] = set()

    def watch(
        self, artifacts: Iterable[str] | None, prefix: str, after: int, timeout: float | None
    ) -> Iterator[ArtifactChange]:
        """Yield what comes after an operation."""
        look = self._looking(artifacts, prefix, after, timeout)
        return watch(look, self._waking, self._patience(timeout))

    def awatch(
        self,
        artifacts: Iterable[str] | None,
        prefix: str,
        after: int,
        timeout: float | None,
        threads: Threads,
    ) -> AsyncIterator[ArtifactChange]:
        """The same for an event loop; no thread waits."""
        look = self._looking(artifacts, prefix, after, timeout)
        return awatch(partial(threads.run, look), self._waking, self._patience(timeout))

    def wake_all(self) -> None:
        """Let all look at once: the client was closed."""
        for wake in list(self._wakes):
            wake()

    def _patience(self, timeout: float | None) -> Patience:
        return Patience(timeout, self._authority.poll_seconds)

    def _looking(
        self, artifacts: Iterable[str] | None, prefix: str, after: int, timeout: float | None
    ) -> Callable[[], list[ArtifactChange]]:
        expect_whole(after, 0, "after")
        expect_timeout(timeout)
        # One name alone would be taken for its letters.
        expect(not isinstance(artifacts, str), "artifacts are a list of names", artifacts)
        expect(isinstance(prefix, str), "prefix is what names begin with", prefix)
        names = None if artifacts is None else frozenset(artifacts)

        def is_wanted(name: str) -> bool:
            return name.startswith(prefix) and (names is None or name in names)

        return _Look(self._authority.looking(after), self._check_open, is_wanted, after)

    @contextmanager
    def _waking(self, wake: Callable[[], None]) -> Iterator[None]:
        self._wakes.add(wake)
        try:
            with self._authority.waking(wake):
                yield
        finally:
            self._wakes.discard(wake)


class _Look:
    """Looks for the next changes of some artifacts, and passes over all others once."""

    def __init__(
        self,
        look: Callable[[], tuple[list[ArtifactChange], int]],
        check_open: Callable[[], None],
        is_wanted: Callable[[str], bool],
        after: int,
    ) -> None:
        self._look, self._check_open = look, check_open
        self._is_wanted, self._position = is_wanted, after

    def __call__(self) -> list[ArtifactChange]:
        while True:
            self._check_open()
            before = self._position
            changes, self._position = self._look()
            found = [one for one in changes if self._is_wanted(one.artifact)]
            if found or self._position == before:
                return found
