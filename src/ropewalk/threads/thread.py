"""One thread in a store: its head, and how it is changed.

Every change is an edit of the newest contents, retried if another writer was faster. Positions
therefore follow the order of the commits, which is the same for all readers, and concurrent
changes are never merged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import time_ns
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, Protocol, Unpack

from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput, MessageNotFound, NotFound, RefMoved
from ropewalk.history import MAIN, Commit, History, StepFields
from ropewalk.history.commits import SharedObjects
from ropewalk.history.merge import reading_too
from ropewalk.store import ref_name
from ropewalk.store.forking import freed_after_fork
from ropewalk.threads.contents import (
    IDS,
    IDS_KEY,
    LAG,
    MARKS,
    NAMES,
    RECORD,
    STATE,
    STATE_KEY,
    Contents,
    Marks,
)
from ropewalk.threads.items import CacheBudget, ItemCache
from ropewalk.timeline import Checkpoint, Timeline
from ropewalk.timeline.branches import branch_in
from ropewalk.tree import ABSENT, Edited, Mergers, ObjectId, Reader
from ropewalk.tree.map import CachedMap, CacheEntry, Draft, MapWriter


class Head(NamedTuple):
    """A branch of a thread and the commit it points to."""

    branch: str
    commit: Commit | None
    """None before the first commit."""

    @property
    def id(self) -> ObjectId | None:
        """The hash of the commit."""
        return None if self.commit is None else self.commit.id


def look(history: History, read: Reader, named: str | None) -> Head:
    """Read the head of a thread: of the named branch, or of the current one.

    Raises `NotFound` if there is no branch of that name.
    """
    gone: ObjectId | None = None
    while True:
        # All refs in one consistent read; a thread has few.
        view = history.store.view(history.space)
        branch = named or branch_in(view, read) or MAIN
        ref = ref_name("branch", branch)
        target = next((one.target for one in view.refs if one.name == ref), None)
        if target is None and named is not None:
            raise NotFound(
                f"thread {history.agent!r} has no branch {named!r:.80}. Make it with "
                "timeline(config).branch(name)."
            )
        if target is None:
            return Head(branch, None)
        try:
            return Head(branch, history.commits.find(target))
        except NotFound:
            if target == gone:
                raise
            gone = target  # Collected after the branch moved on, or lost.


class Thread:
    """A thread, or one branch of it. Safe to share between threads of the program."""

    def __init__(
        self,
        history: History,
        objects: SharedObjects,
        branch: str | None,
        budget: CacheBudget | None = None,
    ) -> None:
        self.history = history
        self._objects = objects
        self._read: Reader = partial(objects.read_through, history.read)
        self._named = branch
        self._head = Head(branch or MAIN, None)
        """What was last seen."""
        self._contents = Contents.at(None, self._read, history.codec)
        self._writing = freed_after_fork(threading.RLock())
        self.items = ItemCache(history.codec, budget)
        """The items that were seen last, if the thread is a transcript."""
        self._writers: dict[str, Writer] = {}
        self._watched = False

    # Reading.

    def contents(self) -> Contents:
        """The thread's contents at its head."""
        return self.contents_at(self.look())

    def contents_at(self, commit: Commit | None) -> Contents:
        """The thread's contents at a commit; empty before the first."""
        root = None if commit is None else commit.root
        known = self._contents
        if known.root != root:
            known = Contents.at(root, self._read, self.history.codec)
            self._contents = known
        return known

    def look(self) -> Commit | None:
        """The head commit; None before the first."""
        self._head = look(self.history, self._read, self._named)
        return self._head.commit

    @property
    def branch(self) -> str:
        """The branch that is read and written."""
        return self._head.branch

    # Writing.

    def change(
        self, changes: Change, metadata: Mapping[str, Any] | None, **fields: Unpack[StepFields]
    ) -> Commit | None:
        """Apply changes to the newest contents; returns the commit, or None if nothing changed.

        Raises `RefMoved` if the changes expect another head.
        """
        with self._writing:
            while True:
                writer = self._writer()
                try:
                    commit = writer.change(changes, metadata, self._head.id, fields)
                except _BranchGone:
                    del self._writers[writer.branch]
                    continue
                if commit is not None:
                    self._head = Head(writer.branch, commit)
                return commit

    def _writer(self) -> Writer:
        """The writer of the current branch."""
        if self._watched or self.branch not in self._writers:
            self.look()
        found = self._writers.get(self.branch)
        if found is None:
            begun = self._head.commit is not None
            found = Writer(self.history, self.branch, self._objects, begun)
            self._writers[self.branch] = found
        return found

    def watch(self) -> None:
        """Read the current branch before every change from now on: this process may switch it."""
        self._watched = True


