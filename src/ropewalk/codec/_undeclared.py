"""Values of classes that a program does not know, for programs that only look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ormsgpack import Ext

from ropewalk.codec._atoms import atom_of
from ropewalk.codec._codes import Code
from ropewalk.codec._msgpack import pack
from ropewalk.codec._opened import Form, Opened


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Stands for a value whose class this program did not declare. It runs no code.

    Given by a `Codec` with `undeclared="show"`. Stored again, it is what it was.
    """

    name: str
    """The name of its class, as it was stored; `pickle` for a pickle."""
    version: int
    content: Any
    """Its fields, by name; the name of an enum's member; the bytes of a pickle."""
    opened: Opened

    def __hash__(self) -> int:
        # Fields may not be hashable, but the value may have been a key.
        return hash((self.name, self.version))

    def __repr__(self) -> str:
        if isinstance(self.content, dict):
            fields = ", ".join(f"{name}={value!r}" for name, value in self.content.items())
            return f"{self.name}({fields})"
        return f"{self.name}({self.content!r})"


def undeclared(code: int, head: list[Any], content: Any) -> Undeclared:
    """The stand-in for a record, a member of an enum, or a custom value."""
    name, version = head[0], head[1]
    if code == Code.ENUM:
        opened = Opened(Code.ENUM, Form.BYTES, member_bytes(name, version, content))
    elif code == Code.CUSTOM:
        opened = Opened(Code.CUSTOM, Form.SEQUENCE, [content], tuple(head))
    else:
        opened = Opened(Code.RECORD, Form.MAPPING, content, tuple(head))
    return Undeclared(name, version, content, opened)


def member_bytes(name: str, version: int, member: Any) -> bytes:
    """How a member of an enum is stored; raises TypeError if it is neither text nor number."""
    large = type(member) is int and not -(2**63) <= member < 2**64
    atom = atom_of(int) if large else None
    return pack([name, version, member if atom is None else Ext(atom.code, atom.encode(member))])


def undeclared_pickle(data: bytes) -> Undeclared:
    """The stand-in for a pickle, which is not loaded."""
    return Undeclared("pickle", 1, data, Opened(Code.PICKLE, Form.BYTES, data))
