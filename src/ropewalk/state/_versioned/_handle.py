"""A handle on a branch of a state: what it holds, and how that becomes commits.

Invariants: every slot's `part` is what the commit that the handle stands at has under
that key. A commit that was sent and not answered is settled before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ropewalk.errors import (
    Conflict,
    Full,
    MissingObjects,
    NotStorable,
    RopewalkError,
    Unavailable,
)
from ropewalk.history import Aside, Commit, History, StepFields
from ropewalk.history.commits import new_write_id
from ropewalk.history.merging import Merging, merge_late, reading_too, removed
from ropewalk.history.object_cache import RecentObjects
from ropewalk.state._versioned._reconciling import Reconciler
from ropewalk.state._versioned._shelves import At, Shelves, inside
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

_RESENDS: Final = 3
MOMENT: Final = "moment"
"""The kind of the refs that keep what a task held in its middle."""


class Sent(NamedTuple):
    """A commit of which it is not known whether it was made."""

    write_id: str
    draft: Draft
    noted: list[Mapping[str, Any]]


class Saved(NamedTuple):
    """What was not committed at a moment."""

    values: dict[int, tuple[CacheEntry, Any]]
    """By the identity of their slots."""
    noted: list[Mapping[str, Any]]


@dataclass(slots=True)
class _Turn:
    """What becomes of a slot when a handle moves to another commit."""

    at: At
    kept: ChangedEntry | None
    """What it was drafted as, if it had changed."""
    stored: bytes | None
    """What the other commit has there."""
    wanted: bytes | None
    """The same with own changes."""
    old: Any = ABSENT
    """What it holds, as it was drafted, if that is not what is wanted."""
    new: CacheEntry | None = None
    """What is wanted, if it does not hold that."""


class Handle:
    """What is held of one branch. Not for several threads at once."""

    def __init__(self, history: History, branch: str) -> None:
        self.history = history
        self.branch = history.open(branch)
        self.stand_at(self.branch.head)

    def stand_at(self, commit: Commit | None) -> None:
        """Begin anew from a commit, with nothing held."""
        self.commit = commit
        self.noted: list[Mapping[str, Any]] = []
        self._sent: Sent | None = None
        self._aside: Aside | None = None
        """The last moment that was kept on the way to the next commit."""
        self._recent = RecentObjects(self.history.read)
        self._writer = MapWriter(self.history.codec, self._recent.read)
        self.shelves = Shelves(self._writer, self.root)

    @property
    def root(self) -> ObjectId | None:
        """The root of what the handle stands at."""
        return None if self.commit is None else self.commit.root

    @property
    def is_unsure(self) -> bool:
        """Whether it is not known if the last commit was made."""
        return self._sent is not None

    # What changed.

    def draft(self) -> Draft:
        """All that is held, as objects; raises `NotStorable`."""
        try:
            return self._writer.write(self.root, self.shelves.top)
        except NotStorable as error:
            raise inside(error) from error

    def is_changed(self, draft: Draft) -> bool:
        """Whether a draft differs from what is stored."""
        if self.commit is None:
            return self.shelves.holds_something()
        return draft.edited.root != self.commit.root

    def changes(self) -> list[Change]:
        """What is not committed, by path."""
        draft, before = self.draft(), self.root
        read = reading_too(self._recent.read, draft.edited.objects)
        if before is None:
            empty = Map.empty()
            before, read = empty.root, reading_too(read, empty.objects)
        return list(diff(before, draft.edited.root, read, codec=self.history.codec))

    def moment(self, what: str) -> Commit:
        """The commit of what is held now; off the branch, unless nothing changed.

        The next commit comes from it. If there is none, because what was held is dropped,
        its own ref keeps it.
        """
        draft, last = self.draft(), self._aside
        for known in (self.commit, None if last is None else last.commit):
            if known is not None and known.root == draft.edited.root:
                return known
        ref = ref_name(MOMENT, new_write_id()) if last is None else last.ref
        self._aside = None  # If no answer comes, it is not known where the ref is.
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
        """Commit what changed and what was noted; the commit that the handle stands at then."""
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
                # It may have been made: the next commit finds out. A store that is full may
                # say so when it is sent again because there was no answer.
                raise
            except RopewalkError:
                self._sent = None
                raise
            else:
                self._accept(self._sent, made, mergers)
                return made
        raise AssertionError("the last attempt raises or returns")

    def _resend(self, error: MissingObjects, left: int) -> None:
        """Have everything sent again that was collected since it was read."""
        if not left or self.root in error.ids:
            raise Conflict(
                f"branch {self.branch.name!r} of {self.history.space!r} was moved back, and what "
                "this handle had seen was collected. Note what you changed, call reset(), and "
                "change it again."
            ) from error
        self.shelves.forget()

    def settle(self, mergers: Mergers) -> bool:
        """Find out whether a commit that was interrupted, or got no answer, was made."""
        if self._sent is None:
            return False
        made = self.branch.find_write(self._sent.write_id)
        if made is None:
            self._sent = None
            return False
        self._accept(self._sent, made, mergers)
        return True

    def _accept(self, sent: Sent, commit: Commit, mergers: Mergers) -> None:
        """Stand at a commit that was made of a draft; may be done again if it fails."""
        edited = sent.draft.edited
        if commit.root == edited.root:
            self._recent.remember(edited.objects)
            self._writer.accept(sent.draft)
            self._move_to(commit)
        elif self.commit is None or self.commit.id != commit.id:
            # Whoever shares the objects may have changed them since they were drafted.
            rules = {
                path: Merger(self._append, on_equal=True) if merger == "append" else merger
                for path, merger in mergers.items()
            }
            self._rebase(edited.root, edited.objects, self.draft(), commit, rules)
        stored = {id(record) for record in sent.noted}
        self.noted = [record for record in self.noted if id(record) not in stored]
        self._sent = self._aside = None
        self.shelves.tidy()

    def _append(self, base: Any, ours: Any, theirs: Any) -> Any:
        """What was appended to an own commit, after what that was merged into."""
        encode = self.history.codec.encode
        alike = type(ours) in (list, tuple) and type(base) is type(ours) is type(theirs)
        if not alike or encode(ours[: len(base)]) != encode(base):
            raise CannotMerge("append needs lists that only grew")
        return theirs + ours[len(base) :]

    def _move_to(self, commit: Commit) -> None:
        self.commit = commit
        self.shelves.move_to(commit.root)

    # What others did.

    def fetch_head(self) -> Commit | None:
        """The newest commit of the branch; None before the first.

        Raises `Conflict` if the branch was removed: what the handle stands at is not there.
        """
        head = self.branch.refresh()
        if head is None and self.commit is not None:
            raise removed(self.branch.name, self.history.space)
        return head

    def refresh(self, mergers: Mergers) -> None:
        """Stand at the newest commit, with own changes on top of it."""
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
        """Bring what was drafted, and differs from a base, onto another commit.

        What is held changes in place. All is read before, so nothing is half done.
        """
        read = reading_too(self._recent.read, [*objects, *draft.edited.objects])
        merged = Edited(head.root, [], [])
        if draft.edited.root != base and (base is not None or self.shelves.holds_something()):
            how = Merging(self.history.commits.find, read, mergers, self.history.codec)
            merged = merge_late(base, draft.edited.root, head.root, how)
        turns = self._turns(draft, head.root, merged, read)
        reconciler = Reconciler(self.history.codec)
        try:
            self._move_to(head)
            for turn in turns:
                self._take(turn, reconciler.bring)
        except BaseException:
            # An interrupt: no object may stay half changed, so new ones take their places.
            self._move_to(head)
            for turn in turns:
                self._take(turn, lambda held, old, new: new)
            raise
        draft.builder.forget()

    def _turns(self, draft: Draft, head: ObjectId, merged: Edited, read: Reader) -> list[_Turn]:
        """What becomes of every slot."""
        both = reading_too(read, merged.objects)
        outcome = Shelves(MapWriter(self.history.codec, both), merged.root)
        stored = Shelves(MapWriter(self.history.codec, self._recent.read), head)
        changes = {id(kept.slot): kept for kept in draft.changes}
        turns = []
        for at in self.shelves.places():
            kept = changes.get(id(at.slot))
            mine = at.slot.part if kept is None else kept.part
            turn = _Turn(at, kept, stored.part_at(at), outcome.part_at(at))
            if turn.wanted is not None and turn.wanted != mine:
                source = self._recent.read if turn.wanted == turn.stored else both
                turn.new = self._writer.load(at.slot.key, turn.wanted, source)
                if mine is not None:
                    turn.old = self._writer.load(at.slot.key, mine, both).value
            turns.append(turn)
        return turns

    def _take(self, turn: _Turn, bring: Callable[[Any, Any, Any], Any]) -> None:
        slot, new, stored = turn.at.slot, turn.new, turn.stored
        if turn.wanted is None:
            slot.value = ABSENT
            if stored is None:
                self.shelves.drop(turn.at)
        elif new is not None:
            slot.value = bring(slot.value, turn.old, new.value)
        if new is not None and turn.wanted == stored:
            slot.part, slot.mirrors, slot.alive = stored, new.mirrors, new.alive
            slot.given = slot.value
        elif turn.kept is not None and turn.kept.part == stored:
            self._writer.accept_one(turn.kept)
        elif stored != slot.part:
            slot.part, slot.given, slot.alive = stored, ABSENT, 0
            slot.mirrors.clear()

    # Going back.

    def save(self) -> Saved:
        """What is held and not committed, to restore it."""
        draft = self.draft()
        read = reading_too(self._recent.read, draft.edited.objects)
        values = {}
        for kept in draft.changes:
            part, key = kept.part, kept.slot.key
            value = ABSENT if part is None else self._writer.load(key, part, read).value
            values[id(kept.slot)] = kept.slot, value
        return Saved(values, list(self.noted))

    def restore(self, saved: Saved) -> None:
        """Hold again what was held; the store is not asked."""
        for at in self.shelves.places():
            slot, value = saved.values.get(id(at.slot), (None, ABSENT))
            if slot is None:
                self.shelves.drop(at)  # Read anew when it is asked for.
            else:
                slot.value, slot.given = value, ABSENT
        self.noted = saved.noted
        self._aside = None
