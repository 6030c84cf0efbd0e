"""How the items of a framework are read as messages, to be listed and searched.

An item is stored as its framework handed it over. Most are dicts of a common shape, which is
recognized: a message of Chat Completions, an item of the Responses API, a message with blocks of
Anthropic, or any of these inside another dict. An adapter whose items have another shape names a
reader, by `@shape("name")` in its module `shape`, which imports no framework, so that the command
line can show its conversations where that framework is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ropewalk.errors import InvalidInput
from ropewalk.threads.message import ROLES, Message, Role, as_message
from ropewalk.threads.parts import OtherPart

ShapeReader: TypeAlias = Callable[[Any], Message | Mapping[str, Any] | None]
"""Reads an item as a message, or as the dict of one for OpenAI; None leaves it to the others."""

_readers: Final[dict[str, ShapeReader]] = {}

_ROLES: Final[dict[Any, Role]] = {
    **{role: role for role in ROLES},
    "function": "tool",
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
}
_OWN: Final = ("id", "created_at", "usage", "metadata")
_AUTHORS: Final = ("role", "author", "source", "type", "kind")
_INNER: Final = ("message", "item", "content")
_TEXTS: Final = ("content", "text", "parts", "blocks", "contents", "output", "result")


def shape(name: str) -> Callable[[ShapeReader], ShapeReader]:
    """Name a reader for items: transcripts that are opened with `shape=name` are read by it."""

    def register(reader: ShapeReader) -> ShapeReader:
        _readers[name] = reader
        return reader

    return register


def read_item(item: Any, name: str = "") -> Message:
    """An item as a message; whatever its shape, nothing is raised for it."""
    reader = _readers.get(name)
    for read in (_common, _wrapped, _guessed) if reader is None else (reader, _guessed):
        try:
            found = read(item)
            if found is not None:
                return as_message(found)
        except (InvalidInput, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            continue  # It has another shape.
    return Message("assistant", [OtherPart({"item": item})])


def _common(item: Any) -> Message | None:
    """A dict of OpenAI or Anthropic."""
    if not isinstance(item, Mapping):
        return None
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and "content" in item:
        return Message.from_openai({**_without_ids(item), "role": _ROLES[role]})
    if role is None and isinstance(kind, str) and ("call_id" in item or "id" in item):
        return Message.from_openai(_without_ids(item))
    return None


def _without_ids(item: Mapping[str, Any]) -> dict[str, Any]:
    """The item without what a framework may write in its own way."""
    return {key: value for key, value in item.items() if key not in _OWN}


def _wrapped(item: Any) -> Message | None:
    """A dict that holds the message under a key."""
    if isinstance(item, Mapping):
        for name in _INNER:
            found = _common(item.get(name))
            if found is not None:
                return found
    return None


def _guessed(item: Any) -> Message | None:
    """Somebody's dict that names an author, and has texts anywhere below."""
    if isinstance(item, str):
        return Message("user", item)
    if not isinstance(item, Mapping):
        return None
    said = [text for name in _TEXTS if name in item for text in _texts(item[name])]
    return Message(_author(item), "\n".join(said)) if said else None


def _author(item: Mapping[str, Any]) -> Any:
    for name in _AUTHORS:
        found = item.get(name)
        if isinstance(found, str):
            word = found.lower().removesuffix("message")
            if word in _ROLES:
                return _ROLES[word]
    return "assistant"


def _texts(value: Any) -> list[str]:
    """The texts below a value, where texts of messages stand."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, Mapping):
        return [text for name in _TEXTS if name in value for text in _texts(value[name])]
    return []
