"""One thread in a store: where it is now, and how it is changed.

Every change is an edit of the newest contents, made again if somebody else was faster.
So positions are given in the order of the commits, which all readers see alike, and no
two changes are merged.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from ropewalk.history import MAIN, Commit, History, StepFields
from ropewalk.history.object_cache import SharedObjects
from ropewalk.store.forking import freed_after_fork
from ropewalk.threads._changes import Changes
from ropewalk.threads._contents import Contents
from ropewalk.threads._heads import Head, look
from ropewalk.threads._writer import BranchGone, Writer
from ropewalk.tree import Reader


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
                handle = self._handle()
                try:
                    commit = handle.change(changes, metadata, self._head.id, fields)
                except BranchGone:
                    del self._handles[handle.branch]
                    continue
                if commit is not None:
                    self._head = Head(handle.branch, commit)
                return commit

    def _handle(self) -> Writer:
        """What writes to the current branch."""
        if self._watched or self.branch not in self._handles:
            self.look()
        found = self._handles.get(self.branch)
        if found is None:
            begun = self._head.commit is not None
            found = Writer(self.history, self.branch, self._objects, begun)
            self._handles[self.branch] = found
        return found

    def watch(self) -> None:
        """Look before every change from now on: somebody here may switch branches."""
        self._watched = True
