"""One place of a stored value is read and changed, and the rest is left alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ropewalk.codec import Field, Path
from ropewalk.errors import InvalidInput, NotStorable, PathNotFound
from ropewalk.tree import Edited, Map, ObjectId, get, insert, put, remove
from tests.sample_types import Coin, Note, Open, Person, Point, Slim, Spot, Word
from tests.strategies import same, storable_values
from tests.tree.naive import Maker, encode, fields_of, is_record, keep, with_fields
from tests.tree.support import (
    MAPPINGS,
    SEQUENCES,
    Objects,
    like,
    root_of,
    small_nodes,
    stored,
)

_SEEDS = st.integers(0, 2**32)


class Held:
    """A stored value that counts what is read."""

    def __init__(self, value: Any) -> None:
        self.root, self.objects = stored(value)
        self.count = 0
        self.made = 0

    def read(self, ids: Any) -> Any:
        self.count += len(ids)
        return self.objects.read(ids)

    def keep(self, edited: Edited) -> ObjectId:
        self.made = len(edited.objects)
        return keep(self.objects, edited)

    def get(self, *path: Any) -> Any:
        return get(self.root, path, self.read)

    def put(self, path: Path, value: Any) -> Any:
        return self._result(put(self.root, path, value, self.read))

    def remove(self, *path: Any) -> Any:
        return self._result(remove(self.root, path, self.read))

    def insert(self, path: Path, value: Any) -> Any:
        return self._result(insert(self.root, path, value, self.read))

    def _result(self, edited: Edited) -> Any:
        """The new value; its root is the one that a writer gives it."""
        root = self.keep(edited)
        value = self.objects.load(root)
        assert root == root_of(value)
        return value


# Random edits beside the same edits of plain Python.


def steps_of(value: Any) -> list[Any]:
    """The steps that lead from a value to its parts."""
    if type(value) in MAPPINGS:
        return list(value)
    if type(value) in SEQUENCES:
        return list(range(len(value)))
    return [Field(name) for name in fields_of(value)] if is_record(value) else []


def part_at(value: Any, path: Path) -> Any:
    for step in path:
        value = fields_of(value)[step] if is_record(value) else value[step]
    return value


def changed_at(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy of a value with another part at a path."""
    if not path:
        return change(value)
    part = changed_at(part_at(value, path[:1]), path[1:], change)
    if is_record(value):
        made = with_fields(value, fields_of(value) | {str(path[0]): part})
        if isinstance(value, Person):
            made.__pydantic_fields_set__.clear()
            made.__pydantic_fields_set__.update(
                value.model_fields_set, path if len(path) == 1 else ()
            )
        return made
    if type(value) in MAPPINGS:
        return like(
            value,
            {key: part if encode(key) == encode(path[0]) else held for key, held in value.items()},
        )
    return like(value, [part if at == path[0] else held for at, held in enumerate(value)])


def random_path(roll: random.Random, value: Any) -> Path:
    path: Path = ()
    while (steps := steps_of(value)) and roll.random() < 0.8:
        step = roll.choice(steps)
        path, value = (*path, step), part_at(value, (step,))
    return path


@given(seed=_SEEDS)
def test_any_place_of_any_value_can_be_replaced(seed: int) -> None:
    maker = Maker(seed)
    value = maker.value()
    path, part = random_path(maker.random, value), maker.value(2)
    expected = changed_at(value, path, lambda old: part)
    with small_nodes():
        found = Held(value).put(path, part)

    assert same(found, expected)


@given(value=storable_values(), part=storable_values(3), seed=_SEEDS)
def test_any_value_can_be_put_into_any_place(value: Any, part: Any, seed: int) -> None:
    path = random_path(random.Random(seed), value)
    with small_nodes():
        held = Held(value)
        held.root = held.keep(put(held.root, path, part, held.read))
        found = held.get(*path)
        before = Held(value).get(*path)

    assert same(found, part)
    assert same(before, part_at(value, path))


