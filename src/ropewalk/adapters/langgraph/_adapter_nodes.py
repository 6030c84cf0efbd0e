"""Nodes of every kind that LangGraph takes, wrapped so that they see values and give references."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import ParentCommand
from langgraph.pregel import Pregel

from ropewalk.adapters.langgraph._adapter_channels import ExternalizedAggregate, ExternalizedValue
from ropewalk.adapters.langgraph._adapter_state import GraphState
from ropewalk.errors import InvalidInput
from ropewalk.state import AgentState
from ropewalk.store import Store

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._adapter import LangGraphAdapter

Node = Callable[..., Any]

_MARK: Final = "__ropewalk_adapter__"


def wrapped(adapter: LangGraphAdapter, node: Any) -> Any:
    """A node that gets a `GraphState` and gives references; of the same kind as the one given."""
    if wrapped_by(node) is adapter:
        return node
    if isinstance(node, Runnable):
        return _runnable(adapter, node)
    if not callable(node):
        raise InvalidInput(f"a node is a function, a callable or a Runnable, not {node!r:.80}")
    call = _called(node)
    if inspect.isasyncgenfunction(call):
        made = _stream(adapter, node)
    elif inspect.isgeneratorfunction(call):
        made = _generator(adapter, node)
    elif inspect.iscoroutinefunction(call):
        made = _coroutine(adapter, node)
    else:
        made = _function(adapter, node)
    return _dressed(adapter, made, node)


def wrapped_by(node: Any) -> LangGraphAdapter | None:
    """The adapter that wrapped a node, if one did."""
    for one in (node, getattr(node, "func", None), getattr(node, "afunc", None)):
        found: LangGraphAdapter | None = getattr(one, _MARK, None)
        if found is not None:
            return found
    return None


# One for each kind. Each gives the node a state, and takes its result back.


def _function(adapter: LangGraphAdapter, node: Node) -> Node:
    def run(state: Any, *arguments: Any, **keywords: Any) -> Any:
        entered = adapter.entered(state)
        with _for_parents(adapter):
            result = node(entered, *arguments, **keywords)
        return adapter.left(result, entered)

    return run


def _coroutine(adapter: LangGraphAdapter, node: Node) -> Node:
    async def run(state: Any, *arguments: Any, **keywords: Any) -> Any:
        entered = await adapter.aentered(state)
        with _for_parents(adapter):
            result = await node(entered, *arguments, **keywords)
        return await adapter.aleft(result, entered)

    return run


def _generator(adapter: LangGraphAdapter, node: Node) -> Node:
    def run(state: Any, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        entered = adapter.entered(state)
        result: Any = None
        with _for_parents(adapter):
            for part in node(entered, *arguments, **keywords):
                result = _joined(result, part)
        yield adapter.left(result, entered)

    return run


def _stream(adapter: LangGraphAdapter, node: Node) -> Node:
    async def run(state: Any, *arguments: Any, **keywords: Any) -> AsyncIterator[Any]:
        entered = await adapter.aentered(state)
        result: Any = None
        with _for_parents(adapter):
            async for part in node(entered, *arguments, **keywords):
                result = _joined(result, part)
        yield await adapter.aleft(result, entered)

    return run


def _joined(before: Any, part: Any) -> Any:
    """What LangChain makes of the parts that a generator yields: their sum, else the last."""
    if before is None:
        return part
    try:
        return before + part
    except TypeError:
        return part


def _runnable(adapter: LangGraphAdapter, node: Runnable[Any, Any]) -> Runnable[Any, Any]:
    # LangGraph finds a subgraph among what these functions refer to.
    def run(state: Any, config: RunnableConfig) -> Any:
        entered = adapter.entered(state)
        with _for_parents(adapter):
            result = node.invoke(_handed_to(adapter, node, entered), config)
        return adapter.left(_taken_from(node, result), entered)

    async def arun(state: Any, config: RunnableConfig) -> Any:
        entered = await adapter.aentered(state)
        with _for_parents(adapter):
            result = await node.ainvoke(_handed_to(adapter, node, entered), config)
        return await adapter.aleft(_taken_from(node, result), entered)

    for one in (run, arun):
        setattr(one, _MARK, adapter)
    return RunnableLambda(run, arun, name=node.get_name())


def _handed_to(adapter: LangGraphAdapter, node: Runnable[Any, Any], state: Any) -> Any:
    """The state as a runnable gets it: a subgraph that keeps references is handed references."""
    if not isinstance(node, Pregel) or not isinstance(state, GraphState):
        return state
    builder = getattr(node, "builder", None)
    wanted = node.channels if builder is None else builder.schemas[builder.input_schema]
    return {
        name: state.raw(name) if _store_of(node, name) is adapter.backend else state[name]
        for name in state
        if name in wanted
    }


def _taken_from(node: Runnable[Any, Any], result: Any) -> Any:
    """The result of a subgraph, which says by which adapter its references are loaded."""
    if isinstance(node, Pregel) and isinstance(result, dict):
        for channel in node.channels.values():
            if isinstance(channel, (ExternalizedValue, ExternalizedAggregate)):
                return channel.adapter.hydrate(result)
    return result


def _store_of(graph: Pregel[Any, Any, Any, Any], name: str) -> Store | None:
    """The store whose references a graph keeps in a field."""
    channel = graph.channels.get(name)
    kinds = (ExternalizedValue, ExternalizedAggregate)
    return channel.adapter.backend if isinstance(channel, kinds) else None


@contextmanager
def _for_parents(adapter: LangGraphAdapter) -> Iterator[None]:
    """Take what a graph inside sends to the graph that this node is in, or above it."""
    try:
        yield
    except ParentCommand as error:
        error.args = (adapter.left(error.args[0], None), *error.args[1:])
        raise


# What LangGraph reads from a function: its name, its parameters and their types.


def _called(node: Any) -> Any:
    """The function that runs when a node is called."""
    while isinstance(node, functools.partial):
        node = node.func
    if inspect.isfunction(node) or inspect.ismethod(node) or inspect.isbuiltin(node):
        return node
    return node if isinstance(node, type) else type(node).__call__


def _dressed(adapter: LangGraphAdapter, made: Node, node: Node) -> Node:
    functools.update_wrapper(made, node, updated=())
    if not hasattr(node, "__name__"):
        made.__name__ = type(node).__name__
    setattr(made, _MARK, adapter)
    try:
        signature = inspect.signature(node)
    except (TypeError, ValueError):
        return made
    first = next(iter(signature.parameters), None)
    hints = _hints(_called(node))
    hint = hints.get(first, inspect.Parameter.empty) if first is not None else None
    if isinstance(hint, type) and issubclass(hint, AgentState):
        # What LangGraph would make of the class itself has no channels of ours.
        hint = adapter.schema()
    parameters = [
        one.replace(annotation=hint) if one.name == first else one
        for one in signature.parameters.values()
    ]
    made.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    made.__annotations__ = {
        name: hint if name == first else said
        for name, said in hints.items()
        if name != first or hint is not inspect.Parameter.empty
    }
    return made


def _hints(call: Any) -> Mapping[str, Any]:
    """What the annotations of a function mean; none if they name what is not there."""
    try:
        return get_type_hints(call, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
