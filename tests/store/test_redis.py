"""The contract on real Redis servers, and what a store on Redis does beyond it."""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

import ropewalk
from ropewalk import History, Timeline
from ropewalk.errors import (
    Conflict,
    Corrupt,
    InvalidInput,
    MissingObjects,
    NewerFormat,
    NotFound,
    RefMoved,
    RopewalkError,
    StoreClosed,
    StoreFull,
    Unavailable,
)
from ropewalk.store import (
    CachedStore,
    Fence,
    MemoryStore,
    Move,
    RedisStore,
    Store,
    encode_header,
    ref_name,
)
from ropewalk.store import _redis_commit as committing
from ropewalk.store import _redis_objects as objects
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._records import Header
from ropewalk.testing import ObjectStoreContract
from ropewalk.testing._stores._base import (
    MAIN,
    OTHER_SPACE,
    PATIENCE,
    SPACE,
    Opener,
    in_threads,
    noise,
)
from ropewalk.tree import Kind, Object, ObjectId, make_object
from tests.conftest import SOAK
from tests.store.redis_servers import KEEPS_ALL, Configured, client, configured
from tests.store.test_room import LIMIT, fill, state

ROOT = "{ropewalk:default}"


def value(content: str | bytes, base: ObjectId | None = None) -> Object:
    """An object that `check` accepts."""
    payload = content.encode() if isinstance(content, str) else content
    return make_object(Kind.CHUNK, payload, base)


def relaxed(url: str, **options: Any) -> RedisStore:
    return RedisStore(url, durability="relaxed", **options)


class OnRedis(ObjectStoreContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, RedisStore)
        frame = store._server.ask("HGET", f"{ROOT}:frames", id)
        store._server.ask("HSET", f"{ROOT}:frames", id, frame[:-1] + bytes([frame[-1] ^ 1]))
        return True


class TestRedisStore(OnRedis):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        return lambda clock: relaxed(redis_url, clock=clock)


class TestRedisStoreWhereEveryFrameIsLarge(OnRedis):
    """The way of large frames, for all of them."""

    @pytest.fixture
    def open_store(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Opener:
        monkeypatch.setattr(objects, "LARGE", 0)
        monkeypatch.setattr(objects, "AT_A_TIME", 300)
        return lambda clock: relaxed(redis_url, clock=clock)

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, RedisStore)
        key = f"{ROOT}:apart:".encode() + id
        frame = store._server.ask("GET", key)
        store._server.ask("SET", key, frame[:-1] + bytes([frame[-1] ^ 1]))
        return True


