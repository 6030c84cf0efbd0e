"""One thread in a store: where it is now, and how it is changed.

Every change is an edit of the newest contents, made again if somebody else was faster.
So positions are given in the order of the commits, which all readers see alike, and no
two changes are merged.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Unpack

from holdfast.errors import NotFound
from holdfast.history import MAIN, Commit, History, StepFields
from holdfast.history._recent import SharedObjects
from holdfast.store import ref_name
from holdfast.threads._changes import Changes
from holdfast.threads._contents import Contents
from holdfast.threads._writer import Writer
from holdfast.timeline._current import living_branch
from holdfast.tree import ObjectId


class Thread:
    """A thread, or one branch of it. Safe to share between threads of the program."""

    def __init__(self, history: History, objects: SharedObjects, branch: str | None) -> None:
        self.history = history
        self._objects = objects
        self._named = branch
        self._current: str | None = None
        self._sequence = -1
        """The last operation of the space when the current branch was looked up."""
        self._newest: ObjectId | None = None
        """The newest commit that was seen."""
        self._contents = Contents.at(None, objects.read, history.codec)
        self._writing = threading.RLock()
        self._handles: dict[str, Writer] = {}
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
            known = Contents.at(root, self._objects.read, self.history.codec)
            self._contents = known
        return known

    def look(self) -> Commit | None:
        """The newest commit; None before the first, and of a branch that was never begun."""
        gone: ObjectId | None = None
        while True:
            target = self._look()
            if target is None:
                return None
            try:
                return self.history._commits.find(target)
            except NotFound:
                if target == gone:
                    raise
                gone = target  # Moved away from and collected since; or lost.

    def _look(self) -> ObjectId | None:
        store, space = self.history.store, self.history.space
        while True:
            ref = ref_name("branch", self.branch)
            view = store.view(space, ref)
            if self._named is None and view.sequence != self._sequence:
                # Somebody wrote: they may have switched to another branch.
                before, self._current = self.branch, living_branch(store, space) or MAIN
                self._sequence = view.sequence
                if before != self.branch:
                    continue
            targets = [one.target for one in view.refs if one.name == ref]
            self._newest = targets[0] if targets else None
            if self._named is not None and not targets:
                raise NotFound(
                    f"thread {self.history.agent!r} has no branch {self._named!r:.80}. Make it "
                    "with timeline(config).branch(name)."
                )
            return self._newest

    @property
    def branch(self) -> str:
        """The branch that is read and written."""
        return self._named or self._current or MAIN

    # Writing.

    def change(
        self, changes: Changes, metadata: Mapping[str, Any] | None, **fields: Unpack[StepFields]
    ) -> Commit | None:
        """Make changes of the newest contents; the commit, or None if nothing changed."""
        with self._writing:
            if self._watched or self.branch not in self._handles:
                self.look()
            handle = self._handles.get(self.branch)
            if handle is None:
                handle = self._handles[self.branch] = Writer(
                    self.history, self.branch, self._objects
                )
            commit = handle.change(changes, metadata, self._newest, fields)
            if commit is not None:
                self._newest = commit.id
            return commit

    def watch(self) -> None:
        """Look before every change from now on: somebody here may switch branches."""
        self._watched = True
