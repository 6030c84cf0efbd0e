"""`CoherentStore` around other stores, which keep the values."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore

from ropewalk.adapters.langgraph import CoherentStore, RopewalkStore
from ropewalk.errors import NotFound, Unavailable, VersionConflict
from ropewalk.store import MemoryStore
from ropewalk.testing import Fault, FaultStore

PLANNER = ("planner", "shared")
REVIEWER = ("reviewer", "shared")
HOME = ("shared", "shared")
"""Where the other store keeps what agents share in the scope `shared`."""

Wrap: TypeAlias = Callable[..., CoherentStore]


@pytest.fixture(params=["InMemoryStore", "RopewalkStore", "PostgresStore"])
def base(request: pytest.FixtureRequest) -> Iterator[BaseStore]:
    """A store that knows nothing of coherence."""
    match request.param:
        case "InMemoryStore":
            yield InMemoryStore()
        case "RopewalkStore":
            yield RopewalkStore()
        case _:
            url = request.getfixturevalue("postgres_url")
            with PostgresStore.from_conn_string(url) as store:
                store.setup()
                yield store


@pytest.fixture
def wrap(base: BaseStore) -> Iterator[Wrap]:
    """Wraps it, as often as is asked for."""
    made: list[CoherentStore] = []
    versions = MemoryStore()

    def one(*arguments: Any, **options: Any) -> CoherentStore:
        made.append(CoherentStore(*arguments, base=base, store=versions, **options))
        return made[-1]

    yield one
    for store in made:
        store.close()


def test_values_are_kept_by_the_other_store_once(wrap: Wrap, base: BaseStore) -> None:
    store = wrap()
    store.put(PLANNER, "plan", {"step": 1, "list": [1, {"a": None}]})
    store.put(REVIEWER, "plan", {"step": 2})
    found: Any = store.get(("tester", "shared"), "plan")
    kept: Any = base.get(HOME, "plan")

    assert (found.value, found.version) == ({"step": 2}, 2)
    assert found.namespace == ("tester", "shared")
    assert kept.value == {"step": 2}
    assert (found.created_at, found.updated_at) == (kept.created_at, kept.updated_at)
    assert [one.key for one in base.search(())] == ["plan"]


def test_with_config_namespaces_stay_as_they_are(wrap: Wrap, base: BaseStore) -> None:
    base.put(("alice", "memories"), "old", {"n": 0})
    store = wrap(identity="config")
    store.put(("alice", "memories"), "city", {"name": "Rome"})
    old: Any = store.get(("alice", "memories"), "old")

    assert base.get(("alice", "memories"), "city").value == {"name": "Rome"}
    assert (old.value, old.version) == ({"n": 0}, 1), "what was there before is found"
    assert store.list_namespaces() == [("alice", "memories")]
    assert store.get(("bob", "memories"), "city") is None


def test_versions_and_conflicts_are_those_of_artifacts(wrap: Wrap) -> None:
    one, other = wrap(), wrap()
    one.put(PLANNER, "plan", {"title": "A", "steps": {}}, if_version=0)
    other.get(REVIEWER, "plan")
    one.put(PLANNER, "plan", {"title": "B", "steps": {}})
    other.put(REVIEWER, "plan", {"title": "A", "steps": {"first": "look"}})
    with pytest.raises(VersionConflict) as caught:
        one.put(PLANNER, "plan", {"title": "C"}, if_version=2)
    merged: Any = one.get(PLANNER, "plan")
    other.get(REVIEWER, "plan")
    one.put(PLANNER, "plan", {"title": "D"})
    with pytest.raises(VersionConflict):
        other.put(REVIEWER, "plan", {"title": "E"})

    assert (caught.value.expected, caught.value.actual, caught.value.key) == (2, 3, "plan")
    assert (merged.value, merged.version) == ({"title": "B", "steps": {"first": "look"}}, 3)
    assert one.get(PLANNER, "plan").value == {"title": "D"}  # type: ignore[union-attr]


def test_an_edit_loses_nothing(wrap: Wrap) -> None:
    stores = [wrap(), wrap()]

    def count(number: int) -> None:
        for _ in range(5):
            stores[number % 2].edit(
                (f"agent-{number}", "shared"), "n", lambda value: {"n": value["n"] + 1},
                default={"n": 0},
            )  # fmt: skip

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    found: Any = stores[0].get(PLANNER, "n")

    assert (found.value, found.version) == ({"n": 20}, 20)
    with pytest.raises(NotFound):
        stores[0].edit(PLANNER, "missing", lambda value: value)


def test_versions_go_on_across_a_delete(wrap: Wrap, base: BaseStore) -> None:
    store = wrap()
    store.put(PLANNER, "plan", {"n": 1})
    store.delete(REVIEWER, "plan")
    gone = store.get(PLANNER, "plan"), base.get(HOME, "plan")
    store.put(PLANNER, "plan", {"n": 2})

    assert gone == (None, None) and store.get(REVIEWER, "plan").version == 3  # type: ignore[union-attr]


def test_what_is_written_without_us_is_a_version_too(wrap: Wrap, base: BaseStore) -> None:
    store = wrap()
    store.put(PLANNER, "plan", {"title": "A"})
    base.put(HOME, "plan", {"title": "B"})
    seen: Any = store.get(REVIEWER, "plan")
    base.put(HOME, "plan", {"title": "C"})
    with pytest.raises(VersionConflict):
        store.put(REVIEWER, "plan", {"title": "D"})
    again: Any = store.get(REVIEWER, "plan")
    base.delete(HOME, "plan")

    assert (seen.value, seen.version) == ({"title": "B"}, 2)
    assert (again.value, again.version) == ({"title": "C"}, 3)
    assert store.get(REVIEWER, "plan") is None


def test_a_search_is_that_of_the_other_store_with_versions(wrap: Wrap, base: BaseStore) -> None:
    store = wrap()
    for number in range(5):
        store.put(PLANNER, f"k{number}", {"odd": number % 2 == 1})
    store.put(REVIEWER, "k1", {"odd": True, "again": True})
    base.put(HOME, "k9", {"odd": True})
    found = store.search(("tester", "shared"), filter={"odd": True})

    assert {(one.key, one.version) for one in found} == {("k1", 2), ("k3", 1), ("k9", 1)}
    assert {one.namespace for one in found} == {("tester", "shared")}
    assert store.list_namespaces(prefix=("tester",)) == [("tester", "shared")]
    assert store.list_namespaces()[0][1:] == ("shared",)


def test_a_batch_reads_first_and_writes_together(wrap: Wrap) -> None:
    store = wrap()
    store.put(PLANNER, "plan", {"n": 1})
    given = store.batch(
        [
            PutOp(PLANNER, "plan", {"n": 2}),
            GetOp(REVIEWER, "plan"),
            PutOp(PLANNER, "notes", {"n": 3}),
            PutOp(PLANNER, "never", None),
        ]
    )

    assert given[1].value == {"n": 1}
    assert [store.get(REVIEWER, key).value["n"] for key in ("plan", "notes")] == [2, 3]  # type: ignore[union-attr]


def test_values_are_each_callers_own(wrap: Wrap) -> None:
    store, value = wrap("lease", ttl_seconds=60), {"list": [1]}
    store.put(PLANNER, "plan", value)
    value["list"].append(2)
    for _ in range(3):
        store.get(PLANNER, "plan").value["list"].append(3)  # type: ignore[union-attr]

    assert store.get(PLANNER, "plan").value == {"list": [1]}  # type: ignore[union-attr]


def test_a_lease_serves_what_was_read_until_others_write(base: BaseStore, wrap: Wrap) -> None:
    counted = Counted(base)
    store = CoherentStore("lease", base=counted, store=MemoryStore(), ttl_seconds=60)
    store.put(PLANNER, "plan", {"n": 1})
    store.get(REVIEWER, "plan")
    before = counted.gets
    for _ in range(5):
        assert store.get(REVIEWER, "plan").value == {"n": 1}  # type: ignore[union-attr]
    served = counted.gets
    store.put(PLANNER, "plan", {"n": 2})

    assert served == before, "the other store was not asked again"
    assert store.get(REVIEWER, "plan").value == {"n": 2}  # type: ignore[union-attr]
    store.recover("reviewer")
    before = counted.gets
    store.get(REVIEWER, "plan")
    assert counted.gets > before


def test_an_access_count_asks_the_other_store_again(base: BaseStore) -> None:
    store = CoherentStore("access_count", base=base, max_accesses=3)
    store.put(PLANNER, "plan", {"n": 1})
    store.get(REVIEWER, "plan")
    base.put(HOME, "plan", {"n": 2})
    seen = [store.get(REVIEWER, "plan").value["n"] for _ in range(5)]  # type: ignore[union-attr]

    assert seen == [1, 1, 1, 2, 2]


def test_a_holder_writes_alone(wrap: Wrap) -> None:
    store = wrap()
    store.put(PLANNER, "plan", {"n": 1})
    with store.hold(PLANNER, "plan"):
        store.put(PLANNER, "plan", {"n": 2})
        held = store.get(REVIEWER, "plan")

    store.put(REVIEWER, "plan", {"n": 3})
    assert held.value == {"n": 2}  # type: ignore[union-attr]
    assert store.get(PLANNER, "plan").version == 3  # type: ignore[union-attr]


def test_the_asynchronous_face_works(wrap: Wrap) -> None:
    async def work() -> Any:
        async with wrap() as store:
            await store.aput(PLANNER, "plan", {"n": 1})
            found: Any = await store.aget(REVIEWER, "plan")
            (hit,) = await store.asearch(REVIEWER)
            await store.adelete(REVIEWER, "plan")
            return found.version, hit.value, await store.aget(PLANNER, "plan")

    assert asyncio.run(work()) == (1, {"n": 1}, None)


# What depends on the other store.


class Counted(BaseStore):
    """Another store that counts what is read, and stops before a write if it is told to."""

    def __init__(self, base: BaseStore) -> None:
        self._base, self.gets = base, 0
        self.gate: threading.Event | None = None
        self.is_waiting = threading.Event()

    def batch(self, ops: Any) -> list[Any]:
        given = list(ops)
        self.gets += sum(isinstance(op, GetOp) for op in given)
        done: list[Any] = self._base.batch(given)
        if self.gate is not None and any(isinstance(op, PutOp) for op in given):
            self.is_waiting.set()
            self.gate.wait(30)
        return done

    async def abatch(self, ops: Any) -> list[Any]:
        return self.batch(ops)


def test_a_reader_waits_for_a_put_that_is_under_way() -> None:
    base = Counted(InMemoryStore())
    store = CoherentStore(base=base)
    store.put(PLANNER, "plan", {"n": 1})
    base.gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(store.put, PLANNER, "plan", {"n": 2})
        base.is_waiting.wait(30)
        reading = pool.submit(store.get, REVIEWER, "plan")
        base.gate.set()
        writing.result()
        found: Any = reading.result()

    assert (found.value, found.version) == ({"n": 2}, 2)


def test_a_put_whose_writer_died_becomes_a_version_of_nobody() -> None:
    class Dying(InMemoryStore):
        dies = False

        def batch(self, ops: Any) -> list[Any]:
            given = list(ops)
            done: list[Any] = super().batch(given)
            if self.dies and any(isinstance(op, PutOp) for op in given):
                raise KeyboardInterrupt
            return done

    base = Dying()
    store = CoherentStore(base=base)
    store.put(PLANNER, "plan", {"n": 1})
    base.dies = True
    with pytest.raises(KeyboardInterrupt):
        store.put(PLANNER, "plan", {"n": 2}, if_version=1)
    base.dies = False
    found: Any = store.get(REVIEWER, "plan")

    assert (found.value, found.version) == ({"n": 2}, 2)
    assert store.list_namespaces() == [("nobody", "shared")]


def test_values_that_another_store_changes_have_one_version(postgres_url: str) -> None:
    with PostgresStore.from_conn_string(postgres_url) as base:
        base.setup()
        store = CoherentStore(base=base)
        store.put(PLANNER, "plan", {"b": (1, 2), "a": {"z": 1, "c": 1.0}})
        first: Any = store.get(REVIEWER, "plan")
        second: Any = store.get(REVIEWER, "plan")

    assert (first.value, first.version) == ({"a": {"c": 1.0, "z": 1}, "b": [1, 2]}, 1)
    assert second.version == 1


def test_exact_values_stay_exact_in_a_ropewalk_store() -> None:
    value = {"when": datetime(2026, 1, 2, tzinfo=UTC), "pair": (1, b"x")}
    store = CoherentStore(base=RopewalkStore())
    store.put(PLANNER, "plan", value)
    found: Any = store.get(REVIEWER, "plan")

    assert (found.value, found.version) == (value, 1)


def test_a_ropewalk_store_shares_its_versions_with_other_processes(memory_folder: Path) -> None:
    with RopewalkStore(memory_folder / "store") as one, CoherentStore(base=one) as store:
        store.put(PLANNER, "plan", {"n": 1})
        store.put(PLANNER, "plan", {"n": 2})
    with RopewalkStore(memory_folder / "store") as other, CoherentStore(base=other) as store:
        found: Any = store.get(REVIEWER, "plan")

    assert (found.value, found.version) == ({"n": 2}, 2)


def test_index_and_ttl_are_those_of_a_store_of_its_own(memory_folder: Path) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) for letter in "ab"] for text in texts]

    with CoherentStore(
        store=memory_folder / "store",
        index={"dims": 2, "embed": embed, "fields": ["text"]},
        ttl={"default_ttl": 30},
    ) as store:
        store.put(PLANNER, "one", {"text": "aaa"})
        store.put(PLANNER, "two", {"text": "bbb"}, ttl=None)
        ranked = store.search(REVIEWER, query="b")

        assert [one.key for one in ranked] == ["two", "one"] and ranked[0].score == 1.0
        assert store.supports_ttl and store.sweep_ttl() == 0


def test_metrics_count_what_agents_ask_for_once() -> None:
    events: list[Any] = []
    base = InMemoryStore()
    with CoherentStore(base=base, on_metric=events.append) as store:
        store.put(PLANNER, "plan", {"n": 1})
        store.get(REVIEWER, "plan")
        base.put(HOME, "plan", {"n": 2})
        store.get(REVIEWER, "plan")

    told = [(one.operation, one.agent_name) for one in events]
    assert told == [("put", "planner"), ("get", "reviewer"), ("get", "reviewer")]


def test_an_asynchronous_store_is_wrapped_too(postgres_url: str) -> None:
    async def work() -> Any:
        async with AsyncPostgresStore.from_conn_string(postgres_url) as base:
            await base.setup()
            async with CoherentStore(base=base) as store:
                await store.aput(PLANNER, "plan", {"n": 1})
                await store.aput(PLANNER, "plan", {"n": 2}, if_version=1)
                found: Any = await store.aget(REVIEWER, "plan")
                (hit,) = await store.asearch(REVIEWER)
                return found.value, found.version, hit.version

    assert asyncio.run(work()) == ({"n": 2}, 2, 2)


def test_an_edit_may_change_the_value_in_place(wrap: Wrap) -> None:
    store = wrap()
    nothing: dict[str, int] = {}

    for _ in range(2):
        made = store.edit(PLANNER, "plan", lambda value: value.update(n=1), default=nothing)

    assert (made.value, made.version, nothing) == ({"n": 1}, 2, {})


def test_an_agent_that_holds_an_item_puts_it_whatever_the_bus_lost(wrap: Wrap) -> None:
    store = wrap()
    store.put(PLANNER, "plan", {"n": 1})

    with store.hold(PLANNER, "plan"):
        store._core._directory.note_gap()
        store.put(PLANNER, "plan", {"n": 2})

    found: Any = store.get(REVIEWER, "plan")
    assert found.value == {"n": 2}


def test_an_item_that_is_not_there_is_found_out_without_looking_at_all_others() -> None:
    versions = FaultStore(MemoryStore())
    with CoherentStore(base=InMemoryStore(), store=versions) as store:
        store.put(PLANNER, "plan", {"n": 1})
        before = len(versions.calls)
        missing = store.get(PLANNER, "other")

        assert missing is None
        assert set(versions.calls[before:]) == {"ref"}


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
def test_an_item_whose_version_cannot_be_confirmed_bears_a_mark() -> None:
    base, cable = InMemoryStore(), FaultStore(MemoryStore())
    with CoherentStore(base=base, store=cable, on_error="degrade") as store:
        store.put(PLANNER, "plan", {"step": 1})
        cable.faults = (Fault.dead(1),)
        before = store.get(REVIEWER, "plan")
        base.put(HOME, "plan", {"step": 2})
        after = store.get(REVIEWER, "plan")
        (found,) = store.search(REVIEWER)
        with pytest.raises(Unavailable):
            store.put(PLANNER, "plan", {"step": 3})
        cable.faults = ()

    assert before is not None and after is not None
    assert (before.value, before.degraded) == ({"step": 1}, True)
    assert (after.value, after.degraded) == ({"step": 2}, True)
    assert (found.value, found.degraded) == ({"step": 2}, True)
    kept = base.get(HOME, "plan")
    assert kept is not None and kept.value == {"step": 2}
