"""What `RopewalkStore` does beyond LangGraph's interface, and inside graphs."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, PutOp

import ropewalk
from ropewalk.adapters.langgraph import (
    ItemVersion,
    RopewalkSaver,
    RopewalkStore,
    StoreItem,
    StoreSearchItem,
)
from ropewalk.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotStorable,
    StoreClosed,
    Unavailable,
    VersionConflict,
)
from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.testing import Fault, FaultStore
from tests.frameworks.turn import ROOT
from tests.pages import run_page

NOTES = ("notes",)
MINUTE = 60_000_000


@pytest.fixture
def memory() -> Iterator[RopewalkStore]:
    with RopewalkStore() as store:
        yield store


def let_pass(store: RopewalkStore, minutes: float) -> None:
    before = store._expiry.clock
    store._expiry.clock = lambda: before() + round(minutes * MINUTE)


def commits(store: RopewalkStore) -> int:
    return store.store.view(store._history.space).sequence


# Opening and closing.


def test_it_closes_the_store_that_it_opened_and_no_other(tmp_path: Path) -> None:
    given = MemoryStore()
    RopewalkStore(given).close()
    own = RopewalkStore(tmp_path / "own")
    asyncio.run(own.aclose())

    assert given.spaces() == []
    with pytest.raises(StoreClosed):
        own.get(NOTES, "k")


def test_memories_of_one_store_are_told_apart_by_name() -> None:
    store = MemoryStore()
    first, second = RopewalkStore(store, name="a"), RopewalkStore(store, name="b")
    first.put(NOTES, "k", {"n": 1})

    assert second.search(()) == [] and second.position() == ""


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": {"default_tll": 3}},
        {"ttl": {"default_ttl": -1}},
        {"ttl": 5},
        {"index": {"dims": 0, "embed": lambda texts: []}},
        {"index": {"dims": 3, "embed": lambda texts: [], "fields": "text"}},
        {"name": ""},
    ],
    ids=range(6),
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        RopewalkStore(**options)


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    with RopewalkStore(tmp_path / "store") as first:
        first.put(NOTES, "k", {"when": moment, "pair": (1, b"x")})
    with RopewalkStore(tmp_path / "store") as second:
        found = second.get(NOTES, "k")

    assert found.value == {"when": moment, "pair": (1, b"x")} and found.version == 1


# Versions.


def test_versions_grow_by_one_and_go_on_across_a_delete(memory: RopewalkStore) -> None:
    seen = []
    for number in range(3):
        memory.put(NOTES, "k", {"n": number})
        seen.append(memory.get(NOTES, "k").version)
    memory.delete(NOTES, "k")
    memory.delete(NOTES, "k")
    memory.put(NOTES, "k", {"n": 3})
    item, found = memory.get(NOTES, "k"), memory.search(NOTES)[0]

    assert seen == [1, 2, 3] and item.version == found.version == 4
    assert isinstance(item, StoreItem) and isinstance(found, StoreSearchItem)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_put_may_ask_for_a_version(memory: RopewalkStore, face: str) -> None:
    def put(*arguments: Any, **options: Any) -> None:
        if face == "sync":
            memory.put(*arguments, **options)
        else:
            asyncio.run(memory.aput(*arguments, **options))

    put(NOTES, "k", {"n": 1}, if_version=0)
    put(NOTES, "k", {"n": 2}, if_version=1)
    before = memory.position()
    for expected in (0, None, 1, 3):
        with pytest.raises(VersionConflict) as caught:
            put(NOTES, "k", {"n": 3}, if_version=expected)
        assert (caught.value.expected, caught.value.actual) == (expected or 0, 2)

    assert isinstance(caught.value, Conflict) and "version 3" in str(caught.value)
    assert memory.get(NOTES, "k").value == {"n": 2} and memory.position() == before


def test_a_delete_may_ask_for_a_version(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1})
    with pytest.raises(VersionConflict):
        memory.delete(NOTES, "k", if_version=2)
    asyncio.run(memory.adelete(NOTES, "k", if_version=1))
    with pytest.raises(VersionConflict, match="not there"):
        memory.put(NOTES, "k", {"n": 2}, if_version=1)
    memory.put(NOTES, "k", {"n": 2}, if_version=0)

    assert memory.get(NOTES, "k").version == 2


@pytest.mark.parametrize("version", [-1, 1.0, "1", True], ids=repr)
def test_what_is_no_version_is_refused(memory: RopewalkStore, version: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.put(NOTES, "k", {}, if_version=version)


def test_an_item_whose_time_is_over_counts_as_absent(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1}, ttl=1)
    created = memory.get(NOTES, "k").created_at
    let_pass(memory, 2)
    memory.put(NOTES, "k", {"n": 2}, if_version=0)
    found = memory.get(NOTES, "k")

    assert found.version == 2 and found.created_at > created + timedelta(minutes=1)


# Commits.


def test_a_batch_is_one_commit(memory: RopewalkStore) -> None:
    memory.batch([PutOp(NOTES, f"k{n}", {"n": n}) for n in range(50)])
    memory.batch([PutOp(NOTES, "k1", None), PutOp(NOTES, "k2", {"n": 3}), GetOp(NOTES, "k1")])

    assert commits(memory) == 2


def test_reading_and_deleting_nothing_makes_no_commit(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1})
    memory.get(NOTES, "k")
    memory.search(())
    memory.list_namespaces()
    memory.delete(NOTES, "other")
    memory.batch([PutOp(NOTES, "x", {"n": 1}), PutOp(NOTES, "x", None)])

    assert commits(memory) == 1


def test_a_commit_says_what_was_done(memory: RopewalkStore) -> None:
    memory.put(("users", "alice"), "city", {"name": "Rome"})
    memory.delete(("users", "alice"), "city")
    last, first = list(memory._history.steps())

    assert (first.logic_step, first.description) == ("put", "users.alice: city")
    assert last.logic_step == "delete" and last.agent == "memory"


# Looking back.


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_key_has_a_history(memory: RopewalkStore, face: str) -> None:
    memory.put(NOTES, "k", {"n": 1})
    memory.put(NOTES, "other", {"n": 9})
    memory.put(NOTES, "k", {"n": 2})
    memory.delete(NOTES, "k")
    memory.put(NOTES, "k", {"n": 3})
    if face == "sync":
        found, two = memory.history(NOTES, "k"), memory.history(NOTES, "k", limit=2)
    else:
        found = asyncio.run(memory.ahistory(NOTES, "k"))
        two = asyncio.run(memory.ahistory(NOTES, "k", limit=2))

    assert [(one.version, one.value, one.deleted) for one in found] == [
        (3, {"n": 3}, False),
        (2, None, True),
        (2, {"n": 2}, False),
        (1, {"n": 1}, False),
    ]
    assert isinstance(found[0], ItemVersion) and two == found[:2]
    assert [one.time for one in found] == sorted((one.time for one in found), reverse=True)
    assert memory.history(NOTES, "never") == []


def test_the_history_of_a_key_does_not_read_what_others_did() -> None:
    store = MemoryStore()
    memory = RopewalkStore(store)
    memory.batch([PutOp(("many", f"n{n}"), "k", {"text": f"number {n}" * 20}) for n in range(500)])
    memory.put(NOTES, "k", {"n": 1})
    for number in range(100):
        memory.put(("many", f"n{number}"), "k", {"n": number})
    memory.put(NOTES, "k", {"n": 2})
    reads = counted(store)
    found = RopewalkStore(store).history(NOTES, "k")

    assert [one.version for one in found] == [2, 1] and reads() < 20


def test_a_memory_is_read_as_it_was_at_a_commit(memory: RopewalkStore) -> None:
    empty = memory.position()
    memory.put(NOTES, "k", {"n": 1})
    first = memory.position()
    memory.put(NOTES, "k", {"n": 2})
    memory.put(("later",), "l", {})
    then, asynchronous = memory.at(first), asyncio.run(memory.aat(first))

    assert then.get(NOTES, "k").value == {"n": 1} == asyncio.run(then.aget(NOTES, "k")).value
    assert then.list_namespaces() == [NOTES] and [i.key for i in then.search(())] == ["k"]
    assert then.position == asynchronous.position == first
    assert memory.at(bytes.fromhex(first)).get(NOTES, "k").version == 1
    assert empty == "" and memory.at(empty).search(()) == []


def test_a_memory_is_read_as_it_was_at_a_time(memory: RopewalkStore) -> None:
    begin = datetime.now(UTC)
    moments = []
    for number in range(20):
        memory.put(NOTES, "k", {"n": number})
        moments.append(datetime.now(UTC))
    found = [memory.at(moment).get(NOTES, "k").value["n"] for moment in moments]

    assert found == list(range(20))
    assert memory.at(begin - timedelta(days=1)).get(NOTES, "k") is None
    assert memory.at(moments[3].isoformat()).get(NOTES, "k").value == {"n": 3}
    assert memory.at(moments[3].replace(tzinfo=None)).get(NOTES, "k").value == {"n": 3}


def test_a_view_is_only_read(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1})
    view = memory.at(memory.position())
    with pytest.raises(NotAllowed):
        view.put(NOTES, "k", {"n": 2})
    with pytest.raises(NotAllowed):
        asyncio.run(view.adelete(NOTES, "k"))

    assert isinstance(view, BaseStore) and memory.get(NOTES, "k").value == {"n": 1}


def test_a_view_shows_what_ended_later(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1}, ttl=10)
    before = memory.position()
    let_pass(memory, 20)
    memory.sweep_ttl()

    assert memory.get(NOTES, "k") is None
    assert memory.at(before).get(NOTES, "k").value == {"n": 1}


@pytest.mark.parametrize("moment", ["yesterday", 5, None, b"short", {"a": 1}, "ab" * 31], ids=repr)
def test_what_is_no_moment_is_refused(memory: RopewalkStore, moment: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.at(moment)


def test_a_commit_that_is_not_there_is_not_found(memory: RopewalkStore) -> None:
    with pytest.raises(NotFound):
        memory.at("ab" * 32)


@dataclass
class Snapshot:
    metadata: dict[str, Any]
    created_at: str | None = None
    checkpoint: Any = None


class Saver:
    def get_tuple(self, config: Any) -> Any:
        return config["configurable"]["found"]


def test_a_checkpoint_says_where_the_memory_was(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1})
    position, between = memory.position(), datetime.now(UTC).isoformat()
    memory.put(NOTES, "k", {"n": 2})
    after = datetime.now(UTC).isoformat()
    exact = Snapshot({"ropewalk_memory": position}, created_at=after)
    timed = Snapshot({}, checkpoint={"ts": between})
    config = {"configurable": {"found": exact}}

    assert memory.at(exact).get(NOTES, "k").value == {"n": 1}
    assert memory.at(timed).get(NOTES, "k").value == {"n": 1}
    assert memory.at(Snapshot({}, created_at=after)).get(NOTES, "k").value == {"n": 2}
    assert memory.at(Snapshot({"ropewalk_memory": ""})).get(NOTES, "k") is None
    assert memory.at(config, saver=Saver()).get(NOTES, "k").value == {"n": 1}
    with pytest.raises(InvalidInput, match="saver"):
        memory.at(config)


def test_a_graph_travels_in_time_with_its_memory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    memory = RopewalkStore(store)
    saver = RopewalkSaver(store, memory=memory)
    builder = StateGraph(State)
    builder.add_node("count", count_visits)
    builder.add_edge(START, "count")
    graph = builder.compile(checkpointer=saver, store=memory)
    config: Any = {"configurable": {"thread_id": "t"}}
    for _ in range(3):
        graph.invoke({"turns": []}, config)
    ended = [one for one in graph.get_state_history(config) if not one.next]
    found = [memory.at(one).get(("visits",), "count").value["n"] for one in ended]
    again = [memory.at(one.config, saver=saver).get(("visits",), "count") for one in ended]
    saver.close()
    store.close()

    assert [one.values["turns"][-1] for one in ended] == found == [3, 2, 1]
    assert [one.value["n"] for one in again] == found


def test_a_memory_that_was_moved_is_read_as_it_was(tmp_path: Path) -> None:
    source = MemoryStore()
    memory = RopewalkStore(source)
    for number in range(3):
        memory.put(NOTES, "k", {"n": number})
        if number == 1:
            between = datetime.now(UTC)
    with SqliteStore(tmp_path / "store") as target:
        ropewalk.migrate(source, target)
        moved = RopewalkStore(target)
        moved.put(NOTES, "k", {"n": 3})

        assert [one.version for one in moved.history(NOTES, "k")] == [4, 3, 2, 1]
        assert moved.at(between).get(NOTES, "k").value == {"n": 1}
        assert moved.at(memory.position()).get(NOTES, "k").value == {"n": 2}


def test_messages_and_documents_are_values_too(memory: RopewalkStore) -> None:
    value = {"said": [HumanMessage("hi", id="1")], "source": Document("text", metadata={"p": 1})}
    memory.put(NOTES, "k", value)

    assert memory.get(NOTES, "k").value == value


# Items that end.


def test_reading_makes_no_commit_before_half_of_the_time_is_over(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1}, ttl=100)
    made = commits(memory)
    for _ in range(20):
        let_pass(memory, 2)
        memory.get(NOTES, "k")
    early = commits(memory)
    for _ in range(20):
        let_pass(memory, 2)
        memory.search(NOTES)
    late = commits(memory)
    let_pass(memory, 99)

    assert early == made and late == made + 1
    assert memory.get(NOTES, "k").version == 1
    assert [one.version for one in memory.history(NOTES, "k")] == [1]


def test_a_read_counts_to_the_minute_while_it_is_noted(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1}, ttl=100)
    let_pass(memory, 40)
    memory.get(NOTES, "k")
    let_pass(memory, 99)
    living = memory.get(NOTES, "k", refresh_ttl=False)
    let_pass(memory, 2)

    assert living is not None and memory.get(NOTES, "k") is None


def test_an_item_ends_early_and_never_late_if_notes_are_lost() -> None:
    store = MemoryStore()
    memory = RopewalkStore(store)
    memory.put(NOTES, "k", {"n": 1}, ttl=100)
    memory.put(NOTES, "l", {"n": 1}, ttl=100)
    let_pass(memory, 40)
    memory.get(NOTES, "k")
    let_pass(memory, 20)
    memory.get(NOTES, "l")  # More than half is over: the item says so itself.
    for key in store.scratch().keys(""):
        store.scratch().remove(key)
    let_pass(memory, 50)

    assert memory.get(NOTES, "k", refresh_ttl=False) is None
    assert memory.get(NOTES, "l", refresh_ttl=False) is not None
    let_pass(memory, 60)
    assert memory.get(NOTES, "l") is None


def test_what_was_read_is_not_swept(memory: RopewalkStore) -> None:
    for number in range(20):
        memory.put(NOTES, f"k{number}", {"n": number}, ttl=100)
    let_pass(memory, 40)
    memory.get(NOTES, "k3")
    let_pass(memory, 70)

    assert memory.sweep_ttl() == 19
    assert [item.key for item in memory.search(NOTES)] == ["k3"]


def test_a_note_of_an_older_version_says_nothing_of_a_newer(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1}, ttl=100)
    let_pass(memory, 40)
    memory.get(NOTES, "k")
    memory.put(NOTES, "k", {"n": 2}, ttl=1)
    let_pass(memory, 2)

    assert memory.get(NOTES, "k") is None


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), "5", True, 1e300], ids=repr)
def test_what_is_no_time_to_live_is_refused(memory: RopewalkStore, ttl: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.put(NOTES, "k", {}, ttl=ttl)


def test_a_sweeper_sweeps_until_it_is_stopped(memory: RopewalkStore) -> None:
    memory.put(NOTES, "k", {"n": 1}, ttl=0)
    running = memory.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    same = memory.start_ttl_sweeper()
    while not memory.history(NOTES, "k")[0].deleted:
        pass

    assert same is running and not running.done()
    assert memory.stop_ttl_sweeper() and running.done()
    assert memory.stop_ttl_sweeper()


def test_a_read_is_right_although_its_time_cannot_begin_again() -> None:
    store = FaultStore(MemoryStore(), [Fault.full(2, method="commit")])
    memory = RopewalkStore(store)
    memory.put(NOTES, "k", {"n": 1}, ttl=100)
    let_pass(memory, 60)
    found = memory.get(NOTES, "k")

    assert found.value == {"n": 1} and len(store.met) == 1


# Odd input.


@pytest.mark.parametrize("value", [[1], "text", 5, {1, 2}], ids=repr)
def test_a_value_is_a_dict(memory: RopewalkStore, value: Any) -> None:
    with pytest.raises(InvalidInput, match="dict"):
        memory.put(NOTES, "k", value)


def test_a_value_that_cannot_be_stored_is_named_by_its_path(memory: RopewalkStore) -> None:
    with pytest.raises(NotStorable) as caught:
        memory.put(NOTES, "k", {"list": [1, {"deep": object()}]})

    assert 'value["list"][1]["deep"] of \'k\'' in str(caught.value)
    assert memory.get(NOTES, "k") is None


def test_the_longest_names_are_stored_and_longer_ones_refused(memory: RopewalkStore) -> None:
    long = "é" * 30_000
    memory.put(NOTES, long, {"n": 1})
    memory.put((long,), "k", {"n": 2})
    for namespace, key in [(NOTES, "a" * 70_000), (("b" * 70_000,), "k")]:
        with pytest.raises(InvalidInput, match="bytes"):
            memory.put(namespace, key, {})

    assert memory.get(NOTES, long).value == {"n": 1}
    assert [item.namespace for item in memory.search((long,))] == [(long,)]


def test_half_a_character_is_refused(memory: RopewalkStore) -> None:
    with pytest.raises(InvalidInput):
        memory.put(NOTES, "\ud800", {})
    with pytest.raises(NotStorable):
        memory.put(NOTES, "k", {"a": "\ud800"})
    with pytest.raises(InvalidInput):
        memory.get(("\ud800",), "k")


def test_keys_that_look_filled_up_are_told_apart(memory: RopewalkStore) -> None:
    odd = ["k", "k ", "k|", "k| ", "k|  |", " ", "|", "", "..", "k\0", "k\0\0"]
    for number, key in enumerate(odd):
        memory.put(NOTES, key, {"n": number})
    found = memory.search(NOTES, limit=100)

    assert {item.key: item.value["n"] for item in found} == {k: n for n, k in enumerate(odd)}
    assert [memory.get(NOTES, key).value["n"] for key in odd] == list(range(len(odd)))


def test_a_namespace_of_langgraphs_own_is_refused_in_a_batch(memory: RopewalkStore) -> None:
    for namespace in ((), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            memory.batch([PutOp(namespace, "k", {})])


def test_what_is_no_operation_is_refused(memory: RopewalkStore) -> None:
    with pytest.raises(InvalidInput):
        memory.batch([PutOp(NOTES, "k", {}), "get"])

    assert memory.search(()) == []


@pytest.mark.parametrize("window", [{"limit": -1}, {"offset": -1}, {"limit": 1.5}], ids=repr)
def test_windows_that_make_no_sense_are_refused(
    memory: RopewalkStore, window: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        memory.search(NOTES, **window)
    with pytest.raises(InvalidInput):
        memory.list_namespaces(**window)


def test_a_dead_server_is_a_typed_error() -> None:
    store = FaultStore(MemoryStore(), [Fault.dead(8)])
    memory = RopewalkStore(store)
    memory.put(NOTES, "k", {"n": 1})
    while not store.met:
        with suppress(Unavailable):
            memory.get(NOTES, "k")

    with pytest.raises(Unavailable):
        memory.search(NOTES)
    with pytest.raises(Unavailable):
        asyncio.run(memory.alist_namespaces())


@pytest.mark.parametrize("at", range(1, 4))
def test_a_put_whose_reply_was_lost_is_made_once(at: int) -> None:
    store = FaultStore(MemoryStore(), [Fault.lost_reply(at, method="commit")])
    memory = RopewalkStore(store)
    for number in range(3):
        memory.put(NOTES, "k", {"n": number}, if_version=number)

    assert memory.get(NOTES, "k").version == 3 and len(store.met) == 1


# Large memories.


def counted(store: Any) -> Callable[[], int]:
    """How many objects of spaces were read since."""
    node, count = store._node, [0]

    def counting(*where: Any) -> Any:
        count[0] += 1
        return node(*where)

    store._node = counting
    return lambda: count[0]


def test_one_of_many_namespaces_is_read_without_the_others() -> None:
    store = MemoryStore()
    users = [f"user-{n:05d}" for n in range(3_000)]
    with RopewalkStore(store) as writing:
        writing.batch(
            [PutOp(("memories", user), f"m{n}", {"by": user}) for user in users for n in range(5)]
        )
    reads = counted(store)
    memory = RopewalkStore(store)
    found = memory.search(("memories", users[1234]))
    listed = memory.list_namespaces(prefix=("memories", users[77]))
    read = reads()
    memory.put(("memories", users[1234]), "new", {})

    assert len(found) == 5 and listed == [("memories", users[77])]
    assert read < 20 and reads() - read < 20


def test_one_put_among_many_items_writes_a_few_nodes() -> None:
    memory = RopewalkStore(store := MemoryStore())
    memory.batch([PutOp(("n", f"u{n % 2000}"), f"k{n}", {"text": f"n {n}"}) for n in range(20_000)])
    before = {one.id for one in store.scan()}
    memory.put(("n", "u7"), "another", {"text": "new"})
    made = [one for one in store.scan() if one.id not in before]

    assert len(made) <= 9


# Search by meaning.


def letters(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(one)) for one in "abcdef"] for text in texts]


def test_vectors_of_another_length_count_as_none(tmp_path: Path) -> None:
    with RopewalkStore(tmp_path, index={"dims": 6, "embed": letters}) as before:
        before.put(NOTES, "old", {"text": "a"})
    other: Any = {"dims": 2, "embed": lambda texts: [[1.0, 0.0] for _ in texts]}
    with RopewalkStore(tmp_path, index=other) as after:
        after.put(NOTES, "new", {"text": "a"})
        found = after.search(NOTES, query="a")

    assert [(item.key, item.score) for item in found] == [("new", 1.0), ("old", None)]


@pytest.mark.parametrize("vectors", [[[1.0]], [], [[float("nan")] * 6], [[[1.0] * 6]]], ids=repr)
def test_an_embedding_that_cannot_be_one_is_refused(vectors: Any) -> None:
    memory = RopewalkStore(index={"dims": 6, "embed": lambda texts: vectors})
    with pytest.raises(InvalidInput):
        memory.put(NOTES, "k", {"text": "a"})

    assert memory.get(NOTES, "k") is None


def test_an_asynchronous_function_embeds_for_asynchronous_calls() -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        return letters(texts)

    memory = RopewalkStore(index={"dims": 6, "embed": embed, "fields": ["text"]})

    async def work() -> list[Any]:
        await memory.aput(NOTES, "a", {"text": "aaa"})
        await memory.aput(NOTES, "b", {"text": "bbb"})
        return list(await memory.asearch(NOTES, query="b"))

    assert [item.key for item in asyncio.run(work())] == ["b", "a"]


def test_values_that_json_does_not_know_are_embedded_too() -> None:
    memory = RopewalkStore(index={"dims": 6, "embed": letters})
    memory.put(NOTES, "k", {"when": datetime(2026, 1, 1), "pair": ("a", b"b"), "n": {5: None}})

    assert memory.search(NOTES, query="a")[0].score is not None


def test_the_index_follows_many_changes(memory: RopewalkStore) -> None:
    index: Any = {"dims": 6, "embed": letters, "fields": ["text"]}
    searching = RopewalkStore(memory.store, index=index)
    fresh = RopewalkStore(memory.store, index=index)
    for number in range(120):
        text = "abcdef"[number % 6] * 3 + "ab"
        searching.put(("n", f"u{number % 3}"), f"k{number % 40}", {"text": text})
        if number % 5 == 4:
            searching.delete(("n", f"u{number % 3}"), f"k{(number * 7) % 40}")
        if number % 4 == 3:
            for prefix in ((), ("n", "u1")):
                ours = searching.search(prefix, query="cab", limit=200)
                theirs = RopewalkStore(memory.store, index=index).search(
                    prefix, query="cab", limit=200
                )
                assert ours == theirs
                assert [one.score for one in ours] == [one.score for one in theirs]

    assert fresh.search((), query="a", limit=5) == searching.search((), query="a", limit=5)


def test_a_view_searches_by_meaning_as_it_was() -> None:
    memory = RopewalkStore(index={"dims": 6, "embed": letters, "fields": ["text"]})
    memory.put(NOTES, "k", {"text": "aaa"})
    then = memory.at(memory.position())
    memory.put(NOTES, "k", {"text": "bbb"})
    memory.search(NOTES, query="a")

    assert then.search(NOTES, query="a")[0].score == pytest.approx(1.0)
    assert memory.search(NOTES, query="a")[0].score == 0.0


# Graphs.


class State(TypedDict):
    turns: Annotated[list[int], operator.add]


def count_visits(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
    """A node that remembers across threads."""
    assert runtime.store is not None
    known = runtime.store.get(("visits",), "count")
    number = known.value["n"] + 1 if known else 1
    runtime.store.put(("visits",), "count", {"n": number})
    return {"turns": [number]}


async def count_visits_later(state: State) -> dict[str, Any]:
    store = get_store()
    known = await store.aget(("visits",), "count")
    number = known.value["n"] + 1 if known else 1
    await store.aput(("visits",), "count", {"n": number})
    found = await store.asearch(("visits",))
    return {"turns": [found[0].value["n"]]}


def test_nodes_of_a_graph_share_a_memory(tmp_path: Path) -> None:
    builder = StateGraph(State)
    builder.add_node("count", count_visits)
    builder.add_edge(START, "count")
    given = []
    for _ in range(2):
        with RopewalkStore(tmp_path / "memory") as memory:
            graph = builder.compile(store=memory)
            given += [graph.invoke({"turns": []})["turns"] for _ in range(2)]

    assert given == [[1], [2], [3], [4]]


def test_asynchronous_nodes_share_a_memory(memory: RopewalkStore) -> None:
    builder = StateGraph(State)
    builder.add_node("count", count_visits_later)
    builder.add_edge(START, "count")
    graph = builder.compile(store=memory)
    given = [asyncio.run(graph.ainvoke({"turns": []}))["turns"] for _ in range(3)]

    assert given == [[1], [2], [3]] and memory.get(("visits",), "count").version == 3


@tool
def keep_memory(content: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Keep what is to be remembered."""
    store.put(("memories", "u"), content[:5], {"content": content})
    return "kept"


