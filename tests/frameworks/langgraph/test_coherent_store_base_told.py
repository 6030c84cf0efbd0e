"""`CoherentStore` around other stores: what is kept exactly, what is logged, what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import InvalidNamespaceError, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from ropewalk.adapters.langgraph import CoherentStore, RopewalkStore
from ropewalk.coherence import replay
from ropewalk.errors import InvalidInput, StoreClosed, Unavailable
from ropewalk.store import MemoryStore
from tests.frameworks.sharing import AwayStore

PLANNER = ("planner", "shared")
REVIEWER = ("reviewer", "shared")
HOME = ("shared", "shared")
HOUR = 3600 * 1_000_000


def pair(found: Any) -> tuple[Any, int]:
    return found.value, found.version


# Items that end.


def test_an_edit_gives_an_item_the_end_that_a_put_would() -> None:
    base = RopewalkStore(ttl={"default_ttl": 30})
    store = CoherentStore(base=base)
    store.edit(PLANNER, "new", lambda value: value, default={"n": 0})
    store.put(PLANNER, "old", {"n": 0}, ttl=None)
    store.edit(PLANNER, "old", lambda _: {"n": 1})
    before = base._expiry.clock
    base._expiry.clock = lambda: before() + HOUR

    assert [store.get(PLANNER, key) for key in ("new", "old")] == [None, None]


def test_an_end_that_the_other_store_does_not_know_is_refused() -> None:
    store = CoherentStore(base=InMemoryStore())

    with pytest.raises(NotImplementedError, match="InMemoryStore"):
        store.put(PLANNER, "plan", {"n": 1}, ttl=5)
    with pytest.raises(NotImplementedError, match="InMemoryStore"):
        store.batch([PutOp(PLANNER, "plan", {"n": 1}, ttl=5)])
    assert store.get(PLANNER, "plan") is None


# Values.


@pytest.mark.parametrize("number", [1e16, 2.0**60, -0.0, 1e-7, 0.1])
def test_a_number_that_another_store_changes_has_one_version(
    number: float, postgres_url: str
) -> None:
    with PostgresStore.from_conn_string(postgres_url) as base:
        base.setup()
        store = CoherentStore(base=base)
        store.put(PLANNER, "plan", {"x": number}, if_version=0)
        found: Any = store.get(REVIEWER, "plan")
        store.put(PLANNER, "plan", {"x": [number]}, if_version=1)

    assert (float(found.value["x"]), found.version) == (number, 1)


def test_a_change_of_the_other_stores_own_object_is_not_reverted() -> None:
    base = InMemoryStore()
    store = CoherentStore(base=base)
    store.put(PLANNER, "plan", {"x": 0, "y": 0})
    store.get(REVIEWER, "plan")
    kept: Any = base.get(HOME, "plan")
    kept.value["x"] = 1
    store.put(REVIEWER, "plan", {"x": 0, "y": 1})

    assert pair(store.get(PLANNER, "plan")) == ({"x": 1, "y": 1}, 3)


# What is logged.


def audited(*, base: Any, **options: Any) -> tuple[list[Any], list[Any], CoherentStore]:
    records: list[Any] = []
    events: list[Any] = []
    store = CoherentStore(
        base=base, content_audit_log=records.append, on_metric=events.append, **options
    )
    return records, events, store


def work(store: CoherentStore) -> None:
    store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"n": 1})
    store.get(REVIEWER, "plan")
    store.get(REVIEWER, "plan")
    store.search(REVIEWER)
    store.edit(REVIEWER, "plan", lambda _: {"n": 2})
    store.delete(PLANNER, "plan")
    store.get(REVIEWER, "plan")
    store.close()


def said(records: list[Any]) -> list[Any]:
    fields = ("agent_name", "artifact_id", "version", "content_hash", "source", "outcome")
    return [tuple(one[field] for field in fields) for one in records if "agent_name" in one]


@pytest.mark.parametrize("strategy", ["lazy", "lease", "access_count"])
def test_the_logs_say_what_they_say_of_a_store_that_keeps_the_values_itself(
    strategy: str,
) -> None:
    records, events, store = audited(base=InMemoryStore(), strategy=strategy)
    work(store)
    direct_records, direct_events, direct = audited(base=None, strategy=strategy)
    work(direct)

    assert said(records) == said(direct_records)
    assert [(one.operation, one.agent_name, one.key) for one in events] == [
        (one.operation, one.agent_name, one.key) for one in direct_events
    ]


def test_a_value_that_was_written_without_us_is_logged_as_nobodys() -> None:
    base = InMemoryStore()
    records, events, store = audited(base=base)
    store.put(PLANNER, "plan", {"n": 1})
    base.put(HOME, "plan", {"n": 2})
    store.get(REVIEWER, "plan")
    store.close()

    assert [(one[0], one[2], one[4]) for one in said(records)] == [
        ("planner", 1, "write"),
        ("nobody", 2, "write"),
        ("reviewer", 2, "fetch"),
    ]
    assert [(one.operation, one.agent_name) for one in events] == [
        ("put", "planner"),
        ("get", "reviewer"),
    ]


def test_a_recorded_run_has_nothing_to_find_although_keys_are_reordered(
    postgres_url: str, tmp_path: Path
) -> None:
    with PostgresStore.from_conn_string(postgres_url) as base:
        base.setup()
        store = CoherentStore(base=base, store=MemoryStore())
        store.record_to(tmp_path)
        store.put(PLANNER, "plan", {"b": 1, "a": (1, 2.5)})
        store.get(REVIEWER, "plan")
        base.put(HOME, "plan", {"z": 1})
        with store.hold(PLANNER, "plan"):
            store.get(REVIEWER, "plan")
        store.get(REVIEWER, "plan")
        store.edit(REVIEWER, "plan", lambda value: {**value, "a": 0})
        store.delete(PLANNER, "plan")
        store.get(REVIEWER, "plan")
        store.close()

    assert replay(tmp_path).findings == []


# While the engine is away.


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
def test_the_last_value_known_is_served_while_the_engine_of_both_is_away() -> None:
    engine = AwayStore(MemoryStore())
    with CoherentStore(store=engine, ttl={}, on_error="degrade") as store:
        store.put(PLANNER, "plan", {"n": 1})
        store.get(REVIEWER, "plan")
        store.put(PLANNER, "plan", {"n": 2})
        engine.away = True
        found: Any = store.get(REVIEWER, "plan")
        with pytest.raises(Unavailable):
            store.get(REVIEWER, "other")
        with pytest.raises(Unavailable):
            store.put(PLANNER, "plan", {"n": 3})
        engine.away = False

    assert (found.value, found.version, found.degraded) == ({"n": 2}, 2, True)
    assert store.degradation_count == 1


# What is refused, and what is listed.


@pytest.mark.parametrize("base", [None, InMemoryStore()])
def test_an_edit_makes_only_items_that_a_put_would(base: Any) -> None:
    store = CoherentStore(base=base)

    with pytest.raises(InvalidInput, match="dict"):
        store.edit(PLANNER, "n", lambda value: value + 1, default=0)
    with pytest.raises(InvalidInput, match="dict"):
        store.edit(PLANNER, "n", lambda value: value, default=None)
    with pytest.raises(InvalidNamespaceError):
        store.edit(("langgraph", "x"), "n", lambda value: value, default={})
    assert store.search(PLANNER) == []


@pytest.mark.parametrize("base", [None, InMemoryStore()])
def test_a_store_that_was_closed_lists_nothing(base: Any) -> None:
    store = CoherentStore(base=base)
    store.put(PLANNER, "plan", {"n": 1})
    store.close()

    with pytest.raises(StoreClosed):
        store.list_namespaces()
    with pytest.raises(StoreClosed):
        store.list_namespaces(prefix=("planner",))


def test_namespaces_that_nobody_has_read_yet_are_listed() -> None:
    base = InMemoryStore()
    base.put(("shared", "old"), "k", {"n": 1})
    store = CoherentStore(base=base)
    store.put(PLANNER, "plan", {"n": 1})

    assert store.list_namespaces() == [("nobody", "old"), ("planner", "shared")]
    assert store.list_namespaces(prefix=("tester",)) == [("tester", "old"), ("tester", "shared")]
    assert {one.namespace for one in store.search(())} == set(store.list_namespaces())


def test_a_store_that_could_not_be_made_leaves_no_file_open(memory_folder: Path) -> None:
    def opened() -> int:
        # Only files of this store: what other tests left may be closed at any moment.
        found = [os.path.realpath(one.path) for one in os.scandir("/proc/self/fd")]
        return sum(one.startswith(str(memory_folder)) for one in found)

    def fail(**options: Any) -> None:
        with pytest.raises(InvalidInput):
            CoherentStore(store=memory_folder / "store", ttl={"default_ttl": 1}, **options)

    fail(strategy="lazyy")
    before = opened()
    for options in ({"strategy": "lazyy"}, {"on_conflict": "x"}, {"telemetry": "x"}, {"bus": 5}):
        fail(**options)

    assert opened() == before
