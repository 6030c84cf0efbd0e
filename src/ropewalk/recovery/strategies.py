"""The strategies, and the interface for one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random

from ropewalk.errors import InvalidInput

ErrorTypes: TypeAlias = tuple[type[Exception], ...]
Alternative: TypeAlias = Callable[[Any, Exception], Any]
"""Takes the state and the error; gives the state to try instead, or None for no idea."""

TRANSIENT: ErrorTypes = (TimeoutError, ConnectionError, OSError)
EXHAUSTED: ErrorTypes = (MemoryError, TimeoutError, RuntimeError)
LEVELS: tuple[Mapping[str, Any], ...] = (
    {"_quality": "reduced", "_max_tokens": 500},
    {"_quality": "minimal", "_max_tokens": 100},
    {"_quality": "fallback", "_use_cache": True},
)


class Answer(NamedTuple):
    """How to go on: with which state, after how many seconds."""

    state: Any
    delay: float


class RecoveryStrategy(ABC):
    """One way to go on after an error. Subclass it for your own."""

    def can_handle(self, error: Exception) -> bool:
        """Whether this strategy is for such an error; it is for any unless it says so."""
        return True

    @abstractmethod
    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """The state for the next attempt, or None if this strategy has no answer.

        `attempt` counts the attempts that failed before this one, from 0. The state is
        the strategy's own copy.
        """

    def delay(self, attempt: int) -> float:
        """How many seconds to wait before the next attempt."""
        return 0.0

    def answer(self, state: Any, error: Exception, attempt: int) -> Answer | None:
        """What `apply` and `delay` say together; None if there is no answer."""
        chosen = self.apply(deepcopy(state), error, attempt) if self.can_handle(error) else None
        return None if chosen is None else Answer(chosen, self.delay(attempt))


class RetryWithBackoff(RecoveryStrategy):
    """Wait, each time longer, and try again with the same state: for what passes by itself.

    The first wait is `base_delay` seconds, each next one twice as long, at most
    `max_delay`. With `jitter` each but the longest is longer by a random part of
    `base_delay`, so that many agents do not come back at the same moment.
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
        """Twice as long each time, at most `max_delay`."""
        call = RetryCallState(Retrying(), None, (), {})
        call.attempt_number = attempt + 1
        return min(float(self._wait(call)), self.max_delay)


class AlternativePathStrategy(RecoveryStrategy):
    """Try another way each time: for a path that leads nowhere.

    The n-th of `alternatives` is asked for a state after the n-th failure;
    `state_modifiers` are put into the state in any case. When the alternatives are used
    up, and there are no modifiers, it has no answer.
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
        """The state of the next alternative. What an alternative raises is raised."""
        if self.state_modifiers:
            state = {**_as_dict(state, self), **deepcopy(self.state_modifiers)}
        if attempt < len(self.alternatives):
            return self.alternatives[attempt](state, error)
        return state if self.state_modifiers else None


class DegradeGracefully(RecoveryStrategy):
    """Ask for less each time: for lack of memory, of time, of tokens.

    The n-th of `degradation_levels` is put into the state after the n-th failure, and
    the last one after every later failure.
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
        """Whether one of them can."""
        return any(strategy.can_handle(error) for strategy in self.strategies)

    def apply(self, state: Any, error: Exception, attempt: int) -> Any:
        """What the first that can handle the error, and has an answer, says."""
        found = self.answer(state, error, attempt)
        return None if found is None else found.state

    def answer(self, state: Any, error: Exception, attempt: int) -> Answer | None:
        """The whole answer of that one."""
        answers = (strategy.answer(state, error, attempt) for strategy in self.strategies)
        return next((found for found in answers if found is not None), None)


def checked_strategies(given: Sequence[RecoveryStrategy]) -> list[RecoveryStrategy]:
    """Strategies, checked."""
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
    """Error types, checked: an interrupt or a cancellation is none."""
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
