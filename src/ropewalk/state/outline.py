"""A value as an outline, and an outline as lines within a budget.

An outline tells what a value is and how large it is, and yields its parts lazily. The value is in
memory or in a store; of a stored value, only what is shown is read.

Costs are estimated tokens. Every part gets a line before any gets more. A container that does not
fit shows its beginning and its end, with a count of what is between. The remaining room is shared
equally among the shown parts, and what a small part does not need goes to the others.
"""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from json import dumps
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ropewalk.codec import Codec, Path, Undeclared
from ropewalk.codec.atoms import CLASSES, MAPPINGS
from ropewalk.codec.frames import library_of
from ropewalk.codec.msgpack import Code
from ropewalk.errors import RopewalkError
from ropewalk.state.event_log import name_of
from ropewalk.tree import Kind, ObjectId, Reader
from ropewalk.tree.levels import View
from ropewalk.tree.nodes import CHUNKS, Entry, Root, layout_of, linked, may_hold_links
from ropewalk.tree.read import Container, Loader, find_part, open_part, open_root

Shape: TypeAlias = Literal["list", "tuple", "set", "mapping", "record", "change", "lines", "text"]

_NAME = re.compile(r"[^\W\d][\w-]*")
_LONGEST_KEY = 60
_MOST_BITS = 14_000
_MOST_SORTED = 1_000
_MOST_NAMES = 12

_SHAPES: Final[dict[int, Shape]] = {
    Code.LIST: "list",
    Code.TUPLE: "tuple",
    Code.SET: "set",
    Code.FROZENSET: "set",
    Code.DICT: "mapping",
    Code.MAP: "mapping",
    Code.RECORD: "record",
    Code.DEQUE: "list",
    **dict.fromkeys(MAPPINGS, "mapping"),
}
_BYTES_PER_CHARACTER = 4  # The maximum in UTF-8.
_INLINE: Final = 72
_DEEPEST: Final = 24
_BATCH: Final = 64
_ITEM: Final = 24.0
"""The room an item of a sequence gets, if it needs it, before a further one is shown."""

_GAP: Final = 6.0
_FORMS: Final = {
    "list": ("[", ", ", "]"),
    "tuple": ("(", ", ", ")"),
    "set": ("{", ", ", "}"),
    "mapping": ("{", ", ", "}"),
    "record": ("(", ", ", ")"),
    "change": ("", " -> ", ""),
}
_WIDE = re.compile("[\u2e80-\U0010ffff]")
_OTHER = re.compile("[\u0080-\u2e7f]")


