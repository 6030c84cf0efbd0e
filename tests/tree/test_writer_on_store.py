"""A value that is held and changed in place: what changed is found, and nothing else is new."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ropewalk.codec import default_codec
from ropewalk.errors import MissingObjects, NotStorable
from ropewalk.tree import TreeWriter, Written
from tests.conftest import SOAK
from tests.strategies import same
from tests.tree.edits import Editor
from tests.tree.support import Objects, root_of, small_nodes, stored

EDITS = [
    Editor.edit_list,
    Editor.edit_dict,
    Editor.edit_set,
    Editor.edit_deque,
    Editor.edit_text,
    Editor.edit_bytes_in_place,
    Editor.edit_field,
    Editor.replace,
    Editor.convert,
    Editor.convert_large,
    Editor.share,
]


def writer(objects: Objects, lean: bool = False) -> TreeWriter:
    return TreeWriter(default_codec, objects.read, lean=lean)


def keep(objects: Objects, written: Written) -> None:
    for made in written.objects:
        objects[made.id] = made
    assert written.root in objects
    assert all(needed in objects for needed in written.needs)


def _state(count: int) -> dict[str, Any]:
    return {"messages": [f"message {at} " * 20 for at in range(count)], "step": count}


@pytest.mark.parametrize("seed", range(300 if SOAK else 30))
@pytest.mark.parametrize("lean", [False, True])
def test_a_value_has_the_root_that_it_has_without_a_history(seed: int, lean: bool) -> None:
    chance, objects = random.Random(seed), Objects()
    with small_nodes():
        editor, one = Editor(seed, 64), writer(objects, lean)
        value = editor.start()
        for _ in range(25):
            written = one.write(value)
            assert written.root == root_of(value)
            fate = chance.choice(["accepted"] * 4 + ["lost", "loaded", "copied"])
            if fate != "lost":
                keep(objects, written)
                one.accept(written)
                assert same(objects.load(written.root), value)
                again = one.write(value)
                assert again.root == written.root and again.objects == []
            if fate == "loaded":
                value, one = _loaded(objects, written, lean)
            if fate == "copied":
                one = one.copy()
            for edit in chance.choices(EDITS, k=chance.randint(0, 3)):
                edit(editor, value)
            editor.shrink(value, 400)


def _loaded(objects: Objects, written: Written, lean: bool) -> tuple[Any, TreeWriter]:
    one = writer(objects, lean)
    return one.resume(written.root), one


@pytest.mark.parametrize("lean", [False, True])
def test_what_was_loaded_and_changed_gives_only_what_changed(lean: bool) -> None:
    root, objects = stored(_state(500))
    one = writer(objects, lean)
    value = one.resume(root)
    value["messages"][250] = "changed"
    written = one.write(value)

    assert 1 <= len(written.objects) <= 4
    assert set(written.needs) <= objects.keys()


@pytest.mark.parametrize("lean", [False, True])
def test_what_was_loaded_and_not_changed_gives_nothing(lean: bool) -> None:
    root, objects = stored(_state(500))
    one = writer(objects, lean)
    written = one.write(one.resume(root))

    assert (written.root, written.objects, written.needs) == (root, [], [root])


def test_where_the_version_before_is_gone_everything_is_given() -> None:
    root, objects = stored(_state(500))
    one = writer(objects)
    value = one.resume(root)
    value["messages"].append("more")
    objects.clear()
    keep(objects, one.write(value))

    assert objects.load(root_of(value)) == value


def test_a_value_that_is_not_there_cannot_be_loaded() -> None:
    with pytest.raises(MissingObjects):
        writer(Objects()).resume(b"\0" * 32)


def test_a_value_that_cannot_be_stored_is_refused_with_its_path() -> None:
    root, objects = stored(_state(500))
    one = writer(objects)
    value = one.resume(root)
    value["messages"][250] = print

    with pytest.raises(NotStorable, match=r"value\[.messages.\]\[250\]"):
        one.write(value)
    value["messages"][250] = "fine"
    keep(objects, one.write(value))


@pytest.mark.parametrize(
    "value",
    [[1, 2], _state(1), list(range(100_000)), dict.fromkeys(range(5000), "x" * 50), "x" * 500_000],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("lean", [False, True])
def test_the_size_is_about_that_of_the_encoding(value: Any, lean: bool) -> None:
    objects = Objects()
    one = writer(objects, lean)
    written = one.write(value)
    keep(objects, written)
    one.accept(written)
    size, exact = one.size, len(default_codec.encode(value))

    assert size is not None and abs(size - exact) <= exact / 50 + 4


def test_many_changes_hold_no_more_than_the_value_takes() -> None:
    objects = Objects()
    one, value = writer(objects), {str(n): ["x" * 100] * 400 for n in range(20)}
    for step in range(600):
        written = one.write(value)
        keep(objects, written)
        one.accept(written)
        value[str(step % 20)][step % 400] = f"{step}" * 20

    held = one.held
    assert held < 2 * len(default_codec.encode(value)) + (40 << 20)


def test_what_was_taken_of_shared_values_is_compared_with_them_afterwards() -> None:
    objects = Objects()
    one = writer(objects)
    value: dict[str, Any] = {
        "list": [{"at": at, "tags": ["new"]} for at in range(300)],
        "dict": {f"key {at}": {"at": at, "data": bytes([at % 7])} for at in range(300)},
        "large": [[f"text {at}" * 20] * 40 for at in range(3)],
    }
    for step in range(3):
        value["list"].append({"at": step, "tags": ["appended"]})
        value["dict"][f"step {step}"] = {"data": bytearray(3)}
        value["large"].append([f"text {step}" * 20] * 40)
        written = one.write(value)
        keep(objects, written)
        one.accept(written)
        value["list"][-1]["tags"].append("in place")
        value["dict"][f"step {step}"]["data"][0] = 1
        value["large"][-1][0] = "in place"

        written = one.write(value)
        assert written.root == root_of(value)


def test_a_lean_one_holds_next_to_nothing_beside_the_value() -> None:
    root, objects = stored(_state(5000))
    held = []
    for lean in (False, True):
        one = writer(objects, lean)
        one.resume(root)
        held.append(one.held)

    assert held[1] < held[0] / 20
