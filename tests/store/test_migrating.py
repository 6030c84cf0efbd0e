"""Migration between engines: everything arrives, once, whole, and undoable."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import ropewalk
from ropewalk.errors import (
    Conflict,
    Corrupt,
    DamagedObject,
    InvalidInput,
    MissingObjects,
    NotFound,
    StoreFull,
    Unavailable,
)
from ropewalk.history import History
from ropewalk.store import FileStore, MemoryStore, Migrated, Move, SqliteStore, Store, ref_name
from ropewalk.store.migration import operations
from ropewalk.store.reserved import OWN_SPACE
from ropewalk.testing import Fault, FaultStore, Outcome, fail_every_call
from ropewalk.testing._stores._care import all_ids, drop, long, step
from ropewalk.testing.helpers import OTHER_SPACE, PATIENCE, SPACE
from ropewalk.tree import (
    Commit,
    Kind,
    Object,
    ObjectId,
    TreeWriter,
    load,
    make_commit,
    make_object,
)
from tests.store.memory import damage, lose

ENGINES: dict[str, Callable[..., Store]] = {"sqlite": SqliteStore, "files": FileStore}
PAIRS = [(one, other) for one in ("memory", *ENGINES) for other in ("memory", *ENGINES)]
BRANCH = ref_name("branch", "main")

Make = Callable[..., Store]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Opens stores by engine and name; the same name leads to the same data."""
    opened: list[Store] = []

    def open_one(engine: str, name: str) -> Store:
        if engine == "memory":
            opened.append(MemoryStore(backend_id=name))
        else:
            store = ENGINES[engine](tmp_path / name, backend_id=name, durability="relaxed")
            opened.append(store)
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(params=PAIRS, ids="-to-".join)
def pair(request: pytest.FixtureRequest, make: Make) -> tuple[Store, Store]:
    """A source and a target, of each two engines."""
    one, other = request.param
    return make(one, "source"), make(other, "target")


@pytest.fixture
def source(make: Make) -> Store:
    return make("memory", "source")


@pytest.fixture
def target(make: Make) -> Store:
    return make("memory", "target")


def fill(store: Store, steps: int = 6, seed: int = 0) -> Commit:
    """A branch of several versions of a state that changes a little, and one of another space."""
    choose = random.Random(seed)
    state: dict[str, object] = {"notes": [choose.randbytes(40).hex() for _ in range(200)]}
    state["document"] = choose.randbytes(100_000)
    head: Commit | None = None
    for turn in range(steps):
        state["turn"] = turn
        assert isinstance(state["notes"], list)
        state["notes"].append(choose.randbytes(40).hex())
        head = step(store, "main", dict(state), head)
    assert head is not None
    written = TreeWriter().write({"document": state["document"], "n": seed})
    commit, made = make_commit(written.root)
    store.commit(OTHER_SPACE, [*written.objects, made], moves=[Move("tag/one", None, commit.id)])
    return head


def refs(store: Store) -> dict[str, dict[str, ObjectId]]:
    spaces = [space for space in store.spaces() if space != OWN_SPACE]
    return {space: {ref.name: ref.target for ref in store.refs(space)} for space in spaces}


def log(store: Store, space: str = SPACE) -> list[object]:
    return [
        (one.write_id, one.moves, dict(one.metadata), one.time)
        for one in operations(store, space, 0)
    ]


def value(store: Store, commit: Commit, space: str = SPACE) -> object:
    return load(commit.root, store.reader(space))


def test_everything_arrives(pair: tuple[Store, Store]) -> None:
    source, target = pair
    head = fill(source)

    done = ropewalk.migrate(source, target)

    assert done.objects >= len(all_ids(source))
    assert all_ids(target) == all_ids(source) | own_ids(target)
    assert refs(target) == refs(source)
    assert log(target) == log(source) and log(target, OTHER_SPACE) == log(source, OTHER_SPACE)
    assert value(target, head) == value(source, head)
    assert target.check(read_data=True).problems == ()


