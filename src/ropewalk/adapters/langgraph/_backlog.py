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
from collections.abc import Collection, Iterator
from contextlib import contextmanager
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
        self._changed = threading.Condition()
        self._chains: OrderedDict[str, _Chain] = OrderedDict()
        """The run of every version."""

    def __len__(self) -> int:
        return len(self._chains)

    def next_version(self, current: str | int | float | None) -> str:
        """A version that is greater, and that nobody else gives out."""
        number = _number(current)
        version = f"{number + 1:032}.{random.getrandbits(32):010}"
        with self._changed:
            chain = self._chains.get(str(current)) or _Chain()
            while self._is_behind(chain) and not _on_event_loop():
                if not self._changed.wait(_PATIENCE):
                    break
            chain.versions.append(version)
            self._chains[version] = chain
            while len(self._chains) > _MOST_KNOWN:
                oldest, of = self._chains.popitem(last=False)
                of.versions.remove(oldest)
        return version

    def _is_behind(self, chain: _Chain) -> bool:
        return chain.is_stored and not chain.failed and len(chain.versions) >= self._most

    @contextmanager
    def storing(self, versions: Collection[str | int | float]) -> Iterator[None]:
        """While a checkpoint with new versions is being stored."""
        mine = max((one for one in versions if isinstance(one, str)), default="")
        with self._changed:
            chain = self._chains.get(mine) or _Chain()
            chain.is_stored = True
        try:
            yield
        except BaseException:
            chain.failed = True
            raise
        finally:
            with self._changed:
                # Puts of one run follow each other, so what was given out before is done with.
                while chain.versions and chain.versions[0] <= mine:
                    del self._chains[chain.versions.popleft()]
                self._changed.notify_all()


def _number(version: str | int | float | None) -> int:
    """Which version of its channel one is."""
    try:
        return 0 if version is None else int(str(version).partition(".")[0])
    except ValueError:
        raise InvalidInput(f"a version begins with a whole number, not {version!r:.80}") from None


def _on_event_loop() -> bool:
    """Whether waiting here would stop an event loop, and with it those who store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
