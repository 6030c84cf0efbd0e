"""What a typed state must never do to anybody's data; each of these was seen elsewhere."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Annotated, Any

import pytest

from ropewalk import (
    AgentState,
    ContentRef,
    Externalized,
    FileStore,
    Inline,
    InlineSizeExceeded,
    MemoryStore,
    SqliteStore,
    Store,
    migrate,
)
from ropewalk.adapters import StateAdapter
from ropewalk.errors import (
    Corrupt,
    DamagedObject,
    InvalidInput,
    MissingContent,
    NotStorable,
    RopewalkError,
)
from ropewalk.history import History
from ropewalk.state import Runtime, append_items, merge_keys, release, validate_checkpoint
from ropewalk.store.reserved import CONTENT_SPACE
from ropewalk.tree import Kind, make_object
from tests.state import workers

Point = namedtuple("Point", "x y")


class Level(IntEnum):
    HIGH = 1


class Ordered(OrderedDict[str, int]):
    pass


class Bytes(bytes):
    pass


class Held(AgentState):
    note: Inline[Any]
    value: Externalized[Any]
    raw: Externalized[bytes | None]


@pytest.fixture
def store() -> Iterator[Store]:
    with MemoryStore() as opened:
        yield opened


def back(store: Store, value: Any) -> Any:
    """A value, stored and read by another state."""
    checkpoint = json.loads(json.dumps(Held(backend=store, value=value).to_checkpoint_dict()))
    return Held.from_checkpoint_dict(checkpoint, backend=store).value


def exact(value: Any) -> str:
    """A text that differs where types or values do."""
    if isinstance(value, dict):
        inner = ", ".join(f"{exact(key)}: {exact(one)}" for key, one in value.items())
    elif isinstance(value, list | tuple):
        inner = ", ".join(map(exact, value))
    elif isinstance(value, set | frozenset):
        inner = ", ".join(sorted(map(exact, value)))
    else:
        inner = repr(value)
    return f"{type(value).__name__}({inner})"


# Wrong data.


@pytest.mark.parametrize(
    "key", [1, True, None, 1.5, (1, "a"), b"k", frozenset({1}), -0.0], ids=repr
)
def test_a_dict_with_a_key_of_any_type_comes_back(store: Store, key: Any) -> None:
    value = {key: "a", "deep": [{key: {"b": key}}]}

    assert exact(back(store, value)) == exact(value)


@pytest.mark.parametrize(
    "value",
    [
        *((1, [2, (3,)]), {1, 2}, frozenset({"a"}), bytearray(b"x"), b"x", 1 + 2j, float("inf")),
        *(2**200, OrderedDict(b=1, a=2), deque([1], 2), Counter("ab"), defaultdict(list)),
        *(Point(1, 2), Level.HIGH),
    ],
    ids=repr,
)
def test_a_value_of_a_type_that_is_known_comes_back_as_that_type(store: Store, value: Any) -> None:
    assert exact(back(store, {"v": value})) == exact({"v": value})


@pytest.mark.parametrize(
    "value",
    [Ordered(a=1), Bytes(b"\x01"), memoryview(b"x"), object()],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_would_come_back_as_another_type_is_refused(store: Store, value: Any) -> None:
    with pytest.raises(NotStorable, match=r"value\["):
        Held(backend=store, value={"v": value})


@pytest.mark.parametrize(
    ("engine", "how"),
    [(FileStore, "flip"), (FileStore, "cut"), (FileStore, "remove"), (SqliteStore, "flip")],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_damaged_content_is_an_error_and_heals_when_it_is_assigned_again(
    tmp_path: Path, engine: Any, how: str
) -> None:
    value = Random(3).randbytes(300_000)
    with engine(tmp_path / "blobs") as store:
        checkpoint = Held(backend=store, raw=value).to_checkpoint_dict()
    files = [one for one in (tmp_path / "blobs").rglob("*") if one.is_file()]
    _damage(max(files, key=lambda one: one.stat().st_size), how)
    with engine(tmp_path / "blobs") as store:
        state = Held.from_checkpoint_dict(checkpoint, backend=store)
        with pytest.raises(MissingContent if how == "remove" else DamagedObject):
            state.hydrate("raw")
        Held(backend=store, raw=value)

        assert state.raw == value
        assert store.check(read_data=True).ok


def _damage(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    file.chmod(0o644)
    if how == "remove":
        file.unlink()
    elif how == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


def test_a_change_in_place_is_saved(store: Store) -> None:
    state = Held(backend=store, value=["a"])
    state.value.append("b")
    checkpoint = state.to_checkpoint_dict()

    assert Held.from_checkpoint_dict(checkpoint, backend=store).value == ["a", "b"]


def test_a_change_in_place_never_leaks_into_an_older_checkpoint(store: Store) -> None:
    state = Held(backend=store, value=["a"])
    ref, checkpoint = state.ref("value"), state.to_checkpoint_dict()
    early = Held.from_checkpoint_dict(checkpoint, backend=store)
    assert early.value == ["a"]
    Held.from_checkpoint_dict(checkpoint, backend=store).value.append("LEAK")
    state.value.append("LEAK")
    state.save()

    assert early.value == ["a"] and ref.resolve(store) == ["a"]
    assert Held.from_checkpoint_dict(checkpoint, backend=store).value == ["a"]


def test_none_in_a_field_of_bytes_comes_back_as_none(store: Store) -> None:
    state = Held(backend=store, raw=None)
    again = Held.from_checkpoint_dict(state.to_checkpoint_dict(), backend=store)

    assert state.raw is None and again.raw is None
    assert again.raw is None  # also the second time


def test_a_checkpoint_does_not_change_with_the_state_and_keeps_the_limit(store: Store) -> None:
    state = Held(runtime=Runtime(store, inline_threshold_bytes=100), note=["a"])
    checkpoint = state.to_checkpoint_dict()
    state.note.append("b" * 200)

    assert checkpoint == {"note": ["a"]}
    with pytest.raises(InlineSizeExceeded):
        state.to_checkpoint_dict()


def test_values_of_different_types_have_different_references(store: Store) -> None:
    values = [1, True, 1.0, b"\x01", "\x01", [1], (1,), {1}, None, b"", "", [], {}]
    refs = [Held(backend=store, value=value).ref("value") for value in values]

    assert len(set(refs)) == len(values)
    assert [exact(ref.resolve(store)) for ref in refs] == [exact(value) for value in values]


def test_user_content_with_a_key_called_hash_is_user_content() -> None:
    assert append_items([{"hash": "x", "v": 1}], [{"hash": "x", "v": 2}]) == [
        {"hash": "x", "v": 1},
        {"hash": "x", "v": 2},
    ]
    assert merge_keys({"hash": 1}, {"hash": 2}) == {"hash": 2}


def test_there_is_never_a_reference_to_a_reference(store: Store) -> None:
    adapter = StateAdapter(Held, backend=store)
    once = adapter.externalize({"value": [1]})
    twice = adapter.externalize(adapter.externalize(once))
    state = Held.from_checkpoint_dict(once, backend=store)
    by_state = adapter.externalize(state)
    by_ref = adapter.externalize({"value": state.ref("value")})
    by_value = adapter.externalize({"value": state.value})

    assert once == twice == by_state == by_ref == by_value
    assert adapter.hydrate(twice)["value"] == [1]
    with pytest.raises(InvalidInput, match="ContentRef"):
        adapter.externalize(dict(once))


def test_what_looks_like_a_reference_in_user_content_is_content(store: Store) -> None:
    ref = Held(backend=store, value="secret").ref("value")
    adapter = StateAdapter(Held, backend=store)
    for lookalike in (ref.to_dict(), {"ropewalk_ref": ref.to_dict()}):
        for value in ([lookalike], {"deep": {"er": lookalike}}):
            assert back(store, value) == value
            assert adapter.hydrate(adapter.externalize({"value": value}))["value"] == value
        assert back(store, lookalike) == lookalike
        state = Held(backend=store, note=lookalike)
        again = Held.from_checkpoint_dict(state.to_checkpoint_dict(), backend=store)
        assert again.note == lookalike
    assert adapter.hydrate(adapter.externalize({"value": ref.to_dict()}))["value"] == ref.to_dict()


@pytest.mark.parametrize("engine", ["files", "sqlite"])
def test_a_folder_that_was_renamed_keeps_every_reference(tmp_path: Path, engine: str) -> None:
    opened = {"files": FileStore, "sqlite": SqliteStore}[engine]
    with opened(tmp_path / "a") as store:
        checkpoint = Held(backend=store, value=[1]).to_checkpoint_dict()
    (tmp_path / "a").rename(tmp_path / "b")
    with opened(tmp_path / "b") as store:
        assert Held.from_checkpoint_dict(checkpoint, backend=store).value == [1]


def test_the_threshold_of_an_adapter_is_the_one_that_counts(store: Store) -> None:
    tight = StateAdapter(Held, backend=store, inline_threshold_bytes=10)
    wide = StateAdapter(Held, backend=store, inline_threshold_bytes=10_000_000)
    large = {"note": "x" * 100_000}

    with pytest.raises(InlineSizeExceeded) as caught:
        tight.externalize(large)
    assert caught.value.limit == 10
    assert wide.externalize(large) == large
    validate_checkpoint(Held, large, runtime=wide.runtime)
    with pytest.raises(InlineSizeExceeded):
        validate_checkpoint(Held, large, runtime=tight.runtime)


def test_the_threshold_counts_for_reducers_too(store: Store) -> None:
    class Notes(AgentState):
        notes: Annotated[Inline[list[str]], append_items]

    adapter = StateAdapter(Notes, backend=store, inline_threshold_bytes=100)

    with pytest.raises(InlineSizeExceeded):
        adapter.reducers()["notes"](["x" * 60], ["y" * 60])


def test_equal_values_share_their_content_whatever_made_them(store: Store) -> None:
    grown: list[int] = []
    state = Held(backend=store, value=grown)
    for n in range(3000):
        state.value.append(n)
        if n % 500 == 0:
            state.save()

    assert state.ref("value") == Held(backend=store, value=list(range(3000))).ref("value")


def test_the_order_of_keys_is_part_of_a_value_and_comes_back(store: Store) -> None:
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}

    assert list(back(store, one)) == ["a", "b"] and list(back(store, other)) == ["b", "a"]


def test_a_migration_that_meets_damage_says_so_and_brings_the_rest(tmp_path: Path) -> None:
    with FileStore(tmp_path / "old") as old, MemoryStore() as new:
        refs = [Held(backend=old, value=[n] * 100).ref("value") for n in range(10)]
        bad = Held(backend=old, raw=Random(1).randbytes(300_000)).ref("raw")
        files = [one for one in (tmp_path / "old").rglob("*") if one.is_file()]
        _damage(max(files, key=lambda one: one.stat().st_size), "flip")
        with pytest.raises(DamagedObject):
            migrate(old, new)
        result = migrate(old, new, keep_going=True)

        assert [ref.resolve(new) for ref in refs] == [[n] * 100 for n in range(10)]
        assert len(result.lost) >= 1 and len(result.left) == 1 and bad.hash in result.left[0]
        assert new.check(read_data=True).ok
        with pytest.raises((Corrupt, KeyError)):
            bad.resolve(new)


# Security.


def test_no_reference_leads_out_of_the_store(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with FileStore(tmp_path / "blobs") as store:
        for hash in (f"xx{secret}", "../secret", str(secret), "xx" + str(secret)[:62]):
            place = {"hash": hash, "backend_id": "file", "type_name": "bytes", "size_bytes": 6}
            with pytest.raises(InvalidInput):
                Held.from_checkpoint_dict({"value": {"ropewalk_ref": place}}, backend=store)
            with pytest.raises(InvalidInput):
                release(ContentRef(hash, "file", "bytes", 6), store)

    assert secret.read_text() == "secret"


def test_reading_content_runs_no_code(tmp_path: Path, store: Store) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    made = make_object(Kind.VALUE, pickle.dumps(Evil()))
    store.commit(CONTENT_SPACE, [made])
    with suppress(RopewalkError):
        ContentRef(made.id.hex(), store.backend_id, "Evil", 1).resolve(store)

    assert not (tmp_path / "ran").exists()
    assert pickle.loads(made.payload) is None and (tmp_path / "ran").exists()  # as it would have


# Crashes, threads, memory.

_PUT_FOR_EVER = """
import sys, json, random
from tests.state.test_defects import Held
from ropewalk import {engine} as Engine
store = Engine(sys.argv[1])
for n in range(10**6):
    state = Held(backend=store, raw=random.Random(n).randbytes(500_000))
    print(json.dumps([n, state.to_checkpoint_dict()]), flush=True)
