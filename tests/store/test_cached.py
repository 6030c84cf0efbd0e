"""The contract, on a store with a cache in front, and what the cache promises itself."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ropewalk
from ropewalk.compat import Cache, Disk
from ropewalk.errors import Corrupt, InvalidInput, MissingObjects, StoreClosed
from ropewalk.store import CachedStore, FileStore, MemoryStore, Move, SqliteStore, Store
from ropewalk.store.record import Node, Place
from ropewalk.testing import Fault, FaultStore
from ropewalk.testing.helpers import (
    MAIN,
    PATIENCE,
    SPACE,
    Opener,
    growing,
    in_threads,
    noise,
    read,
    value,
)
from ropewalk.tree import ObjectId, TreeWriter
from tests.store.memory import MemoryContract, lose
from tests.store.sqlite.contract import SqliteContract


class TestCacheOnMemory(MemoryContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CachedStore)
        store.clear()
        return super().damage(store.inner, id)

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CachedStore)
        store.clear()
        return super().lose(store.inner, id)

    @pytest.fixture
    def open_store(self) -> Opener:
        first = MemoryStore()
        return lambda clock: CachedStore(first.another(clock=clock))


class TestCacheOnTheEmbeddedStore(SqliteContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CachedStore)
        store.clear()
        return super().damage(store.inner, id)

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CachedStore)
        store.clear()
        return super().lose(store.inner, id)

    @pytest.fixture
    def open_store(self, memory_folder: Path) -> Opener:
        folder = memory_folder / "store"
        return lambda clock: CachedStore(SqliteStore(folder, clock=clock))


class TestCacheOfNoBytes(TestCacheOnMemory):
    @pytest.fixture
    def open_store(self) -> Opener:
        first = MemoryStore()
        return lambda clock: CachedStore(first.another(clock=clock), max_bytes=0)


@pytest.fixture
def behind() -> FaultStore:
    """A store that counts what it is asked."""
    return FaultStore(MemoryStore())


@pytest.fixture
def cached(behind: FaultStore) -> Iterator[CachedStore]:
    with CachedStore(behind) as store:
        yield store


def asked(behind: FaultStore, method: str = "read") -> int:
    return behind.calls.count(method)


# What is kept.


def test_what_was_read_is_not_asked_for_again(behind: FaultStore, cached: CachedStore) -> None:
    one, two = value("one"), value("two")
    behind.commit(SPACE, [one, two])

    assert read(cached, [one.id, two.id, one.id]) == [one, two, one]
    assert read(cached, [two.id, one.id]) == [two, one]

    assert asked(behind) == 1
    assert cached.info()[:3] == (2, 2, 2)


def test_only_what_is_not_held_is_asked_for(behind: FaultStore, cached: CachedStore) -> None:
    one, two = value("one"), value("two")
    behind.commit(SPACE, [one])
    read(cached, [one.id])
    behind.commit(SPACE, [two])

    assert read(cached, [two.id, one.id]) == [two, one]

    assert cached.info()[:2] == (1, 2)


def test_what_was_committed_is_remembered(behind: FaultStore, cached: CachedStore) -> None:
    versions = growing(5)
    for version in versions:
        cached.commit(SPACE, [version])
    before = asked(behind)

    found = read(cached, [one.id for one in versions])

    assert [one.payload for one in found] == [one.payload for one in versions]
    assert asked(behind) == before


def test_a_commit_that_failed_is_not_remembered(cached: CachedStore) -> None:
    one = value("one")
    with pytest.raises(MissingObjects):
        cached.commit(SPACE, [one], needs=[value("absent").id])

    with pytest.raises(MissingObjects):
        read(cached, [one.id])


def test_missing_objects_are_named_although_others_are_held(cached: CachedStore) -> None:
    here, gone = value("here"), value("gone")
    cached.commit(SPACE, [here])

    with pytest.raises(MissingObjects) as caught:
        read(cached, [here.id, gone.id])

    assert caught.value.ids == (gone.id,)


def test_what_was_not_used_for_longest_goes_first() -> None:
    objects = [value(noise(10_000, seed)) for seed in range(4)]
    first, second, third, fourth = objects
    behind = MemoryStore()
    behind.commit(SPACE, objects)
    cached = CachedStore(behind, max_bytes=32_000)
    for one in (first, second, third, first, fourth):
        read(cached, [one.id])
    hits = cached.info().hits

    read(cached, [first.id, third.id, fourth.id])

    assert cached.info().hits == hits + 3
    read(cached, [second.id])
    assert cached.info().hits == hits + 3


@pytest.mark.parametrize("max_bytes", [0, 100, 5_000, 50_000])
def test_the_cache_never_holds_more_than_it_may(max_bytes: int) -> None:
    cached = CachedStore(MemoryStore(), max_bytes)
    objects = [value(noise(seed * 37 % 3000, seed)) for seed in range(200)]

    for one in objects:
        cached.commit(SPACE, [one])
        assert read(cached, [one.id]) == [one]
        assert cached.info().held_bytes <= max_bytes

    assert cached.info().max_bytes == max_bytes


def test_an_object_that_is_larger_than_the_cache_pushes_nothing_out() -> None:
    cached = CachedStore(MemoryStore(), max_bytes=5_000)
    small, large = value("small"), value(noise(6_000))
    cached.commit(SPACE, [small])
    cached.commit(SPACE, [large])

    assert read(cached, [large.id, small.id]) == [large, small]

    assert cached.info()[:3] == (1, 1, 1)


def test_what_is_held_can_be_forgotten(behind: FaultStore, cached: CachedStore) -> None:
    one = value("one")
    cached.commit(SPACE, [one])

    cached.clear()

    assert cached.info()[2:4] == (0, 0)
    assert read(cached, [one.id]) == [one]
    assert asked(behind) == 1


# What is never kept.


def test_a_ref_that_another_moved_is_seen_at_once(tmp_path: Path) -> None:
    with CachedStore(SqliteStore(tmp_path / "s")) as cached, SqliteStore(tmp_path / "s") as other:
        before = value("0")
        cached.commit(SPACE, [before], moves=[Move(MAIN, None, before.id)])
        for step in range(1, 20):
            after = value(str(step))
            other.commit(SPACE, [after], moves=[Move(MAIN, before.id, after.id)])

            ref = cached.ref(SPACE, MAIN)
            assert ref is not None and read(cached, [ref.target]) == [after]
            assert cached.view(SPACE).sequence == step + 1
            assert cached.operations(SPACE, after=step)[0].moves[0].target == after.id
            before = after


def test_what_is_shared_is_kept_too(behind: FaultStore, cached: CachedStore) -> None:
    one = value("one")
    behind.commit(SPACE, [one], share=True)

    assert cached.read([one.id]) == cached.read([one.id]) == [one]

    assert asked(behind) == 1


def test_what_another_collected_of_an_embedded_store_is_missing_once_it_committed(
    tmp_path: Path,
) -> None:
    with CachedStore(SqliteStore(tmp_path / "s")) as cached, SqliteStore(tmp_path / "s") as other:
        gone, kept = value("gone"), value("kept")
        cached.commit(SPACE, [gone, kept], moves=[Move(MAIN, None, kept.id)])
        assert read(cached, [gone.id, kept.id]) == [gone, kept]
        other.gc()

        cached.commit(SPACE)

        with pytest.raises(MissingObjects) as caught:
            read(cached, [gone.id, kept.id])
        assert caught.value.ids == (gone.id,)
        assert read(cached, [kept.id]) == [kept]


def test_a_lease_that_another_took_is_seen_at_once() -> None:
    first = MemoryStore()
    cached = CachedStore(first.another())
    lease = cached.acquire(SPACE, "lease/x", "me", 10.0)
    assert cached.release(lease)

    first.acquire(SPACE, "lease/x", "you", 10.0)

    assert [one.holder for one in cached.leases(SPACE)] == ["you"]


# Objects that go.


def test_what_it_deleted_itself_is_missing_at_once(cached: CachedStore) -> None:
    one = value("one")
    cached.commit(SPACE, [one])
    assert read(cached, [one.id]) == [one]

    cached.gc()

    with pytest.raises(MissingObjects):
        read(cached, [one.id])


def test_what_it_took_out_itself_is_missing_at_once(cached: CachedStore) -> None:
    one = value("one")
    cached.commit(SPACE, [one], share=True)
    assert cached.read([one.id]) == [one]

    cached.discard([one.id])

    with pytest.raises(MissingObjects):
        cached.read([one.id])


def test_what_it_deleted_is_missing_although_the_reply_was_lost() -> None:
    one = value("one")
    cached = CachedStore(FaultStore(MemoryStore(), [Fault.lost_reply(1, method="gc")]))
    cached.commit(SPACE, [one])

    with pytest.raises(ropewalk.Unavailable):
        cached.gc()

    with pytest.raises(MissingObjects):
        read(cached, [one.id])


@pytest.mark.parametrize("learn", ["commit", "view", "gc"])
def test_what_another_collected_is_missing_once_the_epoch_was_seen(learn: str) -> None:
    first = MemoryStore()
    cached = CachedStore(first.another())
    gone, kept = value("gone"), value("kept")
    cached.commit(SPACE, [gone, kept], moves=[Move(MAIN, None, kept.id)])
    read(cached, [gone.id, kept.id])
    first.gc()
    looks: dict[str, Callable[[], object]] = {
        "commit": lambda: cached.commit(SPACE),
        "view": lambda: cached.view(SPACE),
        "gc": cached.gc,
    }

    looks[learn]()

    with pytest.raises(MissingObjects) as caught:
        read(cached, [gone.id, kept.id])
    assert caught.value.ids == (gone.id,)
    assert read(cached, [kept.id]) == [kept]
    assert cached.missing([gone.id], SPACE) == [gone.id]


def test_after_a_collection_each_object_is_looked_up_once(
    behind: FaultStore, cached: CachedStore
) -> None:
    one = value("one")
    cached.commit(SPACE, [one, value("gone")], moves=[Move(MAIN, None, one.id)])
    assert behind.gc().freed == 1
    cached.view(SPACE)
    before = asked(behind, "missing")

    for _ in range(5):
        assert read(cached, [one.id]) == [one]

    assert asked(behind, "missing") == before + 1
    assert asked(behind) == 0


def test_what_is_deleted_while_it_is_read_does_not_stay() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def _node(self, space: str, id: ObjectId, place: Place) -> Node | None:
            found = super()._node(space, id, place)
            if threading.current_thread() is reading:
                entered.set()
                assert go_on.wait(PATIENCE)
            return found

    one = value("one")
    slow = Slow()
    slow.commit(SPACE, [one])
    cached = CachedStore(slow)
    reading = threading.Thread(target=lambda: read(cached, [one.id]))
    reading.start()
    assert entered.wait(PATIENCE)

    cached.gc()
    go_on.set()
    reading.join(PATIENCE)

    with pytest.raises(MissingObjects):
        read(cached, [one.id])


def test_care_sees_the_store_and_not_the_cache() -> None:
    memory = MemoryStore()
    cached = CachedStore(memory)
    written = TreeWriter().write({"a": list(range(2000))})
    cached.commit(SPACE, written.objects, moves=[Move(MAIN, None, written.root)])
    read(cached, [one.id for one in written.objects])
    lost = written.objects[0].id
    lose(memory, lost)

    assert read(cached, [lost]) == [written.objects[0]]
    assert [one.subject for one in cached.check().problems] == [lost.hex()]
    with pytest.raises(Corrupt):
        cached.gc()


# Threads, names, life.


def test_threads_share_a_cache() -> None:
    behind = MemoryStore()
    objects = [value(noise(2_000, seed)) for seed in range(60)]
    behind.commit(SPACE, objects)
    cached = CachedStore(behind, max_bytes=40_000)

    def work(number: int) -> None:
        for round in range(40):
            some = [objects[(number * 7 + round * 3 + at) % 60] for at in range(5)]
            assert read(cached, [one.id for one in some]) == some
            if round % 10 == number:
                cached.clear()

    in_threads(6, work)

    info = cached.info()
    assert info.held_bytes <= 40_000
    assert info.hits + info.misses == 6 * 40 * 5


def test_a_cache_is_like_what_is_behind_it(tmp_path: Path) -> None:
    inner = FileStore(
        tmp_path / "s",
        backend_id="mine",
        backend_aliases=["old"],
        default_ttl_seconds=60,
        size_limit=1 << 30,
        durability="relaxed",
    )
    with CachedStore(inner) as cached:
        assert cached.answers_to("mine") and cached.answers_to("old")
        assert cached.size_limit == 1 << 30
        assert cached.default_ttl_seconds == 60.0
        assert (cached.durability, cached.header) == ("relaxed", inner.header)
        assert cached.capabilities == inner.capabilities
        assert cached.poll_seconds == inner.poll_seconds
        assert cached._disk_bytes() == inner._disk_bytes()
        assert repr(cached) == "<CachedStore in front of <FileStore 'mine'>>"


def test_closing_a_cache_closes_what_is_behind_it() -> None:
    inner = MemoryStore()
    cached = CachedStore(inner)

    cached.close()

    with pytest.raises(StoreClosed):
        inner.spaces()
    assert "closed" in repr(cached)


def test_what_is_held_is_not_read_when_the_store_behind_was_closed(cached: CachedStore) -> None:
    one = value("one")
    cached.commit(SPACE, [one])

    cached.inner.close()

    with pytest.raises(StoreClosed):
        read(cached, [one.id])


def test_an_agent_works_on_a_cache(tmp_path: Path) -> None:
    store = Cache(Disk(tmp_path / "s"), max_bytes=64 * 1024 * 1024)
    with ropewalk.Timeline("agent", store=store) as agent:
        for step in range(10):
            agent.checkpoint({"step": step, "notes": ["note"] * step})
        agent.rollback()

        assert agent.get_state() == {"step": 8, "notes": ["note"] * 8}
    store.close()
    with Disk(tmp_path / "s") as again:
        assert again.check(read_data=True).ok


@pytest.mark.parametrize("max_bytes", [-1, 1.5, True, None, "64"])
def test_a_cache_has_a_size(max_bytes: Any) -> None:
    with pytest.raises(InvalidInput, match="max_bytes"):
        CachedStore(MemoryStore(), max_bytes)


@pytest.mark.parametrize("store", [None, "path", {}, MemoryStore])
def test_a_cache_is_in_front_of_a_store(store: Any) -> None:
    with pytest.raises(InvalidInput, match="in front of a store"):
        CachedStore(store)


def calls_of(action: Callable[[], object]) -> int:
    """How many functions are called by an action, also those that are written in C."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event.endswith("call")

    gc.disable()  # A collection has callbacks, which would be counted.
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_a_step_is_as_much_work_with_many_entries_as_with_few() -> None:
    def work_with(entries: int) -> tuple[int, int]:
        store = MemoryStore()
        objects = [value(f"{number:06}") for number in range(entries)]
        store.commit(SPACE, objects)
        cached = CachedStore(store, max_bytes=(entries - 1) * 262)  # The first has to go.
        read(cached, [one.id for one in objects])
        held, gone = objects[-1].id, objects[0].id
        return calls_of(lambda: read(cached, [held])), calls_of(lambda: read(cached, [gone]))

    assert work_with(10) == work_with(5_000)
