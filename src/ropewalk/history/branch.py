"""A handle on a branch, for one of several concurrent writers.

A handle remembers the version that its caller last saw: the merge base. If the branch has
moved since, the caller's value becomes a commit of its own, with the merge base as parent,
and a second commit merges it into the head. So no acknowledged write is lost, and no change
is reverted by a writer that did not know of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    MissingObjects,
    NotFound,
    NotStorable,
    RefMoved,
    RopewalkError,
    WriteIdReused,
)
from ropewalk.history.commits import (
    BRANCH,
    RecentObjects,
    StepFields,
    check_fields,
    commit_loop,
    new_write_id,
)
from ropewalk.history.merge import (
    Merging,
    check_mergers,
    merge_edited,
    merge_late,
    reading_too,
    removed,
)
from ropewalk.store import Move, Operation, ref_name
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import REMEMBERED_WRITES
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
from ropewalk.tree.objects import MERGED

if TYPE_CHECKING:
    from ropewalk.history.history import History


Edit: TypeAlias = Callable[[ObjectId | None, Reader], Edited]
"""Edits the value with a root; the root is None before the first commit."""

_NEWEST: Final = b""
"""The base of an edit that applies to any head."""


class Head(NamedTuple):
    """The head of a branch when it was last read."""

    commit: Commit | None
    epoch: int | None
    """The epoch of the space then; no object that the head reaches goes while it lasts."""


class Aside(NamedTuple):
    """A commit that is not on the branch, kept alive by a ref of its own."""

    ref: str
    commit: Commit


class Branch:
    """One branch of a history, opened for writing.

    Each commit takes the whole value; only what changed is stored. A handle belongs to one
    writer, because it remembers what that one last saw: every other writer opens its own,
    also in the same thread. Has asynchronous twins: `acommit`, `aread`, `aupdate`,
    `arefresh`.
    """

    def __init__(self, history: History, name: str) -> None:
        self.history, self.name = history, name
        self._ref = ref_name(BRANCH, name)
        self._recent = RecentObjects(history.read)
        self._writer = TreeWriter(history.codec, self._read_node)
        self._lock = freed_after_fork(threading.RLock())
        self._head = self._look()
        self._seen = self._head.commit
        self._unsure: str | None = None
        """The write id of a commit whose outcome is unknown."""
        self._epoch: int | None = None
        """The epoch at which every node that the writer knows was in the store; None if unsure."""

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
        """Read the head again and return it; the merge base stays the same."""
        with self._lock:
            self._head = self._look()
            return self._head.commit

    def read(self) -> Any:
        """Read the newest value and make it the merge base of the next commit.

        The caller may change it in place and commit it. Raises `NotFound` if there is none.
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

        For a caller whose next value replaces that of the head, whatever it is. Raises
        `Conflict` if the branch was removed: the next commit would create it again.
        """
        with self._lock:
            newest = self.refresh()
            if newest is None and self._seen is not None:
                raise removed(self.name, self.history.space)
            self._seen, self._unsure = newest, None
            return newest

    # Writing.

    def commit(  # noqa: C901 - one story, with what it hands to the loop
        self,
        value: Any,
        *,
        metadata: Any = None,
        events: Any = None,
        mergers: Mergers | None = None,
        write_id: str | None = None,
        expect: Commit | ObjectId | str | None = None,
        **fields: Unpack[StepFields],
    ) -> Commit:
        """Commit a value on top of the head, merged with concurrent commits if there are any.

        `metadata` and `events` are further values about the step; `fields` are those of
        `Commit` by name: `description`, `logic_step`, `status`, `error`, `agent`,
        `extension`, `time`. Returns the new head. If that is `merged`, its value contains the
        changes of others too, and its second parent has the value as it was passed in; call
        `read` for the merged value. Both commits carry the same metadata and fields.

        With `expect`, a commit or its id, nothing is merged: the head must be that commit, or
        `RefMoved` is raised.

        Raises `NotStorable` for a value that cannot be stored, and `MergeConflict` if others
        changed the same paths and no merger resolves it; nothing is stored then. `write_id`
        is an idempotency key: a commit that is sent twice is made once.
        """
        with self._lock:
            if mergers is not None:
                check_mergers(mergers, self.history.codec)
            expected = None if expect is None else self._id_of(expect)
            notes = self._notes(metadata, events, fields)
            if self._unsure is not None:
                self._settle()
            id = new_write_id() if write_id is None else write_id
            written: Written | None = None

            def attempt() -> tuple[Commit, Commit]:
                nonlocal written
                if written is None:
                    written = self._writer.write(value)
                    self._unsure = id
                head = self._head.commit
                if expected is not None:
                    head = self._expect(expected)
                elif head is not self._seen and _id(head) != _id(self._seen):
                    return self._merge(written, notes, mergers, id)
                try:
                    made = self._send(written, head, notes, id)
                except RefMoved as moved:
                    if expected is None:
                        raise
                    raise _unexpected(moved.name, expected, moved.actual) from moved
                return made, made

            def resend(error: MissingObjects) -> None:
                nonlocal written
                if expected is None:
                    self._expect_seen(error)
                self._writer.forget()
                written, self._head, self._epoch = None, self._look(), None

            def earlier(error: Conflict | WriteIdReused) -> tuple[Commit, Commit] | None:
                asked = write_id is not None or isinstance(error, WriteIdReused)
                if written is None or not asked:
                    return None
                return self._repeated(id, written.root, error)

            look = self._look_again if expected is None else None
            commit, ours = commit_loop(attempt, look=look, resend=resend, earlier=earlier)
            assert written is not None
            self._accept(written)
            self._seen, self._unsure = ours, None
            return commit

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
        """Edit the newest value without loading it whole; retried until the edit lands.

        `edit` is called with the root of the newest value (None before the first commit) and
        a reader, and returns the result of `put`, `remove`, `insert` or `Map.edit`. It is
        called again if the branch moves, so it must have no side effects. `write_id` is an
        idempotency key: an edit that is sent twice is made once. With `look=False` the first
        attempt is made on the last known head, which saves a read.
        """
        with self._lock:
            notes = self._notes(metadata, events, fields)
            if look:
                self._head = self._look()
            return self._update(edit, notes, write_id)

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
        after: Aside | None = None,
        **fields: Unpack[StepFields],
    ) -> Commit:
        """Commit an edit that was made from the value with root `base`.

        If the newest value is still that one (None before the first commit), the edited value
        replaces it. Otherwise both are merged, as by `commit`, into one commit on top of the
        head. Raises `MergeConflict` with nothing changed; if `exclusive`, also where others
        made the same change and no merger resolves it. `after` is a commit that `keep_aside`
        returned: it becomes a second parent, and its ref is deleted.
        """
        with self._lock:
            if mergers is not None:
                check_mergers(mergers, self.history.codec)
            notes = self._notes(metadata, events, fields)

            def edit(root: ObjectId | None, read: Reader) -> Edited:
                if root == base:
                    return edited
                if root is None:
                    raise removed(self.name, self.history.space)
                find, codec = self.history.commits.find, self.history.codec
                how = Merging(find, read, mergers, codec, exclusive)
                return merge_edited(base, edited, root, how)

            return self._update(edit, notes, write_id, base=base, after=after)

    def keep_aside(
        self,
        ref: str,
        edited: Edited,
        parent: Commit | None,
        last: Aside | None = None,
        **fields: Unpack[StepFields],
    ) -> Aside:
        """Store an edit as a commit beside the branch, under the ref `ref`.

        Its parent is `last`, the result of an earlier call, whose ref it then moves; else
        `parent`. No other writer may move that ref. Raises `MissingObjects` if something
        that it needs was garbage collected.
        """
        with self._lock:
            notes = self._notes(None, None, fields)
            before = parent if last is None else last.commit
            commit, made = self._make(edited.root, () if before is None else (before,), notes)
            self.history.commits.land(
                [*edited.objects, made],
                [*edited.needs, edited.root, *commit.parents],
                [Move(ref, None if last is None else last.commit.id, commit.id)],
                {"action": "keep", "branch": self.name},
                step=commit,
            )
            self.history.commits.remember([commit])
            return Aside(ref, commit)

    def find_write(self, write_id: str, among: int | None = REMEMBERED_WRITES) -> Commit | None:
        """The commit that an earlier write with this id made, if it is among the latest."""
        made = self._made(write_id, among)
        return None if made is None else self._target(made)

    # Inside.

    def _settle(self) -> None:
        """Find out whether a commit of unknown outcome landed.

        If it did, its value becomes the merge base; otherwise the caller's next commit would
        conflict with the caller's own last one.
        """
        assert self._unsure is not None
        made = self._made(self._unsure, REMEMBERED_WRITES)
        if made is not None:
            self._seen = self._own(made)
            self._head = self._look()
        self._unsure = None

    def _id_of(self, at: Commit | ObjectId | str) -> ObjectId:
        """The id of a commit; an id is returned as it is, without a read."""
        if isinstance(at, bytes):
            return at
        return self.history.resolve(at).id

    def _expect(self, id: ObjectId) -> Commit:
        """The head, which must be this commit; raises `RefMoved`."""
        head = self._head.commit
        if head is None or head.id != id:
            self._head = self._look()
            head = self._head.commit
        if head is None or head.id != id:
            raise _unexpected(self._ref, id, _id(head))
        return head

    def _own(self, made: Operation) -> Commit:
        """The commit with the caller's value: of a merge, its last parent."""
        commit = self._target(made)
        if made.metadata.get("action") == "merge":
            return self.history.commits.find(commit.parents[-1])
        return commit

    def _accept(self, written: Written) -> None:
        """Note that a written value is in the store, so that the next write is diffed with it."""
        went_on = self._writer.root is not None
        self._writer.accept(written)
        if len(written.objects) > 1:  # Nobody reads a small value piece by piece.
            self._recent.remember(written.objects)
        if went_on and self._epoch != self._head.epoch:
            # A collection ran: nodes that only older versions reach may be gone.
            self._writer.trim()
        self._epoch = self._head.epoch

    def _update(
        self,
        edit: Edit,
        notes: Notes,
        write_id: str | None,
        *,
        base: ObjectId | None = _NEWEST,
        after: Aside | None = None,
    ) -> Commit:
        """Apply an edit to the last known head, and retry until it lands.

        With a `base` the edit was made from the value with that root; on any other head it is
        a merge.
        """
        id = new_write_id() if write_id is None else write_id

        def attempt() -> Commit:
            nonlocal after
            head = self._head.commit
            root = None if head is None else head.root
            edited, said = self._edited(edit, root), notes
            if base not in (_NEWEST, root):
                said = notes.merged()
            try:
                made = self._send(edited, head, said, id, "update", after)
            except RefMoved as error:
                if after is not None and error.name == after.ref:
                    after = None  # An undo removed it, so it is no parent.
                raise
            self._recent.remember(edited.objects)
            return made

        def resend(error: MissingObjects) -> None:
            self._recent = RecentObjects(self.history.read)
            if not self._look_again():
                raise error

        def earlier(error: Conflict | WriteIdReused) -> Commit | None:
            if write_id is None and not isinstance(error, WriteIdReused):
                return None
            return self._updated(edit, id, error)

        return commit_loop(attempt, look=self._look_again, resend=resend, earlier=earlier)

    def _send(
        self,
        change: Written | Edited,
        head: Commit | None,
        notes: Notes,
        write_id: str,
        action: str = "commit",
        after: Aside | None = None,
    ) -> Commit:
        """Send one commit on top of the head."""
        moves = []
        if head is None:
            # A first commit has no parents, so a commit kept aside cannot become one.
            commit, made = self._make(change.root, (), notes)
        elif after is None:
            commit, made = self._make(change.root, (head,), notes)
        else:
            commit, made = self._make(change.root, (head, after.commit), notes)
            moves = [Move(after.ref, after.commit.id, None)]
        operation = self.history.commits.land(
            [*change.objects, *notes.objects, made],
            [*change.needs, change.root, *commit.parents, *notes.roots],
            [Move(self._ref, None if head is None else head.id, commit.id), *moves],
            {"action": action, "branch": self.name},
            write_id=write_id,
            step=commit,
        )
        return self._landed(commit, operation)

    def _merge(
        self, change: Written, notes: Notes, mergers: Mergers | None, write_id: str
    ) -> tuple[Commit, Commit]:
        """Send two commits: the caller's value on the merge base, and the merge into the head."""
        seen, theirs = self._seen, self._head.commit
        if theirs is None:
            raise removed(self.name, self.history.space)
        ours, made = self._make(change.root, () if seen is None else (seen,), notes)
        read = reading_too(self.history.read, change.objects)
        merged = merge_late(
            None if seen is None else seen.root,
            change.root,
            theirs.root,
            Merging(self.history.commits.find, read, mergers, self.history.codec),
        )
        # Two writers may make the very same commit: equal value, fields and time.
        parents = (theirs,) if ours.id == theirs.id else (theirs, ours)
        commit, made_too = self._make(merged.root, parents, notes.merged())
        operation = self.history.commits.land(
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
            {"action": "merge", "branch": self.name},
            write_id=write_id,
            step=commit,
        )
        self.history.commits.remember([ours])
        return self._landed(commit, operation), ours

    def _landed(self, commit: Commit, operation: Operation) -> Commit:
        assert operation.moves[0].target == commit.id, "a store took a write for another"
        self.history.commits.remember((commit,))
        self._head = Head(commit, operation.epoch)
        return commit

    def _make(
        self, root: ObjectId, parents: tuple[Commit, ...], notes: Notes
    ) -> tuple[Commit, Object]:
        if not parents:
            return make_commit(root, **notes.fields)
        first, last = parents[0], parents[-1]
        ids = (first.id,) if first is last else (first.id, last.id)
        generation = max(first.generation, last.generation)
        return make_commit(root, ids, generation=1 + generation, **notes.fields)

    def _notes(self, metadata: Any, events: Any, fields: StepFields) -> Notes:
        """The fields of a commit, with metadata and events written as values."""
        check_fields(fields)
        about: dict[str, Any] = {
            "time": time.time_ns() // 1000,
            "agent": self.history.agent,
            "branch": self.name,
            **fields,
        }
        if metadata is None and events is None:
            return Notes(about)
        objects: list[Object] = []
        roots: list[ObjectId] = []
        for name, value in (("metadata", metadata), ("events", events)):
            if value is None:
                continue
            try:
                written = TreeWriter(self.history.codec).write(value)
            except NotStorable as error:
                raise NotStorable(error.reason, error.path.replace("value", name, 1)) from None
            objects += written.objects
            roots.append(written.root)
            about[name] = written.root
        return Notes(about, objects, roots)

    def _edited(self, edit: Edit, root: ObjectId | None) -> Edited:
        """What an edit makes of a value."""
        edited = edit(root, self._recent.read)
        if not isinstance(edited, Edited):
            raise InvalidInput(
                f"an edit gives what put() or Map.edit() gave, not a {type(edited).__name__}"
            )
        return edited

    def _read_node(self, ids: Sequence[ObjectId]) -> Sequence[Object]:
        return self._recent.read(ids)

    def _look(self) -> Head:
        store, gone = self.history.store, None
        while True:
            view = store.view(self.history.space, self._ref)
            target = next((ref.target for ref in view.refs if ref.name == self._ref), None)
            if target is None:
                return Head(None, view.epoch)
            try:
                return Head(self.history.commits.find(target), view.epoch)
            except NotFound:
                if target == gone:
                    raise
                gone = target  # The ref moved and the commit was collected; or it is lost.

    def _look_again(self) -> bool:
        """Read the head again; whether it moved."""
        known, self._head = self._head, self._look()
        return _id(known.commit) != _id(self._head.commit)

    def _moved_from(self, commit: Commit | None) -> bool:
        """Whether the head moved, so that the old one may have been garbage collected."""
        return _id(self._look().commit) != _id(commit)

    def _expect_seen(self, error: MissingObjects) -> None:
        if self._seen is not None and not {self._seen.id, self._seen.root}.isdisjoint(error.ids):
            raise Conflict(
                f"branch {self.name!r} of {self.history.space!r} was moved back, and what this "
                "handle had seen was collected. Read the branch, then commit again."
            ) from error

    # Earlier writes with the same id.

    def _made(self, write_id: str, among: int | None = None) -> Operation | None:
        """The latest write to this branch with a write id, within the last `among` operations."""
        for operation in islice(self.history.newest_operations(), among):
            if operation.write_id == write_id:
                names = [move.name for move in operation.moves if move.target is not None]
                return operation if names == [self._ref] else None
        return None

    def _made_before(self, write_id: str, error: Conflict | WriteIdReused) -> Operation | None:
        """The same; after a conflict only as far back as the store remembers write ids."""
        reused = isinstance(error, WriteIdReused)
        made = self._made(write_id, None if reused else REMEMBERED_WRITES)
        if made is None and reused:
            raise self._reused(write_id)
        return made

    def _repeated(
        self, write_id: str, root: ObjectId, error: Conflict | WriteIdReused
    ) -> tuple[Commit, Commit] | None:
        """The result of an earlier `commit` with this write id and the same value."""
        made = self._made_before(write_id, error)
        if made is None:
            return None
        commit, ours = self._target(made), self._own(made)
        if ours.root != root:
            raise self._reused(write_id)
        self._head = Head(self._look().commit, None)
        return commit, ours

    def _updated(self, edit: Edit, write_id: str, error: Conflict | WriteIdReused) -> Commit | None:
        """The result of an earlier `update` with this write id and the same edit."""
        made = self._made_before(write_id, error)
        if made is None:
            return None
        commit = self._target(made)
        parent = self.history.commits.find(commit.parents[0]) if commit.parents else None
        try:
            edited = self._edited(edit, None if parent is None else parent.root)
            same = made.metadata.get("action") == "update" and edited.root == commit.root
        except RopewalkError:
            same = False  # The edit does not apply to that value.
        if not same:
            raise self._reused(write_id)
        self._head = Head(self._look().commit, None)
        return commit

    def _target(self, operation: Operation) -> Commit:
        return self.history.commits.find(operation.moves[0].target or b"")

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
    akeep_aside = twin(keep_aside)
    afind_write = twin(find_write)


class Notes(NamedTuple):
    """The fields of a commit, and the objects of the values that they point to."""

    fields: Mapping[str, Any]
    objects: Sequence[Object] = ()
    roots: Sequence[ObjectId] = ()

    def merged(self) -> Notes:
        """The same notes, marked as those of a merged step."""
        extension = {**self.fields.get("extension", {}), MERGED: True}
        return self._replace(fields={**self.fields, "extension": extension})


def _unexpected(ref: str, expected: ObjectId, actual: ObjectId | None) -> RefMoved:
    advice = "Nothing was stored. Read what the branch holds now, and decide again."
    return RefMoved(ref, expected, actual, advice)


def _id(commit: Commit | None) -> ObjectId | None:
    return None if commit is None else commit.id
