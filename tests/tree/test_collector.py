"""Loading a large value, and the garbage collector of Python."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ropewalk.errors import FormatError
from ropewalk.tree import Kind, ObjectId, TreeWriter
from tests.tree.support import Objects

RECORDS = 30_000


@pytest.fixture
def objects() -> Iterator[Objects]:
    assert gc.isenabled()
    yield Objects()
    gc.enable()


def stored(objects: Objects) -> ObjectId:
    """The root of a long list of small dicts."""
    written = TreeWriter().write([{"id": number, "tags": []} for number in range(RECORDS)])
    objects.add(written)
    return written.root


def test_a_load_leaves_the_collector_as_it_was(objects: Objects) -> None:
    root = stored(objects)
    objects.load(root)
    after_enabled = gc.isenabled()
    gc.disable()
    objects.load(root)

    assert after_enabled
    assert not gc.isenabled()


def test_a_load_that_fails_leaves_the_collector_as_it_was(objects: Objects) -> None:
    root = stored(objects)
    leaf = next(one for one in objects.values() if one.kind == Kind.ITEMS)
    objects[leaf.id] = leaf._replace(payload=b"\x90")

    with pytest.raises(FormatError):
        objects.load(root)
    assert gc.isenabled()


def test_the_collector_does_not_come_at_every_few_hundred_values(objects: Objects) -> None:
    root = stored(objects)
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        value = objects.load(root)
    finally:
        gc.callbacks.remove(note)

    assert len(value) == RECORDS
    assert seen.count("start") < RECORDS / 3_000
