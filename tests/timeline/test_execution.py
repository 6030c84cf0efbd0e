"""Running steps: what succeeded is never run again, what failed is kept, nothing is swallowed."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ropewalk.codec import Codec, Registry
from ropewalk.errors import InvalidInput, NotSaved, NotStorable, StoreFull, Unavailable
from ropewalk.history import History
from ropewalk.recovery import RetryWithBackoff
from ropewalk.store import MemoryStore
from ropewalk.testing import Fault, FaultStore
from ropewalk.timeline import (
    CheckpointStatus,
    Middleware,
    Timeline,
    checkpoint_context,
    forget_agents,
    safe_execute,
    step,
)


@pytest.fixture
def agent() -> Iterator[Timeline]:
    with MemoryStore() as store:
        timeline = Timeline("agent", store)
        timeline.checkpoint({"start": True})
        yield timeline


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    forget_agents()


class Flaky:
    """Fails so often, and then gives a state."""

    def __init__(self, failures: int, error: type[BaseException] = ConnectionError) -> None:
        self.failures, self.error = failures, error
        self.calls: list[Any] = []

    def __call__(self, state: Any) -> Any:
        self.calls.append(state)
        state["dirty"] = True
        if len(self.calls) <= self.failures:
            raise self.error(f"call {len(self.calls)}")
        return {"done": len(self.calls)}

    def plain(self, state: Any) -> Any:
        return self(state)

    async def arun(self, state: Any) -> Any:
        await asyncio.sleep(0)
        return self(state)


def run(agent: Timeline, flaky: Flaky, asynchronous: bool, **options: Any) -> Any:
    if asynchronous:
        return asyncio.run(agent.safe_execute(flaky.arun, {"n": 1}, "work", **options))
    return agent.safe_execute(flaky, {"n": 1}, "work", **options)


def _finished(outcome: Any) -> Any:
    """What was given, or what comes when it is awaited."""
    return asyncio.run(outcome) if asyncio.iscoroutine(outcome) else outcome


both = pytest.mark.parametrize("asynchronous", [False, True])


@both
def test_each_attempt_has_a_state_of_its_own(agent: Timeline, asynchronous: bool) -> None:
    flaky = Flaky(2)

    result, checkpoint = run(agent, flaky, asynchronous)

    assert result == checkpoint.state == agent.get_state() == {"done": 3}
    assert flaky.calls == [{"n": 1, "dirty": True}] * 3
    assert len({id(call) for call in flaky.calls}) == 3
    assert checkpoint.metadata["attempt"] == 3


@both
def test_a_failure_is_kept_with_its_error_and_traceback(
    agent: Timeline, asynchronous: bool
) -> None:
    with pytest.raises(ConnectionError, match="call 2"):
        run(agent, Flaky(9), asynchronous, max_retries=2)

    second, first = agent.failures()
    assert first.error == "ConnectionError: call 1"
    assert first.traceback is not None and "in __call__" in first.traceback
    assert (first.status, first.state) == (CheckpointStatus.FAILED, {"n": 1})
    assert second.parents == first.parents == (agent.history()[0].id,)
    assert agent.get_state() == {"n": 1}
    assert agent.metrics["failed_attempts"] == 2


@both
def test_a_step_that_went_well_after_failures_has_recovered_and_stays_so(
    agent: Timeline, tmp_path: Path, asynchronous: bool
) -> None:
    _, fell_back = run(agent, Flaky(9), asynchronous, fallback=lambda state: {"cached": 1})
    _, retried = run(agent, Flaky(2), asynchronous)
    _, at_once = run(agent, Flaky(0), asynchronous)
    agent.branch("other")
    agent.checkpoint({"other": 1})
    agent.rollback()
    agent.undo()
    agent.switch_branch("main")
    agent.tag("v1")
    copy = agent.fork("copy")
    agent.export_session(tmp_path / "session")
    imported = Timeline.import_session(tmp_path / "session", agent.store, "imported")

    for found in (agent, copy, imported):
        statuses = [
            str(found.get(one.id).status)
            for one in (fell_back, retried, at_once, agent.history()[1])
        ]
        assert statuses == ["recovered", "recovered", "active", "active"]
    assert imported.visualize_tree(fold=2) == agent.visualize_tree(fold=2)
    assert str(agent.failures()[0].status) == "failed"
    agent.rollback(to_checkpoint_id=at_once.parents[0])
    assert agent.get(at_once.parents[0]).status == CheckpointStatus.ACTIVE


@both
def test_a_step_that_is_called_again_after_it_failed_has_recovered(
    agent: Timeline, asynchronous: bool
) -> None:
    flaky = Flaky(1)
    with pytest.raises(ConnectionError):
        run(agent, flaky, asynchronous, max_retries=1)

    _, recovered = run(agent, flaky, asynchronous, max_retries=1)
    after = agent.checkpoint({"n": 3})

    assert recovered.status == CheckpointStatus.RECOVERED
    assert agent.history()[2].description == "Before: work"
    assert agent.history()[2].status == after.status == CheckpointStatus.ACTIVE


def test_what_is_saved_after_a_block_that_failed_has_recovered(agent: Timeline) -> None:
    with pytest.raises(ValueError), checkpoint_context(agent, "divide"):
        raise ValueError("no")
    with checkpoint_context(agent, "divide") as context:
        context.state = {"half": 1}

    assert context.checkpoint is not None
    assert context.checkpoint.status == CheckpointStatus.RECOVERED
    with pytest.raises(ValueError), checkpoint_context(agent, "elsewhere"):
        raise ValueError("no")
    agent.branch("other", agent.history()[1].id)
    assert agent.checkpoint({"other": 1}).status == CheckpointStatus.ACTIVE


@both
def test_the_fallback_saves_its_result_on_the_same_branch(
    agent: Timeline, asynchronous: bool
) -> None:
    result, checkpoint = run(
        agent, Flaky(9), asynchronous, fallback=lambda state: {"cached": state["n"]}
    )

    assert result == checkpoint.state == {"cached": 1}
    assert checkpoint.metadata["fallback"] is True
    assert agent.current_branch == "main"
    assert len(agent.failures()) == 3


@both
def test_a_fallback_that_fails_is_kept_and_raised(agent: Timeline, asynchronous: bool) -> None:
    def fallback(state: Any) -> Any:
        raise LookupError("no cache")

    with pytest.raises(LookupError, match="no cache") as caught:
        run(agent, Flaky(9), asynchronous, max_retries=1, fallback=fallback)

    assert isinstance(caught.value.__cause__, ConnectionError)
    assert [one.error for one in agent.failures()] == [
        "LookupError: no cache",
        "ConnectionError: call 1",
    ]


# What runs a function on a state; `agent` has its steps.
FACES: dict[str, Callable[[Timeline, Callable[[Any], Any], Any], Any]] = {
    "Timeline.safe_execute": lambda agent, function, state: agent.safe_execute(function, state),
    "Timeline.asafe_execute": lambda agent, function, state: agent.asafe_execute(function, state),
    "safe_execute": lambda agent, function, state: safe_execute(function, state, agent=agent),
    "step": lambda agent, function, state: step("work", agent, max_retries=3)(function)(state),
    "Middleware": lambda agent, function, state: middleware_of(agent).wrap(function)(state),
    "a step of a dict": lambda agent, function, state: step("work", agent)(
        in_front(function)
    )(5, state),
}  # fmt: skip
every_face = pytest.mark.parametrize("face", FACES)


def middleware_of(agent: Timeline) -> Middleware:
    return Middleware(agent.name, store=agent.store)


def in_front(function: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
    """The same function with another parameter before the state."""
    if asyncio.iscoroutinefunction(function):

        async def arun(number: int, given: Any) -> Any:
            return await function(given)

        return arun
    return lambda number, given: function(given)


def counted(result: Any, asynchronous: bool) -> tuple[Callable[[Any], Any], list[Any]]:
    """A function that gives a result, and what it was called with."""
    calls: list[Any] = []

    def made(state: Any) -> Any:
        calls.append(state)
        return result

    async def amade(state: Any) -> Any:
        return made(state)

    return amade if asynchronous else made, calls


@both
@every_face
def test_a_state_that_cannot_be_stored_is_refused_before_the_function_runs(
    agent: Timeline, face: str, asynchronous: bool
) -> None:
    function, calls = counted({"done": 1}, asynchronous)

    with pytest.raises(NotStorable, match="lock") as caught:
        _finished(FACES[face](agent, function, {"docs": [1, threading.Lock()]}))

    assert caught.value.path == 'value["docs"][1]'
    assert calls == []
    assert agent.get_state() == {"start": True}
    assert agent.metrics["operations"] == 1


@both
@every_face
@pytest.mark.parametrize("result", [threading.Lock(), {"docs": [threading.Lock()]}], ids=type)
def test_a_result_that_cannot_be_stored_is_handed_over_and_not_made_again(
    agent: Timeline, face: str, asynchronous: bool, result: Any
) -> None:
    function, calls = counted(result, asynchronous)

    with pytest.raises(NotSaved, match=r"succeeded.*`result` of this error") as caught:
        _finished(FACES[face](agent, function, {"n": 1}))

    assert caught.value.result is result
    assert isinstance(caught.value.__cause__, NotStorable)
    assert calls == [{"n": 1}]
    assert agent.get_state() == {"n": 1}
    assert agent.failures() == []


@both
@pytest.mark.parametrize("strategies", [[], [RetryWithBackoff(0, error_types=(Exception,))]])
def test_a_step_inside_another_is_not_run_again_because_its_result_was_not_saved(
    asynchronous: bool, strategies: list[Any]
) -> None:
    with MemoryStore() as store:
        agent = Timeline("agent", store, recovery_strategies=strategies)
        inner, calls = counted(threading.Lock(), asynchronous)
        tool = step("tool", agent_name=agent)(inner)

        async def aouter(state: Any) -> Any:
            return await tool(state)

        outer = aouter if asynchronous else tool
        with pytest.raises(NotSaved) as caught:
            _finished(agent.safe_execute(outer, {"n": 1}, "outer", fallback=lambda state: {}))

        assert len(calls) == 1
        assert type(caught.value.result) is type(threading.Lock())
        assert [one.logic_step for one in agent.failures()] == ["outer"]


def test_a_store_that_is_full_when_a_result_is_saved_does_not_run_it_again() -> None:
    calls: list[int] = []

    def work(state: Any) -> Any:
        calls.append(1)
        return {"text": "result"}

    inner = MemoryStore()
    quiet = FaultStore(inner)
    agent = Timeline("agent", quiet)
    agent.checkpoint({"n": 0})
    agent.safe_execute(work, {"n": 1})
    commits = quiet.calls.count("commit") // 3

    calls.clear()
    full = FaultStore(inner.another(), [Fault.full(at=commits + 1, method="commit")])
    with pytest.raises(NotSaved) as caught:
        Timeline("agent", full).safe_execute(work, {"n": 2})

    assert calls == [1]
    assert caught.value.result == {"text": "result"}
    assert isinstance(caught.value.__cause__, StoreFull)


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_interrupt_goes_through_and_is_not_retried(
    agent: Timeline, asynchronous: bool, error: type[BaseException]
) -> None:
    flaky = Flaky(1, error)

    with pytest.raises(error):
        run(agent, flaky, asynchronous, fallback=lambda state: {"never": 1})

    assert len(flaky.calls) == 1
    assert agent.failures() == []
    assert agent.get_state() == {"n": 1}


def test_strategies_of_the_timeline_decide_what_is_retried() -> None:
    with MemoryStore() as store:
        agent = Timeline("agent", store, recovery_strategies=[RetryWithBackoff(0)])
        flaky = Flaky(2, ValueError)

        with pytest.raises(ValueError, match="call 1"):
            agent.safe_execute(flaky, {"n": 1})

        assert len(flaky.calls) == 1


@pytest.mark.parametrize("most", [0, -1, True])
def test_a_function_is_tried_at_least_once(agent: Timeline, most: int) -> None:
    with pytest.raises(InvalidInput, match="max_retries"):
        agent.safe_execute(Flaky(0), {"n": 1}, max_retries=most)


def test_a_cancelled_task_is_cancelled_and_its_state_stays(agent: Timeline) -> None:
    async def work() -> None:
        started = asyncio.Event()

        async def forever(state: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(agent.asafe_execute(forever, {"n": 1}))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert agent.get_state() == {"n": 1}
    assert agent.failures() == []


class Speechless(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Speechless(), "Speechless: (its message could not be read: RuntimeError)"),
        (ValueError("no UTF-8: \udc80"), "ValueError: no UTF-8: \\udc80"),
        (ValueError("x" * 2_000_000), "ValueError: " + "x" * 16_000),
    ],
    ids=["no words", "lone surrogate", "very long"],
)
def test_an_error_whose_message_cannot_be_kept_is_still_retried_and_raised(
    agent: Timeline, error: Exception, told: str
) -> None:
    def fail(state: Any) -> Any:
        raise error

    with pytest.raises(type(error)) as raised:
        agent.safe_execute(fail, {"n": 1}, "fail", max_retries=2)

    assert raised.value is error
    assert [failure.error for failure in agent.failures()] == [told] * 2


class Awaited:
    """Objects of it give something to await, when they are called."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    async def __call__(self, state: Any) -> Any:
        return {"awaited": state["n"]}


