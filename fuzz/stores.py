"""What stores write, to start from, and the verdict about such bytes from anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from zlib import crc32

from ropewalk.errors import Corrupt, FormatError, NewerFormat
from ropewalk.store import Move, Operation
from ropewalk.store.compression import MAX_LENGTH, compress, expand
from ropewalk.store.engine import Header, decode_operation, encode_header, encode_operation
from ropewalk.store.engine import decode_header as decode_store_header
from ropewalk.store.record import Record, decode_header, encode_body, prepare
from ropewalk.store.record import encode_header as head_of
from ropewalk.store.segment import Segment, build
from ropewalk.tree import Kind, make_object

_TEXT = b"the quick agent asks the slow tool again and again. " * 40
_TARGET = bytes(range(32))
_SPACE = "team/agent"


def _frame(data: bytes) -> None:
    assert len(expand(data, _TEXT)) <= MAX_LENGTH


def _record(data: bytes) -> None:
    record = Record.decode(1, data)
    decode_header(_SPACE, record)
    for node in record.nodes():
        if node is not None:
            node.places(1)


def _segment(data: bytes) -> None:
    end = 1 + data[0] if data else 1
    for one in Segment(_SPACE, _sealed(data[1:end]), data[end:]).records():
        one.nodes()


def _sealed(head: bytes) -> bytes:
    """The head of a segment with its checksum, which would else stop nearly everything."""
    return crc32(head, crc32(_SPACE.encode())).to_bytes(4, "little") + head


DECODERS: tuple[Callable[[bytes], object], ...] = (
    _frame,
    _record,
    _segment,
    decode_store_header,
    lambda data: decode_operation(_SPACE, data),
)


def judge(data: bytes) -> None:
    """The first byte chooses a decoder; it may refuse the rest, and nothing else."""
    if not data:
        return
    with contextlib.suppress(FormatError, NewerFormat, Corrupt):
        DECODERS[data[0] % len(DECODERS)](data[1:])


def store_seeds() -> list[bytes]:
    """Sound bytes for each decoder."""
    objects = [make_object(Kind.CHUNK, piece) for piece in (b"a", _TEXT)]
    moves = [Move("branch/main", None, _TARGET)]
    append = prepare(
        _SPACE, {one.id: one for one in objects}, (), moves, None, {}, "write",
        share=False, step=None, fresh=True,
    )  # fmt: skip
    append.objects, append.known_epoch, append.time = objects, 1, 5
    body = encode_body(head_of(append, [(), ()]), objects, [(), ()], {})
    packed = build(_SPACE, [Record.decode(1, body)], [])
    operation = Operation(
        _SPACE, 1, (Move("branch/main", None, _TARGET),), "write", 5, 0, {"step": "parse"}
    )
    frames = [compress(b"x"), compress(_TEXT), compress(_TEXT + b"more", _TEXT)]
    return [
        *(b"\0" + frame for frame in frames),
        b"\x01" + body,
        b"\x02" + bytes((len(packed.head) - 4,)) + packed.head[4:] + packed.data,
        b"\x03" + encode_header(Header(bytes(16))),
        b"\x04" + encode_operation(operation),
    ]
