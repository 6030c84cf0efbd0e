"""Versions in `CoherentStore`: asked for, merged, refused, edited."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.errors import InvalidInput, NotFound, VersionConflict
from tests.frameworks.langgraph.coherent import PLANNER, REVIEWER


@pytest.fixture
def store(coherent_store: CoherentStore) -> CoherentStore:
    return coherent_store


def test_versions_go_on_across_a_delete(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"step": 1})
    store.put(PLANNER, "plan", {"step": 2})
    store.delete(REVIEWER, "plan")
    gone = store.get(PLANNER, "plan")
    store.put(PLANNER, "plan", {"step": 3})

    assert gone is None and store.get(REVIEWER, "plan").version == 4  # type: ignore[union-attr]


def test_times_are_true(store: CoherentStore) -> None:
    before = datetime.now(UTC)
    store.put(PLANNER, "plan", {"step": 1})
    first = store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"step": 2})
    second = store.get(REVIEWER, "plan")
    store.delete(PLANNER, "plan")
    store.put(PLANNER, "plan", {"step": 3})
    third = store.search(REVIEWER)[0]

    assert first is not None and second is not None
    assert before <= first.created_at == first.updated_at == second.created_at
    assert second.created_at < second.updated_at < third.created_at == third.updated_at
    assert third.updated_at <= datetime.now(UTC)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_put_may_ask_for_a_version(store: CoherentStore, face: str) -> None:
    def put(value: dict[str, Any], **options: Any) -> None:
        if face == "sync":
            store.put(PLANNER, "plan", value, **options)
        else:
            asyncio.run(store.aput(PLANNER, "plan", value, **options))

    put({"n": 1}, if_version=0)
    put({"n": 2}, if_version=1)
    for expected in (0, None, 1, 3):
        with pytest.raises(VersionConflict) as caught:
            put({"n": 3}, if_version=expected)
        assert (caught.value.expected, caught.value.actual) == (expected or 0, 2)
        assert (caught.value.namespace, caught.value.key) == (PLANNER, "plan")
    with pytest.raises(VersionConflict):
        store.delete(REVIEWER, "plan", if_version=1)
    store.delete(REVIEWER, "plan", if_version=2)

    assert store.get(PLANNER, "plan") is None


@pytest.mark.parametrize("version", [-1, "1", 1.0, True])
def test_a_version_that_is_none_is_refused(store: CoherentStore, version: Any) -> None:
    with pytest.raises(InvalidInput, match="if_version"):
        store.put(PLANNER, "plan", {}, if_version=version)


def test_changes_of_two_agents_at_different_places_are_merged(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"title": "A", "steps": {}})
    store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"title": "B", "steps": {}})
    store.put(REVIEWER, "plan", {"title": "A", "steps": {"first": "look"}})
    found = store.get(PLANNER, "plan")

    assert found is not None and found.version == 3
    assert found.value == {"title": "B", "steps": {"first": "look"}}


def test_changes_of_one_place_are_refused_and_nothing_is_lost(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"title": "A"})
    store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"title": "B"})
    with pytest.raises(VersionConflict) as caught:
        store.put(REVIEWER, "plan", {"title": "C"})
    after = store.get(REVIEWER, "plan")
    store.put(REVIEWER, "plan", {"title": "C"})

    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert (caught.value.namespace, caught.value.key) == (REVIEWER, "plan")
    assert after is not None and after.value == {"title": "B"}
    assert store.get(PLANNER, "plan").value == {"title": "C"}  # type: ignore[union-attr]


def test_a_merger_settles_one_place() -> None:
    store = CoherentStore(mergers={"total": "add"})
    store.put(PLANNER, "sums", {"total": 0})
    store.get(REVIEWER, "sums")
    store.put(PLANNER, "sums", {"total": 1})
    store.put(REVIEWER, "sums", {"total": 1})

    assert store.get(PLANNER, "sums").value == {"total": 2}  # type: ignore[union-attr]


def test_the_last_writer_wins_if_asked_for() -> None:
    store = CoherentStore(on_conflict="overwrite")
    store.put(PLANNER, "plan", {"title": "A"})
    store.get(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"title": "B"})
    store.put(REVIEWER, "plan", {"title": "C"})

    assert store.get(PLANNER, "plan").value == {"title": "C"}  # type: ignore[union-attr]


def test_an_edit_loses_nothing(store: CoherentStore) -> None:
    def count(number: int) -> None:
        for _ in range(10):
            store.edit(
                (f"agent-{number}", "shared"), "n", lambda value: {"n": value["n"] + 1},
                default={"n": 0},
            )  # fmt: skip

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    found = store.get(PLANNER, "n")

    assert found is not None and (found.value, found.version) == ({"n": 40}, 40)


def test_an_edit_of_nothing_is_not_found(store: CoherentStore) -> None:
    with pytest.raises(NotFound):
        store.edit(PLANNER, "n", lambda value: value)

    made = asyncio.run(store.aedit(PLANNER, "n", lambda value: {"n": 1}, default={}))
    assert (made.value, made.version, made.namespace) == ({"n": 1}, 1, PLANNER)


def test_one_agent_on_many_threads_is_not_in_conflict_with_itself(store: CoherentStore) -> None:
    def put(number: int) -> None:
        store.put(PLANNER, "plan", {"first": number, "second": number})

    store.put(PLANNER, "plan", {"first": 0, "second": 0})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(64)))
    found = store.get(PLANNER, "plan")

    assert found is not None and found.version == 65
    assert found.value["first"] == found.value["second"]
