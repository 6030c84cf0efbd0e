"""A commit as parts of the parameters of one statement, and what the answer to it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple

from ropewalk.store.log import Append
from ropewalk.store.record import GROUP, seal
from ropewalk.tree.objects import ObjectId

TYPES: Final = "boolean bigint[] text[] bytea[] text[] bytea[] text[] bigint[] bytea[] bytea[]"
"""The types of what `parameters_of` gives."""

MADE, RECORDED, FENCED, MOVED, EPOCH, MISSING, GONE, LATE = range(8)
"""What is said of a commit; the last one is that its record has another number by now."""

_LOOK, _LACKS = 1, 2
_SEALS: Final = 4
_SMALL: Final = 16 * 1024


class Answer(NamedTuple):
    """What is said of one commit."""

    status: int
    said: int
    """The number of the record, or of the one that was recorded; the number of the move or the
    fence that is refused; the epoch; the last record."""
    packed: int
    watched: bool
    actual: ObjectId | None = None
    """Where a ref is that was expected elsewhere."""


class Draft:
    """A commit as it is sent: its record, for one of the next numbers of its space."""

    __slots__ = ("batch", "dictionary", "first", "frame", "look", "seals")

    def __init__(self, batch: Append, last: int, dictionary: int | None, frame: bytes) -> None:
        self.batch = batch
        self.look = not batch.fresh
        self.frame_for(last, dictionary, frame)

    def frame_for(
        self, last: int, dictionary: int | None, frame: bytes, most: int = _SEALS
    ) -> None:
        """Be the record after a last one, or one soon after, as far as it is of that group.

        The checksum of a record tells its number, of which the server takes the right one.
        """
        self.first, self.dictionary, self.frame = last + 1, dictionary, frame
        end = last + (most if len(frame) < _SMALL else 1)
        if dictionary is not None:
            end = min(end, (dictionary - 1) // GROUP * GROUP + GROUP)
        space = self.batch.space
        self.seals = b"".join(
            [seal(space, number, frame)[:4] for number in range(last + 1, end + 1)]
        )

    @property
    def alone(self) -> bool:
        """Whether it cannot go with others: shared objects are locked in one order."""
        return bool(self.batch.shared or self.batch.names)


def parameters_of(drafts: Sequence[Draft], *, again: bool, encoding: str) -> list[Any]:
    """Commits as parameters, in the order that the function takes them.

    `again` is whether they may have been made already, and the answer was lost; `encoding` is
    that of columns for people.
    """
    numbers: list[int | None] = []
    said: list[str | None] = []
    data: list[bytes | None] = []
    names: list[str | None] = []
    ids: list[bytes | None] = []
    leases: list[str | None] = []
    tokens: list[int | None] = []
    for draft in drafts:
        batch, step = draft.batch, draft.batch.step
        about = batch.metadata
        flags = (_LOOK if draft.look else 0) | (_LACKS if batch.missing else 0)
        numbers += (
            batch.known_epoch, draft.first, draft.dictionary, batch.parent,
            batch.time if step is None else step.time, write_of(batch.write_id),
            len(batch.moves), len(batch.fences), flags,
        )  # fmt: skip
        if step is None:
            said += (batch.space, None, None, None, None, None)
        else:
            said += (
                batch.space, step.branch or None, step.status or None, step.agent or None,
                step.logic_step or None, step.description or None,
            )  # fmt: skip
        action, key = about.get("action"), about.get("key")
        said.append(None if action is None else str(action))
        data += (draft.seals, draft.frame, None if step is None else step.id)
        data.append(key if isinstance(key, bytes) else None)
        for name, expected, target in batch.moves:
            names.append(name)
            ids += (expected, target)
        for fence in batch.fences:
            leases.append(fence.name)
            tokens.append(fence.token)
    first = drafts[0].batch
    needed = sorted(first.names.union(first.shared)) if drafts[0].alone else []
    return [
        again,
        bigints(numbers),
        texts(said, encoding),
        byteas(data),
        texts(names),
        byteas(ids),
        texts(leases),
        bigints(tokens),
        byteas(needed),
        byteas(sorted(first.names) if needed else []),
    ]


def answers_from(answers: str, actual: str | None) -> list[Answer]:
    """What is said of each commit."""
    found: list[Answer] = []
    numbers = list(map(int, answers.split()))
    elsewhere = iter((actual or "").split())
    for at in range(0, len(numbers), 4):
        status, said, packed, watched = numbers[at : at + 4]
        there = next(elsewhere) if status == MOVED else "-"
        actually = None if there == "-" else bytes.fromhex(there)
        found.append(Answer(status, said, packed, bool(watched), actually))
    return found


def write_of(write_id: str) -> int:
    """The number by which a write is looked for; several may share it."""
    return int.from_bytes(sha256(write_id.encode()).digest()[:8], "big", signed=True)


def prefix_of(id: ObjectId) -> int:
    """The number by which a commit is found; several may share it."""
    return int.from_bytes(id[:8], "big", signed=True)


# Values as Postgres spells them in binary: the driver's own way takes ten times as long.
#
# An array is dimensions, has nulls, type of elements, count, first index: 4 bytes each; then for
# each element its length in 4 bytes, or -1 for none, and its bytes.

_HEAD = Struct(">iiIii")
_LENGTH = Struct(">i")
_NONE = _LENGTH.pack(-1)
_BIGINT = Struct(">iq")
_BYTEA, _INT8, _TEXT = 17, 20, 25


def spelled(kind: str, value: Any) -> bytes | None:
    """A value of a type."""
    if value is None:
        return None
    if isinstance(value, Array):
        return value.data
    return _SPELL[kind](value)


_SPELL: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "boolean": lambda value: b"\1" if value else b"\0",
    "bytea": bytes,
    "text": str.encode,
    "integer": Struct(">i").pack,
    "bigint": Struct(">q").pack,
    "float8": Struct(">d").pack,
}


class Array:
    """An array that is spelled already."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def byteas(items: Sequence[bytes | None]) -> Array:
    """An array of bytes, or of nothing where there is None."""
    length = _LENGTH.pack
    parts = [_NONE if item is None else length(len(item)) + item for item in items]
    return _array(_BYTEA, parts)


def texts(items: Sequence[str | None], encoding: str = "utf-8") -> Array:
    """An array of texts; what the database cannot hold in one is spelled out or left out."""
    encoded = [
        None if item is None else item.encode(encoding, "backslashreplace").replace(b"\0", b"")
        for item in items
    ]
    length = _LENGTH.pack
    parts = [_NONE if item is None else length(len(item)) + item for item in encoded]
    return _array(_TEXT, parts)


def bigints(items: Sequence[int | None]) -> Array:
    """An array of whole numbers."""
    bigint = _BIGINT.pack
    return _array(_INT8, [_NONE if item is None else bigint(8, item) for item in items])


def _array(element: int, parts: list[bytes]) -> Array:
    if not parts:
        return Array(_HEAD.pack(0, 0, element, 0, 1)[:12])
    # That there may be nulls is no promise that there are some.
    return Array(_HEAD.pack(1, 1, element, len(parts), 1) + b"".join(parts))
