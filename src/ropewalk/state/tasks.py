"""`@task`: a function whose calls are steps of a state.

In a `Versioned` state, each call works on a session of its own on the same branch. Concurrent
calls therefore see only their own changes until they end. Each call is one commit, merged with
concurrent ones, and a failed call needs no undo: its session is dropped. The caller's handle is
refreshed afterwards.

A failed function and a failed save are separate errors: a function that succeeded is never run
again.
"""

from __future__ import annotations

import functools
import inspect
import secrets
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from ropewalk.errors import InvalidInput, NotFound, NotSaved, RopewalkError, Unavailable
from ropewalk.state.event_log import (
    HIDDEN,
    ActionEvent,
    Event,
    FailEvent,
    OutputEvent,
    SuccessEvent,
    TaskStartEvent,
    cut,
    make_record,
)
from ropewalk.state.live import Live, State, check_namespace

if TYPE_CHECKING:
    from ropewalk.state.versioned import Versioned

_LONGEST_TRACEBACK = 4_000
_LONGEST_MESSAGE = 2_000
_LONGEST_ERROR = 1_000
_LOOKED_AT = 1_000
"""How many stored records are scanned for those of a call."""
_ENDS = ("OutputEvent", "SuccessEvent")

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_running: ContextVar[Run | None] = ContextVar("ropewalk_task", default=None)

_COROUTINE = (
    "{} gave a coroutine, which would run after its step was saved: write @task directly above "
    "the `async def`, beneath other decorators"
)


class Run:
    """One call of a task. Its events go to the state it works on."""

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
        """Record an event of this call with another state."""
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
        """Record the arguments and the start of the call."""
        self.note(TaskStartEvent, inputs=dict(inputs))
        self.note(ActionEvent, name=self.task, data={"function": function})

    def succeeded(self, result: Any) -> None:
        """Record the result."""
        self.note(OutputEvent, output=result)
        self.note(SuccessEvent, result=result, duration=self._duration())

    def failed(self, error: BaseException, state: State | None = None) -> None:
        """Record the error of the call, or of saving its result."""
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
        """Make this the current call."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)


def message_of(error: BaseException) -> str:
    """A short message for an error."""
    try:
        return cut(str(error), _LONGEST_MESSAGE)
    except Exception as second:  # noqa: BLE001 - the error itself goes on, not this one
        return f"(its message could not be read: {type(second).__qualname__})"


def current_state() -> State:
    """The state of the current task; raises `NotFound` outside of a task.

    A thread started by a task is outside of it, unless it runs in a copy of the task's context, as
    with `asyncio.to_thread`.
    """
    run = _running.get()
    if run is None:
        raise NotFound(
            "no task runs here: current_state() is for code that a function with "
            "@ropewalk.task calls, in the same thread"
        )
    return run.state


def record(name: str, /, *, state: State | None = None, **data: Any) -> None:
    """Record an `ActionEvent` of your own in the current task.

    `record("searched", query="x", hits=3)` is kept with the state of the task. The event's
    `commit_hash` names the state at this moment, which is stored now if it changed since the last
    commit. Outside of a task, pass `state=`; otherwise `NotFound` is raised. Values that cannot be
    stored are described.
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


class Call(NamedTuple):
    """A function with its arguments."""

    task: str
    function: str
    inputs: Mapping[str, Any]
    make: Callable[[State], Any]
    """Calls the function with a state."""

    def run(self, work: Work) -> Any:
        """The result of the function; raises its error, or `NotSaved`."""
        work.begin(self.task)
        run = self._started(work)
        try:
            with run.current():
                result = self.make(work.state)
        except BaseException as error:
            _keep(work, run, error)
            raise
        work.save(run, result)
        return result

    async def run_async(self, work: Work) -> Any:
        """The same for an asynchronous function."""
        await work.apart(lambda: work.begin(self.task))
        run = self._started(work)
        try:
            with run.current():
                result = await self.make(work.state)
        except BaseException as error:
            await work.apart(partial(_keep, work, run, error))
            raise
        await work.apart(lambda: work.save(run, result))
        return result

    def _started(self, work: Work) -> Run:
        run = Run(self.task, work.state, work.place)
        run.started(self.inputs, self.function)
        return run