"""


@pytest.mark.parametrize("engine", ["FileStore", "SqliteStore"])
def test_a_killed_writer_leaves_every_acknowledged_value_readable(
    tmp_path: Path, engine: str
) -> None:
    acknowledged: list[tuple[int, Any]] = []
    for wait in (1, 2, 3):
        program = _PUT_FOR_EVER.format(engine=engine)
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "blobs")],
            cwd=workers.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            acknowledged += [json.loads(process.stdout.readline()) for _ in range(wait)]
            process.kill()
    with {"FileStore": FileStore, "SqliteStore": SqliteStore}[engine](tmp_path / "blobs") as store:
        for n, checkpoint in acknowledged:
            value = Held.from_checkpoint_dict(checkpoint, backend=store).raw
            assert value == Random(n).randbytes(500_000)
        assert store.check(read_data=True).ok
        store.gc(recent=1)
        kept = sum(1 for _ in store.scan())
        pins = len(History(store, CONTENT_SPACE).pins())
        assert kept < 200 * pins  # nothing is left over that nobody names
    assert len(acknowledged) == 6


def test_a_value_that_is_put_while_others_are_let_go_and_collected_stays(store: Store) -> None:
    stop, failures = threading.Event(), []

    def let_go() -> None:
        try:
            while not stop.is_set():
                release(Held(backend=store, value=["others"] * 500).ref("value"), store)
                store.gc(recent=1)
        except RopewalkError as error:
            failures.append(error)

    thread = threading.Thread(target=let_go)
    thread.start()
    try:
        # Most of each list is also in the one that is let go all the time.
        refs = [Held(backend=store, value=[*["others"] * 500, n]).ref("value") for n in range(100)]
    finally:
        stop.set()
        thread.join()

    assert failures == []
    assert [ref.resolve(store)[-1] for ref in refs] == list(range(100))


def test_a_put_after_a_release_always_has_its_content(store: Store) -> None:
    for _ in range(50):
        ref = Held(backend=store, value=["same"] * 500).ref("value")
        assert ref.resolve(store) == ["same"] * 500
        release(ref, store)
        store.gc(recent=1)


def test_many_threads_put_the_same_and_other_values(store: Store) -> None:
    def put(n: int) -> ContentRef:
        return Held(backend=store, value={"n": n % 10, "text": "x" * 2000}).ref("value")

    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(put, range(200)))

    assert len(set(refs)) == 10
    assert all(ref.resolve(store)["n"] == n % 10 for n, ref in enumerate(refs))
    assert len(History(store, CONTENT_SPACE).pins()) == 10


def test_a_put_over_an_expired_pin_is_there(store: Store) -> None:
    Held(runtime=Runtime(store, default_ttl_seconds=0.0001), value=["x"] * 500)
    ref = Held(backend=store, value=["x"] * 500).ref("value")
    (pin,) = History(store, CONTENT_SPACE).pins()

    assert pin.expires_at is None
    assert ref.resolve(store) == ["x"] * 500


def test_a_reference_holds_no_value(store: Store) -> None:
    state = Held(backend=store, value=[["x"] * 1000])
    ref = state.ref("value")
    values = [id(ref.resolve(store)) for _ in range(3)]
    del state
    gc.collect()

    assert len(values) == 3
    assert ContentRef.__slots__ == ("hash", "backend_id", "type_name", "size_bytes")
