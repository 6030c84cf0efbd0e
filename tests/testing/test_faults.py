"""A store that fails as it is told, and is like the one behind it otherwise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk.errors import InvalidInput, StoreClosed, StoreFull, Unavailable
from ropewalk.store import MemoryStore, Move, SqliteStore, Store, ref_name
from ropewalk.testing import Fault, FaultStore
from ropewalk.testing.faults import METHODS
from ropewalk.testing.helpers import MAIN, SPACE, Opener, in_threads, noise, point, value
from ropewalk.tree import Kind, ObjectId, make_object
from tests.store.memory import MemoryContract
from tests.store.sqlite.contract import SqliteContract

ONE, TWO = value("one"), value("two")


class TestFaultStoreOnMemory(MemoryContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FaultStore)
        return super().damage(store.inner, id)

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FaultStore)
        return super().lose(store.inner, id)

    @pytest.fixture
    def open_store(self) -> Opener:
        memory = MemoryStore()
        return lambda clock: FaultStore(memory.another(clock=clock))


class TestFaultStoreOnAFolder(SqliteContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FaultStore)
        return super().damage(store.inner, id)

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FaultStore)
        return super().lose(store.inner, id)

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        return lambda clock: FaultStore(SqliteStore(tmp_path / "store", clock=clock))


def test_every_call_can_be_made_to_fail(tmp_path: Path) -> None:
    store = FaultStore(SqliteStore(tmp_path / "store"))
    name = ref_name("lease", "x")
    point(store, ONE)
    store.ref(SPACE, MAIN)
    store.view(SPACE)
    store.spaces()
    store.operations(SPACE)
    store.find(SPACE, b"key")
    store.missing([ONE.id])
    store.read([])
    store.reader(SPACE)([ONE.id])
    list(store.scan())
    store.release(store.acquire(SPACE, name, "me", 10.0))
    store.leases(SPACE)
    store.check()
    store.gc()
    calls = store.calls
    store.close()

    assert set(calls) <= METHODS
    assert calls.count("read") == 2
    for method in dict.fromkeys(calls):
        assert Fault.error(1, method=method).method == method


def test_calls_are_listed_in_order() -> None:
    store = FaultStore(MemoryStore())
    point(store, ONE)
    store.ref(SPACE, MAIN)
    store.reader(SPACE)([ONE.id])

    assert store.calls == ["commit", "ref", "read"]
    assert store.met == []


def test_an_error_comes_before_the_call() -> None:
    memory = MemoryStore()
    store = FaultStore(memory, [Fault.error(at=2)])
    store.view(SPACE)

    with pytest.raises(Unavailable, match=r"call 2 \(commit\)"):
        point(store, ONE)

    assert memory.operations(SPACE) == []
    point(store, ONE)
    assert store.calls == ["view", "commit", "commit"]
    assert store.met == [Fault.error(at=2)]


def test_an_error_may_be_any_exception() -> None:
    store = FaultStore(MemoryStore(), [Fault.error(at=1, raises=ConnectionResetError("gone"))])

    with pytest.raises(ConnectionResetError, match="gone"):
        store.spaces()


def test_a_lost_reply_comes_after_the_call() -> None:
    memory = MemoryStore()
    store = FaultStore(memory, [Fault.lost_reply(at=1)])

    with pytest.raises(Unavailable, match="same write id"):
        store.commit(SPACE, [ONE], moves=[Move(MAIN, None, ONE.id)], write_id="w")

    recorded = memory.operations(SPACE)
    again = store.commit(SPACE, [ONE], moves=[Move(MAIN, None, ONE.id)], write_id="w")
    assert recorded == [again] == memory.operations(SPACE)


def test_a_lost_reply_may_have_been_an_error() -> None:
    store = FaultStore(MemoryStore(), [Fault.lost_reply(at=1)])

    with pytest.raises(Unavailable):
        store.commit(SPACE, moves=[Move(MAIN, ONE.id, TWO.id)])


def test_a_scan_whose_reply_is_lost_does_not_end() -> None:
    memory = MemoryStore()
    point(memory, ONE)
    scan = FaultStore(memory, [Fault.lost_reply(at=1)]).scan()

    assert next(scan).id == ONE.id
    with pytest.raises(Unavailable):
        next(scan)


def test_a_full_store_can_still_be_read() -> None:
    memory = MemoryStore()
    point(memory, ONE)
    store = FaultStore(memory, [Fault.full(at=1)])

    with pytest.raises(StoreFull):
        point(store, TWO, expected=ONE.id)

    assert store.reader(SPACE)([ONE.id]) == [ONE]
    assert memory.missing([TWO.id], SPACE) == [TWO.id]


def test_a_delay_comes_before_the_call() -> None:
    memory = MemoryStore()
    seen: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        seen.append((seconds, len(memory.operations(SPACE))))

    store = FaultStore(memory, [Fault.delay(at=1, seconds=0.25)], sleep=sleep)
    point(store, ONE)

    assert seen == [(0.25, 0)]
    assert len(memory.operations(SPACE)) == 1


def test_a_late_call_may_also_fail() -> None:
    slept: list[float] = []
    faults = [Fault.error(at=1), Fault.delay(at=1, seconds=2)]
    store = FaultStore(MemoryStore(), faults, sleep=slept.append)

    with pytest.raises(Unavailable):
        store.spaces()

    assert slept == [2]


def test_a_dead_server_stays_dead() -> None:
    store = FaultStore(MemoryStore(), [Fault.dead(at=2)])
    store.spaces()

    for _ in range(3):
        with pytest.raises(Unavailable):
            store.spaces()


def test_a_dead_server_may_come_back() -> None:
    store = FaultStore(MemoryStore(), [Fault.dead(at=1, until=3)])

    for _ in range(2):
        with pytest.raises(Unavailable):
            store.spaces()
    assert store.spaces() == []


def test_a_fault_may_count_the_calls_of_one_method() -> None:
    store = FaultStore(MemoryStore(), [Fault.lost_reply(at=2, method="commit")])
    point(store, ONE)
    store.spaces()
    store.ref(SPACE, MAIN)

    with pytest.raises(Unavailable):
        point(store, TWO, expected=ONE.id)


def test_a_dead_method_leaves_the_others_alive() -> None:
    store = FaultStore(MemoryStore(), [Fault.dead(at=1, method="commit")])

    with pytest.raises(Unavailable):
        point(store, ONE)
    assert store.refs(SPACE) == []


def test_leases_meet_faults_too() -> None:
    store = FaultStore(MemoryStore(), [Fault.lost_reply(at=1, method="grant_lease")])

    with pytest.raises(Unavailable):
        store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0)
    assert store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0).token == 2


def test_room_is_made_in_a_store_with_a_size_limit() -> None:
    store = FaultStore(MemoryStore(size_limit=1000))
    for number in range(10):
        store.commit(SPACE, [make_object(Kind.CHUNK, noise(300, seed=number))])

    assert store.calls == ["commit"] * 10
    assert len(list(store.scan())) < 10


def test_a_collection_is_one_call() -> None:
    memory = MemoryStore()
    memory.commit(SPACE, [ONE])
    store = FaultStore(memory, [Fault.lost_reply(at=1, method="gc")])

    with pytest.raises(Unavailable):
        store.gc()

    assert store.calls == ["gc"]
    assert list(memory.scan()) == []


async def fetch(store: Store) -> None:
    await store.acommit(SPACE, [ONE])


def test_asynchronous_twins_meet_faults_too() -> None:
    import asyncio

    store = FaultStore(MemoryStore(), [Fault.error(at=1)])

    with pytest.raises(Unavailable):
        asyncio.run(fetch(store))


def test_one_of_many_threads_meets_a_fault() -> None:
    store = FaultStore(MemoryStore(), [Fault.error(at=number) for number in (3, 50, 77)])
    failed: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            try:
                store.commit(SPACE)
            except Unavailable:
                failed.append(number)

    in_threads(5, work)

    assert len(failed) == 3
    assert len(store.calls) == 100
    assert len(store.operations(SPACE)) == 97


def test_closing_closes_the_store_behind() -> None:
    memory = MemoryStore()

    FaultStore(memory, [Fault.dead(at=1)]).close()

    with pytest.raises(StoreClosed):
        memory.spaces()


def test_a_store_behind_that_was_closed_says_so() -> None:
    memory = MemoryStore()
    store = FaultStore(memory)
    memory.close()

    with pytest.raises(StoreClosed):
        store.spaces()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fault.error(at=0),
        lambda: Fault.error(at=1, method="_commit"),
        lambda: Fault.delay(at=1, seconds=-1),
        lambda: Fault.dead(at=3, until=3),
        lambda: FaultStore(MemoryStore(), ["error"]),  # type: ignore[list-item]
        lambda: FaultStore("memory://"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_what_fails_on_purpose_needs_no_pytest() -> None:
    program = (
        "import sys\n"
        "sys.modules['pytest'] = None\n"
        "from ropewalk.testing import FaultStore, FaultyBus, crash_states, fail_every_call\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