@given(seed=_SEEDS)
def test_any_part_can_be_removed(seed: int) -> None:
    maker = Maker(seed)
    value = maker.value()
    path = random_path(maker.random, value)
    assume(path and not is_record(part_at(value, path[:-1])))

    def without(holder: Any) -> Any:
        if type(holder) in MAPPINGS:
            return like(holder, {key: part for key, part in holder.items() if key != path[-1]})
        return like(holder, [part for at, part in enumerate(holder) if at != path[-1]])

    expected = changed_at(value, path[:-1], without)
    with small_nodes():
        found = Held(value).remove(*path)

    assert same(found, expected)


@given(seed=_SEEDS)
def test_an_item_can_be_inserted_into_any_list(seed: int) -> None:
    maker = Maker(seed)
    value = {"list": [maker.fresh() for _ in range(maker.random.randrange(50))], "x": maker.value()}
    path = random_path(maker.random, value)
    path = path if type(part_at(value, path)) in SEQUENCES else ("list",)
    holder = part_at(value, path)
    assume(getattr(holder, "maxlen", None) is None or len(holder) < holder.maxlen)
    at = maker.random.randint(0, len(part_at(value, path)))
    item = maker.value(1)
    expected = changed_at(
        value, path, lambda old: like(old, [*list(old)[:at], item, *list(old)[at:]])
    )
    with small_nodes():
        found = Held(value).insert((*path, at), item)

    assert same(found, expected)


@given(seed=_SEEDS, times=st.integers(1, 12))
def test_edits_one_after_the_other_give_the_root_of_a_fresh_write(seed: int, times: int) -> None:
    maker = Maker(seed)
    plain = {maker.key(): maker.atom() for _ in range(maker.random.choice([2, 10, 40]))}
    with small_nodes():
        held = Held(plain)
        for _ in range(times):
            key = maker.key()
            if key in plain and maker.random.random() < 0.5:
                del plain[key]
                held.root = held.keep(remove(held.root, (key,), held.read))
            else:
                plain[key] = maker.atom()
                held.root = held.keep(put(held.root, (key,), plain[key], held.read))

        assert held.root == root_of(plain)


# Reading.


def test_a_path_leads_through_dicts_lists_tuples_and_objects() -> None:
    held = Held({"a": [Note("text", ({1: "deep"},))]})

    assert held.get("a", 0, Field("tags"), 0, 1) == "deep"
    assert held.get("a", 0, "tags", 0, 1) == "deep"
    assert held.get("a", -1, "text") == "text"
    assert held.get() == {"a": [Note("text", ({1: "deep"},))]}


def test_a_member_of_a_set_is_its_own_step() -> None:
    held = Held({"s": {1, "a", (2, "b")}})

    assert held.get("s", (2, "b"), 1) == "b"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("x",), "value[\"x\"] does not exist: value has no 'x'"),
        (("a", 5), 'value["a"][5] does not exist: value["a"] has no 5'),
        (("a", -4), 'value["a"][-4] does not exist: value["a"] has no -4'),
        (("a", True), 'value["a"][True] does not exist: value["a"] has no True'),
        (("a", "b"), 'value["a"]["b"] does not exist: value["a"] has no \'b\''),
        (("a", 0, "b", "c"), 'value["a"][0]["b"]["c"] does not exist: value["a"][0] has no \'b\''),
        (("n", "nothing"), 'value["n"]["nothing"] does not exist: value["n"] has no \'nothing\''),
        ((1.0,), "value[1.0] does not exist: value has no 1.0"),
        (("s", 9), 'value["s"][9] does not exist: value["s"] has no 9'),
    ],
)
def test_a_path_that_leads_nowhere_says_how_far_it_led(path: Path, message: str) -> None:
    held = Held({"a": [1, 2, 3], "n": Note("text"), 1: "one", "s": {1, 2}})
    calls: list[Callable[[], Any]] = [lambda: held.get(*path), lambda: held.remove(*path)]
    for call in calls:
        with pytest.raises(PathNotFound) as caught:
            call()

        assert str(caught.value) == message


@pytest.mark.parametrize("step", [object(), [1], {}, "\ud800", lambda: 1, float])
def test_a_step_that_cannot_be_a_key_leads_nowhere(step: Any) -> None:
    held = Held({"a": 1, "s": {1}})

    with pytest.raises(PathNotFound):
        held.get(step)
    with pytest.raises(PathNotFound):
        held.get("s", step)
    with pytest.raises(PathNotFound):
        held.remove(step)


