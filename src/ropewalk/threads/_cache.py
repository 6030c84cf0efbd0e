"""The state cache of threads: fast, for a time, and allowed to be lost.

What is cached is kept beside the mark of the state that was stored then. A put makes a new
mark, so a cached state never hides one that was put after it. Who puts a state also forgets
what it cached: else that would be served again after a rollback to the mark before.
"""

from __future__ import annotations

from typing import Any, Final

from ropewalk.codec import Codec
from ropewalk.errors import FormatError, InvalidInput
from ropewalk.store import Store
from ropewalk.threads._thread import Thread

_MARK: Final = 8
_LONGEST: Final = 100 * 366 * 86_400.0
"""So many seconds every engine can count."""
_MOST_MET: Final = 10_000


class StateCache:
    """Cached states, by thread."""

    def __init__(self, store: Store, codec: Codec, seconds: float | None) -> None:
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise InvalidInput(f"cache_seconds is more than 0, or None, not {seconds!r:.80}")
        self._scratch = store.scratch()
        self._codec = codec
        self._seconds = None if seconds is None else min(seconds, _LONGEST)
        self._met: set[str] = set()
        """The keys of what was kept or found here."""

    def put(self, thread: Thread, state: Any) -> None:
        """Keep a state, as it is now."""
        mark = thread.contents().marks.saved.ljust(_MARK, b"\0")
        key = _key(thread)
        self._meet(key)
        self._scratch.put(key, mark + self._codec.encode(state), self._seconds)

    def get(self, thread: Thread) -> Any:
        """The state that was kept; None if there is none, or the stored one is newer."""
        mark = thread.contents().marks.saved.ljust(_MARK, b"\0")  # First: it finds the branch.
        key = _key(thread)
        found = self._scratch.get(key)
        if found is None:
            return None
        self._meet(key)
        if found[:_MARK] != mark:
            return None
        try:
            return self._codec.decode(found[_MARK:])
        except FormatError:
            return None  # Damaged, which is as good as lost.

    def _meet(self, key: str) -> None:
        if len(self._met) >= _MOST_MET:
            self._met.clear()  # Their marks still tell which of them are outdated.
        self._met.add(key)

    def remove(self, thread: Thread) -> None:
        """Forget what is kept of a thread."""
        key = _key(thread)
        self._met.discard(key)
        self._scratch.remove(key)

    def outdate(self, thread: Thread) -> None:
        """Forget what is kept of a thread, if that was met here: a state was put."""
        if _key(thread) in self._met:
            self.remove(thread)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(thread: Thread) -> str:
    return f"state/{thread.history.space}/{thread.branch}"
