"""Checkpoints of workflows: the rules of the framework, on every engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from agent_framework import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)

from ropewalk import MemoryStore, Store, Timeline
from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage
from ropewalk.store import open as open_store
from tests.engines import ENGINES, opening
from tests.frameworks.agents.agent_framework.flows import LAST, counting
from tests.postgres import running_postgres
from tests.servers import Redis, running

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def checkpoint(name: str = "flow", **fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(workflow_name=name, graph_signature_hash="graph", **fields)


async def chain(storage: Any, count: int, name: str = "flow") -> list[str]:
    """The ids of checkpoints that were saved one after the other."""
    ids: list[str] = []
    for step in range(count):
        before = ids[-1] if ids else None
        made = checkpoint(
            name, previous_checkpoint_id=before, iteration_count=step, state={"step": step}
        )
        ids.append(await storage.save(made))
    return ids


@pytest.fixture(params=[*ENGINES, "postgres", "redis", "theirs in memory", "theirs in files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Our storage on each engine, and theirs: the rules hold for both."""
    engine = request.param
    if engine in ENGINES:
        with opening(engine, tmp_path) as new_store:
            yield RopewalkCheckpointStorage(new_store())
    elif engine == "postgres":
        with running_postgres() as server, open_store(server.new_database()) as store:
            yield RopewalkCheckpointStorage(store)
    elif engine == "redis":
        with running(Redis) as redis, open_store(redis.url, durability="relaxed") as store:
            yield RopewalkCheckpointStorage(store)
    else:
        yield (
            InMemoryCheckpointStorage()
            if engine == "theirs in memory"
            else FileCheckpointStorage(tmp_path)
        )


