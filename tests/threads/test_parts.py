"""The parts of a content, and usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.errors import InvalidInput
from ropewalk.threads import AudioPart, ImagePart, OtherPart, TextPart, ToolCall, ToolResult, Usage

WRONG: list[Callable[[], Any]] = [
    lambda: TextPart(5),  # type: ignore[arg-type]
    lambda: TextPart("x", type="image_url"),
    lambda: TextPart("x", extra=[1]),  # type: ignore[arg-type]
    lambda: TextPart("x", extra={"text": "y"}),
    ImagePart,
    lambda: ImagePart(file_id="f"),
    lambda: ImagePart(url=b"x"),  # type: ignore[arg-type]
    lambda: ImagePart("u", type="text"),
    lambda: AudioPart(b"x", "wav"),  # type: ignore[arg-type]
    lambda: AudioPart("UklG", "wav", type="output_audio"),
    lambda: ToolCall(None, "f"),  # type: ignore[arg-type]
    lambda: ToolCall("c", "f", [1]),  # type: ignore[arg-type]
    lambda: ToolCall("c", "f", type="of tomorrow"),
    lambda: ToolCall("c", "f", extra={"function": 5}),
    lambda: ToolResult(5),  # type: ignore[arg-type]
    lambda: ToolResult("c", 5),  # type: ignore[arg-type]
    lambda: ToolResult("c", ["text"]),  # type: ignore[list-item]
    lambda: ToolResult("c", is_error=1),  # type: ignore[arg-type]
    lambda: OtherPart([1]),  # type: ignore[arg-type]
    lambda: Usage(-1),
    lambda: Usage(1, 2.0),  # type: ignore[arg-type]
    lambda: Usage(True),
    lambda: Usage(total_tokens=-3),
    lambda: Usage(extra=[1]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("make", WRONG)
def test_a_wrong_part_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_an_image_can_be_made_of_its_bytes() -> None:
    assert ImagePart.from_bytes(b"\x00\x01", "image/png").url == "data:image/png;base64,AAE="


def test_a_sound_can_be_made_of_its_bytes() -> None:
    assert AudioPart.from_bytes(b"\x00\x01", "wav") == AudioPart("AAE=", "wav")


@pytest.mark.parametrize("arguments", ['{"a": [1]}', {"a": [1]}])
def test_arguments_are_read_as_values(arguments: Any) -> None:
    call = ToolCall("c", "f", arguments)

    call.parsed()["a"].append(2)

    assert call.parsed() == {"a": [1]}


def test_arguments_that_are_not_json_say_so() -> None:
    with pytest.raises(InvalidInput, match=r"call 'c' of tool 'f' are not JSON"):
        ToolCall("c", "f", "{broken").parsed()


def test_arguments_that_json_cannot_say_are_refused_when_they_are_written() -> None:
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        ToolCall("c", "f", {"a": object()}).to_openai()


def test_the_total_is_the_sum_unless_it_is_given() -> None:
    assert Usage(3, 4).total_tokens == 7
    assert Usage(3, 4, 9).total_tokens == 9


@pytest.mark.parametrize("usage", [Usage(), Usage(3, 4), Usage(3, 4, 9, {"cached": 1})])
def test_usage_comes_back_from_a_store_as_it_was(usage: Usage) -> None:
    assert Usage.from_stored(usage.to_stored()) == usage
