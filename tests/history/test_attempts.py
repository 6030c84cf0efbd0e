"""Sending again when no answer came."""

from __future__ import annotations

import time

import pytest

from ropewalk.errors import Unavailable
from ropewalk.history import commits as attempts


def silent(sends: list[int], each: float, clock: list[float]) -> None:
    sends.append(1)
    clock[0] += each
    raise Unavailable("no answer")


@pytest.mark.parametrize(("each", "sends"), [(0.0, 4), (3.0, 3), (30.0, 2)])
def test_a_server_that_is_silent_for_long_is_asked_only_once_more(
    monkeypatch: pytest.MonkeyPatch, each: float, sends: int
) -> None:
    made: list[int] = []
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    with pytest.raises(Unavailable):
        attempts.sent(lambda: silent(made, each, clock))

    assert len(made) == sends


def test_a_lost_reply_is_asked_for_again() -> None:
    lost = [Unavailable("lost")]

    def send() -> str:
        if lost:
            raise lost.pop()
        return "done"

    assert attempts.sent(send) == "done"
