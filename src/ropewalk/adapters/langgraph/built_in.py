"""The classes that every saver knows, under names that stay when a module moves.

What LangGraph's own serializer takes is here, but nothing that stored bytes could choose.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from typing import Any

import langgraph.store.base as store
import langgraph.types as graph
import pydantic
from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ropewalk.codec import Registry
from ropewalk.codec.classes import default_name

BUILT_IN = Registry(parent=Registry())
"""Never to be changed."""

_MESSAGES = (
    "BaseMessage BaseMessageChunk HumanMessage HumanMessageChunk AIMessage AIMessageChunk "
    "SystemMessage SystemMessageChunk ToolMessage ToolMessageChunk FunctionMessage "
    "FunctionMessageChunk ChatMessage ChatMessageChunk RemoveMessage"
).split()
_GRAPH = (
    "Interrupt Command Overwrite TimeoutPolicy RetryPolicy CachePolicy StateSnapshot "
    "PregelTask StateUpdate GraphOutput CacheKey"
).split()
_STORE = "GetOp PutOp SearchOp ListNamespacesOp MatchCondition".split()


def _declare(prefix: str, cls: Any) -> None:
    BUILT_IN.register(cls, name=f"{prefix}.{cls.__name__}", aliases=(default_name(cls),))


def _declare_custom(
    prefix: str, cls: Any, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    name = f"{prefix}.{cls.__name__}"
    BUILT_IN.register(cls, name=name, encode=encode, decode=decode)


def _declare_all() -> None:
    for name in _MESSAGES:
        _declare("langchain", getattr(messages, name))
    _declare("langchain", Document)
    for module, names in ((graph, _GRAPH), (store, _STORE)):
        for name in names:
            # Older releases lack some.
            if hasattr(module, name):
                _declare("langgraph", getattr(module, name))
    BUILT_IN.register(_DeltaSnapshot, name="langgraph.DeltaSnapshot")
    _declare_custom("langgraph", graph.Send, _send_parts, _send)
    _declare_custom("langgraph", store.Item, _item_parts, lambda parts: store.Item(**parts))
    _declare_custom(
        "langgraph", store.SearchItem, _item_parts, lambda parts: store.SearchItem(**parts)
    )
    _declare_standard()


def _send_parts(send: Any) -> list[Any]:
    timeout = getattr(send, "timeout", None)
    return [send.node, send.arg] if timeout is None else [send.node, send.arg, timeout]


def _send(parts: list[Any]) -> Any:
    node, arg, *timeout = parts
    return graph.Send(node, arg, timeout=timeout[0]) if timeout else graph.Send(node, arg)


_ITEM = ("value", "key", "namespace", "created_at", "updated_at")


def _item_parts(item: Any) -> dict[str, Any]:
    parts = {name: getattr(item, name) for name in _ITEM}
    return {**parts, "score": item.score} if isinstance(item, store.SearchItem) else parts


def _declare_standard() -> None:
    _declare_custom("python", datetime.timezone, _offset, _zone)
    _declare_custom("python", zoneinfo.ZoneInfo, _zone_key, zoneinfo.ZoneInfo)
    for secret in (pydantic.SecretStr, pydantic.SecretBytes):
        _declare_custom("pydantic", secret, lambda one: one.get_secret_value(), secret)


def _offset(zone: datetime.timezone) -> list[Any]:
    delta, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return [delta, *name]


def _zone(parts: list[Any]) -> datetime.timezone:
    return datetime.timezone(*parts)


def _zone_key(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise ValueError("a time zone that was read from a file has no key")
    return zone.key


def model_v1_forms(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How a model of pydantic's first version is stored, and made again."""

    def encode(value: Any) -> list[Any]:
        private = {
            name: getattr(value, name)
            for name in cls.__private_attributes__
            if hasattr(value, name)
        }
        return [dict(value.__dict__), sorted(value.__fields_set__), private]

    def decode(parts: list[Any]) -> Any:
        fields, named, private = parts
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__fields_set__", set(named))
        for name, value in private.items():
            object.__setattr__(made, name, value)
        return made

    return encode, decode


_declare_all()
