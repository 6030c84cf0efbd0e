"""`Transcript`: the conversation of a framework, as the list of items that the framework keeps.

The items are stored as they are handed over, in a thread like any other: `ThreadCheckpointer`,
`Timeline` and the command line list, compare, roll back and fork it. Every change is one commit,
which holds what changed and no more, also where the framework hands over everything again.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import may_hold_binary
from ropewalk.errors import InvalidInput, NotFound, RefMoved
from ropewalk.history import MAIN, Commit
from ropewalk.store import Store
from ropewalk.store.asynchronous import Closes, Threads, twin
from ropewalk.threads.address import Id, address_of
from ropewalk.threads.checkpointer import ThreadCheckpointer, threads_of
from ropewalk.threads.contents import ITEM, MARKS, SHAPE, STATE, STATE_KEY, Contents
from ropewalk.threads.items import ItemCache, Items, encode_list, no_items, part_of
from ropewalk.threads.thread import ANY, Known, Plan, Thread, state_entry
from ropewalk.timeline import Checkpoint, Timeline
from ropewalk.tree import ABSENT, ObjectId
from ropewalk.tree.change_detection import Piece
from ropewalk.tree.map import CachedMap, CacheEntry, MapWriter
from ropewalk.tree.nodes import INLINE_MAX

if TYPE_CHECKING:
    from ropewalk.store import KVStore

UNCHANGED: Final = ABSENT
"""For `state`: leave the state as it is."""


class Turn(NamedTuple):
    """One commit of a transcript."""

    number: int
    """Counts from 1. A fork goes on counting where it began."""
    id: str
    """The id of the checkpoint."""
    time: datetime
    description: str


class Snapshot(NamedTuple):
    """What a transcript held at one commit."""

    items: list[Any]
    state: Any
    """None if there is none."""
    head: str
    """The id of the commit; empty before the first."""


class Transcript(Closes):
    """An append-only list of items and a small state: one conversation of a framework.

    `threads` is where it is kept: a `ThreadCheckpointer`, which all conversations of a program
    may share, a store or the URL of one. `id`, `user_id` and `branch` address the thread.

    Items are any storable values, mostly dicts. What is handed over and what is returned are
    copies. `shape` says how the items are read as messages (see `ropewalk.threads.shapes`);
    dicts of OpenAI and Anthropic need none.

    An object remembers the head that it saw last: `save` refuses to drop what others added
    since. It belongs to one conversation at a time; others open their own, on the same
    `ThreadCheckpointer`. Every method has an asynchronous twin, which finishes a write although
    its task is cancelled.
    """

    def __init__(
        self,
        id: Id,
        threads: ThreadCheckpointer[Any] | Store | KVStore | str | PathLike[str] | None = None,
        *,
        user_id: Id | None = None,
        branch: str | None = None,
        shape: str = "",
    ) -> None:
        config = {"thread_id": id, "user_id": user_id, "branch": branch}
        self._address = address_of(config)
        self.threads, self._owns_threads = threads_of(threads)
        self.id, self.user_id, self.shape = id, user_id, shape
        self._config: Mapping[str, Any] = {
            name: value for name, value in config.items() if value is not None
        }
        self._seen: ObjectId | None = None

    def __repr__(self) -> str:
        return f"<Transcript {self.id!r} in {self.threads.store!r}>"

    # Reading.

    def items(self, limit: int | None = None) -> list[Any]:
        """The items, oldest first; with a limit the last ones. They are the caller's own."""
        _check_limit(limit)
        contents = self._look()
        return self._decode(self._thread.items.at(contents, limit).last(limit))

    def state(self) -> Any:
        """A copy of the state; None if there is none."""
        return self._look().value(STATE)

    def read(self, limit: int | None = None) -> Snapshot:
        """Items and state of one commit, and its id."""
        _check_limit(limit)
        contents = self._look()
        items = self._thread.items.at(contents, limit).last(limit)
        return Snapshot(self._decode(items), contents.value(STATE), self.seen)

    def count(self) -> int:
        """How many items there are."""
        return self._look().message_count

    @property
    def seen(self) -> str:
        """The id of the commit that this object last read or made; empty before the first."""
        return "" if self._seen is None else self._seen.hex()

    def head(self) -> str:
        """The id of the newest commit, for `expect`; empty before the first."""
        self._look()
        return self.seen

    # Writing. Each call is one commit, of all or nothing, and returns the id of the head.

    def append(
        self,
        items: Sequence[Any],
        state: Any = UNCHANGED,
        *,
        expect: str | None = None,
        description: str = "",
    ) -> str:
        """Append items at the end, and put a state in the same commit.

        With `expect`, an id that `head`, `read` or a write returned, the head must be that
        commit, or `RefMoved` is raised and nothing is stored. Without it the items are
        appended to whatever is there.
        """
        thread = self._thread
        encoded = _encode(thread.history.codec, items)
        change = ItemChange(thread.items, state, _expected(expect), self.shape, encoded)
        return self._commit(thread, change, "append", description)

    def save(
        self,
        items: Sequence[Any],
        state: Any = UNCHANGED,
        *,
        expect: str | None = None,
        description: str = "",
    ) -> str:
        """Make these the items, storing only what is new or changed.

        For frameworks that hand over the whole history again and again. What is unchanged is
        found by comparing encodings, so a change in place anywhere is noticed. If another
        writer changed the transcript since this object saw it, `RefMoved` is raised and
        nothing is stored, unless all that is stored is the beginning of `items`. With
        `expect` the head must be that commit in any case.
        """
        thread, expected = self._thread, self._seen if expect is None else _expected(expect)
        while True:
            change = SaveChange(thread.items, state, expected, self.shape, items, self._codec)
            try:
                return self._commit(thread, change, "save", description)
            except RefMoved:
                head = thread.look()
                if expect is not None or head is None or state is not UNCHANGED:
                    raise
                if not change.extends(thread.items.at(thread.contents_at(head))):
                    raise
                expected = head.id

    def put_state(self, state: Any, *, expect: str | None = None) -> str:
        """Replace the state."""
        return self.append((), state, expect=expect)

    def pop(self, count: int = 1, *, expect: str | None = None) -> list[Any]:
        """Remove the last items, and return them in order. They stay in the history."""
        if count < 1:
            raise InvalidInput(f"count is how many items to remove, not {count!r:.80}")
        thread = self._thread
        change = PopChange(thread.items, UNCHANGED, _expected(expect), self.shape, [], count)
        self._commit(thread, change, "pop", "")
        return self._decode(change.popped)

    def clear(self) -> bool:
        """Remove all items, the state and the record; whether there were any.

        They stay in the history, so `rollback` and the timeline bring them back.
        """
        found = self.threads.clean_thread(self._config)
        self._look()
        return found

    # The past.

    def turns(self, limit: int | None = None) -> list[Turn]:
        """The commits, newest first."""
        commit = self._thread.look()
        if commit is None:
            return []
        return [_turn(one) for one in self._thread.history.steps(commit, limit)]

    def at(self, turn: int | str) -> Snapshot:
        """What it held at an earlier turn: its number, or the id of a checkpoint."""
        commit = self._find(turn)
        contents = self._thread.contents_at(commit)
        found = ItemCache(self._codec).at(contents).last(None)
        return Snapshot(self._decode(found), contents.value(STATE), commit.id.hex())

    def fork(self, id: Id, at: int | str | None = None, *, user_id: Id | None = None) -> Transcript:
        """A new transcript that begins at the head, or at an earlier turn, and shares storage.

        It belongs to the same user unless another is named. Raises `Conflict` if there is a
        thread of that id.
        """
        start = self._required_head() if at is None else self._find(at)
        user = self.user_id if user_id is None else user_id
        made = Transcript(id, self.threads, user_id=user, shape=self.shape)
        made._thread.history.adopt_branch(MAIN, self._thread.history, start)
        made._seen = start.id
        return made

    def rollback(self, to: int | str | None = None, *, steps: int = 1) -> str:
        """Go back to an earlier turn, or by a number of turns; returns the id of the head.

        Nothing is deleted: `timeline().undo()` takes it back.
        """
        timeline = self.timeline()
        if to is None:
            found = timeline.rollback(steps)
        else:
            found = timeline.rollback(to_checkpoint_id=self._find(to).id.hex())
        self._seen = found.commit.id
        return self.seen

    def timeline(self) -> Timeline:
        """The history of the thread: to compare, branch, tag and undo."""
        return self.threads.timeline(self._config)

    # Life.

    def close(self) -> None:
        """Close the store, if this transcript opened it."""
        if self._owns_threads:
            self.threads.release()

    # The asynchronous face.

    aitems = twin(items)
    astate = twin(state)
    aread = twin(read)
    acount = twin(count)
    ahead = twin(head)
    aappend = twin(append)
    asave = twin(save)
    aput_state = twin(put_state)
    apop = twin(pop)
    aclear = twin(clear)
    aturns = twin(turns)
    aat = twin(at)
    afork = twin(fork)
    arollback = twin(rollback)
    atimeline = twin(timeline)

    # Inside.

    @property
    def _threads(self) -> Threads:
        return self.threads.store._threads

    @property
    def _codec(self) -> Codec:
        return self._thread.history.codec

    @property
    def _thread(self) -> Thread:
        return self.threads._thread(self._address)

    def _look(self) -> Contents:
        thread = self._thread
        commit = thread.look()
        self._seen = None if commit is None else commit.id
        contents = thread.contents_at(commit)
        _check_shape(contents, self.shape)
        return contents

    def _commit(self, thread: Thread, change: ItemChange, step: str, description: str) -> str:
        told = description or change.told()
        commit = thread.change(change, None, logic_step=step, description=told)
        if commit is None:
            self._look()
            return self.seen
        assert change.result is not None, "a commit was made of nothing"
        thread.items.put(change.result._replace(root=commit.root))
        self._seen = commit.id
        return commit.id.hex()

    def _decode(self, encoded: Sequence[bytes]) -> list[Any]:
        if not encoded:
            return []
        found: list[Any] = self._codec.decoder().decode(encode_list(encoded))
        return found

    def _required_head(self) -> Commit:
        commit = self._thread.look()
        if commit is None:
            raise NotFound(f"transcript {self.id!r:.80} is empty")
        return commit

    def _find(self, at: int | str) -> Commit:
        if isinstance(at, str):
            return self.timeline().get(at).commit
        head = self._required_head()
        for commit in self._thread.history.steps(head, max(0, head.generation - at + 1)):
            if commit.generation == at:
                return commit
        raise NotFound(f"transcript {self.id!r:.80} has no turn {at}")


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidInput(f"limit is a whole number from 0 on, not {limit!r:.80}")


