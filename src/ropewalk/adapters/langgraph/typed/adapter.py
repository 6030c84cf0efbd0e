"""Typed state for graphs that keep LangGraph's own checkpointer."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Annotated, Any, Final, TypedDict, get_args, get_origin

from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.typed.channels import (
    ExternalizedAggregate,
    ExternalizedValue,
    InlineAggregate,
)
from ropewalk.adapters.langgraph.typed.graph import (
    AdaptedGraph,
    adapted,
    externalize_inputs,
    wrapped,
)
from ropewalk.adapters.langgraph.typed.state import (
    GraphState,
    Pairs,
    Reference,
    converted,
    is_empty_of,
    is_object,
    overwritten,
    raw_items,
    with_fields,
)
from ropewalk.adapters.typed_state import Hydrated, StateAdapter, Update, is_reference
from ropewalk.codec import Codec
from ropewalk.errors import InlineSizeExceeded
from ropewalk.state import AgentState, ContentRef, Framework, Runtime, StateField, append_items
from ropewalk.state.content_ref import checkpoint_form, is_checkpoint_form, read_place
from ropewalk.state.externalized import Change, Content, combine, merge_keys, store_changes
from ropewalk.state.fields import UNSET
from ropewalk.state.runtime import IMMUTABLE
from ropewalk.store import KVStore, Store

_SMALL: Final = 64
"""A number, or a text up to this length, is below any sensible threshold."""

_EDITED: Final[dict[Callable[[Any, Any], Any], tuple[type, Callable[[Any, Any], Any]]]] = {
    operator.add: (list, append_items),
    operator.or_: (dict, merge_keys),
    append_items: (list, append_items),
    merge_keys: (dict, merge_keys),
}
"""Reducers that can run without loading the stored value, with the type they need."""


def codec_for(hints: Iterable[Any]) -> Codec:
    """A codec for LangChain's messages and documents, and the classes in annotations."""
    types = GraphTypes()
    types.declare(_classes(hints))
    return Codec(types.registry)


def _classes(hints: Iterable[Any]) -> Iterator[type]:
    for hint in hints:
        if isinstance(hint, type):
            yield hint
        yield from _classes(get_args(hint))


