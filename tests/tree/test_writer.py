"""The life of a writer: what it accepts, forgets and goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk.codec import Codec, Registry
from ropewalk.errors import InvalidInput, MissingObjects, NotStorable
from ropewalk.tree import Edited, Kind, TreeWriter, links, load
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


def test_a_long_life_holds_few_old_versions_of_a_large_text() -> None:
    writer, text = TreeWriter(), "a large text " * 100_000
    for step in range(60):
        writer.accept(writer.write({"text": text + str(step)}))
    held = writer.held

    assert held < 30 * len(text)


def test_texts_that_come_and_go_are_not_held_for_ever() -> None:
    writer = TreeWriter()
    for step in range(60):
        writer.accept(writer.write({f"draft {step}": f"{step} " * 400_000}))
    held = writer.held

    assert held < 30_000_000


def test_a_known_set_that_gets_nan_twice_is_refused_as_a_new_one_is() -> None:
    writer = TreeWriter()
    members: set[Any] = set(range(5000))
    writer.accept(writer.write(members))
    members |= {float("nan")}
    members.add(float("nan"))

    for one in (writer, TreeWriter()):
        with pytest.raises(NotStorable, match="nan twice"):
            one.write(members)


@dataclass(eq=False)
class _Key:
    number: int


def test_keys_that_were_changed_in_place_and_moved_are_seen() -> None:
    codec = Codec(types=[_Key])
    keys = [_Key(number) for number in range(400)]
    mapping = {key: f"value of {key.number} " * 3 for key in keys}
    writer = TreeWriter(codec)
    writer.accept(writer.write(mapping))
    keys[0].number, keys[1].number = 1, 0
    first, second, *rest = mapping.items()
    moved = dict([second, first, *rest])

    assert writer.write(moved).root == TreeWriter(codec).write(moved).root


@pytest.mark.parametrize("item", [{1: "x" * 200}, [bytearray(200)], ("x" * 200,), {b"x" * 200}])
def test_items_that_take_the_longer_way_are_compared_and_not_written_again(item: Any) -> None:
    writer, items = TreeWriter(), [item] * 10 + [[number] for number in range(2000)]
    writer.accept(writer.write(items))
    items.append("one more")

    assert len(writer.write(items).objects) <= 4


def test_resuming_a_value_of_an_older_class_gives_everything_next() -> None:
    @dataclass
    class Old:
        name: str

    @dataclass
    class New:
        title: str

    before, after = Registry(), Registry()
    before.register(Old, name="note")
    after.register(New, name="note", version=2, migrations={1: lambda old: {"title": old["name"]}})
    objects = Objects()
    objects.add(TreeWriter(Codec(before)).write([Old("x" * 3000)]))
    root = next(id for id, made in objects.items() if made.kind == Kind.VALUE)
    writer = TreeWriter(Codec(after))

    value = writer.resume(root, objects.read)

    assert value == [New("x" * 3000)]
    assert writer.root is None
    assert writer.write(value).needs == []


def test_needs_are_what_new_objects_point_to_beside_each_other() -> None:
    writer, objects = TreeWriter(), Objects()
    state: dict[str, Any] = {
        "rows": list(range(60_000)),
        "table": {f"key {at}": at for at in range(9000, 0, -1)},
    }
    for step in range(8):
        state["rows"][step * 7000] = "changed"
        state["rows"].append(step)
        state["table"][f"new {step}"] = step
        written = writer.write(state)
        made = {one.id for one in written.objects}

        assert set(written.needs) == {id for one in written.objects for id in links(one)} - made
        assert len(written.needs) == len(set(written.needs))
        objects.add(written)
        writer.accept(written)
