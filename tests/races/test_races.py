"""Values that change while they are saved, through every face; each in a process of its own."""

from __future__ import annotations

import time

import pytest

from tests.conftest import SOAK
from tests.races.process import race
from tests.races.race import FACES

SECONDS = 3.0
SOAK_SECONDS = 240.0


@pytest.mark.parametrize("face", FACES)
def test_what_is_acknowledged_is_whole_while_a_value_changes(face: str) -> None:
    run(face, seed=list(FACES).index(face))


def run(face: str, seed: int) -> None:
    """One run, or runs with more and more seeds for some minutes."""
    until = time.monotonic() + (SOAK_SECONDS if SOAK else 0)
    race(face, seed, SECONDS)
    while time.monotonic() < until:
        seed += 1000
        race(face, seed, 10 * SECONDS)
