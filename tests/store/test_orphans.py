"""Objects of a writer whose commit did not come about, because a collection was beside it.

They stay until the next collection, and what they lead to may be gone. Nobody may build on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from ropewalk.errors import Corrupt, MissingObjects, Unavailable
from ropewalk.store import Framed, KeyValueStore, Move, Store, Stored, _key_value_store, _s3
from ropewalk.store._key_value_cells import Cell
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._order import Below, lowest_first
from ropewalk.store._s3_catalog import Catalog
from ropewalk.testing._stores._base import MAIN, SPACE
from ropewalk.tree import Object
from tests.conftest import SOAK
from tests.store.key_values import DictKV
from tests.store.orphans import Campaign
from tests.store.s3_memory import MemoryBucket, MemoryS3Store, no_answer
from tests.store.test_key_value_races import KEPT, NEXT, OLD, TOP, Killed, Stepping
from tests.store.test_key_value_store import Dying
from tests.store.test_s3_races import SteppingBucket

Data = dict[str, bytes]

ROUNDS = 20_000 if SOAK else 150


class LateKeyValueStore(KeyValueStore):
    """Does something else between its decision and its first write."""

    meanwhile: Callable[[], object]
    afterwards: Callable[[], object] = staticmethod(lambda: None)

    def _keep(self, frames: Sequence[Framed], epoch: int, below: Below) -> None:
        self.meanwhile()
        super()._keep(frames, epoch, below)
        self.afterwards()


class LateS3Store(MemoryS3Store):
    meanwhile: Callable[[], object]
    afterwards: Callable[[], object] = staticmethod(lambda: None)

    def _keep(self, frames: Sequence[Framed], epoch: int, below: Below) -> None:
        self.meanwhile()
        super()._keep(frames, epoch, below)
        self.afterwards()


@pytest.fixture(params=["key-value", "s3"])
def engine(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """How a store is opened, and one that is late."""
    if request.param == "key-value":
        return lambda data: KeyValueStore(DictKV(data)), lambda data: LateKeyValueStore(
            DictKV(data)
        )
    return lambda data: MemoryS3Store(MemoryBucket(data)), lambda data: LateS3Store(
        MemoryBucket(data)
    )


def killed() -> None:
    """End a writer."""
    raise Killed


def forgotten(store: Store) -> None:
    """Store `OLD`, and let nothing lead to it."""
    store.commit(SPACE, [KEPT], moves=[Move(MAIN, None, KEPT.id)])
    store.commit(SPACE, [OLD], moves=[Move("branch/old", None, OLD.id)])
    store.commit(SPACE, moves=[Move("branch/old", OLD.id, None)])
    store.commit(SPACE)


def orphan(engine: tuple[Any, Any], data: Data) -> None:
    """Leave `TOP` behind, while a collection takes `OLD`, to which it leads."""
    opened, late = engine
    forgotten(opened(data))
    writer = late(data)
    writer.meanwhile = lambda: opened(data).gc(recent=1)

    with pytest.raises(MissingObjects):
        writer.commit(SPACE, [TOP], [OLD.id], [Move("branch/late", None, TOP.id)])
    assert opened(data).missing([OLD.id]) == [OLD.id]


def test_nobody_may_point_to_what_a_late_writer_left(engine: tuple[Any, Any]) -> None:
    data: Data = {}
    orphan(engine, data)
    store = engine[0](data)

    with pytest.raises(MissingObjects) as refused:
        store.commit(SPACE, needs=[TOP.id], moves=[Move("branch/new", None, TOP.id)])

    assert refused.value.ids == (TOP.id,)
    assert store.missing([TOP.id]) == [TOP.id]


def test_what_a_late_writer_left_is_good_once_it_is_sent_again(engine: tuple[Any, Any]) -> None:
    data: Data = {}
    orphan(engine, data)
    store = engine[0](data)

    store.commit(SPACE, [TOP, OLD], moves=[Move("branch/new", None, TOP.id)])

    other = engine[0](data)
    assert other.missing([TOP.id, OLD.id]) == []
    assert other.check(read_data=True).ok
    other.gc(recent=1)
    assert other.missing([TOP.id, OLD.id]) == []
    assert other.check(read_data=True).ok


def test_what_a_killed_writer_stored_against_something_that_went_harms_nobody(
    engine: tuple[Any, Any],
) -> None:
    opened, late = engine
    data: Data = {}
    forgotten(opened(data))
    writer = late(data)
    writer.meanwhile = lambda: opened(data).gc(recent=1)
    writer.afterwards = killed
    with pytest.raises(Killed):
        writer.commit(SPACE, [NEXT], moves=[Move("branch/late", None, NEXT.id)])
    store = opened(data)

    assert store.missing([NEXT.id]) == [NEXT.id]
    assert store.check(read_data=True).problems == ()
    store.commit(SPACE, [NEXT], moves=[Move("branch/new", None, NEXT.id)])
    assert store.read([NEXT.id])[0].payload == NEXT.payload
    assert store.check(read_data=True).problems == ()


def test_what_a_late_writer_left_is_collected(engine: tuple[Any, Any]) -> None:
    data: Data = {}
    orphan(engine, data)
    store = engine[0](data)

    store.gc(recent=1)
    store.gc(recent=1)

    assert {one.id for one in engine[0](data).scan()} == {KEPT.id}


@pytest.mark.parametrize("order", [[TOP, OLD], [OLD, TOP]], ids=["above first", "below first"])
def test_what_is_left_of_half_a_commit_is_whole_on_a_key_value_store(order: list[Object]) -> None:
    data: Data = {}
    DictKV(data).as_store().commit(SPACE)
    dying = Dying(data, writes=1)

    with pytest.raises(Unavailable):
        KeyValueStore(dying).commit(SPACE, order, moves=[Move(MAIN, None, TOP.id)])

    assert DictKV(data).as_store().missing([TOP.id, OLD.id]) == [TOP.id]


@pytest.mark.parametrize("order", [[TOP, OLD], [OLD, TOP]], ids=["above first", "below first"])
def test_what_is_left_of_half_a_commit_is_whole_in_a_bucket(
    order: list[Object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_s3, "PACK_BYTES", 40)
    bucket = MemoryBucket({})
    store = MemoryS3Store(bucket)
    store.commit(SPACE)
    puts: list[str] = []

    def die_at_the_second(request: str) -> None:
        puts.extend([request] if request == "put" else [])
        if len(puts) > 1:
            no_answer()

    bucket.before = die_at_the_second
    with pytest.raises(Unavailable):
        store.commit(SPACE, order, moves=[Move(MAIN, None, TOP.id)])

    left = MemoryS3Store(MemoryBucket(bucket.data))
    assert left.missing([TOP.id, OLD.id]) == [TOP.id]


def key_value_steps(data: Data) -> tuple[Stepping, Store]:
    steps = Stepping(data)
    steps.allow_all()
    store = KeyValueStore(steps)
    steps.allow_none()
    return steps, store


def s3_steps(data: Data) -> tuple[Stepping, Store]:
    bucket = SteppingBucket(data)
    bucket.steps.allow_all()
    store = MemoryS3Store(bucket)
    bucket.steps.allow_none()
    return bucket.steps, store


CAMPAIGNS = {
    "key-value": Campaign(key_value_steps, lambda data: KeyValueStore(DictKV(data))),
    "s3": Campaign(s3_steps, lambda data: MemoryS3Store(MemoryBucket(data))),
}


@pytest.mark.parametrize("name", list(CAMPAIGNS))
def test_nobody_trusts_what_writers_left_that_gave_up_or_were_killed(name: str) -> None:
    for seed in range(ROUNDS):
        CAMPAIGNS[name].run(seed)


# A test that cannot fail proves nothing: these leave out one step each.


def no_doubt(*_: object) -> bool:
    return False


def highest_first(objects: Sequence[Object], below: Below) -> list[Object]:
    return list(reversed(lowest_first(objects, below)))


def all_at_once(objects: Sequence[Object]) -> dict[bytes, frozenset[bytes]]:
    return {one.id: frozenset() for one in objects}


def run_all(campaign: Campaign, seeds: Iterable[int]) -> None:
    """The first is one that was found to show it; the others are for when that has changed."""
    looks.clear()
    for seed in seeds:
        campaign.run(seed)


def look_once(store: ObjectStore) -> Iterator[Stored]:
    """All objects at the first look of a collection, and none at the second."""
    looks[id(store)] = looks.get(id(store), 0) + 1
    return store._scan() if looks[id(store)] == 1 else iter(())


looks: dict[int, int] = {}


@pytest.mark.parametrize(
    ("name", "place", "step", "instead", "seed"),
    [
        ("key-value", Cell, "is_doubtful", no_doubt, 2195),
        ("key-value", _key_value_store, "lowest_first", highest_first, 11),
        ("key-value", _key_value_store, "below", all_at_once, 783),
        ("key-value", KeyValueStore, "scan", look_once, 98),
        ("s3", Catalog, "doubts", no_doubt, 386),
        ("s3", MemoryS3Store, "scan", look_once, 590),
    ],
)
def test_the_campaign_finds_what_leaves_out(
    name: str, place: Any, step: str, instead: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, step, instead)

    with pytest.raises((AssertionError, MissingObjects, Corrupt)):
        run_all(CAMPAIGNS[name], [seed, *range(4000)])
