"""Conversion of messages from and to OpenAI-style dicts, without loss.

Three shapes are known: a message of Chat Completions (which covers messages of the Responses and
Assistants APIs), a call item and an output item of the Responses API. Any other item is kept
whole. Wherever a dict differs from what `write` would produce, the message's source notes it, so
that `write` reproduces it:

- `form`: the type of the item, or "item" for one that is kept whole;
- `with`: keys that were present and are usually omitted;
- `without`: keys that were absent and are usually present;
- `raw`: values in an unusual spelling, such as a null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ropewalk.errors import InvalidInput
from ropewalk.threads.fields import own, own_mapping, plain, read_time, refusal, write_seconds
from ropewalk.threads.parts import (
    OtherPart,
    Part,
    ToolCall,
    ToolResult,
    as_content,
    content_to_openai,
    read_call,
)

if TYPE_CHECKING:
    from ropewalk.threads.message import Message

_BESIDE: Final = ("id", "created_at", "usage", "metadata")
"""Fields that a request to a model does not accept: written only if they were read."""
_CHAT: Final = ("role", "content", "name", "tool_calls", "tool_call_id", *_BESIDE)
_CALLS: Final = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_KEYS_OF_FIELD: Final = {"content": ("content", "output")}


def read(raw: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The message fields in a dict, and its form (None for a chat message)."""
    if "role" in raw:
        return _read_chat(raw), None
    kind = raw.get("type")
    if not isinstance(kind, str):
        raise InvalidInput(
            "a message needs a role, as in {'role': 'user', 'content': 'Hello'}; "
            f"this dict has {_shown_keys(raw)}."
        )
    if kind in _CALLS:
        fields = _read_call_item(raw, kind)
    else:
        fields = _read_output_item(raw) if kind in _OUTPUTS else None
    return (fields, kind) if fields is not None else (_read_whole(raw), "item")


def source(message: Message, raw: Mapping[str, Any], form: str | None) -> dict[str, Any] | None:
    """The notes that `write` needs to reproduce this dict; None if there are none."""
    notes: dict[str, Any] = {} if form is None else {"form": form}
    shown = [key for key in _beside(form) if key in raw]
    if shown:
        notes["with"] = shown
    # Keys of `extra` are written as they were read; only the others can differ.
    written = _write(message, notes)
    known = {key: value for key, value in written.items() if key not in message.extra}
    absent = [key for key in known if key not in raw]
    if absent:
        notes["without"] = absent
    said = {
        key: own(value)
        for key, value in raw.items()
        if key not in message.extra and not _as_said(known, key, value)
    }
    if said:
        notes["raw"] = said
    return notes or None