class Tool:
    """Has an asynchronous function inside, and is called like a plain one."""

    def __init__(self) -> None:
        self.func = Awaited()

    def __call__(self, state: Any) -> Any:
        return {"plain": state["n"]}


def test_what_is_called_decides_whether_a_step_is_awaited(agent: Timeline) -> None:
    partly = asyncio.run(agent.safe_execute(functools.partial(Awaited()), {"n": 1}))
    plain, _ = agent.safe_execute(Tool(), {"n": 2})

    assert partly[0] == {"awaited": 1}
    assert plain == {"plain": 2}
    with pytest.raises(NotSaved):
        agent.safe_execute(Awaited, {"n": 3})


# Functions, methods and blocks.


def test_a_step_takes_functions_methods_and_asynchronous_ones(agent: Timeline) -> None:
    class Worker:
        @step("method", agent_name=agent)
        def run(self, state: dict[str, int], factor: int = 2) -> Any:
            return {"n": state["n"] * factor}

        @step("amethod", agent_name=agent)
        async def arun(self, factor: int, *, state: dict[str, int]) -> Any:
            return {"n": state["n"] * factor}

    assert Worker().run({"n": 2}, factor=5) == {"n": 10}
    assert agent.history()[1].state == {"n": 2}
    assert asyncio.run(Worker().arun(3, state={"n": 2})) == {"n": 6}
    assert [one.state for one in agent.history(limit=2)] == [{"n": 6}, {"n": 2}]


