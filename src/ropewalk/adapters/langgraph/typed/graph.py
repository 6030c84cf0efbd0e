"""Compiled graphs with typed states, and the wrapping of their nodes."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import run_in_executor
from langgraph.constants import START
from langgraph.errors import ParentCommand
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import GraphOutput, StateSnapshot, StateUpdate

from ropewalk.adapters.langgraph.typed.channels import (
    ExternalizedAggregate,
    ExternalizedValue,
    InputValue,
)
from ropewalk.adapters.langgraph.typed.state import GraphState
from ropewalk.errors import InvalidInput
from ropewalk.state import AgentState
from ropewalk.store import Store

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.typed.adapter import LangGraphAdapter

Node = Callable[..., Any]

_MARK: Final = "__ropewalk_adapter__"

_PLAIN: Final = "_ropewalk_plain"
"""Makes `stream` return LangGraph's own chunks, because `invoke` goes through it."""

_INPUT: Final = "__input__"
_COPY: Final = "__copy__"


def wrapped(adapter: LangGraphAdapter, node: Any) -> Any:
    """Wrap a node to get a `GraphState` and return references; keeps its kind."""
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
    """The adapter that wrapped a node, if any."""
    for one in (node, getattr(node, "func", None), getattr(node, "afunc", None)):
        found: LangGraphAdapter | None = getattr(one, _MARK, None)
        if found is not None:
            return found
    return None


# One wrapper per kind of node. Each passes the state in, and converts the result.


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
    """Combine the parts that a generator yields as LangChain does: their sum, else the last."""
    if before is None:
        return part
    try:
        return before + part
    except TypeError:
        return part


def _runnable(adapter: LangGraphAdapter, node: Runnable[Any, Any]) -> Runnable[Any, Any]:
    # LangGraph looks for subgraphs among the variables of these functions.
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
    """The state as a runnable gets it: a subgraph that holds references gets references."""
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
    """The result of a subgraph, with the adapter that loads its references."""
    if isinstance(node, Pregel) and isinstance(result, dict):
        for channel in node.channels.values():
            if isinstance(channel, (ExternalizedValue, ExternalizedAggregate)):
                return channel.adapter.hydrate(result)
    return result


def _store_of(graph: Pregel[Any, Any, Any, Any], name: str) -> Store | None:
    """The store of the references in a field of a graph."""
    channel = graph.channels.get(name)
    kinds = (ExternalizedValue, ExternalizedAggregate)
    return channel.adapter.backend if isinstance(channel, kinds) else None


