"""`@task`: calls as steps of a state."""

from __future__ import annotations

import asyncio
import functools
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ropewalk
from ropewalk.errors import (
    InvalidInput,
    InvalidName,
    MergeConflict,
    NotFound,
    NotSaved,
    NotStorable,
    Unavailable,
)
from ropewalk.state import (
    ActionEvent,
    Described,
    FailEvent,
    Live,
    OutputEvent,
    State,
    SuccessEvent,
    TaskStartEvent,
    Versioned,
    current_state,
    events,
    record,
    task,
)
from ropewalk.store import MemoryStore
from ropewalk.testing import Fault, FaultStore


@task
def append(item: Any, state: State) -> int:
    """Add an item to a list."""
    items = state.setdefault("items", [])
    items.append(item)
    return len(items)


@task
def append_and_fail(item: Any, state: State) -> None:
    state.setdefault("items", []).append(item)
    state["half"] = "done"
    raise ValueError("on purpose")


@pytest.fixture(params=[Live, Versioned])
def state(request: pytest.FixtureRequest) -> State:
    made: State = request.param()
    return made


# The three modes.


def test_without_a_state_nothing_is_remembered() -> None:
    assert append("a") == 1
    assert append("b") == 1
    assert append("c", state=None) == 1


def test_a_state_is_remembered_from_call_to_call(state: State) -> None:
    assert append("a", state=state) == 1
    assert append("b", state=state) == 2
    assert state["items"] == ["a", "b"]


def test_a_live_state_is_given_as_it_is() -> None:
    seen = []

    @task
    def look(state: State) -> None:
        seen.append(state)

    live = Live()
    look(state=live)

    assert seen[0] is live


def test_every_call_is_one_commit() -> None:
    state = Versioned()
    append("a", state=state)
    append("b", state=state)

    first, second = state.history()[::-1]
    assert (second.description, second.logic_step, second.status) == ("append", "append", "")
    assert second.parents == (first.id,)
    assert state.checkout(first.id.hex())["items"] == ["a"]
    assert not state.dirty


def test_a_call_that_changes_nothing_is_a_commit_too() -> None:
    @task
    def nothing() -> None:
        pass

    state = Versioned()
    nothing(state=state)
    nothing(state=state)

    assert len(state.history()) == 2
    assert len(events(state)) == 8


def test_a_state_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    with Versioned(tmp_path / "store") as state:
        append("a", state=state)

    with Versioned(tmp_path / "store") as state:
        assert append("b", state=state) == 2


def test_current_state_is_the_state_of_the_call(state: State) -> None:
    @task
    def note(key: str, value: int) -> None:
        current_state()[key] = value

    note("a", 1, state=state)
    note("b", value=2, state=state)
    note("c", 3)

    assert dict(state) == {"a": 1, "b": 2}


def test_outside_of_a_task_there_is_no_current_state(state: State) -> None:
    append("a", state=state)

    with pytest.raises(NotFound, match="no task runs here"):
        current_state()


def test_a_task_may_work_in_a_namespace(state: State) -> None:
    @task(namespace="researcher")
    def note(value: int, state: State) -> None:
        state["value"] = value

    note(1, state=state)
    note(2, state=state.namespace("team"))

    assert state.namespace("researcher")["value"] == 1
    assert state.namespace("team").namespace("researcher")["value"] == 2
    assert list(state) == []


def test_a_namespace_may_be_handed_over(state: State) -> None:
    append("a", state=state.namespace("one"))
    append("b", state=state.namespace("one"))
    append("c", state=state.namespace("two"))

    assert state.namespace("one")["items"] == ["a", "b"]
    assert state.namespace("two")["items"] == ["c"]
    assert "items" not in state


@pytest.mark.parametrize("wrong", [{}, "state", 3, []])
def test_what_is_no_state_is_refused_before_the_call(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="Live"):
        append("a", state=wrong)


