"""Putting a wish on what is newest now: as it is, merged, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ropewalk.coherence._merging import merge_contents, merge_over, merge_put
from ropewalk.coherence._wishes import Unwritten, Wanted, is_there, number_of
from ropewalk.errors import MergeConflict, MissingObjects, NotFound, VersionConflict

if TYPE_CHECKING:
    from ropewalk.coherence._client import Client
    from ropewalk.coherence._content import Content
    from ropewalk.coherence._protocol import Version
    from ropewalk.coherence._reading import Reading
    from ropewalk.tree import Mergers, PathConflict


class Rebasing:
    """What becomes of the wishes of one client when others were faster."""

    def __init__(self, client: Client, reading: Reading, mergers: Mergers | None) -> None:
        self._name, self._authority, self._codec = client.name, client.authority, client.codec
        self._reading, self._mergers = reading, mergers

    def settled(self, artifact: str, wanted: Wanted) -> Wanted:
        """A wish that was made from what was not written when it was read."""
        base = wanted.expected
        if not isinstance(base, Unwritten):
            return wanted
        if base.landed is not None:
            return replace(wanted, base=base.landed, expected=base.landed)
        return self.rebased(artifact, wanted, self._authority.newest(artifact))

    def rebased(self, artifact: str, wanted: Wanted, newest: Version | None) -> Wanted:
        """The same wish, on what is newest now; raises `VersionConflict`."""
        if newest is wanted.expected or _same(newest, wanted.expected):
            return replace(wanted, expected=newest)
        if wanted.on_conflict == "overwrite":
            # A deletion is made from whatever there is.
            if wanted.content is None:
                return replace(wanted, base=newest, expected=newest)
            return replace(wanted, expected=newest, replaced=is_there(newest))
        if wanted.on_conflict == "replace":
            return self._over(artifact, wanted, newest)
        if wanted.on_conflict == "merge":
            merged = self._merged(artifact, wanted, newest)
            if merged is not None:
                return Wanted(merged, newest, newest, wanted.on_conflict, merged=True)
        raise self._conflict(artifact, wanted, newest)

    def differs(
        self, artifact: str, expected: int, actual: int, conflicts: Sequence[PathConflict] = ()
    ) -> VersionConflict:
        """An artifact is not at the version that somebody expects."""
        return VersionConflict(
            (self._name,), artifact, expected, actual, conflicts, kind="artifact"
        )

    def _merged(self, artifact: str, wanted: Wanted, newest: Version | None) -> Content | None:
        sides = self._sides(artifact, wanted, newest)
        if sides is None:
            return None
        try:
            return merge_contents(*sides, self._mergers, self._codec)
        except MergeConflict as conflict:
            raise self._conflict(artifact, wanted, newest, conflict.conflicts) from conflict

    def _over(self, artifact: str, wanted: Wanted, newest: Version | None) -> Wanted:
        """A value put without a read: merged, and it wins where both changed the same place."""
        sides = self._sides(artifact, wanted, newest)
        if sides is None:
            return replace(wanted, base=newest, expected=newest, replaced=is_there(newest))
        # What was merged already has nothing new where others changed the same place again.
        merge = merge_over if wanted.merged else merge_put
        made, replaced = merge(*sides, self._mergers, self._codec)
        merged = wanted.merged or made.encoded != sides[1].encoded
        replaced = wanted.replaced or replaced
        return Wanted(made, newest, newest, "replace", merged=merged, replaced=replaced)

    def _sides(
        self, artifact: str, wanted: Wanted, newest: Version | None
    ) -> tuple[Content, Content, Content] | None:
        """Base, ours and theirs of the three-way merge; None if one of them is gone."""
        base, ours = wanted.base, wanted.content
        if base is None or base.deleted or newest is None or newest.deleted or ours is None:
            return None
        try:
            before = self._reading.content(artifact, base)
            return before, ours, self._reading.content(artifact, newest)
        except (MissingObjects, NotFound):
            return None  # Nobody knows any more what it was made from.

    def _conflict(
        self,
        artifact: str,
        wanted: Wanted,
        newest: Version | None,
        conflicts: Sequence[PathConflict] = (),
    ) -> VersionConflict:
        return self.differs(artifact, number_of(wanted.expected), number_of(newest), conflicts)


def _same(one: Version | None, other: Version | None) -> bool:
    return one is not None and other is not None and one.id == other.id
