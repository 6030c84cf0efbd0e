"""A value as its parts: what a container or a large value is made of."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from ropewalk.codec._codes import Code
from ropewalk.codec._msgpack import array_header, extension, map_header, pack, unpack


class Form(Enum):
    """Which kind of parts a value has."""

    SEQUENCE = "sequence"
    MAPPING = "mapping"
    BYTES = "bytes"


class Opened(NamedTuple):
    """A value taken apart.

    `parts` is a list (sequence), a dict (mapping) or bytes. `head` is what else is
    needed to put the value together again: the name and version of a class, the
    shape of an array, the longest length of a deque.
    """

    code: Code
    form: Form
    parts: Any
    head: tuple[Any, ...] = ()


def nests(opened: Opened) -> bool:
    """Whether the bytes of a value hold other values, so that its depth counts."""
    return opened.form is not Form.BYTES or bool(opened.head) or opened.code == Code.ENUM


def open_extension(code: int, payload: bytes) -> Opened:
    """The parts that an encoded value was made of, as they are encoded, and not checked.

    Those of a mapping are its keys and values in turn.
    """
    if code in _BARE:
        return Opened(Code(code), Form.SEQUENCE, unpack(payload))
    if code in (Code.DEQUE, Code.DEFAULT_DICT, Code.FRAME):
        *head, parts = unpack(payload)
        return Opened(Code(code), Form.SEQUENCE, parts, tuple(head))
    if code == Code.RECORD:
        *head, fields = unpack(payload)
        return Opened(Code.RECORD, Form.MAPPING, fields, tuple(head))
    if code == Code.CUSTOM:
        *head, inner = unpack(payload)
        return Opened(Code.CUSTOM, Form.SEQUENCE, [inner], tuple(head))
    if code == Code.ARRAY:
        *head, data = unpack(payload)
        return Opened(Code.ARRAY, Form.BYTES, data, tuple(head))
    return Opened(Code(code), Form.BYTES, payload)


_BARE = frozenset(
    {Code.TUPLE, Code.SET, Code.FROZENSET, Code.DICT, Code.ORDERED_DICT, Code.COUNTER}
)


def close_sequence(code: int, head: tuple[Any, ...], parts: list[bytes]) -> bytes:
    """The encoding of a sequence from the encodings of its parts."""
    if code == Code.CUSTOM:
        return extension(code, _headed(head) + parts[0])
    body = array_header(len(parts)) + b"".join(parts)
    if code == Code.LIST:
        return body
    return extension(code, _headed(head) + body if head else body)


def close_mapping(
    code: int, head: tuple[Any, ...], keys: list[bytes], parts: list[bytes], plain_keys: bool
) -> bytes:
    """The encoding of a mapping from the encodings of its keys and parts."""
    pairs = b"".join([piece for pair in zip(keys, parts, strict=True) for piece in pair])
    if code == Code.RECORD:
        return extension(code, _headed(head) + map_header(len(keys)) + pairs)
    if plain_keys and code == Code.DICT:
        return map_header(len(keys)) + pairs
    body = array_header(2 * len(keys)) + pairs
    return extension(code, _headed(head) + body if head else body)


def _headed(head: tuple[Any, ...]) -> bytes:
    return array_header(len(head) + 1) + b"".join([pack(piece) for piece in head])