def own_ids(store: Store) -> set[ObjectId]:
    """What a store keeps about itself: the names that it answers to."""
    return {ref.target for ref in store.refs(OWN_SPACE)}


def test_what_is_large_is_shared_in_the_target_too(make: Make) -> None:
    source, target = make("sqlite", "source"), make("sqlite", "target")
    document = random.Random(1).randbytes(500_000)
    for number in range(5):
        written = TreeWriter().write({"document": document, "n": number})
        _, made = make_commit(written.root)
        move = Move(BRANCH, None, made.id)
        source.commit(f"team/{number}", [*written.objects, made], moves=[move])

    ropewalk.migrate(source, target)

    assert refs(target) == refs(source)
    assert target.stats().stored < 520_000
    assert target.check(read_data=True).problems == ()


def test_a_second_run_copies_nothing_and_a_later_one_only_what_is_new(
    pair: tuple[Store, Store],
) -> None:
    source, target = pair
    head = fill(source)
    ropewalk.migrate(source, target)
    before = all_ids(source)

    assert ropewalk.migrate(source, target) == Migrated(0, 0, 0, 2, 0, (), ())
    step(source, "main", long(1), head)
    done = ropewalk.migrate(source, target)

    new = all_ids(source) - before
    assert (done.objects, done.operations) == (len(new), 1)
    assert refs(target) == refs(source) and log(target) == log(source)
    assert target.check(read_data=True).problems == ()


def test_what_was_collected_is_left_out_of_the_log_and_the_numbers_stay(
    pair: tuple[Store, Store],
) -> None:
    source, target = pair
    drop(source, "other", step(source, "other", long(3), None))
    head = fill(source)
    source.gc(recent=3)

    ropewalk.migrate(source, target)

    assert refs(target) == refs(source)
    assert names(target) == names(source)
    assert log(target)[-6:] == log(source)[-6:]
    assert [one.moves for one in target.operations(SPACE, 0, 3)] == [(), (), ()]
    assert value(target, head) == value(source, head)
    assert ropewalk.migrate(source, target).operations == 0
    assert target.check(read_data=True).problems == ()


def names(store: Store) -> list[object]:
    """What each operation was, whatever it moved."""
    return [(one.sequence, one.write_id, one.time) for one in operations(store, SPACE, 0)]


def test_the_target_answers_to_the_names_of_the_source(make: Make) -> None:
    first, second, third = (
        MemoryStore(backend_id="old", backend_aliases=["older", "./ \x01"]),
        make("sqlite", "second"),
        make("sqlite", "third"),
    )
    fill(first)

    ropewalk.migrate(first, second)
    ropewalk.migrate(second, third)

    again = make("sqlite", "third")
    for name in ("old", "older", "./ \x01", "second", "third"):
        assert third.answers_to(name) and again.answers_to(name)
    assert not again.answers_to("other") and not second.answers_to("third")
    assert again.refs(SPACE) and refs(third) == refs(first)


def test_a_name_that_the_target_was_opened_with_is_kept_in_it(tmp_path: Path) -> None:
    source = MemoryStore(backend_id="old")
    fill(source)

    with SqliteStore(tmp_path / "target", backend_aliases=["old"]) as target:
        ropewalk.migrate(source, target)

    with SqliteStore(tmp_path / "target") as again:
        assert again.answers_to("old")


def test_another_history_in_the_target_is_refused_before_anything_is_copied(
    pair: tuple[Store, Store],
) -> None:
    source, target = pair
    fill(source)
    step(target, "main", long(9), None)
    before = all_ids(target)

    with pytest.raises(Conflict, match=SPACE):
        ropewalk.migrate(source, target)

    assert all_ids(target) == before and target.spaces() == [SPACE]