class Text(NamedTuple):
    """The text of a value without parts."""

    size: int
    head: Callable[[int], str]
    """The first characters, up to a limit."""
    tail: Callable[[int], str]
    quoted: bool = False
    unit: str = "characters"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A value to be shown."""

    label: str
    """A short label, for where there is no room for the value."""
    shape: Shape
    count: int = 0
    """The number of parts."""
    parts: Callable[[int, int], list[tuple[str, Node]]] = lambda start, stop: []
    """The parts in a range, with their names."""
    text: Text | None = None
    title: str = ""
    """The class of a record, or of a container other than list or dict."""


def plain_text(shown: str, label: str = "") -> Node:
    """A node for literal text."""
    text = Text(len(shown), lambda n: shown[:n], lambda n: shown[-n:] if n else "")
    return Node(label or shown, "text", text=text)


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def spell_key(key: Any) -> str:
    """A key as it appears at the beginning of a line."""
    if isinstance(key, str):
        shown = key if _NAME.fullmatch(key) else dumps(key, ensure_ascii=False)
    else:
        shown = _repr(key)
    return shown if len(shown) <= _LONGEST_KEY else f"{shown[: _LONGEST_KEY - 3]}..."


def look(value: Any) -> Node:
    """The node of a value in memory."""
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
    """The node of a mapping; values are read lazily."""
    keys: list[Any] = []

    def parts(start: int, stop: int) -> list[tuple[str, Node]]:
        if not keys:
            keys.extend(values)
        return [(spell_key(key), _value(values, key)) for key in keys[start:stop]]

    return Node(label, "mapping", len(values), parts)


def with_namespaces(own: Node, namespaces: list[tuple[str, Node]]) -> Node:
    """The keys of a state, followed by its namespaces."""
    if not namespaces:
        return own

    def parts(start: int, stop: int) -> list[tuple[str, Node]]:
        keys = own.parts(start, min(stop, own.count)) if start < own.count else []
        return keys + namespaces[max(start - own.count, 0) : max(stop - own.count, 0)]

    return dataclasses.replace(own, count=own.count + len(namespaces), parts=parts, shape="lines")


def listing(label: str, lines: list[tuple[str, Node]]) -> Node:
    """A node of named parts."""
    return Node(label, "lines", len(lines), lambda start, stop: lines[start:stop])


def record(title: str, fields: Mapping[str, Any], label: str = "") -> Node:
    """The node of an object with fields."""
    inner = mapping(fields, label or title)
    return dataclasses.replace(inner, shape="record", title=title)


def _value(values: Mapping[Any, Any], key: Any) -> Node:
    try:
        return look(values[key])
    except Exception as error:  # noqa: BLE001 - one value that cannot be read hides no other
        return unreadable(error)


def unreadable(error: Exception) -> Node:
    return plain_text(f"(cannot be read: {type(error).__qualname__}: {error})", "(cannot be read)")


def undeclared(name: str) -> str:
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
    """The fields of an object, if they can be listed; else None."""
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
    """The node of a pandas or polars frame or series, shown in part; else None."""
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


class StoredOutline:
    """Builds nodes of stored values; the codec shows undeclared classes by their fields."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        self._read, self._codec = read, codec

    def at(self, part: bytes, path: Path) -> Node:
        return self.part(find_part(part, path, self._read, self._codec))

    def part(self, part: bytes) -> Node:
        """The node of a part of a value."""
        try:
            return self._part(part)
        except RopewalkError as error:
            return unreadable(error)

    def _part(self, part: bytes) -> Node:
        id = linked(part)
        if id is not None:
            return self._large(id)
        if may_hold_links(part):
            opened = open_part(part, self._read)
            if opened is not None:
                return self._container(opened)
        return look(Loader(self._read, self._codec).part(part))

    def _large(self, id: ObjectId) -> Node:
        (found,) = self._read([id])
        opened = open_root(id, found, self._read) if found.kind == Kind.ROOT else None
        if opened is not None:
            return self._container(opened)
        root = Root.decode(found.payload)
        if layout_of(root.code) is CHUNKS:
            return _Chunks(root, self._read).node()
        return look(Loader(self._read, self._codec).root(id))

    def _container(self, opened: Container) -> Node:
        code, count = opened.title.code, opened.view.total
        shape = _SHAPES.get(code, "list")
        title = CLASSES[code].__name__ if code in CLASSES else ""
        if shape == "record":
            title = self._class(str(opened.title.head[0]))
        label = {
            "mapping": f"{title or 'dict'} of {counted(count, 'key')}",
            "record": title,
        }.get(shape, f"{title or shape} of {counted(count, 'item')}")

        def parts(start: int, stop: int) -> list[tuple[str, Node]]:
            if not opened.is_mapping:
                entries = opened.view.entries(start, stop)
                return [(f"[{at}]", self.part(e.body)) for at, e in enumerate(entries, start)]
            return [self.pair(opened, entry) for entry in self._pairs(opened, start, stop)]

        return Node(label, shape, count, parts, title=title)

    def _class(self, name: str) -> str:
        if self._codec.registry.named(name) is None:
            return undeclared(name)
        return name.rpartition(".")[2]

    def pair(self, opened: Container, entry: Entry) -> tuple[str, Node]:
        """The name and the value of an entry of a mapping."""
        try:
            name = spell_key(opened.step(self._codec, entry.key))
        except RopewalkError as error:
            name = f"(a key that cannot be read: {type(error).__qualname__})"
        return name, self.part(entry.body)

    def _pairs(self, opened: Container, start: int, stop: int) -> Iterable[Entry]:
        if opened.order is None:
            return opened.view.entries(start, stop)
        order = open_part(opened.order, self._read)
        if order is None:
            return []
        keys = [entry.body for entry in order.view.entries(start, stop)]
        found = (opened.view.locate(key)[1] for key in keys)
        return [entry for entry in found if entry is not None]


class _Chunks:
    """A large text, large bytes or an array: its beginning and its end."""

    def __init__(self, root: Root, read: Reader) -> None:
        self._root, self._read = root, read
        self._view = View(CHUNKS, root.height, root.entries, read)
        self._size = self._view.total if root.data is None else len(root.data)

    def node(self) -> Node:
        """The node."""
        if self._root.code == Code.STR:
            label = f"text of about {self._size:,} characters"
            text = Text(self._size, self._text_head, self._text_tail, quoted=True)
            return Node(label, "text", text=text)
        kind = {Code.BYTES: "bytes", Code.BYTEARRAY: "bytearray"}.get(self._root.code)
        if kind is None:
            shown = f"{self._root.code.name.lower()} of {self._size:,} bytes"
            return plain_text(shown)
        text = Text(
            self._size,
            lambda n: repr(self._head(n)),
            lambda n: repr(self._tail(n)),
            unit="bytes",
        )
        return Node(f"{kind} of {self._size:,}", "text", text=text)

    def _text_head(self, count: int) -> str:
        return self._head(count * _BYTES_PER_CHARACTER).decode("utf-8", "ignore")[:count]

    def _text_tail(self, count: int) -> str:
        if not count:
            return ""
        return self._tail(count * _BYTES_PER_CHARACTER).decode("utf-8", "ignore")[-count:]

    def _head(self, size: int) -> bytes:
        return self._gather(0, min(size, self._size))

    def _tail(self, size: int) -> bytes:
        return self._gather(max(self._size - size, 0), self._size)

    def _gather(self, start: int, stop: int) -> bytes:
        """The bytes of a range, from the chunks that cover it."""
        if self._root.data is not None:
            return self._root.data[start:stop]
        pieces: list[bytes] = []
        at = start
        while at < stop:
            place = self._view.node_at(0, at)
            position = place.start
            for entry in place.entries:
                if position + entry.weight > at and position < stop:
                    (chunk,) = self._read([entry.body])
                    pieces.append(chunk.payload[max(start - position, 0) : stop - position])
                position += entry.weight
            at = position
        return b"".join(pieces)