class TestRedisStoreThatKeepsAll(OnRedis):
    """Where every commit is synced."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[Configured]:
        with configured(KEEPS_ALL) as server:
            yield server

    @pytest.fixture
    def open_store(self, server: Configured) -> Opener:
        server.clear()
        return lambda clock: RedisStore(server.url, clock=clock)


class TestCacheOnRedis(OnRedis):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        return lambda clock: CachedStore(relaxed(redis_url, clock=clock))

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CachedStore)
        store.clear()
        return super().damage(store.inner, id)


@pytest.fixture
def store(redis_url: str) -> Iterator[RedisStore]:
    with relaxed(redis_url) as opened:
        yield opened


# The rules are those of `decide`.


class Pair:
    """The same calls on a store in memory and on Redis, whose answers must be the same."""

    def __init__(self, redis_store: ObjectStore, seed: int) -> None:
        self.stores: tuple[ObjectStore, ObjectStore] = (MemoryStore(), redis_store)
        self.choose = random.Random(seed)
        self.made = [value(noise(300, seed) + bytes(at)) for at in range(8)]
        self.tokens = [1]
        self.met: set[str] = set()

    def both(self, call: Callable[[ObjectStore], Any]) -> Any:
        expected, found = (self._outcome(call, store) for store in self.stores)
        assert found == expected
        self.met.add(str(expected[0]))
        return expected[1]

    def _outcome(self, call: Callable[[ObjectStore], Any], store: ObjectStore) -> tuple[Any, ...]:
        try:
            return "done", call(store)
        except MissingObjects as error:
            return type(error).__name__, error.ids
        except RefMoved as error:
            return type(error).__name__, (error.name, error.expected, error.actual)
        except RopewalkError as error:
            return type(error).__name__, str(error)

    def step(self) -> None:
        choose = self.choose
        roll = choose.random()
        if roll < 0.7:
            self.commit()
        elif roll < 0.78:
            ids = self.some(6)
            collection = choose.randrange(1, 3)
            self.both(lambda store: store.condemn(ids, collection))
        elif roll < 0.82:
            ids = self.some(3)
            self.both(lambda store: store.revive(ids))
        elif roll < 0.9:
            ids, collection = self.some(8), choose.randrange(1, 3)
            self.both(lambda store: sorted(store.delete(ids, collection)))
        elif roll < 0.95:
            self.both(lambda store: store.raise_epochs())
        else:
            holder = choose.choice("ab")
            self.both(lambda store: store.acquire(SPACE, MAIN, holder, 1e6).token)

    def some(self, most: int) -> list[ObjectId]:
        chosen = self.choose.sample(self.made, min(most, len(self.made)))
        return [one.id for one in chosen]

    def commit(self) -> None:
        choose = self.choose
        # Like another one, so that it is stored against that.
        like = choose.choice(self.made)
        fresh = value(like.payload[-1000:] + noise(choose.randrange(90), len(self.made)), like.id)
        given = [*choose.sample(self.made, choose.randrange(3)), fresh][: choose.randrange(4)]
        self.made.append(fresh)
        targets: list[ObjectId | None] = [None, *self.some(3), *(one.id for one in given)]
        names = choose.sample([MAIN, ref_name("branch", "b"), ref_name("branch", "c")], 2)
        refs = {ref.name: ref.target for ref in self.stores[0].refs(SPACE)}
        moves = [
            Move(name, refs.get(name) if choose.random() < 0.9 else None, choose.choice(targets))
            for name in names[: choose.randrange(3)]
        ]
        needs = self.some(choose.randrange(3))
        epoch = choose.choice([None, self.stores[0].view(SPACE).epoch, 1])
        fence = Fence(MAIN, choose.randrange(1, 4)) if choose.random() < 0.1 else None
        write_id = f"w{choose.randrange(80)}"

        def call(store: Store) -> tuple[Any, ...]:
            done = store.commit(
                SPACE, given, needs, moves, fence=fence, epoch=epoch, write_id=write_id
            )
            return done.sequence, done.epoch, done.moves, done.write_id

        self.both(call)

    def same(self) -> None:
        self.both(lambda store: store.view(SPACE))
        self.both(lambda store: [one.moves for one in store.operations(SPACE)])
        self.both(lambda store: sorted((one.id, one.condemned) for one in store.scan()))
        self.both(lambda store: store._presence([one.id for one in self.made]))
        self.both(lambda store: store.check(read_data=True).problems)


@pytest.mark.parametrize("seed", range(50 if SOAK else 5))
@pytest.mark.parametrize("large", [objects.LARGE, 100])
def test_a_store_on_redis_decides_as_a_store_in_memory_does(
    redis_url: str, seed: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "LARGE", large)
    with relaxed(redis_url) as store:
        pair = Pair(store, seed)
        for _ in range(150):
            pair.step()
        pair.same()

    assert pair.met >= {"done", "RefMoved", "MissingObjects"}


# Keys.


def test_other_keys_of_the_database_are_left_alone(redis_url: str) -> None:
    with client(redis_url) as other:
        other.set("mine", "1")
        other.set("{ropewalk:default}", "2")
        other.set("{ropewalk:default2}:frames", "3")
        other.rpush("ropewalk", "4")
        others = set(other.keys())

        with relaxed(redis_url) as store:
            store.commit(SPACE, [value("kept")], moves=[Move(MAIN, None, value("kept").id)])
            store.commit(SPACE, [value("dropped")])
            store.gc(recent=1)
            assert store.check(read_data=True).ok

        ours = set(other.keys()) - others
        assert ours and all(key.startswith(f"{ROOT}:".encode()) for key in ours)
        assert other.get("mine") == b"1"
        assert other.get("{ropewalk:default}") == b"2"
        assert other.get("{ropewalk:default2}:frames") == b"3"
        assert other.lrange("ropewalk", 0, -1) == [b"4"]


def test_two_stores_in_one_database_know_nothing_of_each_other(redis_url: str) -> None:
    with relaxed(redis_url, name="a") as first, relaxed(redis_url, name="b") as second:
        first.commit(SPACE, [value("one")], write_id="w")

        assert first.header.store_id != second.header.store_id
        assert second.spaces() == [] and list(second.scan()) == []
        assert second.commit(OTHER_SPACE, write_id="w").sequence == 1
        assert first.spaces() == [SPACE]


def test_all_keys_of_a_store_are_in_one_slot_of_a_cluster(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "LARGE", 0)
    store.commit(SPACE, [value("one")], moves=[Move(MAIN, None, value("one").id)])
    store.acquire(SPACE, MAIN, "me", 10.0)
    with client(redis_url) as other:
        slots = set(map(key_slot, other.keys()))

    assert slots == {key_slot(ROOT.encode())}


def test_no_key_of_a_store_ends_by_itself(store: RedisStore, redis_url: str) -> None:
    large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))
    store.commit(SPACE, [large, value("small")], moves=[Move(MAIN, None, large.id)])

    with client(redis_url) as other:
        assert set(map(other.ttl, other.keys())) == {-1}


# Large frames.


def test_large_frames_have_keys_of_their_own_and_small_ones_do_not(
    store: RedisStore, redis_url: str
) -> None:
    large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))
    small = make_object(Kind.CHUNK, noise(objects.LARGE - 100, seed=1))
    store.commit(SPACE, [large, small])

    with client(redis_url) as other:
        assert other.keys("*:apart:*") == [f"{ROOT}:apart:".encode() + large.id]
        assert other.keys("*:staged:*") == []
        assert other.hstrlen(f"{ROOT}:frames", large.id) < 50
    assert store.read([large.id, small.id]) == [large, small]
    found = {one.id: one for one in store.scan()}
    assert found[large.id].stored > objects.LARGE and found[large.id].length == len(large.payload)


def test_a_large_commit_is_sent_in_parts(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "IN_A_SCRIPT", 21_000)
    many = [make_object(Kind.CHUNK, noise(5000, seed)) for seed in range(30)]

    done = store.commit(SPACE, many)

    with client(redis_url) as other:
        assert len(other.keys("*:apart:*")) == 26
        assert other.keys("*:staged:*") == []
    assert done.sequence == 1
    assert store.read([one.id for one in many]) == many
    assert store.check(read_data=True).ok


def test_what_a_refused_commit_sent_ahead_is_removed(store: RedisStore, redis_url: str) -> None:
    large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))

    with pytest.raises(RefMoved):
        store.commit(SPACE, [large], moves=[Move(MAIN, large.id, large.id)])

    with client(redis_url) as other:
        assert other.keys("*:staged:*") == other.keys("*:apart:*") == []


def test_what_was_sent_ahead_and_is_gone_is_sent_again(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))
    stage, sent = objects.Objects.stage, []

    def forgetting(self: objects.Objects, frames: Any) -> objects.Staged:
        staged = stage(self, frames)
        sent.append(staged)
        if len(sent) == 1:
            self.unstage(staged)
        return staged

    monkeypatch.setattr(objects.Objects, "stage", forgetting)
    store.commit(SPACE, [large])

    assert len(sent) == 2
    assert store.read([large.id]) == [large]


def test_a_small_frame_takes_the_place_of_a_large_one_and_the_other_way_round(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = value(noise(500))
    for large in (0, 10**6, 0, 10**6):
        monkeypatch.setattr(objects, "LARGE", large)
        store.commit(SPACE, [one])
        store.condemn([one.id])
    before = store.stats().disk
    store.revive([one.id])

    with client(redis_url) as other:
        assert other.keys("*:apart:*") == []
    assert store.read([one.id]) == [one]
    assert store.stats().disk == before
    store.delete(store.condemn([one.id]))
    assert store._disk_bytes() < 600  # The log of four commits.


def test_a_large_frame_whose_bytes_are_gone_is_found(store: RedisStore, redis_url: str) -> None:
    large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))
    store.commit(SPACE, [large], moves=[Move(MAIN, None, large.id)])
    with client(redis_url) as other:
        other.delete(f"{ROOT}:apart:".encode() + large.id)

    problems = store.check(read_data=True).problems

    assert {problem.code for problem in problems} == {"bad-engine", "damaged-object"}
    with pytest.raises(Corrupt):
        store.read([large.id])


def test_a_chain_of_versions_is_read_in_two_requests(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relaxed(redis_url) as writer:
        payload, before = noise(2000), None
        for step in range(8):
            payload += noise(50, step)
            version = value(payload, before)
            writer.commit(SPACE, [version])
            before = version.id
    asked: list[str] = []
    send: Callable[..., Any] = redis.Redis.execute_command

    def counting(self: Any, *command: Any, **options: Any) -> Any:
        asked.append(command[0])
        return send(self, *command, **options)

    with relaxed(redis_url) as reader:
        reader._server.run("chains", b"")  # The server knows the script.
        monkeypatch.setattr(redis.Redis, "execute_command", counting)

        assert reader.read([version.id]) == [version._replace(base=None)]
        assert asked == ["HMGET", "EVALSHA"]


def test_a_scan_finds_each_object_once_while_others_are_written(store: RedisStore) -> None:
    kept = [value(f"kept {number}") for number in range(300)]
    store.commit(SPACE, kept)
    found: list[ObjectId] = []

    for number, one in enumerate(store.scan()):
        found.append(one.id)
        if number % 20 == 0:  # The hash grows meanwhile, and its order changes.
            store.commit(SPACE, [value(f"{number} {more}") for more in range(60)])

    assert len(found) == len(set(found))
    assert {one.id for one in kept} <= set(found)


# Room.


def test_a_size_limit_is_kept(redis_url: str) -> None:
    with relaxed(redis_url, size_limit=LIMIT) as store:
        history = History(store, "test/room")
        done = fill(history, "main")

        assert done >= 3
        assert history.value() == state(done - 1)
        history.create_tag("still usable")
        with pytest.raises(StoreFull, match=f"size_limit of {LIMIT}"):
            history.open().commit(state(99))
        history.delete_tag("still usable")
        history.delete_branch("main")
        history.open("other").commit({"small": 1})
        assert fill(history, "next", first=1000) >= 3
        assert store.check(read_data=True).ok
        assert (store.stats().disk or 0) <= LIMIT


def test_a_store_above_its_limit_takes_no_objects_but_moves_refs(redis_url: str) -> None:
    one = value(noise(1000))
    with relaxed(redis_url) as store:
        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)])

    with relaxed(redis_url, size_limit=500) as small:
        small.commit(SPACE, [one], moves=[Move(ref_name("tag", "x"), None, one.id)])
        with pytest.raises(StoreFull):
            small.commit(SPACE, [value("more")])
        assert small.commit(SPACE, moves=[Move(MAIN, one.id, None)]).sequence == 3


def test_what_is_collected_is_gone_and_no_longer_counted(store: RedisStore, redis_url: str) -> None:
    store.commit(SPACE, [value("stays")], moves=[Move(MAIN, None, value("stays").id)])
    before = store._disk_bytes()
    many = [value(noise(1000, seed)) for seed in range(20)]
    large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))
    operation = store.commit(SPACE, [*many, large])
    store.commit(SPACE, many)

    store.gc(recent=1)

    assert operation.sequence == 2
    assert before < store._disk_bytes() < before + 300
    with client(redis_url) as other:
        assert other.keys("*:apart:*") == []
        assert other.hlen(f"{ROOT}:frames") == 1
        assert not other.exists(f"{ROOT}:condemned")


def test_a_server_without_memory_is_full_and_can_be_collected() -> None:
    with (
        configured({"maxmemory": "8mb"}) as server,
        relaxed(server.url) as store,
        client(server.url) as other,
    ):
        first = value("first")
        store.commit(SPACE, [first], moves=[Move(MAIN, None, first.id)])
        fillers = (value(noise(20_000, seed)) for seed in range(10_000))
        with pytest.raises(StoreFull, match="maxmemory"):
            all(store.commit(SPACE, [one]) for one in fillers)
        large = make_object(Kind.CHUNK, noise(objects.LARGE + 1))
        with pytest.raises(StoreFull, match="maxmemory"):
            store.commit(SPACE, [large])

        assert store.read([first.id]) == [first]
        # Also when there is less than before.
        other.config_set("maxmemory", "0")
        other.set(f"{ROOT}:server", "the run before")
        other.config_set("maxmemory", "3mb")
        other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        store.commit(SPACE, moves=[Move(ref_name("tag", "now"), None, first.id)])
        relaxed(server.url).close()
        assert store.gc(recent=1).freed > 100
        other.config_set("maxmemory", "8mb")
        store.commit(SPACE, [large])
        assert store.check(read_data=True).ok


def test_a_commit_that_the_server_evicts_again_and_again_ends() -> None:
    settings = {"maxmemory": "8mb", "maxmemory-policy": "volatile-lru"}
    with configured(settings) as server, relaxed(server.url) as store:
        large = [make_object(Kind.CHUNK, noise(2_000_000, seed)) for seed in range(6)]

        with pytest.raises(StoreFull, match="noeviction"):
            store.commit(SPACE, large)
        assert store.check().ok


# Scripts, names and life.


def test_a_server_that_forgot_its_scripts_is_told_them_again(
    store: RedisStore, redis_url: str
) -> None:
    store.commit(SPACE)
    with client(redis_url) as other:
        other.script_flush()

        assert store.commit(SPACE).sequence == 2
        other.script_flush()
        store.acquire(SPACE, MAIN, "me", 10.0)
        other.script_flush()
        assert store.gc().freed == 0


def test_the_latest_write_ids_are_remembered_and_older_ones_forgotten(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "REMEMBERED", 10)
    # Twice as many are kept, then half of them are dropped: now and then, and a moment ago.
    done = [store.commit(SPACE, write_id=f"w{number}") for number in range(43)]

    with client(redis_url) as other:
        assert 80 <= other.strlen(f"{ROOT}:writes:{SPACE}") <= 160
    for number in range(33, 43):
        assert store.commit(SPACE, write_id=f"w{number}") == done[number]
    assert store.commit(SPACE, write_id="w0").sequence == 44


def test_a_mark_is_not_found_across_two_others(store: RedisStore, redis_url: str) -> None:
    mark = sha256(b"new").digest()[:8]
    done = [store.commit(SPACE, write_id="a"), store.commit(SPACE, write_id="b")]
    with client(redis_url) as other:
        marks = bytes(4) + mark + bytes(4)
        other.set(f"{ROOT}:writes:{SPACE}", marks)

        assert store.commit(SPACE, write_id="new").sequence == 3
        other.set(f"{ROOT}:writes:{SPACE}", marks + mark)
        assert store.commit(SPACE, write_id="new").sequence == 3
    assert [one.sequence for one in done] == [1, 2]


def test_a_store_is_opened_by_url(redis_url: str) -> None:
    with ropewalk.open(redis_url, durability="relaxed") as store:
        assert isinstance(store, RedisStore) and store.name == "default"
        Timeline("agent", store=store).checkpoint({"step": 1})

    with ropewalk.open(f"{redis_url}?durability=relaxed", create=False) as again:
        assert Timeline("agent", store=again).get_state() == {"step": 1}
        assert again.backend_id == "redis"
    with ropewalk.open(f"{redis_url}?name=x&durability=relaxed", size_limit=10**6) as other:
        assert isinstance(other, RedisStore) and other.name == "x"
        assert other.size_limit == 10**6 and other.spaces() == []


def test_a_socket_of_the_machine_is_opened_by_url(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with configured({"unixsocket": str(path)}):
        with ropewalk.open(f"unix://{path}", durability="relaxed") as store:
            store.commit(SPACE)

        with ropewalk.open(f"unix://{path}?db=0&durability=relaxed") as again:
            assert again.spaces() == [SPACE]


def test_nothing_is_made_where_nothing_is_to_be_made(redis_url: str) -> None:
    with pytest.raises(NotFound, match="no store 'default' at redis://127"):
        relaxed(redis_url, create=False)

    with client(redis_url) as other:
        assert other.keys() == []


def test_many_who_open_a_new_store_at_once_open_the_same_one(redis_url: str) -> None:
    ids: list[bytes] = []

    def work(number: int) -> None:
        with relaxed(redis_url) as store:
            ids.append(store.header.store_id)

    in_threads(8, work)

    assert len(ids) == 8 and len(set(ids)) == 1


@pytest.mark.parametrize("name", ["", "a b", "a}b", "{a", "ä", "x" * 65, 7, "a:b"])
def test_a_name_that_could_be_mistaken_is_refused(redis_url: str, name: Any) -> None:
    with pytest.raises(InvalidInput, match="name of a store"):
        relaxed(redis_url, name=name)


def test_a_store_of_a_newer_version_is_left_as_it_is(redis_url: str) -> None:
    with client(redis_url) as other:
        other.set(f"{ROOT}:header", encode_header(Header(bytes(16), format=99)))

        with pytest.raises(NewerFormat):
            relaxed(redis_url)


def test_a_store_without_its_header_is_not_taken_for_a_new_one(redis_url: str) -> None:
    with relaxed(redis_url) as store:
        store.commit(SPACE, [value("one")])
    with client(redis_url) as other:
        other.delete(f"{ROOT}:header")

        with pytest.raises(Corrupt, match="no header"):
            relaxed(redis_url)


def test_a_store_that_was_emptied_is_not_taken_for_a_new_one(redis_url: str) -> None:
    with relaxed(redis_url) as store, client(redis_url) as other:
        store.commit(SPACE, [value("one")])
        other.flushall()

        for call in (
            lambda: store.commit(SPACE),
            lambda: store.view(SPACE),
            lambda: store.acquire(SPACE, MAIN, "me", 10.0),
            lambda: store.ref(SPACE, MAIN),
            lambda: store.operations(SPACE),
            store.spaces,
            store.gc,
        ):
            with pytest.raises(Corrupt, match="is gone"):
                call()
        assert not store.check().ok
        assert other.keys() == []


def test_another_store_in_its_place_is_not_taken_for_it(redis_url: str) -> None:
    with relaxed(redis_url) as store, client(redis_url) as other:
        store.commit(SPACE, [value("one")])
        other.flushall()
        with relaxed(redis_url) as another:
            another.commit(SPACE, [value("two")])

            with pytest.raises(Corrupt, match="is gone"):
                store.view(SPACE)
            assert another.check().ok


@pytest.mark.parametrize(
    "key", ["log:" + SPACE, "refs:" + SPACE, "writes:" + SPACE, "frames", "condemned", "spaces"]
)
def test_a_key_that_another_program_wrote_to_changes_nothing(
    store: RedisStore, redis_url: str, key: str
) -> None:
    one = value("one")
    with client(redis_url) as other:
        if key.startswith("writes"):
            other.rpush(f"{ROOT}:{key}", "mine")
        else:
            other.set(f"{ROOT}:{key}", "mine")
        before = set(other.keys())
        with pytest.raises(Corrupt, match="another program"):
            store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)])

        assert set(other.keys()) == before


@pytest.mark.parametrize("key", ["epoch", "bytes"])
def test_a_number_that_is_none_changes_nothing(store: RedisStore, redis_url: str, key: str) -> None:
    with client(redis_url) as other:
        other.set(f"{ROOT}:{key}", "mine")
        before = set(other.keys())
        with pytest.raises((Corrupt, Unavailable)):
            store.commit(SPACE, [value("one")])

        assert set(other.keys()) == before


def test_records_that_are_none_are_found(store: RedisStore, redis_url: str) -> None:
    with client(redis_url) as other:
        other.hset(f"{ROOT}:refs:{SPACE}", MAIN, b"short")
        other.hset(f"{ROOT}:leases:{SPACE}", MAIN, b"x")

        with pytest.raises(Corrupt, match="ref"):
            store.ref(SPACE, MAIN)
        with pytest.raises(Corrupt, match="lease"):
            store.leases(SPACE)


def test_closing_waits_for_what_was_begun(redis_url: str) -> None:
    store = relaxed(redis_url)
    many = [value(noise(3000, seed)) for seed in range(300)]
    begun, done = threading.Event(), list[int]()

    def work() -> None:
        try:
            while True:
                done.append(store.commit(SPACE, many[:100]).sequence)
                begun.set()
        except StoreClosed:
            pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE)
    store.close()
    for thread in threads:
        thread.join(PATIENCE)

    with relaxed(redis_url) as again:
        assert sorted(done) == list(range(1, again.view(SPACE).sequence + 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_goes_on_with_the_store_of_its_parent(store: RedisStore) -> None:
    store.commit(SPACE)
    assert next(store.watch(SPACE)).sequence == 1
    child = os.fork()
    if child == 0:
        try:
            done = store.commit(SPACE)
            seen = [one.sequence for one in store.watch(SPACE, timeout=0.1)]
            store.close()
            os._exit(0 if done.sequence == 2 and seen == [1, 2] else 1)
        finally:
            os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.commit(SPACE).sequence == 3


# Waking.


def test_a_watcher_is_woken_by_what_another_one_commits(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisStore, "poll_seconds", None)
    with relaxed(redis_url) as writer, relaxed(redis_url) as reader:
        writer.commit(SPACE)
        seen: queue.Queue[int] = queue.Queue()

        def watch() -> None:
            for operation in reader.watch(SPACE, timeout=PATIENCE):
                seen.put(operation.sequence)
                if operation.sequence == 20:
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        assert seen.get(timeout=PATIENCE) == 1
        for number in range(2, 21):
            writer.commit(OTHER_SPACE)
            writer.commit(SPACE)
            # One after the other, so that each has to wake.
            assert seen.get(timeout=PATIENCE) == number
        thread.join(PATIENCE)


def test_the_thread_that_listens_ends_with_the_last_watcher(redis_url: str) -> None:
    with relaxed(redis_url) as store:
        store.commit(SPACE)
        for _ in range(3):
            assert next(store.watch(SPACE, timeout=1.0)).sequence == 1
        until = time.monotonic() + PATIENCE
        while any(thread.name == "ropewalk-redis" for thread in threading.enumerate()):
            assert time.monotonic() < until
            time.sleep(0.01)

        assert store._listener._thread is None


def test_200_tasks_share_one_store(redis_url: str) -> None:
    async def work(store: RedisStore, number: int) -> int:
        name = ref_name("branch", str(number))
        one = value(f"task {number}")
        await store.acommit(SPACE, [one], moves=[Move(name, None, one.id)])
        found = await store.aread([one.id])
        assert found == [one]
        ref = await store.aref(SPACE, name)
        assert ref is not None
        return ref.sequence

    async def all_of_them() -> list[int]:
        async with relaxed(redis_url, connections=8) as store:
            watched = asyncio.create_task(last(store))
            numbers = await asyncio.gather(*(work(store, number) for number in range(200)))
            assert await asyncio.wait_for(watched, PATIENCE) == 200
            return numbers

    async def last(store: RedisStore) -> int:
        async for operation in store.awatch(SPACE):
            if operation.sequence == 200:
                return operation.sequence
        return 0

    assert sorted(asyncio.run(all_of_them())) == list(range(1, 201))


def test_more_threads_than_connections_take_turns(redis_url: str) -> None:
    with relaxed(redis_url, connections=2) as store:

        def work(number: int) -> None:
            for _ in range(5):
                store.commit(SPACE)

        in_threads(12, work)

        assert store.view(SPACE).sequence == 60


def test_leases_are_fenced_by_the_server(redis_url: str) -> None:
    with relaxed(redis_url) as first, relaxed(redis_url) as second:
        lease = first.acquire(SPACE, MAIN, "me", 10.0)
        again = second.acquire(SPACE, MAIN, "me", 10.0)

        with pytest.raises(Conflict):
            first.commit(SPACE, fence=lease.fence)
        with pytest.raises(Conflict):
            first.commit(SPACE, fence=Fence(MAIN, 2**70))
        assert second.commit(SPACE, fence=again.fence).sequence == 1
