"""Compressed bytes, with or without a dictionary.

A frame is

    tag     1 byte    0 raw; 1 to 62 zstd with the built-in dictionary of that number;
                      63 zstd alone; 64 zstd with a dictionary that the reader must know
    length  varint    of what comes out
    body              as it is, or the blocks of one zstd frame

zstd's own header is not stored. It is rebuilt from `length`, so that a frame cannot ask for more
memory than it says.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path

import zstandard

from ropewalk.errors import FormatError

MAX_LENGTH = 256 * 1024 * 1024
"""The most bytes that one frame may hold."""

SMALL_BODY = 4096
"""A compressor prepared with a dictionary of at most so many bytes is kept for the next frame."""

_RAW, _ALONE, _GIVEN = 0, 63, 64
_USES_DICTIONARY = 4096  # Longer ones gain little from the built-in dictionary.
_SMALLEST = 24  # Below this, zstd's own overhead eats the gain.
_HEADER = b"\x28\xb5\x2f\xfd\xa0"  # Magic; one segment, content size in 4 bytes.
_TAGS = [bytes((tag,)) for tag in range(_GIVEN + 1)]


def _parameters(level: int) -> zstandard.ZstdCompressionParameters:
    return zstandard.ZstdCompressionParameters.from_level(
        level,
        format=zstandard.FORMAT_ZSTD1_MAGICLESS,
        write_content_size=False,
        write_checksum=False,
        write_dict_id=False,
    )


_FAST, _SMALL = _parameters(1), _parameters(7)
# A pool: a (de)compressor is not thread-safe, and creating one takes longer than using it. They are
# not thread-local, because frameworks create threads for a single call.
_compressors: dict[tuple[int | bytes, bool], zstandard.ZstdCompressor] = {}
_decompressors: dict[int | bytes, zstandard.ZstdDecompressor] = {}
_MOST_IDLE = 16


def compress(data: bytes, dictionary: bytes | None = None, *, small: bool = False) -> bytes:
    """A frame of some bytes; `small` takes longer for fewer bytes."""
    length = len(data)
    if length < _SMALLEST:
        return bytes((_RAW, length)) + data
    tag = _GIVEN
    if dictionary is None:
        tag = CURRENT if length <= _USES_DICTIONARY else _ALONE
    key = (dictionary or tag, small)
    compressor = _compressors.pop(key, None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(
            dict_data=_dictionary(tag) if dictionary is None else _given(dictionary),
            compression_params=_SMALL if small else _FAST,
        )
    blocks = compressor.compress(data)
    if dictionary is None or len(dictionary) <= SMALL_BODY:
        _compressors[key] = compressor
        if len(_compressors) > _MOST_IDLE:
            for unused in list(_compressors)[:-_MOST_IDLE]:
                _compressors.pop(unused, None)
    # Without magic, size, checksum and dictionary id, two bytes stand before the blocks.
    head = varint(length)
    return bytes((_RAW,)) + head + data if len(blocks) >= length else _TAGS[tag] + head + blocks[2:]


def expand(frame: bytes, dictionary: bytes | None = None) -> bytes:
    """What is in a frame; raises `FormatError`."""
    if len(frame) < 2:
        raise FormatError("a frame is empty or too short")
    tag = frame[0]
    length, start = read_varint(frame, 1)
    if length > MAX_LENGTH:
        raise FormatError(f"a frame promises {length} bytes; the most is {MAX_LENGTH}")
    body = frame[start:]
    if tag == _RAW:
        if len(body) != length:
            raise FormatError(f"a raw frame holds {len(body)} bytes and promises {length}")
        return body
    if tag > _GIVEN or (tag == _GIVEN and dictionary is None):
        raise FormatError("a frame has an unknown tag, or was read without its dictionary")
    key = dictionary if tag == _GIVEN and dictionary is not None else tag
    decompressor = _decompressors.pop(key, None)
    if decompressor is None:
        known = _dictionary(key) if isinstance(key, int) else _given(key)
        decompressor = zstandard.ZstdDecompressor(dict_data=known)
    try:
        data = decompressor.decompress(
            _HEADER + length.to_bytes(4, "little") + body, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise FormatError(f"a frame does not decompress: {error}") from None
    if isinstance(key, int) or len(key) <= SMALL_BODY:
        _decompressors[key] = decompressor
        if len(_decompressors) > _MOST_IDLE:
            for unused in list(_decompressors)[:-_MOST_IDLE]:
                _decompressors.pop(unused, None)
    if len(data) != length:
        raise FormatError(f"a frame holds {len(data)} bytes and promises {length}")
    return data


@lru_cache(4096)  # Which takes a tenth of the time.
def varint(number: int) -> bytes:
    """A whole number in as few bytes as it takes."""
    if number < 128:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; raises `FormatError`."""
    try:
        byte = data[at]
        at += 1
        if byte < 128:
            return byte, at
        number, shift = byte & 0x7F, 7
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 128:
                return number, at
            shift += 7
            if shift > 63:
                raise FormatError("a number is too long")
    except IndexError:
        raise FormatError("a number is cut off") from None


_VARINT = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")


def take_varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """So many numbers and where they end; raises `FormatError`."""
    found: list[bytes] = _VARINT.findall(data, at, at + 3 * count)[:count]  # Most are small.
    if len(found) < count:
        found = _VARINT.findall(data, at, at + 10 * count)[:count]
    end = at + sum(map(len, found))
    if len(found) < count or b"".join(found) != data[at:end]:
        raise FormatError("a number is cut off, or too long")
    return list(map(_number, found)), end


@lru_cache(4096)
def _number(data: bytes) -> int:
    return read_varint(data, 0)[0]


def read_varints(data: bytes) -> list[int]:
    """The numbers that some bytes are; raises `FormatError`."""
    found: list[int] = []
    number = shift = 0
    for byte in data:
        if byte >= 128:
            number |= (byte & 0x7F) << shift
            shift += 7
        elif shift:
            found.append(number | byte << shift)
            number = shift = 0
        else:
            found.append(byte)
    if shift:
        raise FormatError("a number is cut off")
    return found


def _given(dictionary: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


@cache
def _dictionary(tag: int) -> zstandard.ZstdCompressionDict | None:
    return None if tag == _ALONE else zstandard.ZstdCompressionDict(dictionary_bytes(tag))


CURRENT = 1
"""The number that new frames are written with."""

_DIGESTS = {
    1: "84002db48a849f1e4b92e13602f76351d60328ae966a6d6e06336553462a8740",
}


@cache
def dictionary_bytes(number: int) -> bytes:
    """The bytes of a built-in dictionary; `FormatError` if this version has none."""
    if number not in _DIGESTS:
        raise FormatError(f"no built-in dictionary has number {number} in this version")
    # Not `pkgutil`: to import it takes as long as the first read of a process.
    data = Path(__file__).with_name("dictionaries").joinpath(f"{number}.zdict").read_bytes()
    if sha256(data).hexdigest() != _DIGESTS[number]:
        raise FormatError(
            f"built-in dictionary {number} is not the one that was published: install again"
        )
    return data
