"""Objects: immutable bytes named by their hash. Commits are objects, too.

A commit says which value a step left, where it came from, and what it was. Its payload is a
msgpack list of the fields of `Commit` after `id`, in their order. One commit has one spelling.
What a newer version wants to add goes into `extension`, whose keys are kept by those who do
not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from hashlib import sha256
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import ormsgpack

from ropewalk.errors import FormatError, InvalidInput

ObjectId: TypeAlias = bytes
"""The SHA-256 of kind byte and payload, 32 bytes."""

ID_SIZE = 32


class Kind(IntEnum):
    """What an object is; its byte is hashed with the payload."""

    VALUE = 1
    """A small value, whole."""
    ROOT = 2
    """The top of a container that is too large for its parent."""
    ITEMS = 3
    """A run of a sequence's items."""
    ITEMS_INDEX = 4
    """A run of sequence nodes with their counts."""
    PAIRS = 5
    """A run of a map's keys and values."""
    PAIRS_INDEX = 6
    """A run of map nodes with their first keys and counts."""
    CHUNK = 7
    """A run of bytes of a large string or of large bytes."""
    CHUNKS_INDEX = 8
    """A run of chunks with their sizes."""
    COMMIT = 16
    """A version: the root of a value, its parents, and what is known about the step."""


KIND_BYTES = [bytes([kind]) for kind in range(max(Kind) + 1)]
"""What stands before the payload where an object is hashed, by kind."""


class Object(NamedTuple):
    """Immutable bytes with their name."""

    id: ObjectId
    kind: Kind
    payload: bytes


Reader: TypeAlias = Callable[[Sequence[ObjectId]], Sequence[Object]]
"""Fetches objects by id, in the order asked for; raises `MissingObjects`."""


def object_id(kind: Kind, payload: bytes) -> ObjectId:
    """The name of an object."""
    return sha256(KIND_BYTES[kind] + payload).digest()


def make_object(kind: Kind, payload: bytes) -> Object:
    """Name a payload."""
    if type(kind) is not Kind:
        raise InvalidInput(f"{kind!r} is not a kind of object")
    return Object(object_id(kind, payload), kind, payload)


MERGED: Final = "merged"
"""The key in a commit's `extension` that marks it as merged with the work of others."""

MAX_COMMIT_BYTES: Final = 1 << 20
"""The most bytes that a commit may take; larger things belong into its metadata."""

_MAX_PARENTS: Final = 64
_MAX_DEPTH: Final = 32
_INTEGERS: Final = range(-(1 << 63), 1 << 64)
_PLAIN: Final = (type(None), bool, float, str, bytes)
_NAMES: Final = frozenset({str})
_TEXTS: Final = ("agent", "branch", "description", "logic_step", "status", "error")
_texts: Final = attrgetter(*_TEXTS)
_STRING: Final = frozenset({str})
_FIELDS: Final = 7 + len(_TEXTS)
_OPTIONS: Final = ormsgpack.OPT_SORT_KEYS
_KIND: Final = KIND_BYTES[Kind.COMMIT]


class Commit(NamedTuple):
    """One version: the root of a value, its parents, and what is known about the step."""

    id: ObjectId
    root: ObjectId
    """The root of the value, for `load`."""
    parents: tuple[ObjectId, ...] = ()
    """The commits it was made from; the first is the one that its branch was at."""
    generation: int = 1
    """1 without parents, else one more than the highest of theirs."""
    time: int = 0
    """Microseconds since 1970. Only for people: order comes from parents."""
    agent: str = ""
    branch: str = ""
    description: str = ""
    logic_step: str = ""
    status: str = ""
    error: str = ""
    metadata: ObjectId | None = None
    """The root of a further value, about the step."""
    events: ObjectId | None = None
    """The root of a further value: what happened during the step."""
    extension: Mapping[str, Any] = MappingProxyType({})
    """Plain values by name; names that nobody knows are kept."""

    def __repr__(self) -> str:
        said = f" {self.description!r:.80}" if self.description else ""
        return f"<Commit {self.short}{said}>"

    @property
    def merged(self) -> bool:
        """Whether others had committed meanwhile, so that its value holds their changes too."""
        return self.extension.get(MERGED) is True

    @property
    def links(self) -> list[ObjectId]:
        """The objects that it points to, in the order of its fields."""
        rest = [id for id in (self.metadata, self.events) if id is not None]
        return [self.root, *self.parents, *rest]

    @property
    def short(self) -> str:
        """The first twelve digits of the id, for people."""
        return self.id.hex()[:12]


def make_commit(
    root: ObjectId, parents: tuple[ObjectId, ...] = (), **rest: Any
) -> tuple[Commit, Object]:
    """A commit and its object; raises `InvalidInput` for fields that cannot be stored.

    Takes the fields of `Commit` by name.
    """
    made = Commit(b"", root, parents, **rest)
    if "extension" not in rest:
        made = made._replace(extension={})
    elif isinstance(made.extension, Mapping):
        made = made._replace(extension=dict(made.extension))  # Which only the commit holds.
    problem = _problem(made)
    if problem is not None:
        raise InvalidInput(f"a commit cannot be stored: {problem}")
    return name_commit(made)