def _check_shape(contents: Contents, shape: str) -> None:
    """Refuse what another adapter wrote, which would be read as something else."""
    if shape and contents.message_count and contents.shape not in ("", shape):
        raise InvalidInput(
            f"this conversation was written by the adapter {contents.shape!r}, and is opened by "
            f"{shape!r}. Choose another id, or open it with the adapter that wrote it."
        )


def _encode(codec: Codec, items: Sequence[Any]) -> list[bytes]:
    if type(items) is not list and (
        isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable)
    ):
        raise InvalidInput("items is a list of items, also for one")
    return [codec.encode(item) for item in items]


def _expected(expect: str | Checkpoint | None) -> ObjectId | None:
    if expect is None:
        return ANY
    if isinstance(expect, Checkpoint):
        return expect.commit.id
    try:
        return bytes.fromhex(expect) or None
    except (TypeError, ValueError):
        raise InvalidInput(
            f"expect is the id of a commit, as head() returns it, not {expect!r:.80}"
        ) from None


def _turn(commit: Commit) -> Turn:
    time = datetime.fromtimestamp(commit.time / 1e6, UTC)
    return Turn(commit.generation, commit.id.hex(), time, commit.description)


# What is changed, planned on top of the newest contents.


class ItemChange:
    """Appends items, and may put a state."""

    def __init__(
        self,
        cache: ItemCache,
        state: Any,
        expect: ObjectId | None,
        shape: str,
        encoded: Sequence[bytes],
    ) -> None:
        self.time = time_ns() // 1000
        self.expect = expect
        self.result: Items | None = None
        """The items after the change, for the root that it was last planned on."""
        self._cache, self._state, self._shape = cache, state, shape
        self._encoded = encoded

    def told(self) -> str:
        """What the change does, for people."""
        parts = [_counted(len(self._encoded))] * bool(self._encoded)
        return ", ".join([*parts, *["a state"] * (self._state is not UNCHANGED)])

    def plan(
        self, contents: Contents, maps: MapWriter, codec: Codec, state: CacheEntry | None
    ) -> Plan:
        """Plan it for some contents."""
        _check_shape(contents, self._shape)
        work = _Work(contents, codec, self.time)
        self.result = self._edit(work)
        if self._state is not UNCHANGED:
            work.put_state(self._state, state)
        if self._shape and self._encoded and not contents.message_count:
            work.put_shape(self._shape)
        return work.finished()

    def _edit(self, work: _Work) -> Items:
        before = self._cache.at(work.contents, 0)
        return work.append(before, self._encoded)