@pytest.mark.parametrize("path", ["abc", ["a"], None, 5])
def test_a_path_is_a_tuple(path: Any) -> None:
    root, objects = stored({"a": 1})
    for call in (get, remove):
        with pytest.raises(InvalidInput, match="a path is a tuple"):
            call(root, path, objects.read)
    for change in (put, insert):
        with pytest.raises(InvalidInput, match="a path is a tuple"):
            change(root, path, 1, objects.read)


def test_reading_one_place_of_a_large_value_reads_few_objects() -> None:
    held = Held({"a": [{"b": list(range(5_000))} for _ in range(20)]})

    assert held.get("a", 7, "b", 2_500) == 2_500
    assert held.count < 12


# Putting.


def test_a_new_key_comes_last() -> None:
    value = Held({"z": 1, "a": 2}).put(("m",), 3)

    assert list(value.items()) == [("z", 1), ("a", 2), ("m", 3)]


def test_a_key_that_is_there_keeps_its_place() -> None:
    value = Held({"z": 1, "a": 2}).put(("z",), 3)

    assert list(value.items()) == [("z", 3), ("a", 2)]


def test_the_whole_value_can_be_replaced() -> None:
    assert Held({"a": 1}).put((), [1]) == [1]
    assert Held(list(range(5_000))).put((), "x") == "x"


def test_a_negative_index_counts_from_the_end() -> None:
    held = Held({"a": [1, 2, 3]})

    assert held.put(("a", -1), 9) == {"a": [1, 2, 9]}
    assert held.remove("a", -3) == {"a": [2, 3]}
    assert held.insert(("a", -1), 9) == {"a": [1, 2, 9, 3]}


def test_tuples_and_objects_keep_their_type() -> None:
    held = Held([(1, 2), Point(1, 2), Note("a"), Spot(1), Slim(1), Coin(1)])

    assert same(held.put((0, 1), 9)[0], (1, 9))
    assert same(held.put((1, Field("y")), 9)[1], Point(1, 9))
    assert same(held.put((2, "tags"), [9])[2], Note("a", [9]))
    assert same(held.put((3, "row"), 9)[3], Spot(9))
    assert same(held.put((4, "right"), 9)[4], Slim(1, 9))
    assert same(held.put((5, "worth"), 9)[5], Coin(9))
    assert same(held.remove(0, 0)[0], (2,))
    assert same(held.insert((0, 0), 9)[0], (9, 1, 2))


def test_a_field_of_a_model_that_is_put_counts_as_set() -> None:
    person = Person(name="a")
    expected = person.model_copy()
    expected.age = 5

    assert same(Held(person).put(("age",), 5), expected)


def test_a_field_of_a_model_that_is_changed_inside_does_not_count_as_set() -> None:
    person = Person(name="a")
    person.__dict__["age"] = [{"years": 1}]
    held = Held(person)

    assert held.put(("age", 0, "years"), 5).model_fields_set == {"name"}
    assert held.insert(("age", 0), 5).model_fields_set == {"name"}
    assert held.put(("age",), person.age).model_fields_set == {"name", "age"}


def test_private_and_extra_values_of_a_model_can_be_put() -> None:
    made = Open.model_validate({"known": 1, "colour": 2})
    expected = copy.deepcopy(made)
    expected._secret = 3
    expected.colour = 4  # type: ignore[attr-defined]
    held = Held(made)
    held.root = held.keep(put(held.root, ("_secret",), 3, held.read))

    assert same(held.put(("+colour",), 4), expected)


def test_an_object_gets_no_field_that_it_does_not_have_and_loses_none() -> None:
    held = Held({"n": Note("a")})

    with pytest.raises(PathNotFound, match=r'value\["n"\] has no \'other\''):
        held.put(("n", "other"), 1)
    with pytest.raises(
        InvalidInput, match=r'value\["n"\].text is a field|value\["n"\]\["text"\] is a field'
    ):
        held.remove("n", "text")