@contextmanager
def _for_parents(adapter: LangGraphAdapter) -> Iterator[None]:
    """Convert what a subgraph sends to a parent graph."""
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
        # The channels that LangGraph derives from the class itself would not be ours.
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
    """The resolved annotations of a function; none if one of them is undefined."""
    try:
        return get_type_hints(call, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def adapted(adapter: LangGraphAdapter, builder: Any, options: Mapping[str, Any]) -> AdaptedGraph:
    """Compile a graph; the builder is unchanged."""
    if not isinstance(builder, StateGraph):
        raise InvalidInput(f"compile takes a StateGraph, not {builder!r:.80}")
    for name, field in adapter.state_cls.externalized_fields().items():
        if not isinstance(builder.channels.get(name), (ExternalizedValue, ExternalizedAggregate)):
            raise InvalidInput(
                f"this graph keeps {field.name!r} itself: build it with "
                "StateGraph(adapter.schema()), so that its channels keep references"
            )
    compiled = _with_wrapped_nodes(adapter, builder).compile(**options)
    made = AdaptedGraph.__new__(AdaptedGraph)
    made.__dict__.update(vars(compiled))
    made.adapter = adapter
    return made


def externalize_inputs() -> None:
    """Have `StateGraph.compile` externalize the input of graphs that have channels of an adapter.

    LangGraph makes the channel of the input inside `compile`, and stores what is in it before any
    node or channel of ours runs. Nothing else changes, and no other graph does.
    """
    plain = StateGraph.compile
    if hasattr(plain, _MARK):
        return

    @wraps(plain)
    def compile(self: Any, *arguments: Any, **options: Any) -> Any:
        compiled = plain(self, *arguments, **options)
        for channel in self.channels.values():
            if isinstance(channel, (ExternalizedValue, ExternalizedAggregate)):
                compiled.channels[START] = InputValue(channel.adapter, self.input_schema)
                break
        return compiled

    setattr(compile, _MARK, True)
    StateGraph.compile = compile


class AdaptedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph of LangGraph that holds references and shows values.

    Input is externalized before LangGraph sees it. Results, chunks of the streams `values` and
    `updates`, and the values of snapshots are dicts that load externalized values lazily.
    Everything else is as in any compiled graph.
    """

    adapter: LangGraphAdapter

    def __init__(self, *, adapter: LangGraphAdapter, **settings: Any) -> None:
        super().__init__(**settings)
        self.adapter = adapter

    # Running.

    def stream(self, input: Any, config: Any = None, **options: Any) -> Iterator[Any]:
        is_plain = options.pop(_PLAIN, False)
        chunks = super().stream(self.adapter.left(input, None), config, **options)
        show = _Shown(self, options) if not is_plain else None
        for chunk in chunks:
            yield chunk if show is None else show(chunk)

    async def astream(self, input: Any, config: Any = None, **options: Any) -> AsyncIterator[Any]:
        is_plain = options.pop(_PLAIN, False)
        given = await self.adapter.aleft(input, None)
        show = _Shown(self, options) if not is_plain else None
        async for chunk in super().astream(given, config, **options):
            yield chunk if show is None else show(chunk)

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        result = super().invoke(input, config, **options, **{_PLAIN: True})
        return self._result(result, options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        result = await super().ainvoke(input, config, **options, **{_PLAIN: True})
        return self._result(result, options)

    def _result(self, result: Any, options: Mapping[str, Any]) -> Any:
        if options.get("stream_mode", "values") != "values":
            return [_Shown(self, options)(chunk) for chunk in result]
        if isinstance(result, GraphOutput):
            return replace(result, value=self._values(result.value))
        return self._values(result)

    def _values(self, values: Any) -> Any:
        return self.adapter.hydrate(values) if isinstance(values, dict) else values

    # States.

    def get_state(self, config: Any, *, subgraphs: bool = False) -> StateSnapshot:
        return self._snapshot(super().get_state(config, subgraphs=subgraphs))

    async def aget_state(self, config: Any, *, subgraphs: bool = False) -> StateSnapshot:
        return self._snapshot(await super().aget_state(config, subgraphs=subgraphs))

    def get_state_history(self, config: Any, **options: Any) -> Iterator[StateSnapshot]:
        for one in super().get_state_history(config, **options):
            yield self._snapshot(one)

    async def aget_state_history(self, config: Any, **options: Any) -> AsyncIterator[StateSnapshot]:
        async for one in super().aget_state_history(config, **options):
            yield self._snapshot(one)

    def _snapshot(self, snapshot: StateSnapshot) -> StateSnapshot:
        return snapshot._replace(values=self._values(snapshot.values))

    def bulk_update_state(self, config: Any, supersteps: Sequence[Sequence[StateUpdate]]) -> Any:
        return super().bulk_update_state(config, self._updates(supersteps))

    async def abulk_update_state(
        self, config: Any, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> Any:
        made = await self.adapter.backend._threads.run(lambda: self._updates(supersteps))
        return await super().abulk_update_state(config, made)

    def _updates(self, supersteps: Sequence[Sequence[StateUpdate]]) -> list[list[StateUpdate]]:
        return [[self._update(StateUpdate(*one)) for one in updates] for updates in supersteps]

    def _update(self, update: StateUpdate) -> StateUpdate:
        if update.as_node == _INPUT:  # The channel of the input handles it.
            return update
        if update.as_node == _COPY and isinstance(update.values, list):
            made = [(self.adapter.left(one[0], None), *one[1:]) for one in update.values]
            return update._replace(values=made)
        return update._replace(values=self.adapter.left(update.values, None))


class _Shown:
    """Turns chunks of a stream into their public form, whatever their shape."""

    def __init__(self, graph: AdaptedGraph, options: Mapping[str, Any]) -> None:
        self._adapter = graph.adapter
        mode = options.get("stream_mode") or graph.stream_mode
        self._mode = mode if isinstance(mode, str) else None
        self._has_namespace = bool(options.get("subgraphs"))
        self._is_typed = options.get("version") == "v2"

    def __call__(self, chunk: Any) -> Any:
        if self._is_typed:
            return {**chunk, "data": self._payload(chunk["type"], chunk["data"])}
        if self._mode is not None:
            if self._has_namespace:
                namespace, payload = chunk
                return namespace, self._payload(self._mode, payload)
            return self._payload(self._mode, chunk)
        *head, mode, payload = chunk
        return (*head, mode, self._payload(mode, payload))

    def _payload(self, mode: str, payload: Any) -> Any:
        if not isinstance(payload, dict):
            return payload
        if mode == "values":
            return self._adapter.hydrate(payload)
        if mode == "updates":
            return {node: self._update(update) for node, update in payload.items()}
        return payload

    def _update(self, update: Any) -> Any:
        if isinstance(update, list):  # From a node that wrote one channel several times.
            return [self._update(one) for one in update]
        return self._adapter.hydrate(update) if isinstance(update, dict) else update


# Wrapping unwrapped nodes.


def _with_wrapped_nodes(adapter: LangGraphAdapter, builder: Any) -> Any:
    made = copy.copy(builder)
    made.nodes = {
        name: replace(spec, runnable=_wrapped(adapter, spec.runnable))
        for name, spec in builder.nodes.items()
    }
    made.branches = defaultdict(dict)
    for start, branches in builder.branches.items():
        made.branches[start] = {
            name: spec._replace(path=_wrapped(adapter, spec.path))
            for name, spec in branches.items()
        }
    return made


def _wrapped(adapter: LangGraphAdapter, runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The builder's version of a function, around the wrapped function."""
    if wrapped_by(runnable) is adapter:
        return runnable
    if not hasattr(runnable, "func_accepts"):
        made: Runnable[Any, Any] = wrapped(adapter, runnable)
        return made
    inside: Any = copy.copy(runnable)
    if inside.func is None:
        inside.afunc = wrapped(adapter, inside.afunc)
    else:
        inside.func = wrapped(adapter, inside.func)
        inside.afunc = wraps(inside.func)(partial(run_in_executor, None, inside.func))
    return inside
