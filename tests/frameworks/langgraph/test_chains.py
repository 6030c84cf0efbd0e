"""Checkpoints are found the same by who put them and by who opens the store anew."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.adapters.langgraph.saver.checkpoints import space_of
from ropewalk.history import History
from ropewalk.tree import Commit
from tests.frameworks.langgraph.checkpoints import (
    checkpoint_of,
    config_of,
    id_of,
    metadata_of,
    new_id,
    put,
    written,
)
from tests.frameworks.langgraph.graphs import Log, line_graph, thread

NAMESPACES = ("", "", "", "inner:1", "inner:2", "memory")
LARGE = "many words " * 3000


def everything(saver: Any) -> dict[Any, Any]:
    """What each checkpoint of the thread is, as a list says it."""
    found: dict[Any, Any] = {}
    for one in saver.list(config_of(namespace=None)):
        where = one.config["configurable"]
        found[where["checkpoint_ns"], where["checkpoint_id"]] = shown(one)
    return found


def shown(one: Any) -> Any:
    parent = one.parent_config
    return (
        one.checkpoint,
        one.metadata,
        None if parent is None else parent["configurable"]["checkpoint_id"],
        [tuple(write) for write in one.pending_writes],
    )


def one_by_one(saver: Any, addresses: Any) -> dict[Any, Any]:
    """The same, of each one as it is asked for by its id."""
    found = {}
    for namespace, id in addresses:
        one = saver.get_tuple(config_of(namespace=namespace, at=id))
        assert one is not None, (namespace, id)
        found[namespace, id] = shown(one)
    return found


def commits_of(saver: Any, name: str) -> list[Commit]:
    """The commits that operations brought, as any program sees them."""
    history = History(saver.store, space_of(name))
    targets = [move.target for one in history.operations() for move in one.moves]
    return [history.resolve(target) for target in targets if target is not None]


def newest(saver: Any) -> dict[str, Any]:
    found = {name: saver.get_tuple(config_of(namespace=name)) for name in {*NAMESPACES, "absent"}}
    return {name: None if one is None else shown(one) for name, one in found.items()}


class Model:
    """What was done to a thread, in plain dicts."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], Any]] = {}


def act(saver: Any, chance: random.Random, model: Model, number: int) -> None:
    """Put a checkpoint or writes somewhere, mostly where a graph would."""
    namespace = chance.choice(NAMESPACES)
    ids = model.ids.setdefault(namespace, [])
    late = chance.random() < 0.2
    before = (chance.choice(ids) if late else ids[-1]) if ids else None
    task = f"task-{number}"
    value = LARGE + str(number) if chance.random() < 0.1 else number
    if chance.random() < 0.05:
        # Writes that come before their checkpoint.
        id = new_id()
        saver.put_writes(config_of(namespace=namespace, at=id), [("a", value)], task, "path")
        model.writes[namespace, id] = {(task, 0): value}
        before = before if before is None else ids[-1]
        made = checkpoint_of({"a": number}, at=id, version=new_id())
        saver.put(config_of(namespace=namespace, at=before), made, metadata_of(number), {})
        ids.append(id)
        return
    together = None
    if before is not None and chance.random() < 0.8:
        config = config_of(namespace=namespace, at=before)
        call = (config, [("a", value)], task, "path")
        model.writes.setdefault((namespace, before), {})[task, 0] = value
        together = threading.Thread(target=saver.put_writes, args=call)
        together.start()
        if chance.random() < 0.3:
            together.join()
    if chance.random() < 0.8:
        values = {"a": number, "b": LARGE if chance.random() < 0.1 else "small"}
        config = config_of(namespace=namespace, at=before)
        ids.append(id_of(put(saver, config, values, step=number)))
    if together is not None:
        together.join()


def expect_whole(saver: Any, path: Path, model: Model) -> None:
    """What the saver says, and a new one, and the model, is the same."""
    listed = everything(saver)
    with RopewalkSaver(path) as fresh:
        single = one_by_one(fresh, listed)
        ends = newest(fresh)
        again = everything(fresh)

    assert listed == again == single == one_by_one(saver, listed)
    assert ends == newest(saver)
    assert {name for name, one in ends.items() if one is not None} == {
        namespace for namespace, _ in listed
    }
    for place, writes in model.writes.items():
        if place in listed:
            found = {task: value for task, _, value in listed[place][3]}
            assert found == {task: value for (task, _), value in writes.items()}, place


@pytest.mark.parametrize("seed", range(6))
def test_whoever_opens_the_store_finds_what_was_put(tmp_path: Path, seed: int) -> None:
    chance, model, path = random.Random(seed), Model(), tmp_path / "s"
    with RopewalkSaver(path) as saver:
        for number in range(60):
            act(saver, chance, model, number)
            if number % 20 == 19:
                expect_whole(saver, path, model)
        assert {(name, id) for name, ids in model.ids.items() for id in ids} == set(
            everything(saver)
        )