class TestRules:
    def test_a_checkpoint_comes_back_whole(self, storage: Any) -> None:
        made = checkpoint(
            state={"count": 1, "_executor_state": {"a": {"seen": [1, 2.5, None, True]}}},
            metadata={"why": "test"},
            iteration_count=3,
            previous_checkpoint_id="gone",
        )

        assert run(storage.save(made)) == made.checkpoint_id
        assert run(storage.load(made.checkpoint_id)) == made
        assert run(storage.get_latest(workflow_name="flow")) == made
        assert run(storage.list_checkpoints(workflow_name="flow")) == [made]

    def test_what_was_saved_does_not_follow_the_callers_object(self, storage: Any) -> None:
        async def saved() -> WorkflowCheckpoint:
            made = checkpoint(state={"a": {"b": ["first"]}})
            saving = asyncio.ensure_future(storage.save(made))
            await asyncio.sleep(0)
            made.state["a"]["b"].append("while it is saved")
            await saving
            made.state["a"]["b"].append("later")
            return await storage.load(made.checkpoint_id)

        assert run(saved()).state == {"a": {"b": ["first"]}}

    @pytest.mark.parametrize("way", ["load", "get_latest", "list_checkpoints"])
    def test_what_is_read_belongs_to_the_caller(self, storage: Any, way: str) -> None:
        async def read(id: str) -> WorkflowCheckpoint:
            if way == "load":
                return await storage.load(id)
            found = await getattr(storage, way)(workflow_name="flow")
            return found[0] if isinstance(found, list) else found

        async def twice() -> list[Any]:
            id = await storage.save(checkpoint(state={"a": {"b": ["first"]}}))
            before, first = await read(id), await read(id)
            first.state["a"]["b"].append("mine")
            return [before.state, (await read(id)).state]

        assert run(twice()) == [{"a": {"b": ["first"]}}] * 2

    def test_workflows_are_kept_apart(self, storage: Any) -> None:
        async def both() -> None:
            ours, theirs = await chain(storage, 2, "ours"), await chain(storage, 3, "the/irs")
            for name, ids in (("ours", ours), ("the/irs", theirs)):
                assert set(await storage.list_checkpoint_ids(workflow_name=name)) == set(ids)
                found = await storage.list_checkpoints(workflow_name=name)
                assert {one.checkpoint_id for one in found} == set(ids)
                assert {one.workflow_name for one in found} == {name}
                latest = await storage.get_latest(workflow_name=name)
                assert latest.checkpoint_id == ids[-1]
                assert (await storage.load(ids[0])).workflow_name == name

        run(both())

    def test_what_is_not_there_is_none_or_an_error_of_the_framework(self, storage: Any) -> None:
        async def ask() -> None:
            assert await storage.get_latest(workflow_name="nobody") is None
            assert await storage.list_checkpoints(workflow_name="nobody") == []
            assert await storage.list_checkpoint_ids(workflow_name="nobody") == []
            assert await storage.delete("nothing") is False
            with pytest.raises(WorkflowCheckpointException):
                await storage.load("nothing")

        run(ask())

    def test_a_deleted_checkpoint_is_gone_and_the_one_before_is_the_newest(
        self, storage: Any
    ) -> None:
        async def delete() -> None:
            ids = await chain(storage, 4)
            assert [await storage.delete(ids[one]) for one in (3, 1, 1)] == [True, True, False]
            latest = await storage.get_latest(workflow_name="flow")
            assert latest.checkpoint_id == ids[2]
            left = await storage.list_checkpoint_ids(workflow_name="flow")
            assert set(left) == {ids[0], ids[2]}
            with pytest.raises(WorkflowCheckpointException):
                await storage.load(ids[1])
            for id in left:
                assert await storage.delete(id)
            assert await storage.get_latest(workflow_name="flow") is None
            again = await chain(storage, 1)
            assert await storage.list_checkpoint_ids(workflow_name="flow") == again

        run(delete())

    def test_a_checkpoint_that_is_saved_again_is_replaced(self, storage: Any) -> None:
        async def save() -> None:
            ids = await chain(storage, 2)
            await storage.save(checkpoint(checkpoint_id=ids[1], state={"step": "again"}))
            (found,) = [
                one
                for one in await storage.list_checkpoints(workflow_name="flow")
                if one.checkpoint_id == ids[1]
            ]
            assert found.state == (await storage.load(ids[1])).state == {"step": "again"}

        run(save())

    def test_the_newest_is_that_of_the_latest_time(self, storage: Any) -> None:
        async def save() -> None:
            times = ("2026-03-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00")
            ids = [await storage.save(checkpoint(timestamp=time)) for time in times]
            latest = await storage.get_latest(workflow_name="flow")
            assert latest.checkpoint_id == ids[0]
            await storage.delete(ids[0])
            latest = await storage.get_latest(workflow_name="flow")
            assert latest.checkpoint_id == ids[1]

        run(save())

    def test_runs_at_the_same_time_lose_nothing(self, storage: Any) -> None:
        async def save() -> None:
            found = await asyncio.gather(*(chain(storage, 5) for _ in range(6)))
            ids = {id for each in found for id in each}
            assert set(await storage.list_checkpoint_ids(workflow_name="flow")) == ids
            for each in found:
                assert [(await storage.load(id)).state for id in each] == [
                    {"step": step} for step in range(5)
                ]

        run(save())


@pytest.fixture
def store() -> Iterator[Store]:
    with MemoryStore() as made:
        yield made


def test_a_workflow_goes_on_from_the_newest_and_from_any_checkpoint(store: Store) -> None:
    async def work() -> list[Any]:
        storage = RopewalkCheckpointStorage(store)
        outputs = (await counting(storage).run(1)).get_outputs()
        saved = await storage.list_checkpoints(workflow_name="counting")
        assert [one.state.get("log", []) for one in saved] == [
            list(range(1, step + 1)) for step in range(LAST + 1)
        ]
        resumed = await counting(storage).run(checkpoint_id=saved[2].checkpoint_id)
        return [outputs, resumed.get_outputs()]

    assert run(work()) == [[list(range(1, LAST + 1))]] * 2


