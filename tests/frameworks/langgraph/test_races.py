"""Values that change while LangGraph's savers and stores save them."""

from __future__ import annotations

import pytest

from tests.frameworks.langgraph.race import FACES
from tests.races.test_races import run


@pytest.mark.parametrize("face", FACES)
def test_what_is_acknowledged_is_whole_while_a_value_changes(face: str) -> None:
    run(face, seed=list(FACES).index(face))
