"""Typed state in the context of a workflow: large values stay out of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from workflows import Context, Workflow, step
from workflows.context import JsonSerializer
from workflows.context.state_store import DictState, InMemoryStateStore
from workflows.events import StartEvent, StopEvent
from workflows.plugins.basic import BasicRuntime

from ropewalk import AgentState, Externalized, Inline, MemoryStore, auto_adapt
from ropewalk.adapters.llamaindex import ContextStore, LlamaIndexAdapter
from ropewalk.errors import InlineSizeExceeded, InvalidInput, NotStorable, UnknownField

Given = Callable[[ContextStore, Any], Coroutine[Any, Any, Any]]


class WorkflowState(AgentState):
    current_step: Inline[str]
    docs: Externalized[list[dict[str, Any]]]
    tries: Inline[int] = 3  # type: ignore[assignment]


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as made:
        yield made


@pytest.fixture
def adapter(store: MemoryStore) -> LlamaIndexAdapter:
    return LlamaIndexAdapter(WorkflowState, backend=store, inline_threshold_bytes=1000)


def in_step(adapter: LlamaIndexAdapter, act: Given) -> tuple[Any, dict[str, Any]]:
    """What a function returned that ran in a step of a workflow, and the context's dump."""

    class One(Workflow):
        @step
        async def act(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await act(adapter.context_store(ctx.store), ctx.store))

    async def go() -> tuple[Any, dict[str, Any]]:
        handler = One(runtime=BasicRuntime()).run()
        return await handler, handler.ctx.to_dict()

    return asyncio.run(go())


def test_a_field_is_set_and_read_and_its_payload_is_in_no_dump(adapter: LlamaIndexAdapter) -> None:
    docs = [{"id": "doc-1", "text": "large retrieved text"}]

    async def act(state: ContextStore, raw: Any) -> Any:
        await state.set("current_step", "retrieve")
        await state.set("docs", docs)
        return await state.get("current_step"), await state.get("docs"), await state.get("tries")

    found, dump = in_step(adapter, act)

    assert found == ("retrieve", docs, 3)
    assert "large retrieved text" not in json.dumps(dump)
    assert "ropewalk_ref" in json.dumps(dump)


def test_parts_of_a_value_that_several_steps_set_at_once_are_all_there(
    adapter: LlamaIndexAdapter,
) -> None:
    async def act(state: ContextStore, raw: Any) -> Any:
        await state.set("docs", [{} for _ in range(5)])
        await asyncio.gather(
            *(adapter.context_store(raw).set(f"docs.{at}.id", at) for at in range(5))
        )
        return await state.get("docs")

    found, _ = in_step(adapter, act)

    assert found == [{"id": at} for at in range(5)]


def test_an_inline_value_changes_only_when_it_is_set(store: MemoryStore) -> None:
    class Small(AgentState):
        seen: Inline[dict[str, Any]]

    adapter = LlamaIndexAdapter(Small, backend=store, inline_threshold_bytes=100)

    async def act(state: ContextStore, raw: Any) -> Any:
        await state.set("seen", {"a": [1]})
        (await state.get("seen"))["b"] = 2
        (await state.get("seen.a")).append(2)
        with pytest.raises(InlineSizeExceeded):
            await state.set("seen.c", "large" * 100)
        return await raw.get("seen")

    found, _ = in_step(adapter, act)

    assert found == {"a": [1]}


def test_a_checkpoint_dict_is_read_by_the_class_of_the_state(
    adapter: LlamaIndexAdapter, store: MemoryStore
) -> None:
    async def act(state: ContextStore, raw: Any) -> Any:
        await state.set("docs", [{"id": 1}])
        await state.set("current_step", "s")
        return await state.to_checkpoint_dict()

    kept, _ = in_step(adapter, act)
    again = WorkflowState.from_checkpoint_dict(json.loads(json.dumps(kept)), backend=store)

    assert kept.keys() == {"docs", "current_step"}
    assert again.docs == [{"id": 1}] and again.current_step == "s"