def test_what_a_fork_left_behind_stays_on_a_branch(store: Store) -> None:
    async def work() -> None:
        storage = RopewalkCheckpointStorage(store)
        ids = await chain(storage, 3)
        await storage.save(checkpoint(previous_checkpoint_id=ids[0], state={"step": "other"}))

    run(work())
    timeline = Timeline("flow", store)

    assert [one.state["state"]["step"] for one in timeline.history()] == ["other", 0]
    (other,) = [one.name for one in timeline.list_branches() if one.name != "main"]
    assert [one.state["state"]["step"] for one in timeline.history(other)] == [2, 1, 0]


def test_two_runs_that_take_turns_keep_one_branch_each(store: Store) -> None:
    async def work() -> None:
        storage = RopewalkCheckpointStorage(store)
        last: dict[str, str | None] = {"a": None, "b": None}
        for step in range(4):
            for name, before in last.items():
                made = checkpoint(previous_checkpoint_id=before, state={name: step})
                last[name] = await storage.save(made)

    run(work())
    timeline = Timeline("flow", store)

    found = sorted(
        timeline.history(branch.name)[0].state["state"].popitem()
        for branch in timeline.list_branches()
    )
    assert found == [("a", 3), ("b", 3)]


def test_a_rollback_of_the_timeline_decides_where_a_workflow_goes_on(store: Store) -> None:
    async def work() -> list[Any]:
        storage: Any = RopewalkCheckpointStorage(store)
        await chain(storage, 5)
        Timeline("flow", store).rollback(2)
        back = await storage.get_latest(workflow_name="flow")
        after = checkpoint(previous_checkpoint_id=back.checkpoint_id, state={"step": "new"})
        await storage.save(after)
        latest = await storage.get_latest(workflow_name="flow")
        return [back.state["step"], latest.state["step"]]

    assert run(work()) == [2, "new"]
    assert [one.state["state"]["step"] for one in Timeline("flow", store).history()][:2] == [
        "new",
        2,
    ]


def test_a_fork_of_the_timeline_is_another_workflow(store: Store) -> None:
    async def work() -> list[Any]:
        storage: Any = RopewalkCheckpointStorage(store)
        await counting(storage).run(1)
        timeline = Timeline("counting", store)
        timeline.fork("another", timeline.history()[3].id)
        latest = await storage.get_latest(workflow_name="another")
        inherited = await storage.list_checkpoint_ids(workflow_name="another")
        resumed = await counting(storage, "another").run(checkpoint_id=latest.checkpoint_id)
        own = await storage.list_checkpoint_ids(workflow_name="another")
        ours = await storage.list_checkpoint_ids(workflow_name="counting")
        return [latest.state["log"], len(inherited), resumed.get_outputs(), len(own), len(ours)]

    assert run(work()) == [[1, 2, 3], 4, [[1, 2, 3, 4, 5, 6]], 7, 7]


@pytest.mark.parametrize("processes", [1, 4])
def test_a_chain_takes_the_room_of_what_was_added(processes: int, tmp_path: Path) -> None:
    async def work() -> None:
        words, last = random.Random(23), None
        log: list[str] = []
        for _ in range(processes):  # As many, one after the other.
            async with RopewalkCheckpointStorage(tmp_path / "store") as storage:
                latest = await storage.get_latest(workflow_name="flow")
                log = [] if latest is None else latest.state["log"]
                for _ in range(200 // processes):
                    log.append(words.randbytes(500).hex())
                    made = checkpoint(previous_checkpoint_id=last, state={"log": [*log]})
                    last = await storage.save(made)

    run(work())

    stored = sum(file.stat().st_size for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert stored < 1.5 * 200 * 1000


def test_the_newest_is_found_without_the_others_being_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(chain(RopewalkCheckpointStorage(store), 50))
    asked: list[str] = []
    for name in ("operations", "find", "view"):
        _count(monkeypatch, store, name, asked)

    latest = run(RopewalkCheckpointStorage(store).get_latest(workflow_name="flow"))

    assert latest is not None and latest.iteration_count == 49
    assert asked == ["view"]  # The name of the space is checked.


def _count(monkeypatch: pytest.MonkeyPatch, store: Store, name: str, asked: list[str]) -> None:
    method: Callable[..., Any] = getattr(store, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(name)
        return method(*arguments, **options)

    monkeypatch.setattr(store, name, counted)
