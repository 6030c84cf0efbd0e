"""Stores that find objects by their hashes: what is condemned can be saved until it is deleted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from ropewalk.errors import DamagedObject, MissingObjects, StoreClosed
from ropewalk.store import MAX_DEPTH, Move, Store, ref_name
from ropewalk.store._collecting import collect
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._own import manifest
from ropewalk.testing._stores._base import (
    MAIN,
    SPACE,
    Base,
    growing,
    in_threads,
    noise,
    point,
    value,
)
from ropewalk.testing._stores._care import all_ids, drop, long, step
from ropewalk.tree import ID_SIZE, Object, ObjectId, TreeWriter

ROUNDS = 40


class CollectionContract(Base):
    """Condemning, reviving, deleting, epochs, and chains of versions."""

    def lose(self, store: Store, id: ObjectId) -> bool:
        """Delete an object although it is reached."""
        engine = cast("ObjectStore", store)
        engine.condemn([id])
        return engine.delete([id]) == [id]

    def test_a_condemned_object_can_be_read_but_not_needed(self, store: ObjectStore) -> None:
        old, new = value("old"), value("new")
        store.commit(SPACE, [old])

        assert store.condemn([old.id, value("absent").id]) == [old.id]

        assert store.read([old.id]) == [old]
        assert store.missing([old.id]) == [old.id]
        assert [one.id for one in store.scan() if one.condemned] == [old.id]
        with pytest.raises(MissingObjects) as caught:
            store.commit(SPACE, [new], needs=[old.id])
        assert caught.value.ids == (old.id,)
        with pytest.raises(MissingObjects):
            store.commit(SPACE, moves=[Move(MAIN, None, old.id)])

    def test_writing_a_condemned_object_revives_it(self, store: ObjectStore) -> None:
        old, new = value("old"), value("new")
        store.commit(SPACE, [old])
        store.condemn([old.id])

        store.commit(SPACE, [old, new], needs=[old.id], moves=[Move(MAIN, None, old.id)])

        assert store.delete([old.id]) == []
        assert store.missing([old.id]) == []
        assert store.read([old.id]) == [old]

    def test_only_the_condemned_is_deleted(self, store: ObjectStore, second: ObjectStore) -> None:
        keep, drop = value("keep"), value("drop")
        store.commit(SPACE, [keep, drop])
        second.condemn([drop.id])

        assert store.delete([keep.id, drop.id, value("absent").id]) == [drop.id]

        assert store.read([keep.id]) == [keep]
        assert [one.id for one in second.scan()] == [keep.id]
        with pytest.raises(MissingObjects):
            second.read([drop.id])
        assert store.delete([drop.id]) == []

    def test_a_collection_deletes_only_what_it_condemned_last(
        self, store: ObjectStore, second: ObjectStore
    ) -> None:
        mine, ours, saved = value("mine"), value("ours"), value("saved")
        every = [mine.id, ours.id, saved.id]
        store.commit(SPACE, [mine, ours, saved])
        store.condemn(every, collection=7)
        store.commit(SPACE, [saved])
        second.condemn([ours.id, saved.id], collection=8)

        assert store.delete(every, collection=7) == [mine.id]

        assert store.read([ours.id, saved.id]) == [ours, saved]
        assert second.delete(every, collection=8) == [ours.id, saved.id]

    def test_a_deleted_object_can_be_written_again(self, store: ObjectStore) -> None:
        one = value("one")
        store.commit(SPACE, [one])
        store.condemn([one.id])
        store.delete([one.id])

        store.commit(SPACE, [one])

        assert store.read([one.id]) == [one]
        assert store.missing([one.id]) == []

    def test_a_condemnation_can_be_taken_back(self, store: ObjectStore) -> None:
        one = value("one")
        store.commit(SPACE, [one])
        store.condemn([one.id])

        store.revive([one.id, value("absent").id])

        assert store.missing([one.id]) == []
        assert store.delete([one.id]) == []

    def test_what_was_packed_with_deleted_objects_stays(self, store: ObjectStore) -> None:
        many = [value(noise(500, number)) for number in range(30)]
        store.commit(SPACE, many)
        keep, drop = many[::7], [one for place, one in enumerate(many) if place % 7]
        waiting = drop[0]
        store.condemn([one.id for one in drop])

        store.delete([one.id for one in drop[1:]])

        assert store.read([one.id for one in keep]) == keep
        assert store.missing([one.id for one in keep]) == []
        assert store.read([waiting.id]) == [waiting]
        assert store.missing([waiting.id]) == [waiting.id]

    def test_what_a_living_object_is_stored_against_is_spared(self, store: ObjectStore) -> None:
        versions = growing(6)
        for version in versions:
            store.commit(SPACE, [version])
        bases = {one.id: one.base for one in store.scan()}

        condemned = store.condemn([one.id for one in versions[:-1]])

        below, spared = bases[versions[-1].id], set()
        while below is not None:
            spared.add(below)
            below = bases[below]
        assert spared.isdisjoint(condemned)
        store.delete(condemned)
        assert store.read([versions[-1].id])[0].payload == versions[-1].payload

    def test_nothing_new_is_stored_against_the_condemned(self, store: ObjectStore) -> None:
        first, second = growing(2)
        store.commit(SPACE, [first])
        store.condemn([first.id])

        store.commit(SPACE, [second])
        store.delete([first.id])

        assert store.missing([first.id]) == [first.id]
        assert store.read([second.id])[0].payload == second.payload

    def test_what_is_revived_by_writing_stands_alone(self, store: ObjectStore) -> None:
        first, second = growing(2)
        store.commit(SPACE, [first])
        store.commit(SPACE, [second])
        store.condemn([first.id, second.id])

        store.commit(SPACE, [second])
        store.delete([first.id, second.id])

        assert store.read([second.id])[0].payload == second.payload

    def test_taking_back_a_condemnation_saves_what_is_below(self, store: ObjectStore) -> None:
        versions = growing(5)
        for version in versions:
            store.commit(SPACE, [version])
        ids = [one.id for one in versions]
        store.condemn(ids)

        store.revive([ids[-1]])
        store.delete(ids)

        assert store.read([ids[-1]])[0].payload == versions[-1].payload

    def test_a_base_that_was_deleted_and_written_deeper_makes_no_longer_chain(
        self, store: ObjectStore, second: ObjectStore
    ) -> None:
        versions = growing(12)
        store.commit(SPACE, [versions[8]._replace(base=None)])
        second.condemn([versions[8].id])  # Not by the first, which remembers it as whole.
        second.delete([versions[8].id])
        for version in versions[:9]:
            second.commit(SPACE, [version])

        for version in versions[9:]:
            store.commit(SPACE, [version])

        read = store.read([one.id for one in versions])
        assert [one.payload for one in read] == [one.payload for one in versions]

    def test_epochs_rise_for_every_space(self, store: ObjectStore, second: ObjectStore) -> None:
        done = point(store, value("one"))
        later = "test/later"
        before = store.view(later).epoch

        raised = second.raise_epochs()

        assert raised > done.epoch
        assert store.view(SPACE).epoch == raised
        assert store.view(later).epoch == raised > before
        assert store.commit(SPACE).epoch == raised

    def test_a_commit_on_an_old_epoch_looks_up_its_needs(self, store: ObjectStore) -> None:
        old, new = value("old"), value("new")
        done = store.commit(SPACE, [old])
        store.condemn([old.id])
        store.raise_epochs()

        with pytest.raises(MissingObjects):
            store.commit(SPACE, [new], needs=[old.id], epoch=done.epoch)

        store.commit(SPACE, [new, old], needs=[old.id], epoch=done.epoch)
        store.delete([old.id])
        assert store.read([old.id]) == [old]

    def test_what_is_stored_beside_a_collection_stays_whole(self, store: ObjectStore) -> None:
        kept, old = (TreeWriter().write(text).objects[0] for text in ("kept", "old"))
        top = manifest([old.id], None)
        point(store, kept)
        store.commit(SPACE, [old])
        beside = Beside(store, lambda: store.commit(SPACE, [top], [old.id]))

        collect(cast("ObjectStore", beside), recent=1)

        if store.missing([top.id]):
            with pytest.raises(MissingObjects):
                store.commit(SPACE, moves=[Move("branch/top", None, top.id)])
        else:
            assert store.read([old.id])[0].payload == old.payload
            store.commit(SPACE, moves=[Move("branch/top", None, top.id)])
        assert store.check(read_data=True).problems == ()
        store.gc(recent=1)
        assert store.check(read_data=True).problems == ()

    def test_a_collection_beside_writers_takes_nothing_that_is_reached(
        self, store: ObjectStore, second: ObjectStore
    ) -> None:
        writers, finished = 3, list[int]()

        def work(number: int) -> None:
            if number == writers:
                while len(finished) < writers:
                    _collect(second)
                return
            try:
                _write((store, second)[number % 2], number)
            finally:
                finished.append(number)

        in_threads(writers + 1, work)

        for target in _targets(store):
            (commit,) = store.read([target])
            store.read(_links(commit))
            assert store.missing([target, *_links(commit)]) == []

    def test_no_chain_is_longer_than_allowed(self, store: ObjectStore, second: ObjectStore) -> None:
        versions = growing(40)
        for number, version in enumerate(versions):
            (second if number % 3 else store).commit(SPACE, [version])

        bases = {one.id: one.base for one in store.scan()}
        for version in versions:
            length, base = 0, bases[version.id]
            while base is not None:
                length, base = length + 1, bases[base]
            assert length <= MAX_DEPTH

    def test_damage_under_a_version_is_found(self, store: ObjectStore) -> None:
        versions = growing(3)
        for version in versions:
            store.commit(SPACE, [version])
        bases = {one.id: one.base for one in store.scan()}
        if not self.damage(store, versions[0].id):
            pytest.skip("this suite has no way to damage stored bytes")

        for version in versions:
            below: ObjectId | None = version.id
            while below is not None and below != versions[0].id:
                below = bases[below]
            if below is None:  # An engine may store every version whole.
                assert store.read([version.id])[0].payload == version.payload
                continue
            with pytest.raises(DamagedObject) as caught:
                store.read([version.id])
            assert caught.value.id == versions[0].id

    def test_a_collection_after_one_that_was_killed_sets_everything_right(
        self, store: ObjectStore
    ) -> None:
        first = step(store, "main", long(1), None)
        drop(store, "other", step(store, "other", long(3), None))
        every = all_ids(store)
        store.condemn(every, collection=5)
        store.raise_epochs()

        store.gc(recent=1)

        assert first.id in all_ids(store) < every
        assert store.missing(all_ids(store)) == []
        assert store.check(read_data=True).problems == ()

    def test_a_closed_store_condemns_nothing(self, store: ObjectStore) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.condemn([]),
            lambda: store.revive([]),
            store.raise_epochs,
            lambda: store.delete([]),
        ]

        store.close()

        for call in calls:
            with pytest.raises(StoreClosed):
                call()

    def test_what_is_condemned_stays_so_after_reopening(
        self, store: ObjectStore, opener: Callable[[], ObjectStore]
    ) -> None:
        if not store.capabilities.persists:
            pytest.skip("this engine keeps nothing")
        doomed = value("doomed")
        store.commit(SPACE, [doomed])
        store.condemn([doomed.id])
        epoch = store.raise_epochs()
        store.close()

        again = opener()

        assert again.view(SPACE).epoch == epoch
        assert again.missing([doomed.id]) == [doomed.id]

    def test_the_twins_condemn_as_their_methods_do(self, store: ObjectStore) -> None:
        one = value("one")

        async def use() -> None:
            done = await store.acommit(SPACE, [one])
            assert await store.acondemn([one.id]) == [one.id]
            await store.arevive([one.id])
            assert await store.adelete([one.id]) == []
            assert await store.araise_epochs() > done.epoch

        asyncio.run(use())


class Beside:
    """A store on which something happens just before objects are condemned."""

    def __init__(self, store: ObjectStore, meanwhile: Callable[[], object]) -> None:
        self._store, self._meanwhile = store, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def condemn(self, ids: Iterable[ObjectId], collection: int = 1) -> list[ObjectId]:
        """Mark objects, a little too late."""
        self._meanwhile()
        return self._store.condemn(ids, collection)


def _write(store: ObjectStore, number: int) -> None:
    """Move refs to commits that point to shared objects, old ones among them."""
    choose = random.Random(number)
    name = ref_name("branch", str(number))
    shared = growing(6, seed=77)
    learned: dict[ObjectId, int] = {}
    for turn in range(ROUNDS):
        needed = choose.sample(shared, 2)
        needs = [one.id for one in needed]
        commit = value(b"".join(needs) + f"{number} {turn}".encode())
        head = store.ref(SPACE, name)
        move = Move(name, head.target if head else None, commit.id)
        epochs = {learned.get(id) for id in needs}
        epoch = epochs.pop() if len(epochs) == 1 else None
        sent: list[Object] = [commit]
        for _ in range(10):
            try:
                done = store.commit(SPACE, sent, needs=needs, moves=[move], epoch=epoch)
            except MissingObjects as error:
                sent += [one for one in needed if one.id in error.ids]
            else:
                learned.update(dict.fromkeys(needs, done.epoch))
                break
        else:
            raise AssertionError("what was sent again was called missing again and again")


def _collect(store: ObjectStore) -> None:
    reached = _reached(store)
    condemned = store.condemn([one.id for one in store.scan() if one.id not in reached])
    store.raise_epochs()
    # What was committed before the epoch rose may have trusted the old one.
    stored = list(store.scan())
    reached = _reached(store)
    store.revive(reached.intersection(condemned))
    store.settle(one for one in stored if one.id in reached)
    store.delete(condemned)


def _reached(store: ObjectStore) -> set[ObjectId]:
    targets = _targets(store)
    reached = set(targets)
    for commit in store.read(targets):
        reached.update(_links(commit))
    bases = {one.id: one.base for one in store.scan()}
    for id in list(reached):
        base = bases.get(id)
        while base is not None:
            reached.add(base)
            base = bases.get(base)
    return reached


def _targets(store: ObjectStore) -> list[ObjectId]:
    return [ref.target for ref in store.refs(SPACE)]


def _links(commit: Object) -> list[ObjectId]:
    return [commit.payload[:ID_SIZE], commit.payload[ID_SIZE : 2 * ID_SIZE]]
