"""`@task`: a function whose calls are steps of a state."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from ropewalk.errors import InvalidInput
from ropewalk.state._live import check_namespace
from ropewalk.state._state import State
from ropewalk.state._tasks._calls import Call, open_work
from ropewalk.state._tasks._plain import HIDDEN

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

_COROUTINE = (
    "{} gave a coroutine, which would run after its step was saved: write @task directly above "
    "the `async def`, beneath other decorators"
)


class Task(Protocol, Generic[P, R_co]):
    """What `@task` makes of a function: called as before, and with `state=`.

    A type checker can add no keyword to the parameters of any function. So it knows the
    type of the result and shows the function's own parameters, but takes all arguments.
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
    """Make a function a task: its calls may be given a state, and leave events there.

    `state=None`: nothing is remembered. `state=Live()`: remembered in this process.
    `state=Versioned(...)`: one commit for every call; if the function fails, the state
    is as before. The function reaches its state through a parameter `state`, if it has
    one, or `ropewalk.current_state()`; without a state that is a new `Live`, forgotten
    when the call ends. A namespace of a state may be given too, and with `namespace=`
    the task works in the namespace of that name. Of the arguments that `hide` names,
    events say only that they were given.

    If the function succeeds but the state cannot be committed, `NotSaved` is raised: it
    has the result, and the function is not run again.
    """
    if namespace is not None:
        check_namespace(namespace)
    if function is None:
        return lambda given: _Made(given, name, namespace, hide).wrapper()
    return _Made(function, name, namespace, hide).wrapper()


class _Made:
    """A function that is made a task."""

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
        """The function that stands for it."""
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
        """The call, and the state that it was given. Raises TypeError as the function would."""
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
            del inputs[first]  # What has the method is no input of it.
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
        return False  # Calling a class makes an object, whatever calling that one does.
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
    """The arguments that events do not show; raises `InvalidInput` for what is none."""
    names = frozenset([hide] if isinstance(hide, str) else hide)
    unknown = sorted(map(repr, names - signature.parameters.keys()))
    if unknown:
        raise InvalidInput(f"{name} has no parameter {', '.join(unknown)} to hide")
    return names


def _with_state(signature: inspect.Signature, takes_state: bool) -> inspect.Signature:
    """The signature of a task: that of its function, and an optional `state`."""
    if takes_state:
        return signature
    parameters = list(signature.parameters.values())
    added = inspect.Parameter("state", inspect.Parameter.KEYWORD_ONLY, default=None)
    at = len(parameters)
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        at -= 1
    return signature.replace(parameters=[*parameters[:at], added, *parameters[at:]])