class _Unchanged(Exception):
    """Raised out of an edit that would change nothing, so that no commit is made."""


class _Unexpected(Exception):
    """The head is not the one that the changes expect."""


class _BranchGone(Exception):
    """The branch was deleted; an edit must not recreate it."""


class Writer:
    """The writer of a branch, with what it has cached of the head. Not thread-safe."""

    def __init__(self, history: History, branch: str, objects: SharedObjects, begun: bool) -> None:
        self.branch = branch
        self._begun = begun
        """Whether the branch had a commit already."""
        self._codec, self._objects = history.codec, objects
        self._read: Reader = partial(objects.read_through, history.read)
        self._branch = history.open(branch)
        self._maps = MapWriter(history.codec, self._read)
        self._made: ObjectId | None = None
        """The last commit that was made here, of which the following is known."""
        self._state: CacheEntry | None = None
        """What is stored of the state, as it was written here last."""
        self._known: Known | None = None
        self._draft: Draft | None = None
        self._plan: Plan | None = None

    def change(
        self,
        changes: Change,
        metadata: Mapping[str, Any] | None,
        newest: ObjectId | None,
        fields: StepFields,
    ) -> Commit | None:
        """Apply changes; returns the commit, or None if there is nothing to change.

        `newest` is the newest commit that this process has seen.
        """
        about: StepFields = {**fields, "time": changes.time}
        head = self._branch.head
        look = (None if head is None else head.id) != newest
        while True:
            try:
                commit = self._branch.update(
                    lambda root, read: self._edit(root, changes),
                    metadata=dict(metadata) if metadata else None,
                    look=look,
                    **about,
                )
            except (_Unchanged, MessageNotFound) as error:
                # Nothing changes at the cached head; check that at the real one.
                if look and isinstance(error, _Unchanged):
                    return None
                if look:
                    raise
                look = True
            except _Unexpected:
                if look:
                    raise self._moved(changes.expect) from None
                look = True
            else:
                self._accept(commit)
                return commit

    def _moved(self, expected: ObjectId | None) -> RefMoved:
        head = self._branch.head
        ref, actual = ref_name("branch", self.branch), None if head is None else head.id
        advice = "Nothing was stored. Read what the thread holds now, and decide again."
        return RefMoved(ref, expected, actual, advice)

    def _edit(self, root: ObjectId | None, changes: Change) -> Edited:
        head = self._branch.head
        if changes.expect not in (ANY, None if head is None else head.id):
            raise _Unexpected
        if root is None and self._begun:
            raise _BranchGone
        self._begun = self._begun or root is not None
        self._forget_if_others_wrote()
        contents = Contents(root, self._maps, self._read, self._codec)
        if self._known is not None:
            self._known.tell(contents)
        self._plan = plan = changes.plan(contents, self._maps, self._codec, self._state)
        if plan.is_empty:
            raise _Unchanged
        # Other threads may modify the arguments while the commit runs.
        self._draft = self._maps.write(root, plan.cached, plan.added)
        if self._draft.edited.root == root:
            raise _Unchanged
        return self._draft.edited

    def _forget_if_others_wrote(self) -> None:
        head = self._branch.head
        if head is None or head.id != self._made:
            self._state = self._known = None

    def _accept(self, commit: Commit) -> None:
        draft, plan = self._draft, self._plan
        assert draft is not None and plan is not None, "a commit was made of nothing"
        put = plan.cached.entries.get(STATE_KEY)  # Before removed messages are dropped from it.
        self._objects.remember(draft.edited.objects)
        self._maps.accept(draft)
        self._made, self._known, self._begun = commit.id, plan.known, True
        if put is not None:
            # Keep no reference to the caller's object.
            self._state = None if put.value is ABSENT else put
            put.value = put.given = ABSENT
        self._draft = self._plan = None


