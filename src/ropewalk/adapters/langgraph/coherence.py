"""Nodes of a graph that work on shared artifacts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langgraph.types import Command

from ropewalk.adapters.coherence import (
    BaseCoherenceAdapter,
    agent_name_of,
    context_of,
    names_of,
)
from ropewalk.coherence import Artifact
from ropewalk.errors import InvalidInput
from ropewalk.store.asynchronous import twin

Node = Callable[..., Any]

_PARAMETER = "artifacts"


class CoherenceAdapter(BaseCoherenceAdapter):
    """Shared artifacts in a graph: fresh before a node, committed after it.

    `node` does both for a function. `before_node` and `commit_outputs` are its halves.
    """

    def before_node(
        self, agent_name: str, artifact_ids: Iterable[str], now_tick: int | None = None
    ) -> dict[str, dict[str, Any]]:
        """The current artifacts, as one snapshot: `version`, `content`, `state`.

        Raises `NotFound` if one of them does not exist.
        """
        return context_of(self._given(agent_name, artifact_ids, now_tick))

    def commit_outputs(
        self, agent_name: str, writes: Mapping[str, Any], now_tick: int | None = None
    ) -> dict[str, int]:
        """Commit the outputs of a node, all or nothing; returns the new versions.

        Each artifact is checked against the version the agent last saw. Concurrent changes are
        merged, or refused with `VersionConflict`.
        """
        return self._committed(agent_name, writes, now_tick)

    abefore_node = twin(before_node)
    acommit_outputs = twin(commit_outputs)

    def node(
        self, agent_name: str, *, reads: Iterable[str] = (), writes: Iterable[str] = ()
    ) -> Callable[[Node], Node]:
        """Make a function a node that works on shared artifacts.

        The function gets the values of `reads` in its parameter `artifacts`, if it has one, and
        everything else from LangGraph as usual. What it returns under a name in `writes` is
        committed and removed from the update, so no checkpoint contains an artifact. The commit is
        checked against the newest versions when the node began. A function that raises commits
        nothing, and one that modifies an artifact it only reads is refused.
        Each attempt of a `RetryPolicy` gets fresh values, also after a `VersionConflict`.
        """
        agent_name_of(agent_name, "node() takes the name of an agent, then wraps the function")
        given, taken = names_of(reads, "reads"), frozenset(names_of(writes, "writes"))

        def wrap(function: Node) -> Node:
            if not callable(function):
                raise InvalidInput(
                    f"node() wraps a function, not {function!r:.80}. Call a runnable or a "
                    "graph inside one."
                )
            return _wrapped(self, agent_name, given, taken, function)

        return wrap


def _wrapped(
    adapter: CoherenceAdapter, agent: str, reads: list[str], writes: frozenset[str], function: Node
) -> Node:
    call = _called(function)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise InvalidInput(
            f"{_name(function)} yields, and a node on artifacts returns what it made"
        )
    signature, unwritten = inspect.signature(function), frozenset(reads) - writes
    passes = _PARAMETER in signature.parameters
    if reads and not passes:
        raise InvalidInput(
            f"{_name(function)} reads {', '.join(reads)}, and has no parameter `{_PARAMETER}` to "
            "get them in"
        )

    def expect_unchanged(update: Any, given: Mapping[str, Artifact]) -> None:
        """A node may pass on what it reads to the graph, but not a modified version of it."""
        for name, value in _parts(update):
            if name in unwritten and not given[name].holds(value):
                raise InvalidInput(
                    f"{_name(function)} changed {name!r:.80}, which it reads and does not write. "
                    "Name it in writes= to commit it; a part of the graph's state that is no "
                    "artifact needs a name of its own"
                )

    def run(*arguments: Any, **keywords: Any) -> Any:
        turn = adapter._turn(agent, reads, writes)
        if passes:
            keywords[_PARAMETER] = turn.values()
        update, made = _parted(function(*arguments, **keywords), writes)
        expect_unchanged(update, turn.artifacts)
        turn.commit(made)
        return update

    async def arun(*arguments: Any, **keywords: Any) -> Any:
        turn = await adapter._aturn(agent, reads, writes)
        if passes:
            keywords[_PARAMETER] = turn.values()
        update, made = _parted(await function(*arguments, **keywords), writes)
        expect_unchanged(update, turn.artifacts)
        await turn.acommit(made)
        return update

    return _dressed(arun if inspect.iscoroutinefunction(call) else run, function, signature)


def _parted(result: Any, writes: frozenset[str]) -> tuple[Any, dict[str, Any]]:
    """Split a node's result into the update and the artifacts."""
    if not writes or result is None:
        return result, {}
    if isinstance(result, Command):
        update, made = _parted(result.update, writes)
        return (replace(result, update=update) if made else result), made
    if isinstance(result, (list, tuple)):
        return _parted_list(result, writes)
    if isinstance(result, Mapping):
        made = {name: result[name] for name in writes if name in result}
        return {name: value for name, value in result.items() if name not in made}, made
    if inspect.iscoroutine(result):
        result.close()  # Nobody will wait for it.
    raise InvalidInput(
        f"a node that writes artifacts returns a dict, a Command or None, not {result!r:.80}"
    )


def _parts(update: Any) -> Iterator[tuple[str, Any]]:
    """The entries of an update, by name."""
    if isinstance(update, Command):
        yield from _parts(update.update)
    elif isinstance(update, Mapping):
        yield from update.items()
    elif isinstance(update, tuple) and len(update) == 2 and isinstance(update[0], str):
        yield update
    elif isinstance(update, (list, tuple)):
        for one in update:
            yield from _parts(one)


def _parted_list(parts: Sequence[Any], writes: frozenset[str]) -> tuple[list[Any], dict[str, Any]]:
    """Several updates, or pairs of a name and a value."""
    rest: list[Any] = []
    made: dict[str, Any] = {}
    for one in parts:
        if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str):
            if one[0] in writes:
                made[one[0]] = one[1]
            else:
                rest.append(one)
        else:
            update, more = _parted(one, writes)
            rest.append(update)
            made |= more
    return rest, made


def _called(function: Node) -> Any:
    """The function that runs when a node is called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _dressed(made: Node, function: Node, signature: inspect.Signature) -> Node:
    """Copy the name, parameters and types that LangGraph reads, except the ones supplied here."""
    functools.update_wrapper(made, function, updated=())
    made.__name__ = _name(function)
    parameters = [one for name, one in signature.parameters.items() if name != _PARAMETER]
    made.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    hints = getattr(_called(function), "__annotations__", {})
    made.__annotations__ = {name: hint for name, hint in hints.items() if name != _PARAMETER}
    return made


def _name(function: Node) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)
