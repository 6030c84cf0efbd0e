"""One call of a task: what it works on, and what is kept of it when it ends.

In a `Versioned` state a call works on a handle of its own, on the same branch. So calls
that run at the same time see only their own changes until they end, each is committed as
one step, merged with what the others did meanwhile, and of a call that fails nothing has
to be taken back: its handle is dropped. The caller's handle is brought up to date
afterwards.

Whether the function failed and whether saving failed are two things. A function that
succeeded is never run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ropewalk.errors import InvalidInput, NotSaved, RopewalkError, Unavailable
from ropewalk.state._live import Live
from ropewalk.state._state import State
from ropewalk.state._tasks._plain import cut
from ropewalk.state._tasks._runs import Run, message_of

if TYPE_CHECKING:
    from ropewalk.state._versioned._versioned import Versioned

T = TypeVar("T")

_LONGEST_ERROR = 1_000
_LOOKED_AT = 1_000
_ENDS = ("OutputEvent", "SuccessEvent")


class Call(NamedTuple):
    """A function with the arguments that it was called with."""

    task: str
    function: str
    inputs: Mapping[str, Any]
    make: Callable[[State], Any]
    """Calls the function with a state."""

    def run(self, work: Work) -> Any:
        """The result of the function; raises what it raises, or `NotSaved`."""
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


class Work(Protocol):
    """What one call works on."""

    state: State
    """What the function is given."""
    place: tuple[str, ...]
    """The namespaces that lead there."""

    def begin(self, task: str) -> None:
        """Prepare `state`."""

    def save(self, run: Run, result: Any) -> None:
        """Keep what the call did; raises `NotSaved`."""

    def fail(self, run: Run, error: BaseException) -> None:
        """Keep that the call failed, and nothing that it changed."""

    async def apart(self, call: Callable[[], T]) -> T:
        """Do one of these without keeping an event loop from its work."""


class LiveWork:
    """Works on a state in process: what is done is done, also by a call that fails."""

    def __init__(self, state: Live, names: tuple[str, ...]) -> None:
        for name in names:
            state = state.namespace(name)
        self.state: State = state
        self.place = state.place

    def begin(self, task: str) -> None:
        """Nothing is to be done."""

    def save(self, run: Run, result: Any) -> None:
        """Keep the events of the call."""
        run.succeeded(result)

    def fail(self, run: Run, error: BaseException) -> None:
        """Keep the events of the call."""
        run.failed(error)

    async def apart(self, call: Callable[[], T]) -> T:
        """Do it here: nothing waits for a disk."""
        return call()


class SessionWork:
    """Works on a handle of its own on the same branch; the call is one commit."""

    state: State

    def __init__(self, whole: Versioned, place: tuple[str, ...]) -> None:
        self._whole, self.place = whole, place

    def begin(self, task: str) -> None:
        """Commit what the caller had changed, so that no failure can lose it."""
        self._whole.commit(f"Before {task}")
        self._session = self._whole.session()
        self.state = _inside(self._session, self.place)

    def save(self, run: Run, result: Any) -> None:
        """Commit what the call changed, and its events."""
        try:
            for record in _dropped(run, self._session):
                self._session.note(record)
            run.succeeded(result)
            self._commit(run)
        except Exception as error:
            if not isinstance(error, Unavailable):
                with suppress(Exception):
                    self._keep_failure(run, error, self._whole.session())
            raise NotSaved(result, run.task, error, self._session) from error
        self._show()

    def _commit(self, run: Run) -> None:
        try:
            self._session.commit(run.task, logic_step=run.task, exclusive=True)
        except Unavailable:
            # Perhaps only the answer was lost: the handle finds out, and commits once.
            self._session.commit(run.task, logic_step=run.task, exclusive=True)

    def fail(self, run: Run, error: BaseException) -> None:
        """Commit the events of the call, and nothing that it changed."""
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
        """Bring the caller's handle up to date."""
        # The step is stored already. A handle that cannot follow now does so later: its
        # next commit or refresh merges, or says what is in the way.
        with suppress(RopewalkError):
            self._whole.refresh()

    async def apart(self, call: Callable[[], T]) -> T:
        """Do it on a thread of the store."""
        return await self._whole._threads.run(call)


