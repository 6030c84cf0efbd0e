"""References: their forms, where they lead, and what they refuse."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import ormsgpack
import pytest

from ropewalk import (
    AgentState,
    ContentRef,
    Externalized,
    FileStore,
    Inline,
    MemoryStore,
    SqliteStore,
    Store,
    UnresolvedReferenceError,
    migrate,
)
from ropewalk.errors import (
    Conflict,
    DamagedObject,
    InvalidInput,
    MissingContent,
    NotFound,
    StoreClosed,
    Unavailable,
)
from ropewalk.history import History
from ropewalk.state import prune_expired, release, using
from ropewalk.state.runtime import Runtime
from ropewalk.store.reserved import CONTENT_SPACE as CONTENT
from ropewalk.tree import Kind, make_object
from tests.state import workers

HASH = "ab" * 32
HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "xx/etc/passwd",
    "xx" + "/etc/hostname".ljust(62, "x"),
    "",
    "g" * 64,
    "A" * 64,
    "a" * 63,
    "a" * 65,
    "a" * 64 + "\n",
    "٣" * 64,
    "a" * 1_000_000,
    b"a" * 64,
    None,
    10**100_000,
    ["a" * 64],
]


class Docs(AgentState):
    step: Inline[int]
    docs: Externalized[Any]


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as opened:
        yield opened


def ref_of(store: Store, value: Any) -> ContentRef:
    return Docs(backend=store, docs=value).ref("docs")


def fields(**changed: Any) -> dict[str, Any]:
    return {
        "hash": HASH,
        "backend_id": "memory",
        "type_name": "list",
        "size_bytes": 3,
        **changed,
    }


# Forms.


def test_a_reference_is_small_and_goes_through_json_and_msgpack(store: MemoryStore) -> None:
    ref = ref_of(store, ["x" * 1_000_000])

    assert ContentRef.from_dict(json.loads(json.dumps(ref.to_dict()))) == ref
    assert ContentRef.from_json(ref.to_json()) == ref
    assert ContentRef.from_msgpack(ref.to_msgpack()) == ref
    assert len(ref.to_json()) < 200 and len(ref.to_msgpack()) < 200
    assert ref.type_name == "list" and 1_000_000 <= ref.size_bytes < 1_000_100


def test_references_are_equal_by_hash_and_backend(store: MemoryStore) -> None:
    ref = ref_of(store, [1])

    assert ref == ref_of(store, [1]) and hash(ref) == hash(ref_of(store, [1]))
    assert ref != ref_of(store, [2])
    assert ref != ref_of(MemoryStore(backend_id="other"), [1])


def test_a_reference_can_be_pickled_and_copied(store: MemoryStore) -> None:
    ref = ref_of(store, [1])

    assert pickle.loads(pickle.dumps(ref)) == ref == copy.deepcopy(ref)


def test_a_reference_does_not_change() -> None:
    ref = ContentRef(**fields())

    with pytest.raises(AttributeError):
        ref.hash = "cd" * 32  # type: ignore[misc]


@pytest.mark.parametrize("hash", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_hash_is_refused_for_every_use(store: MemoryStore, hash: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: ContentRef(hash, "memory", "list", 3),
        lambda: ContentRef.from_dict(fields(hash=hash)),
        lambda: Docs.from_checkpoint_dict({"docs": {"ropewalk_ref": fields(hash=hash)}}),
        lambda: release(hash, store),
    ]
    if isinstance(hash, str):
        makers.append(lambda: ContentRef.from_json(json.dumps(fields(hash=hash))))
        makers.append(lambda: ContentRef.from_msgpack(ormsgpack.packb(fields(hash=hash))))

    for make in makers:
        with pytest.raises(InvalidInput) as caught:
            make()
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "changed",
    [
        {"size_bytes": "3"},
        {"size_bytes": -1},
        {"size_bytes": 3.0},
        {"size_bytes": True},
        {"size_bytes": 10**100_000},
        {"backend_id": ""},
        {"backend_id": 5},
        {"backend_id": "x" * 2000},
        {"type_name": None},
        {"type_name": ""},
        {"more": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_field_of_the_wrong_type_or_size_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ContentRef.from_dict(fields(**changed))


@pytest.mark.parametrize("given", [None, [], "x", {}, {"hash": HASH}], ids=repr)
def test_what_is_no_reference_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput):
        ContentRef.from_dict(given)
    with pytest.raises(InvalidInput):
        ContentRef.from_json(json.dumps(given))
    with pytest.raises(InvalidInput):
        ContentRef.from_msgpack(ormsgpack.packb(given))


@pytest.mark.parametrize("given", ["{", "[" * 100_000, b"\xff", None])
def test_what_is_no_json_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput):
        ContentRef.from_json(given)


@pytest.mark.parametrize("given", [b"", b"\xc1", b"\x81", None])
def test_what_is_no_msgpack_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput):
        ContentRef.from_msgpack(given)


# Resolving.


def test_each_resolve_gives_a_value_of_its_own(store: MemoryStore) -> None:
    ref = ref_of(store, [[1]])
    first = ref.resolve(store)
    first[0].append(2)

    assert ref.resolve(store) == [[1]]


def test_without_a_backend_the_one_that_applies_is_asked(store: MemoryStore) -> None:
    ref = ref_of(store, [1])

    with using(Runtime(store)):
        assert ref.resolve() == [1]


def test_another_backend_is_an_error_that_names_both_and_says_what_to_do() -> None:
    ref = ref_of(MemoryStore(backend_id="here"), [1])

    with pytest.raises(UnresolvedReferenceError, match=r"'here'.*'there'.*backend_aliases"):
        ref.resolve(MemoryStore(backend_id="there"))


def test_a_store_resolves_what_names_its_alias(tmp_path: Path) -> None:
    with FileStore(tmp_path / "blobs", backend_id="old") as store:
        ref = ref_of(store, [1])
    with FileStore(tmp_path / "blobs", backend_id="new", backend_aliases=["old"]) as store:
        assert ref.resolve(store) == [1]


def test_content_that_is_gone_is_an_error_of_its_own(store: MemoryStore) -> None:
    ref = ref_of(store, list(range(10_000)))
    assert release(ref, store)
    store.gc(recent=1)

    with pytest.raises(MissingContent, match=ref.hash[:12]) as caught:
        ref.resolve(store)
    assert isinstance(caught.value, UnresolvedReferenceError | NotFound)
    assert caught.value.ids == (ref.id,)


def test_content_that_was_never_there_is_missing(store: MemoryStore) -> None:
    with pytest.raises(MissingContent):
        ContentRef(**fields()).resolve(store)
    with pytest.raises(MissingContent):
        Docs(backend=store, docs=ContentRef(**fields()))


def test_an_object_that_is_no_value_is_refused(store: MemoryStore) -> None:
    part = make_object(Kind.CHUNK, b"part of a value")
    store.commit("team/one", [part], share=True)

    with pytest.raises(Exception, match="not the root of a value"):
        ContentRef(part.id.hex(), "memory", "list", 1).resolve(store)


def test_a_store_that_does_not_answer_is_unavailable_and_not_missing(store: MemoryStore) -> None:
    ref = ref_of(store, [1])
    state = Docs(backend=store, docs=ref)
    store.close()

    with pytest.raises(StoreClosed):
        ref.resolve(store)
    with pytest.raises(Unavailable):
        state.docs  # noqa: B018


# Adopting.


def test_an_assigned_reference_is_adopted(store: MemoryStore) -> None:
    ref = ref_of(store, [1])
    state = Docs(backend=store, docs=ref)

    assert state.ref("docs") == ref
    assert state.docs == [1]


def test_an_assigned_reference_of_another_backend_is_refused(store: MemoryStore) -> None:
    state = Docs(backend=store, docs=[0])

    with pytest.raises(UnresolvedReferenceError):
        state.docs = ref_of(MemoryStore(backend_id="other"), [1])
    assert state.docs == [0]


def test_a_checkpoint_of_another_backend_can_be_held_but_not_read(store: MemoryStore) -> None:
    checkpoint = Docs(backend=MemoryStore(backend_id="other"), step=1, docs=[1])
    kept = checkpoint.to_checkpoint_dict()
    state = Docs.from_checkpoint_dict(kept, backend=store)

    assert state.step == 1
    assert state.to_checkpoint_dict() == kept
    with pytest.raises(UnresolvedReferenceError):
        state.docs  # noqa: B018


# Moving and migrating.


@pytest.mark.parametrize("engine", ["files", "sqlite"])
def test_moving_a_stores_folder_breaks_no_reference(tmp_path: Path, engine: str) -> None:
    checkpoint = workers.run("make", engine, tmp_path / "first", 2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "first").rename(tmp_path / "elsewhere/second")

    assert str(tmp_path) not in json.dumps(checkpoint)
    found = workers.run("ids", engine, tmp_path / "elsewhere/second", json.dumps(checkpoint))
    assert found == [0, 1]


@pytest.mark.parametrize("target", [SqliteStore, MemoryStore], ids=lambda one: one.__name__)
def test_references_lead_into_the_store_that_theirs_was_migrated_to(
    tmp_path: Path, target: Any
) -> None:
    with FileStore(tmp_path / "old") as old:
        state = Docs(backend=old, step=1, docs=[{"id": n} for n in range(2000)])
        checkpoint, hydrated = state.to_checkpoint_dict(), state.to_hydrated_dict()
        new = MemoryStore() if target is MemoryStore else target(tmp_path / "new")
        migrate(old, new)
    shutil.rmtree(tmp_path / "old")
    with new:
        back = Docs.from_checkpoint_dict(checkpoint, backend=new)
        assert back.to_hydrated_dict() == hydrated
        assert [pin.name for pin in History(new, CONTENT).pins()] == [back.ref("docs").hash]
        assert new.check().ok


def test_references_of_two_stores_come_together(tmp_path: Path) -> None:
    with FileStore(tmp_path / "old") as old, SqliteStore(tmp_path / "new") as new:
        both = [Docs(backend=store, docs=["both"] * 500).ref("docs") for store in (old, new)]
        mine = [ref_of(store, [store.backend_id] * 500) for store in (old, new)]
        migrate(old, new)
        later = ref_of(old, ["later"] * 500)
        migrate(old, new)
        again = migrate(old, new)
        new.gc(recent=1)

        assert again.operations == 0 and again.objects == 0
        for ref in (*both, *mine, later):
            assert len(ref.resolve(new)) == 500
        assert len(History(new, CONTENT).pins()) == 4
        assert new.check(read_data=True).ok
        with pytest.raises(UnresolvedReferenceError):
            mine[1].resolve(old)


def test_the_pin_that_lasts_longer_stays_when_references_come_together() -> None:
    times: list[float | None] = [10, 1000, None]
    for mine in times:
        for theirs in times:
            old, new = MemoryStore(backend_id="old"), MemoryStore(backend_id="new")
            Docs(runtime=Runtime(old, default_ttl_seconds=mine), docs=[1])
            Docs(runtime=Runtime(new, default_ttl_seconds=theirs), docs=[1])
            expected = [
                pin.expires_at for one in (old, new) for pin in History(one, CONTENT).pins()
            ]
            migrate(old, new)
            (found,) = History(new, CONTENT).pins()

            known = [one for one in expected if one is not None]
            assert found.expires_at == (None if None in expected else max(known))


def test_other_histories_are_refused_as_before(store: MemoryStore) -> None:
    other = MemoryStore(backend_id="other")
    for one in (store, other):
        ref_of(one, [one.backend_id])
        History(one, "a/b").open().commit({"of": one.backend_id})

    with pytest.raises(Conflict, match="a/b"):
        migrate(other, store)


def test_a_damaged_object_stops_a_migration_cleanly(tmp_path: Path) -> None:
    with FileStore(tmp_path / "old") as old, MemoryStore() as new:
        good = ref_of(old, ["good"] * 10)
        bad = ref_of(old, Random(1).randbytes(300_000))
        _flip_largest(tmp_path / "old")
        with pytest.raises(DamagedObject):
            migrate(old, new)

        assert old.backend_id == "file" and good.resolve(old) == ["good"] * 10
        with pytest.raises(UnresolvedReferenceError):
            bad.resolve(new)  # nothing of it arrived under its name


def _flip_largest(folder: Path) -> None:
    """Damage the largest file of a store."""
    files = [one for one in folder.rglob("*") if one.is_file()]
    largest = max(files, key=lambda one: one.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 0x10
    largest.chmod(0o644)
    largest.write_bytes(data)


# How long content is kept.


def test_content_is_kept_by_a_pin_that_gc_respects(store: MemoryStore) -> None:
    ref = ref_of(store, list(range(5000)))
    for n in range(5):
        ref_of(store, n)
    store.gc(recent=1)

    assert ref.resolve(store) == list(range(5000))


def test_a_pin_ends_with_the_time_to_live_of_the_runtime_or_of_the_store() -> None:
    store = MemoryStore(default_ttl_seconds=100)
    of_store = ref_of(store, [1])
    of_runtime = Docs(runtime=Runtime(store, default_ttl_seconds=1e6), docs=[2]).ref("docs")
    pins = {pin.name: pin.expires_at for pin in History(store, CONTENT).pins()}
    first, second = pins[of_store.hash], pins[of_runtime.hash]

    assert first is not None and second is not None
    assert 1e12 - 200e6 < second - first < 1e12


def test_without_a_time_to_live_a_pin_does_not_end(store: MemoryStore) -> None:
    ref_of(store, [1])

    assert [pin.expires_at for pin in History(store, CONTENT).pins()] == [None]
    assert prune_expired(store, 1 << 62) == []


def test_assigning_again_makes_a_pin_longer_and_never_shorter(store: MemoryStore) -> None:
    def expiry(seconds: float | None) -> int | None:
        Docs(runtime=Runtime(store, default_ttl_seconds=seconds), docs=[1])
        (pin,) = History(store, CONTENT).pins()
        return pin.expires_at

    first = expiry(1000)
    assert first is not None

    assert expiry(10) == first
    longer = expiry(5000)
    assert longer is not None and longer > first
    assert expiry(None) is None
    assert expiry(10) is None


def test_assigning_over_an_expired_pin_makes_it_live_again(store: MemoryStore) -> None:
    short = Runtime(store, default_ttl_seconds=0.001)
    ref = Docs(runtime=short, docs=[1] * 1000).ref("docs")
    after = _after(store)
    Docs(runtime=Runtime(store, default_ttl_seconds=1000), docs=[1] * 1000)

    assert prune_expired(store, after) == []
    store.gc(recent=1)
    assert ref.resolve(store) == [1] * 1000


def _after(store: Store) -> int:
    """A moment when the last pin is over."""
    return max(pin.expires_at or 0 for pin in History(store, CONTENT).pins()) + 1


def test_a_new_checkpoint_gives_its_references_more_time(store: MemoryStore) -> None:
    short, long = Runtime(store, default_ttl_seconds=10), Runtime(store, default_ttl_seconds=1000)
    checkpoint = Docs(runtime=short, docs=[1] * 1000).to_checkpoint_dict()
    later = _after(store)
    Docs.from_checkpoint_dict(checkpoint, runtime=long).to_checkpoint_dict()

    assert prune_expired(store, later) == []
    (pin,) = History(store, CONTENT).pins()
    sequence = store.view(CONTENT).sequence
    Docs.from_checkpoint_dict(checkpoint, runtime=long).to_checkpoint_dict()
    assert store.view(CONTENT).sequence == sequence  # not again as long as half of it is left
    assert pin.expires_at is not None and pin.expires_at > later + 900e6


def test_a_checkpoint_of_content_that_is_gone_can_still_be_made(store: MemoryStore) -> None:
    runtime = Runtime(store, default_ttl_seconds=10)
    state = Docs(runtime=runtime, step=1, docs=[1] * 1000)
    checkpoint = state.to_checkpoint_dict()
    release(state.ref("docs"), store)
    store.gc(recent=1)
    again = Docs.from_checkpoint_dict(checkpoint, runtime=runtime)

    assert again.to_checkpoint_dict() == checkpoint


def test_expired_content_is_pruned_then_collected_and_live_content_stays() -> None:
    store = MemoryStore()
    short, long = Runtime(store, default_ttl_seconds=1), Runtime(store, default_ttl_seconds=10_000)
    old = Docs(runtime=short, docs=["old" * 100_000])
    live = Docs(runtime=long, docs=["live" * 100_000])
    expired = old.ref("docs").hash
    moment = _after_short(store, expired)

    assert prune_expired(store, moment) == [expired]
    assert prune_expired(store, moment) == []
    before = sum(1 for _ in store.scan())
    freed = store.gc(recent=1)
    assert sum(1 for _ in store.scan()) < before
    assert freed.freed > 0 and freed.freed_bytes > 0
    assert Docs.from_checkpoint_dict(live.to_checkpoint_dict(), runtime=long).docs == [
        "live" * 100_000
    ]
    with pytest.raises(MissingContent):
        old.docs  # noqa: B018


def _after_short(store: Store, name: str) -> int:
    (found,) = [pin.expires_at for pin in History(store, CONTENT).pins() if pin.name == name]
    assert found is not None
    return found + 1


def test_many_expired_references_are_pruned_together(store: MemoryStore) -> None:
    short = Runtime(store, default_ttl_seconds=1)
    for n in range(600):
        Docs(runtime=short, docs=n)
    kept = ref_of(store, "kept")

    assert len(prune_expired(store, _after(store))) == 600
    assert [pin.name for pin in History(store, CONTENT).pins()] == [kept.hash]


def test_release_drops_a_pin_once(store: MemoryStore) -> None:
    ref = ref_of(store, [1])

    assert release(ref, store) is True
    assert release(ref, store) is False
    with pytest.raises(UnresolvedReferenceError):
        release(ref, MemoryStore(backend_id="other"))


def test_one_value_in_two_fields_is_stored_and_pinned_once(store: MemoryStore) -> None:
    class Two(AgentState):
        a: Externalized[list[int]]
        b: Externalized[list[int]]

    state = Two(backend=store, a=[1], b=[1])

    assert state.ref("a") == state.ref("b")
    assert len(History(store, CONTENT).pins()) == 1
    state.a.append(2)
    assert state.b == [1]
