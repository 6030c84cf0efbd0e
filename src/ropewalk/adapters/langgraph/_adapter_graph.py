"""A compiled graph whose input, results and snapshots go through an adapter."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor
from langgraph.constants import START
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import GraphOutput, StateSnapshot, StateUpdate

from ropewalk.adapters.langgraph._adapter_channels import (
    ExternalizedAggregate,
    ExternalizedValue,
    InputValue,
)
from ropewalk.adapters.langgraph._adapter_nodes import wrapped, wrapped_by
from ropewalk.errors import InvalidInput

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._adapter import LangGraphAdapter

_PLAIN: Final = "_ropewalk_plain"
"""Asks `stream` for what LangGraph gives, because `invoke` goes through it."""
_INPUT: Final = "__input__"
_COPY: Final = "__copy__"


def adapted(adapter: LangGraphAdapter, builder: Any, options: Mapping[str, Any]) -> AdaptedGraph:
    """Compile a graph; the builder stays as it is."""
    if not isinstance(builder, StateGraph):
        raise InvalidInput(f"compile takes a StateGraph, not {builder!r:.80}")
    for name, field in adapter.state_cls.externalized_fields().items():
        if not isinstance(builder.channels.get(name), (ExternalizedValue, ExternalizedAggregate)):
            raise InvalidInput(
                f"this graph keeps {field.name!r} itself: build it with "
                "StateGraph(adapter.schema()), so that its channels keep references"
            )
    compiled = _with_wrapped_nodes(adapter, builder).compile(**options)
    compiled.channels[START] = InputValue(adapter, builder.input_schema)
    made = AdaptedGraph.__new__(AdaptedGraph)
    made.__dict__.update(vars(compiled))
    made.adapter = adapter
    return made


class AdaptedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph of LangGraph that hands over references and shows values.

    What comes from outside is externalized before LangGraph sees it. Results, chunks of
    the streams `values` and `updates`, and the values of snapshots are dicts that load an
    externalized value when it is read. All else is as in any compiled graph.
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
        if update.as_node == _INPUT:  # The channel of the input takes care of it.
            return update
        if update.as_node == _COPY and isinstance(update.values, list):
            made = [(self.adapter.left(one[0], None), *one[1:]) for one in update.values]
            return update._replace(values=made)
        return update._replace(values=self.adapter.left(update.values, None))


class _Shown:
    """Turns chunks of a stream into what a consumer sees, in whatever shape they come."""

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
        if isinstance(update, list):  # Of a node that wrote one channel several times.
            return [self._update(one) for one in update]
        return self._adapter.hydrate(update) if isinstance(update, dict) else update


# Wrapping what was not wrapped.


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
    """What a function became in the builder, around the function wrapped."""
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
