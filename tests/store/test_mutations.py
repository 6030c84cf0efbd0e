"""A seeded slice of the fuzzer: bytes of a store, bent at random."""

from __future__ import annotations

import random

import pytest

from fuzz.stores import DECODERS, judge, store_seeds

_EACH = 2_000


def _bent(data: bytes, roll: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(roll.randint(1, 4)):
        at = roll.randrange(1, len(changed) + 1)
        match roll.randrange(4):
            case 0:
                changed[at:at] = roll.randbytes(roll.randint(1, 4))
            case 1:
                del changed[at : at + roll.randint(1, 8)]
            case 2:
                changed[at : at + 1] = bytes([roll.randrange(256)])
            case _:
                changed[at:] = b""
    return bytes(changed)


@pytest.mark.parametrize("seed", range(len(store_seeds())))
def test_bent_bytes_of_a_store_are_refused_or_read(seed: int) -> None:
    roll, sound = random.Random(seed), store_seeds()[seed]
    for _ in range(_EACH):
        judge(_bent(sound, roll))


@pytest.mark.parametrize("seed", range(len(store_seeds())))
def test_sound_bytes_of_a_store_are_read(seed: int) -> None:
    sound = store_seeds()[seed]

    DECODERS[sound[0]](sound[1:])
