"""The retry loop, for plain and for asynchronous functions.

tenacity counts, stops and waits. On top of it, strategies choose the state of the next attempt,
and only an `Exception` is ever retried: interrupts and cancellations propagate.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, stop_after_attempt

from ropewalk.errors import InvalidInput, NotSaved
from ropewalk.recovery.strategies import CompositeStrategy, RecoveryStrategy, checked_strategies

R = TypeVar("R")

_LONGEST_MESSAGE = 16_000
_LONGEST_TRACEBACK = 16_000


class Failure(NamedTuple):
    """A failed attempt."""

    attempt: int
    """Counts from 1."""
    state: Any
    """The state the attempt was given."""
    error: Exception

    @property
    def kind(self) -> str:
        """The class name of the error."""
        return type(self.error).__qualname__

    @property
    def message(self) -> str:
        """The error message, truncated if it is very long."""
        try:
            told = str(self.error)
        except Exception as second:  # noqa: BLE001 - the error itself goes on, not this one
            told = f"(its message could not be read: {type(second).__qualname__})"
        return _storable(told[:_LONGEST_MESSAGE])

    @property
    def traceback(self) -> str:
        """The traceback, cut to its end if it is very long."""
        told = "".join(traceback.format_exception(self.error))
        return _storable(told[-_LONGEST_TRACEBACK:])


def _storable(text: str) -> str:
    """Escape lone surrogates, as found in output that is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


class Recovery:
    """Runs a function on a state until it succeeds, retrying at most `max_retries` times.

    Without strategies every `Exception` is retried at once. With strategies, an error that none of
    them handles is raised at once. `NotSaved` is never retried: the function has already succeeded
    and would run again.
    """

    def __init__(self, strategies: Sequence[RecoveryStrategy] = (), max_retries: int = 3) -> None:
        if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < 1:
            raise InvalidInput(
                f"max_retries is how often a function is tried at most, from 1 on: not "
                f"{max_retries!r:.80}"
            )
        self.strategies = checked_strategies(strategies)
        self.max_retries = max_retries

    def run(self, function: Callable[[Any], R], state: Any, failed: Callable[[Failure], None]) -> R:
        """Return the function's result; raises the last error. `failed` receives each failure.

        An error raised by `failed` propagates and ends the loop.
        """
        course = _Course(self, state)
        retrying = Retrying(**course.rules())
        for attempt in retrying:
            with attempt:
                tried = course.state
                try:
                    return function(tried)
                except Exception as error:
                    failed(course.failure(tried, error))
                    raise
        raise AssertionError("tenacity raises the last error")

    async def run_async(
        self,
        function: Callable[[Any], Awaitable[R]],
        state: Any,
        failed: Callable[[Failure], Awaitable[None]],
    ) -> R:
        """The asynchronous twin of `run`."""
        course = _Course(self, state)
        async for attempt in AsyncRetrying(**course.rules()):
            with attempt:
                tried = course.state
                try:
                    return await function(tried)
                except Exception as error:
                    await failed(course.failure(tried, error))
                    raise
        raise AssertionError("tenacity raises the last error")


class _Course:
    """One run of the loop."""

    def __init__(self, recovery: Recovery, state: Any) -> None:
        self.state = state
        self._recovery = recovery
        self._delay = 0.0
        self._failures = 0
        self._last: Exception | None = None

    def rules(self) -> dict[str, Any]:
        """The configuration for tenacity."""
        return {
            "stop": stop_after_attempt(self._recovery.max_retries),
            "retry": self._again,
            "wait": lambda call: self._delay,
            "reraise": True,
        }

    def failure(self, tried: Any, error: Exception) -> Failure:
        """Record a failure of the function itself; nothing else may be retried."""
        self._failures += 1
        self._last = error
        return Failure(self._failures, tried, error)

    def _again(self, call: RetryCallState) -> bool:
        error = call.outcome.exception() if call.outcome is not None else None
        if error is None or error is not self._last:
            return False  # An interrupt, or a failure that could not be recorded.
        if isinstance(error, NotSaved):
            return False  # The call succeeded and must not run again.
        self._last = None
        if call.attempt_number >= self._recovery.max_retries:
            return True  # tenacity stops here, so no next state is needed.
        if not self._recovery.strategies:
            return True
        assert isinstance(error, Exception)
        strategies = CompositeStrategy(self._recovery.strategies)
        found = strategies.answer(self.state, error, self._failures - 1)
        if found is None:
            return False
        self.state, self._delay = found
        return True
