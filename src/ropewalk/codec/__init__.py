"""A value as canonical bytes and back. Pure: no store, clock or socket."""

from __future__ import annotations

from typing import Any

from ropewalk.codec.codec import Codec
from ropewalk.codec.decoder import check_canonical
from ropewalk.codec.paths import Field, Path, format_path, parse_path, spell_path
from ropewalk.codec.registry import Classes, Registry, Undeclared, default_registry, register

__all__ = [
    "Classes",
    "Codec",
    "Field",
    "Path",
    "Registry",
    "Undeclared",
    "check_canonical",
    "decode",
    "default_codec",
    "default_registry",
    "encode",
    "format_path",
    "inspection_codec",
    "parse_path",
    "register",
    "spell_path",
]

default_codec = Codec()
inspection_codec = Codec(Registry(), classes="declared", undeclared="show")
"""For tools that look at what any program stored: every class is shown by its fields."""


def encode(value: Any) -> bytes:
    """The one encoding of a value, with the classes that `register` declared.

    Raises NotStorable, with the path inside the value, for what has no exact form.
    """
    return default_codec.encode(value)


def decode(data: bytes) -> Any:
    """The value of an encoding from anywhere; raises FormatError.

    Plain classes that are loaded come back, and declared ones: another raises UndeclaredClass.
    """
    return default_codec.decode(data)
