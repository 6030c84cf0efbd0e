"""What `CoherentStore` does: who is who, values, searches, batches, grants."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from ropewalk.adapters.langgraph import CoherentStore, StoreItem, StoreSearchItem
from ropewalk.adapters.langgraph.coherent.naming import artifact_name, scope_prefix, split_artifact
from ropewalk.coherence import CoherenceCore, CoherenceDegradedWarning, replay
from ropewalk.errors import (
    ArtifactHeld,
    InvalidInput,
    NotStorable,
    StoreClosed,
    Unavailable,
    VersionConflict,
)
from ropewalk.store import MemoryStore
from tests.coherence.outages import AwayStore
from tests.frameworks.langgraph.coherent import PLANNER, REVIEWER


@pytest.fixture
def store(coherent_store: CoherentStore) -> CoherentStore:
    return coherent_store


def keys(found: Any) -> list[str]:
    return [item.key for item in found]


# Who is who.


def test_agents_share_what_is_in_one_scope(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"step": 1})
    found = store.get(REVIEWER, "plan")

    assert isinstance(found, StoreItem)
    assert (found.namespace, found.key, found.value) == (REVIEWER, "plan", {"step": 1})
    assert found.version == 1


def test_a_scope_may_be_empty(store: CoherentStore) -> None:
    store.put(("planner",), "plan", {"step": 1})

    assert store.get(("reviewer",), "plan").value == {"step": 1}  # type: ignore[union-attr]
    assert store.get(REVIEWER, "plan") is None


def test_scopes_and_keys_are_not_mistaken_for_each_other(store: CoherentStore) -> None:
    places = [
        (("a", "x:y"), "z"),
        (("a", "x"), "y:z"),
        (("a", "x", "y"), "z"),
        (("a", "x/y"), "z"),
        (("a", "x"), "y/z"),
        (("a",), "x/y/z"),
        (("a", "x%2Fy"), "z"),
        (("a", "x", "y"), ""),
        (("a", "x"), "y"),
        (("a",), "."),
        (("a",), ".."),
        (("a",), "%2E"),
        (("a",), "%"),
        (("a",), "a\nb"),
    ]
    for number, (namespace, key) in enumerate(places):
        store.put(namespace, key, {"number": number})

    for number, (namespace, key) in enumerate(places):
        found = store.get(("b", *namespace[1:]), key)
        assert found is not None and found.value == {"number": number}, (namespace, key)
    listed = store.search(("b",), limit=100)
    assert {(one.namespace[1:], one.key) for one in listed} == {
        (namespace[1:], key) for namespace, key in places
    }


def test_names_of_artifacts_are_read_back() -> None:
    for scope, key in [((), "k"), (("a b", "c%d"), "e/f"), (("é",), ""), (("x",), "\x7f..")]:
        name = artifact_name(scope, key)

        assert split_artifact(name) == (scope, key) and name.startswith(scope_prefix(scope))


def test_a_core_reads_what_the_store_wrote() -> None:
    shared = MemoryStore()
    store = CoherentStore(store=shared)
    store.put(PLANNER, "plan", {"step": 1})
    core = CoherenceCore(shared)

    assert core.artifacts() == ["shared/plan"]
    assert core.read("reviewer", "shared/plan").value == {"step": 1}


def test_a_long_key_is_kept_whole(store: CoherentStore) -> None:
    store.put(PLANNER, "漢" * 600, {"n": 1})

    assert keys(store.search(REVIEWER)) == ["漢" * 600]
    assert store.get(REVIEWER, "漢" * 600).value == {"n": 1}  # type: ignore[union-attr]


def test_with_config_users_are_never_mixed(memory_folder: Path) -> None:
    with CoherentStore(store=memory_folder / "store", identity="config") as store:
        store.put(("alice", "memories"), "city", {"name": "Rome"})
        store.put(("bob", "memories"), "city", {"name": "Oslo"})

        assert store.get(("alice", "memories"), "city").value == {"name": "Rome"}  # type: ignore[union-attr]
        assert store.get(("carol", "memories"), "city") is None
        assert keys(store.search(("alice",))) == ["city"]
        assert store.list_namespaces() == [("alice", "memories"), ("bob", "memories")]


@pytest.mark.parametrize("namespace", [(), ("",), ("a", "b.c"), (1,), ("langgraph", "x")], ids=repr)
def test_a_namespace_that_breaks_the_rules_is_refused(store: CoherentStore, namespace: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(namespace, "k", {})

    assert store.search(()) == []


def test_an_unknown_identity_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'namespace' or 'config'"):
        CoherentStore(identity="user")  # type: ignore[arg-type]


def test_an_unknown_keyword_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"lease_ticks.*ttl_ticks.*crash_recovery"):
        CoherentStore("lease", lease_ticks=10)
    with pytest.raises(InvalidInput, match="benchmark"):
        CoherentStore(benchmark=True)
    with pytest.raises(InvalidInput, match="lazy, eager"):
        CoherentStore("blind")


def test_who_names_a_store_beside_ours_is_told_what_to_do_instead() -> None:
    with pytest.raises(InvalidInput, match=r"base= is gone.*store=.*changelog"):
        CoherentStore(base=InMemoryStore())


# Values.


def test_values_are_each_callers_own(store: CoherentStore) -> None:
    value = {"list": [1], "deep": {"a": [{}]}}
    store.put(PLANNER, "plan", value)
    value["list"].append(2)  # type: ignore[attr-defined]
    for _ in range(2):
        store.get(PLANNER, "plan").value["list"].append(3)  # type: ignore[union-attr]
        store.search(REVIEWER)[0].value["deep"]["a"][0]["x"] = 1
        one, other = store.batch([GetOp(PLANNER, "plan"), GetOp(PLANNER, "plan")])
        one.value["list"].append(4)
        assert other.value == {"list": [1], "deep": {"a": [{}]}}

    assert store.get(REVIEWER, "plan").value == {"list": [1], "deep": {"a": [{}]}}  # type: ignore[union-attr]


@dataclass
class Step:
    name: str


def test_values_come_back_exactly() -> None:
    value = {"when": datetime(2026, 1, 2, tzinfo=UTC), "pair": (1, b"x"), "said": AIMessage("hi")}
    store = CoherentStore(types=[Step])
    store.put(PLANNER, "plan", {**value, "step": Step("look")})

    assert store.get(REVIEWER, "plan").value == {**value, "step": Step("look")}  # type: ignore[union-attr]


def test_what_cannot_be_stored_is_refused(store: CoherentStore) -> None:
    with pytest.raises(NotStorable):
        store.put(PLANNER, "plan", {"x": object()})
    with pytest.raises(InvalidInput, match="a dict"):
        store.put(PLANNER, "plan", ["x"])  # type: ignore[arg-type]

    assert store.get(PLANNER, "plan") is None


# Searches and namespaces.


def test_every_agent_finds_every_artifact_of_a_scope_once(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"n": 1})
    store.put(REVIEWER, "notes", {"n": 2})
    store.put(REVIEWER, "plan", {"n": 3})
    found = store.search(("tester", "shared"))

    assert [(one.namespace, one.key, one.version) for one in found] == [
        (("tester", "shared"), "plan", 2),
        (("tester", "shared"), "notes", 1),
    ]
    assert all(isinstance(one, StoreSearchItem) and one.score is None for one in found)
    assert store.search(("tester", "other")) == []


def test_a_search_for_everything_shows_who_wrote_it(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {})
    store.put(REVIEWER, "notes", {})

    assert [one.namespace for one in store.search(())] == [REVIEWER, PLANNER]


def test_filters_are_those_of_ropewalk_store(store: CoherentStore) -> None:
    for number in range(30):
        store.put(PLANNER, f"k{number}", {"number": number, "odd": number % 2 == 1})
    wanted = {"$and": [{"odd": True}, {"number": {"$lt": 25}}]}
    found = store.search(REVIEWER, filter=wanted, limit=5, offset=2)

    assert [item.value["number"] for item in found] == [19, 17, 15, 13, 11]
    with pytest.raises(InvalidInput):
        store.search(REVIEWER, filter={"number": {"$near": 1}})


def test_namespaces_are_listed_for_who_asks(store: CoherentStore) -> None:
    store.put(("planner", "docs", "a"), "k", {})
    store.put(("reviewer", "docs", "b"), "k", {})
    store.put(("planner",), "k", {})

    assert store.list_namespaces(prefix=("tester",)) == [
        ("tester",),
        ("tester", "docs", "a"),
        ("tester", "docs", "b"),
    ]
    assert store.list_namespaces() == [
        ("planner",),
        ("planner", "docs", "a"),
        ("reviewer", "docs", "b"),
    ]
    assert store.list_namespaces(prefix=("*", "docs"), suffix=("b",)) == [("reviewer", "docs", "b")]
    assert store.list_namespaces(prefix=("tester",), max_depth=2) == [
        ("tester",),
        ("tester", "docs"),
    ]


# Batches.


def test_reads_of_a_batch_see_what_was_there_before_its_puts(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"n": 1})
    given = store.batch(
        [
            PutOp(PLANNER, "plan", {"n": 2}),
            GetOp(REVIEWER, "plan"),
            GetOp(PLANNER, "missing"),
            GetOp(PLANNER, "plan"),
            SearchOp(REVIEWER),
            PutOp(PLANNER, "gone", None),
        ]
    )

    assert [given[0], given[2], given[5]] == [None, None, None]
    assert given[1].value == given[3].value == given[4][0].value == {"n": 1}
    assert store.get(REVIEWER, "plan").value == {"n": 2}  # type: ignore[union-attr]


def test_the_puts_of_an_agent_are_made_all_or_none(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"title": "A"})
    store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"title": "B"})
    ops = [PutOp(REVIEWER, "notes", {}), PutOp(REVIEWER, "plan", {"title": "C"})]
    with pytest.raises(VersionConflict) as caught:
        store.batch(ops)

    assert caught.value.key == "plan" and store.get(REVIEWER, "notes") is None


def test_of_two_agents_that_put_one_artifact_the_last_counts(store: CoherentStore) -> None:
    store.batch([PutOp(PLANNER, "plan", {"n": 1}), PutOp(REVIEWER, "plan", {"n": 2})])
    found = store.get(PLANNER, "plan")

    assert found is not None and (found.value, found.version) == ({"n": 2}, 1)


# Metrics.


def test_metrics_say_who_asked_for_what() -> None:
    events: list[Any] = []
    with CoherentStore(on_metric=events.append) as store:
        store.put(PLANNER, "plan", {"n": 1})
        store.get(REVIEWER, "plan")
        store.get(REVIEWER, "plan")

    told = [
        (one.operation, one.namespace, one.key, one.agent_name, one.cache_hit) for one in events
    ]
    assert told == [
        ("put", PLANNER, "plan", "planner", False),
        ("get", REVIEWER, "plan", "reviewer", False),
        ("get", REVIEWER, "plan", "reviewer", True),
    ]
    assert [one.sequence_number for one in events] == [1, 2, 3]


def test_a_callback_that_raises_breaks_nothing() -> None:
    def fail(event: Any) -> None:
        raise RuntimeError("no")

    with CoherentStore(on_metric=fail, state_log=fail, content_audit_log=fail) as store:
        store.put(PLANNER, "plan", {"n": 1})

        assert store.get(REVIEWER, "plan").value == {"n": 1}  # type: ignore[union-attr]


def test_a_recorded_run_is_found_to_keep_its_promises(tmp_path: Path) -> None:
    with CoherentStore() as store:
        store.record_to(tmp_path / "run")
        for number in range(3):
            store.put(PLANNER, "plan", {"n": number})
            store.get(REVIEWER, "plan")
            store.search(("tester",))
        store.edit(REVIEWER, "plan", lambda value: {"n": 9})
        store.delete(PLANNER, "plan")
        with pytest.raises(InvalidInput, match="already"):
            store.record_to(tmp_path / "again")
    found = replay(tmp_path / "run")

    assert found.findings == [] == found.gaps and found.reads == 6


# Grants, and an engine that is away.


def test_a_holder_writes_alone_and_an_edit_waits(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"n": 1})
    with ThreadPoolExecutor(1) as pool:
        with store.hold(PLANNER, "plan"):
            with pytest.raises(ArtifactHeld):
                store.put(REVIEWER, "plan", {"n": 2})
            waiting = pool.submit(
                store.edit, REVIEWER, "plan", lambda value: {"n": value["n"] * 10}
            )
            store.put(PLANNER, "plan", {"n": 3})
        made = waiting.result()

    assert (made.value, made.version) == ({"n": 30}, 3)


def test_an_asynchronous_holder_writes_alone(store: CoherentStore) -> None:
    async def work() -> None:
        async with await store.ahold(PLANNER, "plan"):
            with pytest.raises(ArtifactHeld):
                await store.aput(REVIEWER, "plan", {"n": 2})
            await store.aput(PLANNER, "plan", {"n": 1})

    asyncio.run(work())
    assert [one.agent for one in store.core.search("tester", "shared/")] == ["planner"]


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
def test_an_item_of_an_engine_that_is_away_bears_a_mark() -> None:
    memory = MemoryStore()
    engine = AwayStore(memory.another())
    store = CoherentStore(store=engine, on_error="degrade", bus=False)
    store.put(PLANNER, "plan", {"n": 1})
    fresh = store.get(REVIEWER, "plan")
    engine.away = True
    with pytest.warns(CoherenceDegradedWarning):
        last = store.get(REVIEWER, "plan")
    with pytest.raises(Unavailable):
        store.get(REVIEWER, "never seen")
    with pytest.raises(Unavailable, match="without the engine"):
        store.list_namespaces()
    store.put(REVIEWER, "plan", {"n": 2})

    assert fresh is not None and not fresh.degraded
    assert last is not None and last.degraded and last.value == {"n": 1}
    assert store.is_degraded and store.degradation_count > 0
    engine.away = False
    store.close()


def test_an_engine_that_is_away_is_an_error_unless_told() -> None:
    engine = AwayStore(MemoryStore())
    store = CoherentStore(store=engine, bus=False)
    store.put(PLANNER, "plan", {"n": 1})
    engine.away = True

    with pytest.raises(Unavailable):
        store.get(PLANNER, "plan")


def test_a_copy_that_may_be_served_takes_no_thread() -> None:
    async def work() -> set[str]:
        async with CoherentStore("lease", store=MemoryStore(), bus=False) as store:
            store.put(PLANNER, "plan", {"n": 1})
            store.get(REVIEWER, "plan")
            before = {one.name for one in threading.enumerate()}
            assert (await store.aget(REVIEWER, "plan")).value == {"n": 1}  # type: ignore[union-attr]
            after = {one.name for one in threading.enumerate()}
        with pytest.raises(StoreClosed):
            await store.aget(REVIEWER, "plan")
        return after - before

    assert asyncio.run(work()) == set()


# The rest.


def test_items_have_no_end_unless_asked_for() -> None:
    store = CoherentStore()
    with pytest.raises(NotImplementedError, match="ttl="):
        store.put(PLANNER, "plan", {}, ttl=5)
    with pytest.raises(NotImplementedError, match="ttl="):
        store.batch([PutOp(PLANNER, "plan", {}, ttl=5)])
    with pytest.raises(NotImplementedError):
        store.sweep_ttl()

    assert not store.supports_ttl and store.get(PLANNER, "plan") is None


def test_a_query_without_an_index_is_taken_for_none(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"text": "a"})

    assert keys(store.search(PLANNER, query="b")) == ["plan"]


def test_an_edit_makes_only_items_that_a_put_would(store: CoherentStore) -> None:
    with pytest.raises(InvalidInput, match="dict"):
        store.edit(PLANNER, "n", lambda value: value + 1, default=0)
    with pytest.raises(InvalidInput, match="dict"):
        store.edit(PLANNER, "n", lambda value: value, default=None)
    with pytest.raises(InvalidNamespaceError):
        store.edit(("langgraph", "x"), "n", lambda value: value, default={})

    assert store.search(PLANNER) == []


def test_an_edit_may_change_the_value_in_place(store: CoherentStore) -> None:
    nothing: dict[str, int] = {}
    for _ in range(2):
        made = store.edit(PLANNER, "plan", lambda value: value.update(n=1), default=nothing)

    assert (made.value, made.version, nothing) == ({"n": 1}, 2, {})


def test_values_are_decoded_when_somebody_looks_into_them(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"list": [1, 2]})
    first: Any = store.get(REVIEWER, "plan")
    (hit,) = store.search(REVIEWER)
    store.put(PLANNER, "plan", {"list": []})
    copies = [pickle.loads(pickle.dumps(one)) for one in (first, hit)]
    first.value["list"].append(3)

    assert first.value == {"list": [1, 2, 3]}, "each has a value of its own"
    assert [one.value for one in copies] == [hit.value] * 2 == [{"list": [1, 2]}] * 2
    assert copies[0].version == 1 and copies[0] == copy.deepcopy(copies[0])


def test_a_store_that_was_closed_lists_nothing(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"n": 1})
    store.close()

    with pytest.raises(StoreClosed):
        store.list_namespaces()
    with pytest.raises(StoreClosed):
        store.list_namespaces(prefix=("planner",))


def test_what_is_closed_is_not_read(memory_folder: Path) -> None:
    store = CoherentStore(store=memory_folder / "store")
    store.put(PLANNER, "plan", {})
    asyncio.run(store.aclose())
    store.close()

    with pytest.raises(StoreClosed):
        store.get(PLANNER, "plan")


def test_a_local_store_answers_without_another_thread() -> None:
    async def work() -> set[str]:
        store = CoherentStore()
        before = {one.name for one in threading.enumerate()}
        await store.aput(PLANNER, "plan", {"n": 1})
        assert (await store.aget(REVIEWER, "plan")).value == {"n": 1}  # type: ignore[union-attr]
        assert keys(await store.asearch(REVIEWER)) == ["plan"]
        await store.adelete(REVIEWER, "plan")
        assert await store.alist_namespaces() == []
        return {one.name for one in threading.enumerate()} - before

    assert asyncio.run(work()) == set()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put("planner", "plan", {"step": 1}),
        lambda store: store.get("planner", "plan"),
        lambda store: store.delete("planner", "plan"),
        lambda store: store.search("planner"),
        lambda store: store.watch("planner"),
        lambda store: store.history("planner", "plan"),
    ],
)
def test_a_namespace_is_no_text(store: CoherentStore, call: Any) -> None:
    with pytest.raises(InvalidNamespaceError, match="a tuple of labels, not 'planner'"):
        call(store)


def test_an_item_shows_its_version(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"step": 1})

    assert repr(store.get(PLANNER, "plan")).endswith(", version=1)")
    assert repr(store.search(PLANNER)[0]).endswith(", version=1)")
