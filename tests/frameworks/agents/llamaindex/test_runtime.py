"""Runs of workflows that are stored with each step, killed, restored, rolled back and forked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from workflows import Context, Workflow, step
from workflows.context import JsonSerializer, PickleSerializer
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from workflows.plugins.basic import BasicRuntime

from ropewalk import MemoryStore, SqliteStore, Timeline
from ropewalk import open as open_store
from ropewalk.adapters import installed, llamaindex
from ropewalk.adapters.llamaindex import RopewalkRuntime
from ropewalk.errors import Conflict, InvalidInput, NotFound, NotStorable, RefMoved, StoreClosed
from ropewalk.store import Store
from tests.frameworks.agents.llamaindex.flows import Asking, Parallel, Plan, Research, Typed
from tests.frameworks.turn import ROOT


@pytest.fixture
def store() -> Iterator[Store]:
    with MemoryStore() as made:
        yield made


def killed(folder: Path, *arguments: str) -> list[str]:
    """What a process printed that runs the workflow `run`, and may be killed."""
    program = [sys.executable, "-m", "tests.frameworks.agents.llamaindex.flows"]
    done = subprocess.run(
        [*program, str(folder), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -9), done.stderr
    return done.stdout.splitlines()


# Killed processes.


def test_a_run_goes_on_after_the_last_step_that_finished(tmp_path: Path) -> None:
    assert killed(tmp_path, "find") == ["find"]
    assert killed(tmp_path, "read") == ["find", "read"]
    assert killed(tmp_path, "write") == ["read", "write"]
    assert killed(tmp_path, "") == ["write", "result bees: a b"]


def test_a_step_that_was_killed_leaves_nothing_in_the_state(tmp_path: Path) -> None:
    killed(tmp_path, "read")
    with open_store(tmp_path) as store:
        assert Timeline("run", store).get_state()["state"] == {"log": ["find"], "topic": "bees"}

    killed(tmp_path, "")

    with open_store(tmp_path) as store:
        assert Timeline("run", store).get_state()["state"]["log"] == ["find", "read", "write"]
        assert store.check().ok


@pytest.mark.parametrize("number", range(0, 10, 3))
def test_steps_that_ran_at_the_same_time_are_each_there_or_run_again(
    tmp_path: Path, number: int
) -> None:
    before = killed(tmp_path, "parallel", str(number))
    assert not any(line.startswith("result") for line in before)
    with open_store(tmp_path) as store:
        steps = [one.logic_step for one in Timeline("run", store).history()]

    after = killed(tmp_path, "parallel", "-1")

    assert after[-1] == f"result {list(range(10))}"
    assert len(after) - 1 == 10 - steps.count("work")


# What a run is.


def test_each_step_is_a_checkpoint_that_says_what_happened(store: Store) -> None:
    run(store, Research, topic="bees")

    steps = Timeline("r", store).history()
    assert [(one.logic_step, one.description) for one in reversed(steps)] == [
        ("", "received StartEvent"),
        ("find", "find: StartEvent -> Found"),
        ("read", "read: Found -> Read"),
        ("write", "write: Read -> StopEvent"),
    ]
    changed = Timeline("r", store).diff(steps[1].id, steps[0].id)
    assert ("state", "log", 2) in [one.path for one in changed]
    assert Timeline("r", store).blame(("state", "topic")).logic_step == "find"


def test_a_result_is_stored_before_it_is_seen(store: Store) -> None:
    async def go() -> str:
        handler = Research(runtime=RopewalkRuntime(store)).run(run_id="r", topic="bees")
        async for event in handler.stream_events():
            if isinstance(event, StopEvent):
                return Timeline("r", store).history()[0].logic_step
        raise AssertionError

    assert asyncio.run(go()) == "write"


def test_a_run_goes_on_in_the_same_state_with_the_next_start(store: Store) -> None:
    assert run(store, Research, topic="bees") == "bees: a b"
    assert run(store, Research, restored=True, topic="tides") == "tides: a b"

    state = Timeline("r", store).get_state()["state"]
    assert state["log"] == ["find", "read", "write"] * 2
    assert len(Timeline("r", store).history()) == 8


def test_a_context_goes_on_in_its_own_process(store: Store) -> None:
    async def go() -> Any:
        workflow = Research(runtime=RopewalkRuntime(store))
        ctx = Context(workflow)
        await workflow.run(ctx=ctx, run_id="r", topic="bees")
        await workflow.run(ctx=ctx, run_id="r", topic="tides")
        return await ctx.store.get("log")

    assert asyncio.run(go()) == ["find", "read", "write"] * 2
    assert len(Timeline("r", store).history()) == 8


def test_a_state_with_a_class_of_its_own_comes_back_as_one(store: Store) -> None:
    assert run(store, Typed, place="Rome") == {"places": ["Rome"], "days": 1}
    assert run(store, Typed, restored=True, place="Oslo") == {"places": ["Rome", "Oslo"], "days": 2}

    assert Timeline("r", store).get_state()["state"]["model"] == Plan(
        places=["Rome", "Oslo"], days=2
    )


def test_a_change_in_place_is_stored(store: Store) -> None:
    class InPlace(Workflow):
        @step
        async def find(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("docs", [{"id": 1}])
            docs = await ctx.store.get("docs")
            docs[0]["id"] = 2
            docs.append({"id": 3})
            return StopEvent()

    run(store, InPlace)

    assert Timeline("r", store).get_state()["state"]["docs"] == [{"id": 2}, {"id": 3}]


@dataclass
class Place:
    name: str


def test_values_come_back_with_their_types(store: Store) -> None:
    held = {"a": (1, 2), "b": {3}, "c": deque([4]), "d": Place("Rome"), "e": {5: b"x"}, "f": 1 + 2j}

    class Holding(Workflow):
        @step
        async def hold(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if ev.get("again", default=False):
                return StopEvent(result={name: await ctx.store.get(name) for name in held})
            for name, value in held.items():
                await ctx.store.set(name, value)
            return StopEvent()

    run(store, Holding)

    assert run(store, Holding, restored=True, again=True) == held


class Handle:
    """What Ropewalk does not store."""

    def __init__(self, number: int) -> None:
        self.number, self.call = number, print


class Keeping(Workflow):
    @step
    async def keep(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if await ctx.store.get("handle", default=None) is None:
            await ctx.store.set("handle", Handle(7))
        return StopEvent(result=(await ctx.store.get("handle")).number)


def test_a_value_that_nobody_can_store_fails_the_run_and_says_which(store: Store) -> None:
    with pytest.raises(NotStorable, match=r"ctx\.store\['handle'\]"):
        run(store, Keeping)

    assert [one.description for one in Timeline("r", store).history()] == ["received StartEvent"]


def test_a_value_is_stored_by_the_serializer_that_the_workflow_chose(store: Store) -> None:
    assert run(store, Keeping, serializer=PickleSerializer()) == 7
    assert run(store, Keeping, restored=True, serializer=PickleSerializer()) == 7


def test_an_event_from_a_user_cannot_name_a_class(store: Store) -> None:
    text = {"__is_pydantic": True, "qualified_name": "os.system", "value": "true"}

    class Telling(Workflow):
        @step
        async def tell(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("told", await ctx.store.get("told", default=text))
            return StopEvent(result=await ctx.store.get("told"))

    strict = JsonSerializer(allowed_types=())
    assert run(store, Telling, serializer=strict) == text
    assert run(store, Telling, restored=True, serializer=strict) == text


# Events from outside.


def test_a_run_that_waits_for_a_person_is_restored_and_goes_on(store: Store) -> None:
    async def ask() -> None:
        handler = Asking(runtime=RopewalkRuntime(store)).run(run_id="r")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                return  # Nobody answers while this event loop lives.

    async def answer() -> Any:
        runtime = RopewalkRuntime(store)
        workflow = Asking(runtime=runtime)
        ctx = await runtime.restore(workflow, "r")
        handler = workflow.run(ctx=ctx, run_id="r")
        handler.ctx.send_event(HumanResponseEvent(response="yes"))
        return await handler

    asyncio.run(ask())
    assert asyncio.run(answer()) == "yes"

    said = [one.description for one in reversed(Timeline("r", store).history())]
    assert said == [
        "received StartEvent",
        "ask: StartEvent -> InputRequiredEvent",
        "received HumanResponseEvent",
        "act: HumanResponseEvent -> StopEvent",
    ]


# Going back, and forks.


def test_a_run_that_went_back_goes_on_from_there(store: Store) -> None:
    run(store, Research, topic="bees")
    Timeline("r", store).rollback(2)

    workflow = Research(runtime=RopewalkRuntime(store))
    assert asyncio.run(_go_on(workflow, "r")) == "bees: a b"
    assert workflow.runs == ["read", "write"]


def test_a_fork_is_a_run_of_its_own_and_shares_storage(store: Store) -> None:
    run(store, Research, topic="bees")
    original = Timeline("r", store)
    steps = original.history()
    original.fork("second", from_checkpoint=steps[2].id)

    workflow = Research(runtime=RopewalkRuntime(store))
    assert asyncio.run(_go_on(workflow, "second")) == "bees: a b"
    assert workflow.runs == ["read", "write"]
    assert [one.id for one in original.history()] == [one.id for one in steps]


# Conflicts.


def test_a_run_cannot_begin_under_a_name_that_was_used(store: Store) -> None:
    run(store, Research, topic="bees")

    with pytest.raises(Conflict, match=r"runtime\.restore"):
        run(store, Research, topic="tides")
    assert len(Timeline("r", store).history()) == 4


def test_a_restored_context_does_not_go_on_under_another_name(store: Store) -> None:
    async def go(**given: Any) -> None:
        runtime = RopewalkRuntime(store)
        workflow = Research(runtime=runtime)
        ctx = await runtime.restore(workflow, "r")
        await workflow.run(ctx=ctx, topic="tides", **given)

    run(store, Research, topic="bees")

    for given in ({}, {"run_id": "s"}):
        with pytest.raises(InvalidInput, match="run_id='r'"):
            asyncio.run(go(**given))
    assert Timeline.agents(store) == ["r"]


def test_a_context_that_others_left_behind_does_not_go_on(store: Store) -> None:
    async def go() -> None:
        runtime = RopewalkRuntime(store)
        workflow = Research(runtime=runtime)
        own = Context(workflow)
        await workflow.run(ctx=own, run_id="r", topic="bees")
        restored = [await runtime.restore(workflow, "r") for _ in range(2)]
        await workflow.run(ctx=restored[1], run_id="r", topic="tides")

        with pytest.raises(Conflict, match="went on"):
            await workflow.run(ctx=own, run_id="r", topic="maps")
        with pytest.raises(Conflict):
            await workflow.run(ctx=restored[0], run_id="r", topic="maps")

    asyncio.run(go())

    assert Timeline("r", store).get_state()["state"]["topic"] == "tides"


def test_of_two_that_go_on_with_a_run_one_is_refused(tmp_path: Path) -> None:
    async def race(first: Store, second: Store) -> list[Any]:
        handlers = []
        for store in (first, second):
            runtime = RopewalkRuntime(store)
            workflow = Research(runtime=runtime)
            ctx = await runtime.restore(workflow, "r")
            handlers.append(workflow.run(ctx=ctx, run_id="r", topic="tides"))
        return await asyncio.gather(*handlers, return_exceptions=True)

    with SqliteStore(tmp_path / "s") as first, SqliteStore(tmp_path / "s") as second:
        run(first, Research, topic="bees")
        results = asyncio.run(race(first, second))

        assert sorted(map(type, results), key=str) == [RefMoved, str]
        assert Timeline("r", first).get_state()["state"]["log"] == ["find", "read", "write"] * 2


def test_who_streams_a_refused_run_is_told_that_it_failed(store: Store) -> None:
    async def go() -> list[str]:
        handler = Research(runtime=RopewalkRuntime(store)).run(run_id="r", topic="tides")
        seen = [type(event).__name__ async for event in handler.stream_events()]
        with pytest.raises(Conflict):
            await handler
        return seen

    run(store, Research, topic="bees")

    assert asyncio.run(go()) == ["WorkflowFailedEvent"]


def test_many_runs_at_once_keep_apart(store: Store) -> None:
    async def go() -> list[Any]:
        workflow = Research(runtime=RopewalkRuntime(store))
        return await asyncio.gather(
            *(workflow.run(run_id=f"r{number}", topic=f"t{number}") for number in range(20))
        )

    assert asyncio.run(go()) == [f"t{number}: a b" for number in range(20)]
    for number in range(20):
        assert Timeline(f"r{number}", store).get_state()["state"]["topic"] == f"t{number}"


# Every engine.


@pytest.fixture(params=["sqlite", "files", "postgres_url", "redis_url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("sqlite", "files"):
        return f"{'file://' * (request.param == 'files')}{tmp_path / 'store'}"
    return f"{request.getfixturevalue(request.param)}"


def test_a_run_is_restored_forked_and_guarded_on_every_engine(place: str) -> None:
    with open_store(place, durability="relaxed") as store:
        run(store, Research, topic="bees")
        Timeline("r", store).fork("second", from_checkpoint=Timeline("r", store).history()[2].id)
    with open_store(place, durability="relaxed") as store:
        workflow = Research(runtime=RopewalkRuntime(store))
        assert asyncio.run(_go_on(workflow, "second")) == "bees: a b"
        assert workflow.runs == ["read", "write"]
        with pytest.raises(Conflict):
            run(store, Research, topic="tides")
        assert run(store, Research, restored=True, topic="tides") == "tides: a b"
        assert store.check().ok


# The rest.


@pytest.mark.parametrize("name", ["RopewalkRuntime", "RopewalkChatStore"])
def test_too_old_a_framework_is_an_error_that_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "version", lambda distribution: "0.13.6")

    with pytest.raises(ImportError, match=r"newer.*0\.13\.6.*pip install 'ropewalk\[llamaindex\]'"):
        getattr(llamaindex, name)


def test_only_a_run_can_be_restored(store: Store) -> None:
    Timeline("other", store).checkpoint({"x": 1})
    runtime = RopewalkRuntime(store)
    workflow = Research(runtime=runtime)

    with pytest.raises(NotFound, match="no run 'r'"):
        asyncio.run(runtime.restore(workflow, "r"))
    with pytest.raises(InvalidInput, match="something else"):
        asyncio.run(runtime.restore(workflow, "other"))


def test_a_runtime_closes_the_store_that_it_opened(tmp_path: Path, store: Store) -> None:
    own = RopewalkRuntime(tmp_path / "s")
    asyncio.run(own.destroy())
    asyncio.run(RopewalkRuntime(store).destroy())

    with pytest.raises(StoreClosed):
        own.store.spaces("")
    assert store.spaces("") is not None


def test_a_long_run_stores_what_each_step_adds(store: Store) -> None:
    class Long(Workflow):
        @step
        async def grow(self, ctx: Context, ev: StartEvent) -> StopEvent:
            texts = await ctx.store.get("texts", default=[])
            text = "".join(chr(97 + (len(texts) * 7919 + n * n) % 26) for n in range(1000))
            await ctx.store.set("texts", [*texts, f"{len(texts)} {text}"])
            return StopEvent()

    async def go() -> None:
        workflow = Long(runtime=RopewalkRuntime(store))
        ctx = Context(workflow)
        for _ in range(200):
            await workflow.run(ctx=ctx, run_id="r")

    asyncio.run(go())

    assert isinstance(store, MemoryStore)
    assert store.sizes.written_bytes < 8 * 200 * 1000


@pytest.mark.parametrize("workflow", [Research, Asking, Typed, Parallel])
def test_runs_as_in_the_frameworks_own_runtime(
    store: Store, workflow: Callable[..., Workflow]
) -> None:
    async def go(made: Workflow) -> tuple[Any, list[str], dict[str, Any]]:
        handler = made.run(run_id="r", topic="bees", place="Rome")
        events = []
        async for event in handler.stream_events():
            events.append(type(event).__name__)
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        result = await handler
        dump = handler.ctx.to_dict()
        dump.pop("elapsed_alive"), dump.pop("last_alive_stamp")
        return result, events, dump

    ours = asyncio.run(go(workflow(runtime=RopewalkRuntime(store))))

    assert ours == asyncio.run(go(workflow(runtime=BasicRuntime())))


def run(
    store: Store, workflow: Callable[..., Workflow], *, restored: bool = False, **given: Any
) -> Any:
    """The result of a run `r`, in a runtime of its own."""
    options = {"serializer": given.pop("serializer")} if "serializer" in given else {}

    async def go() -> Any:
        runtime = RopewalkRuntime(store)
        made = workflow(runtime=runtime, **options)
        ctx = await runtime.restore(made, "r") if restored else None
        return await made.run(ctx=ctx, run_id="r", **given)

    return asyncio.run(go())


async def _go_on(workflow: Workflow, run_id: str) -> Any:
    runtime = workflow.runtime
    assert isinstance(runtime, RopewalkRuntime)
    ctx = await runtime.restore(workflow, run_id)
    return await workflow.run(ctx=ctx, run_id=run_id)
