"""Writing a map with maps inside."""

from __future__ import annotations

from ropewalk.codec import Codec
from ropewalk.tree import ABSENT, ObjectId
from ropewalk.tree.map import CachedMap, CacheEntry, MapWriter
from tests.tree.support import Objects

CODEC = Codec()
INNER = CODEC.encode("inner")


def inner_shelf(**values: int) -> CachedMap:
    """A change of a map that stands in another."""
    slots = {CODEC.encode(name): CacheEntry(name, value) for name, value in values.items()}
    return CachedMap(inner={INNER: CachedMap(slots)})


def write(writer: MapWriter, objects: Objects, root: ObjectId | None, shelf: CachedMap) -> ObjectId:
    """Write a shelf, and take it for stored."""
    draft = writer.write(root, shelf)
    objects.update({made.id: made for made in draft.edited.objects})
    writer.accept(draft)
    return draft.edited.root


def test_an_inner_map_that_was_removed_is_empty_for_its_writer() -> None:
    objects = Objects()
    writer = MapWriter(CODEC, objects.read)
    root = write(writer, objects, None, inner_shelf(a=1, b=2))
    part = writer.open(root).view.locate(INNER)[1]
    assert part is not None
    assert writer.open(root, (INNER,)).view.total == 2

    root = write(writer, objects, root, CachedMap({INNER: CacheEntry("inner", ABSENT, part.body)}))

    assert writer.open(root, (INNER,)).view.total == 0
    root = write(writer, objects, root, inner_shelf(c=3))
    assert writer.open(root, (INNER,)).view.total == 1
    assert MapWriter(CODEC, objects.read).open(root, (INNER,)).view.total == 1