class Work:
    """The state that a call works on: here one in process, where changes stay even on failure."""

    def __init__(self, state: State, place: tuple[str, ...]) -> None:
        self.state = state
        """What the function is given."""
        self.place = place
        """The namespaces that lead there."""

    def begin(self, task: str) -> None:
        """Prepare `state`."""

    def save(self, run: Run, result: Any) -> None:
        """Save what the call did; raises `NotSaved`."""
        run.succeeded(result)

    def fail(self, run: Run, error: BaseException) -> None:
        """Record that the call failed."""
        run.failed(error)

    async def apart(self, call: Callable[[], T]) -> T:
        """Run one of these methods without blocking the event loop."""
        return call()


class SessionWork(Work):
    """Works on a session of the same branch; the call is one commit."""

    def __init__(self, whole: Versioned, place: tuple[str, ...]) -> None:
        super().__init__(whole, place)
        self._whole = whole

    def begin(self, task: str) -> None:
        """Commit the caller's pending changes first, so that a failure cannot lose them."""
        self._whole.commit(f"Before {task}")
        self._session = self._whole.session()
        self.state = _inside(self._session, self.place)

    def save(self, run: Run, result: Any) -> None:
        """Commit the changes of the call, and its events."""
        try:
            for record in _dropped(run, self._session):
                self._session.note(record)
            run.succeeded(result)
            try:
                self._session.commit(run.task, logic_step=run.task, exclusive=True)
            except Unavailable:
                # The reply may have been lost: the handle finds out, and commits only once.
                self._session.commit(run.task, logic_step=run.task, exclusive=True)
        except Exception as error:
            if not isinstance(error, Unavailable):
                with suppress(Exception):
                    self._keep_failure(run, error, self._whole.session())
            raise NotSaved(result, run.task, error, self._session) from error
        self._show()

    def fail(self, run: Run, error: BaseException) -> None:
        """Commit the events of the call without its changes."""
        self._keep_failure(run, error, self._session)

    def _keep_failure(self, run: Run, error: BaseException, session: Versioned) -> None:
        happened = [*_dropped(run, self._session), *_pending(self._session)]
        session.reset()
        for record in happened:
            if record.get("run") != run.id or record.get("kind") not in _ENDS:
                session.note(record)
        run.failed(error, session)
        told = cut(f"{type(error).__qualname__}: {message_of(error)}", _LONGEST_ERROR)
        session.commit(run.task, logic_step=run.task, status="failed", error=told)
        self._show()

    def _show(self) -> None:
        # The step is stored already. If the caller's handle cannot follow now, its next commit or
        # refresh merges, or reports the conflict.
        with suppress(RopewalkError):
            self._whole.refresh()

    async def apart(self, call: Callable[[], T]) -> T:
        """Run it on a worker thread of the store."""
        return await self._whole._threads.run(call)


class JoinedWork(Work):
    """Works inside a transaction of the caller, which commits it with everything else."""

    def __init__(self, whole: Versioned, place: tuple[str, ...]) -> None:
        super().__init__(_inside(whole, place), place)
        self._whole = whole

    def begin(self, task: str) -> None:
        """Save the state to restore if the call fails."""
        self._noted = len(_pending(self._whole))
        self._block = self._whole.transaction()
        self._block.__enter__()

    def save(self, run: Run, result: Any) -> None:
        """Leave the changes to the transaction."""
        run.succeeded(result)
        self._block.__exit__(None, None, None)

    def fail(self, run: Run, error: BaseException) -> None:
        """Undo the changes of the call; its events stay."""
        happened = _pending(self._whole)[self._noted :]
        self._block.__exit__(type(error), error, error.__traceback__)
        for record in happened:
            self._whole.note(record)
        run.failed(error)


