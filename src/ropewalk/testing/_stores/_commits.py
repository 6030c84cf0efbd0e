"""Commits: all or nothing, once, in an order that all see, also from many threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from ropewalk.errors import InvalidInput, MissingObjects, RefMoved, Unavailable, WriteIdReused
from ropewalk.store import Fence, Move, Operation, Ref, Store, ref_name, space_name
from ropewalk.store.engine import REMEMBERED_WRITES, Append, Scalar
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import (
    MAIN,
    OTHER_SPACE,
    SPACE,
    growing,
    in_threads,
    point,
    read,
    value,
)
from ropewalk.tree import ObjectId, make_commit

DRAFT = ref_name("branch", "draft")


class CommitContract(Base):
    """Refs, operations, needs and write ids."""

    def test_a_space_begins_empty(self, store: Store) -> None:
        view = store.view(SPACE)

        assert (view.sequence, view.refs) == (0, ())
        assert store.ref(SPACE, MAIN) is None
        assert store.operations(SPACE) == []
        assert SPACE not in store.spaces()

    def test_a_commit_stores_objects_and_moves_refs(self, store: Store) -> None:
        one = value("one")

        done = point(store, one)

        assert done.sequence == 1
        assert done.moves == (Move(MAIN, None, one.id),)
        assert store.ref(SPACE, MAIN) == Ref(MAIN, one.id, 1)
        assert store.view(SPACE).sequence == 1
        assert read(store, [one.id]) == [one]
        assert SPACE in store.spaces()

    def test_a_second_store_object_sees_a_commit(self, store: Store, second: Store) -> None:
        one = value("one")

        done = point(store, one)

        assert second.ref(SPACE, MAIN) == Ref(MAIN, one.id, 1)
        assert second.operations(SPACE) == [done]
        assert read(second, [one.id]) == [one]

    def test_a_ref_is_moved_and_removed(self, store: Store) -> None:
        one, two = value("one"), value("two")
        point(store, one)
        point(store, two, expected=one.id)
        assert store.ref(SPACE, MAIN) == Ref(MAIN, two.id, 2)

        store.commit(SPACE, moves=[Move(MAIN, two.id, None)])

        assert store.ref(SPACE, MAIN) is None
        assert store.refs(SPACE) == []
        point(store, one)
        assert store.ref(SPACE, MAIN) == Ref(MAIN, one.id, 4)

    @pytest.mark.parametrize("expected", [None, value("elsewhere").id])
    def test_a_ref_that_is_elsewhere_is_not_moved(
        self, store: Store, expected: ObjectId | None
    ) -> None:
        one, two = value("one"), value("two")
        point(store, one)

        with pytest.raises(RefMoved) as caught:
            point(store, two, expected=expected)

        error = caught.value
        assert (error.name, error.expected, error.actual) == (MAIN, expected, one.id)
        _assert_unchanged(store, one.id)
        assert store.missing([two.id], SPACE) == [two.id]

    def test_a_ref_that_is_not_there_is_not_moved(self, store: Store) -> None:
        one, two = value("one"), value("two")

        with pytest.raises(RefMoved) as caught:
            point(store, two, expected=one.id)

        assert caught.value.actual is None
        assert store.view(SPACE).sequence == 0

    def test_several_refs_move_together_or_not_at_all(self, store: Store) -> None:
        one, two = value("one"), value("two")
        point(store, one)

        with pytest.raises(RefMoved):
            store.commit(SPACE, [two], moves=[Move(DRAFT, None, two.id), Move(MAIN, None, two.id)])
        _assert_unchanged(store, one.id)

        done = store.commit(
            SPACE, [two], moves=[Move(DRAFT, None, two.id), Move(MAIN, one.id, two.id)]
        )
        assert store.refs(SPACE) == [Ref(DRAFT, two.id, 2), Ref(MAIN, two.id, 2)]
        assert len(done.moves) == 2

    def test_one_ref_moves_once_in_a_commit(self, store: Store) -> None:
        one = value("one")

        with pytest.raises(InvalidInput):
            store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)] * 2)

    def test_a_move_to_where_a_ref_is_checks_it(self, store: Store) -> None:
        one, two = value("one"), value("two")
        point(store, one)

        store.commit(SPACE, moves=[Move(MAIN, one.id, one.id)])

        with pytest.raises(RefMoved):
            store.commit(SPACE, [two], moves=[Move(MAIN, two.id, two.id)])

    def test_what_a_commit_needs_must_be_there(self, store: Store) -> None:
        here, gone, new = value("here"), value("gone"), value("new")
        point(store, here)

        with pytest.raises(MissingObjects) as caught:
            store.commit(
                SPACE, [new], needs=[here.id, gone.id], moves=[Move(MAIN, here.id, new.id)]
            )

        assert caught.value.ids == (gone.id,)
        _assert_unchanged(store, here.id)
        assert store.missing([new.id], SPACE) == [new.id]
        store.commit(SPACE, [new, gone], needs=[here.id, gone.id])

    def test_a_ref_never_points_to_nothing(self, store: Store) -> None:
        gone = value("gone")

        with pytest.raises(MissingObjects):
            store.commit(SPACE, moves=[Move(MAIN, None, gone.id)])

        assert store.ref(SPACE, MAIN) is None

    def test_an_operation_says_the_epoch_of_its_space(self, store: Store) -> None:
        done = point(store, value("one"))

        assert done.epoch == store.view(SPACE).epoch

    def test_spaces_are_independent(self, store: Store) -> None:
        one, two = value("one"), value("two")
        point(store, one)

        done = store.commit(OTHER_SPACE, [two], moves=[Move(MAIN, None, two.id)])

        assert done.sequence == 1
        _assert_unchanged(store, one.id)
        assert store.ref(OTHER_SPACE, MAIN) == Ref(MAIN, two.id, 1)
        assert store.spaces("test/") == [SPACE, OTHER_SPACE]
        assert store.spaces("test/t") == [OTHER_SPACE]
        assert store.spaces("nobody/") == []

    def test_operations_are_numbered_without_gaps(self, store: Store) -> None:
        done = [store.commit(SPACE, operation={"number": number}) for number in range(25)]

        assert [one.sequence for one in done] == list(range(1, 26))
        assert store.operations(SPACE) == done
        assert store.operations(SPACE, after=20) == done[20:]
        assert store.operations(SPACE, after=3, limit=4) == done[3:7]
        assert store.operations(SPACE, after=25) == []
        assert store.operations(SPACE, after=1000) == []

    def test_a_refused_commit_takes_no_number(self, store: Store) -> None:
        one = value("one")
        point(store, one)
        with pytest.raises(RefMoved):
            point(store, value("two"))

        assert store.commit(SPACE).sequence == 2

    def test_an_operation_keeps_what_was_said_of_it(self, store: Store) -> None:
        metadata: dict[str, Scalar] = {
            "verb": "merge", "none": None, "yes": True, "count": -3, "large": 2**63 - 1,
            "share": 0.25, "bytes": b"\x00\xff", "text": "grüße 🌍",
        }  # fmt: skip
        before = time.time_ns() // 1000

        done = store.commit(SPACE, operation=metadata, write_id="write-1")

        read = store.operations(SPACE)[0]
        assert read == done
        assert dict(read.metadata) == metadata
        assert type(read.metadata["yes"]) is bool
        assert read.write_id == "write-1"
        assert before - 1 <= read.time <= time.time_ns() // 1000 + 1

    @pytest.mark.parametrize(
        "metadata", [{"a": [1]}, {1: "a"}, {"a": 2**70}, {"a": "\ud800"}, {"a": "x" * 100_000}]
    )
    def test_metadata_that_cannot_be_kept_is_refused(
        self, store: Store, metadata: dict[str, Scalar]
    ) -> None:
        with pytest.raises(InvalidInput):
            store.commit(SPACE, operation=metadata)

        assert store.view(SPACE).sequence == 0

    @pytest.mark.parametrize("write_id", ["", "x" * 129, "new\nline", "é", 7])
    def test_a_write_id_that_cannot_be_kept_is_refused(self, store: Store, write_id: str) -> None:
        with pytest.raises(InvalidInput):
            store.commit(SPACE, write_id=write_id)

    def test_a_write_that_is_sent_again_is_recognised(self, store: Store, second: Store) -> None:
        one, two = value("one"), value("two")
        moves = [Move(MAIN, None, one.id)]
        first = store.commit(SPACE, [one], moves=moves, operation={"a": 1}, write_id="w")
        point(store, two, expected=one.id)

        for handle in (store, second):
            again = handle.commit(SPACE, [one], moves=moves, operation={"a": 1}, write_id="w")
            assert again == first

        assert store.view(SPACE).sequence == 2
        assert store.ref(SPACE, MAIN) == Ref(MAIN, two.id, 2)

    def test_a_lost_reply_is_recognised(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = value("one")
        moves = [Move(MAIN, None, one.id)]
        with monkeypatch.context() as patch:
            patch.setattr(store, "_land", _losing_its_reply(store._land))
            with pytest.raises(Unavailable):
                store.commit(SPACE, [one], moves=moves, write_id="w")

        again = store.commit(SPACE, [one], moves=moves, write_id="w")

        assert again.sequence == 1
        assert store.operations(SPACE) == [again]

    def test_a_write_id_stands_for_one_write(self, store: Store) -> None:
        one, two = value("one"), value("two")
        moves = [Move(MAIN, None, one.id)]
        store.commit(SPACE, [one], moves=moves, write_id="w")

        with pytest.raises(WriteIdReused):
            store.commit(SPACE, [one], moves=moves, operation={"more": 1}, write_id="w")
        with pytest.raises(WriteIdReused):
            store.commit(SPACE, [one], moves=[Move(DRAFT, None, one.id)], write_id="w")
        with pytest.raises(WriteIdReused):
            store.commit(SPACE, [one, two], moves=moves, write_id="w")

        assert store.missing([two.id], SPACE) == [two.id]
        assert store.view(SPACE).sequence == 1

    def test_how_a_write_is_sent_does_not_make_it_another(self, store: Store) -> None:
        one = value("one")
        first = store.commit(SPACE, [one], write_id="w")

        again = store.commit(
            SPACE,
            [one],
            needs=[value("gone").id],
            fence=Fence(ref_name("lease", "stale"), 99),
            write_id="w",
        )

        assert again == first

    def test_a_write_id_belongs_to_its_space(self, store: Store) -> None:
        store.commit(SPACE, operation={"a": 1}, write_id="w")

        assert store.commit(OTHER_SPACE, operation={"a": 2}, write_id="w").sequence == 1

    def test_a_refused_write_leaves_its_id_free(self, store: Store) -> None:
        one = value("one")
        with pytest.raises(MissingObjects):
            store.commit(SPACE, moves=[Move(MAIN, None, one.id)], write_id="w")

        done = store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")

        assert done.sequence == 1

    def test_write_ids_are_remembered_for_long_enough(self, store: Store) -> None:
        first = store.commit(SPACE, write_id="first")
        for _ in range(REMEMBERED_WRITES - 1):
            store.commit(SPACE)

        assert store.commit(SPACE, write_id="first") == first

    def test_operations_are_found_by_their_key(self, store: Store, second: Store) -> None:
        for key in (b"a", b"b", b"a", bytes(16)):
            store.commit(SPACE, operation={"key": key})
        store.commit(SPACE, operation={"other": b"a"})
        store.commit(OTHER_SPACE, operation={"key": b"a"})

        assert second.find(SPACE, b"a") == [1, 3]
        assert second.find(SPACE, bytes(16)) == [4]
        assert second.find(SPACE, b"c") == []
        assert second.find("test/empty", b"a") == []
        assert store.operations(SPACE, 2, 1)[0].metadata == {"key": b"a"}

    def test_a_key_among_many_operations_is_found(self, store: Store) -> None:
        for number in range(300):
            store.commit(SPACE, operation={"key": number.to_bytes(2, "big")})

        assert [store.find(SPACE, at.to_bytes(2, "big")) for at in (0, 299)] == [[1], [300]]

    @pytest.mark.parametrize("key", [b"", bytes(17), "text", 1, None])
    def test_a_key_is_a_few_bytes(self, store: Store, key: bytes) -> None:
        with pytest.raises(InvalidInput, match="key"):
            store.commit(SPACE, operation={"key": key})
        with pytest.raises(InvalidInput, match="key"):
            store.find(SPACE, key)

    def test_a_write_may_name_the_commit_that_it_brings(self, store: Store) -> None:
        root = value("root")
        commit, made = make_commit(root.id, agent="me", status="failed")

        done = store.commit(SPACE, [root, made], operation={"step": commit.id}, step=commit)

        assert done.metadata["step"] == commit.id
        assert store.reader(SPACE)([commit.id]) == [made]
        with pytest.raises(InvalidInput, match="step"):
            store.commit(SPACE, operation={"step": b"short"})
        with pytest.raises(InvalidInput, match="step"):
            store.commit(SPACE, step=commit.id)  # type: ignore[arg-type]

    def test_writes_without_an_id_are_told_apart(self, store: Store) -> None:
        assert store.commit(SPACE).write_id != store.commit(SPACE).write_id
        assert store.view(SPACE).sequence == 2


def _losing_its_reply(
    commit: Callable[[Append], Operation],
) -> Callable[[Append], Operation]:
    def run(append: Append) -> Operation:
        commit(append)
        raise Unavailable("the reply was lost")

    return run


def _assert_unchanged(store: Store, target: ObjectId) -> None:
    assert store.refs(SPACE) == [Ref(MAIN, target, 1)]
    assert len(store.operations(SPACE)) == 1


THREADS = 6
EACH = 20


class ConcurrencyContract(Base):
    """Real threads on one space."""

    def test_no_update_of_one_ref_is_lost(self, store: Store, second: Store) -> None:
        def work(number: int) -> None:
            handle = (store, second)[number % 2]
            for _ in range(EACH):
                _add_one(handle)

        in_threads(THREADS, work)

        total = THREADS * EACH
        operations = store.operations(SPACE)
        assert [one.sequence for one in operations] == list(range(1, total + 1))
        assert _count(store) == total
        before = None
        for operation in operations:
            (move,) = operation.moves
            assert move.expected == before
            before = move.target

    def test_refs_of_one_space_move_side_by_side(self, store: Store, second: Store) -> None:
        def work(number: int) -> None:
            name, before = ref_name("branch", str(number)), None
            for version in growing(EACH, seed=number):
                move = Move(name, before, version.id)
                (store, second)[number % 2].commit(SPACE, [version], moves=[move])
                before = version.id

        in_threads(THREADS, work)

        total = THREADS * EACH
        assert store.view(SPACE).sequence == total
        assert [one.sequence for one in store.operations(SPACE)] == list(range(1, total + 1))
        for number in range(THREADS):
            versions = growing(EACH, seed=number)
            ref = store.ref(SPACE, ref_name("branch", str(number)))
            assert ref is not None and ref.target == versions[-1].id
            found = read(store, [one.id for one in versions])
            assert [one.payload for one in found] == [one.payload for one in versions]

    def test_spaces_do_not_disturb_each_other(self, store: Store) -> None:
        def work(number: int) -> None:
            space = space_name("many", str(number))
            for step in range(EACH):
                assert store.commit(space).sequence == step + 1

        in_threads(THREADS, work)

        assert len(store.spaces("many/")) == THREADS

    def test_one_write_sent_by_many_happens_once(self, store: Store, second: Store) -> None:
        done: list[Operation] = []
        one = value("one")

        def work(number: int) -> None:
            handle = (store, second)[number % 2]
            move = Move(MAIN, None, one.id)
            done.append(handle.commit(SPACE, [one], moves=[move], write_id="w"))

        in_threads(THREADS, work)

        assert store.operations(SPACE) == [done[0]]
        assert all(one == done[0] for one in done)

    def test_a_view_is_of_one_moment(self, store: Store, second: Store) -> None:
        names = [ref_name("pair", "left"), ref_name("pair", "right")]
        written = threading.Event()

        def write() -> None:
            before = None
            for step in range(60):
                one = value(f"step {step}")
                store.commit(SPACE, [one], moves=[Move(name, before, one.id) for name in names])
                before = one.id

        def look() -> None:
            sequence = 0
            while not written.is_set():
                view = second.view(SPACE, "pair/")
                assert len({ref.target for ref in view.refs}) <= 1
                assert {ref.sequence for ref in view.refs} <= {view.sequence}
                assert view.sequence >= sequence
                sequence = view.sequence

        def work(number: int) -> None:
            if number:
                return look()
            try:
                write()
            finally:
                written.set()

        in_threads(3, work)


def _add_one(store: Store) -> None:
    for _ in range(100 * THREADS * EACH):
        ref = store.ref(SPACE, MAIN)
        before = None if ref is None else ref.target
        count = 0 if before is None else _number(store, before)
        padding = random.Random(count).randbytes(300)
        one = value(f"{count + 1} ".encode() + padding)
        try:
            store.commit(SPACE, [one], moves=[Move(MAIN, before, one.id)])
        except RefMoved:
            continue
        return
    raise AssertionError("a writer never got its turn")


def _count(store: Store) -> int:
    ref = store.ref(SPACE, MAIN)
    assert ref is not None
    return _number(store, ref.target)


def _number(store: Store, id: bytes) -> int:
    return int(read(store, [id])[0].payload.split(b" ", 1)[0])
