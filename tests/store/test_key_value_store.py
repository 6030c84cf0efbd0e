"""What the store on a key-value store does beyond the contract."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ropewalk
from ropewalk import Timeline, compat
from ropewalk.errors import (
    Corrupt,
    FormatError,
    InvalidInput,
    NewerFormat,
    NotAllowed,
    RopewalkError,
    StoreClosed,
    StoreFull,
    Unavailable,
)
from ropewalk.history import History
from ropewalk.store import KeyValueStore, KVStore, MemoryStore, Move, Store, migrate, ref_name
from ropewalk.store.engine import encode_header
from ropewalk.store.model import Header
from ropewalk.store.records.cells import (
    HEADER,
    PACKS,
    PARTS,
    SHARED,
    SPACES,
    seal,
)
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, growing, in_threads, noise, value
from ropewalk.tree import TreeWriter
from tests.conftest import SOAK
from tests.patience import wait_until
from tests.store.key_values import DictKV, KeptKV
from tests.store.records.contract import EagerKeyValueStore


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
    assert ropewalk.KVStore is compat.KVStore is KVStore
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
    agent = Timeline("agent", store=DictKV(data))
    for step in range(40):
        agent.checkpoint({"step": step, "notes": ["a note"] * step})
    agent.branch("other")
    agent.checkpoint({"step": "other"})
    agent.switch_branch("main")
    agent.rollback(3)

    again = Timeline("agent", store=DictKV(data))

    assert again.get_state()["step"] == 36
    again.undo()
    assert again.get_state()["step"] == 39
    again.merge("other")
    assert Timeline.agents(DictKV(data)) == ["agent"]
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


class Noting(KeptKV):
    """Notes which methods are called."""

    def __init__(self, data: dict[str, bytes] | None = None) -> None:
        super().__init__(data)
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("get", "set", "keys", "compare_and_set", "get_many", "set_many"):
            self.calls.append(name)
        return super().__getattribute__(name)

    def get_many(self, keys: Any) -> Mapping[str, bytes]:
        return {key: self.data[key] for key in keys if key in self.data}

    def set_many(self, values: Mapping[str, bytes]) -> None:
        self.data.update(values)


def test_a_commit_takes_one_call_and_a_large_one_two() -> None:
    kv = Noting()
    branch = History(kv.as_store(), SPACE).open()
    branch.commit({"step": 1})
    kv.calls.clear()

    branch.commit({"step": 2})

    assert kv.calls == ["compare_and_set"]
    kv.calls.clear()
    branch.commit({"step": 3, "noise": noise(20_000)})
    assert kv.calls == ["set_many", "compare_and_set"]


def test_a_commit_after_another_writers_looks_once_and_tries_again() -> None:
    kv = Noting()
    branch = History(kv.as_store(), SPACE).open()
    branch.commit({"step": 1})
    DictKV(kv.data).as_store().commit(SPACE)
    kv.calls.clear()

    branch.commit({"step": 2})

    assert kv.calls == ["compare_and_set", "get", "compare_and_set"]


def test_the_cell_of_a_space_stays_small_with_many_refs() -> None:
    kv = DictKV()
    store = kv.as_store()
    for number in range(1500):
        one = value(str(number))
        store.commit(SPACE, [one], moves=[Move(ref_name("pin", str(number)), None, one.id)])
        if number % 100 == 99:  # A commit waits for no packer, so let that one catch up.
            wait_until(lambda: len(kv.data[SPACES + SPACE]) < 100_000)

    assert len(store.refs(SPACE)) == 1500
    store.close()
    assert len([key for key in kv.data if key.startswith(PARTS)]) < 1500 / 64 + 8


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


def test_a_part_that_is_replaced_while_it_is_wanted_is_no_error() -> None:
    kv = DictKV()
    store = EagerKeyValueStore(kv)
    numbered(store, 30)

    class Late(DictKV):
        begun = False

        def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
            asked = list(keys)
            if any(key.startswith(PARTS) for key in asked) and not self.begun:
                self.begun = True
                numbered(store, 10, 1000)  # Writes new parts, and removes these.
                assert not any(key in kv.data for key in asked)
            return super().get_many(asked)

    late = Late(kv.data).as_store()

    assert seen(late) == seen(store)


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


def test_a_space_that_is_gone_is_missed() -> None:
    kv = KeptKV()
    store = kv.as_store()
    numbered(store, 3)

    del kv.data[SPACES + SPACE]

    for one in (store, KeptKV(kv.data).as_store()):
        for look in (one.view, one.refs, one.operations, one.commit):
            with pytest.raises(Corrupt, match=SPACE):
                look(SPACE)
        assert one.spaces() == [SPACE]
        assert [problem.code for problem in one.check().problems] == ["bad-log"]


def test_what_follows_upon_a_lost_past_does_not_lean_on_it() -> None:
    kv = KeptKV()
    store = kv.as_store()
    branch = History(store, SPACE).open()
    for step in range(4):
        branch.commit({"step": step, "text": "the same words again " * 20})
    before = dict(kv.data)
    branch.commit({"step": "lost", "text": "the same words again " * 20})
    kv.data.clear()
    kv.data.update(before)
    other = History(KeptKV(kv.data).as_store(), SPACE).open()
    other.commit({"step": "other", "text": "quite other words " * 20})

    mine = History(store, SPACE).open()
    mine.commit({"step": "mine", "text": "the same words again " * 20})

    again = History(KeptKV(kv.data).as_store(), SPACE)
    assert [again.value(one)["step"] for one in again.steps()][:2] == ["mine", "other"]
    assert again.store.check(read_data=True).ok


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


@pytest.mark.parametrize("engine", [KeyValueStore, EagerKeyValueStore])
def test_whatever_write_is_the_last_all_that_was_acknowledged_is_there(
    engine: type[KeyValueStore],
) -> None:
    whole = 0
    for writes in range(10_000):
        data: dict[str, bytes] = {}
        acknowledged: list[int] = []
        try:
            branch = History(engine(Dying(data, writes)), SPACE).open()
            for step in range(20 if SOAK else 9):
                large = noise(40_000, seed=step) if step % 7 == 3 else b""
                branch.commit({"step": step, "text": f"step {step} " * 200, "large": large})
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


def test_what_a_killed_writer_left_is_nobodys_and_is_collected() -> None:
    data: dict[str, bytes] = {}
    store = DictKV(data).as_store()
    History(store, SPACE).open().commit({"step": 1})
    kept = set(data)
    for writes in (1, 2):
        dying = History(KeyValueStore(Dying(data, writes)), SPACE).open()
        with pytest.raises(Unavailable):
            dying.commit({"step": 2, "large": noise(40_000, seed=2)})
    aside = KeyValueStore(Dying(data, writes=1))
    with pytest.raises(Unavailable):
        History(aside, SPACE).open().commit({"step": 2, "noise": noise(20_000, seed=3)})
    left = {key.split("/")[1] for key in data.keys() - kept}
    assert left == {"pack", "part"}

    store.gc(recent=1)
    store.gc(recent=1)

    assert {key.split("/")[1] for key in data.keys() - kept} == {"part"}  # All that is packed.
    assert DictKV(data).as_store().check(read_data=True).ok
    assert list(store._shared.scan()) == []


def test_a_version_costs_what_it_adds() -> None:
    kv = DictKV()
    store = kv.as_store()
    versions = growing(50, size=4000)
    for version in versions:
        store.commit(SPACE, [version])

    store.close()
    stored = sum(map(len, kv.data.values()))
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


@pytest.mark.parametrize("engine", [KeyValueStore, EagerKeyValueStore])
def test_a_swap_that_happened_although_somebody_said_no_harms_nothing(
    engine: type[KeyValueStore],
) -> None:
    class SaysNo(KeptKV):
        at = 10**9
        swaps = 0

        def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
            done = super().compare_and_set(key, expected, value)
            self.swaps += value is not None
            return done and self.swaps != self.at

    at, swaps = 0, 1
    while at < swaps:
        at += 1
        kv = SaysNo()
        store = engine(kv)
        branch = History(store, SPACE).open()
        kv.at, kv.swaps = at, 0
        for step in range(6):
            large = noise(40_000, seed=step) if step % 3 == 1 else b""
            branch.commit({"step": step, "large": large})
        store.gc(recent=2)
        swaps, kv.at = kv.swaps, 10**9

        again = History(KeptKV(kv.data).as_store(), SPACE)
        assert [again.value(one)["step"] for one in again.steps()] == [5, 4, 3, 2, 1, 0]
        assert again.store.check(read_data=True).problems == ()


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
        Wrong().as_store().commit(SPACE)


@pytest.mark.parametrize("given", [[], [True, True], [1], [None]])
def test_as_many_answers_are_given_as_there_were_questions(given: Any) -> None:
    class Wrong(DictKV):
        def compare_and_set_many(self, changes: Any) -> Any:
            return given

    store = EagerKeyValueStore(Wrong())

    with pytest.raises(InvalidInput, match=r"Wrong\.compare_and_set_many must give"):
        store.commit(SPACE, [value("x")])


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
    monkeypatch.setattr("ropewalk.store.records.store.BUSY_SECONDS", 0.05)

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


@pytest.mark.parametrize("engine", [KeyValueStore, EagerKeyValueStore])
def test_damage_anywhere_is_an_error_or_no_difference_and_never_another_answer(
    engine: type[KeyValueStore],
) -> None:
    data: dict[str, bytes] = {}
    store = engine(KeptKV(data))
    written = [TreeWriter().write({"step": step, "x": "y" * 300}) for step in range(3)]
    before = None
    for step in written:
        store.commit(SPACE, step.objects, moves=[Move(MAIN, before, step.root)])
        before = step.root
    shared = value("what others need")
    store.commit(OTHER_SPACE, [shared], moves=[Move(MAIN, None, shared.id)], share=True)
    numbered(store, 5)
    ids = [one.id for item in written for one in item.objects]

    def answers(of: Callable[[], Store]) -> list[object]:
        opened = whatever(of)
        if not isinstance(opened, Store):
            return [opened]
        return [
            whatever(lambda: opened.view(SPACE)),
            whatever(lambda: opened.operations(SPACE, limit=5000)),
            whatever(opened.spaces),
            whatever(lambda: opened.read([shared.id])),
            *(whatever(lambda id=id: opened.reader(SPACE)([id])) for id in ids),  # type: ignore[misc]
        ]

    good = answers(lambda: KeptKV(data).as_store())
    assert not [one for one in good if isinstance(one, RopewalkError)]
    for key in sorted(data):
        for bad in damaged_ways(data, key):
            damaged = dict(data)
            if bad is None:
                del damaged[key]
            else:
                damaged[key] = bad
            found = answers(lambda damaged=damaged: KeptKV(damaged).as_store())  # type: ignore[misc]
            if len(found) > 1:
                for one, expected in zip(found, good, strict=True):
                    assert isinstance(one, RopewalkError) or one == expected, (key, bad)


PLAIN = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(PLAIN, st.binary(max_size=30))
def test_a_cell_of_any_other_content_is_a_format_error(content: object, loose: bytes) -> None:
    for key in (SPACES + SPACE, SHARED):
        for data in (seal(key, content), loose, seal(key, [1, 1, 1, 0, "", 0, [], [content]])):
            kv = KeptKV()
            store = kv.as_store()
            kv.data[key] = data
            with suppress(FormatError):
                store.refs(SPACE)
            with suppress(FormatError):
                store.missing([bytes(32)])


@pytest.mark.parametrize("key", [HEADER, SHARED, SPACES + SPACE])
def test_bytes_of_somebody_else_are_a_format_error(key: str) -> None:
    kv = DictKV()
    kv.as_store().commit(SPACE)
    kv.data[key] = b"somebody else's"

    with pytest.raises(FormatError, match=key):
        DictKV(kv.data).as_store().commit(SPACE, [value("x")], share=True)


def test_a_shared_object_that_is_damaged_can_be_taken_out_and_written_again() -> None:
    kv = DictKV()
    store = kv.as_store()
    one = value("one")
    store.commit(SPACE, [one], share=True)
    (key,) = [key for key in kv.data if key.startswith(PACKS)]
    kv.data[key] = b"?"
    with pytest.raises(Corrupt):
        store.read([one.id])
    assert [problem.code for problem in store.check(read_data=True).problems] == ["damaged-object"]

    store.discard([one.id])
    store.commit(SPACE, [one], share=True)

    assert store.read([one.id]) == [one]


def test_a_segment_that_is_gone_is_reported() -> None:
    kv = DictKV()
    store = EagerKeyValueStore(kv)
    numbered(store, 10)
    with store._log.looking(SPACE) as space:
        lost = f"{PARTS}{SPACE}/{space.index(space.indexes[0].name).segments[0][2]}"
    del kv.data[lost]

    with pytest.raises(Corrupt, match=lost):
        DictKV(kv.data).as_store().operations(SPACE)
    assert [one.code for one in DictKV(kv.data).as_store().check().problems] == ["bad-log"]


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


def test_a_store_from_before_the_first_release_is_refused() -> None:
    kv = DictKV({HEADER: b"ropewalk\x01" + bytes(40)})

    with pytest.raises(NotAllowed, match="has format 1, from before the first release"):
        kv.as_store()

    assert list(kv.data) == [HEADER]