class PopChange(ItemChange):
    """Removes the last items."""

    def __init__(
        self,
        cache: ItemCache,
        state: Any,
        expect: ObjectId | None,
        shape: str,
        encoded: Sequence[bytes],
        count: int,
    ) -> None:
        super().__init__(cache, state, expect, shape, encoded)
        self._count = count
        self.popped: list[bytes] = []

    def told(self) -> str:
        """What the change does, for people."""
        return f"without the last {_counted(self._count)}"

    def _edit(self, work: _Work) -> Items:
        before = self._cache.at(work.contents, self._count)
        kept = max(0, before.size - self._count)
        self.popped = before.encoded[kept : before.size]
        for position in before.positions[kept : before.size]:
            work.remove(position)
        return before.up_to(kept)


class SaveChange(ItemChange):
    """Replaces the items by a whole new list, of which most is as it was."""

    def __init__(
        self,
        cache: ItemCache,
        state: Any,
        expect: ObjectId | None,
        shape: str,
        items: Sequence[Any],
        codec: Codec,
    ) -> None:
        super().__init__(cache, state, expect, shape, [])
        self._items, self._codec = list(items), codec

    def told(self) -> str:
        """What the change does, for people."""
        return f"{_counted(len(self._items))} in all"

    def extends(self, known: Items) -> bool:
        """Whether the list begins with all the items that are known: one comparison of bytes."""
        if known.size > len(self._items):
            return False
        encoded = encode_list(known.last(None))
        stored = Piece(known.size, encoded, may_hold_binary(encoded))
        return stored.is_same(self._codec, self._items[: known.size])

    def _edit(self, work: _Work) -> Items:
        before = self._cache.at(work.contents)
        if self.extends(before):
            self._encoded = _encode(self._codec, self._items[before.size :])
            return work.append(before, self._encoded)
        self._encoded = _encode(self._codec, self._items)
        return work.replace(before, self._encoded)