def write(message: Message, notes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the message as an OpenAI-style dict that shares nothing with it."""
    notes = notes or {}
    made = _write(message, notes)
    for key in notes.get("without", ()):
        made.pop(key, None)
    made.update(own(notes.get("raw", {})))
    return made


def changed(notes: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The notes that remain valid when these fields of the message are changed."""
    if notes is None:
        return None
    stale = {key for name in fields for key in _KEYS_OF_FIELD.get(name, (name,))}
    made = {key: value for key, value in notes.items() if key in ("form", "with")}
    if "role" in fields:
        made.pop("form", None)
    without = [key for key in notes.get("without", ()) if key not in stale]
    if without:
        made["without"] = without
    said = {key: value for key, value in notes.get("raw", {}).items() if key not in stale}
    if said:
        made["raw"] = said
    return made or None


def _beside(form: str | None) -> tuple[str, ...]:
    return ("id",) if form == "item" else _BESIDE


def _as_said(known: Mapping[str, Any], key: str, value: Any) -> bool:
    if key not in known:
        return False
    written = known[key]
    if type(written) is str and isinstance(value, str):
        return written == plain(value)  # A str subclass is written as its characters.
    # 1 and 1.0 are equal but spelled differently.
    return type(written) is type(value) and bool(written == value)


def _read_chat(raw: Mapping[str, Any]) -> dict[str, Any]:
    role = raw["role"]
    fields: dict[str, Any] = {
        # The role of function results before there were tools.
        "role": "tool" if role == "function" else role,
        "content": as_content(raw.get("content")),
        "name": raw.get("name"),
        "tool_calls": _read_calls(raw.get("tool_calls")),
        "tool_call_id": raw.get("tool_call_id"),
        "extra": {key: value for key, value in raw.items() if key not in _CHAT},
    }
    return _read_beside(raw, fields)


def _read_calls(raw: Any) -> tuple[ToolCall, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list | tuple):
        raise refusal("tool_calls", raw, "a list of calls, or None")
    calls = []
    for one in raw:
        if not isinstance(one, Mapping):
            raise refusal("tool_calls", [one], "calls as dicts")
        calls.append(read_call(one))
    return tuple(call for call in calls if call is not None)


def _read_beside(raw: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    fields["id"] = raw.get("id")
    if raw.get("created_at") is not None:
        fields["created_at"] = read_time(raw["created_at"], "created_at")
    fields["usage"] = raw.get("usage")
    fields["metadata"] = raw.get("metadata")
    return fields


def _read_call_item(raw: Mapping[str, Any], form: str) -> dict[str, Any] | None:
    kind, key = _CALLS[form]
    values: list[Any] = [raw.get("call_id"), raw.get("name"), raw.get(key)]
    if not all(isinstance(value, str) for value in values):
        return None
    extra = _unknown(raw, "type", "call_id", "name", key)
    fields = {
        "role": "assistant",
        "tool_calls": (ToolCall(values[0], values[1], values[2], kind),),
        "extra": extra,
    }
    return None if extra is None else _read_beside(raw, fields)


def _read_output_item(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    id, output = raw.get("call_id"), raw.get("output")
    if not isinstance(id, str) or not isinstance(output, str | list):
        return None
    extra = _unknown(raw, "type", "call_id", "name", "output")
    fields = {
        "role": "tool",
        "content": as_content(output),
        "name": raw.get("name"),
        "tool_call_id": id,
        "extra": extra,
    }
    return None if extra is None else _read_beside(raw, fields)


def _unknown(raw: Mapping[str, Any], *known: str) -> dict[str, Any] | None:
    """The keys unknown in an item of this kind; None if one clashes with a field's name."""
    extra = {key: value for key, value in raw.items() if key not in (*known, *_BESIDE)}
    return None if any(key in _CHAT for key in extra) else extra


def _read_whole(raw: Mapping[str, Any]) -> dict[str, Any]:
    kept = own_mapping(raw, "the item")
    role = "tool" if kept["type"].endswith("_output") else "assistant"
    id = kept.pop("id", None)
    return {"role": role, "content": (OtherPart(kept),), "id": id}


def _write(message: Message, notes: Mapping[str, Any]) -> dict[str, Any]:
    made = _write_form(message, notes.get("form"))
    for key in notes.get("with", ()):
        made[key] = _write_beside(message, key)
    return made


def _write_form(message: Message, form: str | None) -> dict[str, Any]:
    content, calls = message.content, message.tool_calls
    if form == "item" and isinstance(content, tuple) and len(content) == 1:
        return content[0].to_openai()
    made: dict[str, Any] = own(message.extra)
    if form in _CALLS and len(calls) == 1:
        key = _CALLS[form][1]
        made |= {"type": form, "call_id": calls[0].id, "name": calls[0].name}
        made[key] = calls[0].arguments_text()
        return made
    if form in _OUTPUTS and message.tool_call_id is not None:
        made |= {"type": form, "call_id": message.tool_call_id}
        made["output"] = content_to_openai(content)
        return made if message.name is None else {**made, "name": message.name}
    return {**made, **_write_chat(message)}


def _write_chat(message: Message) -> dict[str, Any]:
    content, id = message.content, message.tool_call_id
    calls: list[Part] = list(message.tool_calls)
    if isinstance(content, tuple):
        if message.role == "tool" and id is None and len(content) == 1:
            content, id = _unwrapped(content[0], content)
        if isinstance(content, tuple):
            content = _without_calls(content, calls)
    made = {"role": message.role, "content": content_to_openai(content)}
    if message.name is not None:
        made["name"] = message.name
    if calls:
        made["tool_calls"] = [call.to_openai() for call in calls]
    if id is not None:
        made["tool_call_id"] = id
    return made


def _unwrapped(part: Part, content: Any) -> tuple[Any, str | None]:
    """Unwrap a result that is the whole tool message: Chat Completions has no part for it."""
    if not isinstance(part, ToolResult):
        return content, None
    return part.content, part.tool_call_id


def _without_calls(content: tuple[Part, ...], calls: list[Part]) -> tuple[Part, ...] | None:
    """The content without its calls, which Chat Completions stores separately."""
    own_calls = [part for part in content if isinstance(part, ToolCall) and part.type != "tool_use"]
    if not own_calls:
        return content
    calls.extend(own_calls)
    return tuple(part for part in content if part not in own_calls) or None


def _write_beside(message: Message, key: str) -> Any:
    if key == "created_at":
        return write_seconds(message.created_at)
    if key == "usage":
        return None if message.usage is None else own(message.usage.to_openai())
    return own(getattr(message, key))


def _shown_keys(raw: Mapping[str, Any]) -> str:
    keys = [repr(key) for key in raw][:8]
    return f"the keys {', '.join(keys)}" if keys else "no keys"
