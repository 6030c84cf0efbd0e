"""Running a function as a step: saved before and after, tried again, its failures kept.

Whether the function failed and whether saving failed are two things. Only the first is
ever retried.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ropewalk.errors import NotSaved, NotStorable
from ropewalk.history import StepFields
from ropewalk.recovery import Failure, Recovery, RecoveryStrategy
from ropewalk.recovery.strategies import checked_strategies
from ropewalk.timeline.checkpoint import Checkpoint, CheckpointStatus

if TYPE_CHECKING:
    from ropewalk.timeline.timeline import Timeline


Function = Callable[[Any], Any]


class Execution:
    """Runs functions as steps of a timeline."""

    def __init__(self, timeline: Timeline, strategies: Sequence[RecoveryStrategy]) -> None:
        self._timeline = timeline
        self._strategies = checked_strategies(strategies)

    def run(
        self,
        function: Function,
        state: Any,
        description: str,
        max_retries: int,
        fallback: Function | None,
    ) -> Any:
        """`(result, checkpoint)`, or what to await for it."""
        if is_async(function):
            return self.run_async(function, state, description, max_retries, fallback)
        recovery = Recovery(self._strategies, max_retries)
        before, recovers = self._before(state, description)
        attempts: list[Failure] = []

        def failed(failure: Failure) -> None:
            attempts.append(failure)
            self._record(before, failure, description)

        try:
            result = recovery.run(lambda given: function(deepcopy(given)), state, failed)
        except Exception as error:
            if fallback is None or not _has_failed(error, attempts):
                self._timeline._failed()
                raise
            result = self._fall_back(fallback, state, before, attempts, description)
            return result, self._save(result, description, attempts, recovers, fallback=True)
        return result, self._save(result, description, attempts, recovers)

    async def run_async(
        self,
        function: Function,
        state: Any,
        description: str,
        max_retries: int,
        fallback: Function | None,
    ) -> tuple[Any, Checkpoint]:
        """The same for an asynchronous function; a plain one runs on a thread."""
        recovery = Recovery(self._strategies, max_retries)
        on_thread = self._timeline._threads.run
        before, recovers = await on_thread(lambda: self._before(state, description))
        attempts: list[Failure] = []

        async def failed(failure: Failure) -> None:
            attempts.append(failure)
            await on_thread(lambda: self._record(before, failure, description))

        async def call(called: Function, given: Any) -> Any:
            copied = deepcopy(given)
            if is_async(called):
                return await called(copied)
            return await on_thread(lambda: called(copied))

        used = False
        try:
            result = await recovery.run_async(lambda given: call(function, given), state, failed)
        except Exception as error:
            if fallback is None or not _has_failed(error, attempts):
                await on_thread(self._timeline._failed)
                raise
            used = True
            try:
                result = await call(fallback, state)
            except Exception as second:
                await failed(Failure(len(attempts) + 1, state, second))
                await on_thread(self._timeline._failed)
                raise second from error
        return result, await on_thread(
            lambda: self._save(result, description, attempts, recovers, fallback=used)
        )

    def failed(
        self, before: Checkpoint | None, state: Any, error: Exception, description: str
    ) -> Checkpoint:
        """Keep the failure of a step that was run elsewhere."""
        kept = self._record(before, Failure(1, state, error), description)
        self._timeline._failed()
        return kept

    def _before(self, state: Any, description: str) -> tuple[Checkpoint, bool]:
        """Save the state that a step begins with, and say whether the step failed before."""
        failed = self._timeline._failed_here()
        about: StepFields = {
            "description": f"Before: {description}" if description else "Before a step",
            "logic_step": description,
        }
        metadata = {"operation": description, "phase": "before"}
        return self._timeline._save(state, metadata, about, recovered=False), failed

    def _fall_back(
        self,
        fallback: Function,
        state: Any,
        before: Checkpoint,
        attempts: list[Failure],
        description: str,
    ) -> Any:
        try:
            return fallback(deepcopy(state))
        except Exception as error:
            failure = Failure(len(attempts) + 1, state, error)
            self._record(before, failure, f"{description} (fallback)")
            self._timeline._failed()
            raise error from attempts[-1].error

    def _save(
        self,
        result: Any,
        description: str,
        attempts: list[Failure],
        recovers: bool,
        *,
        fallback: bool = False,
    ) -> Checkpoint:
        metadata: dict[str, Any] = {
            "operation": description,
            "phase": "after",
            "attempt": len(attempts) + (0 if fallback else 1),
        }
        if fallback:
            metadata["fallback"] = True
        about: StepFields = {
            "description": description or "Ran a step",
            "logic_step": f"{description}:fallback" if fallback else description,
        }
        try:
            return self._timeline._save(
                as_state(result), metadata, about, recovered=recovers or bool(attempts)
            )
        except Exception as error:
            raise NotSaved(result, description, error) from error

    def _record(self, before: Checkpoint | None, failure: Failure, description: str) -> Checkpoint:
        """Keep an attempt that failed, beside the branch, which stays where it is."""
        told = f"Failed (attempt {failure.attempt}): {description}".rstrip(": ")
        message = failure.message
        fields: StepFields = {
            "description": told,
            "logic_step": description,
            "status": str(CheckpointStatus.FAILED),
            "error": f"{failure.kind}: {message}",
            "extension": {
                "error_type": failure.kind,
                "error_message": message,
                "traceback": failure.traceback,
                "attempt": failure.attempt,
            },
        }
        try:
            return self._timeline._keep_attempt(before, failure.state, **fields)
        except NotStorable:
            # The failure counts more than the state it left: the last good one stands for it.
            good = None if before is None else before.state
            return self._timeline._keep_attempt(before, good, **fields)


def _has_failed(error: Exception, attempts: list[Failure]) -> bool:
    """Whether an error is the last failure of the function, and not one of saving."""
    return bool(attempts) and attempts[-1].error is error and not isinstance(error, NotSaved)


def as_state(result: Any) -> Any:
    """What is saved of a result: itself if it is a dict, else a dict that holds it."""
    return result if isinstance(result, Mapping) else {"result": result}


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling a function gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return False  # Calling a class makes an object, whatever calling that one does.
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may be asynchronous
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