def test_a_dumped_context_reads_its_values_later(adapter: LlamaIndexAdapter) -> None:
    async def write(state: ContextStore, raw: Any) -> None:
        await state.set("docs", [{"id": 1}])

    _, dump = in_step(adapter, write)
    restored = InMemoryStateStore.from_dict(json.loads(json.dumps(dump))["state"], JsonSerializer())

    assert asyncio.run(adapter.context_store(restored).get("docs")) == [{"id": 1}]


def test_paths_are_those_of_the_framework(adapter: LlamaIndexAdapter) -> None:
    async def act(state: ContextStore, raw: Any) -> Any:
        await state.set("docs", [{"id": 1, "meta": {}}])
        await state.set("docs.0.meta.lang", "en")
        await raw.set("plain", [{"id": 1, "meta": {}}])
        await raw.set("plain.0.meta.lang", "en")
        assert await state.get("docs") == await raw.get("plain")
        for held, name in ((state, "docs"), (raw, "plain")):
            assert await held.get(f"{name}.0.meta.lang") == "en"
            assert await held.get(f"{name}.7", default=None) is None
            with pytest.raises(ValueError, match="not found"):
                await held.get(f"{name}.7")
        with pytest.raises(ValueError, match="not found"):
            await state.get("current_step")
        return await state.get("current_step", default="none")

    assert in_step(adapter, act)[0] == "none"


def test_what_is_read_belongs_to_the_reader_until_it_is_set(adapter: LlamaIndexAdapter) -> None:
    async def act(state: ContextStore, raw: Any) -> Any:
        given = [{"id": 1}]
        await state.set("docs", given)
        given.append({"id": 2})
        docs = await state.get("docs")
        docs[0]["id"] = 9
        assert await state.get("docs") == [{"id": 1}]
        await state.set("docs", docs)
        return await state.get("docs")

    assert in_step(adapter, act)[0] == [{"id": 9}]


def test_a_change_of_a_large_value_stores_the_change(
    adapter: LlamaIndexAdapter, store: MemoryStore
) -> None:
    async def act(state: ContextStore, raw: Any) -> None:
        docs = [{"id": number, "text": f"{number * 7919:x}" * 100} for number in range(2000)]
        await state.set("docs", docs)
        before = store.sizes.written_bytes
        for number in range(10):
            docs = await state.get("docs")
            docs[number * 100]["text"] = "changed"
            await state.set("docs", docs)
        assert store.sizes.written_bytes - before < 200_000

    in_step(adapter, act)


def test_what_cannot_be_set_is_refused(adapter: LlamaIndexAdapter) -> None:
    async def act(state: ContextStore, raw: Any) -> None:
        with pytest.raises(InlineSizeExceeded):
            await state.set("current_step", "x" * 2000)
        with pytest.raises(NotStorable, match=r"state\.docs\[0\]"):
            await state.set("docs", [object()])
        with pytest.raises(UnknownField):
            await state.set("nothing", 1)
        with pytest.raises(UnknownField):
            await state.get("nothing")
        # As it comes from a user, it could name anybody's content.
        await state.set("docs", [{"id": 1}])
        with pytest.raises(InvalidInput, match="reference"):
            await state.set("docs", await raw.get("docs"))

    assert in_step(adapter, act)[1]["state"]["state_data"]["_data"].keys() == {"docs"}


def test_a_reference_inside_a_value_is_not_followed(adapter: LlamaIndexAdapter) -> None:
    async def act(state: ContextStore, raw: Any) -> Any:
        await state.set("docs", [{"secret": 1}])
        reference = await raw.get("docs")
        await state.set("current_step", json.dumps(reference))
        await state.set("docs", [reference])
        return await state.get("docs") == [reference]

    assert in_step(adapter, act)[0]


def test_the_adapter_is_found_by_the_framework(store: MemoryStore) -> None:
    adapter = auto_adapt(WorkflowState, "llamaindex", backend=store)

    assert type(adapter) is LlamaIndexAdapter
    state = adapter.context_store(InMemoryStateStore(DictState()))
    asyncio.run(state.set("docs", [{"id": 1}]))
    assert asyncio.run(state.get("docs.0.id")) == 1
