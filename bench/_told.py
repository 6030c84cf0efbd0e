"""Where the benchmarks measure how fast one client of shared artifacts hears of another."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import ropewalk
from bench._model import Engine, Place
from ropewalk.coherence import Bus, CoherenceCore, State
from ropewalk.store import Store

ARTIFACT = "plan"
TOPIC = "bench"
_POLLS = 0.00005
_PATIENCE = 30.0

Wait = Callable[[], float]
"""Waits for what comes next; the moment at which it came."""


class Teller(Engine):
    """One client, which writes an artifact or holds it.

    Without a bus it has the one that goes with its store.
    """

    def __init__(
        self, store: Store, bus: Bus | None = None, *, driver: str = "", owns: bool = True
    ) -> None:
        super().__init__()
        self._store, self.bus, self._owns = store, bus, owns
        self.driver = driver
        """Where the bus's own driver can be asked to carry a message, if anywhere."""
        self.core = CoherenceCore(store, bus=bus)
        self._heard: SimpleQueue[float] = SimpleQueue()

    def another(self) -> Teller:
        """One more client in this process."""
        return Teller(self._store, self.bus, owns=False)

    def commit(self, value: Any) -> None:
        self.core.write("writer", ARTIFACT, value)

    def read(self) -> Any:
        return self.core.read("holder", ARTIFACT).value

    def invalidated(self) -> float:
        """Wait until the holder's copy may not be served any more."""
        until = time.monotonic() + _PATIENCE
        while self.core.state("holder", ARTIFACT) is not State.INVALID:
            assert time.monotonic() < until, "a holder was never told"
            time.sleep(_POLLS)
        return time.monotonic()

    def send(self) -> float:
        """Send something over the bus alone, or through the log if there is none; when."""
        if self.bus is not None:
            began = time.monotonic()
            self.bus.publish(TOPIC, b"told")
            return began
        self.commit({"step": -1})
        return time.monotonic()

    def hear(self) -> Wait:
        """Hear what is sent from now on."""
        if self.bus is not None:
            self.bus.subscribe(TOPIC, lambda _: self._heard.put(time.monotonic()))
            return lambda: self._heard.get(timeout=_PATIENCE)
        changes = self.core.watch(timeout=_PATIENCE)

        def wait() -> float:
            next(changes)
            return time.monotonic()

        return wait

    def close(self) -> None:
        self.core.close()
        if self._owns:
            if self.bus is not None:
                self.bus.close()
            self._store.close()


def in_process(place: Place) -> Teller:
    """Clients of one process, on one store."""
    from ropewalk.coherence import InProcessBus

    return Teller(ropewalk.open("memory://"), InProcessBus())


def over_postgres(place: Place) -> Teller:
    """Store and bus in one database."""
    from ropewalk.coherence import PostgresBus

    return Teller(ropewalk.open(place.url), PostgresBus(place.url), driver=place.url)


def over_redis(place: Place) -> Teller:
    """Store and bus on one server."""
    from ropewalk.coherence import RedisBus

    return Teller(ropewalk.open(place.url), RedisBus(place.url), driver=place.url)


def over_nats(place: Place) -> Teller:
    """An embedded store, with NATS as the bus."""
    from ropewalk.coherence import NatsBus

    return Teller(ropewalk.open(str(place.folder / "store")), NatsBus(place.url), driver=place.url)


def over_log(place: Place) -> Teller:
    """An embedded store, whose log is followed."""
    return Teller(ropewalk.open(place.url))
