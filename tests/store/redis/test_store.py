"""What a store on Redis does beyond the contract, on real servers."""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

import ropewalk
from ropewalk import Timeline
from ropewalk.errors import (
    Conflict,
    Corrupt,
    InvalidInput,
    MissingObjects,
    NewerFormat,
    NotAllowed,
    NotFound,
    RefMoved,
    RopewalkError,
    StoreClosed,
    StoreFull,
    Unavailable,
)
from ropewalk.history import History
from ropewalk.store import Fence, Move, RedisStore, SqliteStore, Store, ref_name
from ropewalk.store.engine import encode_header
from ropewalk.store.model import REMEMBERED_WRITES, Header
from ropewalk.store.redis.objects import Objects
from ropewalk.store.redis.server import Server
from ropewalk.testing.helpers import (
    MAIN,
    OTHER_SPACE,
    PATIENCE,
    SPACE,
    in_threads,
    load_value,
    noise,
)
from ropewalk.tree import Kind, Object, ObjectId, TreeWriter, make_commit, make_object
from tests.conftest import SOAK
from tests.store.logs import flipped
from tests.store.redis.contract import ROOT, EagerRedisStore, object_key, relaxed
from tests.store.redis.servers import client, configured
from tests.store.test_quota import LIMIT, fill, state

LARGE = make_object(Kind.CHUNK, noise(40_000))
"""What is shared, because it is so large."""


def value(content: str | bytes) -> Object:
    """An object that `check` accepts."""
    return make_object(Kind.CHUNK, content.encode() if isinstance(content, str) else content)


@pytest.fixture
def store(redis_url: str) -> Iterator[RedisStore]:
    with relaxed(redis_url) as opened:
        yield opened


# Keys.


def test_other_keys_of_the_database_are_left_alone(redis_url: str) -> None:
    with client(redis_url) as other:
        other.set("mine", "1")
        other.set("{ropewalk:default}", "2")
        other.set("{ropewalk:default2}:objects", "3")
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
        assert other.get("{ropewalk:default2}:objects") == b"3"
        assert other.lrange("ropewalk", 0, -1) == [b"4"]


def test_two_stores_in_one_database_know_nothing_of_each_other(redis_url: str) -> None:
    with relaxed(redis_url, name="a") as first, relaxed(redis_url, name="b") as second:
        first.commit(SPACE, [value("one")], write_id="w")

        assert first.header.store_id != second.header.store_id
        assert second.spaces() == [] and list(second.scan()) == []
        assert second.commit(OTHER_SPACE, write_id="w").sequence == 1
        assert first.spaces() == [SPACE]


def test_all_keys_of_a_store_are_in_one_slot_of_a_cluster(
    store: RedisStore, redis_url: str
) -> None:
    store.commit(SPACE, [LARGE], moves=[Move(MAIN, None, LARGE.id)])
    store.acquire(SPACE, MAIN, "me", 10.0)
    store.gc()
    with client(redis_url) as other:
        slots = set(map(key_slot, other.keys()))

    assert slots == {key_slot(ROOT.encode())}


def test_no_key_of_a_store_ends_by_itself(store: RedisStore, redis_url: str) -> None:
    store.commit(SPACE, [LARGE, value("small")], moves=[Move(MAIN, None, LARGE.id)])
    store.gc()

    with client(redis_url) as other:
        assert set(map(other.ttl, other.keys())) == {-1}


# Whatever happens at the same time or in between, engines decide alike.