class JoinedWork:
    """Works inside a transaction of the caller's, which commits it with all the rest."""

    def __init__(self, whole: Versioned, place: tuple[str, ...]) -> None:
        self._whole, self.place = whole, place
        self.state: State = _inside(whole, place)
        self._noted = 0

    def begin(self, task: str) -> None:
        """Remember what is to be kept if the call fails."""
        self._noted = len(_pending(self._whole))
        self._block = self._whole.transaction()
        self._block.__enter__()

    def save(self, run: Run, result: Any) -> None:
        """Leave what the call did to the transaction."""
        run.succeeded(result)
        self._block.__exit__(None, None, None)

    def fail(self, run: Run, error: BaseException) -> None:
        """Take back what the call changed; its events stay."""
        happened = _pending(self._whole)[self._noted :]
        self._block.__exit__(type(error), error, error.__traceback__)
        for record in happened:
            self._whole.note(record)
        run.failed(error)

    async def apart(self, call: Callable[[], T]) -> T:
        """Do it here: the transaction belongs to this thread, and nothing is committed."""
        return call()


def open_work(state: State | None, names: tuple[str, ...]) -> Work:
    """What a call works on that was given this state; raises `InvalidInput`."""
    if state is None:
        return LiveWork(Live(), names)
    if isinstance(state, Live):
        return LiveWork(state, names)
    from ropewalk.state._versioned._namespace import Namespace
    from ropewalk.state._versioned._versioned import Versioned

    if isinstance(state, Versioned):
        return _versioned_work(state, names)
    if isinstance(state, Namespace):
        return _versioned_work(state.state, (*state.place, *names))
    raise InvalidInput(_refusal(state))


def _refusal(state: object) -> str:
    kind = type(state).__name__
    if kind == "Checkout":
        return (
            "a checkout is read-only, so no task can work on it: make a branch from it, "
            "state.branch(name, at=checkout.commit_hash), and hand that over"
        )
    return (
        f"a task works on a Live() or Versioned() state, or on a namespace of one, not on a {kind}"
    )


def _versioned_work(whole: Versioned, place: tuple[str, ...]) -> Work:
    # Who has the lock is this thread, and nobody is waited for; another task may be inside.
    if whole._lock.acquire(blocking=False):
        try:
            if whole._blocks.are_own():
                return JoinedWork(whole, place)
        finally:
            whole._lock.release()
    return SessionWork(whole, place)


def _inside(whole: Versioned, place: tuple[str, ...]) -> State:
    state: State = whole
    for name in place:
        state = state.namespace(name)
    return state


def _pending(whole: Versioned) -> list[Mapping[str, Any]]:
    """The records that are not committed yet, oldest first."""
    with whole._lock:
        return list(whole._handle.noted)


def _dropped(run: Run, session: Versioned) -> list[Mapping[str, Any]]:
    """The records of a call that are neither pending nor committed: its body called `reset`."""
    pending = set(map(id, _pending(session)))
    missing = [record for record in run.records if id(record) not in pending]
    if not missing:
        return []
    stored = [one.record for one in islice(session.records(), _LOOKED_AT)]
    return [record for record in missing if record not in stored]


def _keep(work: Work, run: Run, error: BaseException) -> None:
    """Keep a failure if that is possible; if not, the error that goes on says so."""
    try:
        work.fail(run, error)
    except Exception as second:  # noqa: BLE001 - the error of the function counts more
        error.add_note(
            f"ropewalk: this failure could not be recorded: {type(second).__qualname__}: {second}"
        )
