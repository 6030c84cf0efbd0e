"""Bringing an object up to date in place, because somebody holds it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import takewhile
from types import FunctionType
from typing import Any, Final

from ropewalk.codec import Codec
from ropewalk.codec.frames import library_of
from ropewalk.errors import NotStorable

_MOST_COMPARED: Final = 1_000_000
"""How many pairs of list items may be compared to find out which of them moved."""
_CONTAINERS: Final = (dict, list, set, bytearray, deque)


class Reconciler:
    """Makes of held objects what became of them elsewhere; one for each time that is done.

    Only what differs between the old value and the new one is changed in the held object,
    so what another thread changes in it meanwhile stays. Objects inside that stay what
    they are, or change in their place, stay the same objects: whoever holds them goes on
    with the newest content.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._met: dict[int, Any] = {}
        """Objects that were changed: one that stands in two places is changed for one."""

    def bring(self, held: Any, old: Any, new: Any) -> Any:
        """The held object, which was the old value, as the new one; else the new one."""
        if type(held) is not type(new) or type(old) is not type(new) or id(held) in self._met:
            return new
        if isinstance(held, tuple):
            return self._bring_tuple(held, old, new)
        if type(held) not in _CONTAINERS and _is_fixed(held):
            return new
        self._met[id(held)] = held
        self._bring_content(held, old, new)
        if type(held) in _CONTAINERS:
            return held
        self._bring_attributes(held, old, new)
        try:
            same = self._codec.encode(held) == self._codec.encode(new)
        except NotStorable:
            same = False
        return held if same else new

    # What is inside.

    def _bring_content(self, held: Any, old: Any, new: Any) -> None:
        match held:
            case dict():
                self._bring_dict(held, old, new)
            case list():
                self._bring_list(held, old, new)
            case deque():
                items = list(held)
                self._bring_list(items, list(old), list(new))
                held.clear()
                held.extend(items)
            case set():
                held |= new - old
                held -= old - new
            case bytearray():
                held[:] = new
            case _ if _is_array(held) and held.shape == new.shape and held.dtype == new.dtype:
                held[...] = new

    def _bring_dict(self, held: dict[Any, Any], old: dict[Any, Any], new: dict[Any, Any]) -> None:
        for key in [key for key in old if key not in new]:
            held.pop(key, None)
        for key, value in new.items():
            if key in held and key in old:
                if not self._is_same(old[key], value):
                    held[key] = self.bring(held[key], old[key], value)
            else:
                held[key] = value
        if not self._is_same(list(old), list(new)):
            _put_in_order(held, new)

    def _bring_list(self, held: list[Any], old: list[Any], new: list[Any]) -> None:
        before, after = ([self._identity(item) for item in items] for items in (old, new))
        # From the end, so that what is nearer to the start stays where it is.
        for tag, start, stop, low, high in reversed(_steps(before, after)):
            if tag == "replace" and stop - start == high - low and stop <= len(held):
                held[start:stop] = [
                    self.bring(held[start + at], old[start + at], new[low + at])
                    for at in range(high - low)
                ]
            elif tag != "equal":
                held[start:stop] = new[low:high]

    def _bring_tuple(self, held: Any, old: Any, new: Any) -> Any:
        """The held tuple if only what its items hold had to change."""
        if not len(held) == len(old) == len(new):
            return new
        items = [
            held[at] if self._is_same(old[at], new[at]) else self.bring(held[at], old[at], new[at])
            for at in range(len(new))
        ]
        return held if all(one is other for one, other in zip(items, held, strict=True)) else new

    def _bring_attributes(self, held: Any, old: Any, new: Any) -> None:
        ours, before, after = (getattr(one, "__dict__", None) for one in (held, old, new))
        if type(ours) is type(before) is type(after) is dict:
            self._bring_dict(ours, before, after)
        for name in _slots(type(new)):
            if hasattr(held, name) and hasattr(old, name) and hasattr(new, name):
                value = self.bring(getattr(held, name), getattr(old, name), getattr(new, name))
                object.__setattr__(held, name, value)

    # What is the same.

    def _is_same(self, one: Any, other: Any) -> bool:
        return one is other or self._identity(one) == self._identity(other)

    def _identity(self, value: Any) -> bytes:
        try:
            return self._codec.encode(value)
        except NotStorable:
            # Too deep for one piece, or not to be stored: then it equals nothing.
            return b"%x" % id(value)


def _put_in_order(held: dict[Any, Any], new: Iterable[Any]) -> None:
    if list(held) != list(new):
        for key in new:
            if key in held:
                held[key] = held.pop(key)


def _steps(before: list[bytes], after: list[bytes]) -> list[tuple[str, int, int, int, int]]:
    """How to make one list of another: tag, start and stop before, start and stop after."""
    start = _count_same(before, after)
    end = _count_same(reversed(before[start:]), reversed(after[start:]))
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    if len(left) * len(right) > _MOST_COMPARED or len(left) == len(right):
        size = min(len(left), len(right))
        steps = [("replace", at, at + 1, at, at + 1) for at in range(size) if left[at] != right[at]]
        if len(left) != len(right):
            steps.append(("replace", size, len(left), size, len(right)))
    else:
        steps = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    return [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in steps]


def _count_same(one: Iterable[bytes], other: Iterable[bytes]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _slots(cls: type) -> list[str]:
    """The attributes that an object of a class keeps outside its `__dict__`."""
    named = [getattr(base, "__slots__", ()) for base in cls.__mro__]
    names = [name for one in named for name in ((one,) if isinstance(one, str) else one)]
    fields = getattr(cls, "__struct_fields__", ())
    hidden = ("__dict__", "__weakref__")
    return [name for name in dict.fromkeys([*names, *fields]) if name not in hidden]


def _is_fixed(held: Any) -> bool:
    """Whether an object says that it never changes: by its class, or by a hash of its content."""
    cls = type(held)
    if isinstance(held, type | FunctionType):
        return True
    if library_of(held) is not None:
        return True
    if _is_array(held):
        return not held.flags.writeable
    for name in ("__dataclass_params__", "__struct_config__"):
        if getattr(getattr(cls, name, None), "frozen", False):
            return True
    try:
        hash(held)
    except Exception:  # noqa: BLE001 - whatever it raises, nobody finds it by its hash
        return False
    own: Any = cls.__hash__
    return own is not object.__hash__


def _is_array(held: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(held, numpy.ndarray)