def estimate(text: str) -> float:
    """Estimate the number of tokens of a text.

    A token is four ASCII characters, two of other alphabets, or one Chinese, Japanese or Korean
    character or emoji.
    """
    if text.isascii():
        return len(text) / 4
    wide, other = len(_WIDE.findall(text)), len(_OTHER.findall(text))
    return wide + other / 2 + (len(text) - wide - other) / 4


def _cost(line: str) -> float:
    return estimate(line) + 0.25  # And its end.


def total(lines: list[str]) -> float:
    return sum(map(_cost, lines))


def render(node: Node, budget: float, depth: int = 0) -> list[str]:
    """The parts of a node as lines that cost no more than the budget."""
    picked = _pick(node, budget, depth)
    room = budget - picked.cost
    shown = _Sharing(picked.head + picked.tail, depth).spend(room)
    lines = [line for part in shown[: len(picked.head)] for line in part]
    if picked.left_out:
        lines.append(f"{_pad(depth)}... {picked.left_out:,} more ...")
    return lines + [line for part in shown[len(picked.head) :] for line in part]


def _whole_lines(name: str, node: Node, depth: int, budget: float) -> Iterator[str | None]:
    """All lines of a node; None if they cost more than the budget."""
    shown = inline(node, _INLINE)
    if shown is not None:
        yield f"{_pad(depth)}{name}: {shown}"
    elif node.text is not None:
        if node.text.size / 4 > budget:
            yield None
        else:
            yield from _text_lines(name, node.text, node.text.head(node.text.size), depth)
    else:
        yield f"{_pad(depth)}{name}: {node.label}"
        if depth < _DEEPEST:
            for inner, part in _parts(node):
                yield from _whole_lines(inner, part, depth + 1, budget)


def inline(node: Node, room: int) -> str | None:
    """A node on one line, if it fits into this many characters."""
    if node.text is not None:
        if node.text.size > room:
            return None
        shown = node.text.head(node.text.size)
        shown = dumps(shown, ensure_ascii=False) if node.text.quoted else shown
        return shown if len(shown) <= room and "\n" not in shown else None
    if node.shape == "lines" or node.count * 2 > room:
        return None
    pieces: list[str] = []
    for name, part in node.parts(0, node.count):
        room -= 2
        shown_part = inline(part, room)
        if shown_part is None:
            return None
        pieces.append(_named(node, name) + shown_part)
        room -= len(pieces[-1])
    if room < len(node.title) + 2:
        return None
    left, between, right = _FORMS[node.shape]
    return f"{node.title}{left}{between.join(pieces)}{right}"


def _named(node: Node, name: str) -> str:
    if node.shape == "mapping":
        return f"{name}: "
    return f"{name}=" if node.shape == "record" else ""


def _parts(node: Node) -> Iterator[tuple[str, Node]]:
    for start in range(0, node.count, _BATCH):
        yield from node.parts(start, min(start + _BATCH, node.count))


def _pad(depth: int) -> str:
    return "  " * depth


def _text_lines(name: str, text: Text, shown: str, depth: int) -> Iterator[str]:
    if text.quoted and "\n" in shown:
        yield f"{_pad(depth)}{name}:"
        for line in shown.split("\n"):
            yield f"{_pad(depth + 1)}{line}"
    else:
        shown = dumps(shown, ensure_ascii=False) if text.quoted else shown.replace("\n", " ")
        yield f"{_pad(depth)}{name}: {shown}"


def _within(name: str, node: Node, depth: int, budget: float) -> list[str] | None:
    """All lines of a node if the budget allows; stops soon after exceeding it."""
    lines: list[str] = []
    room = budget
    for line in _whole_lines(name, node, depth, budget):
        if line is None or room < _cost(line):
            return None
        room -= _cost(line)
        lines.append(line)
    return lines


