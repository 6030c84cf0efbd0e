"""Content, calls and usage: LangChain's as ours, and back. All of these are plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ropewalk.errors import InvalidInput
from ropewalk.threads import Message, OtherPart, Part, TextPart, ToolCall, Usage
from ropewalk.threads.parts import read_part

# Content.


def content_to_ours(given: Any) -> tuple[Any, list[int]]:
    """The content as ours, and which of its blocks are bare texts."""
    if not isinstance(given, list):
        return given, []
    strings = [index for index, block in enumerate(given) if isinstance(block, str)]
    return [_part(block) for block in given], strings


def _part(block: Any) -> Part:
    try:
        return read_part(block)
    except InvalidInput:
        if not isinstance(block, Mapping):
            raise
        return OtherPart(block)  # Like one that is known, but not quite.


def content_to_theirs(
    content: str | Sequence[Part] | None, *, without_calls: bool = False
) -> str | list[Any]:
    """Our content as LangChain's, which is never None."""
    if content is None or isinstance(content, str):
        return content or ""
    return blocks(content, without_calls=without_calls)


def blocks(
    parts: Sequence[Part], *, without_calls: bool, strings: Collection[int] = ()
) -> list[Any]:
    """Parts as blocks; those at `strings` as bare texts."""
    return [
        _block(part, index in strings)
        for index, part in enumerate(parts)
        if not (without_calls and _is_call_beside(part))
    ]


def _block(part: Part, bare: bool) -> Any:
    if bare and isinstance(part, TextPart) and not part.extra:
        return part.text
    return part.to_openai()


def _is_call_beside(part: Part) -> bool:
    """Whether a part is a call that LangChain has beside the content."""
    return isinstance(part, ToolCall) and part.type != "tool_use"


# Calls and usage.


def calls_to_ours(right: Sequence[Any], wrong: Sequence[Any]) -> tuple[ToolCall, ...]:
    """The calls that can be said; what the others hold is noted."""
    found = [_call(one) for one in (*right, *wrong)]
    return tuple([one for one in found if one is not None])


def _call(given: Any) -> ToolCall | None:
    name, arguments = given.get("name"), given.get("args")
    if not isinstance(name, str) or not isinstance(arguments, str | Mapping):
        return None
    return ToolCall(given.get("id") or "", name, arguments)


def calls_to_theirs(message: Message) -> tuple[list[Any], list[Any]]:
    """The calls with arguments, and those whose arguments cannot be read."""
    right: list[Any] = []
    wrong: list[Any] = []
    parts = message.content if isinstance(message.content, tuple) else ()
    inside = [part for part in parts if isinstance(part, ToolCall)]
    if message.tool_calls:  # Then those that stay in the content are said twice.
        inside = [part for part in inside if _is_call_beside(part)]
    for call in (*message.tool_calls, *inside):
        made: dict[str, Any] = {"name": call.name, "id": call.id or None}
        arguments = _arguments(call)
        if arguments is None:
            text = call.arguments_text()
            wrong.append({**made, "args": text, "error": None, "type": "invalid_tool_call"})
        else:
            right.append({**made, "args": arguments, "type": "tool_call"})
    return right, wrong


def _arguments(call: ToolCall) -> dict[str, Any] | None:
    if call.type == "custom":
        return {"__arg1": call.arguments}  # What LangChain calls the one argument that is text.
    try:
        found = call.parsed()
    except InvalidInput:
        return None
    return found if isinstance(found, dict) else None


def usage_to_ours(given: Any) -> Usage | None:
    """Counts that are right; None if there are none."""
    if not isinstance(given, Mapping):
        return None
    rest = dict(given)
    try:
        spent, gained = rest.pop("input_tokens"), rest.pop("output_tokens")
        return Usage(spent, gained, rest.pop("total_tokens"), rest)
    except (InvalidInput, KeyError):
        return None  # Such as a count below 0.


def usage_to_theirs(usage: Usage | None) -> dict[str, Any] | None:
    """The counts, and the details that LangChain knows."""
    if usage is None:
        return None
    details = {
        name: usage.extra[name]
        for name in ("input_token_details", "output_token_details")
        if name in usage.extra
    }
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        **details,
    }