def test_another_history_that_ends_at_the_same_refs_is_no_obstacle(
    source: Store, target: Store
) -> None:
    head = step(source, "main", long(1), None)
    written = TreeWriter().write(long(1))
    _, made = make_commit(head.root, ())
    target.commit(SPACE)
    target.commit(SPACE, [*written.objects, made], moves=[Move(BRANCH, None, head.id)])

    done = ropewalk.migrate(source, target)

    assert (done.objects, done.operations) == (0, 0)


def test_other_spaces_of_the_target_stay_as_they_are(source: Store, target: Store) -> None:
    written = TreeWriter().write(long(9))
    target.commit("team/other", written.objects, moves=[Move(BRANCH, None, written.root)])
    fill(source)

    ropewalk.migrate(source, target)

    assert refs(target) == refs(source) | {"team/other": {BRANCH: written.root}}


@pytest.fixture
def shared(source: Store) -> Object:
    """What a branch of the source leads to, and what is not in a record of its log."""
    step(source, "main", {"document": random.Random(1).randbytes(60_000)}, None)
    found = source.read(all_ids(source).difference(source.missing(all_ids(source))))
    return next(one for one in found if one.kind == Kind.ROOT)


@pytest.mark.parametrize("engine", ["memory", "sqlite", "files"])
def test_a_missing_object_is_named_and_what_was_copied_stays(
    source: Store, make: Make, engine: str, shared: Object
) -> None:
    target = make(engine, "target")
    other = step(source, "other", long(2), None)
    source.discard([shared.id])

    with pytest.raises(MissingObjects) as raised:
        ropewalk.migrate(source, target)

    assert raised.value.ids == (shared.id,)
    assert BRANCH in raised.value.__notes__[0] and "keep_going" in raised.value.__notes__[0]
    assert refs(target) == {SPACE: {ref_name("branch", "other"): other.id}}
    assert target.gc(recent=1).freed == 0
    source.commit(SPACE, [shared], share=True)
    assert ropewalk.migrate(source, target).lost == ()
    assert refs(target) == refs(source)
    assert target.check(read_data=True).problems == ()


@pytest.mark.parametrize("engine", ["memory", "sqlite", "files"])
def test_what_is_whole_can_be_brought_without_what_is_not(
    source: Store, make: Make, engine: str, shared: Object
) -> None:
    target = make(engine, "target")
    other = step(source, "other", long(2), None)
    source.discard([shared.id])

    done = ropewalk.migrate(source, target, keep_going=True)

    assert done.left == (f"{SPACE}/{BRANCH}",)
    assert [(one.code, one.subject) for one in done.lost] == [("missing-object", shared.id.hex())]
    assert refs(target) == {SPACE: {ref_name("branch", "other"): other.id}}
    assert target.check(read_data=True).problems == ()
    assert target.gc(recent=1).freed == 0
    source.commit(SPACE, [shared], share=True)
    assert ropewalk.migrate(source, target).left == ()
    assert refs(target) == refs(source)
    assert target.check(read_data=True).problems == ()


def test_what_the_source_has_lost_since_is_taken_from_the_target(source: Store) -> None:
    target = MemoryStore()
    head = fill(source)
    ropewalk.migrate(source, target)
    assert isinstance(source, MemoryStore)
    lose(source, head.root)
    head = step(source, "main", long(1), head)

    done = ropewalk.migrate(source, target)

    assert (done.lost, done.left) == ((), ())
    assert refs(target) == refs(source)
    assert target.check(read_data=True).problems == ()


