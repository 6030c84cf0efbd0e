"""Conversion of messages from and to LangChain, without loss.

LangChain's fields map to Ropewalk's where there is one. `additional_kwargs` are in `extra`, under
their names, and the rest is in `extra["langchain"]`: only what does not follow from the message. A
note about a field that can change applies only as long as it fits the message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields as fields_of
from datetime import UTC, datetime
from typing import Any, Final

from ropewalk.errors import InvalidInput
from ropewalk.threads import Message, OtherPart, Part, Role, TextPart, ToolCall, ToolResult, Usage
from ropewalk.threads.fields import own
from ropewalk.threads.message import ROLES
from ropewalk.threads.parts import read_part

try:
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        ChatMessage,
        ChatMessageChunk,
        FunctionMessage,
        FunctionMessageChunk,
        HumanMessage,
        HumanMessageChunk,
        RemoveMessage,
        SystemMessage,
        SystemMessageChunk,
        ToolMessage,
        ToolMessageChunk,
    )
except ImportError as error:
    raise ImportError(
        "ropewalk.adapters.langchain needs langchain-core 1: pip install 'ropewalk[langchain]'"
    ) from error

__all__ = ["from_langchain", "to_langchain"]

_ROLES_OF: Final[dict[type[Any], tuple[Role, ...]]] = {
    HumanMessage: ("user",),
    HumanMessageChunk: ("user",),
    AIMessage: ("assistant",),
    AIMessageChunk: ("assistant",),
    SystemMessage: ("system", "developer"),
    SystemMessageChunk: ("system", "developer"),
    ToolMessage: ("tool",),
    ToolMessageChunk: ("tool",),
    FunctionMessage: ("tool",),
    FunctionMessageChunk: ("tool",),
    ChatMessage: ROLES,
    ChatMessageChunk: ROLES,
}
_CLASSES: Final = {cls.model_fields["type"].default: cls for cls in _ROLES_OF}
"""All classes that are ever built, by LangChain's type name."""
_CHAT_ROLES: Final[dict[str, Role]] = {
    **{role: role for role in ROLES},
    "human": "user",
    "ai": "assistant",
    "function": "tool",
}
_NOTES: Final = "langchain"
"""The key in `extra` of everything without another place."""
_NOT_IN_EXTRA: Final = {_NOTES, *(one.name for one in fields_of(Message))}
_DEVELOPER: Final = {"__openai_role__": "developer"}
"""How LangChain marks a system message as a developer's."""
_HANDLED: Final = frozenset("type content name tool_call_id id additional_kwargs role".split())
_CALLS: Final = ("tool_calls", "invalid_tool_calls")
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of a message without one: a constant, so that the message stays equal."""


def from_langchain(message: BaseMessage, *, created_at: datetime | None = None) -> Message:
    """Convert a LangChain message; `to_langchain` returns an equal one.

    LangChain keeps no times: without `created_at` it is always 1970, so that a message that is put
    again stays the same. A message without an id gets a new one each time.

    Raises `InvalidInput` for a `RemoveMessage`, for custom classes, and for a message that was
    modified into something LangChain itself would reject.
    """
    _check_class(message)
    content, strings = content_to_ours(message.content)
    calls = calls_to_ours(*(_field(message, name) or [] for name in _CALLS))
    more = dict(message.additional_kwargs)
    role = _role(message)
    if role == "developer" and isinstance(message, SystemMessage):
        del more["__openai_role__"]
    extra = {key: more.pop(key) for key in list(more) if _fits_in_extra(key)}
    plain = Message(
        role,
        content,
        id=message.id or None,
        name=message.name,
        tool_calls=calls,
        tool_call_id=_field(message, "tool_call_id"),
        usage=usage_to_ours(_field(message, "usage_metadata")),
        created_at=created_at or _NO_TIME,
        extra=extra,
    )
    notes = _notes(message, plain)
    if strings:
        notes["strings"] = strings
    if more:
        notes["additional_kwargs"] = more
    made = plain.replace(extra={**extra, _NOTES: notes}) if notes else plain
    _check_return(made, message)
    return made


def to_langchain(message: Message) -> BaseMessage:
    """Convert a message to LangChain's class, the original one if it came from there.

    Otherwise the class follows from the role. `created_at` and `metadata` have no equivalent, and
    are omitted.
    """
    if not isinstance(message, Message):
        raise InvalidInput(
            f"a message is a ropewalk.threads.Message, not a {type(message).__name__}. "
            "Make one of an OpenAI-style dict with as_message."
        )
    notes = message.extra.get(_NOTES)
    notes = notes if isinstance(notes, Mapping) else {}
    cls = _noted_class(message, notes) or _natural_class(message)
    try:
        fields = {**_natural_fields(message, cls), **_noted_fields(message, cls, notes)}
        return _made(cls, own(fields), own(notes.get("more", {})))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        # Anyone who can write to a store can write notes of any shape.
        raise InvalidInput(
            f"message {message.id!r} cannot be a {cls.__name__} of LangChain: {error!r:.400}"
        ) from error


def _made(cls: type[Any], fields: dict[str, Any], more: Mapping[str, Any]) -> BaseMessage:
    made: BaseMessage = cls.model_validate({**more, **fields})
    for name, value in fields.items():
        # LangChain derives some fields when a message is built.
        if not _is_same(getattr(made, name), value):
            setattr(made, name, value)
    return made


def _check_class(message: Any) -> None:
    if isinstance(message, RemoveMessage):
        raise InvalidInput(
            f"a RemoveMessage says nothing: it asks to remove message {message.id!r:.80}. "
            "Use delete_message of the checkpointer."
        )
    if type(message) not in _ROLES_OF:
        known = ", ".join(cls.__name__ for cls in _ROLES_OF)
        raise InvalidInput(
            f"a {type(message).__qualname__} could not come back as what it is; "
            f"it takes a message of LangChain's own classes: {known}."
        )


def _check_return(made: Message, given: BaseMessage) -> None:
    if to_langchain(made) != given:
        raise InvalidInput(
            f"message {given.id!r:.80} would not come back from LangChain as it is. It was "
            "changed after it was made; make a new one with these values."
        )


# The notes beside a message, and which of them still apply.


def _notes(given: BaseMessage, plain: Message) -> dict[str, Any]:
    cls, notes = type(given), dict[str, Any]()
    if _natural_class(plain) is not cls:
        notes["type"] = given.type
    if isinstance(given, ChatMessage):
        notes["role"] = given.role
    if given.id != plain.id:
        notes["id"] = [plain.id, given.id]
    usual = _natural_fields(plain, cls)
    differs = [name for name in usual if not _is_same(getattr(given, name), usual[name])]
    if any(name in differs for name in _CALLS):
        notes["calls"] = [getattr(given, name) for name in _CALLS]
    for name in differs:
        if name not in _HANDLED and name not in _CALLS:
            notes[name] = getattr(given, name)
    if given.model_extra:
        notes["more"] = given.model_extra
    return notes


def _noted_class(message: Message, notes: Mapping[str, Any]) -> type[Any] | None:
    kind = notes.get("type")
    if kind is None:
        return None
    cls = _CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidInput(
            f"message {message.id!r} was a {kind!r:.80} of LangChain, which is not known here. "
            "Read it with a newer version of Ropewalk."
        )
    if issubclass(cls, ChatMessage):
        return cls if _chat_role(notes.get("role")) == message.role else None
    return cls if message.role in _ROLES_OF[cls] else None


def _noted_fields(message: Message, cls: type[Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    made = {
        name: notes[name]
        for name in cls.model_fields
        if name in notes and name not in _HANDLED and name not in _CALLS
    }
    if usage_to_ours(made.get("usage_metadata")) != message.usage:
        made.pop("usage_metadata", None)
    calls = notes.get("calls")
    if calls and issubclass(cls, AIMessage) and calls_to_ours(*calls) == message.tool_calls:
        made.update(zip(_CALLS, calls, strict=True))
    ids = notes.get("id")
    if ids and ids[0] == message.id:
        made["id"] = ids[1]
    if issubclass(cls, ChatMessage):
        made["role"] = notes["role"]
    if "additional_kwargs" in notes:
        made["additional_kwargs"] = {
            **_natural_kwargs(message, cls),
            **notes["additional_kwargs"],
        }
    strings = notes.get("strings")
    if strings and isinstance(message.content, tuple):
        made["content"] = blocks(
            message.content, without_calls=issubclass(cls, AIMessage), strings=set(strings)
        )
    return made


def _is_same(one: Any, other: Any) -> bool:
    # An artifact may be anything, even an object that cannot be compared with None.
    return one is other or (type(one) is type(other) and bool(one == other))


def _field(message: BaseMessage, name: str) -> Any:
    """A field of the class; a message may also have other attributes of that name."""
    return getattr(message, name) if name in type(message).model_fields else None


# A message without any notes.


def _natural_class(message: Message) -> Any:
    if message.role == "user":
        return HumanMessage
    if message.role == "assistant":
        return AIMessage
    if message.role != "tool":
        return SystemMessage
    # Results of functions, before there were tools, carry a name and no call id.
    nameless = message.name is None or message.tool_call_id is not None
    return ToolMessage if nameless or _only_result(message) else FunctionMessage


def _natural_fields(message: Message, cls: type[Any]) -> dict[str, Any]:
    """All fields of the class that follow from the message alone."""
    made = {
        name: field.get_default(call_default_factory=True)
        for name, field in cls.model_fields.items()
        if name != "type"
    }
    made["content"] = content_to_theirs(message.content, without_calls=issubclass(cls, AIMessage))
    made |= {"name": message.name, "id": str(message.id)}
    made["additional_kwargs"] = _natural_kwargs(message, cls)
    if issubclass(cls, AIMessage):
        made.update(zip(_CALLS, calls_to_theirs(message), strict=True))
        made["usage_metadata"] = usage_to_theirs(message.usage)
    if issubclass(cls, ChatMessage):
        made["role"] = message.role
    if issubclass(cls, FunctionMessage):
        made["name"] = message.name or ""
    if issubclass(cls, ToolMessage):
        made["tool_call_id"] = message.tool_call_id or ""
        result = _only_result(message)
        if result is not None:
            made["content"] = content_to_theirs(result.content)
            made["tool_call_id"] = result.tool_call_id
            made["status"] = "error" if result.is_error else "success"
    return made


def _natural_kwargs(message: Message, cls: type[Any]) -> dict[str, Any]:
    developer = message.role == "developer" and issubclass(cls, SystemMessage)
    beside = {key: value for key, value in message.extra.items() if key != _NOTES}
    return {**beside, **_DEVELOPER} if developer else beside


def _only_result(message: Message) -> ToolResult | None:
    """A result that is the whole tool message, and itself names the call it answers."""
    if message.tool_call_id is not None or not isinstance(message.content, tuple):
        return None
    if len(message.content) != 1 or not isinstance(message.content[0], ToolResult):
        return None
    return message.content[0]


# Roles and keys.


def _role(message: Any) -> Role:
    if isinstance(message, ChatMessage):
        return _chat_role(message.role)
    roles = _ROLES_OF[type(message)]
    if roles[-1] == message.additional_kwargs.get("__openai_role__"):
        return roles[-1]
    return roles[0]


def _chat_role(role: Any) -> Role:
    """Unknown roles are users."""
    return _CHAT_ROLES.get(role, "user") if isinstance(role, str) else "user"


def _fits_in_extra(key: Any) -> bool:
    return isinstance(key, str) and key not in _NOT_IN_EXTRA


# Content, calls and usage, converted both ways. All of these are plain values.


# Content.


def content_to_ours(given: Any) -> tuple[Any, list[int]]:
    """Convert the content, and list which of its blocks are bare strings."""
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
        return OtherPart(block)  # Similar to a known block, but not equal.


def content_to_theirs(
    content: str | Sequence[Part] | None, *, without_calls: bool = False
) -> str | list[Any]:
    """Convert our content to LangChain's, which is never None."""
    if content is None or isinstance(content, str):
        return content or ""
    return blocks(content, without_calls=without_calls)