def _shortest(name: str, node: Node, depth: int) -> str:
    shown = inline(node, 24)
    return f"{_pad(depth)}{name}: {node.label if shown is None else shown}"


def _cut(name: str, node: Node, depth: int, budget: float) -> list[str]:
    """As much of a node as the budget allows; at least its shortest line."""
    first = f"{_pad(depth)}{name}: {node.label}"
    if node.text is not None:
        return _cut_text(name, node.text, depth, budget) or [_shortest(name, node, depth)]
    room = budget - _cost(first)
    if room < _GAP or depth >= _DEEPEST:
        return [_shortest(name, node, depth)]
    lines = render(node, room, depth + 1)
    return [first, *lines] if len(lines) > 1 else [_shortest(name, node, depth)]


def _cut_text(name: str, text: Text, depth: int, budget: float) -> list[str]:
    """The beginning and the end of a text, or nothing if there is no room."""
    kept = min(int(budget * 4), text.size)
    while kept >= 16:
        head, tail = text.head(kept - kept // 3), text.tail(kept // 3)
        gap = f" ... ({counted(text.size - kept, text.unit[:-1])} left out) ... "
        lines = list(_text_lines(name, text, f"{head}{gap}{tail}", depth))
        cost = total(lines)
        if cost <= budget:
            return lines
        kept = min(kept - 8, int(kept * budget / cost) - 4)
    return []


class _Picked:
    """Which parts of a container are shown: the first and the last ones, or all."""

    def __init__(self, node: Node, depth: int) -> None:
        self._depth = depth
        self._each = _ITEM if node.shape in ("list", "tuple", "set") else 0.0
        self.head: list[tuple[str, Node]] = []
        self.tail: list[tuple[str, Node]] = []
        self.left_out = 0
        self.cost = 0.0
        """What their shortest lines cost."""
        self.wants = 0.0
        """What they should have at least."""

    def take(self, part: tuple[str, Node], room: float) -> bool:
        """Count a part as shown, if there is room for it."""
        cost, wants = self._needs(part)
        if self.wants + wants > room:
            return False
        self.cost, self.wants = self.cost + cost, self.wants + wants
        return True

    def give_up(self) -> None:
        """Drop the last of the first parts again."""
        cost, wants = self._needs(self.head.pop())
        self.cost, self.wants = self.cost - cost, self.wants - wants

    def _needs(self, part: tuple[str, Node]) -> tuple[float, float]:
        cost = _cost(_shortest(*part, self._depth))
        return cost, max(cost, 0.0 if inline(part[1], _INLINE) else self._each)


def _pick(node: Node, budget: float, depth: int) -> _Picked:
    """The parts whose shortest lines fit."""
    picked = _Picked(node, depth)
    for part in _parts(node):
        if not picked.take(part, budget):
            break
        picked.head.append(part)
    else:
        return picked
    gap = _GAP + depth / 2
    last = min(len(picked.head) // 3, node.count - len(picked.head))
    kept = len(picked.head) - last
    while picked.head and (len(picked.head) > kept or picked.wants + gap > budget):
        picked.give_up()
    picked.cost, picked.wants = picked.cost + gap, picked.wants + gap
    for part in reversed(node.parts(node.count - last, node.count) if last else []):
        if not picked.take(part, budget):
            break
        picked.tail.insert(0, part)
    picked.left_out = node.count - len(picked.head) - len(picked.tail)
    return picked


class _Sharing:
    """Shares the remaining room among parts whose shortest lines are already paid for."""

    def __init__(self, parts: list[tuple[str, Node]], depth: int) -> None:
        self._parts, self._depth = parts, depth
        self._paid = [_cost(_shortest(*part, depth)) for part in parts]
        self._lines: dict[int, list[str]] = {}

    def spend(self, room: float) -> list[list[str]]:
        """The lines of each part."""
        room = self._settle_small(room)
        waiting = [at for at in range(len(self._parts)) if at not in self._lines]
        for done, at in enumerate(waiting):
            share = room / (len(waiting) - done)
            lines = _cut(*self._parts[at], self._depth, self._paid[at] + share)
            self._lines[at] = lines
            room -= total(lines) - self._paid[at]
        return [self._lines[at] for at in range(len(self._parts))]

    def _settle_small(self, room: float) -> float:
        """Show parts that need no more than their share, until none are left."""
        while True:
            waiting = [at for at in range(len(self._parts)) if at not in self._lines]
            before = len(waiting)
            for at in waiting:
                share = room / max(before, 1)
                lines = _within(*self._parts[at], self._depth, self._paid[at] + share)
                if lines is not None:
                    self._lines[at] = lines
                    room -= total(lines) - self._paid[at]
                    before -= 1
            if before == len(waiting) or not before:
                return room
