"""Suites that hold a part of Holdfast, or of yours, to its contract.

    from holdfast.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda clock: MyStore(tmp_path, clock=clock)

Needs pytest. Nothing else in Holdfast imports this package.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("holdfast.testing._stores")

from holdfast.testing._stores import Clock, StoreContract  # noqa: E402 - rewritten first

__all__ = ["Clock", "StoreContract"]
