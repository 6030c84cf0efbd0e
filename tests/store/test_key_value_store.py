"""What the store on a key-value store does beyond the contract."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ropewalk
from ropewalk import History, Timeline
from ropewalk.errors import (
    Corrupt,
    FormatError,
    InvalidInput,
    NewerFormat,
    RopewalkError,
    StoreClosed,
    StoreFull,
    Unavailable,
)
from ropewalk.state import kv as kv_module
from ropewalk.store import (
    KeyValueStore,
    KVStore,
    MemoryStore,
    Move,
    Store,
    encode_header,
    migrate,
    ref_name,
)
from ropewalk.store._key_value_cells import (
    EPOCH,
    HEADER,
    LOGS,
    REFS,
    SPACES,
    decode_cell,
    object_key,
    seal,
)
from ropewalk.store._key_value_records import decode_page, decode_record, decode_refs
from ropewalk.store._records import Header
from ropewalk.testing._stores._base import MAIN, OTHER_SPACE, SPACE, growing, in_threads, value
from ropewalk.tree import TreeWriter
from tests.conftest import SOAK
from tests.store.key_values import DictKV, KeptKV


def numbered(store: Store, count: int, start: int = 0) -> None:
    """Move as many refs, one by one; every third goes away again."""
    for number in range(start, start + count):
        one = value(f"object {number}")
        name = ref_name("pin", str(number))
        store.commit(SPACE, [one], moves=[Move(name, None, one.id)])
        if number % 3 == 0:
            store.commit(SPACE, moves=[Move(name, one.id, None)])


def seen(store: Store) -> tuple[object, ...]:
    """Everything that can be read of a space."""
    return store.view(SPACE), store.operations(SPACE, limit=10_000), store.leases(SPACE)


# The interface.


def test_the_interface_has_four_methods_to_supply() -> None:
    assert KVStore.__abstractmethods__ == {"get", "set", "keys", "compare_and_set"}
    assert ropewalk.KVStore is kv_module.KVStore is KVStore
    with pytest.raises(TypeError, match="abstract"):
        KVStore()  # type: ignore[abstract]


def test_a_key_value_store_has_one_store() -> None:
    kv = DictKV()

    first = kv.as_store()

    assert kv.as_store() is first
    assert isinstance(first, KeyValueStore) and first.kv is kv
    assert DictKV(kv.data).as_store() is not first
    stores: list[Store] = []
    in_threads(6, lambda _: stores.append(kv.as_store()))
    assert set(map(id, stores)) == {id(first)}


def test_a_store_that_was_closed_is_made_again() -> None:
    kv = DictKV()
    first = kv.as_store()
    first.commit(SPACE)

    first.close()

    assert kv.as_store() is not first
    assert kv.as_store().spaces() == [SPACE]


def test_closing_the_store_closes_what_it_is_on() -> None:
    closed: list[bool] = []

    class Closing(DictKV):
        def close(self) -> None:
            closed.append(True)

    Closing().as_store().close()

    assert closed == [True]


@pytest.mark.parametrize(
    ("durability", "persists"), [("full", True), ("relaxed", True), ("none", False)]
)
def test_the_store_promises_what_the_key_value_store_does(durability: Any, persists: bool) -> None:
    kv = DictKV()
    kv.durability = durability

    store = kv.as_store()

    assert store.durability == durability
    assert store.capabilities.persists == store.capabilities.shared == persists
    assert KVStore.durability == "relaxed"


@pytest.mark.parametrize("durability", [None, "", "fast", 1])
def test_a_durability_that_nobody_knows_is_refused(durability: Any) -> None:
    kv = DictKV()
    kv.durability = durability

    with pytest.raises(InvalidInput, match=r"DictKV\.durability"):
        kv.as_store()


def test_a_store_takes_the_options_of_references() -> None:
    store = KeyValueStore(
        DictKV(), backend_id="mine", backend_aliases=["old"], default_ttl_seconds=60
    )

    assert store.answers_to("mine") and store.answers_to("old")
    assert store.default_ttl_seconds == 60.0
    with pytest.raises(InvalidInput, match="KVStore"):
        KeyValueStore({})  # type: ignore[arg-type]


def test_other_keys_are_left_alone() -> None:
    kv = DictKV({"mine": b"1", "ropewalk": b"2", "hold": b"3", "object/": b"4"})
    others = dict(kv.data)
    store = kv.as_store()
    numbered(store, 40)
    store.gc(recent=1)

    assert {key: kv.data[key] for key in others} == others
    assert all(key.startswith("ropewalk/") for key in kv.data.keys() - others)


def test_an_agent_lives_on_a_key_value_store() -> None:
    data: dict[str, bytes] = {}
    agent = Timeline("agent", store=DictKV(data).as_store())
    for step in range(40):
        agent.checkpoint({"step": step, "notes": ["a note"] * step})
    agent.branch("other")
    agent.checkpoint({"step": "other"})
    agent.switch_branch("main")
    agent.rollback(3)

    again = Timeline("agent", store=DictKV(data).as_store())

    assert again.get_state()["step"] == 36
    again.undo()
    assert again.get_state()["step"] == 39
    again.merge("other")
    assert DictKV(data).as_store().check(read_data=True).ok


def test_a_store_with_deltas_is_migrated_onto_a_key_value_store() -> None:
    source = MemoryStore(backend_id="source")
    versions = growing(10)
    for version in versions:
        source.commit(SPACE, [version])
    written = TreeWriter().write({"a": 1})
    source.commit(SPACE, written.objects, moves=[Move(MAIN, None, written.root)])
    target = DictKV().as_store()

    migrate(source, target)

    assert target.refs(SPACE) == source.refs(SPACE)
    assert target.answers_to("source")


# How much a commit writes.


def test_a_commit_takes_four_calls() -> None:
    calls: list[str] = []

    class Noting(DictKV):
        def __getattribute__(self, name: str) -> Any:
            if name in ("get", "set", "keys", "compare_and_set", "get_many", "set_many"):
                calls.append(name)
            return super().__getattribute__(name)

        def get_many(self, keys: Any) -> Mapping[str, bytes]:
            return {key: self.data[key] for key in keys if key in self.data}

        def set_many(self, values: Mapping[str, bytes]) -> None:
            self.data.update(values)

    branch = History(Noting().as_store(), SPACE).open()
    branch.commit({"step": 1})
    calls.clear()

    branch.commit({"step": 2})

    assert calls == ["get", "get_many", "set_many", "compare_and_set"]


def test_the_record_of_a_space_stays_small_with_many_refs() -> None:
    kv = DictKV()
    store = kv.as_store()
    largest = 0
    for number in range(1500):
        one = value(str(number))
        store.commit(SPACE, [one], moves=[Move(ref_name("pin", str(number)), None, one.id)])
        largest = max(largest, len(kv.data[SPACES + SPACE]))

    assert largest < 6_000
    assert len(store.refs(SPACE)) == 1500
    copies = [key for key in kv.data if key.startswith(REFS)]
    assert len(copies) == 1


# Following a space.


@pytest.mark.parametrize("steps", [1, 15, 16, 17, 250, 700])
def test_a_store_object_that_comes_later_sees_the_same(steps: int) -> None:
    kv = DictKV()
    store = kv.as_store()
    numbered(store, steps)
    store.acquire(SPACE, "lease/x", "me", 10.0)

    assert seen(DictKV(kv.data).as_store()) == seen(store)
    assert store.check().ok


def test_store_objects_follow_each_other_at_any_distance() -> None:
    kv, choose = DictKV(), random.Random(3)
    stores = [DictKV(kv.data).as_store() for _ in range(3)]
    start = 0
    for _ in range(40):
        count = choose.choice([1, 2, 16, 40])
        numbered(choose.choice(stores), count, start)
        start += count
        follower = choose.choice(stores)
        assert follower.view(SPACE) == DictKV(kv.data).as_store().view(SPACE)

    assert len({str(seen(store)) for store in stores}) == 1


def test_a_copy_of_refs_that_is_replaced_while_it_is_wanted_is_no_error() -> None:
    kv = DictKV()
    store = kv.as_store()
    numbered(store, 230)

    class Late(DictKV):
        begun = False

        def get(self, key: str) -> bytes | None:
            if key.startswith(REFS) and not self.begun:
                self.begun = True
                numbered(store, 230, 1000)  # Makes a new copy, and removes this one.
            return super().get(key)

    late = Late(kv.data).as_store()

    assert late.view(SPACE) == store.view(SPACE)


def test_more_spaces_than_are_followed_can_be_used() -> None:
    store = DictKV().as_store()
    names = [f"test/{number}" for number in range(300)]
    for _ in range(2):
        for name in names:
            store.commit(name)

    assert [store.view(name).sequence for name in names] == [2] * 300
    assert store.spaces() == sorted(names)


# When the last moments are lost.


def test_a_store_object_goes_on_after_the_server_lost_the_last_moments() -> None:
    kv = KeptKV()
    store, other = kv.as_store(), KeptKV(kv.data).as_store()
    numbered(store, 20)
    before = dict(kv.data)
    numbered(store, 5, 100)
    lost = seen(store)

    kv.data.clear()
    kv.data.update(before)

    assert seen(store) == seen(KeptKV(kv.data).as_store()) != lost
    numbered(other, 30, 200)
    numbered(store, 3, 300)
    assert seen(store) == seen(other) == seen(KeptKV(kv.data).as_store())
    assert store.check().ok


def test_a_past_that_others_wrote_anew_is_not_mixed_with_the_lost_one() -> None:
    kv = KeptKV()
    store, other = kv.as_store(), KeptKV(kv.data).as_store()
    numbered(store, 20)
    before = dict(kv.data)
    numbered(store, 40, 100)
    store.view(SPACE)

    kv.data.clear()
    kv.data.update(before)
    numbered(other, 60, 200)  # Longer than what the first one knew, so it seems to go on.

    assert seen(store) == seen(KeptKV(kv.data).as_store())
    assert store.ref(SPACE, ref_name("pin", "100")) is None


def test_a_space_that_is_gone_is_not_shown_from_memory() -> None:
    kv = KeptKV()
    store = kv.as_store()
    numbered(store, 3)

    del kv.data[SPACES + SPACE]

    assert store.view(SPACE).sequence == 0
    assert store.refs(SPACE) == []


# Killed at any write.


class Dying(DictKV):
    """Does so many writes, and nothing more after that."""

    def __init__(self, data: dict[str, bytes], writes: int) -> None:
        super().__init__(data)
        self.writes = writes

    def _write(self) -> None:
        if self.writes <= 0:
            raise ConnectionError("killed")
        self.writes -= 1

    def set(self, key: str, value: bytes) -> None:
        self._write()
        super().set(key, value)

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        self._write()
        return super().compare_and_set(key, expected, value)


def test_whatever_write_is_the_last_all_that_was_acknowledged_is_there() -> None:
    whole = 0
    for writes in range(10_000):
        data: dict[str, bytes] = {}
        acknowledged: list[int] = []
        try:
            branch = History(KeyValueStore(Dying(data, writes)), SPACE).open()
            for step in range(20):
                branch.commit({"step": step, "text": f"step {step} " * 200})
                acknowledged.append(step)
        except Unavailable:
            pass
        else:
            whole += 1

        store = DictKV(data).as_store()
        branch = History(store, SPACE).open()
        assert branch.head is not None or not acknowledged
        history = History(store, SPACE)
        made = list(history.steps()) if branch.head else []
        steps = [history.value(one)["step"] for one in made]
        assert steps[::-1][: len(acknowledged)] == acknowledged
        assert len(steps) <= len(acknowledged) + 1
        store.gc(recent=1)
        assert store.check(read_data=True).problems == ()
        branch.commit({"step": "after"})
        if whole:
            break

    assert whole


def test_what_was_written_before_a_kill_and_never_pointed_to_is_collected() -> None:
    data: dict[str, bytes] = {}
    store = DictKV(data).as_store()
    point = TreeWriter().write("point")
    store.commit(SPACE, point.objects, moves=[Move(MAIN, None, point.root)])
    kept = {one.id for one in store.scan()}
    dying = KeyValueStore(Dying(data, writes=1))
    with pytest.raises(Unavailable):
        dying.commit(SPACE, [value("garbage")])
    assert {one.id for one in store.scan()} > kept

    assert store.gc(recent=1).freed == 1

    assert {one.id for one in store.scan()} == kept


def test_what_a_killed_writer_left_can_be_built_on() -> None:
    first, second = growing(2, size=400)
    data: dict[str, bytes] = {}
    store = DictKV(data).as_store()
    store.commit(SPACE, [first])
    dying = KeyValueStore(Dying(data, writes=1))
    with pytest.raises(Unavailable):
        dying.commit(SPACE, [second])
    assert [one.base for one in store.scan() if one.id == second.id] == [first.id]

    assert store.missing([second.id]) == []
    assert {one.id for one in store.scan()} == {first.id, second.id}
    store.commit(SPACE, moves=[Move(MAIN, None, second.id)])
    store.gc(recent=1)
    assert store.read([second.id])[0].payload == second.payload


def test_what_a_killed_writer_left_is_collected_with_what_it_is_stored_against() -> None:
    first, second = growing(2, size=400)
    data: dict[str, bytes] = {}
    store = DictKV(data).as_store()
    store.commit(SPACE, [first])
    with pytest.raises(Unavailable):
        KeyValueStore(Dying(data, writes=1)).commit(SPACE, [second])
    assert store.condemn([first.id]) == []  # Its writer may only be slow.

    assert store.gc(recent=1).freed == 2

    assert list(store.scan()) == []


def test_an_object_that_is_written_anew_while_it_is_read_is_read() -> None:
    first, second = growing(2, size=400)
    kv = DictKV()
    store = kv.as_store()
    store.commit(SPACE, [first])
    store.commit(SPACE, [second])

    class Late(DictKV):
        looks = 0

        def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
            self.looks += 1
            if self.looks == 2:  # It has read the second, and is about to read its base.
                other = DictKV(self.data).as_store()
                other.condemn([first.id, second.id])
                other.commit(SPACE, [second])
                assert other.delete([first.id, second.id]) == [first.id]
            return super().get_many(keys)

    late = Late(kv.data).as_store()

    assert late.read([second.id])[0].payload == second.payload


def test_a_version_costs_what_it_adds() -> None:
    kv = DictKV()
    store = kv.as_store()
    versions = growing(50, size=4000)
    for version in versions:
        store.commit(SPACE, [version])

    stored = sum(one.stored for one in store.scan())
    assert stored < 2.5 * len(versions[-1].payload)


def test_a_commit_whose_reply_was_lost_is_made_once() -> None:
    class LosesReplies(DictKV):
        losing = False

        def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
            done = super().compare_and_set(key, expected, value)
            if self.losing:
                self.losing = False
                raise TimeoutError("no reply")
            return done

    kv = LosesReplies()
    store = kv.as_store()
    store.commit(SPACE)
    one = value("one")
    kv.losing = True

    with pytest.raises(Unavailable, match="same write id"):
        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")

    done = store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")
    assert store.operations(SPACE, after=1) == [done]


# What a user's class may do wrong.


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ConnectionError("gone"), Unavailable),
        (TimeoutError("slow"), Unavailable),
        (OSError(5, "broken"), Unavailable),
        (RuntimeError("driver"), Unavailable),
        (StoreFull("no room"), StoreFull),
        (TypeError("a mistake"), TypeError),
        (AttributeError("a mistake"), AttributeError),
        (KeyError("a mistake"), KeyError),
    ],
)
def test_what_a_driver_raises_becomes_unavailable_and_a_mistake_stays_one(
    raised: Exception, expected: type[Exception]
) -> None:
    class Raising(DictKV):
        failing = False

        def get(self, key: str) -> bytes | None:
            if self.failing:
                raise raised
            return super().get(key)

    kv = Raising()
    store = kv.as_store()
    kv.failing = True

    with pytest.raises(expected) as caught:
        store.refs(SPACE)

    assert caught.value is raised or caught.value.__cause__ is raised


@pytest.mark.parametrize("given", ["text", bytearray(b"x"), 5, [b"x"]])
def test_what_is_no_bytes_is_refused_with_the_name_of_the_method(given: Any) -> None:
    class Wrong(DictKV):
        def get(self, key: str) -> Any:
            return given

    with pytest.raises(InvalidInput, match=r"Wrong\.get must give bytes"):
        Wrong().as_store()


@pytest.mark.parametrize("given", [None, 1, "OK", b"1"])
def test_an_answer_that_is_neither_yes_nor_no_is_refused(given: Any) -> None:
    class Wrong(DictKV):
        def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> Any:
            return given

    with pytest.raises(InvalidInput, match=r"Wrong\.compare_and_set must give True or False"):
        Wrong().as_store()


@pytest.mark.parametrize("given", [[b"ropewalk/header"], ["other"], [5]])
def test_keys_that_were_not_asked_for_are_refused(given: Any) -> None:
    class Wrong(DictKV):
        def keys(self, prefix: str) -> Any:
            return given

    with pytest.raises(InvalidInput, match=r"Wrong\.keys must give texts"):
        Wrong().as_store()


@pytest.mark.parametrize("given", [None, [b"x"], {"other": b"x"}, {b"ropewalk/": b"x"}])
def test_values_that_were_not_asked_for_are_refused(given: Any) -> None:
    class Wrong(DictKV):
        def get_many(self, keys: Iterable[str]) -> Any:
            return given

    with pytest.raises(InvalidInput, match=r"Wrong\.get_many must give"):
        Wrong().as_store().read([value("x").id])


@pytest.mark.parametrize("given", [[], [True, True], [1], [None]])
def test_as_many_answers_are_given_as_there_were_questions(given: Any) -> None:
    class Wrong(DictKV):
        def compare_and_set_many(self, changes: Any) -> Any:
            return given

    store = Wrong().as_store()
    store.commit(SPACE, [value("x")])

    with pytest.raises(InvalidInput, match=r"Wrong\.compare_and_set_many must give"):
        store.condemn([value("x").id])


def test_a_key_that_is_named_twice_is_one_key() -> None:
    class Twice(DictKV):
        def keys(self, prefix: str) -> Any:
            return [key for key in super().keys(prefix) for _ in range(2)]

    store = Twice().as_store()
    store.commit(SPACE, [value("one")])
    store.commit(OTHER_SPACE)

    assert len(list(store.scan())) == 1
    assert store.spaces() == sorted([SPACE, OTHER_SPACE])


def test_a_swap_that_never_succeeds_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.store._record_store._BUSY_SECONDS", 0.05)

    class Never(DictKV):
        stuck = False

        def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
            return False if self.stuck else super().compare_and_set(key, expected, value)

    kv = Never()
    store = kv.as_store()
    store.commit(SPACE)
    kv.stuck = True

    with pytest.raises(Unavailable, match="Nothing was written"):
        store.commit(SPACE)


def test_a_call_that_fails_because_the_store_was_closed_says_so() -> None:
    class Closable(DictKV):
        open = True

        def get(self, key: str) -> bytes | None:
            if key == SPACES + SPACE:
                store.close()
            if not self.open:
                raise ValueError("closed")
            return super().get(key)

        def close(self) -> None:
            self.open = False

    store = Closable().as_store()

    with pytest.raises(StoreClosed):
        store.refs(SPACE)


# Damage.


def damaged_ways(data: Mapping[str, bytes], key: str) -> list[bytes | None]:
    """The value of a key cut, changed, replaced and removed."""
    good, choose = data[key], random.Random(key)
    flipped = []
    for _ in range(12):
        bad = bytearray(good)
        bad[choose.randrange(len(bad))] ^= 1 << choose.randrange(8)
        flipped.append(bytes(bad))
    others = [data[other] for other in sorted(data) if other != key][:6]
    return [
        None,
        b"",
        b"garbage",
        good[:-1],
        good + b"x",
        good[: len(good) // 2],
        *flipped,
        *others,
    ]


def whatever(call: Callable[[], object]) -> object:
    try:
        return call()
    except RopewalkError as error:
        return error


def test_damage_anywhere_is_an_error_or_no_difference_and_never_another_answer() -> None:
    data: dict[str, bytes] = {}
    store = DictKV(data).as_store()
    written = [TreeWriter().write({"step": step, "x": "y" * 300}) for step in range(3)]
    before = None
    for step in written:
        store.commit(SPACE, step.objects, moves=[Move(MAIN, before, step.root)])
        before = step.root
    numbered(store, 210)
    assert any(key.startswith(REFS) for key in data) and any(key.startswith(LOGS) for key in data)
    ids = [one.id for item in written for one in item.objects]

    def answers(of: Callable[[], Store]) -> list[object]:
        opened = whatever(of)
        if not isinstance(opened, Store):
            return [opened]
        return [
            whatever(lambda: opened.view(SPACE)),
            whatever(lambda: opened.operations(SPACE, limit=5000)),
            *(whatever(lambda id=id: opened.read([id])) for id in ids),  # type: ignore[misc]
        ]

    good = answers(lambda: DictKV(data).as_store())
    keys = sorted(data)
    some = [key for key in keys if not key.startswith(("ropewalk/object/", LOGS))]
    some += [object_key(id) for id in ids] + [key for key in keys if key.startswith(LOGS)][::6]
    for key in keys if SOAK else some:
        for bad in damaged_ways(data, key):
            damaged = dict(data)
            if bad is None:
                del damaged[key]
            else:
                damaged[key] = bad
            found = answers(lambda damaged=damaged: DictKV(damaged).as_store())  # type: ignore[misc]
            if key == SPACES + SPACE and bad is None:
                continue  # A space that is not there has no operations, which is an answer.
            if len(found) > 1:
                for one, expected in zip(found, good, strict=True):
                    assert isinstance(one, RopewalkError) or one == expected, (key, bad)


PLAIN = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(PLAIN, st.binary(max_size=30))
def test_a_record_of_any_other_content_is_a_format_error(content: object, loose: bytes) -> None:
    decoders: list[tuple[str, Callable[[str, bytes], object]]] = [
        (SPACES + SPACE, lambda key, data: decode_record(SPACE, data)),
        (LOGS + SPACE, decode_page),
        (REFS + SPACE, decode_refs),
    ]
    for key, decode in decoders:
        for data in (seal(key, content), loose, seal(key, [1, b"x" * 8, content])):
            try:
                decode(key, data)
            except FormatError:
                continue
    decode_cell(loose)


@pytest.mark.parametrize("key", [HEADER, EPOCH, SPACES + SPACE])
def test_bytes_of_somebody_else_are_a_format_error(key: str) -> None:
    kv = DictKV()
    kv.as_store().commit(SPACE)
    kv.data[key] = b"somebody else's"

    with pytest.raises(FormatError, match=key):
        DictKV(kv.data).as_store().raise_epochs()


def test_a_check_names_what_is_no_object() -> None:
    kv = DictKV()
    store = kv.as_store()
    store.commit(SPACE, [TreeWriter().write("x").objects[0]])
    (key,) = [key for key in kv.data if key.startswith("ropewalk/object/")]
    kv.data[key] = b"?"
    kv.data["ropewalk/object/nonsense"] = b"A"

    problems = store.check(read_data=True).problems

    assert {one.subject for one in problems} == {key, "ropewalk/object/nonsense"}
    assert list(store.scan()) == []


def test_an_object_whose_cell_is_damaged_can_be_written_again() -> None:
    kv = DictKV()
    store = kv.as_store()
    one = value("one")
    store.commit(SPACE, [one])
    (key,) = [key for key in kv.data if key.startswith("ropewalk/object/")]
    kv.data[key] = b"?"
    with pytest.raises(Corrupt):
        store.read([one.id])

    store.commit(SPACE, [one])

    assert store.read([one.id]) == [one]


def test_a_page_that_is_gone_is_reported() -> None:
    kv = DictKV()
    store = kv.as_store()
    numbered(store, 30)
    lost = min(key for key in kv.data if key.startswith(LOGS))
    del kv.data[lost]

    with pytest.raises(Corrupt, match=lost):
        store.operations(SPACE)
    assert [one.code for one in store.check().problems] == ["bad-log"]


def test_what_is_left_of_a_store_is_not_taken_for_a_new_one() -> None:
    kv = DictKV()
    kv.as_store().commit(SPACE)
    del kv.data[HEADER]
    left = dict(kv.data)

    with pytest.raises(Corrupt, match="is gone"):
        DictKV(kv.data).as_store()

    assert kv.data == left


def test_a_newer_format_is_refused() -> None:
    kv = DictKV()
    kv.data[HEADER] = seal(HEADER, encode_header(Header(bytes(16), format=99)))

    with pytest.raises(NewerFormat):
        kv.as_store()