class Pair:
    """The same calls on an embedded store and on Redis, whose answers must be the same."""

    def __init__(self, stores: tuple[Store, Store], seed: int) -> None:
        self.stores = stores
        self.choose = random.Random(seed)
        self.made = [value(noise(300, seed) + bytes(at)) for at in range(8)]
        self.met: set[str] = set()

    def both(self, call: Callable[[Store], Any]) -> Any:
        expected, found = (self._outcome(call, store) for store in self.stores)
        assert found == expected
        self.met.add(str(expected[0]))
        return expected[1]

    def _outcome(self, call: Callable[[Store], Any], store: Store) -> tuple[Any, ...]:
        try:
            return "done", call(store)
        except MissingObjects as error:
            return type(error).__name__, error.ids
        except RefMoved as error:
            return type(error).__name__, (error.name, error.expected, error.actual)
        except RopewalkError as error:
            return type(error).__name__, str(error)

    def step(self) -> None:
        roll = self.choose.random()
        if roll < 0.9:
            self.commit()
        elif roll < 0.95:
            recent = self.choose.randrange(20)
            self.both(lambda store: store.gc(recent=recent).freed)
        else:
            holder = self.choose.choice("ab")
            self.both(lambda store: store.acquire(SPACE, MAIN, holder, 1e6).token)

    def some(self, most: int) -> list[ObjectId]:
        chosen = self.choose.sample(self.made, min(most, len(self.made)))
        return [one.id for one in chosen]

    def commit(self) -> None:
        choose = self.choose
        fresh = value(noise(choose.choice([90, 90, 40_000]), len(self.made)))
        given = [*choose.sample(self.made, choose.randrange(3)), fresh][: choose.randrange(4)]
        self.made.append(fresh)
        targets: list[ObjectId | None] = [None, *self.some(3), *(one.id for one in given)]
        names = choose.sample([MAIN, ref_name("branch", "b"), ref_name("branch", "c")], 2)
        refs = {ref.name: ref.target for ref in self.stores[0].refs(SPACE)}
        moves = [
            Move(name, refs.get(name) if choose.random() < 0.9 else None, choose.choice(targets))
            for name in names[: choose.randrange(3)]
        ]
        needs = self.some(choose.choice([0, 0, 1, 2]))
        fence = Fence(MAIN, choose.randrange(1, 4)) if choose.random() < 0.1 else None
        write_id, share = f"w{choose.randrange(80)}", choose.random() < 0.3

        def call(store: Store) -> tuple[Any, ...]:
            done = store.commit(
                SPACE, given, needs, moves, fence=fence, write_id=write_id, share=share
            )
            return done.sequence, done.moves, done.write_id

        self.both(call)

    def same(self) -> None:
        self.both(lambda store: store.refs(SPACE))
        self.both(lambda store: [one.moves for one in store.operations(SPACE)])
        self.both(lambda store: store.missing([one.id for one in self.made], SPACE))
        self.both(lambda store: sorted({one.id for one in store.scan()}))
        self.both(lambda store: store.check(read_data=True).problems)


@pytest.mark.parametrize("seed", range(50 if SOAK else 5))
@pytest.mark.parametrize("engine", [RedisStore, EagerRedisStore])
def test_a_store_on_redis_decides_as_an_embedded_one_does(
    redis_url: str, tmp_path: Path, seed: int, engine: type[RedisStore]
) -> None:
    with (
        engine(redis_url, durability="relaxed") as store,
        SqliteStore(tmp_path / "store", durability="relaxed") as other,
    ):
        pair = Pair((other, store), seed)
        for _ in range(150):
            pair.step()
        pair.same()

    assert pair.met >= {"done", "RefMoved", "MissingObjects"}


# Shared objects, which are sent ahead of their commit.


def test_a_refused_commit_leaves_nothing_that_does_not_end_by_itself(
    store: RedisStore, redis_url: str
) -> None:
    store.commit(SPACE, write_id="w")
    with client(redis_url) as other:
        before = set(other.keys())

        with pytest.raises(RefMoved):
            store.commit(SPACE, [LARGE], moves=[Move(MAIN, LARGE.id, LARGE.id)], write_id="x")

        left = set(other.keys()) - before
        assert left == {object_key(LARGE.id)}
        assert 0 < other.ttl(object_key(LARGE.id)) <= 3600
        assert store.missing([LARGE.id]) == [LARGE.id]
        store.commit(SPACE, [LARGE])
        assert other.ttl(object_key(LARGE.id)) == -1


