"""Encodes commits as the parameters of one statement, and decodes its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple

from ropewalk.store.record import GROUP, Append, seal
from ropewalk.tree.objects import ObjectId

TYPES: Final = "boolean bigint[] text[] bytea[] text[] bytea[] text[] bigint[] bytea[] bytea[]"
"""The types of the parameters from `parameters_of`."""

MADE, RECORDED, FENCED, MOVED, EPOCH, MISSING, GONE, LATE = range(8)
"""The outcome of a commit; LATE means that its sequence number is taken by now."""

_LOOK, _LACKS = 1, 2
_SEALS: Final = 4
_SMALL: Final = 16 * 1024


class Answer(NamedTuple):
    """The outcome of one commit."""

    status: int
    said: int
    """A value whose meaning depends on the status.

    The number of the record, or of the one recorded earlier; the number of the conflicting move or
    fence; the epoch; or the last record.
    """
    packed: int
    watched: bool
    actual: ObjectId | None = None
    """The actual target of a ref that was expected elsewhere."""


class Draft:
    """A commit to be sent: its record, prepared for the next few sequence numbers of its space."""

    __slots__ = ("batch", "dictionary", "first", "frame", "look", "seals")

    def __init__(self, batch: Append, last: int, dictionary: int | None, frame: bytes) -> None:
        self.batch = batch
        self.look = not batch.fresh
        self.frame_for(last, dictionary, frame)

    def frame_for(
        self, last: int, dictionary: int | None, frame: bytes, most: int = _SEALS
    ) -> None:
        """Prepare the record for the numbers after `last`, as far as they are in the same group.

        The checksum of a record covers its number, so several are sent and the server picks the
        right one.
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
        """Whether it must be sent without others: shared objects are locked in a fixed order."""
        return bool(self.batch.shared or self.batch.names)


def parameters_of(drafts: Sequence[Draft], *, again: bool, encoding: str) -> list[Any]:
    """Commits as parameters, in the order the function takes them.

    `again` tells that they may have been made already, because the answer was lost; `encoding` is
    that of the columns for people.
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
    """Decode the outcome of each commit."""
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
    """The number that finds a write id; several write ids may share it."""
    return int.from_bytes(sha256(write_id.encode()).digest()[:8], "big", signed=True)


def prefix_of(id: ObjectId) -> int:
    """The number that finds a commit; several commits may share it."""
    return int.from_bytes(id[:8], "big", signed=True)


# Values in Postgres' binary format: the driver's own encoding takes ten times as long.  An array
# is dimensions, has nulls, type of elements, count, first index: 4 bytes each; then for each
# element its length in 4 bytes, or -1 for null, and its bytes.

_HEAD = Struct(">iiIii")
_LENGTH = Struct(">i")
_NONE = _LENGTH.pack(-1)
_BIGINT = Struct(">iq")
_BYTEA, _INT8, _TEXT = 17, 20, 25


def spelled(kind: str, value: Any) -> bytes | None:
    """Encode a value of a type."""
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
    """An array that is already encoded."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def byteas(items: Sequence[bytes | None]) -> Array:
    """An array of bytes or nulls."""
    length = _LENGTH.pack
    parts = [_NONE if item is None else length(len(item)) + item for item in items]
    return _array(_BYTEA, parts)


def texts(items: Sequence[str | None], encoding: str = "utf-8") -> Array:
    """An array of texts; characters the database cannot hold are escaped, and NULs dropped."""
    encoded = [
        None if item is None else item.encode(encoding, "backslashreplace").replace(b"\0", b"")
        for item in items
    ]
    length = _LENGTH.pack
    parts = [_NONE if item is None else length(len(item)) + item for item in encoded]
    return _array(_TEXT, parts)


def bigints(items: Sequence[int | None]) -> Array:
    """An array of integers."""
    bigint = _BIGINT.pack
    return _array(_INT8, [_NONE if item is None else bigint(8, item) for item in items])


def _array(element: int, parts: list[bytes]) -> Array:
    if not parts:
        return Array(_HEAD.pack(0, 0, element, 0, 1)[:12])
    # The flag allows nulls, and does not promise any.
    return Array(_HEAD.pack(1, 1, element, len(parts), 1) + b"".join(parts))