class _Work:
    """One change being planned."""

    def __init__(self, contents: Contents, codec: Codec, time: int) -> None:
        self.contents, self._codec, self._time = contents, codec, time
        self.cached = CachedMap()
        self._added: dict[bytes, bytes] = {}
        self._marks, self._next = contents.marks, contents.next

    def append(self, before: Items, encoded: Sequence[bytes]) -> Items:
        """Append items."""
        positions = range(self._next, self._next + len(encoded))
        for position, item in zip(positions, encoded, strict=True):
            self._place(position, item, None)
        self._next += len(encoded)
        return before.with_more(before.root, positions, encoded)

    def replace(self, before: Items, encoded: Sequence[bytes]) -> Items:
        """Put other items in the place of all; those that are the same stay where they are."""
        known = dict(zip(before.positions, before.last(None), strict=False))
        positions = _placed(before, encoded, self._next)
        for position, item in zip(positions, encoded, strict=True):
            if known.pop(position, None) != item:
                self._place(position, item, self.contents.part(position))
        for position in known:
            self.remove(position)
        self._next = max([self._next, *(one + 1 for one in positions[-1:])])
        return no_items(before.root, 0).with_more(before.root, positions, encoded)

    def remove(self, position: int) -> None:
        """Remove the item at a position."""
        self._set(position, ABSENT)
        self._marks = self._marks._replace(past=max(self._marks.past, position + 1))

    def put_state(self, state: Any, known: CacheEntry | None) -> None:
        """Put a state; `known` is what is known of the one that is stored."""
        self.cached.entries[STATE_KEY] = state_entry(state, self.contents, known)
        self._marks = self._marks._replace(saved=os.urandom(8))

    def put_shape(self, shape: str) -> None:
        """Say what the items are."""
        self._set(SHAPE, shape)

    def finished(self) -> Plan:
        """All that changes."""
        if self._marks != self.contents.marks:
            self._set(MARKS, self._marks.to_stored())
        return Plan(self.cached, self._added, Known(self._marks, self._next))

    def _place(self, position: int, item: bytes, known: bytes | None) -> None:
        part = part_of(item, self._time)
        if known is None and len(part) <= INLINE_MAX:
            self._added[self._codec.encode(position)] = part
            return
        # From its encoding: others may change the value meanwhile.
        value = {"at": self._time, ITEM: self._codec.decoder().decode(item)}
        key = self._codec.encode(position)
        self.cached.entries[key] = CacheEntry(position, value, known)

    def _set(self, key: int | str, value: Any) -> None:
        self.cached.entries[self._codec.encode(key)] = CacheEntry(
            key, value, self.contents.part(key)
        )


def _counted(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def _placed(before: Items, encoded: Sequence[bytes], end: int) -> list[int]:
    """Positions for other items, such that those that are the same stay where they are.

    They ascend. Where there is no room for new ones between two that stayed, the later ones are
    placed anew.
    """
    known = before.last(None)
    places: dict[bytes, list[int]] = {}
    for rank, item in enumerate(known):
        places.setdefault(item, []).append(rank)
    found: list[int] = []
    start = waiting = 0
    for item in encoded:
        ranks = places.get(item, ())
        at = bisect_left(ranks, start)
        last = found[-1] if found else -1
        if at == len(ranks) or before.positions[ranks[at]] - last - 1 < waiting:
            waiting += 1
            continue
        found += range(last + 1, last + 1 + waiting)
        found.append(before.positions[ranks[at]])
        start, waiting = ranks[at] + 1, 0
    last = found[-1] if found else -1
    return [*found, *range(last + 1, last + 1 + waiting)]
