"""The contract suite finds each of these faults: a suite that cannot fail proves nothing."""

from __future__ import annotations

import pytest

from ropewalk.store import MemoryStore
from tests.store.faulty import FAULTY

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from ropewalk.testing import StoreContract
from tests.store.faulty import {fault}

class TestFaulty(StoreContract):
    @pytest.fixture
    def open_store(self):
        first = {fault}()

        def another(clock):
            store = {fault}(clock=clock)
            store._data = first._data
            return store

        return another
"""


def test_the_suite_passes_a_store_without_a_fault(pytester: pytest.Pytester) -> None:
    assert run_suite(pytester, MemoryStore) == pytest.ExitCode.OK


@pytest.mark.parametrize("fault", FAULTY)
def test_the_suite_finds_a_store_that(fault: type[MemoryStore], pytester: pytest.Pytester) -> None:
    assert run_suite(pytester, fault) == pytest.ExitCode.TESTS_FAILED


def run_suite(pytester: pytest.Pytester, store: type[MemoryStore]) -> int:
    path = pytester.makepyfile(SUITE.format(fault=store.__name__))
    return pytester.runpytest_inprocess(path, "-q", "-x", "--import-mode=importlib").ret
