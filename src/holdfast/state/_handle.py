"""A handle on a branch of a state: what it holds, and how that becomes commits.

Invariants: every slot's `part` is what the commit that the handle stands at has under
that key. A commit that was sent and not answered is settled before anything else.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.errors import (
    Conflict,
    HoldfastError,
    MissingObjects,
    NotStorable,
    Unavailable,
)
from holdfast.history import Commit, History, StepFields
from holdfast.history._commits import new_write_id
from holdfast.history._merging import Merging, merge_late, reading_too
from holdfast.history._recent import RecentObjects
from holdfast.state._reconciling import reconcile
from holdfast.state._shelves import Shelves, inside
from holdfast.store import REMEMBERED_WRITES
from holdfast.tree import ABSENT, Change, Map, Mergers, ObjectId, diff
from holdfast.tree._map_writer import Draft, MapWriter, Slot

_RESENDS: Final = 3


class Sent(NamedTuple):
    """A commit of which it is not known whether it was made."""

    write_id: str
    draft: Draft
    noted: list[Mapping[str, Any]]


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
        self._recent = RecentObjects(self.history.store.read)
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
            return self._writer.write(
                self.root, self.shelves.top, threaded=threading.active_count() > 1
            )
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

    # Committing.

    def land(
        self, about: StepFields, metadata: Any, mergers: Mergers, write_id: str | None
    ) -> Commit | None:
        """Commit what changed and what was noted; the commit that the handle stands at then."""
        self.settle()
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
                    write_id=id,
                    **about,
                )
            except MissingObjects as error:
                self._sent = None
                self._resend(error, left)
                draft = self.draft()
            except Unavailable:
                raise  # It may have been made: the next commit finds out.
            except HoldfastError:
                self._sent = None
                raise
            else:
                self._accept(self._sent, made)
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

    def settle(self) -> None:
        """Find out whether a commit that was interrupted, or got no answer, was made."""
        if self._sent is None:
            return
        made = self.branch._made(self._sent.write_id, REMEMBERED_WRITES)
        if made is None:
            self._sent = None
        else:
            self._accept(self._sent, self.branch._target(made))

    def _accept(self, sent: Sent, commit: Commit) -> None:
        """Stand at a commit that was made of a draft; may be done twice."""
        draft = sent.draft
        self._recent.remember(draft.edited.objects)
        self._writer.accept(draft)
        stored = {id(record) for record in sent.noted}
        self.noted = [record for record in self.noted if id(record) not in stored]
        self._move_to(commit)
        if commit.root != draft.edited.root:
            self._catch_up()
        self._sent = None

    def _move_to(self, commit: Commit) -> None:
        self.commit = commit
        self.shelves.move_to(commit.root)

    # What others did.

    def refresh(self, mergers: Mergers) -> None:
        """Stand at the newest commit, with own changes on top of it."""
        self.settle()
        head = self.branch.refresh()
        if head is None or (self.commit is not None and head.id == self.commit.id):
            return
        draft = self.draft()
        if self.is_changed(draft):
            self._rebase(draft, head, mergers)
        else:
            self._move_to(head)
            self._catch_up()

    def _catch_up(self) -> None:
        """Bring what is held to what is stored, in place."""
        for at in self.shelves.places():
            part = self.shelves.part_at(at)
            if part == at.slot.part:
                continue
            if part is None:
                self.shelves.drop(at)
            else:
                self._renew(at.slot, self._writer.load(at.slot.key, part))

    def _renew(self, slot: Slot, fresh: Slot) -> None:
        slot.value = reconcile(slot.value, fresh.value, self.history.codec)
        slot.part, slot.mirrors, slot.alive = fresh.part, fresh.mirrors, fresh.alive
        slot.given = slot.value

    def _rebase(self, draft: Draft, head: Commit, mergers: Mergers) -> None:
        """Bring own changes onto a newer commit without committing them."""
        codec = self.history.codec
        read = reading_too(self._recent.read, draft.edited.objects)
        how = Merging(self.history._commits.find, read, mergers, codec)
        merged = merge_late(self.root, draft.edited.root, head.root, how)
        both = reading_too(read, merged.objects)
        outcome = Shelves(MapWriter(codec, both), merged.root)
        ours = {id(kept.slot): kept.part for kept in draft.changes}
        self._move_to(head)
        for at in self.shelves.places():
            slot, wanted, stored = at.slot, outcome.part_at(at), self.shelves.part_at(at)
            if wanted is None:
                slot.value = ABSENT
            elif wanted != ours.get(id(slot), slot.part):
                fresh = self._writer.load(slot.key, wanted, both)
                slot.value = reconcile(slot.value, fresh.value, codec)
            if stored != slot.part:
                slot.part, slot.given = stored, ABSENT
                slot.mirrors.clear()

    # Going back.

    def restore(self, draft: Draft) -> None:
        """Hold again what was held when a draft was made."""
        read = reading_too(self._recent.read, draft.edited.objects)
        was = Shelves(MapWriter(self.history.codec, read), draft.edited.root)
        for at in self.shelves.places():
            slot, part = at.slot, was.part_at(at)
            if part == slot.part:
                self.shelves.drop(at)  # Read anew when it is asked for.
            elif part is None:
                slot.value = ABSENT
            else:
                slot.value, slot.given = self._writer.load(slot.key, part, read).value, ABSENT
