"""The suite for key-value stores finds each of these faults."""

from __future__ import annotations

import pytest

from tests.store.faulty_key_values import FAULTY
from tests.store.key_values import DictKV

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from ropewalk.testing import KVStoreContract
from tests.store.{module} import {fault}

class TestFaulty(KVStoreContract):
    @pytest.fixture
    def open_kv(self):
        data = {{}}
        return lambda: {fault}(data)
"""


def test_the_suite_passes_a_key_value_store_without_a_fault(pytester: pytest.Pytester) -> None:
    assert run_suite(pytester, DictKV, "key_values") == pytest.ExitCode.OK


@pytest.mark.parametrize("fault", FAULTY)
def test_the_suite_finds_a_key_value_store_that(
    fault: type[DictKV], pytester: pytest.Pytester
) -> None:
    assert run_suite(pytester, fault, "faulty_key_values") == pytest.ExitCode.TESTS_FAILED


def run_suite(pytester: pytest.Pytester, kv: type[DictKV], module: str) -> int:
    path = pytester.makepyfile(SUITE.format(fault=kv.__name__, module=module))
    return pytester.runpytest_inprocess(path, "-q", "-x", "--import-mode=importlib").ret