def test_a_member_of_a_set_can_only_be_removed() -> None:
    held = Held({"s": {1, (2, 3)}, "f": frozenset("ab")})

    assert held.remove("s", (2, 3))["s"] == {1}
    assert same(held.remove("f", "a")["f"], frozenset("b"))
    with pytest.raises(InvalidInput, match="member of a set"):
        held.put(("s", 1), 5)
    with pytest.raises(InvalidInput, match="member of a set"):
        held.put(("s", (2, 3), 0), 5)
    with pytest.raises(PathNotFound):
        held.put(("s", 7), 7)


def test_keys_of_every_type_can_be_put() -> None:
    held = Held({"x": 0})
    for key in (1, 2.5, None, b"k", (1, "a"), Word.YES, Point(1, 2), 10**30, frozenset({1})):
        held.root = held.keep(put(held.root, (key,), repr(key), held.read))
        held.root = held.keep(put(held.root, (key,), "again", held.read))

    assert set(held.get().values()) == {0, "again"}
    assert held.root == root_of(held.get())


@pytest.mark.parametrize(
    ("there", "new"),
    [(1, True), (True, 1.0), ("yes", Word.YES), (Word.YES, "yes"), ((1,), (1.0,))],
)
@pytest.mark.parametrize("more", [0, 3_000])
def test_a_dict_gets_no_key_that_equals_another_one(there: Any, new: Any, more: int) -> None:
    held = Held({f"key {number}": 0 for number in range(more)} | {there: "a", 77: 0})

    with pytest.raises(NotStorable, match=r"the dict has the key .*, which equals"):
        held.put((new,), "b")


@pytest.mark.parametrize("key", [[1], {}, {1}, Note("a"), object(), "\ud800"])
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    with pytest.raises(NotStorable):
        Held({"a": 1}).put((key,), 1)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(NotStorable, match="a key takes 70005 bytes; the most is 65536"):
        Held({"a": 1}).put(("k" * 70_000,), 1)


def test_a_value_that_cannot_be_stored_is_refused_with_its_path() -> None:
    with pytest.raises(NotStorable) as caught:
        Held({"a": [1, 2]}).put(("a", 1), {"x": [object()]})
    assert caught.value.path == 'value["a"][1]["x"][0]'

    with pytest.raises(NotStorable) as caught:
        Held({"a": [1, 2]}).insert(("a", 1), object())
    assert caught.value.path == 'value["a"][1]'


def nested(depth: int, wrap: Any) -> Any:
    value = "deep"
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("wrap", "step", "most"),
    [
        (lambda part: [part], 0, 255),
        (lambda part: {"a": part}, "a", 255),
        (lambda part: (part,), 0, 32),
        (lambda part: {1: part}, 1, 32),
        (Note, "text", 32),
        (lambda part: [*["x" * 80] * 30, part], -1, 100),
    ],
    ids=["list", "dict", "tuple", "keys", "object", "large"],
)
def test_what_is_put_deep_inside_is_stored_as_far_as_a_writer_stores_it(
    wrap: Any, step: Any, most: int
) -> None:
    half = most // 2
    held, path = Held(nested(half, wrap)), (step,) * half
    deepest = held.put(path, nested(most - half, wrap))

    assert encode(deepest) == encode(nested(most, wrap))
    with pytest.raises(NotStorable, match="nested too deeply"):
        held.put(path, nested(most - half + 1, wrap))


def test_only_the_last_step_may_be_new() -> None:
    held = Held({"a": {}})

    assert held.put(("a", "b"), 1) == {"a": {"b": 1}}
    with pytest.raises(PathNotFound, match="value has no 'x'"):
        held.put(("x", "b"), 1)
    with pytest.raises(PathNotFound, match=r'value\["a"\] has no \'b\''):
        held.put(("a", "b", "c"), 1)
    with pytest.raises(PathNotFound):
        Held([1]).put((1,), 2)
    with pytest.raises(PathNotFound):
        Held(5).put((0,), 2)


def test_the_top_cannot_be_removed() -> None:
    with pytest.raises(InvalidInput, match="the top of a value cannot be removed"):
        Held([1]).remove()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([1], ()),
        ([1], (2,)),
        ([1], (-2,)),
        ([1], ("a",)),
        ([1], (True,)),
        ({}, ("a",)),
        ({1}, (0,)),
    ],
)
def test_insert_takes_an_index_of_a_list(value: Any, path: Path) -> None:
    with pytest.raises(InvalidInput):
        Held(value).insert(path, 1)


