"""What is kept of a thread: pruning, pins, copies, and runs that are undone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langgraph.types import Command

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import InvalidInput, NotFound
from tests.frameworks.langgraph.checkpoints import config_of, id_of, put, put_chain, steps, written
from tests.frameworks.langgraph.engines import ENGINES
from tests.frameworks.langgraph.graphs import asking_graph, history, line_graph, thread

everywhere = pytest.mark.parametrize("engine", ENGINES)


def chain(saver: Any, length: int = 6, thread_id: str = "t", namespace: str = "") -> list[Any]:
    states = [{"a": [number] * 3, "same": "x" * 100} for number in range(length)]
    return put_chain(saver, config_of(thread_id, namespace), states)


@everywhere
@pytest.mark.parametrize("keep", [1, 2, 5, 6, 50])
def test_the_newest_ones_are_kept(saver: RopewalkSaver, keep: int) -> None:
    configs = chain(saver)
    saver.prune(["t"], keep_last=keep)
    left = list(saver.list(config_of()))

    assert [one.config for one in left] == configs[::-1][:keep]
    assert [one.checkpoint["channel_values"]["a"][0] for one in left] == [5, 4, 3, 2, 1, 0][:keep]


def test_every_namespace_keeps_its_newest(either: Any) -> None:
    for namespace in ("", "a:1", "a:1|b:2"):
        chain(either, 3, namespace=namespace)
    either.prune(["t"])

    assert len(list(either.list(config_of(namespace=None)))) == 3
    for namespace in ("", "a:1", "a:1|b:2"):
        assert steps(either.list(config_of(namespace=namespace))) == [2]


def test_writes_go_and_stay_with_their_checkpoint(either: Any) -> None:
    *_, before, last = chain(either)
    for config in (before, last):
        either.put_writes(config, [("a", "waiting")], "task")
    either.prune(["t"])
    found = written(either, last)

    assert found == [("task", "a", "waiting")] and either.get_tuple(before) is None


def test_what_is_pinned_survives(saver: RopewalkSaver) -> None:
    configs = chain(saver)
    saver.pin(configs[1], "good")
    saver.pin(configs[3], "better")
    saver.prune(["t"])
    left = steps(saver.list(config_of()))
    saver.unpin("t", "good")
    saver.prune(["t"])

    assert left == [5, 3, 1]
    assert steps(saver.list(config_of())) == [5, 3]
    assert saver.pins("t") == {"better": configs[3]}


def test_a_pin_names_something(saver: RopewalkSaver) -> None:
    configs = chain(saver)

    with pytest.raises(NotFound):
        saver.pin(config_of("other"), "name")
    with pytest.raises(NotFound):
        saver.unpin("t", "name")
    with pytest.raises(InvalidInput):
        saver.pin(configs[0], "")
    assert saver.pins("t") == saver.pins("other") == {}


def test_a_pin_without_an_id_is_the_newest(saver: RopewalkSaver) -> None:
    configs = chain(saver)
    saver.pin(config_of(), "now")

    assert saver.pins("t") == {"now": configs[-1]}


@pytest.mark.parametrize("wrong", [{"strategy": "all"}, {"keep_last": 0}, {"keep_last": True}])
def test_other_wishes_are_refused(saver: RopewalkSaver, wrong: Any) -> None:
    chain(saver)
    with pytest.raises(InvalidInput):
        saver.prune(["t"], **wrong)

    assert len(list(saver.list(config_of()))) == 6


def test_a_graph_goes_on_after_its_thread_was_pruned(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    for turn in range(4):
        graph.invoke({"log": [f"turn {turn}"]}, thread())
        saver.prune(["t"], keep_last=2)
    state = graph.invoke({"log": ["last"]}, thread())

    assert state["count"] == 15 and len(state["log"]) == 20
    assert len(history(graph, thread())) == 7


def test_a_question_that_waits_survives_pruning(saver: RopewalkSaver) -> None:
    graph = asking_graph(saver)
    graph.invoke({"log": []}, thread())
    for _ in range(2):
        saver.prune(["t"])
        asked = graph.get_state(thread()).interrupts
        state = graph.invoke(Command(resume={one.id: "yes" for one in asked}), thread())

    assert state["log"] == ["once yes", "twice yes yes"]


def test_forks_are_pruned_by_their_age(saver: RopewalkSaver) -> None:
    first, second, *_ = chain(saver, 4)
    fork = put(saver, first, {"a": ["fork"]}, step=10)
    saver.prune(["t"])

    assert [one.config for one in saver.list(config_of())] == [fork]
    assert saver.get_tuple(second) is None


def test_space_is_given_back_after_pruning(saver: RopewalkSaver) -> None:
    def stored() -> int:
        return sum(one.stored for one in saver.store.scan())

    config = config_of()
    for number in range(20):
        config = put(saver, config, {"a": random.Random(number).randbytes(20_000)})
    before = stored()
    saver.prune(["t"])
    put(saver, config, {"a": b"last"})  # After it the pruning cannot be undone any more.
    saver.store.gc(recent=1)
    found = [one.checkpoint["channel_values"]["a"] for one in saver.list(config_of())]

    assert found == [b"last", random.Random(19).randbytes(20_000)]
    assert stored() < before / 5


@everywhere
def test_a_copy_has_the_same_ids_and_is_a_thread_of_its_own(saver: RopewalkSaver) -> None:
    configs = chain(saver)
    saver.put_writes(configs[-1], [("a", "waiting")], "task")
    saver.copy_thread("t", "u")
    saver.delete_thread("t")
    copied = list(saver.list(config_of("u")))

    assert [id_of(one.config) for one in copied] == [id_of(one) for one in configs[::-1]]
    assert [one.checkpoint["channel_values"]["a"][0] for one in copied] == [5, 4, 3, 2, 1, 0]
    assert written(saver, config_of("u")) == [("task", "a", "waiting")]
    assert copied[0].parent_config == config_of("u", at=id_of(configs[-2]))


def test_a_graph_goes_on_in_a_copy(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["start"]}, thread())
    saver.copy_thread("t", "u")
    graph.invoke({"log": ["copy"]}, thread("u"))
    graph.invoke({"log": ["source"]}, thread())

    assert graph.get_state(thread("u")).values["log"][4] == "copy"
    assert graph.get_state(thread()).values["log"][4] == "source"


def test_a_copy_of_nothing_or_of_itself_changes_nothing(either: Any) -> None:
    chain(either)
    either.copy_thread("none", "u")
    either.copy_thread("t", "t")

    assert list(either.list(config_of("u"))) == [] and len(list(either.list(config_of()))) == 6


@everywhere
def test_runs_are_undone_in_all_threads(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    for name in ("t", "u"):
        for run in ("r1", "r2", "r3"):
            graph.invoke({"log": [run]}, thread(name, metadata={"run_id": run}))
    saver.delete_for_runs(["r2", "r3", "unknown"])

    for name in ("t", "u"):
        assert graph.get_state(thread(name)).values["log"] == ["r1", "n0", "n1", "n2"]
        again = graph.invoke({"log": ["again"]}, thread(name))
        assert again["log"][4:] == ["again", "n0", "n1", "n2"]


def test_what_comes_after_a_run_that_is_undone_stays_as_it_is(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    for run in ("r1", "r2", "r3"):
        graph.invoke({"log": [run]}, thread(metadata={"run_id": run}))
    before = graph.get_state(thread()).values
    saver.delete_for_runs(["r2"])

    assert graph.get_state(thread()).values == before
    assert {one.metadata["run_id"] for one in saver.list(thread())} == {"r1", "r3"}


def test_threads_are_listed_until_they_are_deleted(saver: RopewalkSaver) -> None:
    for name in ("b", "a/..", "7"):
        chain(saver, 2, name)
    before = sorted(saver.threads())
    saver.delete_thread("b")
    saver.prune(["7"], strategy="delete")

    assert before == ["7", "a/..", "b"] and list(saver.threads()) == ["a/.."]


@everywhere
def test_a_deleted_thread_gives_its_space_back(saver: RopewalkSaver) -> None:
    put(saver, config_of("gone"), {"a": random.Random(1).randbytes(50_000)})
    put(saver, config_of("stays"), {"a": random.Random(2).randbytes(50_000)})
    saver.delete_thread("gone")
    freed = saver.store.gc(recent=0)
    found = saver.get_tuple(config_of("stays"))

    assert freed.freed_bytes > 45_000
    assert found is not None and len(found.checkpoint["channel_values"]["a"]) == 50_000
