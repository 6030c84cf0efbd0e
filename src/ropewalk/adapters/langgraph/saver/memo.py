"""What is remembered of records, so that those that did not change are not encoded again.

LangGraph hands over all messages at every step, and most are the very objects of the step
before. An object is unchanged if it has the same fields with the same values, those that
are immutable by identity, and others by what they look like now. What was decoded and is
handed to nobody is copied, which costs less than decoding it again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ormsgpack import Fragment

from ropewalk.codec.msgpack import Code, array_header, extension, holds_binary, pack
from ropewalk.codec.records import MODEL_PARTS, plan_of
from ropewalk.codec.registry import Entry

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.saver.codec import GraphCodec


_OVERHEAD: Final = 700
"""About how many bytes it takes to remember a record, beside its encoding."""
_QUIET: Final = 2 << 20
"""Below so many bytes of what is new, nothing is forgotten."""
_TURNS: Final = 4
"""After so many checkpoints the older generation is evicted."""


class Seen(NamedTuple):
    """A record that was encoded or decoded, and how it looked then."""

    value: Any
    """Held, so that no other object can have its id."""
    data: bytes
    """Its encoding."""
    depth: int
    """Inside so many extensions, at most, this is its encoding."""
    keys: list[str]
    held: tuple[Any, ...]
    """The values of its fields. Held, so that no other value can have the id of one."""
    named: frozenset[str] | None
    """Which fields of a pydantic model were set; None for other records."""
    extra: Any
    """Where a pydantic model has what is extra: nothing, or a dict that is empty."""
    empty: list[Any]
    """The containers in it that are empty."""
    busy: tuple[tuple[Any, bytes], ...]
    """What else in it can change, and its encodings."""
    loose: list[str]
    """The names of the fields with what is empty or busy, in this order."""


def looks_same(seen: Seen, value: Any, again: Callable[[Any, int], bytes | None]) -> bool:
    """Whether a record is as it was; `again` encodes what stands in it."""
    _, _, depth, keys, held, named, extra, empty, busy, _ = seen
    if named is None:
        now = value.__dict__
    else:
        now, named_now, extra_now, private = MODEL_PARTS(value)
        if named_now != named or extra_now is not extra or private:
            return False
    if list(now) != keys or not all(map(is_, now.values(), held)) or any(empty):
        return False
    return not busy or all(again(one, depth) == plain for one, plain in busy)


class Memo:
    """A cache of the records of one thread, with their encodings. Not thread-safe.

    It has two generations. When its size has doubled, a new generation begins; entries of the
    older one that are not used at the next few checkpoints are evicted.
    """

    def __init__(self, limit: int = 32 << 20) -> None:
        self.recent: dict[int, Seen] = {}
        self._older: dict[int, Seen] = {}
        self._runs: dict[int, Run] = {}
        """By the id of their first value."""
        self._older_runs: dict[int, Run] = {}
        self._limit = limit // 2
        self._size = 0
        self._settled = 0
        self._turns = 0

    @property
    def size(self) -> int:
        """About how many bytes the recent records take."""
        return self._size

    def turn(self) -> None:
        """Called after each checkpoint, which has used all entries that are still needed."""
        if self._older or self._older_runs:
            self._turns += 1
            if self._turns == _TURNS:
                self._older, self._older_runs, self._settled = {}, {}, self._size
        elif self._size - self._settled > max(_QUIET, self._settled):
            self._begin()

    def _begin(self) -> None:
        """Begin a new generation."""
        self._older, self.recent = self.recent, {}
        self._older_runs, self._runs = self._runs, {}
        self._size = self._settled = self._turns = 0

    def clear(self) -> None:
        """Forget everything."""
        self._begin()
        self._older, self._older_runs = {}, {}

    def find(self, value: Any) -> Seen | None:
        """The cached entry of an object, which may have changed since."""
        found = self.recent.get(id(value))
        if found is None and self._older:
            found = self._older.get(id(value))
            if found is not None:
                self.add(found)
        return found

    def add(self, seen: Seen) -> None:
        """Remember a record."""
        size = self._size + len(seen[1]) + _OVERHEAD
        if size > self._limit:
            if len(seen.data) > self._limit // 4:
                return
            self._begin()
            size = len(seen.data) + _OVERHEAD
        self._size = size
        self.recent[id(seen[0])] = seen

    def add_all(self, seen: list[Seen]) -> None:
        """Remember records."""
        size = sum([len(one[1]) for one in seen]) + _OVERHEAD * len(seen)
        if self._size + size > self._limit:
            for one in seen:
                self.add(one)
            return
        self._size += size
        self.recent.update([(id(one[0]), one) for one in seen])

    def forget(self, value: Any) -> Seen | None:
        """What was remembered of an object, which is not any more."""
        found = self.recent.pop(id(value), None)
        if found is None:
            return self._older.pop(id(value), None)
        self._size -= len(found.data) + _OVERHEAD
        return found

    def find_run(self, values: list[Any]) -> Run | None:
        """What is remembered of a list of models, if they are as they were."""
        first = id(values[0])
        found = self._runs.get(first)
        if found is not None:
            return found if found.is_same(values) else None
        found = self._older_runs.get(first)
        if found is None or not found.is_same(values):
            return None
        self.add_run(found)
        return found

    def add_run(self, run: Run) -> None:
        """Remember a run."""
        size = len(run.data) + _OVERHEAD // 2 * len(run.values)
        if self._size + size <= self._limit:
            self._size += size
            self._runs[id(run.values[0])] = run


# Runs of messages that are looked at together: one call compares all of them.

SHORTEST: Final = 4

_DICT: Final = attrgetter("__dict__")
_NAMED: Final = attrgetter("__pydantic_fields_set__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_PRIVATE: Final = attrgetter("__pydantic_private__")
_FIELDS: Final = itemgetter(*[Seen._fields.index(name) for name in ("keys", "named", "extra")])


class Run(NamedTuple):
    """Models that stood in a list one after another, as they were."""

    values: tuple[Any, ...]
    data: bytes
    """The encoding of a list of them."""
    keys: list[list[str]]
    held: tuple[Any, ...]
    """The values of all fields of all models, in turn."""
    named: list[frozenset[str]]
    extra: list[Any]
    empty: list[Any]
    busy: list[Any]
    busy_plain: bytes

    def is_same(self, values: list[Any]) -> bool:
        """Whether these are the same models, and as they were."""
        # No hook is called here, so this is safe while others change the values.
        if len(values) != len(self.values) or not all(map(is_, values, self.values)):
            return False
        fields = list(map(_DICT, values))
        return (
            list(map(_NAMED, values)) == self.named
            and list(map(list, fields)) == self.keys
            and all(map(is_, chain.from_iterable(map(dict.values, fields)), self.held))
            and not any(self.empty)
            and all(map(is_, map(_EXTRA, values), self.extra))
            and not any(map(_PRIVATE, values))
            and (not self.busy or _packed(self.busy) == self.busy_plain)
        )


def make_run(seen: list[Seen], data: bytes) -> Run | None:
    """A run of records that were just seen, of which the encoding is given."""
    if any(one.named is None for one in seen):
        return None
    busy = list(chain.from_iterable([one.busy for one in seen]))
    values = [value for value, _ in busy]
    if busy and _packed(values) is None:
        return None
    keys, named, extra = map(list, zip(*map(_FIELDS, seen), strict=True))
    return Run(
        values=tuple([one.value for one in seen]),
        data=data,
        keys=keys,
        held=tuple(chain.from_iterable([one.held for one in seen])),
        named=named,
        extra=extra,
        empty=list(chain.from_iterable([one.empty for one in seen])),
        busy=values,
        # What was seen, not what is there now: others may have changed it since.
        busy_plain=array_header(len(busy)) + b"".join([plain[2:] for _, plain in busy]),
    )


def _packed(values: list[Any]) -> bytes | None:
    try:
        return pack(values)
    except TypeError:
        return None


# A first look at a record: what has to be remembered of it.

PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})
"""Immutable, and msgpack has a word for them."""
EMPTY: Final[dict[type, Any]] = {list: [], dict: {}}


class _Shape(NamedTuple):
    """How a record is held, beside the values of its fields."""

    names: list[str]
    held: dict[str, Any]
    named: frozenset[str] | None
    marks: list[list[str]]
    """Which fields were set, as it is stored."""
    extra: Any


def _shape_of(codec: GraphCodec, entry: Entry, value: Any) -> _Shape | None:
    """None if a record holds more than its fields."""
    if entry.shape == "dataclass":
        names = codec.types.plain_fields(entry)
        held = getattr(value, "__dict__", None)
        return None if not names or held is None else _Shape(names, held, None, [], None)
    plan = plan_of(entry)
    held, named_now, extra, private = MODEL_PARTS(value)
    if extra or private or not plan.is_simple:
        return None
    named = frozenset(named_now)
    marks = [] if named == plan.public else [sorted(named)]
    return _Shape(plan.names, held, named, marks, extra)


def look(codec: GraphCodec, entry: Entry, value: Any, depth: int) -> Seen | None:
    """What there is to remember of a record; None if it has to be looked at each time.

    The encoding is made of what is remembered, not of the record itself, because others may
    be changing that meanwhile.
    """
    shape = _shape_of(codec, entry, value)
    if shape is None:
        return None
    fields = shape.held.copy()
    if list(fields) != shape.names:
        return None
    values = tuple(fields.values())
    found = _loosen(codec, fields, depth, fields)
    if found is None:
        return None
    loose, empty, busy = found
    if shape.extra is not None:
        empty.append(shape.extra)
    payload = codec.around([entry.name, entry.version, *shape.marks, fields], depth)
    if payload is None:
        return None
    data, rest = extension(Code.RECORD, payload), (empty, busy, loose)
    return Seen(value, data, depth, shape.names, values, shape.named, shape.extra, *rest)


def look_at_decoded(
    codec: GraphCodec,
    value: Any,
    fields: dict[str, Any],
    payload: bytes,
    names: list[str],
    named: frozenset[str] | None,
    depth: int,
) -> Seen | None:
    """The same for a record that was just decoded, which nobody else has yet."""
    found = _loosen(codec, fields, depth, None)
    if found is None:
        return None
    loose, empty, busy = found
    extra = None if named is None else value.__pydantic_extra__
    if extra is not None:
        empty.append(extra)
    held = tuple(fields.values())
    data = extension(Code.RECORD, payload)
    return Seen(value, data, depth, names, held, named, extra, empty, busy, loose)


def _loosen(
    codec: GraphCodec, fields: dict[str, Any], depth: int, put: dict[str, Any] | None
) -> tuple[list[str], list[Any], tuple[tuple[Any, bytes], ...]] | None:
    """The names of what can change, what of it is empty, and the rest with its encodings.

    The encodings are put where they are wanted.
    """
    loose: list[str] = []
    empty: list[Any] = []
    busy: list[tuple[Any, bytes]] = []
    for name, one in fields.items():
        cls = type(one)
        if cls in PLAIN:
            continue
        if cls in EMPTY and not one:
            empty.append(one)
            if put is not None:
                put[name] = EMPTY[cls]
        elif codec.types.is_frozen(cls):
            continue
        else:
            plain = codec.inside(one, depth, exact=put is not None)
            if plain is None or holds_binary(plain):
                return None
            busy.append((one, plain))
            if put is not None:
                put[name] = Fragment(plain[2:])
        loose.append(name)
    return loose, empty, tuple(busy)


# Copies of decoded values.

Kept: TypeAlias = list[Any]
"""Values that nobody else holds, or what was seen of them."""

_TEXTS = frozenset({str})
_new, _set = object.__new__, object.__setattr__


def copied(codec: GraphCodec, value: Any) -> Any:
    """A copy of a value that shares nothing with it that can be changed."""
    cls = type(value)
    if cls in PLAIN:
        return value
    if cls is list:
        return [one if type(one) in PLAIN else copied(codec, one) for one in value]
    if cls is dict and set(map(type, value)) <= _TEXTS:
        return {
            key: one if type(one) in PLAIN else copied(codec, one) for key, one in value.items()
        }
    seen = codec.memo.find(value)
    if seen is not None and looks_same(seen, value, codec.inside):
        copy = _copied_record(codec, seen)
        codec.memo.add(copy)
        return copy.value
    if cls is tuple:
        return tuple([copied(codec, one) for one in value])
    if codec.types.is_frozen(cls):
        return value
    return codec.decoder().decode(codec.encode(value))


def keep(codec: GraphCodec, values: list[Any]) -> Kept:
    """Values that were just decoded, and will only ever be copied from now on."""
    return [codec.memo.forget(value) or value for value in values]


def copies_of(codec: GraphCodec, kept: Kept) -> list[Any]:
    """Copies of what is kept, which nobody can have changed."""
    copies: list[Any] = []
    made: list[Seen] = []
    for one in kept:
        if type(one) is Seen:
            copy = _copied_record(codec, one)
            made.append(copy)
            copies.append(copy[0])
        else:
            copies.append(copied(codec, one))
    codec.memo.add_all(made)
    return copies


def _copied_record(codec: GraphCodec, seen: Seen) -> Seen:
    """What there is to remember of a copy, with the copy."""
    value, data, depth, keys, _, named, extra, _, busy, loose = seen
    fields = value.__dict__.copy()
    empty: list[Any] = []
    if busy:
        busy = _copied_busy(codec, fields, seen, empty)
    else:
        for name in loose:
            fields[name] = one = fields[name].copy()
            empty.append(one)
    made = _new(type(value))
    _set(made, "__dict__", fields)
    if named is not None:
        if extra is not None:
            extra = {}
            empty.append(extra)
        _set(made, "__pydantic_fields_set__", set(named))
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_private__", None)
    held = tuple(fields.values())
    return Seen(made, data, depth, keys, held, named, extra, empty, busy, loose)


def _copied_busy(
    codec: GraphCodec, fields: dict[str, Any], seen: Seen, empty: list[Any]
) -> tuple[tuple[Any, bytes], ...]:
    """Copies of all that can change, in their fields."""
    copies: list[tuple[Any, bytes]] = []
    pending = iter(seen.busy)
    following = next(pending, None)
    for name in seen.loose:
        one = fields[name]
        if following is not None and one is following[0]:
            fields[name] = one = copied(codec, one)
            copies.append((one, following[1]))
            following = next(pending, None)
        else:
            fields[name] = one = one.copy()
            empty.append(one)
    return tuple(copies)
