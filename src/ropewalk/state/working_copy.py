"""A working copy of a branch: the part of a state that a program holds, and how it is committed.

Invariants: the `part` of every cached entry is the stored value under that key at the copy's
commit. A commit that was sent and not answered is settled before anything else.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from types import FunctionType
from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.codec.frames import library_of
from ropewalk.errors import Conflict, Full, MissingObjects, NotStorable, RopewalkError, Unavailable
from ropewalk.history import Aside, Commit, History, StepFields
from ropewalk.history.commits import RecentObjects, new_write_id
from ropewalk.history.merge import Merging, merge_late, reading_too, removed
from ropewalk.state.entries import At, CachedEntries, inside
from ropewalk.store import ref_name
from ropewalk.tree import (
    ABSENT,
    CannotMerge,
    Change,
    Edited,
    Map,
    Merger,
    Mergers,
    Object,
    ObjectId,
    Reader,
    diff,
)
from ropewalk.tree.map import CacheEntry, ChangedEntry, Draft, MapWriter

_MOST_COMPARED: Final = 1_000_000
"""How many pairs of list items may be compared to detect moved items."""
_CONTAINERS: Final = (dict, list, set, bytearray, deque)

_RESENDS: Final = 3
MOMENT: Final = "moment"
"""The kind of the refs that keep the states recorded in the middle of a task."""


class _Reconciler:
    """Updates held objects in place to the values of another commit; used once per update.

    Only differences between the old and the new value are applied, so what another thread changes
    in a held object stays. Nested objects that are unchanged, or change in place, keep their
    identity, so references to them see the newest content.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._met: dict[int, Any] = {}
        """Objects that were changed: one that stands in two places is changed for one."""

    def bring(self, held: Any, old: Any, new: Any) -> Any:
        """Update the held object from the old to the new value; returns it, or a replacement."""
        if type(held) is not type(new) or type(old) is not type(new) or id(held) in self._met:
            return new
        if isinstance(held, tuple):
            return self._bring_tuple(held, old, new)
        if type(held) not in _CONTAINERS and _is_fixed(held):
            return new
        self._met[id(held)] = held
        self._bring_content(held, old, new)
        if type(held) in _CONTAINERS:
            return held
        self._bring_attributes(held, old, new)
        try:
            same = self._codec.encode(held) == self._codec.encode(new)
        except NotStorable:
            same = False
        return held if same else new

    # Contents.

    def _bring_content(self, held: Any, old: Any, new: Any) -> None:
        match held:
            case dict():
                self._bring_dict(held, old, new)
            case list():
                self._bring_list(held, old, new)
            case deque():
                items = list(held)
                self._bring_list(items, list(old), list(new))
                held.clear()
                held.extend(items)
            case set():
                held |= new - old
                held -= old - new
            case bytearray():
                held[:] = new
            case _ if _is_array(held) and held.shape == new.shape and held.dtype == new.dtype:
                held[...] = new

    def _bring_dict(self, held: dict[Any, Any], old: dict[Any, Any], new: dict[Any, Any]) -> None:
        for key in [key for key in old if key not in new]:
            held.pop(key, None)
        for key, value in new.items():
            if key in held and key in old:
                if not self._is_same(old[key], value):
                    held[key] = self.bring(held[key], old[key], value)
            else:
                held[key] = value
        if not self._is_same(list(old), list(new)):
            _put_in_order(held, new)

    def _bring_list(self, held: list[Any], old: list[Any], new: list[Any]) -> None:
        before, after = ([self._identity(item) for item in items] for items in (old, new))
        # From the end, so that earlier indexes stay valid.
        for tag, start, stop, low, high in reversed(_steps(before, after)):
            if tag == "replace" and stop - start == high - low and stop <= len(held):
                held[start:stop] = [
                    self.bring(held[start + at], old[start + at], new[low + at])
                    for at in range(high - low)
                ]
            elif tag != "equal":
                held[start:stop] = new[low:high]

    def _bring_tuple(self, held: Any, old: Any, new: Any) -> Any:
        """The held tuple, if it was enough to update its items."""
        if not len(held) == len(old) == len(new):
            return new
        items = [
            held[at] if self._is_same(old[at], new[at]) else self.bring(held[at], old[at], new[at])
            for at in range(len(new))
        ]
        return held if all(one is other for one, other in zip(items, held, strict=True)) else new

    def _bring_attributes(self, held: Any, old: Any, new: Any) -> None:
        ours, before, after = (getattr(one, "__dict__", None) for one in (held, old, new))
        if type(ours) is type(before) is type(after) is dict:
            self._bring_dict(ours, before, after)
        for name in _slots(type(new)):
            if hasattr(held, name) and hasattr(old, name) and hasattr(new, name):
                value = self.bring(getattr(held, name), getattr(old, name), getattr(new, name))
                object.__setattr__(held, name, value)

    # Equality.

    def _is_same(self, one: Any, other: Any) -> bool:
        return one is other or self._identity(one) == self._identity(other)

    def _identity(self, value: Any) -> bytes:
        try:
            return self._codec.encode(value)
        except NotStorable:
            # Too deep to encode, or not storable: equal to nothing.
            return b"%x" % id(value)


