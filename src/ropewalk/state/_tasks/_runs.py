"""The call of a task that is running now: its state, and the events that it records."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ropewalk.errors import InvalidInput, NotFound
from ropewalk.state._state import State
from ropewalk.state._tasks._events import (
    ActionEvent,
    Event,
    FailEvent,
    OutputEvent,
    SuccessEvent,
    TaskStartEvent,
    make_record,
)
from ropewalk.state._tasks._plain import cut

_LONGEST_TRACEBACK = 4_000
_LONGEST_MESSAGE = 2_000

_running: ContextVar[Run | None] = ContextVar("ropewalk_task", default=None)


class Run:
    """One call of a task. Its events go to the state that it works on."""

    def __init__(self, task: str, state: State, namespace: tuple[str, ...]) -> None:
        above = _running.get()
        self.task, self.state, self._namespace = task, state, namespace
        self.id = secrets.token_hex(8)
        self._parent = "" if above is None else above.id
        self._began = time.perf_counter()
        self.records: list[Mapping[str, Any]] = []
        """What was recorded with the state of the call, oldest first."""

    def note(self, kind: type[Event], **content: Any) -> None:
        """Record an event of this call."""
        self.note_on(self.state, kind, content)

    def note_on(
        self, state: State, kind: type[Event], content: Mapping[str, Any], at: str | None = None
    ) -> None:
        """Record an event of this call with a state, which may be another one."""
        record = make_record(
            kind,
            content,
            task=self.task,
            run=self.id,
            parent=self._parent,
            namespace=self._namespace,
            at=at,
        )
        state.note(record)
        if state is self.state:
            self.records.append(record)

    def started(self, inputs: Mapping[str, Any], function: str) -> None:
        """Record what the task was given, and that it runs."""
        self.note(TaskStartEvent, inputs=dict(inputs))
        self.note(ActionEvent, name=self.task, data={"function": function})

    def succeeded(self, result: Any) -> None:
        """Record what the task gave."""
        self.note(OutputEvent, output=result)
        self.note(SuccessEvent, result=result, duration=self._duration())

    def failed(self, error: BaseException, state: State | None = None) -> None:
        """Record why the task gave nothing, or why that could not be kept."""
        told = "".join(traceback.format_exception(error))
        content = {
            "error": type(error).__qualname__,
            "message": message_of(error),
            "traceback": cut(told[-_LONGEST_TRACEBACK:], _LONGEST_TRACEBACK),
            "duration": self._duration(),
        }
        self.note_on(self.state if state is None else state, FailEvent, content)

    def _duration(self) -> float:
        return time.perf_counter() - self._began

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the call that runs here."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)


def message_of(error: BaseException) -> str:
    """What an error says, in short."""
    try:
        return cut(str(error), _LONGEST_MESSAGE)
    except Exception as second:  # noqa: BLE001 - the error itself goes on, not this one
        return f"(its message could not be read: {type(second).__qualname__})"


def current_state() -> State:
    """The state of the task that runs here; raises `NotFound` outside of a task.

    A thread that a task starts is outside of it, unless it is started in a copy of the
    task's context, as `asyncio.to_thread` does.
    """
    run = _running.get()
    if run is None:
        raise NotFound(
            "no task runs here: current_state() is for code that a function with "
            "@ropewalk.task calls, in the same thread"
        )
    return run.state


def record(name: str, /, *, state: State | None = None, **data: Any) -> None:
    """Record an `ActionEvent` of your own in the task that runs here.

    `record("searched", query="x", hits=3)` is kept with the state of the task. What the
    state holds at this moment can be checked out by the event's `commit_hash`: if it changed
    since the last commit, it is stored now. Outside of a task, say where with `state=`; else
    `NotFound` is raised. What cannot be stored is described.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"the name of an action is a text that says what it was, not {name!r}")
    run = _running.get()
    content = {"name": name, "data": data}
    if run is not None:
        own = state is None or state is run.state
        target = run.state if state is None else state
        run.note_on(target, ActionEvent, content, target._moment(name) if own else None)
    elif state is not None:
        state.note(make_record(ActionEvent, content, namespace=getattr(state, "place", ())))
    else:
        raise NotFound(
            f"no task runs here, so {name!r:.80} has no state to be recorded in: call record() "
            "in a function with @ropewalk.task, or hand over a state with state="
        )