def test_a_checkout_is_refused_with_what_to_do_instead() -> None:
    state = Versioned()
    append("a", state=state)
    assert state.commit_hash is not None
    past = state.checkout(state.commit_hash)

    with pytest.raises(InvalidInput, match="branch"):
        append("b", state=past)  # type: ignore[call-overload]
    append("b", state=state.branch("other", at=past.commit_hash))


# Functions of all kinds.


def test_arguments_work_as_they_always_do() -> None:
    @task
    def f(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> tuple[Any, ...]:
        return a, b, rest, c, more

    live = Live()
    assert f(1, 2) == (1, 2, (), 3, {})
    assert f(1, b=2, state=live) == (1, 2, (), 3, {})
    assert f(1, 2, 3, 4, c=5, d=6, state=live) == (1, 2, (3, 4), 5, {"d": 6})


def test_the_parameter_may_stand_anywhere() -> None:
    @task
    def first(state: State, a: int) -> tuple[bool, int]:
        return isinstance(state, Live), a

    @task
    def only_by_name(a: int, *, state: State) -> tuple[bool, int]:
        return isinstance(state, Live), a

    @task
    def only_by_place(a: int, state: State, /) -> tuple[bool, int]:
        return isinstance(state, Live), a

    live = Live()
    assert first(live, 1) == first(state=live, a=1) == first(a=1) == (True, 1)
    assert only_by_name(1, state=live) == only_by_name(1) == (True, 1)
    assert only_by_place(1, live) == only_by_place(1) == (True, 1)


def test_a_default_for_the_state_keeps_working() -> None:
    own = Live()

    @task
    def none(state: State | None = None) -> State | None:
        return state

    @task
    def given(state: State = own) -> State:
        return state

    other = Live()
    assert isinstance(none(), Live)
    assert none(state=other) is other
    assert given() is own
    assert given(state=other) is other


def test_an_empty_state_is_a_state() -> None:
    live = Live()

    @task
    def look(state: State) -> State:
        return state

    assert look(state=live) is live


@pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
def test_wrong_arguments_are_a_type_error_and_no_event(arguments: tuple[int, ...]) -> None:
    @task
    def f(a: int) -> int:
        return a

    state = Versioned()
    with pytest.raises(TypeError):
        f(*arguments, state=state)

    assert events(state) == [] and state.history() == []


def test_a_parameter_with_another_meaning_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Name the parameter differently"):

        @task
        def tax(amount: float, state: str = "CA") -> float:
            return amount


@pytest.mark.parametrize("prefix", ["*", "**"])
def test_further_arguments_cannot_be_the_state(prefix: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f({prefix}state): pass", scope)

    with pytest.raises(InvalidInput, match="name them differently"):
        task(scope["f"])


def test_methods_are_tasks() -> None:
    class Agent:
        def __init__(self) -> None:
            self.name = "agent"

        @task
        def work(self, number: int, state: State) -> str:
            state["number"] = number
            return self.name

        @classmethod
        @task
        def make(cls, number: int) -> str:
            return f"{cls.__name__} {number}"

        @staticmethod
        @task
        def help(number: int) -> int:
            return number

    live = Live()
    agent = Agent()
    assert agent.work(1, state=live) == "agent"
    assert Agent.work(agent, 2) == "agent"
    assert Agent.make(3, state=live) == "Agent 3"
    assert agent.help(4, state=live) == 4
    assert events(live, task="make")[0].kind == "TaskStartEvent"


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_the_decorator_stands_beneath_those_of_methods(kind: Any) -> None:
    def work(first: Any = None) -> None:
        pass

    with pytest.raises(InvalidInput, match="beneath"):
        task(kind(work))


def test_callable_objects_and_partials_are_tasks() -> None:
    class Adder:
        def __call__(self, a: int, b: int) -> int:
            return a + b

    live = Live()
    assert task(Adder())(1, 2, state=live) == 3
    assert task(functools.partial(Adder(), 1))(2, state=live) == 3
    assert task(len)([1], state=live) == 1
    assert {one.task for one in events(live)} == {"Adder", "partial", "len"}


def test_generators_are_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, later):
        with pytest.raises(InvalidInput, match="generator"):
            task(function)


def test_a_coroutine_from_a_plain_function_is_refused() -> None:
    def log(function: Any) -> Any:
        def logged(*args: Any) -> Any:
            return function(*args)

        return logged

    @task(name="work")
    @log
    async def work(number: int) -> int:
        return number

    state = Versioned()
    with pytest.raises(InvalidInput, match="async def"):
        work(1, state=state)

    assert [type(one) for one in events(state)][-1] is FailEvent


def test_a_function_that_does_not_say_what_it_takes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="which arguments"):
        task(dict)


