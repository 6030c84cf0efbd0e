"""The checkpointer for agentflow, under agentflow itself."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from ropewalk import MemoryStore, Store
from ropewalk.errors import NotStorable
from tests.frameworks import suites
from tests.frameworks.agentflow import graph
from tests.frameworks.suites import CONFIG
from tests.frameworks.trip import Plan, Stage
from tests.frameworks.turn import take_turn


class Booking(BaseModel):
    nights: int


class TestInterface(suites.InterfaceSuite):
    kit = graph


class TestState(suites.StateSuite):
    kit = graph

    def test_a_state_is_read_that_pyagenity_stored_under_its_name_before(
        self, checkpointer: Any
    ) -> None:
        state = graph.TripState(context=[self.said("hello"), self.said("bye")], visited=["plan"])
        made = datetime(2026, 1, 2, 3, 4, 5)
        for message, time in zip(state.context, (made, None), strict=True):
            message.timestamp = time  # As 0.3.3 had it; nothing checks what is assigned.
        earlier: Any = graph.RopewalkCheckpointer(checkpointer.threads.store)
        declare_as_it_was(earlier)
        earlier.put_state(CONFIG, state)
        found = checkpointer.get_state(CONFIG)

        assert [one.timestamp for one in found.context] == [made.timestamp(), None]
        assert found.visited == ["plan"] and type(found) is graph.TripState


def declare_as_it_was(checkpointer: Any) -> None:
    """Declare messages as the checkpointer for pyagenity 0.3.3 does."""
    registry = checkpointer._codec.registry
    registry.register(checkpointer.models.message, name="agentflow.Message")
    registry.register(graph.TripState)
    for cls in (Plan, Stage):
        registry.register(cls)


class TestMessages(suites.MessageSuite):
    kit = graph

    def test_parsed_content_of_a_declared_class_comes_back(self, store: Store) -> None:
        checkpointer: Any = graph.RopewalkCheckpointer(store, types=[Booking])
        message = self.said("two nights", parsed_content=Booking(nights=2))
        checkpointer.put_messages(CONFIG, [message])
        found = checkpointer.get_message(CONFIG)

        assert found == message and type(found.parsed_content) is Booking

    def test_parsed_content_of_a_class_that_is_not_declared_is_refused_in_the_closed_mode(
        self, store: Store
    ) -> None:
        checkpointer: Any = graph.RopewalkCheckpointer(store, classes="declared")
        with pytest.raises(NotStorable, match="Booking"):
            checkpointer.put_messages(CONFIG, [self.said("two", parsed_content=Booking(nights=2))])

        assert checkpointer.list_messages(CONFIG) == []


class TestThreads(suites.ThreadSuite):
    kit = graph


class TestGraph(suites.GraphSuite):
    kit = graph

    def test_compiling_a_graph_declares_its_state(self, store: Store) -> None:
        checkpointer: Any = graph.RopewalkCheckpointer(store)
        told = take_turn(graph, checkpointer, CONFIG, "go to Rome")

        assert told["class"] == "TripState" and checkpointer.state_type is graph.TripState
        with pytest.raises(ValueError, match="already bound"):
            checkpointer.bind_state_type(graph.Undeclared)

    def test_every_step_puts_a_state_with_its_messages(self, checkpointer: Any) -> None:
        take_turn(graph, checkpointer, CONFIG, "go to Rome")
        made = checkpointer.threads.timeline(CONFIG).history()

        assert {one.logic_step for one in made} == {"put"}
        assert made[0].description == "a state, 3 messages"


class TestCheckpoints(suites.Suite):
    kit = graph

    def test_a_state_without_its_messages_is_not_stored(self, checkpointer: Any) -> None:
        unstorable = self.said("hello", raw={"socket": object()})
        with pytest.raises(NotStorable):
            checkpointer.put_checkpoint(CONFIG, graph.TripState(), [unstorable])

        assert checkpointer.get_state(CONFIG) is None
        assert checkpointer.list_messages(CONFIG) == []

    def test_a_checkpoint_gives_its_state_back(self, checkpointer: Any) -> None:
        state = graph.TripState(visited=["plan"])
        given = asyncio.run(
            checkpointer.aput_checkpoint(CONFIG, state, [self.said("hi")], {"a": 1})
        )

        assert given is state and checkpointer.get_state(CONFIG) == state
        assert checkpointer.get_message(CONFIG).metadata == {"a": 1}


class TestValues(suites.Suite):
    kit = graph

    def test_a_value_is_kept_and_cleared(self, checkpointer: Any) -> None:
        value = {"url": "https://e.org", "n": [1, None]}
        checkpointer.put_cache_value("media", "a/b", value, 60)
        found = checkpointer.get_cache_value("media", "a/b")
        checkpointer.clear_cache_value("media", "a/b")

        assert found == value and found is not value
        assert checkpointer.get_cache_value("media", "a/b") is None

    def test_keys_are_listed_by_their_beginning_within_a_namespace(self, checkpointer: Any) -> None:
        for namespace, key in [
            ("a", "b:c"),
            ("a:b", "c"),
            ("a", "x"),
            ("a/b", "c"),
            ("a%2Fb", "d"),
        ]:
            checkpointer.put_cache_value(namespace, key, True)
        listed = asyncio.run(checkpointer.alist_cache_keys("a"))

        assert sorted(listed) == ["b:c", "x"]
        assert checkpointer.list_cache_keys("a", "b") == ["b:c"]
        assert checkpointer.list_cache_keys("a/b") == ["c"]

    def test_a_request_to_stop_is_for_one_thread_of_one_user(self, checkpointer: Any) -> None:
        asked = {"thread_id": "a:b", "user_id": "c"}
        checkpointer.request_stop(asked)
        others: list[dict[str, Any]] = [
            {"thread_id": "a", "user_id": "b:c"},
            {"thread_id": "a:b", "user_id": "d"},
            {"thread_id": "a:b"},
        ]

        assert checkpointer.is_stop_requested(asked)
        assert not any(checkpointer.is_stop_requested(other) for other in others)
        checkpointer.clear_stop_request(asked)
        assert not checkpointer.is_stop_requested(asked)


class TestTools(suites.Suite):
    kit = graph

    def test_a_result_is_kept_for_its_call_in_its_thread(self, checkpointer: Any) -> None:
        for number in range(3):
            result = {"__kind__": "raw", "value": number}
            checkpointer.put_tool_result(CONFIG, f"call-{number}", result)

        assert checkpointer.get_tool_result(CONFIG, "call-1")["value"] == 1
        assert checkpointer.get_tool_result(CONFIG, "call-9") is None
        assert checkpointer.get_tool_result({"thread_id": "other"}, "call-1") is None
        assert checkpointer.get_tool_result({**CONFIG, "user_id": "bob"}, "call-1") is None

    def test_results_at_the_same_time_are_all_kept(self, checkpointer: Any) -> None:
        async def all_at_once() -> None:
            await asyncio.gather(
                *(checkpointer.aput_tool_result(CONFIG, f"c{n}", {"value": n}) for n in range(12))
            )

        asyncio.run(all_at_once())

        kept = [checkpointer.get_tool_result(CONFIG, f"c{n}") for n in range(12)]
        assert kept == [{"value": n} for n in range(12)]

    def test_a_cleaned_thread_knows_no_results(self, checkpointer: Any) -> None:
        checkpointer.put_tool_result(CONFIG, "call-1", {"value": 1})
        checkpointer.clean_thread(CONFIG)

        assert checkpointer.get_tool_result(CONFIG, "call-1") is None


class TestOwners(suites.Suite):
    kit = graph

    def test_the_owner_of_a_thread_is_found_whoever_asks(self) -> None:
        checkpointer: Any = graph.RopewalkCheckpointer(MemoryStore())
        for thread_id, user in [("t1", "alice"), (2, 42), ("t3", None), ("gone", "bob")]:
            config = {"thread_id": thread_id, "user_id": user}
            checkpointer.put_messages(config, [self.said("hello")])
        checkpointer.clean_thread({"thread_id": "gone", "user_id": "bob"})

        assert asyncio.run(checkpointer.aget_thread_owner("t1")) == "alice"
        assert checkpointer.get_thread_owner(2) == 42
        assert checkpointer.get_thread_owner("t3") == "anonymous"
        assert checkpointer.get_thread_owner("2") is None
        assert checkpointer.get_thread_owner("gone") is None

    def test_a_thread_id_of_several_users_has_no_one_owner(self) -> None:
        checkpointer: Any = graph.RopewalkCheckpointer(MemoryStore())
        for user in ("alice", "bob"):
            checkpointer.put_messages({**CONFIG, "user_id": user}, [self.said("hello")])

        with pytest.raises(NotImplementedError, match="2 users"):
            checkpointer.get_thread_owner("trip")
