"""A value as a view sees it: what it is, how much of it there is, and a part at a time."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import islice
from json import dumps
from typing import Any, Literal, NamedTuple, TypeAlias

from ropewalk.codec import Undeclared
from ropewalk.codec.atoms import CLASSES
from ropewalk.codec.frames import library_of
from ropewalk.state._tasks._plain import name_of

Shape: TypeAlias = Literal["list", "tuple", "set", "mapping", "record", "change", "lines", "text"]

_NAME = re.compile(r"[^\W\d][\w-]*")
_LONGEST_KEY = 60
_MOST_BITS = 14_000
_MOST_SORTED = 1_000
_MOST_NAMES = 12


class Text(NamedTuple):
    """What is shown of a value without parts."""

    size: int
    head: Callable[[int], str]
    """So many characters from the beginning, or fewer."""
    tail: Callable[[int], str]
    quoted: bool = False
    unit: str = "characters"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A value that is looked at."""

    label: str
    """What it is, in a few words, where there is no room for it."""
    shape: Shape
    count: int = 0
    """How many parts it has."""
    parts: Callable[[int, int], list[tuple[str, Node]]] = lambda start, stop: []
    """The parts in a range, each with its name."""
    text: Text | None = None
    title: str = ""
    """The class of a record, or of a container that is no list or dict."""


def plain_text(shown: str, label: str = "") -> Node:
    """A node for a text that stands as it is."""
    text = Text(len(shown), lambda n: shown[:n], lambda n: shown[-n:] if n else "")
    return Node(label or shown, "text", text=text)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number of things, for people."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def spell_key(key: Any) -> str:
    """A key as it stands at the beginning of a line."""
    if isinstance(key, str):
        shown = key if _NAME.fullmatch(key) else dumps(key, ensure_ascii=False)
    else:
        shown = _repr(key)
    return shown if len(shown) <= _LONGEST_KEY else f"{shown[: _LONGEST_KEY - 3]}..."


def look(value: Any) -> Node:
    """Look at a value in memory."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return _quoted(value)
    if isinstance(value, (bytes, bytearray)):
        return _bytes(value)
    if isinstance(value, Mapping):
        made = mapping(value, f"{_kind(value, dict, 'dict')} of {counted(len(value), 'key')}")
        return dataclasses.replace(made, title=_title(value))
    fields = _fields(value)
    if fields is not None:
        return fields
    if isinstance(value, (list, deque)):
        made = _sequence(value, "list", _kind(value, list, "list"))
        return dataclasses.replace(made, title=_title(value))
    if isinstance(value, tuple):
        return _sequence(value, "tuple", _kind(value, tuple, "tuple"))
    if isinstance(value, (set, frozenset)):
        members = sorted(value, key=_repr) if len(value) <= _MOST_SORTED else list(value)
        return _sequence(members, "set", _kind(value, set, "set"))
    frame = _frame(value)
    if frame is not None:
        return frame
    shown = _repr(value)
    short = shown if len(shown) <= _LONGEST_KEY else f"{name_of(type(value))}"
    return plain_text(shown, short)


def mapping(values: Mapping[Any, Any], label: str) -> Node:
    """Look at a mapping; a value is taken out of it only when its turn comes."""
    keys: list[Any] = []

    def parts(start: int, stop: int) -> list[tuple[str, Node]]:
        if not keys:
            keys.extend(values)
        return [(spell_key(key), _value(values, key)) for key in keys[start:stop]]

    return Node(label, "mapping", len(values), parts)


def with_namespaces(own: Node, namespaces: list[tuple[str, Node]]) -> Node:
    """The keys of a state, and then its namespaces."""
    if not namespaces:
        return own

    def parts(start: int, stop: int) -> list[tuple[str, Node]]:
        keys = own.parts(start, min(stop, own.count)) if start < own.count else []
        return keys + namespaces[max(start - own.count, 0) : max(stop - own.count, 0)]

    return dataclasses.replace(own, count=own.count + len(namespaces), parts=parts, shape="lines")


def record(title: str, fields: Mapping[str, Any], label: str = "") -> Node:
    """Look at an object with fields."""
    inner = mapping(fields, label or title)
    return dataclasses.replace(inner, shape="record", title=title)


def _value(values: Mapping[Any, Any], key: Any) -> Node:
    try:
        return look(values[key])
    except Exception as error:  # noqa: BLE001 - one value that cannot be read hides no other
        return unreadable(error)


def unreadable(error: Exception) -> Node:
    """Stands for a value that cannot be read or shown."""
    return plain_text(f"(cannot be read: {type(error).__qualname__}: {error})", "(cannot be read)")


def undeclared(name: str) -> str:
    """What is said of a class of which no object was made."""
    return f"{name} (by its fields)"


def _sequence(items: Sequence[Any], shape: Shape, kind: str) -> Node:
    def parts(start: int, stop: int) -> list[tuple[str, Node]]:
        found = islice(items, start, stop)
        return [(f"[{at}]", look(item)) for at, item in enumerate(found, start)]

    return Node(f"{kind} of {counted(len(items), 'item')}", shape, len(items), parts)


def _quoted(value: str) -> Node:
    text = Text(len(value), lambda n: value[:n], lambda n: value[-n:] if n else "", quoted=True)
    return Node(f"text of {counted(len(value), 'character')}", "text", text=text)


def _bytes(value: bytes | bytearray) -> Node:
    text = Text(
        len(value),
        lambda n: repr(bytes(value[:n])),
        lambda n: repr(bytes(value[-n:])) if n else "",
        unit="bytes",
    )
    return Node(f"{_kind(value, bytes, 'bytes')} of {len(value):,}", "text", text=text)


def _fields(value: Any) -> Node | None:
    """An object whose fields are known, or None."""
    if isinstance(value, Undeclared):
        content = value.content if isinstance(value.content, dict) else {"value": value.content}
        return record(undeclared(value.name), content)
    cls = type(value)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        names: Sequence[str] = [one.name for one in dataclasses.fields(value)]
    elif isinstance(value, tuple) and hasattr(cls, "_fields"):
        names = cls._fields
    else:
        known = getattr(cls, "model_fields", None) or getattr(cls, "__struct_fields__", None)
        names = list(known) if isinstance(known, (dict, tuple)) else []
        if not names:
            return None
    return record(cls.__qualname__, {name: getattr(value, name, None) for name in names})


def _frame(value: Any) -> Node | None:
    """A frame or a series of pandas or polars, which is not shown whole; else None."""
    if library_of(value) is None:
        return None
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if type(shape) is not tuple or not 1 <= len(shape) <= 2:
        return None
    label = f"{kind} of {counted(shape[0], 'row' if len(shape) == 2 else 'item')}"
    if len(shape) == 2:
        names = [str(name) for name in list(value.columns)[:_MOST_NAMES]]
        more = ", ..." if shape[1] > len(names) else ""
        label += f" and {counted(shape[1], 'column')}"
        label += f": {', '.join(names)}{more}" if names else ""
    elif getattr(value, "dtype", None) is not None:
        label += f": {value.dtype}"
    return plain_text(label)


def _title(value: Any) -> str:
    """The name of a container of `collections`, as it stands before its content."""
    return type(value).__name__ if type(value) in CLASSES.values() else ""


def _kind(value: Any, plain: type, name: str) -> str:
    return name if type(value) is plain else type(value).__qualname__


def _repr(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - what cannot show itself is named
        return f"<{name_of(type(value))}, which cannot be shown: {type(error).__qualname__}>"
