"""Pins: what keeps the content of references, for ever or until a time.

Each content has one pin, named by the hash of its root: a pin of a `History` in the
space `content/refs`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from ropewalk.history import Pin
from ropewalk.history.commits import PIN, Commits, commit_loop, looks_itself
from ropewalk.state._typed._healing import heal
from ropewalk.store import Move, Ref, Store, ref_name
from ropewalk.store.reserved import CONTENT_SPACE as CONTENT
from ropewalk.store.reserved import EXPIRES_AT, drop_expired, hash_of
from ropewalk.tree import Commit, Object, ObjectId, links, make_commit, read_commit

_MANY = 64  # From so many objects on, it pays to ask first which of them are there.


class Kept(Protocol):
    """A value as objects: those that may be new, and what they point to beside each other."""

    @property
    def root(self) -> ObjectId: ...
    @property
    def objects(self) -> list[Object]: ...
    @property
    def needs(self) -> list[ObjectId]: ...


def keep(store: Store, contents: Sequence[Kept], expires_at: int | None, slack: int = 0) -> None:
    """Store contents and pin them, in one commit; a pin is made longer, never shorter.

    What should be there and is damaged or missing is stored anew.
    A pin that ends at most `slack` microseconds earlier than it should is left as it is.
    Raises `MissingObjects` if something that a content needs is gone: it must be
    written anew, whole.
    """
    commits = Commits(store, CONTENT)

    def attempt() -> None:
        moves: list[Move] = []
        step: Commit | None = None
        objects: list[Object] = []
        needs: list[ObjectId] = []
        for one in {one.root: one for one in contents}.values():
            name = ref_name(PIN, one.root.hex())
            found = store.ref(CONTENT, name)
            if found is not None and _lasts(_pins(store, [found])[0], expires_at, slack):
                healed = heal(store, one.objects)
                objects += healed
                needs += [link for made in healed for link in links(made)]
                continue
            step, made = _pin_commit(one.root, expires_at)
            moves.append(Move(name, None if found is None else found.target, made.id))
            objects += [*one.objects, made]
            needs += [*one.needs, one.root]
        if not moves and not objects:
            return
        sending, needed = _unknown(store, objects, needs)
        commits.land(sending, needed, moves, {"action": "pin"}, share=True, step=step)

    commit_loop(attempt, look=looks_itself)


def drop(store: Store, root: ObjectId) -> bool:
    """Drop the pin of a content; False if there was none."""
    commits = Commits(store, CONTENT)

    def attempt() -> bool:
        found = store.ref(CONTENT, ref_name(PIN, root.hex()))
        if found is None:
            return False
        commits.land((), (), [Move(found.name, found.target, None)], {"action": "unpin"})
        return True

    return commit_loop(attempt, look=looks_itself)


def prune_expired(backend: Store, now: int | None = None) -> list[str]:
    """Drop the references whose time is over; their hashes. `gc` then frees the bytes.

    `now` is in microseconds since 1970. A reference that is given more time meanwhile
    stays. `Store.prune_expired` does both.
    """
    return [hash_of(pin) for pin in drop_expired(backend, now)]


async def aprune_expired(backend: Store, now: int | None = None) -> list[str]:
    """The asynchronous twin of `prune_expired`."""
    return await backend._threads.run(lambda: prune_expired(backend, now))


def _pins(store: Store, refs: Sequence[Ref]) -> list[Pin]:
    read = store.reader(CONTENT)([ref.target for ref in refs])
    return [Pin.of(ref, read_commit(one)) for ref, one in zip(refs, read, strict=True)]


def _lasts(pin: Pin, expires_at: int | None, slack: int) -> bool:
    """Whether a pin that is there keeps its content at least as long as is wanted."""
    if pin.expires_at is None:
        return True
    return expires_at is not None and expires_at - slack <= pin.expires_at


def _pin_commit(root: ObjectId, expires_at: int | None) -> tuple[Commit, Object]:
    extension = {} if expires_at is None else {EXPIRES_AT: expires_at}
    return make_commit(root, time=time.time_ns() // 1000, extension=extension)


def _unknown(
    store: Store, objects: list[Object], needs: list[ObjectId]
) -> tuple[list[Object], list[ObjectId]]:
    """Objects that the store does not have; those that it has are needs."""
    if len(objects) < _MANY:
        return objects, needs
    absent = set(store.missing([one.id for one in objects]))
    present = [one.id for one in objects if one.id not in absent]
    return [one for one in objects if one.id in absent], [*needs, *present]
