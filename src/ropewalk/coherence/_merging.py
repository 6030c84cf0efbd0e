"""Merging contents: what two agents made of one version, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ropewalk.codec import Codec
from ropewalk.coherence._content import Content
from ropewalk.errors import MergeConflict
from ropewalk.history.merging import Merging, merge_late
from ropewalk.tree import (
    ABSENT,
    Commit,
    Mergers,
    Object,
    ObjectId,
    PathConflict,
    TreeWriter,
    load,
)

_TRIES: Final = 3
"""Taking one side at some places may bring up conflicts at others."""


def merge_contents(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> Content:
    """What both made of a base; raises `MergeConflict`.

    A place that both sides changed needs a merger, also where they agree.
    """
    objects: dict[ObjectId, Object] = {}

    def root(content: Content) -> ObjectId:
        written = TreeWriter(codec).write(content.fresh())
        objects.update((one.id, one) for one in written.objects)
        return written.root

    def read(ids: Sequence[ObjectId]) -> list[Object]:
        return [objects[id] for id in ids]

    def find(id: ObjectId) -> Commit:
        raise AssertionError("values have no ancestors")

    how = Merging(find, read, mergers, codec, exclusive=True)
    merged = merge_late(root(base), root(ours), root(theirs), how)
    objects.update((one.id, one) for one in merged.objects)
    return Content.of(load(merged.root, read, codec), codec)


def merge_put(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> tuple[Content, bool]:
    """What was put without a read, merged: ours where both changed the same place.

    And whether theirs lost anything by it. What says again what was put last changes nothing
    that could be merged, so it is all ours.
    """
    if ours.encoded == base.encoded:
        return ours, ours.encoded != theirs.encoded
    return merge_over(base, ours, theirs, mergers, codec)


def merge_over(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> tuple[Content, bool]:
    """The same, also where nothing of ours is new."""
    rules, is_lost = dict(mergers or {}), False
    for _ in range(_TRIES):
        try:
            return merge_contents(base, ours, theirs, rules, codec), is_lost
        except MergeConflict as conflict:
            for one in conflict.conflicts:
                rules[one.path] = "ours"
                is_lost = is_lost or _differs(one, codec)
    return ours, True


def _differs(conflict: PathConflict, codec: Codec) -> bool:
    ours, theirs = conflict.ours, conflict.theirs
    if ours is ABSENT or theirs is ABSENT:
        return ours is not theirs
    return codec.encode(ours) != codec.encode(theirs)
