"""What stores write, to start from, and the verdict about such bytes from anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ropewalk.errors import FormatError, NewerFormat
from ropewalk.store import (
    MAX_PAYLOAD,
    Header,
    Move,
    Operation,
    build_pack,
    decode_frame,
    decode_header,
    decode_operation,
    encode_delta,
    encode_header,
    encode_operation,
    encode_whole,
    frame_base,
    open_pack,
    seal_pack,
)
from ropewalk.store._framing import Framed
from ropewalk.tree import Kind, make_object

_BASE = b"the quick agent asks the slow tool again and again. " * 40
_TARGET = bytes(range(32))


def _frame(frame: bytes) -> None:
    frame_base(frame)
    _, payload = decode_frame(frame, _BASE)
    assert len(payload) <= MAX_PAYLOAD


DECODERS: tuple[Callable[[bytes], object], ...] = (
    _frame,
    open_pack,
    decode_header,
    lambda data: decode_operation("team/agent", data),
)


def judge(data: bytes) -> None:
    """The first byte chooses a decoder; it may refuse the rest, and nothing else."""
    if not data:
        return
    with contextlib.suppress(FormatError, NewerFormat):
        DECODERS[data[0] % len(DECODERS)](data[1:])


def store_seeds() -> list[bytes]:
    """Sound bytes for each decoder."""
    frames = [
        encode_whole(Kind.ITEMS, b"x"),
        encode_whole(Kind.ITEMS, _BASE),
        encode_whole(Kind.CHUNK, _BASE[:500]),
        encode_delta(Kind.ITEMS, _BASE + b"more", _TARGET, _BASE, 1),
    ]
    objects = [make_object(Kind.CHUNK, piece) for piece in (b"a", b"b" * 50)]
    framed = [Framed(one.id, encode_whole(one.kind, one.payload), None, 0) for one in objects]
    header = Header(bytes(16))
    move = Move("branch/main", None, _TARGET)
    operation = Operation("team/agent", 1, (move,), "write", 5, 0, {"step": "parse"})
    return [
        *(b"\0" + frame for frame in frames),
        b"\x01" + seal_pack(build_pack(framed)),
        b"\x02" + encode_header(header),
        b"\x03" + encode_operation(operation),
    ]
