"""Msgpack as the format uses it: type codes, packing by ormsgpack, values as their parts."""

from __future__ import annotations

import gc
import marshal
import operator
import pickle
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from io import BytesIO
from itertools import compress
from typing import Any, Final, NamedTuple

import ormsgpack
from ormsgpack import Ext


class Code(IntEnum):
    """What an extension, or the root of a large value, stands for."""

    LINK = 1
    TUPLE = 2
    SET = 3
    FROZENSET = 4
    DICT = 5
    BYTEARRAY = 6
    INT = 7
    COMPLEX = 8
    DATE = 9
    TIME = 10
    DATETIME = 11
    TIMEDELTA = 12
    UUID = 13
    DECIMAL = 14
    PATH = 15
    ENUM = 16
    RECORD = 17
    CUSTOM = 18
    ARRAY = 19
    SCALAR = 20
    PICKLE = 21
    DEQUE = 22
    ORDERED_DICT = 23
    COUNTER = 24
    DEFAULT_DICT = 25
    RANGE = 26
    FRACTION = 27
    PATTERN = 28
    IP_ADDRESS = 29
    FRAME = 30
    # Types that msgpack has itself; they appear only at the root of a large value.
    LIST = 32
    BYTES = 33
    STR = 34
    MAP = 35


MAX_NESTED: Final = 32
"""How many extensions may stand inside one another."""

FREE_NESTED: Final = 3
"""Down to this depth of extensions, lists and dicts nest as deep as ormsgpack allows."""

DEEP_NESTING: Final = 64
"""Below that, lists and dicts nest at most this deep, so that the stack stays bounded."""

ATTEMPTS: Final = 8
"""How often something is read again while others change it."""

NO_ROOM: Final = "the call stack has no room left for a value nested this deep"
"""Why a value is refused that is not too deep, but the stack of its caller is."""


OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

_PLAIN_CONTAINERS = {list: True, dict: True}
_PACKED = frozenset({Ext, ormsgpack.Fragment})
_BINARY = _PACKED | {bytes, bytearray, memoryview}
"""What ormsgpack writes without asking the hook, beside texts and numbers."""


