"""A handle on a branch: commits values to it, again and again, beside others who do.

A handle remembers what its caller last saw. If the branch has moved on since, a commit
keeps the caller's value as a version of its own, and merges it with what others did,
from what the caller saw. So nothing that was acknowledged is lost, and no change is
taken back by somebody who did not know of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    MergeConflict,
    MissingObjects,
    NotFound,
    NotStorable,
    RefMoved,
    RopewalkError,
    WriteIdReused,
)
from ropewalk.history.commits import BRANCH, StepFields, check_fields, new_write_id
from ropewalk.history.merging import (
    Merging,
    check_mergers,
    merge_edited,
    merge_late,
    reading_too,
    removed,
)
from ropewalk.history.object_cache import RecentObjects
from ropewalk.history.turns import Hold, turn
from ropewalk.store import REMEMBERED_WRITES, Move, Operation, ref_name
from ropewalk.store._asynchronous import Threads, twin
from ropewalk.store._forking import freed_after_fork
from ropewalk.tree import (
    Commit,
    Edited,
    Mergers,
    Object,
    ObjectId,
    Reader,
    TreeWriter,
    Written,
    make_commit,
)
from ropewalk.tree._commits import MERGED

if TYPE_CHECKING:
    from ropewalk.history.history import History


Edit: TypeAlias = Callable[[ObjectId | None, Reader], Edited]
"""Makes a new value of the one with a root; None before the first."""

_RESENDS = 8

_NEWEST: Final = b""
"""The base of an edit that applies to any head."""


class Head(NamedTuple):
    """A branch as it was seen."""

    commit: Commit | None
    epoch: int | None
    """Until when the objects that it reaches need not be looked up."""


class Change(NamedTuple):
    """A new value, as objects."""

    root: ObjectId
    objects: Sequence[Object]
    needs: Sequence[ObjectId]


class Branch:
    """One branch of a history, for whoever writes to it.

    The value is handed over whole each time; only what changed is stored. A handle is
    for one caller, because it remembers what that one saw: who else writes opens a
    handle too, in another thread or in the same. Has asynchronous twins: `acommit`,
    `aread`, `aupdate`, `arefresh`.
    """

    def __init__(self, history: History, name: str) -> None:
        self.history, self.name = history, name
        self._ref = ref_name(BRANCH, name)
        self._writer = TreeWriter(history.codec)
        self._recent = RecentObjects(history.read)
        self._lock = freed_after_fork(threading.RLock())
        self._head = self._look()
        self._seen = self._head.commit
        self._unsure: str | None = None
        """The write id of a commit of which it is not known whether it was made."""
        self._epoch: int | None = None
        """The epoch at which all that the writer knows of was in the store, if there is one."""
        self._lost = False
        """Whether the last commit failed."""

    def __repr__(self) -> str:
        at = "nothing yet" if self._head.commit is None else self._head.commit.short
        return f"<Branch {self.name!r} of {self.history.space!r} at {at}>"

    @property
    def head(self) -> Commit | None:
        """The commit that the branch was at when this handle last looked; None before the first."""
        return self._head.commit

    @property
    def seen(self) -> Commit | None:
        """The commit whose value the caller last read or handed over."""
        return self._seen

    @property
    def _threads(self) -> Threads:
        return self.history.store._threads

    # Reading.

    def refresh(self) -> Commit | None:
        """Look where the branch is now; what the caller saw stays what it was."""
        with self._lock:
            self._head = self._look()
            return self._head.commit

    def read(self) -> Any:
        """The newest value, which the next commit goes on from.

        The caller may change it and hand it over. Raises `NotFound` if there is none.
        """
        with self._lock:
            while True:
                self._head = self._look()
                commit = self._head.commit
                if commit is None:
                    raise self.history._unknown(BRANCH, self.name)
                try:
                    value = self._writer.resume(commit.root, self.history.read)
                except MissingObjects:
                    if not self._moved_from(commit):
                        raise
                else:
                    self._seen, self._epoch = commit, self._head.epoch
                    self._unsure = None
                    return value

    def reset(self) -> Commit | None:
        """Reset the merge base to the head and return it.

        For a caller whose next value replaces that one, whatever it holds. Raises `Conflict`
        if somebody removed the branch: the next commit would begin it anew.
        """
        with self._lock:
            newest = self.refresh()
            if newest is None and self._seen is not None:
                raise removed(self.name, self.history.space)
            self._seen, self._unsure = newest, None
            return newest

    # Writing.

    def commit(
        self,
        value: Any,
        *,
        metadata: Any = None,
        events: Any = None,
        mergers: Mergers | None = None,
        write_id: str | None = None,
        **fields: Unpack[StepFields],
    ) -> Commit:
        """Make a value the newest version, merged with what others did meanwhile.

        `metadata` and `events` are further values about the step; `fields` are those of
        `Commit` by name: `description`, `logic_step`, `status`, `error`, `agent`,
        `extension`, `time`. The commit that is returned is the new head. If it is `merged`,
        it holds the changes of others too, and its second parent has the value that was
        handed over: `read` gives the whole. Both say of the step what was handed over.

        Raises `NotStorable` for a value that cannot be stored, and `MergeConflict` if
        others changed the same places and no merger settles it; nothing is changed then.
        With a `write_id`, a commit that is sent twice is made once.
        """
        with self._lock:
            check_mergers(mergers, self.history.codec)
            notes = self._notes(metadata, events, fields)
            self._settle()
            missing: MissingObjects | None = None
            for _ in range(_RESENDS):
                written = self._writer.write(value)
                change = Change(written.root, written.objects, written.needs)
                try:
                    commit, ours = self._land(change, notes, mergers, write_id)
                except MissingObjects as error:
                    # Collected since they were written: then everything is sent again.
                    missing = error
                    self._expect_seen(error)
                    self._writer.forget()
                    self._head, self._epoch = self._look(), None
                else:
                    self._accept(written)
                    self._seen, self._unsure = ours, None
                    return commit
            assert missing is not None
            raise missing

    def update(
        self,
        edit: Edit,
        *,
        metadata: Any = None,
        events: Any = None,
        write_id: str | None = None,
        look: bool = True,
        **fields: Unpack[StepFields],
    ) -> Commit:
        """Edit the newest value without reading it whole, however often that takes.

        `edit` is called with the root of the newest value (None before the first) and a
        reader, and gives what `put`, `remove`, `insert` or `Map.edit` gave. If the branch
        moves meanwhile, it is called again, so it must do nothing else. With a `write_id`,
        an edit that is sent twice is made once. Without a `look`, the first attempt is
        made where this handle last saw the branch, which saves asking where it is.
        """
        with self._lock:
            notes = self._notes(metadata, events, fields)
            return self._update(edit, notes, write_id, look=look)

    def publish(
        self,
        base: ObjectId | None,
        edited: Edited,
        *,
        metadata: Any = None,
        events: Any = None,
        mergers: Mergers | None = None,
        exclusive: bool = False,
        write_id: str | None = None,
        **fields: Unpack[StepFields],
    ) -> Commit:
        """Make what was edited, from the value with a root, part of the newest value.

        If the newest value is still the one with that root (None before the first), the
        new one takes its place. Else the two are merged as `commit` does it, into one
        commit on top of what others did. Raises `MergeConflict` with nothing changed; if it
        is `exclusive`, also where others made the same change and no merger settles it.
        """
        with self._lock:
            check_mergers(mergers, self.history.codec)
            notes = self._notes(metadata, events, fields)

            def edit(root: ObjectId | None, read: Reader) -> Edited:
                if root == base:
                    return edited
                if root is None:
                    raise removed(self.name, self.history.space)
                find, codec = self.history._commits.find, self.history.codec
                how = Merging(find, read, mergers, codec, exclusive)
                return merge_edited(base, edited, root, how)

            return self._update(edit, notes, write_id, base=base, look=False)

    # Inside.

    def _settle(self) -> None:
        """Find out whether a commit that was interrupted, or got no answer, was made.

        If it was, its value is what the caller saw last; else the next commit would
        conflict with it.
        """
        made = None if self._unsure is None else self._made(self._unsure, REMEMBERED_WRITES)
        if made is not None:
            self._seen = self._own(made)
            self._head = self._look()
        self._unsure = None

    def _own(self, made: Operation) -> Commit:
        """The commit of a write that holds the caller's own value."""
        commit = self._target(made)
        if made.metadata.get("action") == "merge":
            return self.history._commits.find(commit.parents[-1])
        return commit

    def _accept(self, written: Written) -> None:
        """Go on from a value that is in the store."""
        went_on = self._writer.root is not None
        self._writer.accept(written)
        if went_on and self._epoch != self._head.epoch:
            # There was a collection. What only older versions hold may be gone.
            self._writer.trim()
        self._epoch = self._head.epoch

    @contextmanager
    def _turn(self) -> Iterator[Hold]:
        """A turn among all who write to this branch; what others left is known then."""
        # Who met a conflict and read again goes at once: in a queue, whoever has just
        # finished would be the only one who knows the head, and win again.
        wait = not self._lost
        self._lost = True
        with turn(self.history.store, self.history.space, self._ref, wait) as hold:
            left = hold.place.head
            if hold.place.crowded or left not in (None, _id(self._head.commit)):
                self._head = self._look()
                if left not in (None, _id(self._head.commit)):
                    hold.place.met_others()
            yield hold
            hold.place.head = _id(self._head.commit)
        self._lost = False

    def _update(
        self,
        edit: Edit,
        notes: Notes,
        write_id: str | None,
        *,
        base: ObjectId | None = _NEWEST,
        look: bool = True,
    ) -> Commit:
        """Send an edit of the newest value until it lands.

        With a `base` the edit was made from the value with that root; on another head it is
        merged. Without a `look`, the first attempt uses the head that was last seen.
        """
        id = new_write_id() if write_id is None else write_id
        with self._turn() as hold:
            if look:
                self._head = self._look()
            while True:
                head = self._head
                try:
                    change = self._edited(edit, head.commit)
                    root = None if head.commit is None else head.commit.root
                    if base in (_NEWEST, root):
                        epoch, said = head.epoch, notes
                    else:  # Not all that the edit needs is reached by the head.
                        epoch, said = None, notes.merged()
                    made = self._send(change, head.commit, epoch, said, id, action="update", fresh=write_id is None)
                    self._recent.remember(change.objects)
                    return made
                except RefMoved:
                    hold.lost()
                    self._head = self._look()
                except MissingObjects:
                    self._recent = RecentObjects(self.history.read)
                    self._head = self._look()
                    if _id(self._head.commit) == _id(head.commit):
                        raise
                except MergeConflict:
                    self._head = self._look()
                    if _id(self._head.commit) != _id(head.commit):
                        continue  # The conflict was with what is no longer there.
                    # A write that was made before meets what came after it.
                    if write_id is None or self._made(id, REMEMBERED_WRITES) is None:
                        raise
                    return self._updated(edit, id)
                except WriteIdReused:
                    return self._updated(edit, id)

    def _land(
        self, change: Change, notes: Notes, mergers: Mergers | None, write_id: str | None
    ) -> tuple[Commit, Commit]:
        """The new head, and the commit that holds the caller's own value."""
        id = self._unsure = new_write_id() if write_id is None else write_id
        with self._turn() as hold:
            while True:
                try:
                    return self._attempt(change, notes, mergers, id, write_id is None)
                except RefMoved:
                    hold.lost()
                    self._head = self._look()
                except WriteIdReused:
                    return self._repeated(id, change.root)
                except Conflict:
                    known, self._head = self._head, self._look()
                    if _id(known.commit) != _id(self._head.commit):
                        continue  # The conflict was with what is no longer there.
                    # A write that was made before meets what came after it.
                    if write_id is None or self._made(id, REMEMBERED_WRITES) is None:
                        raise
                    return self._repeated(id, change.root)

    def _attempt(
        self, change: Change, notes: Notes, mergers: Mergers | None, write_id: str, fresh: bool
    ) -> tuple[Commit, Commit]:
        head = self._head
        if _id(head.commit) != _id(self._seen):
            return self._merge(change, head, notes, mergers, write_id)
        commit = self._send(change, head.commit, self._epoch, notes, write_id, fresh=fresh)
        return commit, commit

    def _send(
        self,
        change: Change,
        head: Commit | None,
        epoch: int | None,
        notes: Notes,
        write_id: str,
        *,
        action: str = "commit",
        fresh: bool = False,
    ) -> Commit:
        """One commit on top of the head, by somebody who knows what was there at an epoch."""
        parents = () if head is None else (head,)
        commit, made = self._make(change.root, parents, notes)
        operation = self.history._commits.land(
            [*change.objects, *notes.objects, made],
            [*change.needs, change.root, *commit.parents, *notes.roots],
            [Move(self._ref, _id(head), commit.id)],
            self._operation(action),
            write_id=write_id,
            epoch=epoch,
            step=commit,
            fresh=fresh,
        )
        return self._landed(commit, operation)

    def _merge(
        self, change: Change, head: Head, notes: Notes, mergers: Mergers | None, write_id: str
    ) -> tuple[Commit, Commit]:
        """The caller's value as a commit of its own, and a second one that merges it."""
        seen, theirs = self._seen, head.commit
        if theirs is None:
            raise removed(self.name, self.history.space)
        ours, made = self._make(change.root, () if seen is None else (seen,), notes)
        read = reading_too(self.history.read, change.objects)
        merged = merge_late(
            None if seen is None else seen.root,
            change.root,
            theirs.root,
            Merging(self.history._commits.find, read, mergers, self.history.codec),
        )
        # Two who say the same of the same step, and when it was, make the same commit.
        parents = (theirs,) if ours.id == theirs.id else (theirs, ours)
        commit, made_too = self._make(merged.root, parents, notes.merged())
        operation = self.history._commits.land(
            [*change.objects, *notes.objects, made, *merged.objects, made_too],
            [
                *change.needs,
                change.root,
                *ours.parents,
                *notes.roots,
                *merged.needs,
                merged.root,
                theirs.id,
            ],
            [Move(self._ref, theirs.id, commit.id)],
            self._operation("merge"),
            write_id=write_id,
            step=commit,
        )
        self.history._commits.remember([ours])
        return self._landed(commit, operation), ours

    def _landed(self, commit: Commit, operation: Operation) -> Commit:
        assert operation.moves[0].target == commit.id, "a store took a write for another"
        self.history._commits.remember([commit])
        self._head = Head(commit, operation.epoch)
        return commit

    def _make(
        self, root: ObjectId, parents: tuple[Commit, ...], notes: Notes
    ) -> tuple[Commit, Object]:
        return make_commit(
            root,
            tuple(parent.id for parent in parents),
            base=parents[0].id if parents else None,
            generation=1 + max((parent.generation for parent in parents), default=0),
            **notes.fields,
        )

    def _notes(self, metadata: Any, events: Any, fields: StepFields) -> Notes:
        """What is said about a step, ready to be sent."""
        check_fields(fields)
        about: dict[str, Any] = {
            "time": time.time_ns() // 1000,
            "agent": self.history.agent,
            "branch": self.name,
            **fields,
        }
        objects: list[Object] = []
        for name, value in (("metadata", metadata), ("events", events)):
            if value is not None:
                try:
                    written = TreeWriter(self.history.codec).write(value)
                except NotStorable as error:
                    raise NotStorable(error.reason, error.path.replace("value", name, 1)) from None
                objects += written.objects
                about[name] = written.root
        return Notes(about, objects)

    def _edited(self, edit: Edit, commit: Commit | None) -> Change:
        """What an edit makes of the value of a commit."""
        root = None if commit is None else commit.root
        edited = edit(root, self._recent.read)
        if not isinstance(edited, Edited):
            raise InvalidInput(
                f"an edit gives what put() or Map.edit() gave, not a {type(edited).__name__}"
            )
        return Change(edited.root, edited.objects, edited.needs)

    def _look(self) -> Head:
        store, gone = self.history.store, None
        while True:
            view = store.view(self.history.space, self._ref)
            target = next((ref.target for ref in view.refs if ref.name == self._ref), None)
            if target is None:
                return Head(None, view.epoch)
            try:
                return Head(self.history._commits.find(target), view.epoch)
            except NotFound:
                if target == gone:
                    raise
                gone = target  # Moved away from and collected since; or lost.

    def _moved_from(self, commit: Commit | None) -> bool:
        """Whether the branch is elsewhere by now: then what it left may be collected."""
        return _id(self._look().commit) != _id(commit)

    def _operation(self, action: str) -> dict[str, str]:
        return {"action": action, "branch": self.name}

    def _expect_seen(self, error: MissingObjects) -> None:
        if self._seen is not None and not {self._seen.id, self._seen.root}.isdisjoint(error.ids):
            raise Conflict(
                f"branch {self.name!r} of {self.history.space!r} was moved back, and what this "
                "handle had seen was collected. Read the branch, then commit again."
            ) from error

    def _made(self, write_id: str, among: int | None = None) -> Operation | None:
        """The earlier write to this branch with an id, among so many of the latest."""
        for operation in islice(self.history.newest_operations(), among):
            if operation.write_id == write_id:
                names = [move.name for move in operation.moves if move.target is not None]
                return operation if names == [self._ref] else None
        return None

    def _repeated(self, write_id: str, root: ObjectId) -> tuple[Commit, Commit]:
        """What an earlier call with this write id made of the same value."""
        made = self._made(write_id)
        if made is not None:
            commit, ours = self._target(made), self._own(made)
            if ours.root == root:
                self._head = Head(self._look().commit, None)
                return commit, ours
        raise self._reused(write_id)

    def _updated(self, edit: Edit, write_id: str) -> Commit:
        """What an earlier call with this write id made by the same edit."""
        made = self._made(write_id)
        if made is None or made.metadata.get("action") != "update":
            raise self._reused(write_id)
        commit = self._target(made)
        parent = self.history._commits.find(commit.parents[0]) if commit.parents else None
        try:
            same = self._edited(edit, parent).root == commit.root
        except RopewalkError:
            same = False  # It could not have been made of that value.
        if not same:
            raise self._reused(write_id)
        self._head = Head(self._look().commit, None)
        return commit

    def _target(self, operation: Operation) -> Commit:
        return self.history._commits.find(operation.moves[0].target or b"")

    def _reused(self, write_id: str) -> WriteIdReused:
        return WriteIdReused(
            f"write id {write_id!r} stands for another write in {self.history.space!r}. Take a "
            "new write id for a new write."
        )

    # The asynchronous face.

    arefresh = twin(refresh)
    areset = twin(reset)
    aread = twin(read)
    acommit = twin(commit)
    aupdate = twin(update)
    apublish = twin(publish)


class Notes(NamedTuple):
    """What is said about a step: the fields of its commit, and the objects they point to."""

    fields: Mapping[str, Any]
    objects: Sequence[Object] = ()

    def merged(self) -> Notes:
        """The same notes, marked as those of a merged step."""
        extension = {**self.fields.get("extension", {}), MERGED: True}
        return Notes({**self.fields, "extension": extension}, self.objects)

    @property
    def roots(self) -> list[ObjectId]:
        """The roots of the further values."""
        found = (self.fields.get("metadata"), self.fields.get("events"))
        return [root for root in found if root is not None]


def _id(commit: Commit | None) -> ObjectId | None:
    return None if commit is None else commit.id