class LangGraphAdapter(StateAdapter):
    """Integrates a typed state into LangGraph, for graphs with LangGraph's own checkpointer.

    `schema()` is for `StateGraph`, and `wrap_node` for its nodes and paths. A node reads a dict
    that loads externalized values lazily, and returns its usual result; checkpoints get
    references, also for the graph's input. Compile with `compile`, so that this also holds for
    `Command` as input and for `update_state`, which pass no node.

    `inline_threshold_bytes` is the maximum size of an inline field in a checkpoint.
    """

    def __init__(
        self,
        state_cls: type[AgentState],
        *,
        backend: Store | KVStore | None = None,
        runtime: Runtime | None = None,
        inline_threshold_bytes: int | None = None,
        framework: Framework | str | None = Framework.LANGGRAPH,
    ) -> None:
        super().__init__(
            state_cls,
            backend=backend,
            runtime=runtime,
            inline_threshold_bytes=inline_threshold_bytes,
            framework=framework,
        )
        self._fields = {name: _unfolded(field) for name, field in self._fields.items()}
        if self.runtime.codec is None:
            known = codec_for([field.type for field in self._fields.values()])
            self.runtime = replace(self.runtime, codec=known)
        self._externalized = {n for n, field in self._fields.items() if field.is_externalized}
        self._serde = JsonPlusSerializer()
        self._schema = self._made_schema()
        externalize_inputs()

    # Building a graph.

    def schema(self) -> type:
        """The state as a `TypedDict` for `StateGraph`, cached.

        Inline fields keep their types and other annotations. Externalized fields have channels
        that hold references.
        """
        return self._schema

    def wrap_node(self, node: Any) -> Any:
        """Wrap a node, or the path of a conditional edge, to work with the values of the state.

        Accepts what LangGraph accepts: functions, coroutines, generators, callable objects,
        partials, runnables and compiled graphs. Name, parameters and types are preserved, so that
        `config`, `runtime`, `writer` and `store` are passed as usual.
        """
        return wrapped(self, node)

    def compile(self, builder: Any, **options: Any) -> AdaptedGraph:
        """Compile a `StateGraph` such that no payload reaches a checkpoint by any path.

        `options` are those of `StateGraph.compile`. Unwrapped nodes and paths are wrapped.
        Results, the streams `values` and `updates`, and the values of snapshots load externalized
        values lazily.
        """
        return adapted(self, builder, options)

    # Values and references.

    def hydrate(self, values: Mapping[str, Any]) -> GraphState:  # type: ignore[override]
        """A dict of a graph's values that loads them lazily."""
        if isinstance(values, GraphState):
            return values
        return GraphState(values, super().hydrate(values), self._initial)

    def externalize(
        self, values: Mapping[str, Any] | AgentState, *, since: Hydrated | None = None
    ) -> Update:
        """An update for the graph, with externalized values stored and replaced by references.

        Names that the state does not have are left to LangGraph.
        """
        made: Update = converted(values, _Since(self, since))
        return made

    def value(self, given: Any) -> Any:
        """The value of a reference in any form; anything else is returned as it is.

        For references outside of a field, such as the result of `interrupt`. By calling it, you
        confirm that the reference may be resolved.
        """
        if is_reference(given):
            ref = read_place("value", given)
            return ref.resolve(self.backend, codec=self.runtime.coding)
        return given

    # For wrapped nodes, channels and graphs.

    def entered(self, state: Any) -> Any:
        """The state that a node gets."""
        if is_object(state):
            held = {name: getattr(state, name, None) for name in self._externalized}
            return with_fields(
                state, {name: self.value(one) for name, one in held.items() if is_reference(one)}
            )
        if not isinstance(state, dict):
            return state
        self.renew(dict(raw_items(state)))
        return self.hydrate(state)

    async def aentered(self, state: Any) -> Any:
        """The same from an event loop."""
        if self.runtime.expires_at() is None:
            return self.entered(state)
        return await self.backend._threads.run(lambda: self.entered(state))

    def left(self, result: Any, entered: Any) -> Any:
        """A node's result, as LangGraph gets it."""
        since = entered.view if isinstance(entered, GraphState) else None
        return converted(result, _Since(self, since))

    async def aleft(self, result: Any, entered: Any) -> Any:
        """The same from an event loop, without blocking it."""
        if is_empty_of(result, self._externalized):
            return self.left(result, entered)
        return await self.backend._threads.run(lambda: self.left(result, entered))

    def given(self, values: Any) -> Any:
        """The input of a graph as its checkpoint gets it."""
        made = self.left(values, None)
        return dict(made) if isinstance(made, Update) else made

    def written(self, field: StateField, value: Any) -> Reference:
        """What a channel stores for a value written to it."""
        value = overwritten(value)[1]
        if not is_reference(value):
            warnings.warn(
                f"the value of {field.name!r} came to LangGraph as it is, so that it may be in a "
                "checkpoint, too. Compile the graph with adapter.compile(builder, ...), or wrap "
                "the node that wrote it with adapter.wrap_node.",
                stacklevel=2,
            )
        return self.kept(field, value)

    def kept(self, field: StateField, value: Any) -> Reference:
        """What a channel holds in place of a value."""
        if is_checkpoint_form(value):
            return Reference(checkpoint_form(read_place(field.name, value)))
        change = self._changed(field.name, value, None)
        store_changes(self.runtime, [change])
        return _reference(change.content)

    def folded(self, field: StateField, left: Reference | None, values: list[Any]) -> Reference:
        """What a channel with a reducer stores after several writes in one step."""
        for value in values:
            is_whole, inner = overwritten(value)
            if is_whole:
                return self.written(field, inner)
        refs = [read_place(field.name, self.written(field, value)) for value in values]
        if left is not None:
            refs.insert(0, read_place(field.name, left))
            return self._reduced_once(field, refs)
        try:
            initial = self._initial(field.name)
        except KeyError:
            return self._reduced_once(field, refs)
        if not initial and _is_edited(field, refs[:1]):  # Onto nothing: the current value.
            return self._reduced_once(field, refs)
        return self._reduced_once(field, refs, initial)

    def _reduced_once(self, field: StateField, refs: list[ContentRef], *initial: Any) -> Reference:
        """Reduce several writes to one; the left operand is loaded only if necessary."""
        assert field.reducer is not None
        first, *rest = refs
        if not rest and not initial:
            return Reference(checkpoint_form(first))
        if not initial and _is_edited(field, refs):
            _, alike = _EDITED[field.reducer]
            joined = reduce(alike, map(self.value, rest))
            return Reference(checkpoint_form(combine(self.runtime, alike, first, joined)))
        content = Content(self.runtime, None if initial else first, self._cache)
        parts = initial or (content.value(),)
        parts += tuple(map(self.value, refs if initial else rest))
        store_changes(self.runtime, [content.assigned(reduce(field.reducer, parts))])
        return _reference(content)

    def _initial(self, name: str) -> Any:
        """The value of a field before any write; KeyError if there is none."""
        field = self._fields.get(name)
        if field is None:
            raise KeyError(name)
        if field.default is not UNSET:
            return self.runtime.coding.decode(self.runtime.encode(field.default))
        if field.reducer is None or not field.is_externalized:
            raise KeyError(name)
        made = get_origin(field.type) or field.type
        if made not in (list, dict, set, tuple, str, bytes, int, float):
            raise KeyError(name)
        return made()

    def stored_pairs(self, pairs: Pairs, since: Hydrated | None) -> list[tuple[str, Any]]:
        """Replace the values of fields by references; stored together, or not at all."""
        made: list[tuple[str, Any]] = []
        changes: dict[int, Change] = {}
        for at, (name, value) in enumerate(pairs):
            field = self._fields.get(name)
            if field is not None and not field.is_externalized:
                self._check_size(field, overwritten(value)[1])
            elif field is not None:
                inner = overwritten(value)[1]
                if not isinstance(inner, Reference):
                    changes[at] = self._changed(name, inner, since)
            made.append((name, value))
        store_changes(self.runtime, list(changes.values()))
        for at, change in changes.items():
            name, value = made[at]
            made[at] = name, _again(value, _reference(change.content))
        return made

    def _check_size(self, field: StateField, value: Any) -> None:
        """Raise `InlineSizeExceeded` if a value takes too much of LangGraph's checkpoints."""
        if type(value) in IMMUTABLE and len(f"{value!r:.{_SMALL + 1}}") <= _SMALL:
            return
        try:
            _, data = self._serde.dumps_typed(value)
        except (TypeError, ValueError):
            return  # Not a checkpoint error yet: LangGraph raises it, if there is a checkpointer.
        limit = self.runtime.inline_threshold_bytes
        if len(data) > limit:
            raise InlineSizeExceeded(field.name, len(data), limit)

    def _made_schema(self) -> type:
        hints = {name: self._hint(field) for name, field in self._fields.items()}
        made: type = TypedDict(self.state_cls.__name__, hints, total=False)  # type: ignore[misc]
        return made

    def _hint(self, field: StateField) -> Any:
        if field.is_externalized:
            kind = ExternalizedValue if field.reducer is None else ExternalizedAggregate
            return Annotated[field.type, kind(self, field, field.name)]
        if field.reducer is None or any(map(_is_for_langgraph, field.metadata)):
            return Annotated[(field.type, *field.metadata)] if field.metadata else field.type
        channel = InlineAggregate(
            field.type, field.reducer, lambda value: self._check_size(field, value)
        )
        return Annotated[field.type, channel]