def test_a_damaged_object_is_named_and_never_copied(
    source: Store, target: Store, shared: Object
) -> None:
    assert isinstance(source, MemoryStore)
    damage(source, shared.id)

    with pytest.raises(DamagedObject) as raised:
        ropewalk.migrate(source, target)

    assert raised.value.id == shared.id
    assert shared.id not in all_ids(target) and target.refs(SPACE) == []
    done = ropewalk.migrate(source, target, keep_going=True)
    assert [one.code for one in done.lost] == ["damaged-object"] and len(done.left) == 1


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("engine", ["memory", "sqlite", "files"])
def test_a_damaged_record_is_named_and_what_it_held_is_left_behind(
    make: Make, tmp_path: Path, engine: str, packed: bool
) -> None:
    source, target = make("sqlite", "source"), make(engine, "target")
    assert isinstance(source, SqliteStore)
    first = step(source, "main", long(1), None)
    fine = step(source, "fine", {"n": 1}, None)
    if packed:
        source.gc()
    step(source, "main", {"n": 2}, first)
    with sqlite3.connect(tmp_path / "source" / "store.db") as db:
        if packed:
            db.execute(
                "UPDATE segments SET data = substr(data, 1, 50) || x'00' || substr(data, 52)"
            )
        else:
            db.execute(
                "UPDATE tail SET frame = zeroblob(length(frame)) "
                "WHERE key = (SELECT max(key) FROM tail)"
            )
    db.close()
    source.close()
    source = make("sqlite", "source")

    with pytest.raises((Corrupt, MissingObjects)) as raised:
        ropewalk.migrate(source, target)

    assert "keep_going" in raised.value.__notes__[0]
    done = ropewalk.migrate(source, target, keep_going=True)
    assert f"{SPACE}/{BRANCH}" in done.left and done.lost
    sound = {} if packed else {BRANCH: first.id, ref_name("branch", "fine"): fine.id}
    assert refs(target) == {SPACE: sound}
    assert target.check(read_data=True).problems == ()


def test_damage_that_no_ref_leads_to_stops_nothing(source: Store, target: Store) -> None:
    step(source, "main", long(1), None)
    loose = TreeWriter().write(long(2))
    source.commit(SPACE, loose.objects, share=True)
    assert isinstance(source, MemoryStore)
    damage(source, loose.root)

    done = ropewalk.migrate(source, target)

    assert (done.lost, done.left) == ((), ()) and loose.root not in all_ids(target)
    assert target.check(read_data=True).problems == ()


def test_a_collection_of_the_target_costs_nothing_that_arrived(pair: tuple[Store, Store]) -> None:
    source, target = pair
    fill(source)
    freed: list[int] = []

    def collect(what: str, done: int) -> None:
        freed.append(target.gc(recent=1).freed)

    done = ropewalk.migrate(source, target, progress=collect)

    assert freed and sum(freed) == 0
    assert done.objects >= len(all_ids(source))
    assert refs(target) == refs(source)
    assert target.check(read_data=True).problems == ()


def test_collections_of_the_target_in_the_midst_of_it_harm_nothing(
    source: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source)
    target, second = make("sqlite", "target"), make("sqlite", "target")
    ended = threading.Event()

    def collect() -> None:
        while not ended.is_set():
            second.gc(recent=1)

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        ropewalk.migrate(source, target)
    finally:
        ended.set()
        collector.join()

    assert refs(target) == refs(source) and log(target) == log(source)
    assert target.check(read_data=True).problems == ()


def brought(store: Store, space: str) -> list[Object]:
    """All that the refs of a space lead to and that is not shared."""
    heads = [ref.target for ref in store.refs(space)]
    return [one for some in store.carry(space, heads) for one in some]


def test_what_a_collection_took_before_refs_needed_it_is_copied_again(
    source: Store, target: Store
) -> None:
    fill(source)
    every = [one for space in source.spaces() for one in brought(source, space)]
    target.commit("team/other", every, share=True)
    freed: list[int] = []

    def collect(what: str, done: int) -> None:
        freed.append(target.gc(recent=1).freed)

    ropewalk.migrate(source, target, progress=collect)

    assert sum(freed) > 0
    assert refs(target) == refs(source) | {"team/other": {}}
    assert target.check(read_data=True).problems == ()