# Requested changes, and the plan to apply them to the newest contents.


class Incoming(NamedTuple):
    """A message to store."""

    id: Any
    stored: dict[str, Any]
    timeless: bool = False
    """Whether the caller gave no creation time: an existing message then keeps its own."""
    is_new: bool = False
    """Whether the id was generated by this call, so that the thread cannot contain it."""


ANY: Final = b""
"""Expected by changes that apply to any head."""


class Change(Protocol):
    """What is to be changed in a thread."""

    @property
    def time(self) -> int:
        """When the change was requested, in microseconds since 1970."""

    @property
    def expect(self) -> ObjectId | None:
        """The commit that the head must be, None for no commit yet; or `ANY`."""

    def plan(
        self, contents: Contents, maps: MapWriter, codec: Codec, state: CacheEntry | None
    ) -> Plan:
        """Plan it for some contents; `state` is what is known of the state that is stored."""


@dataclass(slots=True, frozen=True)
class Changes:
    """The changes a call requests; absent parts stay as they are."""

    expect: ClassVar[ObjectId | None] = ANY

    puts_state: bool = False
    state: Any = None
    clears_state: bool = False
    messages: Sequence[Incoming] = ()
    about: Mapping[str, Any] | None = None
    """Metadata that apply to all the messages."""
    record: Mapping[str, Any] | None = None
    removes: Sequence[Any] = ()
    """Ids of messages to delete; each must exist."""
    cleans: bool = False
    time: int = field(default_factory=lambda: time_ns() // 1000)
    """When the change was requested, in microseconds since 1970."""

    def plan(
        self, contents: Contents, maps: MapWriter, codec: Codec, state: CacheEntry | None
    ) -> Plan:
        """Plan them, leaving out what is already stored; raises `MessageNotFound`."""
        return Planner(contents, maps, codec, state).plan(self)


class Known(NamedTuple):
    """Cached facts about some contents, which need not be read."""

    marks: Marks
    next: int
    latest: dict[bytes, int] | None = None
    """The positions missing from the map of ids, by encoded id; None if nobody looked."""

    def tell(self, contents: Contents) -> None:
        """Fill the caches of some contents, to save reads."""
        contents.marks, contents.next = self.marks, self.next
        if self.latest is not None:
            contents.latest, contents.is_listed = self.latest, True


class Plan(NamedTuple):
    """Changes, ready to be written on top of some contents."""

    cached: CachedMap
    added: Mapping[bytes, bytes]
    """The parts of new messages by encoded position."""
    known: Known

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.added or self.cached.entries or self.cached.inner)


