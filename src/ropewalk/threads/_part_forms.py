"""Parts from OpenAI-style dicts, and from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ropewalk.threads._checking import bare, plain, refusal
from ropewalk.threads._parts import (
    CALL_KEYS,
    TEXT_KEYS,
    AudioPart,
    ImagePart,
    OtherPart,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)


def as_content(value: Any) -> str | tuple[Part, ...] | None:
    """The content of a message: a text, parts (dicts of parts, too), or None."""
    if value is None:
        return None
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Part | Mapping | bytes) or not isinstance(value, Iterable):
        raise refusal("content", value, "a str, a list of parts, or None")
    return tuple([read_part(one) for one in value])


def read_part(raw: Any) -> Part:
    """A part, from one, from a text, or from an OpenAI-style dict."""
    if isinstance(raw, Part):
        return raw
    if isinstance(raw, str):
        return TextPart(raw)
    if not isinstance(raw, Mapping):
        raise refusal(
            "content", [raw], "a str, or a list of parts: dicts, texts, or parts of ropewalk"
        )
    kind = raw.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    part = read(raw) if read is not None else None
    # Only what comes back exactly is understood; anything else is kept as it came.
    if part is not None and part.to_openai() == raw:
        return part
    return OtherPart(raw)


def read_call(raw: Mapping[str, Any]) -> ToolCall | None:
    """A call from an OpenAI-style dict; None if it is not like one."""
    kind = raw.get("type") or "function"
    if not isinstance(kind, str) or kind not in CALL_KEYS:
        return None
    inner, key = raw if kind == "tool_use" else raw.get(kind), CALL_KEYS[kind]
    if not isinstance(inner, Mapping):
        return None
    id, name, arguments = raw.get("id") or "", inner.get("name"), inner.get(key)
    if not (isinstance(id, str) and isinstance(name, str) and isinstance(arguments, str | Mapping)):
        return None
    if inner is raw:
        extra = _rest(raw, "type", "id", "name", key)
    else:
        extra = _rest(raw, "type", "id", kind)
        _keep_inner(extra, kind, _rest(inner, "name", key))
    return ToolCall(id, name, arguments, kind, extra)


def _read_text(raw: Mapping[str, Any]) -> Part | None:
    key = TEXT_KEYS[raw["type"]]
    said, extra = raw.get(key), _rest(raw, "type", key)
    if isinstance(said, Mapping):
        # The Assistants API says {"text": {"value": ..., "annotations": [...]}}.
        extra[key] = _rest(said, "value")
        said = said.get("value")
    return TextPart(said, raw["type"], extra) if isinstance(said, str) else None


def _read_image_url(raw: Mapping[str, Any]) -> Part | None:
    inner = raw.get("image_url")
    if not isinstance(inner, Mapping) or not isinstance(inner.get("url"), str):
        return None
    known = ("url", "detail") if isinstance(inner.get("detail"), str) else ("url",)
    extra = _rest(raw, "type", "image_url")
    _keep_inner(extra, "image_url", _rest(inner, *known))
    return ImagePart(inner["url"], inner["detail"] if len(known) == 2 else None, extra=extra)


def _read_input_image(raw: Mapping[str, Any]) -> Part | None:
    names = {"image_url": "url", "detail": "detail", "file_id": "file_id"}
    known = {key: name for key, name in names.items() if isinstance(raw.get(key), str)}
    if not known.keys() & {"image_url", "file_id"}:
        return None
    fields = {name: raw[key] for key, name in known.items()}
    return ImagePart(**fields, type="input_image", extra=_rest(raw, "type", *known))


def _read_audio(raw: Mapping[str, Any]) -> Part | None:
    inner = raw.get("input_audio")
    if not isinstance(inner, Mapping):
        return None
    data, format = inner.get("data"), inner.get("format")
    if not isinstance(data, str) or not isinstance(format, str):
        return None
    extra = _rest(raw, "type", "input_audio")
    _keep_inner(extra, "input_audio", _rest(inner, "data", "format"))
    return AudioPart(data, format, extra=extra)


def _read_result(raw: Mapping[str, Any]) -> Part | None:
    id, content, failed = raw.get("tool_use_id"), raw.get("content"), raw.get("is_error")
    if not isinstance(id, str) or not isinstance(content, str | list | None):
        return None
    known = ["type", "tool_use_id", "content"]
    if isinstance(failed, bool):
        known.append("is_error")
    elif failed is not None:
        return None
    return ToolResult(id, as_content(content), failed, _rest(raw, *known))


def _rest(raw: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in known}


def _keep_inner(extra: dict[str, Any], key: str, rest: dict[str, Any]) -> None:
    if rest:
        extra[key] = rest


_READERS: Final[dict[str, Callable[[Mapping[str, Any]], Part | None]]] = {
    **dict.fromkeys(TEXT_KEYS, _read_text),
    "image_url": _read_image_url,
    "input_image": _read_input_image,
    "input_audio": _read_audio,
    "tool_use": read_call,
    "tool_result": _read_result,
}


def content_from_stored(stored: Any) -> str | tuple[Part, ...] | None:
    """What `content_to_stored` gave."""
    if stored is None or type(stored) is str:
        return stored
    return tuple([part_from_stored(one) for one in stored])


def part_from_stored(stored: Mapping[str, Any]) -> Part:
    """What `to_stored` of a part gave; nothing is checked again."""
    kind = stored.get("part")
    if kind == "text":
        return bare(
            TextPart,
            text=stored["text"],
            type=stored.get("type", "text"),
            extra=stored.get("extra") or {},
        )
    make = _FROM_STORED.get(kind or "")
    # A newer version may have parts that this one does not know.
    return OtherPart(stored) if make is None else make(stored)


def _image_from_stored(stored: Mapping[str, Any]) -> Part:
    return bare(
        ImagePart,
        url=stored.get("url"),
        detail=stored.get("detail"),
        file_id=stored.get("file_id"),
        type=stored.get("type", "image_url"),
        extra=stored.get("extra") or {},
    )


def _audio_from_stored(stored: Mapping[str, Any]) -> Part:
    return bare(
        AudioPart,
        data=stored["data"],
        format=stored["format"],
        type=stored.get("type", "input_audio"),
        extra=stored.get("extra") or {},
    )


def call_from_stored(stored: Mapping[str, Any]) -> ToolCall:
    """What `ToolCall.to_stored` gave."""
    return bare(
        ToolCall,
        id=stored["id"],
        name=stored["name"],
        arguments=stored["arguments"],
        type=stored.get("type", "function"),
        extra=stored.get("extra") or {},
    )


def _result_from_stored(stored: Mapping[str, Any]) -> Part:
    return bare(
        ToolResult,
        tool_call_id=stored["tool_call_id"],
        content=content_from_stored(stored.get("content")),
        is_error=stored.get("is_error"),
        extra=stored.get("extra") or {},
    )


def _other_from_stored(stored: Mapping[str, Any]) -> Part:
    return bare(OtherPart, data=stored["data"])


_FROM_STORED: Final[dict[str, Callable[[Mapping[str, Any]], Part]]] = {
    "image": _image_from_stored,
    "audio": _audio_from_stored,
    "call": call_from_stored,
    "result": _result_from_stored,
    "other": _other_from_stored,
}
