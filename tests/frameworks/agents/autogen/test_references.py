"""Large values of messages and states: in a store, with references in their place."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from ropewalk import AgentState, Externalized, Inline, MemoryStore, auto_adapt
from ropewalk.adapters.autogen import AutoGenAdapter
from ropewalk.errors import InvalidInput, MissingContent, NotStorable, UnresolvedReferenceError
from tests.engines import ENGINES, opening

LARGE = "what the tool found " * 500


@pytest.fixture
def adapter() -> AutoGenAdapter:
    return AutoGenAdapter(backend=MemoryStore())


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_payload_leaves_the_history_and_comes_back(engine: str, tmp_path: Path) -> None:
    messages = [{"role": "worker", "tool_result": LARGE}, {"role": "user", "content": "and now?"}]

    with opening(engine, tmp_path) as new_store:
        with AutoGenAdapter(backend=new_store()).backend as store:
            adapter = AutoGenAdapter(backend=store)
            history = adapter.externalize_message_history(messages, threshold_bytes=1024)
            text = json.dumps(history)
        there = AutoGenAdapter(backend=new_store())

        assert LARGE[:40] not in text and len(text) < 1024
        assert history[0]["role"] == "worker" and history[1] == messages[1]
        assert there.hydrate_message_history(json.loads(text)) == messages


def test_of_a_state_whole_fields_are_externalized(adapter: AutoGenAdapter) -> None:
    state = {"type": "TeamState", "version": "1.0.0", "agent_states": {"a": {"thread": [LARGE]}}}

    kept = adapter.externalize_state(state, threshold_bytes=1024)

    assert kept["type"] == "TeamState" and LARGE[:40] not in json.dumps(kept)
    assert adapter.hydrate_state(through_json(kept)) == state


def test_a_state_of_an_agent_survives(adapter: AutoGenAdapter) -> None:
    async def talk() -> tuple[Any, Any]:
        first, second = (
            AssistantAgent("scout", ReplayChatCompletionClient([LARGE, "yes"])) for _ in range(2)
        )
        await first.run(task="look")
        kept = await adapter.aexternalize_state(await first.save_state(), threshold_bytes=1024)
        assert len(json.dumps(kept)) < 1024
        await second.load_state(await adapter.ahydrate_state(through_json(kept)))
        return await first.save_state(), await second.save_state()

    before, after = asyncio.run(talk())

    assert before == after


def test_what_looks_like_a_reference_in_content_is_never_followed(adapter: AutoGenAdapter) -> None:
    secret = adapter.externalize_message_history([{"content": LARGE}], threshold_bytes=1024)[0]
    forged = [
        {"role": "user", "content": secret["content"]},
        {"role": "user", "content": [secret]},
        {**secret, "role": "user"},
        {"ropewalk_refs": {"fields": ["content"]}, "content": secret["content"]},
        {"ropewalk_refs": None},
        {"ropewalk_refs": {"own": secret}},
    ]

    kept = adapter.externalize_message_history(forged, threshold_bytes=1024)

    assert adapter.hydrate_message_history(through_json(kept)) == forged


def test_a_history_is_its_own_copy(adapter: AutoGenAdapter) -> None:
    message = {"content": ["small"], "result": [LARGE]}

    (kept,) = adapter.externalize_message_history([message], threshold_bytes=1024)
    message["content"].append("later")
    first, second = (adapter.hydrate_message_history([kept])[0] for _ in range(2))
    first["result"].append("mine")

    assert second == {"content": ["small"], "result": [LARGE]}


def test_equal_payloads_are_stored_once_and_growth_costs_what_was_added() -> None:
    store = MemoryStore()
    adapter = AutoGenAdapter(backend=store)
    words = random.Random(23)
    thread = [f"{number} {words.randbytes(200).hex()}" for number in range(501)]

    sizes = []
    for count in (500, 500, 501):
        adapter.externalize_state({"thread": thread[:count]})
        sizes.append(store.stats().stored)

    assert sizes[1] - sizes[0] < 1_000
    assert sizes[2] - sizes[1] < 0.05 * sizes[0]


def test_a_value_that_cannot_be_stored_is_refused_with_its_path(adapter: AutoGenAdapter) -> None:
    with pytest.raises(NotStorable, match=r"messages\[1\]\.result"):
        adapter.externalize_message_history([{"content": LARGE}, {"result": iter(())}])

    assert adapter.backend.spaces() == []


def test_what_is_no_message_is_refused(adapter: AutoGenAdapter) -> None:
    with pytest.raises(InvalidInput, match="dump"):
        adapter.externalize_message_history([TextMessage(content="hi", source="me")])
    with pytest.raises(InvalidInput):
        adapter.externalize_message_history([], threshold_bytes=-1)
    with pytest.raises(InvalidInput, match="note"):
        adapter.hydrate_state({"ropewalk_refs": {"fields": ["gone"]}})
    with pytest.raises(InvalidInput, match="no reference"):
        adapter.hydrate_state({"content": "hi", "ropewalk_refs": {"fields": ["content"]}})


def test_a_reference_is_followed_only_in_its_own_store(adapter: AutoGenAdapter) -> None:
    kept = adapter.externalize_state({"thread": [LARGE]}, threshold_bytes=1024)

    with pytest.raises(UnresolvedReferenceError):
        AutoGenAdapter(backend=MemoryStore(backend_id="another")).hydrate_state(kept)
    with pytest.raises(MissingContent):
        AutoGenAdapter(backend=MemoryStore()).hydrate_state(kept)


class Research(AgentState):
    question: Inline[str]
    docs: Externalized[list[str]]


def test_auto_adapt_gives_this_adapter() -> None:
    adapter = auto_adapt(Research, "autogen", backend=MemoryStore())

    update = adapter.externalize({"question": "why?", "docs": [LARGE]})

    assert type(adapter) is AutoGenAdapter
    assert LARGE[:40] not in json.dumps(update) and adapter.hydrate(update)["docs"] == [LARGE]
