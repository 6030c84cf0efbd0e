"""Strategies: which errors they are for, which state they give, and how long they wait."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ropewalk.errors import InvalidInput
from ropewalk.recovery import (
    AlternativePathStrategy,
    CompositeStrategy,
    DegradeGracefully,
    RecoveryStrategy,
    RetryWithBackoff,
)


def test_a_backoff_doubles_up_to_its_longest_wait() -> None:
    strategy = RetryWithBackoff(base_delay=1.0, max_delay=5.0, jitter=False)

    assert [strategy.delay(attempt) for attempt in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_jitter_adds_less_than_the_first_wait() -> None:
    strategy = RetryWithBackoff(base_delay=1.0, max_delay=60.0)

    delays = [strategy.delay(2) for _ in range(200)]

    assert all(4.0 <= delay <= 5.0 for delay in delays)
    assert len(set(delays)) > 100


@pytest.mark.parametrize(
    ("error", "handled"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (OSError(), True),
        (ValueError(), False),
        (KeyError(), False),
    ],
)
def test_a_backoff_is_for_what_passes_by_itself(error: Exception, handled: bool) -> None:
    assert RetryWithBackoff().can_handle(error) is handled
    assert (RetryWithBackoff().answer({}, error, 0) is not None) is handled


def test_alternatives_are_asked_in_turn_until_there_are_no_more() -> None:
    strategy = AlternativePathStrategy(
        [
            lambda state, error: {**state, "way": 1},
            lambda state, error: {**state, "why": str(error)},
        ]
    )
    error = ValueError("dead end")

    assert strategy.apply({"a": 0}, error, 0) == {"a": 0, "way": 1}
    assert strategy.apply({"a": 0}, error, 1) == {"a": 0, "why": "dead end"}
    assert strategy.apply({"a": 0}, error, 2) is None


def test_modifiers_are_put_into_the_state_in_any_case() -> None:
    strategy = AlternativePathStrategy(state_modifiers={"mode": "slow"})

    assert strategy.apply({"a": 0}, ValueError(), 7) == {"a": 0, "mode": "slow"}


def test_degrading_goes_level_by_level_and_stays_at_the_last() -> None:
    strategy = DegradeGracefully([{"size": 10}, {"size": 1}])

    states = [strategy.apply({"size": 99}, MemoryError(), attempt) for attempt in range(3)]

    assert states == [{"size": 10}, {"size": 1}, {"size": 1}]


def test_a_composite_takes_the_first_answer_with_its_delay() -> None:
    strategy = CompositeStrategy(
        [
            AlternativePathStrategy([lambda state, error: None]),
            RetryWithBackoff(base_delay=3.0, jitter=False),
            DegradeGracefully(),
        ]
    )

    answer = strategy.answer({"a": 1}, TimeoutError(), 1)

    assert answer is not None
    assert (answer.state, answer.delay) == ({"a": 1}, 6.0)
    assert strategy.answer({"a": 1}, KeyError("x"), 1) is None


@pytest.mark.parametrize(
    "strategy",
    [
        RetryWithBackoff(base_delay=0),
        AlternativePathStrategy([lambda state, error: state.pop("a") and state]),
        AlternativePathStrategy(state_modifiers={"b": []}),
        DegradeGracefully([{"a": 2}]),
    ],
)
def test_no_strategy_changes_the_state_it_was_given(strategy: RecoveryStrategy) -> None:
    state: dict[str, Any] = {"a": [1]}

    for attempt in range(2):
        strategy.answer(state, TimeoutError(), attempt)

    assert state == {"a": [1]}


def test_what_a_level_holds_is_not_shared_between_states() -> None:
    strategy = DegradeGracefully([{"skip": []}])

    strategy.apply({}, MemoryError(), 0)["skip"].append("x")

    assert strategy.apply({}, MemoryError(), 0) == {"skip": []}


def test_a_strategy_of_ones_own_needs_only_apply() -> None:
    class Shorter(RecoveryStrategy):
        def apply(self, state: Any, error: Exception, attempt: int) -> Any:
            return {"text": state["text"][:-1]}

    assert Shorter().answer({"text": "abc"}, ValueError(), 0) == ({"text": "ab"}, 0.0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: RetryWithBackoff(base_delay=-1), "delays"),
        (lambda: RetryWithBackoff(base_delay=5, max_delay=1), "delays"),
        (lambda: RetryWithBackoff(error_types=(KeyboardInterrupt,)), "error_types"),  # type: ignore[arg-type]
        (lambda: DegradeGracefully([]), "degradation_levels"),
        (lambda: AlternativePathStrategy(["not a function"]), "alternative"),  # type: ignore[list-item]
        (lambda: CompositeStrategy(RetryWithBackoff()), "list"),  # type: ignore[arg-type]
        (lambda: CompositeStrategy(5), "list"),  # type: ignore[arg-type]
        (lambda: CompositeStrategy(["retry"]), "RecoveryStrategy"),  # type: ignore[list-item]
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(make: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        make()


def test_a_state_without_keys_cannot_be_degraded() -> None:
    with pytest.raises(InvalidInput, match="must be a dict"):
        DegradeGracefully().apply([1, 2], MemoryError(), 0)


def test_one_composite_serves_many_threads() -> None:
    strategy = CompositeStrategy(
        [
            RetryWithBackoff(1.0, jitter=False, error_types=(TimeoutError,)),
            RetryWithBackoff(2.0, jitter=False, error_types=(ValueError,)),
        ]
    )
    wrong: list[object] = []

    def ask(error: Exception, delay: float) -> None:
        for _ in range(300):
            answer = strategy.answer({}, error, 0)
            if answer is None or answer.delay != delay:
                wrong.append(answer)

    threads = [
        threading.Thread(target=ask, args=pair)
        for pair in [(TimeoutError(), 1.0), (ValueError(), 2.0)] * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
