"""OpenAI-style dicts become messages and come back as they were."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput
from ropewalk.threads import (
    AudioPart,
    ImagePart,
    Message,
    OtherPart,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    as_message,
)
from tests.strategies import same
from tests.threads.openai_dicts import CHAT, ITEMS, Raw, dicts


def stored_and_read(message: Message) -> Message:
    """What a store would give back."""
    codec = Codec()
    return Message.from_stored(codec.decode(codec.encode(message.to_stored())))


def empty(value: Any) -> None:
    """Take everything out of every container, all the way down."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            empty(one)
        value.clear()


def sorted_keys(value: Any) -> Any:
    """The order of keys is no part of what a dict says here."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("raw", [*CHAT, *ITEMS])
def test_a_dict_comes_back_as_it_was(raw: Raw) -> None:
    before = copy.deepcopy(raw)

    message = Message.from_openai(raw)

    assert same(sorted_keys(message.to_openai()), sorted_keys(before))
    assert same(sorted_keys(stored_and_read(message).to_openai()), sorted_keys(before))
    assert raw == before


@given(dicts)
def test_any_dict_comes_back_as_it_was(raw: Raw) -> None:
    message = Message.from_openai(raw)

    assert same(sorted_keys(message.to_openai()), sorted_keys(raw))
    assert same(sorted_keys(stored_and_read(message).to_openai()), sorted_keys(raw))


def test_a_content_becomes_parts() -> None:
    content = [
        {"type": "text", "text": "Look", "mark": 1},
        {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
        {"type": "input_image", "file_id": "f"},
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
        {"type": "refusal", "refusal": "No."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "42"}]},
        {"type": "file", "file": {"file_id": "f"}},
        "bare",
    ]

    message = Message.from_openai({"role": "user", "content": content})

    assert message.content == (
        TextPart("Look", extra={"mark": 1}),
        ImagePart("u", "low"),
        ImagePart(file_id="f", type="input_image"),
        AudioPart("UklG", "wav"),
        TextPart("No.", type="refusal"),
        ToolCall("c", "f", {"a": 1}, type="tool_use"),
        ToolResult("c", [TextPart("42")]),
        OtherPart({"type": "file", "file": {"file_id": "f"}}),
        TextPart("bare"),
    )


def test_calls_become_calls() -> None:
    message = Message.from_openai(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "custom", "custom": {"name": "g", "input": "free"}},
                {"id": "c", "type": "of tomorrow"},
            ],
        }
    )

    assert message.tool_calls == (
        ToolCall("a", "f", "{}"),
        ToolCall("b", "g", "free", type="custom"),
    )


def test_a_call_item_is_a_message_of_the_assistant() -> None:
    message = Message.from_openai(
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "weather",
            "arguments": "{}",
            "status": "completed",
        }
    )

    assert (message.role, message.id, message.content) == ("assistant", "fc_1", None)
    assert message.tool_calls == (ToolCall("call_1", "weather", "{}"),)
    assert message.extra == {"status": "completed"}


def test_an_output_item_is_a_message_of_the_tool() -> None:
    message = Message.from_openai(
        {"type": "function_call_output", "call_id": "call_1", "output": "Sunny"}
    )

    assert (message.role, message.tool_call_id, message.text) == ("tool", "call_1", "Sunny")


def test_an_unknown_item_is_kept_whole() -> None:
    message = Message.from_openai({"type": "reasoning", "id": "rs_1", "summary": []})

    assert (message.role, message.id) == ("assistant", "rs_1")
    assert message.content == (OtherPart({"type": "reasoning", "summary": []}),)


def test_the_role_of_old_results_is_that_of_tools() -> None:
    message = Message.from_openai({"role": "function", "name": "f", "content": "42"})

    assert (message.role, message.name) == ("tool", "f")


def test_both_ways_to_say_usage_are_read() -> None:
    chat = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 8, "details": {}}
    responses = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 8, "details": {}}

    messages = [
        Message.from_openai({"role": "assistant", "content": "", "usage": usage, "id": 1})
        for usage in (chat, responses)
    ]

    assert messages[0].usage == messages[1].usage == Usage(3, 4, 8, {"details": {}})


def test_a_message_of_our_own_is_written_as_a_request_takes_it() -> None:
    message = Message(
        "assistant",
        "Let me see.",
        id="m",
        name="helper",
        tool_calls=[ToolCall("c", "f", {"city": "Évora"})],
        usage=Usage(1, 2),
        metadata={"private": True},
    )

    assert message.to_openai() == {
        "role": "assistant",
        "content": "Let me see.",
        "name": "helper",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
            for arguments in ['{"city": "Évora"}']
        ],
    }


def test_a_call_in_the_content_is_written_beside_it() -> None:
    message = Message("assistant", [TextPart("Wait"), ToolCall("c", "f")])

    written = message.to_openai()

    assert written["content"] == [{"type": "text", "text": "Wait"}]
    assert [call["id"] for call in written["tool_calls"]] == ["c"]


def test_a_call_that_is_in_the_content_twice_is_written_twice() -> None:
    message = Message("assistant", [ToolCall("c", "f"), ToolCall("c", "f")])

    written = message.to_openai()

    assert written["content"] is None
    assert [call["id"] for call in written["tool_calls"]] == ["c", "c"]


def test_a_result_that_is_all_of_a_tools_message_is_written_as_its_content() -> None:
    message = Message("tool", [ToolResult("c", "42")])

    assert message.to_openai() == {"role": "tool", "tool_call_id": "c", "content": "42"}


def test_a_changed_field_is_written_as_it_is_now() -> None:
    message = Message.from_openai(
        {"role": "user", "content": ["bare"], "id": "old", "name": None, "created_at": 1.5}
    )

    written = message.replace(content="new", id="new", name="Ada").to_openai()

    assert written == {
        "role": "user",
        "content": "new",
        "id": "new",
        "name": "Ada",
        "created_at": 1.5,
    }


def test_a_key_that_was_not_there_is_written_once_its_field_is_set() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = Message.from_openai({"role": "assistant", "tool_calls": [call]})

    written = message.replace(content="Wait").to_openai()

    assert written == {"role": "assistant", "content": "Wait", "tool_calls": [call]}


def test_a_changed_output_is_written_as_it_is_now() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": ["bare"]}

    written = Message.from_openai(item).replace(content="new").to_openai()

    assert written == {**item, "output": "new"}


def test_an_item_of_another_role_is_written_as_a_message() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "Sunny"}

    written = Message.from_openai(item).replace(role="user").to_openai()

    assert written == {"role": "user", "content": "Sunny", "tool_call_id": "c"}


def test_a_part_that_would_not_come_back_exactly_is_kept_whole() -> None:
    raw = {"type": "tool_use", "name": "f", "input": {}}

    message = Message("assistant", [raw])

    assert message.content == (OtherPart(raw),)


def test_how_a_message_was_written_is_no_part_of_what_it_is() -> None:
    raw = {"role": "user", "content": "Hi", "name": None, "id": 1, "created_at": 5}

    message = Message.from_openai(raw)

    assert message == Message("user", "Hi", id=1, created_at=message.created_at)


def test_an_output_of_an_unknown_kind_is_a_message_of_the_tool() -> None:
    message = Message.from_openai({"type": "shell_call_output", "output": []})

    assert message.role == "tool"


def test_an_item_that_no_longer_fits_its_form_is_written_as_a_message() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    message = Message.from_openai(item)

    written = message.replace(tool_calls=(), content="Never mind.").to_openai()

    assert written == {"role": "assistant", "content": "Never mind."}


@pytest.mark.parametrize("raw", [*CHAT, *ITEMS])
def test_a_message_shares_nothing_with_what_was_read_and_written(raw: Raw) -> None:
    mine = copy.deepcopy(raw)
    message = Message.from_openai(mine)

    empty(mine)
    empty(message.to_openai())

    assert message.to_openai() == raw


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({}, "role"),
        ({"content": "Hello"}, "role"),
        ({"role": "human", "content": "Hello"}, "role"),
        ({"role": None}, "role"),
        ({"role": ["user"]}, "role"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "user", "content": {"type": "text", "text": "no list"}}, "content"),
        ({"role": "user", "content": [5]}, "content"),
        ({"role": "user", "name": 5}, "name"),
        ({"role": "user", "id": ""}, "id"),
        ({"role": "user", "id": True}, "id"),
        ({"role": "user", "id": 1.5}, "id"),
        ({"role": "user", "tool_calls": "f"}, "tool_calls"),
        ({"role": "user", "tool_calls": ["f"]}, "tool_calls"),
        ({"role": "user", "tool_call_id": 5}, "tool_call_id"),
        ({"role": "user", "usage": 5}, "usage"),
        ({"role": "user", "usage": {"prompt_tokens": -1}}, "usage.input_tokens"),
        ({"role": "user", "usage": {"total_tokens": "7"}}, "usage.total_tokens"),
        ({"role": "user", "metadata": [1]}, "metadata"),
        ({"role": "user", "created_at": "yesterday"}, "created_at"),
        ({"role": "user", "created_at": "2025-01-31T12:00:00"}, "created_at"),
        ({"role": "user", "created_at": True}, "created_at"),
        ({"role": "user", "created_at": float("nan")}, "created_at"),
        ({"role": "user", "created_at": 1_700_000_000_000}, "created_at"),
        ("Hello", "message"),
        (None, "message"),
    ],
)
def test_a_dict_that_makes_no_sense_is_refused_with_the_name_of_the_field(
    raw: Any, named: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"\b{named}\b"):
        as_message(raw)


def test_a_dict_that_holds_itself_is_refused() -> None:
    endless: Raw = {"role": "user", "content": "Hello"}
    endless["more"] = [endless]

    with pytest.raises(InvalidInput, match="holds itself"):
        as_message(endless)


def test_a_result_that_holds_itself_is_refused() -> None:
    endless: Raw = {"type": "tool_result", "tool_use_id": "c", "content": []}
    endless["content"].append(endless)

    with pytest.raises(InvalidInput, match="holds itself"):
        as_message({"role": "user", "content": [endless]})
