"""Concurrent writers: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import random
import threading

from ropewalk.errors import RefMoved
from ropewalk.store import Move, Operation, Store, ref_name, space_name
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import MAIN, SPACE, growing, in_threads, read, value

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
