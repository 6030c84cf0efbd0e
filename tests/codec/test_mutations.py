"""A seeded slice of fuzzing: valid encodings, bent at random.

Whatever the bytes are, decoding raises our own errors or gives a value that can be
stored again. `fuzz/` searches longer and looks at coverage.
"""

from __future__ import annotations

import pytest

from fuzz.mutations import Mutator, judge, seeds


@pytest.mark.parametrize("seed", range(8))
def test_bent_encodings_raise_our_errors_or_give_what_can_be_stored_again(seed: int) -> None:
    mutator = Mutator(seed, seeds())

    outcomes = {judge(mutator.bend()) for _ in range(20_000)}

    assert outcomes >= {"refused", "same bytes"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_bent_encodings(seed: int) -> None:
    mutator = Mutator(seed, seeds())

    for _ in range(100_000):
        judge(mutator.bend())
