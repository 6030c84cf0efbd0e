"""Frames: what an engine stores for one object.

A frame is

    tag       1 byte    0 raw; 1 to 62 zstd with the built-in dictionary of that number;
                        63 zstd alone; 65 to 72 zstd against another object, 64 + depth
    kind      1 byte    the object's kind
    length    varint    the payload's length, in its shortest spelling
    base      32 bytes  only for tags 65 to 72: the object it is stored against
    body                the payload, or the blocks of one zstd frame

zstd's own frame header is not stored. It is rebuilt from `length` on reading, so it
cannot ask for more memory than the payload takes. Depth counts the frames that must
be read before this one; a base always has a smaller depth. Other tags are reserved.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import NamedTuple

import zstandard

from ropewalk.errors import FormatError, InvalidInput
from ropewalk.store._dictionaries import CURRENT, dictionary_bytes
from ropewalk.tree.objects import ID_SIZE, Kind, ObjectId

MAX_PAYLOAD = 16 * 1024 * 1024
"""The most bytes that one object may hold."""

MAX_DEPTH = 8
"""The most frames that stand before one frame."""

_RAW = 0
_ALONE = 63
_DELTA = 64
# Level 3 would save 5 % of the bytes and compress half as long again.
_LEVEL = 1
_USES_DICTIONARY = 2048  # Longer payloads gain little from one, and are read faster alone.
_SMALLEST_COMPRESSED = 24  # Below this, zstd's own overhead eats the gain.
_ZSTD_HEADER = b"\x28\xb5\x2f\xfd\xa0"  # Magic; one segment, content size in 4 bytes.
_KINDS: tuple[Kind | None, ...] = tuple(
    Kind(byte) if byte in Kind._value2member_map_ else None for byte in range(256)
)
_PARAMETERS = zstandard.ZstdCompressionParameters.from_level(
    _LEVEL,
    format=zstandard.FORMAT_ZSTD1_MAGICLESS,
    write_content_size=False,
    write_checksum=False,
    write_dict_id=False,
)


class FrameHeader(NamedTuple):
    """What a frame says before its body."""

    tag: int
    kind: Kind
    length: int
    base: ObjectId | None
    depth: int
    start: int
    """Where the body begins."""


# Compressors and decompressors are not safe to share between threads.
_local = threading.local()


def encode_whole(kind: Kind, payload: bytes) -> bytes:
    """Frame a payload so that it can be read alone."""
    length = len(payload)
    _check_length(length)
    size = _varint(length)
    if length >= _SMALLEST_COMPRESSED:
        tag = CURRENT if length <= _USES_DICTIONARY else _ALONE
        blocks = _strip(_compressor(tag).compress(payload))
        if len(blocks) + (length >> 6) < length:
            return bytes((tag, kind)) + size + blocks
    return bytes((_RAW, kind)) + size + payload


def encode_delta(
    kind: Kind, payload: bytes, base: ObjectId, base_payload: bytes, depth: int
) -> bytes:
    """Frame a payload against another object's; `depth` is the base's depth plus one."""
    assert 1 <= depth <= MAX_DEPTH and len(base) == ID_SIZE
    _check_length(len(payload))
    dictionary = zstandard.ZstdCompressionDict(
        base_payload, dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )
    compressor = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=_PARAMETERS)
    blocks = _strip(compressor.compress(payload))
    return bytes((_DELTA + depth, kind)) + _varint(len(payload)) + base + blocks


def decode_frame(
    frame: bytes, base_payload: bytes | None = None, header: FrameHeader | None = None
) -> tuple[Kind, bytes]:
    """The kind and payload of a frame, not yet checked against a hash.

    A frame with a base needs that object's payload; its header may be known. Raises
    `FormatError` for bytes that are no frame; never takes more memory than `MAX_PAYLOAD`
    allows.
    """
    if header is None:
        tag, kind, length, base, start = _parse(frame)
    else:
        tag, kind, length, base, _, start = header
    body = frame[start:]
    if tag == _RAW:
        if len(body) != length:
            raise FormatError(f"a raw frame holds {len(body)} bytes and promises {length}")
        return kind, body
    if length == 0:
        raise FormatError("a compressed frame of an empty payload")
    if base is None:
        try:
            decompressor = _local.decompressors[tag]
        except (AttributeError, KeyError):
            decompressor = _decompressor(tag)
    elif base_payload is None:
        raise FormatError("a frame with a base was read without it")
    else:
        dictionary = zstandard.ZstdCompressionDict(
            base_payload, dict_type=zstandard.DICT_TYPE_RAWCONTENT
        )
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
    return kind, _decompress(decompressor, body, length)


def parse_header(frame: bytes) -> FrameHeader:
    """Read a frame's header, checking all of it; `FormatError` if it is none."""
    tag, kind, length, base, start = _parse(frame)
    return FrameHeader(tag, kind, length, base, 0 if base is None else tag - _DELTA, start)


