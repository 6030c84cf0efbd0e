"""The life of a writer: what it accepts, forgets and goes on from."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import InvalidInput, MissingObjects
from holdfast.tree import Edited, TreeWriter, load
from tests.tree.support import Objects, stored


def _state(count: int) -> dict[str, Any]:
    return {"messages": [f"message {at} " * 20 for at in range(count)], "step": count}


def test_a_writer_that_resumes_gives_only_what_changed() -> None:
    root, objects = stored(_state(500))
    writer = TreeWriter()

    value = writer.resume(root, objects.read)
    value["messages"][250] = "changed"
    written = writer.write(value)

    assert writer.root == root
    assert len(written.objects) <= 4
    assert set(written.needs) <= objects.keys()


def test_resuming_something_that_is_not_there_changes_nothing() -> None:
    writer, state = TreeWriter(), _state(3)
    writer.accept(writer.write(state))
    before = writer.root

    with pytest.raises(MissingObjects):
        writer.resume(b"\0" * 32, _read_nothing)

    assert writer.root == before


def _read_nothing(ids: Any) -> Any:
    raise MissingObjects(list(ids))


def test_a_value_that_was_not_accepted_is_given_again() -> None:
    writer = TreeWriter()
    first = writer.write(_state(100))
    second = writer.write(_state(100))

    assert first.objects == second.objects


def test_what_was_written_before_another_was_accepted_is_refused() -> None:
    writer = TreeWriter()
    early, late = writer.write([1]), writer.write([2])
    writer.accept(late)

    with pytest.raises(InvalidInput, match="write it again"):
        writer.accept(early)

    assert writer.root == late.root


def test_what_was_written_before_forgetting_is_refused() -> None:
    writer = TreeWriter()
    written = writer.write([1])
    writer.forget()

    with pytest.raises(InvalidInput, match="write it again"):
        writer.accept(written)


def test_what_another_writer_wrote_is_refused() -> None:
    with pytest.raises(InvalidInput, match="another writer"):
        TreeWriter().accept(TreeWriter().write([1]))


def test_only_what_write_gave_is_accepted() -> None:
    edited: Any = Edited(b"", [], [])

    with pytest.raises(InvalidInput, match="not a"):
        TreeWriter().accept(edited)


def test_after_forgetting_everything_is_given_again() -> None:
    writer, state = TreeWriter(), _state(300)
    writer.accept(writer.write(state))
    writer.forget()
    objects = Objects()
    written = writer.write(state)
    for made in written.objects:
        objects[made.id] = made

    assert written.needs == []
    assert load(written.root, objects.read) == state


def test_a_written_value_shows_its_root_and_not_its_content() -> None:
    written = TreeWriter().write(_state(1000))

    assert len(repr(written)) < 300
