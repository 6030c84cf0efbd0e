"""The parts that the content of a message consists of.

Unknown data survives a round trip: unknown keys of a dict are kept in `extra`, and a part of an
unknown type is an `OtherPart`, which keeps the dict whole.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from ropewalk.errors import InvalidInput
from ropewalk.threads.fields import bare, optional_text, own, own_mapping, plain, refusal, text

_set = object.__setattr__


def _extra() -> Any:
    return field(default_factory=dict, hash=False)


class Part:
    """Base class of the parts of a message's content."""

    __slots__ = ()

    kind: ClassVar[str]
    """The tag of this class in stored data."""
    stored: ClassVar[tuple[str, ...]]
    """The fields that are stored as they are."""
    usual_type: ClassVar[str | None] = None
    """The `type` that is not stored; None if the class has none."""

    def to_openai(self) -> dict[str, Any]:
        """Return the part as an OpenAI-style dict."""
        raise NotImplementedError

    def to_stored(self) -> dict[str, Any]:
        """The part as plain values for storage, without absent fields."""
        made: dict[str, Any] = {"part": self.kind}
        for name in self.stored:
            value = getattr(self, name)
            if value is not None:
                made[name] = value
        part: Any = self
        if self.usual_type is not None and part.type != self.usual_type:
            made["type"] = part.type
        if part.extra:
            made["extra"] = part.extra
        return made

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Rebuild a part from `to_stored`, without validating it again."""
        made, get = object.__new__(cls), stored.get
        for name in cls.stored:
            _set(made, name, get(name))
        if cls.usual_type is not None:
            _set(made, "type", get("type", cls.usual_type))
        _set(made, "extra", get("extra") or {})
        return made


TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


@dataclass(frozen=True, slots=True)
class TextPart(Part):
    """A text; `type` is "text", "input_text", "output_text" or "refusal"."""

    text: str
    type: str = "text"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "text"
    stored: ClassVar[tuple[str, ...]] = ("text",)
    usual_type: ClassVar[str | None] = "text"

    def __post_init__(self) -> None:
        _set(self, "text", text(self.text, "text"))
        _one_of(self.type, TEXT_KEYS)
        _own_extra(self, TEXT_KEYS[self.type])

    def to_openai(self) -> dict[str, Any]:
        """Return the part as an OpenAI-style dict."""
        key = TEXT_KEYS[self.type]
        inner = self.extra.get(key)
        said = self.text if inner is None else {**inner, "value": self.text}
        return {"type": self.type, **own(self.extra), key: own(said)}


@dataclass(frozen=True, slots=True)
class ImagePart(Part):
    """An image: a `url`, which may be a data URL, or the id of a file.

    `type` is "image_url" (Chat Completions) or "input_image" (Responses).
    """

    url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    type: str = "image_url"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "image"
    stored: ClassVar[tuple[str, ...]] = ("url", "detail", "file_id")
    usual_type: ClassVar[str | None] = "image_url"

    def __post_init__(self) -> None:
        _optional_texts(self, "url", "detail", "file_id")
        _one_of(self.type, ("image_url", "input_image"))
        _own_extra(self, "image_url" if self.type == "image_url" else None)
        if self.url is None and (self.file_id is None or self.type == "image_url"):
            raise InvalidInput("an ImagePart needs a url; one of type 'input_image', or a file_id.")

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, detail: str | None = None) -> ImagePart:
        """An image as a data URL; `media_type` is for example "image/png"."""
        return cls(f"data:{media_type};base64,{b64encode(data).decode()}", detail)

    def to_openai(self) -> dict[str, Any]:
        """Return the part as an OpenAI-style dict."""
        made: dict[str, Any] = {"type": self.type, **own(self.extra)}
        if self.file_id is not None:
            made["file_id"] = self.file_id
        place = made
        if self.type == "image_url":
            place = made["image_url"] = {**(made.get("image_url") or {}), "url": self.url}
        elif self.url is not None:
            made["image_url"] = self.url
        if self.detail is not None:
            place["detail"] = self.detail
        return made


@dataclass(frozen=True, slots=True)
class AudioPart(Part):
    """Audio: base64 `data` and its `format`, such as "wav" or "mp3"."""

    data: str
    format: str
    type: str = "input_audio"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "audio"
    stored: ClassVar[tuple[str, ...]] = ("data", "format")
    usual_type: ClassVar[str | None] = "input_audio"

    def __post_init__(self) -> None:
        text(self.data, "data")
        text(self.format, "format")
        _one_of(self.type, ("input_audio",))
        _own_extra(self, "input_audio")

    @classmethod
    def from_bytes(cls, data: bytes, format: str) -> AudioPart:
        """Build the part from raw bytes."""
        return cls(b64encode(data).decode(), format)

    def to_openai(self) -> dict[str, Any]:
        """Return the part as an OpenAI-style dict."""
        made: dict[str, Any] = {"type": self.type, **own(self.extra)}
        inner = {**(made.get("input_audio") or {}), "data": self.data, "format": self.format}
        made["input_audio"] = inner
        return made


CALL_KEYS = {"function": "arguments", "custom": "input", "tool_use": "input"}


@dataclass(frozen=True, slots=True)
class ToolCall(Part):
    """A tool call requested by a model: the `name` of the tool and its `arguments`.

    `arguments` is the text the model wrote (JSON for a function, possibly malformed) or a mapping.
    `type` is "function", "custom" or "tool_use".
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any] = field(default="{}", hash=False)
    type: str = "function"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "call"
    stored: ClassVar[tuple[str, ...]] = ("id", "name", "arguments")
    usual_type: ClassVar[str | None] = "function"

    def __post_init__(self) -> None:
        text(self.id, "tool call id")
        text(self.name, "tool call name")
        _one_of(self.type, CALL_KEYS)
        if isinstance(self.arguments, Mapping):
            _set(self, "arguments", own_mapping(self.arguments, "arguments"))
        elif not isinstance(self.arguments, str):
            raise refusal("arguments", self.arguments, "a str (JSON) or a mapping")
        _own_extra(self, None if self.type == "tool_use" else self.type)

    def parsed(self) -> Any:
        """The parsed arguments; raises `InvalidInput` if their text is not JSON."""
        if not isinstance(self.arguments, str):
            return own(self.arguments)
        try:
            return json.loads(self.arguments)
        except ValueError as error:
            raise InvalidInput(
                f"the arguments of call {self.id!r} of tool {self.name!r} are not JSON: {error}. "
                "Ask the model again, or read `arguments` as text."
            ) from error

    def arguments_text(self) -> str:
        """The arguments as text; a mapping is written as JSON."""
        if isinstance(self.arguments, str):
            return self.arguments
        try:
            return json.dumps(self.arguments, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"the arguments of call {self.id!r} of tool {self.name!r} cannot be written as "
                f"JSON: {error}. Hand them over as text."
            ) from error

    def to_openai(self) -> dict[str, Any]:
        """Return the call as an OpenAI-style dict."""
        made: dict[str, Any] = {"type": self.type, **own(self.extra), "id": self.id}
        if self.type == "tool_use":
            return {**made, "name": self.name, "input": own(self.arguments)}
        inner = {**(made.get(self.type) or {}), "name": self.name}
        inner[CALL_KEYS[self.type]] = self.arguments_text()
        made[self.type] = inner
        return made


