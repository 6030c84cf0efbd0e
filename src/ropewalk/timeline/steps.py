"""Steps around functions and blocks: a decorator, a context, and a wrapper for frameworks.

Without a timeline they use the one named `default`, in the store of the current folder.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput, NotStorable, RopewalkError
from ropewalk.store.forking import freed_after_fork
from ropewalk.timeline.checkpoint import Checkpoint
from ropewalk.timeline.execution import is_async
from ropewalk.timeline.timeline import Timeline

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT = "default"

_timelines: dict[str, Timeline] = {}
_lock = freed_after_fork(threading.Lock())


def get_agent(name: str = DEFAULT) -> Timeline:
    """The timeline that steps of this name use; opened in the current folder if need be."""
    with _lock:
        found = _timelines.get(name)
        if found is None:
            found = _timelines[name] = Timeline(name)
        return found


def register_agent(name: str, agent: Timeline) -> None:
    """Let steps of this name use a timeline."""
    if not isinstance(agent, Timeline):
        raise InvalidInput(f"an agent is a Timeline, not a {type(agent).__name__}")
    with _lock:
        _timelines[name] = agent


def forget_agents() -> None:
    """Close the timelines that steps opened, and forget all of them."""
    with _lock:
        forgotten = list(_timelines.values())
        _timelines.clear()
    for timeline in forgotten:
        timeline.close()


def safe_execute(
    func: Callable[[Any], Any],
    state: Any,
    description: str = "",
    max_retries: int = 3,
    fallback: Callable[[Any], Any] | None = None,
    *,
    agent: Timeline | str = DEFAULT,
) -> Any:
    """`Timeline.safe_execute` on a timeline, or on the one of a name."""
    timeline = _timeline(agent)
    return timeline.safe_execute(func, state, description, max_retries, fallback)


def step(
    step_name: str,
    agent_name: Timeline | str = DEFAULT,
    max_retries: int = 1,
    fallback: Callable[[Any], Any] | None = None,
) -> Callable[[F], F]:
    """Make each call of a function a step: saved before and after, failures kept.

    The state is the parameter named `state`, else the first argument that is a dict. A
    state that cannot be stored is refused with `NotStorable` before the function runs. If
    there is no state, the arguments by name stand for it: those that can be stored, so a
    client beside them is handed on and not saved. If none can, that is refused too.

    For plain and asynchronous functions and methods. The function is run once unless
    `max_retries` says more; each time the state is a copy of its own. If its result cannot
    be saved, `NotSaved` holds it.
    """
    if not isinstance(step_name, str) or not step_name:
        raise InvalidInput("a step has a name: @step('analyze')")

    def decorate(function: F) -> F:
        return _wrapped(function, lambda: _timeline(agent_name), step_name, max_retries, fallback)

    return decorate


class Middleware:
    """Wraps functions of any framework, so that each call is a step of one timeline.

    Takes what `Timeline` takes: `Middleware("my-agent", store=...)`.
    """

    def __init__(self, agent_name: str, **options: Any) -> None:
        self.agent = Timeline(agent_name, **options)
        register_agent(agent_name, self.agent)

    def wrap(
        self,
        func: F,
        step_name: str = "",
        *,
        max_retries: int = 3,
        fallback: Callable[[Any], Any] | None = None,
    ) -> F:
        """The function as a step, plain or asynchronous."""
        name = step_name or str(getattr(func, "__name__", "step"))
        return _wrapped(func, lambda: self.agent, name, max_retries, fallback)

    def get_history(self) -> list[Checkpoint]:
        """The steps so far, newest first."""
        return self.agent.history()

    def get_tree(self) -> str:
        """The steps so far, drawn."""
        return self.agent.visualize_tree()

    def close(self) -> None:
        """Close the timeline."""
        self.agent.close()


class checkpoint_context:  # noqa: N801 - used like a function, and named by the mission
    """A block whose outcome is a step, for `with` and `async with`.

    Set `state` inside: it is saved when the block ends. Without it nothing is saved.
    If the block raises, the failure is kept in the history, the last good state stays
    in place, and the error goes on.
    """

    def __init__(self, agent_name: Timeline | str = DEFAULT, description: str = "") -> None:
        self.agent = _timeline(agent_name)
        self.description = description
        self.state: Any = None
        self.metadata: dict[str, Any] = {}
        """What to save about the step."""
        self.checkpoint: Checkpoint | None = None
        """The checkpoint that was saved, once the block has ended."""

    def __enter__(self) -> checkpoint_context:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(error)

    async def __aenter__(self) -> checkpoint_context:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.agent._threads.run(lambda: self._end(error))

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            if self.state is not None:
                self.checkpoint = self.agent.checkpoint(
                    self.state,
                    metadata=self.metadata or None,
                    description=self.description,
                    logic_step=self.description,
                )
        elif isinstance(error, Exception):
            try:
                head = self.agent.head
                state = self.state if self.state is not None else self.agent.get_state()
                failed = self.agent._execution.failed(head, state, error, self.description)
            except RopewalkError as second:  # The error of the block counts more.
                error.add_note(f"ropewalk: this failure could not be recorded: {second}")
            else:
                self.checkpoint = failed


class _Call(NamedTuple):
    """A call of a wrapped function: what its state is, and how to make it with another."""

    state: Any
    make: Callable[[Any], Any]


def _wrapped(
    function: F,
    timeline: Callable[[], Timeline],
    name: str,
    max_retries: int,
    fallback: Callable[[Any], Any] | None,
) -> F:
    signature = _signature(function)

    if is_async(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            agent = timeline()
            call = _call(function, signature.bind(*args, **kwargs), agent._history.codec)

            async def made(state: Any) -> Any:
                return await call.make(state)

            result, _ = await agent.asafe_execute(made, call.state, name, max_retries, fallback)
            return result

        return run_async  # type: ignore[return-value]

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        agent = timeline()
        call = _call(function, signature.bind(*args, **kwargs), agent._history.codec)
        result, _ = agent.safe_execute(call.make, call.state, name, max_retries, fallback)
        return result

    return run  # type: ignore[return-value]


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # Some functions that are written in C do not tell.
        return inspect.signature(lambda *args, **kwargs: None)


def _call(function: Callable[..., Any], bound: inspect.BoundArguments, codec: Codec) -> _Call:
    name = _state_name(bound)
    if name is None:
        kept = _storable(bound, codec)

        def make_from_arguments(state: Any) -> Any:
            bound.arguments.update({key: state[key] for key in kept if key in state})
            return function(*bound.args, **bound.kwargs)

        return _Call(deepcopy(kept), make_from_arguments)

    def make(state: Any) -> Any:
        bound.arguments[name] = state
        return function(*bound.args, **bound.kwargs)

    return _Call(bound.arguments[name], make)


def _state_name(bound: inspect.BoundArguments) -> str | None:
    if "state" in bound.arguments:
        return "state"
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is not inspect.Parameter.VAR_KEYWORD and isinstance(value, Mapping):
            return name
    return None


def _storable(bound: inspect.BoundArguments, codec: Codec) -> dict[str, Any]:
    """What can be stored of the arguments of a function that takes no state stands for it.

    Raises `NotStorable` if that is nothing: nobody could tell what the step began with.
    """
    kept: dict[str, Any] = {}
    refused: NotStorable | None = None
    for place, (name, value) in enumerate(bound.arguments.items()):
        try:
            codec.encode(value)
        except NotStorable as error:
            # What has the method is no argument of it.
            if refused is None and not (place == 0 and name in ("self", "cls")):
                refused = NotStorable(error.reason, error.path.replace("value", name, 1))
        else:
            kept[name] = value
    if refused is not None and not kept:
        raise refused
    return kept


def _timeline(agent: Timeline | str) -> Timeline:
    return agent if isinstance(agent, Timeline) else get_agent(agent)
