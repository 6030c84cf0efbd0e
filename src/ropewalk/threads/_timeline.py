"""The timeline of a thread: to look at, go back in, branch, merge and compare."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn

from ropewalk.errors import InvalidInput
from ropewalk.history.merging import reading_too
from ropewalk.threads._contents import IDS, MARKS, Contents, Marks
from ropewalk.timeline import Checkpoint, Timeline
from ropewalk.tree import ABSENT, Edited, Mergers, ObjectId, Reader
from ropewalk.tree.map import CachedMap, CacheEntry, MapWriter


class ThreadTimeline(Timeline):
    """A timeline whose steps are put by a `ThreadCheckpointer`.

    Where the changes of two sides become one, the bookkeeping of neither fits what comes
    out, so it is made anew.
    """

    def checkpoint(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: what it would store is no conversation."""
        raise _refusal(self.name)

    def safe_execute(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: what it would store is no conversation."""
        raise _refusal(self.name)

    def merge(
        self,
        source_branch: str,
        strategy: str = "combine",
        *,
        mergers: Mergers | None = None,
        description: str = "",
    ) -> Checkpoint:
        """Bring the changes of a branch into the current one; see `Timeline.merge`.

        Messages stand at positions. If both branches got new ones, these are other
        messages at the same positions, and that is a `MergeConflict`.
        """
        return super().merge(
            source_branch, strategy, mergers=_beside(mergers), description=description
        )

    def _apply(
        self, description: str, base: ObjectId, theirs: ObjectId, mergers: Mergers | None
    ) -> Checkpoint:
        return super()._apply(description, base, theirs, _beside(mergers))

    def _settled(self, edited: Edited, read: Reader) -> Edited:
        both = reading_too(read, edited.objects)
        codec = self._history.codec
        contents = Contents.at(edited.root, both, codec)
        marks = Marks(saved=os.urandom(8), past=contents.next)
        shelf = CachedMap()
        for name, value in ((IDS, ABSENT), (MARKS, marks.to_stored())):
            part = contents.part(name)
            if part is not None:
                shelf.entries[codec.encode(name)] = CacheEntry(name, value, part)
        if not shelf.entries:
            return edited
        made = MapWriter(codec, both).write(edited.root, shelf).edited
        return Edited(made.root, [*edited.objects, *made.objects], _needs(edited, made))


def _needs(edited: Edited, made: Edited) -> list[ObjectId]:
    there = {one.id for one in edited.objects}
    return [*edited.needs, *(id for id in made.needs if id not in there)]


def _beside(mergers: Mergers | None) -> Mergers:
    """The mergers of a caller, and those of the bookkeeping."""
    if mergers is not None and not isinstance(mergers, Mapping):
        return mergers  # To be refused by whoever reads them.
    return {**(mergers or {}), (MARKS,): _further, (IDS,): "ours"}


def _further(base: Any, ours: Any, theirs: Any) -> Any:
    """Marks of which no position is given twice."""
    if not (isinstance(ours, Mapping) and isinstance(theirs, Mapping)):
        return theirs if ours is ABSENT else ours
    return {**ours, "past": max(ours["past"], theirs["past"])}


def _refusal(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name!r:.80} is a thread: its steps are put with put, put_state and put_messages "
        "of a ThreadCheckpointer"
    )
