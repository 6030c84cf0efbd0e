"""LangGraph's conformance suite, on every engine, for the two families of methods."""

from __future__ import annotations

from functools import partial

import pytest

from tests.frameworks.langgraph.conformance import CLAUSES, EXPECTED, check, ours
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES
from tests.frameworks.langgraph.families import FAMILIES


def test_the_suite_has_the_clauses_that_are_promised() -> None:
    assert sum(CLAUSES.values()) == 81


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_clause_holds(engine: str, family: str, address_of: Addresses) -> None:
    result = check(partial(ours, engine, partial(address_of, engine)), family)

    assert result.failures == []
    assert result.passed == EXPECTED
