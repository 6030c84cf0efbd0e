"""The family `langgraph`. What needs LangGraph itself is tested beside it, in tests/frameworks."""

from __future__ import annotations

from bench import __main__ as command
from bench import _registry as registry
from bench._model import Target
from bench.scenarios._sides import (
    DURABLE_SAVERS,
    EVERY_SAVER,
    OUR_SAVER,
    OUR_SAVER_SERVED,
    PEER_GRAPH,
    PLAIN_GRAPH,
    SAVER_DELTA,
    SAVER_POOL,
    SAVER_POSTGRES,
    SAVER_SQLITE,
)


def targets(scenario: str) -> dict[str, Target]:
    return {target.metric: target for target in registry.scenarios()[scenario].targets}


def test_a_chat_is_bounded_in_bytes_and_beside_every_durable_saver_in_cpu() -> None:
    found = targets("langgraph-chat")

    assert found["stored_mb"].limit == 6.0
    assert (found["added_s"].limit, found["added_s"].under) == (3.0, DURABLE_SAVERS)


def test_documents_are_bounded_in_bytes_and_in_time() -> None:
    found = targets("langgraph-documents")

    assert found["stored_mb"].limit == 6.0
    assert (found["wall_s"].limit, found["wall_s"].under) == (10.0, (SAVER_SQLITE,))
    assert targets("langgraph-replace")["stored_mb"].limit == 10.0


def test_a_history_is_bounded_in_time_and_in_memory() -> None:
    found = targets("langgraph-history")

    assert (found["history_s"].limit, found["history_s"].under) == (30.0, (SAVER_SQLITE,))
    assert found["more_mb"].limit == 30.0


def test_threads_at_once_are_compared_with_both_ways_to_use_the_peer() -> None:
    for name, limit in (("langgraph-threads", 5.0), ("langgraph-threads-small", 1.5)):
        scenario = registry.scenarios()[name]
        found = [(one.metric, one.side, one.limit, one.over) for one in scenario.targets]

        assert found == [
            ("rate", OUR_SAVER_SERVED, limit, (SAVER_POOL,)),
            ("rate", OUR_SAVER_SERVED, limit, (SAVER_POSTGRES,)),
        ]


def test_turns_are_bounded_in_bytes_and_in_their_growth() -> None:
    found = targets("langgraph-turns")

    assert found["stored_mb"].limit == 6.0
    assert (found["growth_us"].limit, found["growth_us"].over) == (0.5, (SAVER_DELTA,))


def test_our_savers_run_where_their_peers_do() -> None:
    infos = registry.engines()

    assert {infos[name].environment for name in EVERY_SAVER} == {"peers"}
    assert infos[OUR_SAVER].package == "ropewalk"


def test_the_number_of_steps_can_be_chosen() -> None:
    chosen = command.arguments(["langgraph-chat", "--steps", "300"])
    known = registry.scenarios()

    assert command.sized(known["langgraph-chat"], chosen) == {"steps": 300}
    assert command.sized(known["langgraph-turns"], chosen) == known["langgraph-turns"].size


def test_memory_is_compared_with_what_the_peers_page_says_and_with_the_peer() -> None:
    plain, *peers = registry.scenarios()["langgraph-memory"].targets

    assert (plain.limit, plain.over) == (1 - 0.728, (PLAIN_GRAPH,))
    assert [peer.metric for peer in peers] == ["rss_mb", "cpu_s"]
    assert all((peer.limit, peer.over) == (1.0, (PEER_GRAPH,)) for peer in peers)
