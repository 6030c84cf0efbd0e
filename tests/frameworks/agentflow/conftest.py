"""Lets each test begin like a new process."""

from __future__ import annotations

import pytest
from injectq import InjectQ


@pytest.fixture(autouse=True)
def _nothing_is_left_of_other_graphs() -> None:
    """Graphs that name no container share the current one, and with it a checkpointer."""
    InjectQ().activate()