@pytest.mark.parametrize("wrong", [3, "name"])
def test_only_functions_are_tasks(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="for functions"):
        task(wrong)


def test_options_are_checked() -> None:
    with pytest.raises(InvalidName):
        task(namespace="")
    with pytest.raises(InvalidInput, match="name"):
        task(name="")(append)


def test_a_task_has_the_name_and_the_signature_of_its_function() -> None:
    @task
    def plain(a: int, **more: int) -> int:
        """Do something."""
        return a

    assert (plain.__name__, plain.__doc__) == ("plain", "Do something.")
    assert str(inspect.signature(plain)) == "(a: 'int', *, state=None, **more: 'int') -> 'int'"
    assert str(inspect.signature(append)) == "(item: 'Any', state: 'State') -> 'int'"


def test_a_name_may_be_given() -> None:
    @task(name="told")
    def f() -> None:
        pass

    state = Versioned()
    f(state=state)

    assert {one.task for one in events(state)} == {"told"}
    assert state.history()[0].description == "told"


def test_what_a_function_returns_is_given_as_it_is(state: State) -> None:
    answer = object()

    @task
    def f() -> object:
        return answer

    assert f(state=state) is answer


def test_the_names_are_at_the_top() -> None:
    assert ropewalk.task is task and ropewalk.record is record
    assert ropewalk.current_state is current_state and ropewalk.Live is Live


# Failure.


def test_the_error_goes_on_unchanged(state: State) -> None:
    error = ValueError("mine")

    @task
    def f() -> None:
        raise error

    with pytest.raises(ValueError, match="mine") as caught:
        f(state=state)

    assert caught.value is error
    assert not getattr(error, "__notes__", [])


def test_what_a_failed_call_changed_is_dropped() -> None:
    state = Versioned()
    append("a", state=state)
    with suppress(ValueError):
        append_and_fail("b", state=state)

    assert dict(state) == {"items": ["a"]}
    assert dict(Versioned(state.store)) == {"items": ["a"]}
    assert append("c", state=state) == 2


def test_a_failure_is_a_commit_with_its_status_and_its_error() -> None:
    state = Versioned()
    with suppress(ValueError):
        append_and_fail("b", state=state)

    (commit,) = state.history()
    assert (commit.status, commit.error) == ("failed", "ValueError: on purpose")
    assert events(state, kind=FailEvent)[0].commit_hash == state.commit_hash


def test_what_the_caller_had_not_committed_survives_a_failure() -> None:
    state = Versioned()
    state["mine"] = [1]
    state.commit()
    state["mine"].append(2)
    state["other"] = 3
    with suppress(ValueError):
        append_and_fail("b", state=state)

    assert dict(state) == {"mine": [1, 2], "other": 3}
    failed, before, _ = state.history()
    assert (failed.status, before.description) == ("failed", "Before append_and_fail")


def test_in_a_live_state_what_was_done_is_done() -> None:
    state = Live()
    with suppress(ValueError):
        append_and_fail("b", state=state)

    assert state["half"] == "done"