def name_commit(made: Commit) -> tuple[Commit, Object]:
    """A commit with its id, and its object; its fields must be what `Commit` says they are.

    Raises `InvalidInput` if they are too large, or a text has no encoding.
    """
    fields = made[1:]
    try:
        payload = ormsgpack.packb(fields, None, _OPTIONS)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"a commit cannot be stored: {exc}") from None
    if len(payload) > MAX_COMMIT_BYTES:
        raise InvalidInput(
            f"a commit takes {len(payload)} bytes; the most is {MAX_COMMIT_BYTES}. "
            "Put large things into its metadata."
        )
    id = sha256(_KIND + payload).digest()
    return Commit(id, *fields), Object(id, Kind.COMMIT, payload)


def read_commit(source: Object) -> Commit:
    """The commit that an object is; raises FormatError.

    That it is spelled in the one accepted way is left to `check_commit`: whoever verified
    the hash of what was written here need not look.
    """
    return _commit(source, _unpack(source))


def _commit(source: Object, fields: list[Any]) -> Commit:
    root, parents, *rest = fields
    if type(parents) is not list:
        raise FormatError(f"commit {source.id.hex()[:12]} has other fields")
    commit = Commit(source.id, root, tuple(parents), *rest)
    problem = _problem(commit)
    if problem is not None:
        raise FormatError(f"commit {source.id.hex()[:12]} is malformed: {problem}")
    return commit


def check_commit(source: Object) -> Commit:
    """The commit that an object from anywhere is; raises FormatError for any other spelling."""
    fields = _unpack(source)
    commit = _commit(source, fields)
    if ormsgpack.packb(fields, None, _OPTIONS) != source.payload:
        raise FormatError(f"commit {source.id.hex()[:12]} is malformed: its form")
    return commit


def commit_links(source: Object) -> list[ObjectId]:
    """The objects that a commit points to, in the order of its fields; raises FormatError."""
    root, parents, *_, metadata, events, _ = _unpack(source)
    if type(parents) is not list:
        raise FormatError(f"commit {source.id.hex()[:12]} has other fields")
    found = [root, *parents, *[id for id in (metadata, events) if id is not None]]
    for id in found:
        if type(id) is not bytes or len(id) != ID_SIZE:
            raise FormatError(f"commit {source.id.hex()[:12]} points to what is no object")
    return found


def first_parent(payload: bytes) -> object:
    """The first parent of a commit, which has one; raises FormatError."""
    try:
        return ormsgpack.unpackb(payload)[1][0]
    except (ValueError, TypeError, LookupError):
        raise FormatError("a commit that should have a parent has none") from None


def parts_of_commit(source: Object) -> tuple[int, bool, bool]:
    """How many parents a commit has, and whether it has metadata and events."""
    _, parents, *_, metadata, events, _ = _unpack(source)
    return len(parents), metadata is not None, events is not None


def _unpack(source: Object) -> list[Any]:
    """The fields of a commit, of which there are as many as there must be."""
    if source.kind is not Kind.COMMIT:
        raise FormatError(f"object {source.id.hex()[:12]} is not a commit")
    if len(source.payload) > MAX_COMMIT_BYTES:
        raise FormatError(f"commit {source.id.hex()[:12]} is too large")
    try:
        fields = ormsgpack.unpackb(source.payload)
    except ValueError as exc:
        raise FormatError(f"commit {source.id.hex()[:12]} is malformed: {exc}") from exc
    if type(fields) is not list or len(fields) != _FIELDS:
        raise FormatError(f"commit {source.id.hex()[:12]} has other fields")
    return fields


def _problem(commit: Commit) -> str | None:
    """What is wrong with the fields of a commit, in words."""
    parents = commit.parents
    for id in (commit.root, *parents):
        if type(id) is not bytes or len(id) != ID_SIZE:
            return "its root and its parents must be ids of objects"
    if len(parents) > 1 and (len(set(parents)) < len(parents) or len(parents) > _MAX_PARENTS):
        return f"its parents must be different, and at most {_MAX_PARENTS}"
    for root in (commit.metadata, commit.events):
        if root is not None and (type(root) is not bytes or len(root) != ID_SIZE):
            return "its metadata and its events must be roots of values"
    if type(commit.generation) is not int or not 1 <= commit.generation < 1 << 63:
        return "its generation must be a whole number from 1 on"
    if type(commit.time) is not int or not -(1 << 63) <= commit.time < 1 << 64:
        return "its time must be a whole number of microseconds"
    if not _STRING.issuperset(map(type, _texts(commit))):
        name = next(name for name in _TEXTS if type(getattr(commit, name)) is not str)
        return f"its {name} must be a string"
    extension = commit.extension
    if type(extension) is not dict or (extension and not _is_plain(extension, 0)):
        return "its extension must be plain values (None, bool, int, float, str, bytes, list, dict)"
    return None


def _is_plain(value: object, depth: int) -> bool:
    cls = type(value)
    if cls in _PLAIN:
        return True
    if cls is int:
        return value in _INTEGERS
    if depth == _MAX_DEPTH or (cls is not dict and cls is not list):
        return False
    held: Any = value
    if cls is dict:
        if not set(map(type, held)) <= _NAMES:
            return False
        held = held.values()
    for one in held:  # noqa: SIM110 - a generator takes twice as long
        if type(one) not in _PLAIN and not _is_plain(one, depth + 1):
            return False
    return True