def _put_in_order(held: dict[Any, Any], new: Iterable[Any]) -> None:
    if list(held) != list(new):
        for key in new:
            if key in held:
                held[key] = held.pop(key)


def _steps(before: list[bytes], after: list[bytes]) -> list[tuple[str, int, int, int, int]]:
    """The edits from one list to another: tag, old start and stop, new start and stop."""
    start = _count_same(before, after)
    end = _count_same(reversed(before[start:]), reversed(after[start:]))
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    if len(left) * len(right) > _MOST_COMPARED or len(left) == len(right):
        size = min(len(left), len(right))
        steps = [("replace", at, at + 1, at, at + 1) for at in range(size) if left[at] != right[at]]
        if len(left) != len(right):
            steps.append(("replace", size, len(left), size, len(right)))
    else:
        steps = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    return [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in steps]


def _count_same(one: Iterable[bytes], other: Iterable[bytes]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _slots(cls: type) -> list[str]:
    """The attributes that an object keeps outside its `__dict__`."""
    named = [getattr(base, "__slots__", ()) for base in cls.__mro__]
    names = [name for one in named for name in ((one,) if isinstance(one, str) else one)]
    fields = getattr(cls, "__struct_fields__", ())
    hidden = ("__dict__", "__weakref__")
    return [name for name in dict.fromkeys([*names, *fields]) if name not in hidden]


def _is_fixed(held: Any) -> bool:
    """Whether an object is immutable, judging by its class or by a hash of its content."""
    cls = type(held)
    if isinstance(held, type | FunctionType):
        return True
    if library_of(held) is not None:
        return True
    if _is_array(held):
        return not held.flags.writeable
    for name in ("__dataclass_params__", "__struct_config__"):
        if getattr(getattr(cls, name, None), "frozen", False):
            return True
    try:
        hash(held)
    except Exception:  # noqa: BLE001 - whatever it raises, nobody finds it by its hash
        return False
    own: Any = cls.__hash__
    return own is not object.__hash__


def _is_array(held: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(held, numpy.ndarray)


class Sent(NamedTuple):
    """A commit whose outcome is unknown."""

    write_id: str
    draft: Draft
    noted: list[Mapping[str, Any]]


class Saved(NamedTuple):
    """The uncommitted changes at one moment."""

    values: dict[int, tuple[CacheEntry, Any]]
    """By the identity of their entries."""
    noted: list[Mapping[str, Any]]


@dataclass(slots=True)
class _Update:
    """How one entry changes when the copy moves to another commit."""

    at: At
    kept: ChangedEntry | None
    """Its draft, if it had changed."""
    stored: bytes | None
    """The other commit's value."""
    wanted: bytes | None
    """That value with own changes applied."""
    old: Any = ABSENT
    """Its drafted value, if it differs from the wanted one."""
    new: CacheEntry | None = None
    """The wanted value, if it differs."""


class WorkingCopy:
    """The cached part of one branch. Not thread-safe."""

    def __init__(self, history: History, branch: str) -> None:
        self.history = history
        self.branch = history.open(branch)
        self.stand_at(self.branch.head)

    def stand_at(self, commit: Commit | None) -> None:
        """Start over from a commit, with an empty cache."""
        self.commit = commit
        self.noted: list[Mapping[str, Any]] = []
        self._sent: Sent | None = None
        self._aside: Aside | None = None
        """The last moment that was kept on the way to the next commit."""
        self._recent = RecentObjects(self.history.read)
        self._writer = MapWriter(self.history.codec, self._recent.read)
        self.cached = CachedEntries(self._writer, self.root)

    @property
    def root(self) -> ObjectId | None:
        return None if self.commit is None else self.commit.root

    @property
    def is_unsure(self) -> bool:
        return self._sent is not None

    # Changes.

    def draft(self) -> Draft:
        """Encode everything cached; raises `NotStorable`."""
        try:
            return self._writer.write(self.root, self.cached.top)
        except NotStorable as error:
            raise inside(error) from error

    def reader_of(self, draft: Draft) -> Reader:
        """A reader of a draft: stored objects, and those not stored yet."""
        return reading_too(self._recent.read, draft.edited.objects)

    def is_changed(self, draft: Draft) -> bool:
        """Whether a draft differs from what is stored."""
        if self.commit is None:
            return self.cached.holds_something()
        return draft.edited.root != self.commit.root

    def changes(self) -> list[Change]:
        """The uncommitted changes, by path."""
        draft, before = self.draft(), self.root
        read = self.reader_of(draft)
        if before is None:
            empty = Map.empty()
            before, read = empty.root, reading_too(read, empty.objects)
        return list(diff(before, draft.edited.root, read, codec=self.history.codec))

    def moment(self, what: str) -> Commit:
        """The commit of the current values; off the branch, unless nothing changed.

        The next commit descends from it. If there is none, because the changes are dropped, its
        own ref keeps it.
        """
        draft, last = self.draft(), self._aside
        for known in (self.commit, None if last is None else last.commit):
            if known is not None and known.root == draft.edited.root:
                return known
        ref = ref_name(MOMENT, new_write_id()) if last is None else last.ref
        self._aside = None  # Without a reply, the position of the ref is unknown.
        kept = self.branch.keep_aside(ref, draft.edited, self.commit, last, description=what)
        self._aside = kept
        return kept.commit

    # Committing.

    def land(
        self,
        about: StepFields,
        metadata: Any,
        mergers: Mergers,
        write_id: str | None,
        *,
        exclusive: bool = False,
    ) -> Commit | None:
        """Commit changes and events; returns the commit the handle is at then."""
        self.settle(mergers)
        draft = self.draft()
        if not (self.is_changed(draft) or self.noted or metadata is not None):
            return self.commit
        for left in reversed(range(_RESENDS)):
            id = new_write_id() if write_id is None else write_id
            self._sent = Sent(id, draft, list(self.noted))
            try:
                made = self.branch.publish(
                    self.root,
                    draft.edited,
                    metadata=metadata,
                    events=self._sent.noted or None,
                    mergers=mergers,
                    exclusive=exclusive,
                    write_id=id,
                    after=self._aside,
                    **about,
                )
            except MissingObjects as error:
                self._sent = None
                self._resend(error, left)
                draft = self.draft()
            except (Unavailable, Full):
                # It may have been made: the next commit finds out. A full store may refuse the
                # retry of a commit that succeeded but was not answered.
                raise
            except RopewalkError:
                self._sent = None
                raise
            else:
                self._accept(self._sent, made, mergers)
                return made
        raise AssertionError("the last attempt raises or returns")

    def _resend(self, error: MissingObjects, left: int) -> None:
        """Send everything again that was collected since it was read."""
        if not left or self.root in error.ids:
            raise Conflict(
                f"branch {self.branch.name!r} of {self.history.space!r} was moved back, and what "
                "this handle had seen was collected. Note what you changed, call reset(), and "
                "change it again."
            ) from error
        self.cached.forget()

    def settle(self, mergers: Mergers) -> bool:
        """Find out whether an interrupted or unanswered commit was made."""
        if self._sent is None:
            return False
        made = self.branch.find_write(self._sent.write_id)
        if made is None:
            self._sent = None
            return False
        self._accept(self._sent, made, mergers)
        return True

    def _accept(self, sent: Sent, commit: Commit, mergers: Mergers) -> None:
        """Move to a commit made from a draft; can be repeated if it fails."""
        edited = sent.draft.edited
        if commit.root == edited.root:
            self._recent.remember(edited.objects)
            self._writer.accept(sent.draft)
            self._move_to(commit)
        elif self.commit is None or self.commit.id != commit.id:
            # Other owners of the objects may have changed them since the draft.
            rules = {
                path: Merger(self._append, on_equal=True) if merger == "append" else merger
                for path, merger in mergers.items()
            }
            self._rebase(edited.root, edited.objects, self.draft(), commit, rules)
        stored = {id(record) for record in sent.noted}
        self.noted = [record for record in self.noted if id(record) not in stored]
        self._sent = self._aside = None
        self.cached.tidy()

    def _append(self, base: Any, ours: Any, theirs: Any) -> Any:
        """Append the items an own commit added to a list to the list it was merged into."""
        encode = self.history.codec.encode
        alike = type(ours) in (list, tuple) and type(base) is type(ours) is type(theirs)
        if not alike or encode(ours[: len(base)]) != encode(base):
            raise CannotMerge("append needs lists that only grew")
        return theirs + ours[len(base) :]

    def _move_to(self, commit: Commit) -> None:
        self.commit = commit
        self.cached.move_to(commit.root)

    # Concurrent changes.

    def fetch_head(self) -> Commit | None:
        """The head of the branch; None before the first commit.

        Raises `Conflict` if the branch was deleted: the handle's commit is not on it.
        """
        head = self.branch.refresh()
        if head is None and self.commit is not None:
            raise removed(self.branch.name, self.history.space)
        return head

    def refresh(self, mergers: Mergers) -> None:
        """Move to the head, with own changes on top of it."""
        self.settle(mergers)
        head = self.fetch_head()
        if head is not None and (self.commit is None or head.id != self.commit.id):
            self._rebase(self.root, (), self.draft(), head, mergers)

    def _rebase(
        self,
        base: ObjectId | None,
        objects: Sequence[Object],
        draft: Draft,
        head: Commit,
        mergers: Mergers,
    ) -> None:
        """Rebase the draft's changes from a base onto another commit.

        Held objects change in place. Everything is read first, so nothing is half done.
        """
        read = reading_too(self._recent.read, [*objects, *draft.edited.objects])
        merged = Edited(head.root, [], [])
        if draft.edited.root != base and (base is not None or self.cached.holds_something()):
            how = Merging(self.history.commits.find, read, mergers, self.history.codec)
            merged = merge_late(base, draft.edited.root, head.root, how)
        updates = self._updates(draft, head.root, merged, read)
        reconciler = _Reconciler(self.history.codec)
        try:
            self._move_to(head)
            for update in updates:
                self._apply(update, reconciler.bring)
        except BaseException:
            # An interrupt: replace the objects, so that none stays half changed.
            self._move_to(head)
            for update in updates:
                self._apply(update, lambda held, old, new: new)
            raise
        draft.builder.forget()

    def _updates(self, draft: Draft, head: ObjectId, merged: Edited, read: Reader) -> list[_Update]:
        """The updates of all entries."""
        both = reading_too(read, merged.objects)
        outcome = CachedEntries(MapWriter(self.history.codec, both), merged.root)
        stored = CachedEntries(MapWriter(self.history.codec, self._recent.read), head)
        changes = {id(kept.slot): kept for kept in draft.changes}
        updates = []
        for at in self.cached.places():
            kept = changes.get(id(at.entry))
            mine = at.entry.part if kept is None else kept.part
            update = _Update(at, kept, stored.part_at(at), outcome.part_at(at))
            if update.wanted is not None and update.wanted != mine:
                source = self._recent.read if update.wanted == update.stored else both
                update.new = self._writer.load(at.entry.key, update.wanted, source)
                if mine is not None:
                    update.old = self._writer.load(at.entry.key, mine, both).value
            updates.append(update)
        return updates

    def _apply(self, update: _Update, bring: Callable[[Any, Any, Any], Any]) -> None:
        entry, new, stored = update.at.entry, update.new, update.stored
        if update.wanted is None:
            entry.value = ABSENT
            if stored is None:
                self.cached.drop(update.at)
        elif new is not None:
            entry.value = bring(entry.value, update.old, new.value)
        if new is not None and update.wanted == stored:
            entry.part, entry.mirrors, entry.alive = stored, new.mirrors, new.alive
            entry.given = entry.value
        elif update.kept is not None and update.kept.part == stored:
            self._writer.accept_one(update.kept)
        elif stored != entry.part:
            entry.part, entry.given, entry.alive = stored, ABSENT, 0
            entry.mirrors.clear()

    # Rollback.

    def save(self) -> Saved:
        """The uncommitted changes, to be restored later."""
        draft = self.draft()
        read = self.reader_of(draft)
        values = {}
        for kept in draft.changes:
            part, key = kept.part, kept.slot.key
            value = ABSENT if part is None else self._writer.load(key, part, read).value
            values[id(kept.slot)] = kept.slot, value
        return Saved(values, list(self.noted))

    def restore(self, saved: Saved) -> None:
        """Restore saved changes without accessing the store."""
        for at in self.cached.places():
            entry, value = saved.values.get(id(at.entry), (None, ABSENT))
            if entry is None:
                self.cached.drop(at)  # Loaded again on access.
            else:
                entry.value, entry.given = value, ABSENT
        self.noted = saved.noted
        self._aside = None
