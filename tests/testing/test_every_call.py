"""Failing at every call: the tool itself, and what engines leave behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk.errors import StoreFull, Unavailable
from ropewalk.store import FileStore, MemoryStore, Move, SqliteStore, Store, ref_name
from ropewalk.store.sqlite import packs
from ropewalk.testing import Fault, Outcome, fail_every_call
from ropewalk.testing.helpers import MAIN, SPACE, noise
from ropewalk.tree import Kind, Object, make_object

SIDE = ref_name("branch", "side")


def chunk(payload: bytes) -> Object:
    return make_object(Kind.CHUNK, payload)


FIRST = chunk(noise(500, seed=1))
SECOND = chunk(FIRST.payload + noise(100, seed=2))
LARGE = chunk(noise(packs.LARGE + 1, seed=3))
GARBAGE = chunk(noise(200, seed=4))
COMMITS: tuple[tuple[list[Object], list[Move]], ...] = (
    ([FIRST, GARBAGE], [Move(MAIN, None, FIRST.id)]),
    ([SECOND], [Move(MAIN, FIRST.id, SECOND.id)]),
    ([LARGE], [Move(SIDE, None, LARGE.id), Move(MAIN, SECOND.id, FIRST.id)]),
    ([], [Move(SIDE, LARGE.id, None)]),
)


def in_memory() -> Callable[[], Callable[[], Store]]:
    return lambda: MemoryStore().another


def in_folders(
    engine: type[SqliteStore] | type[FileStore], folder: Path
) -> Callable[[], Callable[[], Store]]:
    numbers = itertools.count()

    def fresh() -> Callable[[], Store]:
        place = folder / str(next(numbers))
        return lambda: engine(place)

    return fresh


@pytest.fixture(params=["memory", "sqlite", "files"])
def fresh(request: pytest.FixtureRequest, memory_folder: Path) -> Callable[[], Callable[[], Store]]:
    if request.param == "memory":
        return in_memory()
    return in_folders(SqliteStore if request.param == "sqlite" else FileStore, memory_folder)


def commit(store: Store, number: int) -> None:
    objects, moves = COMMITS[number]
    store.commit(SPACE, objects, moves=moves, write_id=str(number))


def commit_all(store: Store) -> int:
    """Commits, one after another, each read back."""
    for number, (objects, _) in enumerate(COMMITS):
        commit(store, number)
        store.reader(SPACE)([one.id for one in objects])
    return len(COMMITS)


def check_commits(store: Store, outcome: Outcome[int]) -> None:
    """What happened is a beginning of the work, and can be brought to its end."""
    landed = len(store.operations(SPACE))
    answered = [call for call in outcome.calls if call == "commit"]
    assert store.check(read_data=True).problems == ()
    if outcome.error is None:
        assert landed == outcome.result == len(COMMITS)
    elif outcome.calls[-1] != "commit":
        assert landed == len(answered)
    elif isinstance(outcome.error, StoreFull):
        assert landed == len(answered) - 1
    elif outcome.fault is not None and outcome.fault.kind == "lost reply":
        assert landed == len(answered)
    else:
        assert landed == len(answered) - 1
    for number in range(len(COMMITS)):
        commit(store, number)
    assert [one.write_id for one in store.operations(SPACE)] == ["0", "1", "2", "3"]
    assert {ref.name: ref.target for ref in store.refs(SPACE)} == {MAIN: FIRST.id}
    assert store.check(read_data=True).problems == ()


def test_a_caller_is_told_the_truth_about_commits(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    # Every commit, and a read after each that wrote something.
    assert fail_every_call(fresh, commit_all, check_commits) >= 4 * (2 * len(COMMITS) - 1)


def collect_all(store: Store) -> None:
    for number in range(len(COMMITS)):
        commit(store, number)
    store.gc(recent=1)


def check_collection(store: Store, outcome: Outcome[None]) -> None:
    landed = len(store.operations(SPACE))
    if landed == len(COMMITS):
        assert store.reader(SPACE)([FIRST.id]) == [FIRST]
        assert store.missing([FIRST.id], SPACE) == []
    assert store.check(read_data=True).problems == ()
    for number in range(landed, len(COMMITS)):
        commit(store, number)
    store.gc(recent=1)
    # What the latest operation moved away from can be moved back to.
    assert {one.id for one in store.scan()} == {FIRST.id, LARGE.id}


def test_a_collection_that_fails_leaves_a_sound_store_and_the_next_one_ends_it(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    assert fail_every_call(fresh, collect_all, check_collection) > 4 * len(COMMITS)


def take_lease(store: Store) -> int:
    lease = store.acquire(SPACE, MAIN, "me", 60.0)
    store.commit(SPACE, [FIRST], fence=lease.fence, write_id="w")
    lease = store.renew(lease)
    assert store.release(lease)
    return lease.token


def check_lease(store: Store, outcome: Outcome[int]) -> None:
    granted = outcome.calls.count("grant_lease")
    lease = store.acquire(SPACE, MAIN, "me", 60.0)
    assert lease.token in (granted, granted + 1)
    store.commit(SPACE, [FIRST], fence=lease.fence, write_id="w")
    assert len(store.operations(SPACE)) == 1


def test_a_lease_outlives_every_fault(fresh: Callable[[], Callable[[], Store]]) -> None:
    assert fail_every_call(fresh, take_lease, check_lease) == 4 * 7


def test_work_is_done_once_for_every_call_and_fault() -> None:
    seen: list[tuple[str, int] | None] = []

    def check(store: Store, outcome: Outcome[str]) -> None:
        fault = outcome.fault
        seen.append(None if fault is None else (fault.kind, fault.at))

    def work(store: Store) -> str:
        store.commit(SPACE)
        store.spaces()
        return "done"

    faults = [Fault.error, Fault.lost_reply]
    assert fail_every_call(in_memory(), work, check, faults=faults) == 4
    assert seen == [None, ("error", 1), ("error", 2), ("lost reply", 1), ("lost reply", 2)]


def test_an_outcome_says_how_the_work_ended() -> None:
    outcomes: list[Outcome[int]] = []

    def work(store: Store) -> int:
        try:
            return store.commit(SPACE).sequence
        except StoreFull:
            return 0

    fail_every_call(in_memory(), work, lambda store, outcome: outcomes.append(outcome))

    assert [outcome.result for outcome in outcomes] == [1, None, None, 0, None]
    assert [type(outcome.error) for outcome in outcomes] == [
        type(None),
        Unavailable,
        Unavailable,
        type(None),
        Unavailable,
    ]
    assert all(outcome.calls == ["commit"] for outcome in outcomes)


def test_work_that_believes_too_much_is_found() -> None:
    def work(store: Store) -> None:
        try:
            store.commit(SPACE)
        except Unavailable:
            store.commit(SPACE)  # Another write id: it may happen twice.

    def check(store: Store, outcome: Outcome[None]) -> None:
        assert len(store.operations(SPACE)) <= 1

    with pytest.raises(AssertionError) as failed:
        fail_every_call(in_memory(), work, check)

    assert "lost reply" in failed.value.__notes__[0]


def test_work_that_changes_from_run_to_run_is_refused() -> None:
    more = iter([2, 1])

    def work(store: Store) -> None:
        for _ in range(next(more)):
            store.spaces()

    with pytest.raises(AssertionError, match="the same calls"):
        fail_every_call(
            in_memory(), work, lambda *_: None, faults=[lambda at: Fault.error(at=at + 1)]
        )


def test_other_errors_of_the_work_are_not_swallowed() -> None:
    def work(store: Store) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_every_call(in_memory(), work, lambda *_: None)