def open_work(state: State | None, names: tuple[str, ...]) -> Work:
    """The `Work` for a given state; raises `InvalidInput`."""
    if state is None or isinstance(state, Live):
        live = Live() if state is None else state
        for name in names:
            live = live.namespace(name)
        return Work(live, live.place)
    from ropewalk.state.versioned import Checkout, Namespace, Versioned

    if isinstance(state, Checkout):
        raise InvalidInput(
            "a checkout is read-only, so no task can work on it: make a branch from it, "
            "state.branch(name, at=checkout.commit_hash), and hand that over"
        )
    if not isinstance(state, Versioned | Namespace):
        raise InvalidInput(
            "a task works on a Live() or Versioned() state, or on a namespace of one, not on a "
            f"{type(state).__name__}"
        )
    whole, place = (state, ()) if isinstance(state, Versioned) else (state.state, state.place)
    # This thread already holds the lock, so this never blocks; another task may be inside.
    if whole._lock.acquire(blocking=False):
        try:
            if whole._transactions.are_own():
                return JoinedWork(whole, (*place, *names))
        finally:
            whole._lock.release()
    return SessionWork(whole, (*place, *names))


def _inside(whole: Versioned, place: tuple[str, ...]) -> State:
    state: State = whole
    for name in place:
        state = state.namespace(name)
    return state


def _pending(whole: Versioned) -> list[Mapping[str, Any]]:
    with whole._lock:
        return list(whole._working_copy.noted)


def _dropped(run: Run, session: Versioned) -> list[Mapping[str, Any]]:
    """The records of a call that are neither pending nor committed: its body called `reset`."""
    pending = set(map(id, _pending(session)))
    missing = [record for record in run.records if id(record) not in pending]
    if not missing:
        return []
    stored = [one.record for one in islice(session.records(), _LOOKED_AT)]
    return [record for record in missing if record not in stored]


def _keep(work: Work, run: Run, error: BaseException) -> None:
    """Record a failure if possible; otherwise add a note to the propagating error."""
    try:
        work.fail(run, error)
    except Exception as second:  # noqa: BLE001 - the error of the function counts more
        error.add_note(
            f"ropewalk: this failure could not be recorded: {type(second).__qualname__}: {second}"
        )


class Task(Protocol, Generic[P, R_co]):
    """What `@task` returns: called like the function, optionally with `state=`.

    Type checkers cannot add a keyword to arbitrary parameters, so this keeps the type of the
    result and shows the function's own parameters, but accepts all arguments.
    """

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: Any, state: State | None = None, **kwargs: Any) -> R_co: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Callable[..., R_co]:
        """The task as a method of an object."""


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *, name: str | None = None, namespace: str | None = None, hide: Iterable[str] = ()
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    namespace: str | None = None,
    hide: Iterable[str] = (),
) -> Any:
    """Make a function a task, whose calls accept a state and record events there.

    `state=None`: nothing is kept. `state=Live()`: kept in this process. `state=Versioned(...)`:
    one commit for every call; if the function fails, the state is unchanged. The function reaches
    its state through a parameter `state`, if it has one, or `ropewalk.current_state()`; without a
    state, that is a new `Live` which is discarded when the call ends. A namespace of a state is
    accepted too, and with `namespace=` the task works in the namespace of that name. Events do not
    show the values of the arguments named in `hide`.

    If the function succeeds but the state cannot be committed, `NotSaved` is raised: it carries
    the result, and the function is not run again.
    """
    if namespace is not None:
        check_namespace(namespace)
    if function is None:
        return lambda given: _Made(given, name, namespace, hide).wrapper()
    return _Made(function, name, namespace, hide).wrapper()


