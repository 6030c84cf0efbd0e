"""What agents last saw of the items of another store, and how long it may be served again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from ropewalk.adapters.langgraph._coherent_lines import Forgotten, Lines
from ropewalk.adapters.langgraph.store.items import EPOCH
from ropewalk.coherence import Bound
from ropewalk.coherence.artifact import Content
from ropewalk.store.forking import freed_after_fork

_MOST: Final = 10_000
"""How many values are kept; of those that were used longest ago only the versions are."""


@dataclass(slots=True)
class Seen:
    """An item as an agent last saw it."""

    version: int
    """0 if nobody could say which one it is."""
    content: Content | None
    """A copy that nobody can change; None if it is not kept any more."""
    created_at: datetime
    updated_at: datetime
    moment: float
    """Before it was read; it may be as old as that."""
    is_read: bool = True
    """False after a put: what the other store says of the item is not known then."""
    uses: int = 0


class Keeping:
    """Knows what was seen. Safe to share between threads.

    A value may be served again within the strategy's bound. Where that is fresh, it is kept
    only to be compared with.
    """

    def __init__(
        self, bound: Bound, *, nodes: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bound, self.clock = bound, clock
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._versions: dict[tuple[str, str], Seen] = {}
        self._known: OrderedDict[str, Seen] = OrderedDict()
        self._lines: Lines[Seen] = Lines(attrgetter("version"), nodes=nodes)

    def serve(self, agent: str, artifact: str) -> Seen | None:
        """What may be served without reading it again, if its version is still the same."""
        bound = self._bound
        if bound.is_fresh:
            return None
        with self._lock:
            seen = self._seen.get((agent, artifact))
            if seen is None or not seen.is_read:
                return None
            if bound.reads and seen.uses >= bound.reads:
                return None
            if bound.seconds and self.clock() - seen.moment >= bound.seconds:
                return None
            seen.uses += 1
            self._seen.move_to_end((agent, artifact))
            return seen

    def last(self, agent: str, artifact: str) -> Seen | None:
        """What an agent last got or put, in this line of work if it did; None if nothing."""
        try:
            own = self._lines.last(agent, artifact)
        except Forgotten:
            return Seen(0, None, EPOCH, EPOCH, 0.0)
        if own is not None:
            return None if own.seen is None else replace(own.seen, is_read=own.is_read)
        name = agent, artifact
        with self._lock:
            return self._seen.get(name) or self._versions.get(name)

    def known(self, artifact: str) -> Seen | None:
        """The newest version of an item that anybody here has seen; None if that is nothing."""
        with self._lock:
            return self._known.get(artifact)

    def note(self, agent: str, artifact: str, seen: Seen) -> None:
        """An agent has got a version, or put it."""
        (self._lines.got if seen.is_read else self._lines.put)(agent, artifact, seen)
        with self._lock:
            self._seen[agent, artifact] = seen
            self._seen.move_to_end((agent, artifact))
            self._versions.pop((agent, artifact), None)
            if len(self._seen) > _MOST:
                name, dropped = self._seen.popitem(last=False)
                self._versions[name] = replace(dropped, content=None)
            self._learn(artifact, seen)

    def gone(self, agent: str, artifact: str, *, put: bool) -> None:
        """An agent found that there is no such item, or took it away."""
        (self._lines.deleted if put else self._lines.found_nothing)(agent, artifact)
        with self._lock:
            self._seen.pop((agent, artifact), None)
            self._versions.pop((agent, artifact), None)
            self._known.pop(artifact, None)

    def forget(self, agent: str) -> None:
        """Serve nothing to an agent any more that it has seen so far."""
        self._lines.forget(agent)
        with self._lock:
            for name in [one for one in (*self._seen, *self._versions) if one[0] == agent]:
                self._seen.pop(name, None)
                self._versions.pop(name, None)

    def _learn(self, artifact: str, seen: Seen) -> None:
        known = self._known.get(artifact)
        if seen.version and (known is None or seen.version >= known.version):
            self._known[artifact] = seen
            self._known.move_to_end(artifact)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