class Planner:
    """Plans changes, leaving out what is already stored."""

    def __init__(
        self, contents: Contents, maps: MapWriter, codec: Codec, state: CacheEntry | None
    ) -> None:
        self._contents, self._maps, self._encode = contents, maps, codec.encode
        self._state = state
        """What is known of the state that is stored."""
        self._cached = CachedMap()
        self._added: dict[bytes, bytes] = {}
        self._marks = contents.marks
        self._next = contents.next
        self._latest = dict(contents.latest)
        self._is_unlisted = not contents.is_listed

    def plan(self, changes: Changes) -> Plan:
        """Plan some changes; raises `MessageNotFound`."""
        if changes.cleans:
            self._clean()
        if changes.puts_state:
            self._put_state(changes.state)
        elif changes.clears_state:
            self._remove(STATE)
        if changes.puts_state or changes.clears_state or changes.cleans:
            self._marks = self._marks._replace(saved=os.urandom(8))
        for message in changes.messages:
            self._put_message(message, changes.about)
        for id in changes.removes:
            self._remove_message(id)
        if changes.record is not None:
            self._set(RECORD, self._dated(changes.record, changes.time))
        if self._next - self._marks.listed > LAG or self._is_unlisted:
            self._list_ids()
        if self._marks != self._contents.marks:
            self._set(MARKS, self._marks.to_stored())
        return Plan(self._cached, self._added, Known(self._marks, self._next, self._latest))

    def _put_state(self, state: Any) -> None:
        self._cached.entries[STATE_KEY] = state_entry(state, self._contents, self._state)

    def _put_message(self, message: Incoming, about: Mapping[str, Any] | None) -> None:
        key = self._encode(message.id)
        position = self._latest.get(key)
        if position is None and not message.is_new:
            position = self._contents.position_under(key)
        if position is None:
            position = self._latest[key] = self._next
            self._next += 1
            self._add(position, _with(message.stored, about))
            return
        part, stored = self._contents.part(position), message.stored
        if part is None:  # A duplicate within the same call.
            self._add(position, _with(stored, about))
            return
        known = self._contents.load(part)
        if message.timeless:
            stored = {**stored, "created_at": known["created_at"]}
        if self._is_same(stored, known):
            self._cached.entries.pop(self._encode(position), None)  # Edited, then restored.
        else:
            self._place(position, _with(stored, about), part)

    def _is_same(self, stored: dict[str, Any], known: dict[str, Any]) -> bool:
        """Whether a message is stored already, apart from the metadata of its batch."""
        about = known.pop("about", None)
        if self._are_same(stored, known):
            return True
        if about is None:
            return False
        # Reading a message merges its batch's metadata into it, and the caller may put that again.
        return self._are_same(stored, {**known, "metadata": {**about, **known.get("metadata", {})}})

    def _are_same(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return one.keys() == other.keys() and all(
            self._encode(one[name]) == self._encode(other[name]) for name in one
        )

    def _add(self, position: int, stored: dict[str, Any]) -> None:
        """Append a message."""
        part = self._maps.encode_small(stored)
        if part is None:
            self._added.pop(self._encode(position), None)
            self._place(position, stored, None)
        else:
            self._added[self._encode(position)] = part
            self._cached.entries.pop(self._encode(position), None)

    def _place(self, position: int, stored: Any, known: bytes | None) -> None:
        self._cached.entries[self._encode(position)] = CacheEntry(position, stored, known)

    def _remove_message(self, id: Any) -> None:
        position = self._contents.position_of(id)
        if position is None:
            raise no_message(id)
        self._place(position, ABSENT, self._contents.part(position))
        if self._latest.pop(self._encode(id), None) is None:
            self._ids[self._encode(id)] = CacheEntry(id, ABSENT, self._encode(position))
        if position == self._next - 1:
            self._marks = self._marks._replace(past=self._next)

    def _dated(self, record: Mapping[str, Any], time: int) -> dict[str, Any]:
        """Set the creation time of a record."""
        if "created_at" in record:
            return dict(record)
        known = self._contents.value(RECORD, {})
        return {**record, "created_at": known.get("created_at", time)}

    def _list_ids(self) -> None:
        """Bring the map of ids up to date; rebuild it if it is wrong."""
        found = self._contents.listed_ids if self._is_unlisted else ()
        known = {entry.key: entry.body for entry in found}
        for key, part in known.items():
            self._ids[key] = CacheEntry(None, ABSENT, part)
        for key, position in self._latest.items():
            self._ids[key] = CacheEntry(None, position, known.get(key))
        self._marks = self._marks._replace(listed=self._next)
        self._latest = {}

    def _clean(self) -> None:
        for row in self._contents.rows():
            self._place(row.position, ABSENT, self._contents.part(row.position))
        for name in NAMES:
            self._remove(name)
        self._marks = self._marks._replace(past=self._next, listed=self._next)
        self._latest, self._is_unlisted = {}, False

    def _remove(self, name: str) -> None:
        part = self._contents.part(name)
        if part is not None:
            self._cached.entries[self._encode(name)] = CacheEntry(name, ABSENT, part)

    def _set(self, name: str, value: Any) -> None:
        self._cached.entries[self._encode(name)] = CacheEntry(
            name, value, self._contents.part(name)
        )

    @property
    def _ids(self) -> dict[bytes, CacheEntry]:
        return self._cached.inner.setdefault(IDS_KEY, CachedMap()).entries


def state_entry(state: Any, contents: Contents, known: CacheEntry | None) -> CacheEntry:
    """The entry that puts a state; `known` is what is known of the one that is stored."""
    entry = CacheEntry(STATE, state, contents.part(STATE)) if known is None else known
    entry.value = state
    return entry


def _with(stored: dict[str, Any], about: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**stored, "about": dict(about)} if about else stored


def no_message(id: Any) -> MessageNotFound:
    """The error for a message that is not in a thread."""
    return MessageNotFound(f"the thread has no message {id!r:.80}")


# The history of a thread: inspect, roll back, branch, merge and compare.


class ThreadTimeline(Timeline):
    """A timeline whose checkpoints are written by a `ThreadCheckpointer`.

    Merging two sides would leave the bookkeeping of neither valid, so a merge rebuilds it.
    """

    def checkpoint(self, *arguments: Any, **options: Any) -> NoReturn:
        """Not supported: a plain checkpoint is not a conversation."""
        raise _refusal(self.name)

    def safe_execute(self, *arguments: Any, **options: Any) -> NoReturn:
        """Not supported: a plain checkpoint is not a conversation."""
        raise _refusal(self.name)

    def merge(
        self,
        source_branch: str,
        strategy: str = "combine",
        *,
        mergers: Mergers | None = None,
        description: str = "",
    ) -> Checkpoint:
        """Merge a branch into the current one; see `Timeline.merge`.

        Messages are stored by position. If both branches have new messages, these are different
        messages at the same positions, which is a `MergeConflict`.
        """
        return super().merge(
            source_branch, strategy, mergers=_beside(mergers), description=description
        )

    def _apply(
        self, description: str, base: ObjectId, theirs: ObjectId, mergers: Mergers | None
    ) -> Checkpoint:
        return super()._apply(description, base, theirs, _beside(mergers))

    def _settled(self, edited: Edited, read: Reader) -> Edited:
        both = reading_too(read, edited.objects)
        codec = self._history.codec
        contents = Contents.at(edited.root, both, codec)
        marks = Marks(saved=os.urandom(8), past=contents.next)
        cached = CachedMap()
        for name, value in ((IDS, ABSENT), (MARKS, marks.to_stored())):
            part = contents.part(name)
            if part is not None:
                cached.entries[codec.encode(name)] = CacheEntry(name, value, part)
        if not cached.entries:
            return edited
        made = MapWriter(codec, both).write(edited.root, cached).edited
        return Edited(made.root, [*edited.objects, *made.objects], _needs(edited, made))


def _needs(edited: Edited, made: Edited) -> list[ObjectId]:
    there = {one.id for one in edited.objects}
    return [*edited.needs, *(id for id in made.needs if id not in there)]


def _beside(mergers: Mergers | None) -> Mergers:
    """The caller's mergers, and those of the bookkeeping."""
    if mergers is not None and not isinstance(mergers, Mapping):
        return mergers  # Left for the readers to refuse.
    return {**(mergers or {}), (MARKS,): _further, (IDS,): "ours"}


def _further(base: Any, ours: Any, theirs: Any) -> Any:
    """Marks that never give out a position twice."""
    if not (isinstance(ours, Mapping) and isinstance(theirs, Mapping)):
        return theirs if ours is ABSENT else ours
    return {**ours, "past": max(ours["past"], theirs["past"])}


def _refusal(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name!r:.80} is a thread: its steps are put with put, put_state and put_messages "
        "of a ThreadCheckpointer"
    )
