"""The loop that tries again: what is retried, with what, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.errors import InvalidInput
from ropewalk.recovery import (
    AlternativePathStrategy,
    DegradeGracefully,
    Failure,
    Recovery,
    RetryWithBackoff,
)


class Interrupted(BaseException):
    """What is no Exception."""


def failing(*errors: BaseException) -> tuple[Callable[[Any], Any], list[Any]]:
    """A function that raises these in turn and then gives its state; what it was called with."""
    left, calls = list(errors), []

    def function(state: Any) -> Any:
        calls.append(state)
        if left:
            raise left.pop(0)
        return state

    return function, calls


def run(
    recovery: Recovery, function: Callable[[Any], Any], asynchronous: bool, failures: list[Failure]
) -> Any:
    if not asynchronous:
        return recovery.run(function, {"a": 1}, failures.append)

    async def call(state: Any) -> Any:
        await asyncio.sleep(0)
        return function(state)

    async def failed(failure: Failure) -> None:
        failures.append(failure)

    return asyncio.run(recovery.run_async(call, {"a": 1}, failed))


pytestmark = pytest.mark.parametrize("asynchronous", [False, True])


def test_without_strategies_every_exception_is_retried(asynchronous: bool) -> None:
    function, calls = failing(ValueError("one"), KeyError("two"))
    failures: list[Failure] = []

    assert run(Recovery(max_retries=3), function, asynchronous, failures) == {"a": 1}

    assert len(calls) == 3
    assert [(one.attempt, one.kind) for one in failures] == [(1, "ValueError"), (2, "KeyError")]
    assert "in function" in failures[0].traceback


def test_the_last_error_is_raised_when_there_are_no_more_attempts(asynchronous: bool) -> None:
    errors = [ValueError(str(number)) for number in range(5)]
    function, calls = failing(*errors)
    failures: list[Failure] = []

    with pytest.raises(ValueError) as caught:
        run(Recovery(max_retries=3), function, asynchronous, failures)

    assert caught.value is errors[2]
    assert len(calls) == len(failures) == 3


def test_an_error_that_no_strategy_answers_is_raised_at_once(asynchronous: bool) -> None:
    function, calls = failing(KeyError("x"), KeyError("x"))

    with pytest.raises(KeyError):
        run(Recovery([RetryWithBackoff(0)], 5), function, asynchronous, [])

    assert len(calls) == 1


def test_strategies_choose_the_state_of_the_next_attempt(asynchronous: bool) -> None:
    function, calls = failing(TimeoutError(), MemoryError(), ValueError())
    strategies = [
        RetryWithBackoff(0, error_types=(TimeoutError,)),
        DegradeGracefully([{"b": 1}, {"b": 2}]),
        AlternativePathStrategy(state_modifiers={"c": 3}),
    ]

    run(Recovery(strategies, 4), function, asynchronous, [])

    assert calls == [
        {"a": 1},
        {"a": 1},
        {"a": 1, "b": 2},
        {"a": 1, "b": 2, "c": 3},
    ]


@pytest.mark.parametrize("interrupt", [Interrupted(), KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_is_never_retried(asynchronous: bool, interrupt: BaseException) -> None:
    function, calls = failing(interrupt)
    failures: list[Failure] = []

    with pytest.raises(type(interrupt)):
        run(Recovery(max_retries=3), function, asynchronous, failures)

    assert len(calls) == 1
    assert failures == []


def test_what_recording_a_failure_raises_ends_the_loop(asynchronous: bool) -> None:
    function, calls = failing(ValueError("first"), ValueError("second"))

    class Broken(list[Failure]):
        def append(self, failure: Failure) -> None:
            raise OSError("no room to record it")

    with pytest.raises(OSError, match="no room") as caught:
        run(Recovery(max_retries=3), function, asynchronous, Broken())

    assert len(calls) == 1
    assert isinstance(caught.value.__context__, ValueError)


@pytest.mark.parametrize("most", [0, -1, True, 1.5, None])
def test_a_function_is_tried_at_least_once(asynchronous: bool, most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_retries"):
        Recovery(max_retries=most)


def test_nobody_waits_after_the_last_attempt(asynchronous: bool) -> None:
    asked: list[int] = []

    class Counting(RetryWithBackoff):
        def delay(self, attempt: int) -> float:
            asked.append(attempt)
            return 0.0

    function, _ = failing(*[TimeoutError()] * 3)
    with pytest.raises(TimeoutError):
        run(Recovery([Counting(0)], 3), function, asynchronous, [])

    assert asked == [0, 1]
