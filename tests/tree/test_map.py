"""A `Map` is a mapping whose edits touch little, and whose root depends on nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ropewalk.errors import FormatError, InvalidInput, NotFound, NotStorable, PathNotFound
from ropewalk.tree import Edited, Kind, Map, ObjectId, get, make_object, put, remove
from tests.sample_types import Note, Word
from tests.strategies import same, storable_keys, storable_values
from tests.tree.naive import encode, keep
from tests.tree.support import Objects, small_nodes, stored


class Held:
    """A map and the objects that it is made of."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.root = keep(self.objects, Map.empty())

    @property
    def map(self) -> Map:
        """The map, opened anew by its root."""
        return Map(self.root, self.objects.read)

    def edit(self, changes: Any = None, remove: Any = ()) -> Edited:
        edited = self.map.edit(changes, remove=remove)
        self.root = keep(self.objects, edited)
        return edited

    def fill(self, *pairs: tuple[Any, Any]) -> None:
        """Set keys one by one: a dict cannot hold 1 and True together."""
        for key, value in pairs:
            self.edit({key: value})


def root_of(plain: dict[Any, Any]) -> ObjectId:
    held = Held()
    held.edit(plain)
    return held.root


_ODD_KEYS = [0, 1, True, False, 1.0, 0.0, -0.0, "1", b"1", None, (1,), (True,), Word.YES, "yes"]
_KEYS = st.integers(0, 60).map(lambda number: f"key {number}") | st.sampled_from(_ODD_KEYS)
_VALUES = st.sampled_from([0, 1, True, "x", "x" * 70, [1, 2], {"a": "x" * 100}, list(range(100))])


