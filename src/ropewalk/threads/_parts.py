"""The parts that the content of a message is made of.

A part keeps what it does not know: unknown keys of a dict are in `extra`, and a part of
an unknown type is an `OtherPart`, which keeps the dict whole.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ropewalk.errors import InvalidInput
from ropewalk.threads._checking import optional_text, own, own_mapping, refusal, text

_set = object.__setattr__


def _extra() -> Any:
    return field(default_factory=dict, hash=False)


class Part:
    """One part of the content of a message: the class of all kinds of parts."""

    __slots__ = ()

    kind: ClassVar[str]
    """What stands for this class in a store."""

    def to_openai(self) -> dict[str, Any]:
        """The part as an OpenAI-style dict."""
        raise NotImplementedError

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out."""
        raise NotImplementedError


TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


@dataclass(frozen=True, slots=True)
class TextPart(Part):
    """A text; `type` says which one: "text", "input_text", "output_text" or "refusal"."""

    text: str
    type: str = "text"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        _set(self, "text", text(self.text, "text"))
        _one_of(self.type, TEXT_KEYS)
        _own_extra(self, TEXT_KEYS[self.type])

    def to_openai(self) -> dict[str, Any]:
        """The part as an OpenAI-style dict."""
        key = TEXT_KEYS[self.type]
        inner = self.extra.get(key)
        said = self.text if inner is None else {**inner, "value": self.text}
        return {"type": self.type, **own(self.extra), key: own(said)}

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out."""
        made: dict[str, Any] = {"part": "text", "text": self.text}
        if self.type != "text":
            made["type"] = self.type
        if self.extra:
            made["extra"] = self.extra
        return made


@dataclass(frozen=True, slots=True)
class ImagePart(Part):
    """An image: its `url` (one that holds the data, too), or the id of a file.

    `type` is "image_url" (Chat Completions) or "input_image" (Responses).
    """

    url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    type: str = "image_url"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "image"

    def __post_init__(self) -> None:
        _optional_texts(self, "url", "detail", "file_id")
        _one_of(self.type, ("image_url", "input_image"))
        _own_extra(self, "image_url" if self.type == "image_url" else None)
        if self.url is None and (self.file_id is None or self.type == "image_url"):
            raise InvalidInput("an ImagePart needs a url; one of type 'input_image', or a file_id.")

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, detail: str | None = None) -> ImagePart:
        """An image of which the url holds the data; `media_type` is such as "image/png"."""
        return cls(f"data:{media_type};base64,{b64encode(data).decode()}", detail)

    def to_openai(self) -> dict[str, Any]:
        """The part as an OpenAI-style dict."""
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

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out."""
        return _stored(self, "image_url", ("url", "detail", "file_id"))


