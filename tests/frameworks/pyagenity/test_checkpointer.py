"""The checkpointer for pyagenity, under pyagenity itself."""

from __future__ import annotations

from typing import Any

import pytest
from pyagenity.utils import START

from ropewalk.errors import InvalidInput
from tests.frameworks import suites
from tests.frameworks.pyagenity import graph
from tests.frameworks.turn import take_turn


class TestInterface(suites.InterfaceSuite):
    kit = graph


class TestState(suites.StateSuite):
    kit = graph


class TestMessages(suites.MessageSuite):
    kit = graph


class TestThreads(suites.ThreadSuite):
    kit = graph


class TestGraph(suites.GraphSuite):
    kit = graph

    def second_turn(self) -> dict[str, Any]:
        # The engine leaves a thread at its last node and would begin there.
        return {"state": {"current_node": START}}

    def test_a_run_that_names_no_thread_is_refused(self, checkpointer: Any) -> None:
        with pytest.raises(InvalidInput, match="thread_id"):
            take_turn(graph, checkpointer, {}, "go to Rome")