class MapBesideADict(RuleBasedStateMachine):
    """A map beside a dict from encoded keys to keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes = small_nodes()
        self._sizes.__enter__()

    @initialize()
    def start(self) -> None:
        self.held = Held()
        self.plain: dict[bytes, tuple[Any, Any]] = {}

    def teardown(self) -> None:
        self._sizes.__exit__(None, None, None)

    @rule(key=_KEYS, value=_VALUES)
    def set_one(self, key: Any, value: Any) -> None:
        self.held.edit({key: value})
        self.plain[encode(key)] = key, value

    @rule(pairs=st.lists(st.tuples(_KEYS, _VALUES), max_size=12), gone=st.sets(st.integers(0, 40)))
    def edit_many(self, pairs: list[Any], gone: set[int]) -> None:
        changes = dict(pairs)
        fresh = {encode(key): (key, value) for key, value in changes.items()}
        keys = [at for index, at in enumerate(self.plain) if index in gone and at not in fresh]
        if len(fresh) < len(changes):
            return
        self.held.edit(changes, remove=[self.plain.pop(at)[0] for at in keys])
        self.plain |= fresh

    @rule(key=_KEYS)
    def remove_one(self, key: Any) -> None:
        if encode(key) in self.plain:
            self.held.edit(remove=[key])
            del self.plain[encode(key)]
        else:
            with pytest.raises(PathNotFound):
                self.held.edit(remove=[key])

    @rule(key=_KEYS)
    def look(self, key: Any) -> None:
        known = self.plain.get(encode(key))

        assert (key in self.held.map) is (known is not None)
        assert same(self.held.map.get(key, "nothing"), "nothing" if known is None else known[1])

    @invariant()
    def is_the_same(self) -> None:
        found = self.held.map

        assert len(found) == len(self.plain)
        assert [encode(key) for key in found] == sorted(self.plain)

    @rule()
    def depends_on_no_history(self) -> None:
        fresh = Held()
        for key, value in self.plain.values():
            fresh.edit({key: value})

        assert fresh.root == self.held.root
        for key, value in self.held.map.items():
            assert same((key, value), self.plain[encode(key)])


TestMapBesideADict = MapBesideADict.TestCase
TestMapBesideADict.settings = settings(max_examples=max(settings().max_examples // 2, 20))


@given(pairs=st.lists(st.tuples(storable_keys(), storable_values(4)), max_size=5))
def test_any_key_may_have_any_value(pairs: list[tuple[Any, Any]]) -> None:
    held = Held()
    held.fill(*pairs)
    expected = {encode(key): (key, value) for key, value in pairs}

    assert [encode(key) for key in held.map] == sorted(expected)
    for key, value in held.map.items():
        assert same((key, value), expected[encode(key)])


@given(
    keys=st.lists(st.integers(0, 5_000), unique=True, min_size=1, max_size=300),
    seed=st.integers(0, 2**32),
)
def test_the_order_of_edits_does_not_matter(keys: list[int], seed: int) -> None:
    roll = random.Random(seed)
    plain = {f"key {key}": key for key in keys}
    gone = roll.sample(keys, len(keys) // 3)
    with small_nodes():
        held = Held()
        pairs = list(plain.items())
        roll.shuffle(pairs)
        while pairs:
            count = roll.choice([1, 2, 50])
            held.edit(dict(pairs[:count]))
            pairs = pairs[count:]
        held.edit(remove=[f"key {key}" for key in gone])
        expected = root_of({key: value for key, value in plain.items() if value not in gone})

    assert held.root == expected


def test_an_empty_map_has_nothing() -> None:
    held = Held()

    assert len(held.map) == 0
    assert list(held.map) == []
    assert "a" not in held.map


def test_a_map_that_lost_every_key_is_the_empty_one() -> None:
    held = Held()
    empty = held.root
    held.edit({f"key {number}": number for number in range(1_000)})
    held.edit(remove=[f"key {number}" for number in range(1_000)])

    assert held.root == empty


def test_values_come_back_as_they_were() -> None:
    held = Held()
    held.edit({"a": Note("text", [1, 2.0]), "b": "x" * 100_000, "c": list(range(5_000))})

    assert same(held.map["a"], Note("text", [1, 2.0]))
    assert held.map["b"] == "x" * 100_000
    assert held.map["c"] == list(range(5_000))


def test_values_that_were_read_are_the_callers_own() -> None:
    held = Held()
    held.edit({"a": [1]})
    found = held.map
    found["a"].append(2)

    assert found["a"] == [1]


def test_keys_that_python_takes_for_equal_stand_beside_each_other() -> None:
    held = Held()
    held.fill((1, "int"), (True, "bool"), (1.0, "float"), ("1", "text"), (b"1", "bytes"))
    held.fill(("yes", "text"), (Word.YES, "enum"), ((1,), "a"), ((True,), "b"))
    found = held.map

    assert len(found) == 9
    assert [found[1], found[True], found[1.0], found["1"], found[b"1"]] == [
        "int",
        "bool",
        "float",
        "text",
        "bytes",
    ]
    assert [found["yes"], found[Word.YES], found[(1,)], found[(True,)]] == [
        "text",
        "enum",
        "a",
        "b",
    ]


def test_a_missing_key_is_a_key_error() -> None:
    held = Held()
    held.edit({1: "a"})

    for error in (KeyError, NotFound, PathNotFound):
        with pytest.raises(error, match="the map has no key True"):
            held.map[True]
    assert held.map.get(True) is None


@pytest.mark.parametrize("key", [object(), [1], {}, "\ud800", lambda: 1])
def test_what_cannot_be_a_key_is_not_there(key: Any) -> None:
    held = Held()
    held.edit({"a": 1})

    assert key not in held.map
    with pytest.raises(KeyError):
        held.map[key]
    with pytest.raises(PathNotFound):
        held.edit(remove=[key])


def test_what_cannot_be_stored_is_refused_with_its_key() -> None:
    with pytest.raises(NotStorable) as caught:
        Held().edit({"a": 1, "b": [1, object()]})
    assert caught.value.path == 'value["b"][1]'

    with pytest.raises(NotStorable):
        Held().edit({object(): 1})


def test_a_key_may_be_long_but_not_too_long() -> None:
    held = Held()
    held.edit({"k" * 65_000: 1})

    assert held.map["k" * 65_000] == 1
    with pytest.raises(NotStorable, match="the most is 65536"):
        held.edit({"k" * 70_000: 1})


@pytest.mark.parametrize(
    ("changes", "gone"),
    [({"a": 2}, ["a"]), ({}, ["a", "a"]), ({float("nan"): 1, float("nan") * 1: 2}, [])],
)
def test_a_key_is_changed_once_in_an_edit(changes: Any, gone: Any) -> None:
    held = Held()
    held.edit({"a": 1})

    with pytest.raises(InvalidInput, match="is to be changed twice"):
        held.edit(changes, remove=gone)


def test_a_refused_edit_changes_nothing() -> None:
    held = Held()
    held.edit({"a": 1})
    root = held.root

    with pytest.raises(PathNotFound):
        held.edit({"b": 2}, remove=["c"])
    assert held.root == root
    assert dict(held.map) == {"a": 1}


@pytest.mark.parametrize("changes", [None, {}, {"a": 1}])
def test_an_edit_that_changes_nothing_makes_nothing(changes: Any) -> None:
    held = Held()
    held.edit({"a": 1})
    root = held.root

    assert held.edit(changes) == Edited(root, [], [root])


def test_a_map_does_not_change() -> None:
    held = Held()
    held.edit({"a": 1})
    before = held.map
    held.edit({"a": 2, "b": 3})

    assert dict(before) == {"a": 1}
    assert dict(held.map) == {"a": 2, "b": 3}


def test_maps_are_equal_where_their_roots_are() -> None:
    one, other = Held(), Held()
    one.fill((1, "a"))
    other.fill((True, "a"))

    assert one.map == one.map
    assert hash(one.map) == hash(one.map)
    assert one.map != other.map
    assert one.map == {1: "a"}


def test_only_the_root_of_a_map_opens_as_one() -> None:
    root, objects = stored({f"key {number}": number for number in range(5_000)})
    small, others = stored({"a": 1})
    objects.update(others)
    chunk = make_object(Kind.CHUNK, b"x")
    objects[chunk.id] = chunk

    for id in (root, small):
        with pytest.raises(FormatError, match="holds a value, not a map; use load or get"):
            len(Map(id, objects.read))
    with pytest.raises(FormatError, match="is a CHUNK, not the root of a"):
        len(Map(chunk.id, objects.read))


@pytest.mark.parametrize("root", [b"", b"short", bytes(33), "0" * 32, None, bytearray(32)])
def test_what_is_no_id_is_no_root_of_a_map(root: Any) -> None:
    with pytest.raises(InvalidInput, match="a root is an object id"):
        Map(root, Objects().read)


def test_paths_lead_into_maps() -> None:
    held = Held()
    held.fill((1, {"a": [1, 2]}), (True, 5))
    held.root = keep(held.objects, put(held.root, (1, "a", 0), 9, held.objects.read))
    held.root = keep(held.objects, put(held.root, (1.0,), "new", held.objects.read))
    held.root = keep(held.objects, remove(held.root, (True,), held.objects.read))

    assert get(held.root, (1, "a"), held.objects.read) == [9, 2]
    assert [(repr(key), value) for key, value in held.map.items()] == [
        ("1", {"a": [9, 2]}),
        ("1.0", "new"),
    ]


def framed(objects: Objects, edited: Edited) -> int:
    """The bytes of new objects, each compressed beside the one that it is most like."""
    size = 0
    for made in edited.objects:
        alike = [one.payload for one in objects.values() if one.payload[4:40] == made.payload[4:40]]
        before = b"".join(alike[-2:-1])
        beside = zstandard.ZstdCompressionDict(before, zstandard.DICT_TYPE_RAWCONTENT)
        size += len(zstandard.ZstdCompressor(dict_data=beside).compress(made.payload))
    return size


def test_one_of_100_000_keys_costs_little() -> None:
    held, count = Held(), 0
    held.edit({f"key {number}": {"number": number, "text": "text"} for number in range(100_000)})

    def read(ids: Any) -> Any:
        nonlocal count
        count += len(ids)
        return held.objects.read(ids)

    roll = random.Random(1)
    for _ in range(20):
        key = f"key {roll.randrange(100_000)}"
        edited = Map(held.root, read).edit({key: {"number": -1, "text": "other"}})
        held.root = keep(held.objects, edited)

        assert len(edited.objects) <= 6
        assert sum(len(made.payload) for made in edited.objects) <= 32 * 1024
        assert framed(held.objects, edited) <= 1024
    assert count <= 20 * 6
    assert len(held.map) == 100_000