def pack(value: Any, hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode; raises TypeError for what msgpack and the hook cannot say."""
    return ormsgpack.packb(value, hook, OPTIONS)


COPIED: Final = 1 << 16
"""Up to so many bytes a value is copied to see the types in it, which is faster than a walk."""


def unpack(data: bytes, hook: Callable[[int, bytes], Any] = Ext) -> Any:
    """Decode; raises ValueError. By default an extension stays an opaque `Ext`."""
    return ormsgpack.unpackb(data, ext_hook=hook)


def hidden_failure(exc: BaseException) -> BaseException | None:
    """What a hook raised without noting it, where ormsgpack says that a hook failed.

    Our hooks note what they raise, and ormsgpack says nothing of it. Where nothing is
    noted, the hook was not entered: the call stack was full, or an interrupt came.
    Only for what ormsgpack raised itself.
    """
    reason = str(exc)
    if reason != "ext_hook failed" and not reason.startswith("Type is not msgpack serializable"):
        return None
    try:
        _descend(_MARGIN)
    except RecursionError as full:
        return full
    return KeyboardInterrupt()


_MARGIN = 8
"""With so many frames left, a hook may have failed for want of frames."""


def _descend(frames: int) -> None:
    if frames:
        _descend(frames - 1)


def may_hold_binary(data: bytes) -> bool:
    """Whether encoded bytes may contain a binary value; never wrong when it says no."""
    return 0xC4 in data or 0xC5 in data or 0xC6 in data


def binary_types(value: Any) -> set[type]:
    """Which of bytes and the types that ormsgpack takes for bytes a value holds.

    Walks lists and dicts at the speed of C. Extensions are the hook's business.
    """
    found: set[type] = {type(value)}
    layer = [value] if type(value) in _PLAIN_CONTAINERS else []
    while layer:
        held = gc.get_referents(*layer)
        types = set(map(type, held))
        found |= types
        if types.isdisjoint(_PLAIN_CONTAINERS):
            break
        layer = list(compress(held, map(_PLAIN_CONTAINERS.__contains__, map(type, held))))
    return found & _BINARY


def holds_binary(data: bytes) -> bool:
    """Whether an encoding holds a binary value outside of its extensions.

    It is the bytes that are looked at, because nobody changes those.
    """
    if 0xC4 in data or 0xC5 in data or 0xC6 in data:
        return bytes in binary_types(unpack(data))
    return False


def pack_exact_binary(value: Any) -> bytes | None:
    """Encode what msgpack can say, if what it writes as binary is bytes; else None.

    ormsgpack takes a bytearray or a memoryview for bytes. A pickle names a bytearray, and is made
    of nothing else that ormsgpack takes for bytes or writes as it is. Both are made within one
    call, so that no other thread changes the value between them. Nothing ever loads the pickle.
    """
    pickled = BytesIO()
    encoders: list[Callable[[], Any]] = [
        partial(ormsgpack.packb, value, None, OPTIONS),
        partial(pickle.Pickler(pickled, 4).dump, value),
    ]
    try:
        data, _ = map(operator.call, encoders)
    except (TypeError, pickle.PicklingError, RecursionError):
        return None
    return None if b"bytearray" in pickled.getvalue() else data


def holds_packed(value: Any, size: int) -> bool:
    """Whether a value that was packed into so many bytes holds an Ext or Fragment.

    ormsgpack writes those without asking the hook. That they are not of a type that marshal
    knows is seen five times faster than by a walk, but it copies what it looks at.
    """
    if size <= COPIED:
        try:
            marshal.dumps(value)
        except ValueError:
            pass  # Or a value that nests deeper than marshal goes.
        else:
            return False
    return not _PACKED.isdisjoint(binary_types(value))


def says_too_deep(exc: TypeError) -> bool:
    """Whether ormsgpack refused a value because of its depth."""
    return "ecursion" in str(exc)


def array_header(count: int) -> bytes:
    """The head of an array with `count` elements."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def map_header(count: int) -> bytes:
    """The head of a map with `count` pairs."""
    if count < 16:
        return bytes([0x80 | count])
    if count < 1 << 16:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")


def extension(code: int, payload: bytes) -> bytes:
    """A whole extension."""
    size = len(payload)
    if 1 << 8 <= size < 1 << 16:  # Most are such, and this takes half as long.
        return b"\xc8%c%c%c%b" % (size >> 8, size & 255, code, payload)
    return pack(Ext(code, payload))


def nesting_exceeds(data: bytes, limit: int) -> bool:
    """Whether arrays and maps nest deeper than `limit`, without decoding them.

    Malformed bytes count as too deep: nobody may recurse into them.
    """
    if len(data) <= limit:
        return False
    open_counts: list[int] = []
    at, end = 0, len(data)
    while at < end:
        lead = data[at]
        count, at = _step(data, at, lead)
        if at > end:
            return True
        if count:
            open_counts.append(count)
            if len(open_counts) > limit:
                return True
            continue
        while open_counts and open_counts[-1] == 1:
            open_counts.pop()
        if not open_counts:
            return at != end
        open_counts[-1] -= 1
    return True


_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}
_FIXED |= {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
# Lead byte: width of the length that follows, and what comes between it and the data.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_SIZED |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _step(data: bytes, at: int, lead: int) -> tuple[int, int]:
    """Read one head: how many elements it opens, and where the next head is."""
    if lead < 0x80 or lead >= 0xE0:
        return 0, at + 1
    if lead < 0x90:
        return (lead & 15) * 2, at + 1
    if lead < 0xA0:
        return lead & 15, at + 1
    if lead < 0xC0:
        return 0, at + 1 + (lead & 31)
    if lead in _FIXED:
        return 0, at + 1 + _FIXED[lead]
    if lead in _SIZED:
        width, extra = _SIZED[lead]
        size = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        return 0, at + 1 + width + extra + size
    if lead in _COUNTED:
        width, factor = _COUNTED[lead]
        return int.from_bytes(data[at + 1 : at + 1 + width], "big") * factor, at + 1 + width
    return 0, len(data) + 1


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


_BARE: Final = frozenset(
    {Code.TUPLE, Code.SET, Code.FROZENSET, Code.DICT, Code.ORDERED_DICT, Code.COUNTER}
)
"""Extensions that hold values, and nothing before them."""

HEADED: Final = frozenset(
    {Code.ARRAY, Code.ENUM, Code.RECORD, Code.CUSTOM, Code.DEQUE, Code.DEFAULT_DICT, Code.FRAME}
)
"""Those in which something else stands before what they hold."""

NESTED: Final = _BARE | HEADED


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