def test_a_migration_that_ends_at_any_step_is_finished_by_the_next(make: Make) -> None:
    source = make("memory", "source")
    fill(source, steps=3)
    drop(source, "other", step(source, "other", long(3), None))
    steps: list[str] = []
    ropewalk.migrate(source, MemoryStore(), progress=lambda what, done: steps.append(what))
    assert set(steps) == {"copying", "replaying"}

    target = MemoryStore()
    for last in range(len(steps)):
        with suppress(StopIteration):
            ropewalk.migrate(source, target, progress=stopping(last))
        assert target.check(read_data=True).problems == ()
    ropewalk.migrate(source, target)

    assert refs(target) == refs(source) and log(target) == log(source)
    assert target.check(read_data=True).problems == ()


def stopping(after: int) -> Callable[[str, int], None]:
    """Ends what tells it of its progress, after so many steps."""
    ahead = iter(range(after))
    return lambda what, done: [next(ahead)].clear()


def test_whatever_call_of_the_target_fails_the_next_run_finishes(source: Store) -> None:
    drop(source, "other", step(source, "other", long(3), None))
    fill(source, steps=2)
    source.gc(recent=2)

    def check(target: Store, outcome: Outcome[Migrated]) -> None:
        assert target.check(read_data=True).problems == ()
        target.gc(recent=1)
        assert_arrives(source, target)

    calls = fail_every_call(
        lambda: MemoryStore(backend_id="target").another,
        lambda target: ropewalk.migrate(source, target),
        check,
    )

    assert calls > 50


@pytest.mark.parametrize("make_fault", [Fault.error, Fault.lost_reply])
def test_whatever_call_of_the_source_fails_the_next_run_finishes(
    source: Store, make_fault: Callable[[int], Fault]
) -> None:
    drop(source, "other", step(source, "other", long(3), None))
    fill(source, steps=2)
    source.gc(recent=2)
    counted = FaultStore(source)
    ropewalk.migrate(counted, MemoryStore())

    for number in range(1, len(counted.calls) + 1):
        target = MemoryStore()
        with pytest.raises(Unavailable):
            ropewalk.migrate(FaultStore(source, [make_fault(number)]), target)
        assert target.check(read_data=True).problems == ()
        assert_arrives(source, target)


def assert_arrives(source: Store, target: Store) -> None:
    ropewalk.migrate(source, target)
    assert refs(target) == refs(source)
    assert names(target) == names(source) and log(target)[-2:] == log(source)[-2:]
    assert target.answers_to(source.backend_id)
    assert target.check(read_data=True).problems == ()


