"""LangGraph's conformance suite, on every engine, for the two families of methods."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from tests.frameworks.langgraph.conformance import CLAUSES, EXPECTED, check
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, saver_at
from tests.frameworks.langgraph.families import FAMILIES


def test_the_suite_has_the_clauses_that_are_promised() -> None:
    assert sum(CLAUSES.values()) == 81


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_clause_holds(engine: str, family: str, address_of: Addresses) -> None:
    def fresh() -> AbstractContextManager[HoldfastSaver]:
        return saver_at(engine, address_of(engine))

    result = check(fresh, family)

    assert result.failures == []
    assert result.passed == EXPECTED
