"""Stored values as LangGraph's serializer takes them.

An object of a class that nobody declared becomes the extension that this serializer would
have written for it, so that the class need not be imported to give it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.serde.jsonplus import _msgpack_enc
from ormsgpack import Ext

from ropewalk.adapters.langgraph._deferred import Call, class_name, is_deferred
from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.codec import Codec
from ropewalk.codec.decoder import Decoder, no_links
from ropewalk.codec.msgpack import Code
from ropewalk.errors import NotStorable

_EXTRA = "+"


class OfficialForms(Codec):
    """Reads what a saver stored, to be written again by LangGraph's own."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types.registry, classes=types.registry.classes, undeclared="show")

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec."""
        return _FormsDecoder(self, link)


class _FormsDecoder(Decoder):
    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        return _form(code, head[0], content)


def _form(code: Code, name: str, content: Any) -> Ext:
    module, _, cls = class_name(name).rpartition(".")
    if is_deferred(name) and isinstance(content, list) and len(content) in (2, 3):
        call, argument, *method = content
        return Ext(call, _msgpack_enc([module, cls, argument, *method]))
    if code != Code.RECORD or not module:
        raise NotStorable(
            f"a value of class {name!r:.120} can be given back only by a program that declares it"
        )
    fields = {
        one.removeprefix(_EXTRA): value for one, value in content.items() if not one.startswith("_")
    }
    return Ext(int(Call.NAMES), _msgpack_enc([module, cls, fields]))
