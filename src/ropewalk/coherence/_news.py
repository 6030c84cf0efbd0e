"""How a client hears of what others wrote: by a bus, and by following the log."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Literal

from ropewalk.coherence._authorities._stored import StoredAuthority
from ropewalk.coherence._buses._bus import Bus, place_of
from ropewalk.coherence._buses._choosing import choose_bus, leave
from ropewalk.coherence._hearing import Follower, Hearing
from ropewalk.store._checks import expect

if TYPE_CHECKING:
    from ropewalk.coherence._client import Client

_LAST_SECONDS: Final = 1.0
"""How long a client that is closed waits until what it has to tell is out."""


class News:
    """What one client hears with. Both are None where the authority is in memory."""

    hearing: Hearing | None = None
    follower: Follower | None = None

    def __init__(
        self, client: Client, bus: Bus | Literal[False] | None, tick_seconds: float
    ) -> None:
        expect(
            bus is None or bus is False or isinstance(bus, Bus),
            "bus is None, False, or has publish, subscribe, on_gap and close",
            bus,
        )
        self._bus: Bus | None = None
        self._owns_bus = bus is None
        authority = client.authority
        if isinstance(authority, StoredAuthority) and bus is not False:
            store, space = authority.store, authority.space
            self._bus = choose_bus(store, space) if bus is None else bus
            self.hearing = Hearing(client, self._bus, place_of(store, space))
            if self._owns_bus:
                self._left = weakref.finalize(self, leave, self._bus)
                self._left.atexit = False
        if client.strategy.follows and isinstance(authority, StoredAuthority):
            self.follower = Follower(client, authority, tick_seconds / 4)
            weakref.finalize(self, self.follower.abandon).atexit = False
            if self.hearing is not None:
                self.hearing.wake = self.follower.wake
                self.hearing.listen_to_all()

    def after_fork(self) -> None:
        """In a child: it is another client from now on."""
        for heard in (self.hearing, self.follower):
            if heard is not None:
                heard.after_fork()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what is to be told is with the bus; whether it was in time."""
        return self.hearing is None or self.hearing.flush(timeout)

    def close(self) -> None:
        """Tell what waits, and hear no more."""
        with ExitStack() as last_first:
            if self._bus is not None and self._owns_bus:
                last_first.callback(self._bus.close)
                self._left.detach()
            if self.hearing is not None:
                last_first.callback(self.hearing.close)
                last_first.callback(self.hearing.flush, _LAST_SECONDS)
            if self.follower is not None:
                last_first.callback(self.follower.close)
