"""Where a thread is: its branch, and the newest commit of that."""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.errors import NotFound
from ropewalk.history import MAIN, Commit, History
from ropewalk.store import ref_name
from ropewalk.timeline.branches import branch_in
from ropewalk.tree import ObjectId, Reader


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