class _Since:
    """Stores the changes since a state was passed to a node."""

    def __init__(self, adapter: LangGraphAdapter, since: Hydrated | None) -> None:
        self.store, self._adapter, self._since = adapter.backend, adapter, since

    def __call__(self, pairs: Pairs) -> list[tuple[str, Any]]:
        return self._adapter.stored_pairs(pairs, self._since)


def _is_edited(field: StateField, refs: Sequence[ContentRef]) -> bool:
    """Whether writes can be applied as edits of stored content."""
    kind, _ = _EDITED.get(field.reducer, (None, None)) if field.reducer else (None, None)
    return kind is not None and all(ref.type_name == kind.__name__ for ref in refs)


def _is_for_langgraph(said: Any) -> bool:
    """Whether an annotation is a channel, which then does its own reducing."""
    return isinstance(said, BaseChannel) or (
        isinstance(said, type) and issubclass(said, BaseChannel)
    )


def _unfolded(field: StateField) -> StateField:
    """A field whose type was `Annotated` inside its marker, with the reducer from there."""
    if get_origin(field.type) is not Annotated or not field.is_externalized:
        return field
    held, *metadata = get_args(field.type)
    found = [one for one in metadata if callable(one) and not isinstance(one, type)]
    reducer = field.reducer or (found[-1] if found else None)
    return StateField(field.name, field.kind, held, reducer, field.default)


def _again(value: Any, inner: Any) -> Any:
    """Wrap a value the way it came."""
    is_whole, _ = overwritten(value)
    if not is_whole:
        return inner
    return {"__overwrite__": inner}


def _reference(content: Content) -> Reference:
    assert content.ref is not None
    return Reference(checkpoint_form(content.ref))


Adapter = LangGraphAdapter
"""Looked up by `auto_adapt`."""
