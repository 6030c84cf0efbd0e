"""Merging contents: what two agents made of one version, as one."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.codec import Codec
from ropewalk.coherence._content import Content
from ropewalk.history._merging import Merging, merge_late
from ropewalk.tree import Commit, Mergers, Object, ObjectId, TreeWriter, load


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