def frame_base(frame: bytes) -> ObjectId | None:
    """The object that a frame is stored against: an edge that collection follows."""
    return parse_header(frame).base


def frame_depth(frame: bytes) -> int:
    """How many frames must be read before this one."""
    return parse_header(frame).depth


def read_size(frame: bytes) -> tuple[int, int]:
    """The payload's length that a frame states, and where that statement ends."""
    if len(frame) < 3:
        raise FormatError(f"a frame of {len(frame)} bytes is too short")
    length = frame[2]
    return (length, 3) if length <= 0x7F else _read_varint(frame, 2)


def _parse(frame: bytes) -> tuple[int, Kind, int, ObjectId | None, int]:
    if not frame:
        raise FormatError("what should hold its bytes is gone or too short")
    if len(frame) < 3:
        raise FormatError(f"a frame of {len(frame)} bytes is too short")
    tag, kind = frame[0], _KINDS[frame[1]]
    if kind is None:
        raise FormatError(f"a frame holds an object of unknown kind {frame[1]}")
    length, start = frame[2], 3
    if length > 0x7F:
        length, start = _read_varint(frame, 2)
    if length > MAX_PAYLOAD:
        raise FormatError(f"a frame promises {length} bytes; the most is {MAX_PAYLOAD}")
    if tag <= _ALONE:
        return tag, kind, length, None, start
    if not 1 <= tag - _DELTA <= MAX_DEPTH:
        raise FormatError(f"a frame has the unknown tag {tag}")
    base = frame[start : start + ID_SIZE]
    if len(base) != ID_SIZE:
        raise FormatError("a frame ends inside the id of its base")
    return tag, kind, length, base, start + ID_SIZE


def _decompress(decompressor: zstandard.ZstdDecompressor, blocks: bytes, length: int) -> bytes:
    data = _ZSTD_HEADER + length.to_bytes(4, "little") + blocks
    try:
        payload = decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FormatError(f"a frame does not decompress: {error}") from None
    if len(payload) != length:
        raise FormatError(f"a frame holds {len(payload)} bytes and promises {length}")
    return payload


def _strip(compressed: bytes) -> bytes:
    # Without magic, size, checksum and dictionary id, two bytes stand before the blocks.
    assert compressed[0] == 0
    return compressed[2:]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, start: int) -> tuple[int, int]:
    # Most lengths take two bytes, and every read comes by here.
    if start + 1 < len(data) and 0 < data[start + 1] <= 0x7F:
        return data[start] & 0x7F | data[start + 1] << 7, start + 2
    byte, number, shift, end = 0x80, 0, 0, start
    while byte > 0x7F:
        if end == len(data) or shift > 21:
            raise FormatError("a frame's length is cut off or too long")
        byte = data[end]
        number |= (byte & 0x7F) << shift
        shift += 7
        end += 1
    if byte == 0 and end > start + 1:
        raise FormatError("a length is not in its shortest spelling")
    return number, end


def _check_length(length: int) -> None:
    if length > MAX_PAYLOAD:
        raise InvalidInput(
            f"an object of {length} bytes is too large: the most is {MAX_PAYLOAD}. Cut it."
        )


def _compressor(tag: int) -> zstandard.ZstdCompressor:
    known: dict[int, zstandard.ZstdCompressor] | None = getattr(_local, "compressors", None)
    if known is None:
        known = _local.compressors = {}
    found = known.get(tag)
    if found is None:
        found = known[tag] = zstandard.ZstdCompressor(
            dict_data=_dictionary(tag), compression_params=_PARAMETERS
        )
    return found


def _decompressor(tag: int) -> zstandard.ZstdDecompressor:
    known: dict[int, zstandard.ZstdDecompressor] | None = getattr(_local, "decompressors", None)
    if known is None:
        known = _local.decompressors = {}
    found = known.get(tag)
    if found is None:
        found = known[tag] = zstandard.ZstdDecompressor(dict_data=_dictionary(tag))
    return found


@cache
def _dictionary(tag: int) -> zstandard.ZstdCompressionDict | None:
    if tag == _ALONE:
        return None
    dictionary = zstandard.ZstdCompressionDict(dictionary_bytes(tag))
    dictionary.precompute_compress(compression_params=_PARAMETERS)
    return dictionary
