"""The content of references in a store: when it was made, read, and when its time is over.

A reference's content is kept by a pin: a ref of the space `content/refs`, named by the hash
of the content, that points to a commit which may say until when. When content was last read
is noted beside that, if that is wanted; it may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ropewalk.errors import RefMoved
from ropewalk.store._contract import Store
from ropewalk.store._own import CONTENT_SPACE
from ropewalk.store._records import Move, Ref
from ropewalk.tree import Commit, read_commit

PIN = "pin/"
_EXPIRES_AT = "expires_at"
_PAGE = 256
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Content(NamedTuple):
    """What a store knows of the content of a reference."""

    hash: str
    """As in the reference."""
    created_at: datetime
    """When it was stored, or stored again for longer."""
    last_accessed_at: datetime
    """When it was last read, if the store notes that; else when it was stored."""
    expires_at: datetime | None
    """From when on `prune_expired` lets it go; None is never."""


def pins(store: Store) -> Iterator[tuple[Ref, Commit]]:
    """Every pin, with what it points to."""
    for page in _pages(store.refs(CONTENT_SPACE, PIN)):
        read = store.read([ref.target for ref in page])
        yield from zip(page, map(read_commit, read), strict=True)


def contents(store: Store, accesses: dict[str, datetime]) -> Iterator[Content]:
    """What is kept for references; `accesses` says when some was last read."""
    for ref, commit in pins(store):
        hash = ref.name.removeprefix(PIN)
        made, over = at(commit.time), expiry(commit)
        ends = None if over is None else at(over)
        yield Content(hash, made, max(made, accesses.get(hash, made)), ends)


def prune_expired(store: Store, now: int | None) -> list[str]:
    """Drop the pins whose time is over; the hashes of what they kept."""
    moment = time.time_ns() // 1000 if now is None else now
    over = [ref for ref, commit in pins(store) if (expiry(commit) or moment + 1) <= moment]
    dropped: list[Ref] = []
    for page in _pages(over):
        try:
            _drop(store, page)
            dropped += page
        except RefMoved:  # One was renewed or dropped meanwhile: look at each.
            dropped += [ref for ref in page if _drop_if_still(store, ref)]
    return [ref.name.removeprefix(PIN) for ref in dropped]


def expiry(commit: Commit) -> int | None:
    """When a pin's time is over, in microseconds since 1970."""
    found = commit.extension.get(_EXPIRES_AT)
    return found if isinstance(found, int) else None


def at(moment: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return _BEGINNING + timedelta(microseconds=moment)


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
