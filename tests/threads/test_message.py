"""Messages are checked when they are made, and then left as they are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest

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

FULL = Message(
    "assistant",
    [
        TextPart("Hello", extra={"mark": 1}),
        TextPart("No.", type="refusal"),
        ImagePart("https://example.com/cat.png", "low"),
        ImagePart(file_id="file-1", type="input_image"),
        AudioPart("UklG", "wav", extra={"input_audio": {"rate": 8000}}),
        ToolCall("c1", "f", {"a": [1]}),
        ToolResult("c1", [TextPart("42")], is_error=False),
        ToolResult("c2"),
        OtherPart({"type": "of tomorrow", "deep": [{}]}),
    ],
    id="m1",
    name="helper",
    tool_calls=[ToolCall("c2", "g", "free", type="custom")],
    tool_call_id="c0",
    usage=Usage(3, 4, 8, {"details": {"cached": 1}}),
    created_at=datetime(2025, 1, 31, 12, 0, 0, 123456, UTC),
    metadata={"tags": ["a"], "at": datetime(2025, 1, 1, tzinfo=UTC)},
    extra={"status": None},
)


def test_what_is_not_given_is_made_or_absent() -> None:
    before = datetime.now(UTC)

    message = Message("user", "Hello")

    assert (message.role, message.content) == ("user", "Hello")
    assert isinstance(message.id, str)
    assert before <= message.created_at <= datetime.now(UTC)
    assert (message.name, message.tool_call_id, message.usage) == (None, None, None)
    assert (message.tool_calls, message.metadata, message.extra) == ((), {}, {})


def test_a_later_message_has_a_greater_id() -> None:
    ids = [str(Message("user", "Hello").id) for _ in range(100)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 100


def test_a_time_in_another_zone_is_the_same_time_in_utc() -> None:
    lisbon = timezone(timedelta(hours=1))

    message = Message("user", created_at=datetime(2025, 6, 1, 13, tzinfo=lisbon))

    assert message.created_at == datetime(2025, 6, 1, 12, tzinfo=UTC)
    assert message.created_at.tzinfo is UTC


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"created_at .* does not say its zone.*tzinfo=UTC"):
        Message("user", created_at=datetime(2025, 6, 1))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"role": "robot"}, "role"),
        ({"role": None}, "role"),
        ({"content": 5}, "content"),
        ({"content": b"bytes"}, "content"),
        ({"content": TextPart("no list")}, "content"),
        ({"content": [5]}, "content"),
        ({"id": ""}, "id"),
        ({"id": False}, "id"),
        ({"name": 5}, "name"),
        ({"tool_calls": "f"}, "tool_calls"),
        ({"tool_calls": ["f"]}, "tool_calls"),
        ({"tool_calls": [{"type": "of tomorrow"}]}, "tool_calls"),
        ({"tool_calls": ToolCall("c", "f")}, "tool_calls"),
        ({"tool_call_id": 5}, "tool_call_id"),
        ({"usage": 5}, "usage"),
        ({"created_at": 1_700_000_000}, "created_at"),
        ({"created_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9)))}, "created_at"),
        ({"metadata": [1]}, "metadata"),
        ({"extra": "x"}, "extra"),
        ({"extra": {"role": "user"}}, "extra"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{named}\b"):
        Message(**{"role": "user", **fields})


def test_a_refusal_says_what_is_accepted_and_stays_short() -> None:
    with pytest.raises(InvalidInput, match="'user', 'assistant', 'system'") as refused:
        Message("x" * 10_000, "Hello")  # type: ignore[arg-type]

    assert len(str(refused.value)) < 250


def test_metadata_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless

    with pytest.raises(InvalidInput, match="metadata holds itself"):
        Message("user", metadata=endless)


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="timestamp"):
        Message("user", timestamp=1)  # type: ignore[call-arg]


def test_a_field_cannot_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError):
        FULL.role = "user"  # type: ignore[misc]


def test_the_callers_later_changes_do_not_reach_the_message() -> None:
    content: list[Any] = [{"type": "of tomorrow", "deep": [1]}]
    metadata: dict[str, Any] = {"deep": [1], "set": {1}, "pair": ([1],), "bytes": bytearray(b"a")}
    arguments = {"deep": [1]}
    extra = {"deep": [1]}
    call = ToolCall("c", "f", arguments)
    message = Message("user", content, metadata=metadata, extra=extra, tool_calls=[call])
    before = pickle.loads(pickle.dumps(message))

    content[0]["deep"].append(2)
    content.append("more")
    metadata["deep"].append(2)
    metadata["set"].add(2)
    metadata["pair"][0].append(2)
    metadata["bytes"].append(2)
    arguments["deep"].append(2)
    extra["deep"].append(2)

    assert message == before


def test_any_mapping_will_do() -> None:
    part = MappingProxyType({"type": "text", "text": "Hello"})

    message = Message("user", [part], metadata=MappingProxyType({"a": 1}))

    assert message.content == (TextPart("Hello"),)
    assert type(message.metadata) is dict


def test_a_message_comes_back_from_a_store_as_it_was() -> None:
    codec = Codec()

    back = Message.from_stored(codec.decode(codec.encode(FULL.to_stored())))

    assert back == FULL
    assert back.created_at.tzinfo is UTC
    assert back.to_stored() == FULL.to_stored()


def test_what_is_absent_takes_no_room_in_a_store() -> None:
    message = Message("user", "Hello", id=1, created_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))

    assert message.to_stored() == {
        "role": "user",
        "id": 1,
        "created_at": 1_000_000,
        "content": "Hello",
    }


@pytest.mark.parametrize("year", [1, 1969, 2025, 9999])
def test_a_time_is_kept_to_the_microsecond(year: int) -> None:
    at = datetime(year, 12, 30, 23, 59, 59, 999_999, UTC)

    message = Message("user", created_at=at)

    assert Message.from_stored(message.to_stored()).created_at == at


def test_a_part_that_a_newer_version_stored_is_kept_whole() -> None:
    stored = {"role": "user", "id": 1, "created_at": 0, "content": [{"part": "smell", "x": 1}]}

    message = Message.from_stored(stored)

    assert message.content == (OtherPart({"part": "smell", "x": 1}),)
    assert message.text == ""


def test_replace_changes_what_it_is_told_and_nothing_else() -> None:
    changed = FULL.replace(content="New", metadata={})

    assert (changed.content, changed.metadata) == ("New", {})
    assert changed.replace(content=FULL.content, metadata=FULL.metadata) == FULL


def test_replace_checks_what_it_is_given() -> None:
    with pytest.raises(InvalidInput, match="role"):
        FULL.replace(role="robot")


def test_replace_does_not_share_metadata() -> None:
    first = Message("user", metadata={"deep": [1]})
    second = first.replace(content="x")

    second.metadata["deep"].append(2)

    assert first.metadata == {"deep": [1]}


def test_equal_messages_have_equal_hashes() -> None:
    again = pickle.loads(pickle.dumps(FULL))

    assert again == FULL
    assert len({again, FULL, FULL.replace(id="m2")}) == 2


def test_parts_can_be_keys() -> None:
    assert isinstance(FULL.content, tuple)
    assert len(set(FULL.content)) == len(FULL.content)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_copy_says_the_same(copied: Any) -> None:
    raw = {"role": "user", "content": None, "id": "m", "name": None, "unknown": [1]}

    again = copied(Message.from_openai(raw))

    assert again == Message.from_openai(raw).replace(created_at=again.created_at)
    assert again.to_openai() == raw


def test_a_repr_is_short() -> None:
    message = Message("user", "word " * 1000, id="m1")

    assert repr(message) == f"<Message m1 user: '{('word ' * 12)[:57]}...'>"


def test_a_repr_names_the_calls() -> None:
    message = Message("assistant", id="m1", tool_calls=[ToolCall("c", "weather")])

    assert repr(message) == "<Message m1 assistant: '', calls weather>"


def test_text_is_what_was_said() -> None:
    assert FULL.text == "Hello\nNo.\n42"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"role": "user", "content": "Hello"}, "Hello"),
        ({"role": "user", "content": None}, ""),
        ({"role": "user", "content": ["one", {"type": "input_text", "text": "two"}]}, "one\ntwo"),
        ({"role": "user", "content": [{"text": "without a type"}]}, "without a type"),
        ({"role": "assistant", "content": None, "refusal": "I will not."}, "I will not."),
        ({"role": "assistant", "audio": {"transcript": "Spoken", "data": "UklG"}}, "Spoken"),
        ({"type": "function_call_output", "call_id": "c", "output": "Sunny"}, "Sunny"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, ""),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}, ""),
        ({"role": "assistant", "content": [{"type": "reasoning_text", "text": "Hm"}]}, ""),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"}]}, ""),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}, ""),
        (
            {"role": "user", "content": "line1\nline2 \"both\" 'kinds'"},
            "line1\nline2 \"both\" 'kinds'",
        ),
    ],
)
def test_text_is_what_a_dict_says(raw: Mapping[str, Any], said: str) -> None:
    assert as_message(raw).text == said


def test_a_message_is_taken_as_it_is() -> None:
    assert as_message(FULL) is FULL