def test_a_source_that_collects_meanwhile_is_migrated_as_it_is_then(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = fill(source)
    tagged = refs(source)[OTHER_SPACE]["tag/one"]
    changed: list[str] = []

    def change(what: str, done: int) -> None:
        if not changed:
            changed.append(what)
            drop(source, "main", head)
            source.commit(OTHER_SPACE, moves=[Move("tag/one", tagged, None)])
            source.commit(OTHER_SPACE)
            step(source, "main", long(4), None)
            assert source.gc(recent=1).freed > 10

    done = ropewalk.migrate(source, target, progress=change)

    assert changed and done.left == ()
    assert refs(target) == refs(source)
    assert target.check(read_data=True).problems == ()


def test_a_source_that_is_written_meanwhile_arrives_as_it_was_at_some_moment(
    pair: tuple[Store, Store],
) -> None:
    source, target = pair
    history = History(source, SPACE)
    branch = history.open()
    branch.commit({"turn": 0})
    migrated = threading.Event()

    def write() -> None:
        for turn in range(1, 40):
            branch.commit({"turn": turn, "notes": long(turn)})
        assert migrated.wait(PATIENCE)

    writer = threading.Thread(target=write)
    writer.start()
    turns: list[int] = []
    for _ in range(4):
        ropewalk.migrate(source, target)
        migrated.set()
        turns.append(History(target, SPACE).value()["turn"])
        assert target.check(read_data=True).problems == ()
    writer.join()
    ropewalk.migrate(source, target)

    assert turns == sorted(turns)
    assert refs(target) == refs(source) and log(target) == log(source)
    assert target.check(read_data=True).problems == ()


def test_a_full_target_collects_first_and_then_says_so(source: Store) -> None:
    fill(source)
    every = sum(one.stored for one in source.scan())
    roomy, tight = MemoryStore(size_limit=2 * every), MemoryStore(size_limit=every // 2)
    roomy.commit("team/old", [make_object(Kind.CHUNK, random.Random(1).randbytes(every * 3 // 2))])

    ropewalk.migrate(source, roomy)

    assert refs(roomy) == refs(source) | {"team/old": {}}
    with pytest.raises(StoreFull):
        ropewalk.migrate(source, tight)
    assert tight.check(read_data=True).problems == ()


def test_a_write_id_that_was_used_again_long_after_is_no_obstacle(make: Make) -> None:
    source, target = make("memory", "source"), make("sqlite", "target")
    source.commit(SPACE, write_id="again")
    for _ in range(300):
        source.commit(SPACE)
    source.commit(SPACE, write_id="again")
    source.commit(SPACE, operation={"n": float("nan")})

    assert ropewalk.migrate(source, target).operations == 303
    assert ropewalk.migrate(source, target).operations == 0
    assert target.view(SPACE).sequence == 303


def test_what_nothing_needed_in_the_source_can_be_collected_in_the_target(
    pair: tuple[Store, Store],
) -> None:
    source, target = pair
    fill(source)
    source.commit(SPACE, TreeWriter().write(long(9)).objects)
    needed = all_ids(source)
    source.gc(recent=1000)
    garbage = needed - all_ids(source)
    source.commit(SPACE, TreeWriter().write(long(9)).objects)

    ropewalk.migrate(source, target)
    target.gc()

    assert garbage and not garbage & all_ids(target)
    assert all_ids(target) - all_ids(source) <= own_ids(target)
    assert target.check(read_data=True).problems == ()


def test_the_twin_migrates_too(source: Store, target: Store) -> None:
    fill(source)

    done = asyncio.run(ropewalk.amigrate(source, target))

    assert done.objects > 20 and refs(target) == refs(source)


def test_only_stores_can_be_migrated(source: Store) -> None:
    with pytest.raises(InvalidInput, match="two stores"):
        ropewalk.migrate(source, "target")  # type: ignore[arg-type]


def test_undo_and_redo_go_on_in_the_target(pair: tuple[Store, Store]) -> None:
    source, target = pair
    drop(source, "other", step(source, "other", long(9), None))
    history = History(source, SPACE)
    branch = history.open()
    for turn in range(6):
        branch.commit({"turn": turn, "text": long(turn)["key 0"]})
    history.undo()
    history.delete_branch("main")
    history.undo()
    source.gc(recent=4)

    ropewalk.migrate(source, target)

    assert names(target) == names(source)
    there = History(target, SPACE)
    found = undone(there)
    assert found == undone(history)[: len(found)] and len(found) == 5
    assert there.branches() == {}
    there.redo()
    assert there.value()["turn"] == 0
    assert target.check(read_data=True).problems == ()


def test_an_undo_names_the_same_operation_in_the_target(source: Store, target: Store) -> None:
    history = History(source, SPACE)
    history.open().commit({"turn": 0})
    history.create_tag("kept")
    drop(source, "other", step(source, "other", long(9), None))
    source.gc(recent=1)
    history.undo(1)

    ropewalk.migrate(source, target)

    assert [one.metadata.get("undoes") for one in target.operations(SPACE)][-2:] == [None, 1]
    assert History(target, SPACE).redo().moves == history.redo().moves
    assert History(target, SPACE).value() == {"turn": 0}


def undone(history: History) -> list[object]:
    """What undoing everything that can be undone does."""
    found: list[object] = []
    with suppress(NotFound):
        while True:
            found.append(history.undo().moves)
    return found