def test_what_was_sent_ahead_and_is_gone_is_sent_again(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, sent = Objects.stage, []

    def forgetting(self: Objects, frames: Any) -> None:
        stage(self, frames)
        sent.append(frames)
        if len(sent) == 1:
            with client(redis_url) as other:
                other.delete(object_key(LARGE.id))

    monkeypatch.setattr(Objects, "stage", forgetting)
    store.commit(SPACE, [LARGE])

    assert len(sent) == 2
    assert store.read([LARGE.id]) == [LARGE]


def test_a_shared_object_whose_bytes_are_gone_is_found(store: RedisStore, redis_url: str) -> None:
    store.commit(SPACE, [LARGE], moves=[Move(MAIN, None, LARGE.id)])
    with client(redis_url) as other:
        other.delete(object_key(LARGE.id))

    assert not store.check(read_data=True).ok
    with pytest.raises(Corrupt):
        store.read([LARGE.id])


def test_a_scan_finds_each_object_once_while_others_are_written(store: RedisStore) -> None:
    kept = [value(f"kept {number}") for number in range(300)]
    store.commit(SPACE, kept, share=True)
    found: list[ObjectId] = []

    for number, one in enumerate(store.scan()):
        found.append(one.id)
        if number % 20 == 0:  # The hash grows meanwhile, and its order changes.
            more = [value(f"{number} {more}") for more in range(60)]
            store.commit(SPACE, more, share=True)

    assert len(found) == len(set(found))
    assert {one.id for one in kept} <= set(found)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("brought", [False, True])
def test_what_comes_to_be_used_between_the_looks_of_a_collection_stays(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, at: int, brought: bool
) -> None:
    """Also what it leads to, of which the new record says nothing."""
    document: dict[str, object] = {"text": noise(60_000), "other": noise(40_000)}
    written = TreeWriter().write(document)
    with relaxed(redis_url) as store, relaxed(redis_url) as other:
        first, made = make_commit(written.root)
        objects = [*written.objects, made]
        store.commit(OTHER_SPACE, objects, moves=[Move(MAIN, None, first.id)], share=True)
        store.commit(OTHER_SPACE, moves=[Move(MAIN, first.id, None)])
        change = Objects.change
        steps: list[str] = []
        if brought:  # In a value that is new, by content that is there.
            document["more"] = 1
            written = TreeWriter().write(document)
            first, made = make_commit(written.root)

        def meanwhile(self: Objects, step: str, mark: str, ids: Any) -> Any:
            if len(steps) == at:
                sent = [*written.objects, made] if brought else [made]
                needs = [] if brought else [written.root]
                moves = [Move(MAIN, None, first.id)]
                other.commit(SPACE, sent, needs, moves, share=brought)
            steps.append(step)
            return change(self, step, mark, ids)

        monkeypatch.setattr(Objects, "change", meanwhile)
        store.gc(recent=0)

        assert steps[:2] == ["condemn", "delete all"]
        assert other.check(read_data=True).ok
        with relaxed(redis_url) as fresh:
            assert load_value(fresh, written.root) == document
        other.commit(SPACE, moves=[Move(MAIN, first.id, None)])
        assert store.gc(recent=0).freed >= len(written.objects)
        assert list(store.scan()) == []


def test_what_comes_to_be_used_between_the_look_and_the_swap_of_a_collection_stays(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relaxed(redis_url) as store, relaxed(redis_url) as other:
        written = TreeWriter().write({"kept": "after all"})
        first, made = make_commit(written.root)
        name = ref_name("branch", "dropped")
        other.commit(SPACE, [*written.objects, made], moves=[Move(name, None, first.id)])
        other.commit(SPACE, moves=[Move(name, first.id, None)])
        for _ in range(20):  # The last records are not touched.
            other.commit(SPACE)
        run = Server.run
        swaps: list[str] = []

        def meanwhile(self: Server, script: str, *arguments: Any, **options: Any) -> Any:
            if script == "replace":
                if not swaps:
                    other.commit(SPACE, needs=[first.id], moves=[Move(name, None, first.id)])
                swaps.append(script)
            return run(self, script, *arguments, **options)

        monkeypatch.setattr(Server, "run", meanwhile)
        store.gc(recent=0)

        assert swaps
        assert store.check(read_data=True).ok
        with relaxed(redis_url) as fresh:
            assert load_value(fresh, written.root) == {"kept": "after all"}


def test_a_collection_does_not_bring_back_what_a_faster_one_took(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relaxed(redis_url) as store, relaxed(redis_url) as other:
        first, made = make_commit(value("first").id)
        a, b, c = (ref_name("branch", name) for name in "abc")
        other.commit(SPACE, [value("first"), made], moves=[Move(a, None, first.id)])
        other.gc()  # It is in a segment of its own.
        second, made = make_commit(value("first").id, (first.id,), generation=2)
        needs = [value("first").id, first.id]
        other.commit(SPACE, [made], needs, [Move(b, None, second.id), Move(a, first.id, None)])
        garbage = value("garbage")
        other.commit(SPACE, [garbage], moves=[Move(c, None, garbage.id)])
        other.commit(SPACE, moves=[Move(c, garbage.id, None)])
        run = Server.run
        swaps: list[str] = []

        def meanwhile(self: Server, script: str, *arguments: Any, **options: Any) -> Any:
            if script == "replace":
                swaps.append(script)
                if len(swaps) == 1:
                    other.commit(SPACE, moves=[Move(b, second.id, None)])
                    other.gc(recent=0)
            return run(self, script, *arguments, **options)

        monkeypatch.setattr(Server, "run", meanwhile)
        store.gc(recent=0)

        assert len(swaps) > 1
        assert other.check(read_data=True).problems == ()
        assert list(other.scan()) == []


@pytest.mark.parametrize("harm", ["a bucket is gone", "a bucket is another"])
def test_a_damaged_index_is_not_believed(redis_url: str, harm: str) -> None:
    with EagerRedisStore(redis_url, durability="relaxed") as store, client(redis_url) as server:
        for number in range(40):
            store.commit(SPACE, operation={"key": b"%d" % (number % 20)})
        index = f"{ROOT}:index:{SPACE}"
        for bucket, listed in server.hgetall(index).items():
            if harm == "a bucket is gone":
                server.hdel(index, bucket)
            else:
                server.hset(index, bucket, flipped(listed, len(listed) - 1))

            assert [store.find(SPACE, b"%d" % key) for key in range(20)] == [
                [key + 1, key + 21] for key in range(20)
            ]
            assert not store.check().ok
            server.hset(index, bucket, listed)
        assert store.check().ok


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
        small.commit(SPACE, moves=[Move(ref_name("tag", "x"), None, one.id)])
        with pytest.raises(StoreFull):
            small.commit(SPACE, [value("more")])
        assert small.commit(SPACE, moves=[Move(MAIN, one.id, None)]).sequence == 3


def test_what_is_collected_is_gone_and_no_longer_counted(store: RedisStore, redis_url: str) -> None:
    store.commit(SPACE, [value("stays")], moves=[Move(MAIN, None, value("stays").id)])
    before = store._disk_bytes()
    many = [value(noise(1000, seed)) for seed in range(20)]
    operation = store.commit(SPACE, [*many, LARGE])
    store.commit(SPACE)

    store.gc(recent=1)

    assert operation.sequence == 2
    assert before < store._disk_bytes() < before + 500
    with client(redis_url) as other:
        assert other.keys("*:object:*") == []
        assert not other.exists(f"{ROOT}:objects", f"{ROOT}:condemned", f"{ROOT}:names:{SPACE}")


def test_a_server_without_memory_is_full_and_can_be_collected() -> None:
    with (
        configured({"maxmemory": "8mb"}) as server,
        relaxed(server.url) as store,
        client(server.url) as other,
    ):
        first, huge = value("first"), value(noise(1_000_000))
        store.commit(SPACE, [first], moves=[Move(MAIN, None, first.id)])
        fillers = (value(noise(20_000, seed)) for seed in range(10_000))
        with pytest.raises(StoreFull, match="maxmemory"):
            all(store.commit(SPACE, [one]) for one in fillers)
        with pytest.raises(StoreFull, match="maxmemory"):
            store.commit(SPACE, [huge])

        assert store.reader(SPACE)([first.id]) == [first]
        # Also when there is less than before.
        other.config_set("maxmemory", "0")
        other.set(f"{ROOT}:server", "0 the run before")
        other.config_set("maxmemory", "3mb")
        other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        store.commit(SPACE, moves=[Move(ref_name("tag", "now"), None, first.id)])
        relaxed(server.url).close()
        assert store.gc(recent=1).freed > 100
        other.config_set("maxmemory", "8mb")
        store.commit(SPACE, [huge])
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


@pytest.mark.parametrize("engine", [RedisStore, EagerRedisStore])
def test_the_latest_write_ids_are_remembered(redis_url: str, engine: type[RedisStore]) -> None:
    with engine(redis_url, durability="relaxed") as store:
        done = [store.commit(SPACE, write_id=f"w{number}") for number in range(300)]

        for number in range(300 - REMEMBERED_WRITES, 300):
            assert store.commit(SPACE, write_id=f"w{number}") == done[number]


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


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_on_objects_is_refused_in_one_sentence(redis_url: str, version: int) -> None:
    with client(redis_url) as other:
        other.set(f"{ROOT}:header", encode_header(Header(bytes(16), format=version)))
        other.set(f"{ROOT}:epoch", 1)
        before = set(other.keys())

        with pytest.raises(NotAllowed, match="format 1, from before the first release"):
            relaxed(redis_url)
        assert set(other.keys()) == before


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
    "key", ["space:" + SPACE, "tail:" + SPACE, "leases:" + SPACE, "names:" + SPACE, "objects",
            "condemned", "spaces", "server"]
)  # fmt: skip
def test_a_key_that_another_program_wrote_to_changes_nothing(
    store: RedisStore, redis_url: str, key: str
) -> None:
    one = value("one")
    moves, fence = [Move(MAIN, None, one.id)], Fence(MAIN, 0)
    with client(redis_url) as other:
        if key == "server":
            other.delete(f"{ROOT}:{key}")
            other.rpush(f"{ROOT}:{key}", "mine")
        else:
            other.set(f"{ROOT}:{key}", "mine")
        before = set(other.keys())
        with pytest.raises(Corrupt):
            store.commit(SPACE, [one], moves=moves, fence=fence, share=True)

        assert set(other.keys()) - {object_key(one.id)} == before


@pytest.mark.parametrize("key", ["listed", "bytes"])
def test_a_number_that_is_none_changes_nothing(store: RedisStore, redis_url: str, key: str) -> None:
    with client(redis_url) as other:
        other.set(f"{ROOT}:{key}", "mine")
        before = set(other.keys())
        with pytest.raises((Corrupt, Unavailable)):
            store.commit(SPACE, [value("one")])

        assert set(other.keys()) == before


def test_records_that_are_none_are_found(store: RedisStore, redis_url: str) -> None:
    with client(redis_url) as other:
        store.commit(SPACE)
        other.hset(f"{ROOT}:space:{SPACE}", MAIN, b"short")
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
        while any(thread.name == "ropewalk-pubsub" for thread in threading.enumerate()):
            assert time.monotonic() < until
            time.sleep(0.01)


def test_200_tasks_share_one_store(redis_url: str) -> None:
    async def work(store: RedisStore, number: int) -> int:
        name = ref_name("branch", str(number))
        one = value(f"task {number}")
        await store.acommit(SPACE, [one], moves=[Move(name, None, one.id)])
        assert not await store.amissing([one.id], SPACE)
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
