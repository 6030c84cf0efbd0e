"""Writing to one branch of a thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ropewalk.errors import MessageNotFound
from ropewalk.history import Commit, History, StepFields
from ropewalk.history.object_cache import SharedObjects
from ropewalk.threads._changes import Changes, Known, Plan, Planner
from ropewalk.threads._contents import STATE_KEY, Contents
from ropewalk.tree import ABSENT, Edited, ObjectId, Reader
from ropewalk.tree.map_writer import Draft, MapWriter, Slot


class _Unchanged(Exception):
    """Nothing would change: raised out of an edit, so that no commit is made."""


class BranchGone(Exception):
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
        self._state: Slot | None = None
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
            raise BranchGone
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
        put = plan.shelf.slots.get(STATE_KEY)  # Before a removed one is dropped.
        self._objects.remember(draft.edited.objects)
        self._maps.accept(draft)
        self._made, self._known, self._begun = commit.id, plan.known, True
        if put is not None:
            # The caller's own object is not held on to.
            self._state = None if put.value is ABSENT else put
            put.value = put.given = ABSENT
        self._draft = self._plan = None