@dataclass(frozen=True, slots=True)
class ToolResult(Part):
    """The result of a tool, as a part: a text or parts."""

    tool_call_id: str
    content: str | Sequence[Part] | None = None
    is_error: bool | None = None
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "result"
    stored: ClassVar[tuple[str, ...]] = ("tool_call_id", "is_error")

    def __post_init__(self) -> None:
        text(self.tool_call_id, "tool_call_id")
        _set(self, "content", _parts_or_text(self.content))
        if self.is_error is not None and not isinstance(self.is_error, bool):
            raise refusal("is_error", self.is_error, "True, False or None")
        _own_extra(self, None)

    def to_openai(self) -> dict[str, Any]:
        """Return the part as a dict of type "tool_result"."""
        made = {"type": "tool_result", **own(self.extra), "tool_use_id": self.tool_call_id}
        if self.content is not None:
            made["content"] = content_to_openai(self.content)
        if self.is_error is not None:
            made["is_error"] = self.is_error
        return made

    def to_stored(self) -> dict[str, Any]:
        """The part as plain values for storage, without absent fields."""
        made = Part.to_stored(self)
        if self.content is not None:
            made["content"] = content_to_stored(self.content)
        return made

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> ToolResult:
        """Rebuild the part from `to_stored`, without validating it again."""
        made = super(ToolResult, cls).from_stored(stored)
        _set(made, "content", content_from_stored(stored.get("content")))
        return made


