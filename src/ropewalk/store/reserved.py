"""The refs that a store keeps for itself: pins of content, and what migrations leave.

A pin keeps the content of a reference: a ref of the space `content/refs`, named by the hash of the
content, that points to a commit which may hold an expiry time. An engine may also note when content
was last read; that note may be lost.

Refs of kind `alias` name the backends that a store answers to since a migration; each points to the
name, as a value.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import MissingObjects, RefMoved
from ropewalk.store.model import Move, Ref
from ropewalk.store.names import ref_name
from ropewalk.tree import Commit, read_commit

if TYPE_CHECKING:
    from ropewalk.store.contract import Store


OWN_SPACE = "ropewalk/migration"
CONTENT_SPACE = "content/refs"
"""The space of the pins that references make. What is let go there is not brought back."""
EXPIRES_AT = "expires_at"
"""The key, in the extension of a pin's commit, for its end in microseconds since 1970."""
NEVER_UNDONE = frozenset({OWN_SPACE, CONTENT_SPACE})
"""Spaces whose operations nobody undoes, so that a collection keeps nothing for them."""
ALIAS = "alias/"


def alias_ref(backend_id: str) -> str:
    """The ref that says that a store answers to a name, which may be any text."""
    return ref_name("alias", sha256(backend_id.encode("utf-8", "surrogatepass")).hexdigest())


PIN = "pin/"
_PAGE = 256
_TRIES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Content(NamedTuple):
    """What a store knows of the content of a reference."""

    hash: str
    """As in the reference."""
    created_at: datetime
    """When it was stored, or stored again for longer."""
    last_accessed_at: datetime
    """When it was last read, if the store notes that; else when it was stored."""
    expires_at: datetime | None
    """From when on `prune_expired` may remove it; None is never."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `Store.prune_expired` did."""

    payloads: int
    """How many contents were removed."""
    hashes: tuple[str, ...]
    """The references that had expired. Content that something else also holds was kept."""
    freed_bytes: int
    """How many bytes the removed contents took in the store."""


def pins(store: Store) -> Iterator[tuple[Ref, Commit]]:
    """Every pin, with what it points to."""
    for page in _pages(store.refs(CONTENT_SPACE, PIN)):
        yield from _opened(store, page)


def _opened(store: Store, refs: Sequence[Ref]) -> Iterator[tuple[Ref, Commit]]:
    while True:
        try:
            read = store.reader(CONTENT_SPACE)([ref.target for ref in refs])
        except MissingObjects:
            # A pin that was renewed or dropped leaves the old commit to any collection.
            asked = [store.ref(CONTENT_SPACE, ref.name) for ref in refs]
            there = [ref for ref in asked if ref is not None]
            if there == list(refs):
                raise
            refs = there
        else:
            return zip(refs, map(read_commit, read), strict=True)


def contents(store: Store, accesses: dict[str, datetime]) -> Iterator[Content]:
    """All contents; `accesses` has the last read of some, by hash."""
    for ref, commit in pins(store):
        hash = hash_of(ref)
        made, over = at(commit.time), expiry(commit)
        expires = None if over is None else at(over)
        yield Content(hash, made, max(made, accesses.get(hash, made)), expires)


def prune(store: Store, recent: int, limit: int | None, now: int | None, grace: float) -> Pruned:
    """Drop the expired pins, then delete what only they held."""
    dropped = drop_expired(store, now, limit)
    if not dropped:
        return Pruned(0, (), 0)
    payloads, freed_bytes = store._free(dropped, recent, grace)
    return Pruned(payloads, tuple(hash_of(ref) for ref in dropped), freed_bytes)


def drop_expired(store: Store, now: int | None = None, limit: int | None = None) -> list[Ref]:
    """Drop expired pins, the oldest expiry first, at most `limit`."""
    moment = time.time_ns() // 1000 if now is None else now
    ends = [(expiry(commit), ref) for ref, commit in pins(store)]
    past = sorted((end, ref.name, ref) for end, ref in ends if end is not None and end <= moment)
    over = [ref for _, _, ref in past[:limit]]
    dropped: list[Ref] = []
    for page in _pages(over):
        try:
            _drop(store, page)
            dropped += page
        except RefMoved:  # One was renewed or dropped meanwhile: look at each.
            dropped += [ref for ref in page if _drop_if_still(store, ref)]
    return dropped


def hash_of(pin: Ref) -> str:
    """The hash of the reference whose content a pin keeps."""
    return pin.name.removeprefix(PIN)


def expiry(commit: Commit) -> int | None:
    """When a pin expires, in microseconds since 1970."""
    found = commit.extension.get(EXPIRES_AT)
    return found if isinstance(found, int) else None


def at(moment: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return _EPOCH + timedelta(microseconds=moment)


def _drop(store: Store, refs: Sequence[Ref]) -> None:
    moves = [Move(ref.name, ref.target, None) for ref in refs]
    store.commit(CONTENT_SPACE, moves=moves, operation={"action": "prune"})


def _drop_if_still(store: Store, ref: Ref) -> bool:
    try:
        _drop(store, [ref])
    except RefMoved:
        return False
    return True


def _pages(refs: Sequence[Ref]) -> Iterator[Sequence[Ref]]:
    for start in range(0, len(refs), _PAGE):
        yield refs[start : start + _PAGE]
