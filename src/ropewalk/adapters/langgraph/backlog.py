"""How far a graph has run ahead of what is stored of it.

With `durability="async"` LangGraph queues checkpoints without bound. The only thing that it
asks a checkpointer for at every step, and waits for, is the next version of a channel. So
there a graph is held up while too many of its steps are not stored yet.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from ropewalk.errors import InvalidInput

_MOST_KNOWN: Final = 100_000
_PATIENCE: Final = 5.0
"""A graph goes on if nothing at all was stored for so many seconds: nobody may be left to do it."""


class _Chain:
    """The versions that one run was given out, and that are not stored yet, the oldest first."""

    __slots__ = ("failed", "is_stored", "versions")

    def __init__(self) -> None:
        self.versions: deque[str] = deque()
        self.is_stored = False
        """Whether something of it was ever put before its end: with `exit` nothing is."""
        self.failed = False
        """Whether a put failed, after which LangGraph makes no further one."""


class Backlog:
    """The versions that were given out, and are not stored yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._chains: OrderedDict[str, _Chain] = OrderedDict()
        """The run of every version."""

    def __len__(self) -> int:
        return len(self._chains)

    def next_version(self, current: str | int | float | None) -> str:
        """A version that is greater, and that nobody else gives out."""
        try:
            number = 0 if current is None else int(str(current).partition(".")[0])
        except ValueError:
            raise InvalidInput(
                f"a version begins with a whole number, not {current!r:.80}"
            ) from None
        version = f"{number + 1:032}.{random.getrandbits(32):010}"
        with self._lock:
            chain = self._chains.get(str(current)) or _Chain()
            if len(chain.versions) >= self._most:
                self._waiting += 1
                self._wait_for(chain)
                self._waiting -= 1
            chain.versions.append(version)
            self._chains[version] = chain
            while len(self._chains) > _MOST_KNOWN:
                oldest, of = self._chains.popitem(last=False)
                of.versions.remove(oldest)
        return version

    def _wait_for(self, chain: _Chain) -> None:
        """Wait until a run is not too far ahead."""
        while chain.is_stored and not chain.failed and len(chain.versions) >= self._most:
            if _on_event_loop() or not self._changed.wait(_PATIENCE):
                return

    def begin(self, versions: Mapping[str, str | int | float]) -> str:
        """Say that a checkpoint with new versions is about to be stored; the last of them."""
        mine = max([one for one in versions.values() if isinstance(one, str)], default="")
        with self._lock:
            chain = self._chains.get(mine)
            if chain is not None:
                chain.is_stored = True
        return mine

    def end(self, version: str, failed: bool = False) -> None:
        """Let who waits go on, after a checkpoint was stored or was not."""
        with self._lock:
            chain = self._chains.get(version)
            if chain is None:
                return
            chain.failed |= failed
            # Puts of one run follow each other, so what was given out before is done with.
            versions = chain.versions
            while versions and versions[0] <= version:
                del self._chains[versions.popleft()]
            if self._waiting:
                self._changed.notify_all()


def _on_event_loop() -> bool:
    """Whether waiting here would stop an event loop, and with it those who store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