@dataclass(frozen=True, slots=True)
class OtherPart(Part):
    """A part of a type that Ropewalk does not know: `data` is the whole dict."""

    data: Mapping[str, Any] = field(hash=False)

    kind: ClassVar[str] = "other"

    def __post_init__(self) -> None:
        _set(self, "data", own_mapping(self.data, "data"))

    def to_openai(self) -> dict[str, Any]:
        """Return the dict as it was read."""
        made: dict[str, Any] = own(self.data)
        return made

    def to_stored(self) -> dict[str, Any]:
        """The part as plain values for storage."""
        return {"part": "other", "data": self.data}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> OtherPart:
        """Rebuild the part from `to_stored`, without validating it again."""
        return bare(cls, data=stored["data"])


def content_to_openai(content: str | Sequence[Part] | None) -> Any:
    """The content in the shape of Chat Completions."""
    if content is None or isinstance(content, str):
        return content
    return [part.to_openai() for part in content]


def content_to_stored(content: str | Sequence[Part]) -> Any:
    """The content as plain values for storage."""
    if isinstance(content, str):
        return content
    return [part.to_stored() for part in content]


def text_of(content: str | Sequence[Part] | None) -> str:
    """The texts of a content, one per line."""
    if content is None or isinstance(content, str):
        return content or ""
    said = [_said(part) for part in content]
    return "\n".join([one for one in said if one])


def _said(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ToolResult):
        return text_of(part.content)
    # Some providers write a text as {"text": ...}. Parts of another type may hold anything at that
    # key, such as a model's reasoning.
    if isinstance(part, OtherPart) and "type" not in part.data:
        found = part.data.get("text")
        return found if isinstance(found, str) else ""
    return ""


def _parts_or_text(content: Any) -> str | tuple[Part, ...] | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list | tuple) and all(isinstance(one, Part) for one in content):
        return tuple(content)
    raise refusal("content", content, "a str, a list of parts, or None")


def _own_extra(part: Any, inner: str | None) -> None:
    """Copy a part's `extra`; its key `inner` holds the unknown keys of the nested dict."""
    made = own_mapping(part.extra, "extra")
    if inner in made and not isinstance(made[inner], Mapping):
        raise refusal(f"extra[{inner!r}]", made[inner], "a mapping of what is not known in it")
    _set(part, "extra", made)


def _optional_texts(part: Part, *names: str) -> None:
    for name in names:
        optional_text(getattr(part, name), name)


def _one_of(kind: Any, accepted: Collection[str]) -> None:
    if kind not in accepted:
        raise refusal("type", kind, " or ".join(repr(one) for one in accepted))


# Reading parts from OpenAI-style dicts and from storage.


def as_content(value: Any) -> str | tuple[Part, ...] | None:
    """Validate the content of a message: a text, parts (dicts of parts included), or None."""
    if value is None:
        return None
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Part | Mapping | bytes) or not isinstance(value, Iterable):
        raise refusal("content", value, "a str, a list of parts, or None")
    return tuple([read_part(one) for one in value])


def read_part(raw: Any) -> Part:
    """Read a part from a part, a text or an OpenAI-style dict."""
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
    # Parse only what would be written back exactly; keep anything else as it came.
    if part is not None and part.to_openai() == raw:
        return part
    return OtherPart(raw)


def read_call(raw: Mapping[str, Any]) -> ToolCall | None:
    """Read a call from an OpenAI-style dict; None if it has another shape."""
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
        # The Assistants API writes {"text": {"value": ..., "annotations": [...]}}.
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
    """Rebuild a content from `content_to_stored`."""
    if stored is None or type(stored) is str:
        return stored
    return tuple([part_from_stored(one) for one in stored])


def part_from_stored(stored: Mapping[str, Any]) -> Part:
    """Rebuild a part from `to_stored`, without validating it again."""
    cls = _BY_KIND.get(stored.get("part") or "")
    # A newer version may have stored parts unknown to this one.
    return OtherPart(stored) if cls is None else cls.from_stored(stored)


_BY_KIND: Final[dict[str, type[Part]]] = {
    cls.kind: cls for cls in (TextPart, ImagePart, AudioPart, ToolCall, ToolResult, OtherPart)
}
