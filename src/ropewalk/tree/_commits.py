"""Commits: objects that say which value a step left, where it came from, and what it was.

The payload is a msgpack list of the fields of `Commit` after `id`, in their order. One
commit has one spelling. What a newer version wants to add goes into `extension`, whose
keys are kept by those who do not know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import ormsgpack

from ropewalk.errors import FormatError, InvalidInput
from ropewalk.tree._objects import ID_SIZE, Kind, Object, ObjectId, make_object

MERGED: Final = "merged"
"""The key in a commit's `extension` that marks it as merged with the work of others."""

MAX_COMMIT_BYTES: Final = 1 << 20
"""The most bytes that a commit may take; larger things belong into its metadata."""

_MAX_PARENTS: Final = 64
_MAX_DEPTH: Final = 32
_INTEGERS: Final = range(-(1 << 63), 1 << 64)
_PLAIN: Final = (type(None), bool, float, str, bytes)
_TEXTS: Final = ("agent", "branch", "description", "logic_step", "status", "error")


@dataclass(frozen=True, slots=True)
class Commit:
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
    extension: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name; names that nobody knows are kept."""

    def __repr__(self) -> str:
        said = f" {self.description!r:.80}" if self.description else ""
        return f"<Commit {self.short}{said}>"

    @property
    def merged(self) -> bool:
        """Whether others had committed meanwhile, so that its value holds their changes too."""
        return self.extension.get(MERGED) is True

    @property
    def short(self) -> str:
        """The first twelve digits of the id, for people."""
        return self.id.hex()[:12]


def make_commit(
    root: ObjectId, parents: tuple[ObjectId, ...] = (), *, base: ObjectId | None = None, **rest: Any
) -> tuple[Commit, Object]:
    """A commit and its object; raises `InvalidInput` for fields that cannot be stored.

    Takes the fields of `Commit` by name. `base` is a commit that resembles this one.
    """
    draft = Commit(b"", root, parents, **rest)
    problem = _problem(draft)
    if problem is not None:
        raise InvalidInput(f"a commit cannot be stored: {problem}")
    try:
        payload = _pack(draft)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"a commit cannot be stored: {exc}") from None
    if len(payload) > MAX_COMMIT_BYTES:
        raise InvalidInput(
            f"a commit takes {len(payload)} bytes; the most is {MAX_COMMIT_BYTES}. "
            "Put large things into its metadata."
        )
    made = make_object(Kind.COMMIT, payload, base)
    # Nobody else has seen the draft, so it may still get its name.
    object.__setattr__(draft, "id", made.id)
    if draft.extension:
        object.__setattr__(draft, "extension", dict(draft.extension))
    return draft, made


def read_commit(source: Object) -> Commit:
    """The commit that an object is; raises FormatError."""
    if source.kind != Kind.COMMIT:
        raise FormatError(f"object {source.id.hex()[:12]} is not a commit")
    if len(source.payload) > MAX_COMMIT_BYTES:
        raise FormatError(f"commit {source.id.hex()[:12]} is too large")
    try:
        match ormsgpack.unpackb(source.payload):
            case [root, list(parents), *rest] if len(rest) == 11:
                commit = Commit(source.id, root, tuple(parents), *rest)
            case _:
                raise FormatError(f"commit {source.id.hex()[:12]} has other fields")
    except ValueError as exc:
        raise FormatError(f"commit {source.id.hex()[:12]} is malformed: {exc}") from exc
    problem = _problem(commit)
    if problem is not None or _pack(commit) != source.payload:
        raise FormatError(f"commit {source.id.hex()[:12]} is malformed: {problem or 'its form'}")
    return commit


def commit_links(source: Object) -> list[ObjectId]:
    """The objects that a commit points to, its parents last; raises FormatError."""
    commit = read_commit(source)
    found = [commit.root, commit.metadata, commit.events, *commit.parents]
    return [id for id in found if id is not None]


def _pack(commit: Commit) -> bytes:
    return ormsgpack.packb(
        [
            commit.root,
            list(commit.parents),
            commit.generation,
            commit.time,
            commit.agent,
            commit.branch,
            commit.description,
            commit.logic_step,
            commit.status,
            commit.error,
            commit.metadata,
            commit.events,
            dict(commit.extension),
        ],
        option=ormsgpack.OPT_SORT_KEYS,
    )


def _problem(commit: Commit) -> str | None:
    """What is wrong with a commit's fields, in words."""
    for id in (commit.root, *commit.parents):
        if type(id) is not bytes or len(id) != ID_SIZE:
            return "its root and its parents must be ids of objects"
    if len(set(commit.parents)) != len(commit.parents) or len(commit.parents) > _MAX_PARENTS:
        return f"its parents must be different, and at most {_MAX_PARENTS}"
    for root in (commit.metadata, commit.events):
        if root is not None and (type(root) is not bytes or len(root) != ID_SIZE):
            return "its metadata and its events must be roots of values"
    if type(commit.generation) is not int or not 1 <= commit.generation < 1 << 63:
        return "its generation must be a whole number from 1 on"
    if type(commit.time) is not int or commit.time not in _INTEGERS:
        return "its time must be a whole number of microseconds"
    for name in _TEXTS:
        if type(getattr(commit, name)) is not str:
            return f"its {name} must be a string"
    extension = commit.extension
    if not isinstance(extension, Mapping) or (extension and not _is_plain(dict(extension), 0)):
        return "its extension must be plain values (None, bool, int, float, str, bytes, list, dict)"
    return None


def _is_plain(value: object, depth: int) -> bool:
    if type(value) in _PLAIN:
        return True
    if type(value) is int:
        return value in _INTEGERS
    if depth == _MAX_DEPTH:
        return False
    if type(value) is list:
        return all(_is_plain(one, depth + 1) for one in value)
    if type(value) is dict:
        keys = all(type(key) is str for key in value)
        return keys and all(_is_plain(one, depth + 1) for one in value.values())
    return False