def test_a_step_without_a_state_keeps_the_arguments_that_can_be_stored(agent: Timeline) -> None:
    @step("add", agent_name=agent)
    def add(first: int, second: int, client: object) -> int:
        return first + second

    assert add(1, second=2, client=object()) == 3
    assert [one.state for one in agent.history(limit=2)] == [
        {"result": 3},
        {"first": 1, "second": 2},
    ]


@both
def test_a_step_of_whose_arguments_none_can_be_stored_is_refused_before_it_runs(
    agent: Timeline, asynchronous: bool
) -> None:
    calls: list[int] = []

    class Worker:
        @step("work", agent_name=agent)
        def work(self, **given: Any) -> None:
            calls.append(1)

        @step("work", agent_name=agent)
        async def awork(self, given: Any) -> None:
            calls.append(1)

        @step("rest", agent_name=agent)
        def rest(self) -> str:
            return "rested"

    given = [threading.Lock()]
    with pytest.raises(NotStorable, match="given"):
        _finished(Worker().awork(given) if asynchronous else Worker().work(given=given))

    assert calls == []
    assert agent.get_state() == {"start": True}
    assert Worker().rest() == "rested"


def test_a_step_without_a_state_keeps_what_the_codec_of_its_timeline_can_store() -> None:
    @dataclass
    class Place:
        name: str

    registry = Registry()
    registry.register(Place)
    with MemoryStore() as store:
        agent = Timeline("agent", store, codec=Codec(registry))

        @step("visit", agent_name=agent)
        def visit(place: Place, client: object) -> str:
            return place.name

        assert visit(Place("Central"), object()) == "Central"
        assert agent.history()[1].state == {"place": Place("Central")}


