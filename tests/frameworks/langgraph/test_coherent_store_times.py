"""Items of a `CoherentStore` that end, and that are searched by meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.coherence import replay
from ropewalk.errors import InvalidInput, Unavailable, VersionConflict
from ropewalk.store import MemoryStore
from ropewalk.testing import Fault, FaultStore
from tests.frameworks.langgraph.coherent import PLANNER, REVIEWER, pass_time
from tests.frameworks.sharing import AwayStore


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "ab"] for text in texts]


INDEX: Any = {"dims": 2, "embed": embed, "fields": ["text"]}


def value_of(found: Any) -> Any:
    return None if found is None else found.value


def keys(found: list[Any]) -> list[str]:
    return [one.key for one in found]


# Items that end.


def test_an_edit_gives_an_item_the_end_that_a_put_would() -> None:
    store = CoherentStore(ttl={"default_ttl": 30})
    store.edit(PLANNER, "new", lambda value: value, default={"n": 0})
    store.put(PLANNER, "lasting", {"n": 0}, ttl=None)
    before = store.get(PLANNER, "new", refresh_ttl=False)
    pass_time(store, 31)

    assert value_of(before) == {"n": 0}
    assert [value_of(store.get(PLANNER, key)) for key in ("new", "lasting")] == [None, {"n": 0}]


def test_a_put_is_not_merged_with_what_has_ended() -> None:
    store = CoherentStore(ttl={})
    store.put(PLANNER, "plan", {"a": 1}, ttl=1)
    store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"a": 1, "b": 2}, ttl=1)
    pass_time(store, 2)
    store.put(REVIEWER, "plan", {"c": 3})

    assert value_of(store.get(PLANNER, "plan")) == {"c": 3}


def test_an_item_that_ended_is_not_there_for_who_asks_for_its_version() -> None:
    store = CoherentStore(ttl={})
    store.put(PLANNER, "plan", {"n": 1}, ttl=1)
    pass_time(store, 2)

    with pytest.raises(VersionConflict):
        store.put(PLANNER, "plan", {"n": 2}, if_version=1)
    store.put(PLANNER, "plan", {"n": 2}, if_version=0)
    assert value_of(store.get(REVIEWER, "plan")) == {"n": 2}


def test_an_edit_of_what_has_ended_begins_anew() -> None:
    store = CoherentStore(ttl={})
    store.put(PLANNER, "n", {"n": 5}, ttl=1)
    pass_time(store, 2)
    made = store.edit(REVIEWER, "n", lambda value: {"n": value["n"] + 1}, default={"n": 0})

    assert made.value == {"n": 1}


def test_reads_of_another_process_begin_the_time_again(memory_folder: Path) -> None:
    place = memory_folder / "store"
    with CoherentStore(store=place, ttl={}) as one, CoherentStore(store=place, ttl={}) as other:
        one.put(PLANNER, "plan", {"n": 1}, ttl=10)
        pass_time(other, 8)
        other.get(REVIEWER, "plan")
        pass_time(one, 16)

        assert value_of(one.get(PLANNER, "plan")) == {"n": 1}
        pass_time(one, 30)
        assert one.get(PLANNER, "plan") is None and one.sweep_ttl() == 1


def test_reading_an_item_again_and_again_makes_no_version(memory_folder: Path) -> None:
    with CoherentStore(store=memory_folder / "store", ttl={"default_ttl": 10}) as store:
        store.put(PLANNER, "plan", {"n": 1})
        for _ in range(5):
            pass_time(store, 8)
            found: Any = store.get(REVIEWER, "plan")

        assert (found.value, found.version) == ({"n": 1}, 1)
        assert len(store.history(PLANNER, "plan").history()) == 1


def test_an_item_whose_entry_was_lost_lives_as_long_as_its_put_said(memory_folder: Path) -> None:
    with CoherentStore(store=memory_folder / "store", ttl={"refresh_on_read": False}) as store:
        store.put(PLANNER, "plan", {"n": 1}, ttl=10)
        index = store._index
        assert index is not None
        index._entries.delete(("items", "shared"), "plan")
        alive = store.get(PLANNER, "plan")
        pass_time(store, 11)

        assert value_of(alive) == {"n": 1} and store.get(PLANNER, "plan") is None


def test_all_items_that_are_swept_are_gone_for_everybody(memory_folder: Path) -> None:
    with CoherentStore(store=memory_folder / "store", ttl={"default_ttl": 1}) as store:
        store.batch([PutOp(PLANNER, f"k{n}", {"n": n}, ttl=1) for n in range(3)])
        pass_time(store, 2)

        assert store.sweep_ttl() == 3
        assert store.core.artifacts() == [] and store.list_namespaces() == []


def test_items_without_a_ttl_in_the_store_have_no_end() -> None:
    store = CoherentStore(index=INDEX)

    with pytest.raises(NotImplementedError, match="ttl="):
        store.put(PLANNER, "plan", {}, ttl=5)


# Searches by meaning.


def test_what_was_merged_is_found_by_all_that_it_holds(memory_folder: Path) -> None:
    with CoherentStore(store=memory_folder / "store", index=INDEX) as store:
        store.put(PLANNER, "one", {"text": "", "n": 0})
        store.get(REVIEWER, "one")
        store.put(PLANNER, "one", {"text": "bbb", "n": 0})
        store.put(REVIEWER, "one", {"text": "", "n": 1})
        store.put(PLANNER, "two", {"text": "aab"})
        found = store.search(REVIEWER, query="b")

    assert keys(found) == ["one", "two"] and found[0].score == 1.0
    assert found[0].value == {"text": "bbb", "n": 1}


def test_what_somebody_wrote_without_an_index_is_found_too(memory_folder: Path) -> None:
    place = memory_folder / "store"
    with CoherentStore(store=place) as plain, CoherentStore(store=place, index=INDEX) as store:
        store.put(PLANNER, "one", {"text": "aaa"})
        plain.put(PLANNER, "two", {"text": "bbb"})

        assert keys(store.search(REVIEWER, query="b")) == ["two", "one"]


def test_what_cannot_be_embedded_is_not_put() -> None:
    def refuse(texts: list[str]) -> Any:
        raise ConnectionError("no model")

    store = CoherentStore(index={"dims": 2, "embed": refuse, "fields": ["text"]})
    with pytest.raises(ConnectionError):
        store.put(PLANNER, "plan", {"text": "a"})
    wrong = CoherentStore(index={**INDEX, "dims": 3})
    with pytest.raises(InvalidInput, match="dims=3"):
        wrong.put(PLANNER, "plan", {"text": "a"})

    assert store.get(PLANNER, "plan") is None and wrong.get(PLANNER, "plan") is None


def test_an_agent_has_seen_what_a_search_by_meaning_gave_it() -> None:
    store = CoherentStore(index=INDEX)
    store.put(PLANNER, "plan", {"text": "a", "days": 1})
    store.search(REVIEWER, query="a")
    store.put(PLANNER, "plan", {"text": "b", "days": 1})

    with pytest.raises(VersionConflict):
        store.put(REVIEWER, "plan", {"text": "c", "days": 1})


# Versions, logs and outages are those of artifacts.


def test_items_that_end_have_a_history_and_are_watched(memory_folder: Path) -> None:
    with CoherentStore(store=memory_folder / "store", ttl={"default_ttl": 5}, index=INDEX) as store:
        store.put(PLANNER, "plan", {"text": "a"})
        store.put(REVIEWER, "plan", {"text": "b"})
        steps = store.history(PLANNER, "plan").history()
        told = list(store.watch(REVIEWER, after=0, timeout=0))

    assert [(one.version, one.agent) for one in steps] == [(2, "reviewer"), (1, "planner")]
    assert [(one.key, one.version) for one in told] == [("plan", 1), ("plan", 2)]


def test_a_recorded_run_of_items_that_end_has_nothing_to_find(tmp_path: Path) -> None:
    store = CoherentStore(ttl={"default_ttl": 5}, index=INDEX)
    store.record_to(tmp_path)
    store.put(PLANNER, "plan", {"text": "a"})
    store.get(REVIEWER, "plan")
    store.edit(REVIEWER, "plan", lambda value: {**value, "n": 0})
    store.search(PLANNER, query="a")
    store.batch([PutOp(PLANNER, "plan", None), GetOp(REVIEWER, "plan")])
    store.close()

    assert replay(tmp_path).findings == []


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
def test_items_that_may_end_are_served_and_kept_while_the_engine_is_away() -> None:
    engine = AwayStore(MemoryStore())
    with CoherentStore(store=engine, ttl={}, index=INDEX, on_error="degrade") as store:
        store.put(PLANNER, "plan", {"text": "a"}, ttl=60)
        store.get(REVIEWER, "plan")
        engine.away = True
        found: Any = store.get(REVIEWER, "plan")
        with pytest.raises(Unavailable):
            store.get(REVIEWER, "other")
        store.put(PLANNER, "plan", {"text": "b"}, ttl=60)
        kept = len(store.core.kept())
        engine.away = False

    assert (found.value, found.version, found.degraded) == ({"text": "a"}, 1, True)
    assert kept == 1


def test_a_put_whose_entry_could_not_be_written_is_made() -> None:
    cable = FaultStore(MemoryStore())
    with CoherentStore(store=cable, index=INDEX) as store:
        store.put(PLANNER, "one", {"text": "a"})
        before = len(cable.calls)
        store.put(PLANNER, "one", {"text": "b"})
        commits = [n for n, call in enumerate(cable.calls[before:], 1) if call == "commit"]
        cable.faults = (Fault.dead(len(cable.calls) + commits[-1]),)
        store.put(PLANNER, "one", {"text": "ab"})
        cable.faults = ()

        (found,) = store.search(REVIEWER, query="a")
        assert found.value == {"text": "ab"} and found.score is not None


def test_a_store_that_could_not_be_made_leaves_no_file_open(memory_folder: Path) -> None:
    def opened() -> int:
        # Only files of this store: what other tests left may be closed at any moment.
        found = [os.path.realpath(one.path) for one in os.scandir("/proc/self/fd")]
        return sum(one.startswith(str(memory_folder)) for one in found)

    def fail(**options: Any) -> None:
        with pytest.raises(InvalidInput):
            CoherentStore(store=memory_folder / "store", **{"ttl": {"default_ttl": 1}, **options})

    fail(strategy="lazyy")
    before = opened()
    wrong: list[Any] = [
        *({"strategy": "lazyy"}, {"on_conflict": "x"}, {"telemetry": "x"}, {"bus": 5}),
        *({"ttl": {"default": 1}}, {"ttl": 5}, {"index": {"dims": 0, "embed": embed}}),
    ]
    for options in wrong:
        fail(**options)

    assert opened() == before