def test_what_a_body_committed_itself_stays_although_it_fails() -> None:
    @task
    def f(state: Versioned) -> None:
        state["kept"] = 1
        record("kept")
        state.commit("Half of it")
        state["dropped"] = 2
        record("dropped")
        raise ValueError("x")

    state = Versioned()
    with suppress(ValueError):
        f(state=state)

    assert dict(state) == {"kept": 1}
    names = [one.name for one in events(state) if isinstance(one, ActionEvent)]
    assert names == ["f", "kept", "dropped"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_body_may_drop_what_it_did_but_not_its_events(fails: bool) -> None:
    @task
    def f(state: Versioned) -> None:
        state["kept"] = 1
        record("kept")
        state.commit()
        state["dropped"] = 2
        record("dropped")
        state.reset()
        record("after")
        if fails:
            raise ValueError("x")

    state = Versioned()
    with suppress(ValueError):
        f(state=state)

    assert dict(state) == {"kept": 1}
    names = [one.name for one in events(state) if isinstance(one, ActionEvent)]
    assert sorted(names) == ["after", "dropped", "f", "kept"]
    assert len(events(state, kind=TaskStartEvent)) == 1
    assert events(state)[-1].kind == ("FailEvent" if fails else "SuccessEvent")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_a_failure_too(interrupt: type[BaseException]) -> None:
    @task
    def f(state: State) -> None:
        state["half"] = "done"
        raise interrupt

    state = Versioned()
    with pytest.raises(interrupt):
        f(state=state)

    assert dict(state) == {}
    (failure,) = events(state, kind=FailEvent)
    assert isinstance(failure, FailEvent) and failure.error == interrupt.__name__


def test_a_failure_that_cannot_be_recorded_is_said_with_the_error() -> None:
    with FaultStore(MemoryStore(), [Fault.dead(at=1, method="commit")]) as store:
        state = Versioned(store)

        @task
        def f() -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine") as caught:
            f(state=state)

        assert any("could not be recorded" in note for note in caught.value.__notes__)


# A commit that fails.


def test_a_result_that_cannot_be_saved_is_not_lost() -> None:
    calls = []

    @task
    def f(state: State) -> str:
        calls.append(1)
        state["docs"] = docs = [1]
        docs.append(threading.Lock())  # type: ignore[arg-type]
        return "result"

    state = Versioned()
    with pytest.raises(NotSaved, match=r"'f' succeeded.*not run again") as caught:
        f(state=state)

    assert calls == [1]
    assert caught.value.result == "result"
    assert isinstance(caught.value.__cause__, NotStorable)
    assert dict(state) == {}


def test_changes_that_could_not_be_saved_can_be_corrected_and_committed() -> None:
    @task
    def f(state: State) -> None:
        state["docs"] = [1]
        state["docs"].append(threading.Lock())

    state = Versioned()
    with pytest.raises(NotSaved) as caught:
        f(state=state)
    caught.value.state["docs"].pop()
    caught.value.state.commit()
    state.refresh()

    assert state["docs"] == [1]


def test_a_commit_that_fails_is_an_event() -> None:
    @task
    def f(state: State) -> None:
        state["docs"] = [1]
        state["docs"].append(threading.Lock())

    state = Versioned()
    with pytest.raises(NotSaved):
        f(state=state)

    assert [type(one) for one in events(state)] == [TaskStartEvent, ActionEvent, FailEvent]


def test_a_conflict_with_somebody_else_is_not_saved() -> None:
    with MemoryStore() as store:
        state, other = Versioned(store), Versioned(store)

        @task
        def f(state: State) -> str:
            state["key"] = "mine"
            other["key"] = "theirs"
            other.commit()
            return "result"

        with pytest.raises(NotSaved) as caught:
            f(state=state)

        assert isinstance(caught.value.__cause__, MergeConflict)
        assert state["key"] == "theirs"
        caught.value.state.commit(mergers={"key": "ours"})
        state.refresh()
        assert state["key"] == "mine"


def test_a_store_that_does_not_answer_is_not_saved() -> None:
    with FaultStore(MemoryStore(), [Fault.dead(at=1, method="commit")]) as store:
        state = Versioned(store)

        with pytest.raises(NotSaved) as caught:
            append("a", state=state)

        assert caught.value.result == 1
        assert isinstance(caught.value.__cause__, Unavailable)
        store.faults = ()
        caught.value.state.commit()
        state.refresh()
        assert state["items"] == ["a"]


def test_an_answer_that_was_lost_is_no_failure() -> None:
    with FaultStore(MemoryStore(), [Fault.lost_reply(at=1, method="commit")]) as store:
        state = Versioned(store)
        append("a", state=state)

        assert state["items"] == ["a"]
        assert len(state.history()) == 1
        assert len(events(state)) == 4


# Tasks inside tasks.


def test_a_call_inside_another_is_stateless_unless_it_is_given_a_state(state: State) -> None:
    @task
    def outer(state: State) -> tuple[int, int]:
        state["items"] = ["outer"]
        return append("forgotten"), append("kept", state=state)

    assert outer(state=state) == (1, 2)
    assert state["items"] == ["outer", "kept"]


def test_calls_know_inside_which_call_they_were_made(state: State) -> None:
    @task
    def outer(state: State) -> None:
        append("a", state=state)

    outer(state=state)

    (above,) = events(state, task="outer", kind=TaskStartEvent)
    (inner,) = events(state, task="append", kind=TaskStartEvent)
    assert inner.parent == above.run
    assert above.parent == ""


def test_the_current_state_comes_back_after_an_inner_call(state: State) -> None:
    @task
    def outer(state: State) -> bool:
        append("a")
        return current_state() is state

    assert outer(state=state)


def test_what_a_caller_has_done_is_kept_when_an_inner_call_fails() -> None:
    @task
    def outer(state: State) -> None:
        state["items"] = ["outer"]
        with suppress(ValueError):
            append_and_fail("inner", state=state)
        state["items"].append("after")

    state = Versioned()
    outer(state=state)

    assert dict(state) == {"items": ["outer", "after"]}


def test_an_inner_call_stays_although_the_outer_one_fails() -> None:
    @task
    def outer(state: State) -> None:
        append("inner", state=state)
        state["half"] = "done"
        raise ValueError("x")

    state = Versioned()
    with suppress(ValueError):
        outer(state=state)

    assert dict(state) == {"items": ["inner"]}


# Transactions.


def test_calls_in_a_transaction_are_one_commit() -> None:
    state = Versioned()
    with state.transaction("Both"):
        append("a", state=state)
        append("b", state=state)

    assert [commit.description for commit in state.history()] == ["Both"]
    assert state["items"] == ["a", "b"]
    assert len(events(state)) == 8


def test_a_transaction_that_fails_takes_its_calls_back() -> None:
    state = Versioned()
    with suppress(ValueError), state.transaction():
        append("a", state=state)
        raise ValueError("x")

    assert dict(state) == {} and events(state) == []


def test_a_call_that_fails_in_a_transaction_takes_back_only_its_own() -> None:
    state = Versioned()
    with state.transaction():
        append("a", state=state)
        with suppress(ValueError):
            append_and_fail("b", state=state)
        append("c", state=state)

    assert dict(state) == {"items": ["a", "c"]}
    assert [one.task for one in events(state, kind=FailEvent)] == ["append_and_fail"]


# What the caller holds.


def test_objects_that_the_caller_holds_show_what_a_call_did() -> None:
    state = Versioned()
    state["items"] = items = ["mine"]
    append("theirs", state=state)

    assert items == ["mine", "theirs"]
    assert state["items"] is items


def test_what_the_caller_holds_is_not_touched_by_a_call_that_fails() -> None:
    state = Versioned()
    state["items"] = items = ["mine"]
    with suppress(ValueError):
        append_and_fail("theirs", state=state)

    assert items == ["mine"]
    items.append("more")
    state.commit()
    assert Versioned(state.store)["items"] == ["mine", "more"]


# At the same time.


def test_an_asynchronous_function_is_a_task(state: State) -> None:
    @task
    async def work(number: int, state: State) -> int:
        state["number"] = number
        await asyncio.sleep(0)
        return number

    assert asyncio.run(work(3, state=state)) == 3
    assert asyncio.run(work(4)) == 4
    assert state["number"] == 3
    assert [type(one) for one in events(state)] == [
        TaskStartEvent,
        ActionEvent,
        OutputEvent,
        SuccessEvent,
    ]
    assert inspect.iscoroutinefunction(work)


def test_asynchronous_calls_run_at_the_same_time(state: State) -> None:
    @task
    async def meet(key: str, here: asyncio.Event, there: asyncio.Event) -> None:
        current_state()[key] = 1
        here.set()
        await there.wait()

    async def main() -> None:
        one, two = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(30):
            await asyncio.gather(meet("a", one, two, state=state), meet("b", two, one, state=state))

    asyncio.run(main())

    assert dict(state) == {"a": 1, "b": 1}


def test_a_call_that_fails_drops_nothing_of_another_that_runs() -> None:
    @task
    async def slow(started: asyncio.Event, go_on: asyncio.Event, state: State) -> None:
        state["slow"] = "begun"
        started.set()
        await go_on.wait()
        state["slow"] += " and ended"

    @task
    async def doomed(state: State) -> None:
        state["doomed"] = 1
        raise ValueError("x")

    async def main(state: Versioned) -> None:
        started, go_on = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(slow(started, go_on, state=state))
        await started.wait()
        with suppress(ValueError):
            await doomed(state=state)
        go_on.set()
        await running

    state = Versioned()
    asyncio.run(main(state))

    assert dict(state) == {"slow": "begun and ended"}


def test_a_cancelled_call_is_a_failure() -> None:
    @task
    async def forever(started: asyncio.Event, state: State) -> None:
        state["half"] = "done"
        started.set()
        await asyncio.Event().wait()

    async def main(state: Versioned) -> None:
        started = asyncio.Event()
        running = asyncio.create_task(forever(started, state=state))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    state = Versioned()
    asyncio.run(main(state))

    assert dict(state) == {}
    (failure,) = events(state, kind=FailEvent)
    assert isinstance(failure, FailEvent) and failure.error == "CancelledError"


def test_an_asynchronous_call_that_cannot_be_saved_is_not_lost() -> None:
    @task
    async def f(state: State) -> str:
        state["docs"] = [1]
        state["docs"].append(threading.Lock())
        return "result"

    with pytest.raises(NotSaved) as caught:
        asyncio.run(f(state=Versioned()))

    assert caught.value.result == "result"


def test_an_asynchronous_call_joins_a_transaction() -> None:
    @task
    async def work(state: State) -> None:
        state["a"] = 1
        await asyncio.sleep(0)

    async def main(state: Versioned) -> None:
        async with asyncio.timeout(30):
            with state.transaction("All"):
                await work(state=state)

    state = Versioned()
    asyncio.run(main(state))

    assert [commit.description for commit in state.history()] == ["All"]
    assert state["a"] == 1


def test_threads_may_run_tasks_on_one_handle() -> None:
    @task
    def work(thread: int, number: int, state: State) -> None:
        state[f"{thread}/{number}"] = number
        if number % 5 == 4:
            raise ValueError("x")

    state = Versioned()

    def run(thread: int) -> None:
        for number in range(10):
            with suppress(ValueError):
                work(thread, number, state=state)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(state) == 32
    assert len(events(state, kind=SuccessEvent)) == 32
    assert len(events(state, kind=FailEvent)) == 8


def test_tasks_of_two_handles_merge_what_they_did() -> None:
    with MemoryStore() as store:
        one = Versioned(store, mergers={"items": "append"})
        two = Versioned(store, mergers={"items": "append"})
        append("one", state=one)
        append("two", state=two)

        assert two["items"] == ["one", "two"]
        one.refresh()
        assert one["items"] == ["one", "two"]


def test_a_state_that_cannot_be_committed_refuses_before_the_call() -> None:
    calls = []

    @task
    def f() -> None:
        calls.append(1)

    state = Versioned()
    state["docs"] = [1]
    state["docs"].append(threading.Lock())
    with pytest.raises(NotStorable, match="docs"):
        f(state=state)

    assert calls == []
    assert len(state["docs"]) == 2


@pytest.mark.parametrize("place", [(), ("helper",)], ids=["whole", "namespace"])
def test_an_asynchronous_task_is_refused_before_and_its_result_kept_after(
    place: tuple[str, ...],
) -> None:
    calls = []

    @task
    async def f(state: State) -> str:
        calls.append(1)
        state["docs"].append(threading.Lock())
        return "result"

    whole = Versioned()
    state: State = whole
    for name in place:
        state = state.namespace(name)
    state["docs"] = [1]
    state["docs"].append(threading.Lock())
    with pytest.raises(NotStorable, match="docs"):
        asyncio.run(f(state=state))
    assert calls == []

    state["docs"].pop()
    with pytest.raises(NotSaved) as caught:
        asyncio.run(f(state=state))

    assert calls == [1]
    assert caught.value.result == "result"
    assert state["docs"] == [1]
    assert not whole.dirty


def test_a_result_of_a_task_that_cannot_be_stored_is_given_and_described() -> None:
    with Versioned() as state:
        lock = threading.Lock()

        @task
        def f(given: object) -> object:
            return given

        assert f(lock, state=state) is lock
        (start,) = events(state, kind=TaskStartEvent)
        assert isinstance(start.inputs["given"], Described)


def test_a_call_that_is_cancelled_while_it_is_saved_is_saved() -> None:
    saving, go_on = threading.Event(), threading.Event()

    def wait(seconds: float) -> None:
        saving.set()
        go_on.wait(30)

    @task
    async def work(state: State) -> str:
        state["a"] = 1
        return "done"

    async def main(state: Versioned) -> None:
        running = asyncio.create_task(work(state=state))
        await asyncio.to_thread(saving.wait, 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        go_on.set()

    inner = MemoryStore()
    slow = Fault.delay(at=1, seconds=1, method="commit")
    with FaultStore(inner.another(), [slow], sleep=wait) as store:
        asyncio.run(main(Versioned(store)))

    state = Versioned(inner)  # Closing the other store waited for what was begun.
    assert state["a"] == 1
    assert [one.kind for one in events(state)] == [
        "TaskStartEvent",
        "ActionEvent",
        "OutputEvent",
        "SuccessEvent",
    ]


PROCESS = """
import sys
from ropewalk import Versioned, current_state, task

@task
def append(item):
    current_state().setdefault("items", []).append(item)
    current_state()[item] = 1

with Versioned(sys.argv[1], mergers={"items": "append"}) as state:
    for number in range(20):
        append(f"{sys.argv[2]}-{number}", state=state)
"""


def test_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    with Versioned(tmp_path / "store") as state:
        state["items"] = []
        state.commit()
    running = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path / "store"), name])
        for name in ("one", "two")
    ]
    codes = [process.wait(120) for process in running]

    expected = {f"{name}-{number}" for name in ("one", "two") for number in range(20)}
    with Versioned(tmp_path / "store") as state:
        assert codes == [0, 0]
        assert sorted(state["items"]) == sorted(expected)
        assert set(state) == expected | {"items"}
        assert len(events(state, kind=SuccessEvent)) == 40