def test_a_step_without_a_state_has_arguments_of_its_own_each_time(agent: Timeline) -> None:
    seen: list[list[int]] = []

    @step("count", agent, max_retries=2)
    def count(numbers: list[int], *more: int, lock: object) -> int:
        seen.append(list(numbers))
        numbers.append(1)
        if len(seen) < 2:
            raise ConnectionError("no answer")
        return len(numbers) + len(more)

    given = [0]

    assert count(given, 5, 6, lock=object()) == 4
    assert seen == [[0], [0]]
    assert given == [0]


def test_a_function_that_does_not_tell_its_parameters_can_be_a_step(agent: Timeline) -> None:
    assert step("largest", agent)(max)(1, 3) == 3
    assert agent.get_state() == {"result": 3}


def test_a_step_runs_once_unless_it_is_told_otherwise(agent: Timeline) -> None:
    flaky = Flaky(1)
    once: Any = step("once", agent_name=agent)(flaky.plain)
    twice: Any = step("twice", agent_name=agent, max_retries=2)(flaky.plain)

    with pytest.raises(ConnectionError):
        once({"n": 1})

    flaky.calls.clear()
    assert twice({"n": 1}) == {"done": 2}


def test_a_block_that_fails_leaves_the_last_good_state(agent: Timeline) -> None:
    def divide() -> None:
        with checkpoint_context(agent, "divide") as context:
            context.state = {"half": 1}
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        divide()

    assert agent.get_state() == {"start": True}
    (failure,) = agent.failures()
    assert (failure.state, failure.error) == ({"half": 1}, "ZeroDivisionError: division by zero")