@dataclass(frozen=True, slots=True)
class AudioPart(Part):
    """A sound: its `data` in base64, and its `format`, such as "wav" or "mp3"."""

    data: str
    format: str
    type: str = "input_audio"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "audio"

    def __post_init__(self) -> None:
        text(self.data, "data")
        text(self.format, "format")
        _one_of(self.type, ("input_audio",))
        _own_extra(self, "input_audio")

    @classmethod
    def from_bytes(cls, data: bytes, format: str) -> AudioPart:
        """A sound from its bytes."""
        return cls(b64encode(data).decode(), format)

    def to_openai(self) -> dict[str, Any]:
        """The part as an OpenAI-style dict."""
        made: dict[str, Any] = {"type": self.type, **own(self.extra)}
        inner = {**(made.get("input_audio") or {}), "data": self.data, "format": self.format}
        made["input_audio"] = inner
        return made

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out."""
        return _stored(self, "input_audio", ("data", "format"))


CALL_KEYS = {"function": "arguments", "custom": "input", "tool_use": "input"}


@dataclass(frozen=True, slots=True)
class ToolCall(Part):
    """A call that a model asks for: `name` of the tool, and `arguments`.

    `arguments` is the text as the model wrote it (JSON for a function, which need not be
    right), or a mapping. `type` is "function", "custom" or "tool_use".
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any] = field(default="{}", hash=False)
    type: str = "function"
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "call"

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
        """The arguments as values; `InvalidInput` if their text is not JSON."""
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
        """The arguments as text; a mapping becomes JSON."""
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
        """The call as an OpenAI-style dict."""
        made: dict[str, Any] = {"type": self.type, **own(self.extra), "id": self.id}
        if self.type == "tool_use":
            return {**made, "name": self.name, "input": own(self.arguments)}
        inner = {**(made.get(self.type) or {}), "name": self.name}
        inner[CALL_KEYS[self.type]] = self.arguments_text()
        made[self.type] = inner
        return made

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out."""
        return _stored(self, "function", ("id", "name", "arguments"))


@dataclass(frozen=True, slots=True)
class ToolResult(Part):
    """What a tool gave back, as a part: a text, or parts."""

    tool_call_id: str
    content: str | Sequence[Part] | None = None
    is_error: bool | None = None
    extra: Mapping[str, Any] = _extra()

    kind: ClassVar[str] = "result"

    def __post_init__(self) -> None:
        text(self.tool_call_id, "tool_call_id")
        _set(self, "content", _parts_or_text(self.content))
        if self.is_error is not None and not isinstance(self.is_error, bool):
            raise refusal("is_error", self.is_error, "True, False or None")
        _own_extra(self, None)

    def to_openai(self) -> dict[str, Any]:
        """The part as a dict of type "tool_result"."""
        made = {"type": "tool_result", **own(self.extra), "tool_use_id": self.tool_call_id}
        if self.content is not None:
            made["content"] = content_to_openai(self.content)
        if self.is_error is not None:
            made["is_error"] = self.is_error
        return made

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored; what is absent is left out."""
        made = _stored(self, None, ("tool_call_id", "is_error"))
        if self.content is not None:
            made["content"] = content_to_stored(self.content)
        return made


@dataclass(frozen=True, slots=True)
class OtherPart(Part):
    """A part of a type that Ropewalk does not know, kept whole: `data` is its dict."""

    data: Mapping[str, Any] = field(hash=False)

    kind: ClassVar[str] = "other"

    def __post_init__(self) -> None:
        _set(self, "data", own_mapping(self.data, "data"))

    def to_openai(self) -> dict[str, Any]:
        """The dict as it came."""
        made: dict[str, Any] = own(self.data)
        return made

    def to_stored(self) -> dict[str, Any]:
        """Plain values, as they are stored."""
        return {"part": "other", "data": self.data}


def content_to_openai(content: str | Sequence[Part] | None) -> Any:
    """The content as Chat Completions says it."""
    if content is None or isinstance(content, str):
        return content
    return [part.to_openai() for part in content]


def content_to_stored(content: str | Sequence[Part]) -> Any:
    """The content as plain values."""
    if isinstance(content, str):
        return content
    return [part.to_stored() for part in content]


def text_of(content: str | Sequence[Part] | None) -> str:
    """What is said in a content: its texts, each on a line of its own."""
    if content is None or isinstance(content, str):
        return content or ""
    said = [_said(part) for part in content]
    return "\n".join([one for one in said if one])


def _said(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ToolResult):
        return text_of(part.content)
    # Some providers write a text as {"text": ...}. A part with a type of its own may hold
    # anything at that key, such as what a model thought.
    if isinstance(part, OtherPart) and "type" not in part.data:
        found = part.data.get("text")
        return found if isinstance(found, str) else ""
    return ""


def _stored(part: Any, usual_type: str | None, names: Sequence[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"part": part.kind}
    for name in names:
        value = getattr(part, name)
        if value is not None:
            made[name] = value
    if usual_type is not None and part.type != usual_type:
        made["type"] = part.type
    if part.extra:
        made["extra"] = part.extra
    return made


def _parts_or_text(content: Any) -> str | tuple[Part, ...] | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list | tuple) and all(isinstance(one, Part) for one in content):
        return tuple(content)
    raise refusal("content", content, "a str, a list of parts, or None")


def _own_extra(part: Any, inner: str | None) -> None:
    """Give a part its own `extra`; at the key `inner` it holds what is unknown further in."""
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
