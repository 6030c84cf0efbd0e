"""Sending again when no answer came."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ropewalk.errors import Unavailable
from ropewalk.history.commits import Commits
from ropewalk.store import MemoryStore, Move, Operation
from ropewalk.tree import Kind, make_object

SPACE = "agent/thread"
NOTE = make_object(Kind.VALUE, b"\x01")


class SilentStore(MemoryStore):
    """Commits, and answers only when it was asked often enough."""

    def __init__(self, silences: int, each: float, clock: list[float]) -> None:
        super().__init__()
        self.silences, self.each, self.clock, self.sends = silences, each, clock, 0

    def commit(self, *args: Any, **options: Any) -> Operation:
        """Commit, and mostly say nothing of it."""
        done = super().commit(*args, **options)
        self.sends += 1
        self.clock[0] += self.each
        if self.sends <= self.silences:
            raise Unavailable("no answer")
        return done


def land(store: MemoryStore) -> Operation:
    return Commits(store, SPACE).land([NOTE], (), [Move("branch/main", None, NOTE.id)], {})


@pytest.mark.parametrize(("each", "sends"), [(0.0, 4), (3.0, 3), (30.0, 2)])
def test_a_server_that_is_silent_for_long_is_asked_only_once_more(
    monkeypatch: pytest.MonkeyPatch, each: float, sends: int
) -> None:
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    store = SilentStore(100, each, clock)

    with pytest.raises(Unavailable):
        land(store)

    assert store.sends == sends


def test_a_lost_reply_is_asked_for_again() -> None:
    store = SilentStore(1, 0.0, [0.0])

    landed = land(store)

    assert store.sends == 2 and store.operations(SPACE) == [landed]