@tool
async def find_memory(query: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Find what was remembered."""
    found = await store.asearch(("memories", "u"), query=query, limit=1)
    return str(found[0].value["content"])


def test_tools_keep_and_find_memories() -> None:
    index: Any = {"dims": 6, "embed": letters, "fields": ["content"]}
    memory = RopewalkStore(index=index)
    calls = [("keep_memory", {"content": "a beach"}), ("keep_memory", {"content": "fed up"})]
    asked = [("find_memory", {"query": "deaf bed"})]

    def asking(wanted: list[tuple[str, Any]]) -> Callable[[Any], dict[str, Any]]:
        made: list[Any] = [
            {"name": name, "args": args, "id": str(n)} for n, (name, args) in enumerate(wanted)
        ]
        return lambda state: {"messages": [AIMessage("", tool_calls=made)]}

    builder = StateGraph(MessagesState)
    nodes: list[tuple[str, Any]] = [
        ("say", asking(calls)),
        ("keep", ToolNode([keep_memory])),
        ("ask", asking(asked)),
        ("find", ToolNode([find_memory])),
    ]
    builder.add_sequence(nodes)
    builder.add_edge(START, "say")
    graph = builder.compile(store=memory)
    said = asyncio.run(graph.ainvoke({"messages": []}))

    assert said["messages"][-1].content == "fed up"


def test_the_store_is_checked_and_sound(tmp_path: Path) -> None:
    with RopewalkStore(SqliteStore(tmp_path / "store")) as memory:
        for number in range(30):
            memory.put(("n", f"u{number % 7}"), f"k{number}", {"text": "x" * 300 * number})
            memory.delete(("n", f"u{(number - 3) % 7}"), f"k{number - 3}")
        memory.store.gc(recent=1)
        report = memory.store.check(read_data=True)
        versions = len(memory.history(("n", "u1"), "k1"))

    assert report.problems == () and versions == 2


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/langgraph-store.md", monkeypatch)


def test_it_is_found_where_it_should_be() -> None:
    assert ropewalk.adapters.langgraph.RopewalkStore is RopewalkStore
    assert issubclass(RopewalkStore, BaseStore) and RopewalkStore.supports_ttl
