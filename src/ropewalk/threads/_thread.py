"""One thread in a store: where it is now, and how it is changed.

Every change is an edit of the newest contents, made again if somebody else was faster.
So positions are given in the order of the commits, which all readers see alike, and no
two changes are merged.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Unpack

from ropewalk.errors import MessageNotFound, NotFound
from ropewalk.history import MAIN, Commit, History, StepFields
from ropewalk.history.object_cache import SharedObjects
from ropewalk.store import ref_name
from ropewalk.store.forking import freed_after_fork
from ropewalk.threads._changes import Changes, Known, Plan, Planner
from ropewalk.threads._contents import STATE_KEY, Contents
from ropewalk.timeline.branches import branch_in
from ropewalk.tree import ABSENT, Edited, ObjectId, Reader
from ropewalk.tree.map import CacheEntry, Draft, MapWriter


class Head(NamedTuple):
    """A branch of a thread as it was seen."""

    branch: str
    commit: Commit | None
    """None before the first."""

    @property
    def id(self) -> ObjectId | None:
        """What names the commit."""
        return None if self.commit is None else self.commit.id


def look(history: History, read: Reader, named: str | None) -> Head:
    """Where a thread is now: on a branch of a name, or on the current one.

    Raises `NotFound` for a name that no branch has.
    """
    gone: ObjectId | None = None
    while True:
        # All refs at one moment: a thread has few.
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
            gone = target  # Moved away from and collected since; or lost.


class Thread:
    """A thread, or one branch of it. Safe to share between threads of the program."""

    def __init__(self, history: History, objects: SharedObjects, branch: str | None) -> None:
        self.history = history
        self._objects = objects
        self._read: Reader = partial(objects.read_through, history.read)
        self._named = branch
        self._head = Head(branch or MAIN, None)
        """What was last seen."""
        self._contents = Contents.at(None, self._read, history.codec)
        self._writing = freed_after_fork(threading.RLock())
        self._writers: dict[str, Writer] = {}
        self._watched = False

    # Reading.

    def contents(self) -> Contents:
        """What the thread holds now."""
        return self.contents_at(self.look())

    def contents_at(self, commit: Commit | None) -> Contents:
        """What the thread held at a commit; nothing before the first."""
        root = None if commit is None else commit.root
        known = self._contents
        if known.root != root:
            known = Contents.at(root, self._read, self.history.codec)
            self._contents = known
        return known

    def look(self) -> Commit | None:
        """The newest commit; None before the first."""
        self._head = look(self.history, self._read, self._named)
        return self._head.commit

    @property
    def branch(self) -> str:
        """The branch that is read and written."""
        return self._head.branch

    # Writing.

    def change(
        self, changes: Changes, metadata: Mapping[str, Any] | None, **fields: Unpack[StepFields]
    ) -> Commit | None:
        """Make changes of the newest contents; the commit, or None if nothing changed."""
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
        """What writes to the current branch."""
        if self._watched or self.branch not in self._writers:
            self.look()
        found = self._writers.get(self.branch)
        if found is None:
            begun = self._head.commit is not None
            found = Writer(self.history, self.branch, self._objects, begun)
            self._writers[self.branch] = found
        return found

    def watch(self) -> None:
        """Look before every change from now on: somebody here may switch branches."""
        self._watched = True


class _Unchanged(Exception):
    """Nothing would change: raised out of an edit, so that no commit is made."""


class _BranchGone(Exception):
    """The branch was deleted; an edit must not begin it anew."""


class Writer:
    """What is known of a branch by whoever writes to it. Not for several threads at once."""

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
        changes: Changes,
        metadata: Mapping[str, Any] | None,
        newest: ObjectId | None,
        fields: StepFields,
    ) -> Commit | None:
        """Make changes; the commit, or None if there is nothing to change.

        `newest` is the newest commit that anybody here has seen.
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
                # That was so where the branch was last seen: is it so at its newest?
                if look and isinstance(error, _Unchanged):
                    return None
                if look:
                    raise
                look = True
            else:
                self._accept(commit)
                return commit

    def _edit(self, root: ObjectId | None, changes: Changes) -> Edited:
        if root is None and self._begun:
            raise _BranchGone
        self._begun = self._begun or root is not None
        self._forget_if_others_wrote()
        contents = Contents(root, self._maps, self._read, self._codec)
        if self._known is not None:
            self._known.tell(contents)
        self._plan = plan = Planner(contents, self._codec, self._state).plan(changes)
        if plan.is_empty:
            raise _Unchanged
        # What was handed over may be changed by other threads meanwhile.
        self._draft = self._maps.write(root, plan.shelf)
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
        put = plan.shelf.entries.get(STATE_KEY)  # Before a removed one is dropped.
        self._objects.remember(draft.edited.objects)
        self._maps.accept(draft)
        self._made, self._known, self._begun = commit.id, plan.known, True
        if put is not None:
            # The caller's own object is not held on to.
            self._state = None if put.value is ABSENT else put
            put.value = put.given = ABSENT
        self._draft = self._plan = None