def blocks(
    parts: Sequence[Part], *, without_calls: bool, strings: Collection[int] = ()
) -> list[Any]:
    """Convert parts to blocks; those at `strings` to bare strings."""
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
    """Whether a part is a call that LangChain stores beside the content."""
    return isinstance(part, ToolCall) and part.type != "tool_use"


# Calls and usage.


def calls_to_ours(right: Sequence[Any], wrong: Sequence[Any]) -> tuple[ToolCall, ...]:
    """The calls that have an equivalent; the rest is noted."""
    found = [_call(one) for one in (*right, *wrong)]
    return tuple([one for one in found if one is not None])


def _call(given: Any) -> ToolCall | None:
    name, arguments = given.get("name"), given.get("args")
    if not isinstance(name, str) or not isinstance(arguments, str | Mapping):
        return None
    return ToolCall(given.get("id") or "", name, arguments)


def calls_to_theirs(message: Message) -> tuple[list[Any], list[Any]]:
    """The calls with valid arguments, and those whose arguments cannot be parsed."""
    right: list[Any] = []
    wrong: list[Any] = []
    parts = message.content if isinstance(message.content, tuple) else ()
    inside = [part for part in parts if isinstance(part, ToolCall)]
    if message.tool_calls:  # Otherwise those that stay in the content would appear twice.
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
        return {"__arg1": call.arguments}  # LangChain's name of a single text argument.
    try:
        found = call.parsed()
    except InvalidInput:
        return None
    return found if isinstance(found, dict) else None


def usage_to_ours(given: Any) -> Usage | None:
    """The valid counts; None if there are none."""
    if not isinstance(given, Mapping):
        return None
    rest = dict(given)
    try:
        spent, gained = rest.pop("input_tokens"), rest.pop("output_tokens")
        return Usage(spent, gained, rest.pop("total_tokens"), rest)
    except (InvalidInput, KeyError):
        return None  # For example a negative count.


def usage_to_theirs(usage: Usage | None) -> dict[str, Any] | None:
    """The counts, and the details known to LangChain."""
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