def test_a_block_that_fails_with_a_state_that_cannot_be_stored_raises_its_own_error(
    agent: Timeline,
) -> None:
    def work() -> None:
        with checkpoint_context(agent, description="work") as context:
            context.state = {"half": object()}
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        work()

    assert agent.get_state() == {"start": True}
    assert [failure.error for failure in agent.failures()] == ["KeyError: 'lost'"]


def test_a_block_that_fails_raises_its_own_error_also_where_that_cannot_be_kept() -> None:
    with MemoryStore() as store:
        agent = Timeline("agent", store)
        agent.checkpoint({"start": True})
        History(store, "agents/agent").delete_branch("main")

        with pytest.raises(KeyError, match="lost") as caught, checkpoint_context(agent, "work"):
            raise KeyError("lost")

        (note,) = caught.value.__notes__
        assert "could not be recorded" in note and "was removed" in note


def test_a_block_that_sets_no_state_saves_nothing(agent: Timeline) -> None:
    with checkpoint_context(agent, "look"):
        pass

    assert agent.get_state() == {"start": True}
    assert len(agent.history()) == 1


def test_an_asynchronous_block_is_a_step_too(agent: Timeline) -> None:
    async def work() -> None:
        async with checkpoint_context(agent, "think") as context:
            context.state = {"thought": 1}
            context.metadata["tokens"] = 3
        with pytest.raises(ValueError):
            async with checkpoint_context(agent, "fail"):
                raise ValueError("no")

    asyncio.run(work())
    assert agent.get_state() == {"thought": 1}
    assert agent.history()[0].metadata == {"tokens": 3}
    assert len(agent.failures()) == 1


def test_middleware_wraps_asynchronous_functions(agent: Timeline) -> None:
    middleware = Middleware("wrapped", store=agent.store)

    async def call(given: dict[str, str]) -> str:
        return given["input"].upper()

    assert asyncio.run(middleware.wrap(call)({"input": "x"})) == "X"
    assert middleware.agent.get_state() == {"result": "X"}
    assert middleware.get_history()[0].description == "call"


def test_without_a_timeline_the_default_one_is_used() -> None:
    result, checkpoint = safe_execute(lambda state: {"n": state["n"] + 1}, {"n": 1}, "count")

    assert result == {"n": 2}
    assert checkpoint.agent == "default"
    assert Path(".ropewalk").is_dir()


def test_an_answer_that_was_lost_makes_no_second_step() -> None:
    inner = MemoryStore()
    lossy = FaultStore(inner, [Fault.lost_reply(at=at, method="commit") for at in (1, 3, 5)])
    agent = Timeline("agent", lossy)

    agent.checkpoint({"n": 1})
    agent.checkpoint({"n": 2})

    assert [one.state["n"] for one in Timeline("agent", inner.another()).history()] == [2, 1]


def test_a_dead_store_is_said_to_be_unavailable() -> None:
    agent = Timeline("agent", FaultStore(MemoryStore(), [Fault.dead(at=30)]))

    with pytest.raises(Unavailable):
        _ = [agent.checkpoint({"n": number}) for number in range(100)]
