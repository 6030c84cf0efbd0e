"""The containers of the standard library's `collections`.

Each is stored as the list or dict that it holds, under a code of its own; what else it
needs stands before that: the longest length of a deque, the factory of a defaultdict.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Final

from ropewalk.codec._codes import Code
from ropewalk.codec._opened import Form, Opened
from ropewalk.errors import ChangedMeanwhile, FormatError, NotStorable, RopewalkError

MAPPINGS: Final = frozenset({Code.ORDERED_DICT, Code.COUNTER, Code.DEFAULT_DICT})

CLASSES: Final[dict[int, type]] = {
    Code.DEQUE: deque,
    Code.ORDERED_DICT: OrderedDict,
    Code.COUNTER: Counter,
    Code.DEFAULT_DICT: defaultdict,
}

# The factories that a defaultdict may have. Reading calls none of them.
_FACTORIES: Final[dict[str, type]] = {
    factory.__name__: factory
    for factory in (
        *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple),
        *(Counter, OrderedDict, deque),
    )
}
_NAMES: Final = {factory: name for name, factory in _FACTORIES.items()}
_LONGEST: Final = 2**63


def open_collection(value: Any) -> Opened | None:
    """The parts of a container, as they are at one moment; None for other values."""
    opener = _OPENERS.get(type(value))
    if opener is None:
        return None
    try:
        opened: Opened = opener(value)
    except (RuntimeError, KeyError) as exc:
        if isinstance(exc, RopewalkError | RecursionError):
            raise
        raise ChangedMeanwhile from exc
    return opened


def _open_deque(value: deque[Any]) -> Opened:
    return Opened(Code.DEQUE, Form.SEQUENCE, list(value), (value.maxlen,))


def _open_ordered(value: OrderedDict[Any, Any]) -> Opened:
    _expect_no_attributes(value)
    # Its order is its own, and not that of the dict which it is underneath.
    return Opened(Code.ORDERED_DICT, Form.MAPPING, dict(list(OrderedDict.items(value))))


def _open_counter(value: Counter[Any]) -> Opened:
    _expect_no_attributes(value)
    return Opened(Code.COUNTER, Form.MAPPING, dict.copy(value))


def _open_default(value: defaultdict[Any, Any]) -> Opened:
    factory: Any = value.default_factory
    try:
        name = None if factory is None else _NAMES[factory]
    except (KeyError, TypeError):
        raise NotStorable(
            f"the factory of a defaultdict is stored only if it is None or one of "
            f"{', '.join(_FACTORIES)}; this one is {factory!r:.80}. Use one of these, or store "
            "dict(value)"
        ) from None
    return Opened(Code.DEFAULT_DICT, Form.MAPPING, dict.copy(value), (name,))


def _expect_no_attributes(value: Any) -> None:
    if value.__dict__:
        raise NotStorable(
            f"the attributes of this {type(value).__name__} would be lost: "
            f"{', '.join(map(str, value.__dict__))[:80]}"
        )


_OPENERS: Final[dict[type, Any]] = {
    deque: _open_deque,
    OrderedDict: _open_ordered,
    Counter: _open_counter,
    defaultdict: _open_default,
}


def check_head(code: int, head: Any) -> None:
    """Raise FormatError unless this can stand before the content of a container."""
    if code == Code.DEQUE:
        sound = len(head) == 1 and (
            head[0] is None or (type(head[0]) is int and 0 <= head[0] < _LONGEST)
        )
    elif code == Code.DEFAULT_DICT:
        sound = len(head) == 1 and (
            head[0] is None or (type(head[0]) is str and head[0] in _FACTORIES)
        )
    else:
        sound = not head
    if not sound:
        raise FormatError(f"a stored {CLASSES[code].__name__} is malformed")


def build_collection(code: int, head: list[Any], parts: Any) -> Any:
    """A container from its parts, a list or a dict; raises FormatError."""
    check_head(code, head)
    if code == Code.DEQUE:
        if head[0] is not None and len(parts) > head[0]:
            raise FormatError("a stored deque has more items than its maxlen")
        return deque(parts, head[0])
    if code == Code.DEFAULT_DICT:
        return defaultdict(None if head[0] is None else _FACTORIES[head[0]], parts)
    made: Any = CLASSES[code]()
    made.update(parts)
    return made