@pytest.mark.parametrize("seed", range(4))
def test_what_is_pruned_copied_and_gone_on_with_is_found(tmp_path: Path, seed: int) -> None:
    chance, model, path = random.Random(seed), Model(), tmp_path / "s"
    with RopewalkSaver(path) as saver:
        for round_ in range(4):
            for number in range(20):
                act(saver, chance, model, 100 * round_ + number)
            if round_ == 1:
                saver.pin(config_of(at=model.ids[""][0]), "first")
            saver.prune(["t"], keep_last=5)
            expect_whole(saver, path, model)
            model.ids = {
                name: [id for id in ids if (name, id) in everything(saver)]
                for name, ids in model.ids.items()
            }
        saver.copy_thread("t", "u")
        before = everything(saver)
        saver.delete_thread("t")
        gone = everything(saver)
        saver.copy_thread("u", "t")

        assert gone == {} and everything(saver) == before
        expect_whole(saver, path, model)


def test_a_rollback_that_was_undone_leaves_no_checkpoint(tmp_path: Path) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        graph = line_graph(saver)
        graph.invoke({"log": ["in"]}, thread())
        before = everything(saver)
        timeline = saver.timeline("t")
        timeline.rollback(2)
        copy = saver.get_tuple(thread())
        assert copy is not None
        timeline.undo()
        undone = everything(saver), saver.get_tuple(copy.config)
        timeline.redo()
        redone = saver.get_tuple(copy.config)
        graph.invoke(None, thread())
        after = everything(saver)
        with RopewalkSaver(tmp_path / "s") as fresh:
            assert one_by_one(fresh, after) == after

    assert undone == (before, None)
    assert redone is not None and shown(redone) == shown(copy)
    assert before.items() <= after.items()


def test_a_thread_that_was_undone_and_goes_on_finds_no_checkpoint_of_before(
    tmp_path: Path,
) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        graph = line_graph(saver)
        graph.invoke({"log": ["in"]}, thread())
        timeline = saver.timeline("t")
        timeline.rollback(2)
        copy = saver.get_tuple(thread())
        assert copy is not None
        timeline.undo()
        graph.invoke({"log": ["more"]}, thread())
        with RopewalkSaver(tmp_path / "s") as fresh:
            assert fresh.get_tuple(copy.config) is None
            assert one_by_one(fresh, everything(saver)) == everything(saver)


def test_an_undone_prune_gives_all_back(tmp_path: Path) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        graph = line_graph(saver)
        graph.invoke({"log": ["in"]}, thread())
        before = everything(saver)
        saver.prune(["t"])
        kept = everything(saver)
        saver.timeline("t").undo()
        graph.invoke({"log": ["more"]}, thread())
        after = everything(saver)
        with RopewalkSaver(tmp_path / "s") as fresh:
            assert one_by_one(fresh, after) == after

    assert len(kept) == 1 and before.keys() <= after.keys()


def test_a_checkpoint_that_is_put_again_is_replaced(tmp_path: Path) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        first = put(saver, config_of(), {"a": 1})
        saver.put_writes(first, [("a", 2)], "task")
        second = put(saver, first, {"a": 2})
        for config, value in ((first, 10), (second, 20)):
            made = checkpoint_of({"a": value}, at=id_of(config), version=new_id())
            saver.put(config_of(), made, metadata_of(), {})
        with RopewalkSaver(tmp_path / "s") as fresh:
            found = [fresh.get_tuple(one) for one in (first, second, config_of())]
            listed = [one.checkpoint["channel_values"]["a"] for one in fresh.list(config_of())]

    assert [one and one.checkpoint["channel_values"]["a"] for one in found] == [10, 20, 20]
    assert listed == [20, 10]


def test_writes_to_a_base_of_what_was_pruned_are_found(tmp_path: Path) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        config = config_of()
        for number in range(3):
            config = put(saver, config, {"a": number})
        saver.prune(["t"])
        saver.put_writes(config, [("a", 7)], "task")
        put(saver, config, {"a": 8})
        with RopewalkSaver(tmp_path / "s") as fresh:
            assert written(fresh, config) == written(saver, config) == [("task", "a", 7)]


def test_the_commits_of_a_thread_say_what_ran(tmp_path: Path) -> None:
    def fail(state: Log) -> dict[str, Any]:
        raise ValueError("no luck")

    builder = StateGraph(Log)
    builder.add_node("fail", fail)
    builder.add_edge(START, "fail")
    with RopewalkSaver(tmp_path / "s") as saver:
        line_graph(saver).invoke({"log": ["in"]}, thread())
        commits = commits_of(saver, "t")
        with pytest.raises(ValueError, match="no luck"):
            builder.compile(checkpointer=saver).invoke({"log": ["in"]}, thread("u"))
        (failed,) = [one for one in commits_of(saver, "u") if one.status]

    assert {one.agent for one in commits} == {"t"}
    # On a busy machine the writes of a step may land before its checkpoint, in a commit of
    # their own.
    assert list(dict.fromkeys(one.logic_step for one in commits))[-3:] == ["n0", "n1", "n2"]
    assert "loop 3" in [one.description for one in commits[-2:]]
    assert (failed.status, failed.logic_step) == ("failed", "fail")
    assert "no luck" in failed.error
