"""The built-in recovery strategies, and the base class for your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random

from ropewalk.errors import InvalidInput

ErrorTypes: TypeAlias = tuple[type[Exception], ...]
Alternative: TypeAlias = Callable[[Any, Exception], Any]
"""Takes the state and the error; returns the state to try instead, or None."""

TRANSIENT: ErrorTypes = (TimeoutError, ConnectionError, OSError)
EXHAUSTED: ErrorTypes = (MemoryError, TimeoutError, RuntimeError)
LEVELS: tuple[Mapping[str, Any], ...] = (
    {"_quality": "reduced", "_max_tokens": 500},
    {"_quality": "minimal", "_max_tokens": 100},
    {"_quality": "fallback", "_use_cache": True},
)


class Answer(NamedTuple):
    """How to go on: the state to retry with, and the delay in seconds."""

    state: Any
    delay: float


class RecoveryStrategy(ABC):
    """Base class of recovery strategies. Subclass it for your own."""

    def can_handle(self, error: Exception) -> bool:
        """Whether this strategy handles the error; by default it handles any."""
        return True

    @abstractmethod
    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """The state for the next attempt, or None if this strategy has no answer.

        `attempt` is the number of attempts that failed before this one, from 0. The state is a
        copy the strategy may modify.
        """

    def delay(self, attempt: int) -> float:
        """Seconds to wait before the next attempt."""
        return 0.0

    def answer(self, state: Any, error: Exception, attempt: int) -> Answer | None:
        """`apply` and `delay` combined; None if there is no answer."""
        chosen = self.apply(deepcopy(state), error, attempt) if self.can_handle(error) else None
        return None if chosen is None else Answer(chosen, self.delay(attempt))


class RetryWithBackoff(RecoveryStrategy):
    """Retry with the same state and exponential backoff: for transient errors.

    The first wait is `base_delay` seconds, and each one doubles, up to `max_delay`. `jitter` adds
    a random part of `base_delay` to every wait below the maximum, so that many agents do not retry
    at the same moment.
    """

    def __init__(
        self,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        jitter: bool = True,
        error_types: ErrorTypes = TRANSIENT,
    ) -> None:
        if not 0 <= base_delay <= max_delay:
            raise InvalidInput(
                f"delays are seconds, the first at most the longest: not {base_delay!r} and "
                f"{max_delay!r}"
            )
        self.base_delay, self.max_delay, self.jitter = base_delay, max_delay, jitter
        self.error_types = checked_types(error_types)
        self._wait = wait_exponential(multiplier=base_delay, max=max_delay) + wait_random(
            0, base_delay if jitter else 0
        )

    def can_handle(self, error: Exception) -> bool:
        """Whether the error is one of `error_types`."""
        return isinstance(error, self.error_types)

    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """The same state."""
        return state

    def delay(self, attempt: int) -> float:
        """Doubles each time, up to `max_delay`."""
        call = RetryCallState(Retrying(), None, (), {})
        call.attempt_number = attempt + 1
        return min(float(self._wait(call)), self.max_delay)


class AlternativePathStrategy(RecoveryStrategy):
    """Try an alternative each time: for a path that leads nowhere.

    The n-th of `alternatives` is called for a state after the n-th failure; `state_modifiers` are
    merged into the state in any case. When the alternatives are used up and there are no
    modifiers, it has no answer.
    """

    def __init__(
        self,
        alternatives: Sequence[Alternative] | None = None,
        state_modifiers: Mapping[str, Any] | None = None,
    ) -> None:
        self.alternatives = list(alternatives or ())
        self.state_modifiers = dict(state_modifiers or {})
        for one in self.alternatives:
            if not callable(one):
                raise InvalidInput(f"an alternative is a function, not {one!r:.80}")

    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """The state of the next alternative. Errors raised by an alternative propagate."""
        if self.state_modifiers:
            state = {**_as_dict(state, self), **deepcopy(self.state_modifiers)}
        if attempt < len(self.alternatives):
            return self.alternatives[attempt](state, error)
        return state if self.state_modifiers else None


class DegradeGracefully(RecoveryStrategy):
    """Ask for less each time: for lack of memory, time or tokens.

    The n-th of `degradation_levels` is merged into the state after the n-th failure, and the last
    one after every later failure.
    """

    def __init__(
        self,
        degradation_levels: Sequence[Mapping[str, Any]] | None = None,
        error_types: ErrorTypes = EXHAUSTED,
    ) -> None:
        levels = LEVELS if degradation_levels is None else degradation_levels
        if not levels or not all(isinstance(level, Mapping) for level in levels):
            raise InvalidInput("degradation_levels is a list of dicts, with at least one")
        self.degradation_levels = [dict(level) for level in levels]
        self.error_types = checked_types(error_types)

    def can_handle(self, error: Exception) -> bool:
        """Whether the error is one of `error_types`."""
        return isinstance(error, self.error_types)

    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """The state with the keys of the next level."""
        level = self.degradation_levels[min(attempt, len(self.degradation_levels) - 1)]
        return {**_as_dict(state, self), **deepcopy(level)}


class CompositeStrategy(RecoveryStrategy):
    """The first of several strategies that has an answer."""

    def __init__(self, strategies: Sequence[RecoveryStrategy]) -> None:
        self.strategies = checked_strategies(strategies)

    def can_handle(self, error: Exception) -> bool:
        """Whether any of them handles the error."""
        return any(strategy.can_handle(error) for strategy in self.strategies)

    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """The state of the first strategy that handles the error and has an answer."""
        found = self.answer(state, error, attempt)
        return None if found is None else found.state

    def answer(self, state: Any, error: Exception, attempt: int) -> Answer | None:
        """The answer of that strategy."""
        answers = (strategy.answer(state, error, attempt) for strategy in self.strategies)
        return next((found for found in answers if found is not None), None)


def checked_strategies(given: Sequence[RecoveryStrategy]) -> list[RecoveryStrategy]:
    """Validate strategies."""
    if isinstance(given, RecoveryStrategy):
        raise InvalidInput("recovery strategies are a list: put the one into brackets")
    if not isinstance(given, Iterable):
        raise InvalidInput(f"recovery strategies are a list, not {given!r:.80}")
    listed = list(given)
    for one in listed:
        if not isinstance(one, RecoveryStrategy):
            raise InvalidInput(f"a recovery strategy is a RecoveryStrategy, not {one!r:.80}")
    return listed


def checked_types(given: ErrorTypes) -> ErrorTypes:
    """Validate error types: interrupts and cancellations are refused."""
    types = given if isinstance(given, tuple) else (given,)
    for one in types:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise InvalidInput(f"error_types are subclasses of Exception, not {one!r:.80}")
    return types


def _as_dict(state: Any, strategy: RecoveryStrategy) -> Mapping[Any, Any]:
    if not isinstance(state, Mapping):
        raise InvalidInput(
            f"{type(strategy).__name__} puts keys into a state, which must be a dict, not a "
            f"{type(state).__name__}"
        )
    return state
