"""The numbers that the format gives to types. Never reuse one."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


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

NO_ROOM: Final = "the call stack has no room left for a value nested this deep"
"""Why a value is refused that is not too deep, but the stack of its caller is."""