class _Made:
    """Builds a task from a function."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        namespace: str | None,
        hide: Iterable[str],
    ) -> None:
        _refuse_odd(function)
        self.function = function
        self.is_async = _is_async(function)
        self.name = _name(function) if name is None else name
        if not isinstance(self.name, str) or not self.name:
            raise InvalidInput(f"the name of a task is a text, not {name!r:.80}")
        self.qualified = _qualified(function)
        self.names = () if namespace is None else (namespace,)
        self.signature = _signature(function, self.name)
        self.takes_state = _takes_state(self.name, self.signature)
        self.hidden = _hidden(self.name, self.signature, hide)

    def wrapper(self) -> Any:
        """The wrapper of the function."""
        if self.is_async:

            @functools.wraps(self.function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                call, state = self._bind(args, kwargs)
                return await call.run_async(open_work(state, self.names))

            made: Any = run_async
        else:

            @functools.wraps(self.function)
            def run(*args: Any, **kwargs: Any) -> Any:
                call, state = self._bind(args, kwargs)
                return call.run(open_work(state, self.names))

            made = run
        made.__signature__ = _with_state(self.signature, self.takes_state)
        return made

    def _bind(self, args: Any, kwargs: dict[str, Any]) -> tuple[Call, State | None]:
        """Bind the arguments and the state. Raises TypeError as the function would."""
        try:
            return self._bound(args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}() was called wrongly: {error}") from None

    def _bound(self, args: Any, kwargs: dict[str, Any]) -> tuple[Call, State | None]:
        if not self.takes_state:
            state = kwargs.pop("state", None)
            bound = self.signature.bind(*args, **kwargs)
        else:
            bound = self.signature.bind_partial(*args, **kwargs)
            state = bound.arguments.get("state")
            if state is None:
                default = self.signature.parameters["state"].default
                state = default if isinstance(default, State) else None
            bound.arguments["state"] = state
            bound = self.signature.bind(*bound.args, **bound.kwargs)
        call = Call(self.name, self.qualified, self._inputs(bound), self._make(bound))
        return call, state

    def _make(self, bound: inspect.BoundArguments) -> Callable[[State], Any]:
        def make(state: State) -> Any:
            if self.takes_state:
                bound.arguments["state"] = state
            result = self.function(*bound.args, **bound.kwargs)
            if not self.is_async and inspect.iscoroutine(result):
                result.close()
                raise InvalidInput(_COROUTINE.format(self.name))
            return result

        return make

    def _inputs(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        inputs = dict(bound.arguments)
        if self.takes_state:
            inputs.pop("state", None)
        first = next(iter(self.signature.parameters), "")
        if first in ("self", "cls"):
            del inputs[first]  # The method's own object is not an input.
        for name in self.hidden & inputs.keys():
            inputs[name] = HIDDEN
        return inputs


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise InvalidInput(
            f"{name} does not say which arguments it takes: call it in a function of your own"
        ) from error


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "") or type(function).__name__


def _qualified(function: Callable[..., Any]) -> str:
    where = getattr(function, "__module__", "") or ""
    return f"{where}.{getattr(function, '__qualname__', _name(function))}"


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return False  # Even if calling the instance is asynchronous.
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may be asynchronous
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _refuse_odd(function: Callable[..., Any]) -> None:
    if isinstance(function, (classmethod, staticmethod)):
        kind = type(function).__name__
        raise InvalidInput(f"write @task beneath @{kind}, so that it gets the function itself")
    if not callable(function):
        raise InvalidInput(
            f"@task is for functions, not for {function!r:.80}; its options are given by name: "
            "@task(name=...)"
        )
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidInput(
            f"{_name(function)} is a generator, and cannot be a task: a task is one step, which "
            "ends when the function returns. Let it return a list, or let a task call it and "
            "iterate over it."
        )


def _takes_state(name: str, signature: inspect.Signature) -> bool:
    """Whether a function has a parameter for its state; raises `InvalidInput`."""
    own = signature.parameters.get("state")
    if own is None:
        return False
    if own.kind in (own.VAR_POSITIONAL, own.VAR_KEYWORD):
        raise InvalidInput(f"{name} calls its further arguments `state`: name them differently")
    if own.default is not own.empty and not isinstance(own.default, (State, type(None))):
        raise InvalidInput(
            f"the parameter `state` of {name} has the default {own.default!r:.80}, which is no "
            "state: in a task, `state` is what the task remembers. Name the parameter differently."
        )
    return True


def _hidden(name: str, signature: inspect.Signature, hide: Iterable[str]) -> frozenset[str]:
    """The arguments hidden from events; raises `InvalidInput` for unknown ones."""
    names = frozenset([hide] if isinstance(hide, str) else hide)
    unknown = sorted(map(repr, names - signature.parameters.keys()))
    if unknown:
        raise InvalidInput(f"{name} has no parameter {', '.join(unknown)} to hide")
    return names


def _with_state(signature: inspect.Signature, takes_state: bool) -> inspect.Signature:
    """The signature of a task: that of its function plus an optional `state`."""
    if takes_state:
        return signature
    parameters = list(signature.parameters.values())
    added = inspect.Parameter("state", inspect.Parameter.KEYWORD_ONLY, default=None)
    at = len(parameters)
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        at -= 1
    return signature.replace(parameters=[*parameters[:at], added, *parameters[at:]])