def test_insert_into_nothing_says_how_far_the_path_led() -> None:
    with pytest.raises(PathNotFound, match="value has no 'x'"):
        Held({}).insert(("x", 0), 1)


def test_an_edit_that_changes_nothing_makes_nothing() -> None:
    for value in ({"a": [1]}, {"a": [1], "more": list(range(5_000))}):
        held = Held(value)
        result = put(held.root, ("a", 0), 1, held.read)

        assert (result.root, result.objects, result.needs) == (held.root, [], [held.root])


# Size.

_LIST = [f"item {number}" for number in range(20_000)]
_SORTED = {f"{number:05}": number for number in range(20_000)}
_DICT = dict(reversed(_SORTED.items()))


@pytest.mark.parametrize("at", [0, 9_000, 19_999])
def test_an_edit_of_a_long_list_touches_few_objects(at: int) -> None:
    held = Held(_LIST)
    for edited in (
        put(held.root, (at,), "x", held.read),
        remove(held.root, (at,), held.read),
        insert(held.root, (at,), "x", held.read),
    ):
        held.keep(edited)

        assert held.made <= 6
    assert held.count <= 36


@pytest.mark.parametrize(
    ("value", "key"),
    [(_DICT, "09000"), (_DICT, "new"), (_SORTED, "09000"), (_SORTED, "zzzzz")],
)
def test_a_put_into_a_long_dict_touches_few_objects(value: Any, key: str) -> None:
    held = Held(value)
    root = held.keep(put(held.root, (key,), "x", held.read))

    assert held.made <= 8
    assert held.count <= 40
    assert root == root_of(value | {key: "x"})


@pytest.mark.parametrize("value", [_DICT, _SORTED], ids=["reversed", "sorted"])
def test_a_removal_from_a_long_dict_makes_few_objects(value: Any) -> None:
    held = Held(value)
    root = held.keep(remove(held.root, ("09000",), held.read))

    assert held.made <= 8
    assert root == root_of({key: part for key, part in value.items() if key != "09000"})


def test_a_put_into_a_long_map_touches_few_objects() -> None:
    objects = Objects()
    empty = keep(objects, Map.empty())
    root = keep(objects, Map(empty, objects.read).edit(_SORTED))
    held = Held(0)
    held.objects.update(objects)
    held.root = root
    changed = held.keep(put(root, ("123",), "x", held.read))

    assert held.made <= 4
    assert held.count <= 8
    assert changed == Map(root, objects.read).edit({"123": "x"}).root


_NAMES = [f"{number:020}" for number in range(220)]


def test_a_list_has_the_root_of_a_fresh_write_at_every_length() -> None:
    held, items = Held([]), list[str]()
    for item in _NAMES:
        at = len(items) // 2
        items.insert(at, item)
        held.root = held.keep(insert(held.root, (at,), item, held.read))
        assert held.root == root_of(items)
    while items:
        at = len(items) // 3
        items.pop(at)
        held.root = held.keep(remove(held.root, (at,), held.read))

        assert held.root == root_of(items)


@pytest.mark.parametrize("names", [_NAMES, _NAMES[::-1]], ids=["sorted", "reversed"])
def test_a_dict_has_the_root_of_a_fresh_write_at_every_length(names: list[str]) -> None:
    held, plain = Held({}), dict[str, None]()
    for name in names:
        plain[name] = None
        held.root = held.keep(put(held.root, (name,), None, held.read))
        assert held.root == root_of(plain)
    while plain:
        name = list(plain)[len(plain) // 2]
        del plain[name]
        held.root = held.keep(remove(held.root, (name,), held.read))

        assert held.root == root_of(plain)


def test_a_part_that_grows_leaves_its_parent_and_comes_back() -> None:
    held = Held({"a": {"b": "x"}, "c": 1})
    for size in (10, 2_040, 2_050, 3_000, 100_000, 2_050, 2_030, 0):
        held.root = held.keep(put(held.root, ("a", "b"), "x" * size, held.read))

        assert held.root == root_of({"a": {"b": "x" * size}, "c": 1})
