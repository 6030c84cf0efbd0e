"""Looking on at a `CoherentStore`: the history of an item, and new versions as they come."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ropewalk.adapters.langgraph import CoherentStore, ItemChange
from ropewalk.errors import NotFound
from tests.frameworks.langgraph.coherent import PLANNER, REVIEWER


@pytest.fixture
def store(coherent_store: CoherentStore) -> CoherentStore:
    return coherent_store


def test_an_item_has_a_history(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"step": 1})
    store.put(REVIEWER, "plan", {"step": 2})
    store.put(PLANNER, "other", {"step": 9})

    steps = store.history(REVIEWER, "plan").history()
    awaited = asyncio.run(store.ahistory(PLANNER, "plan")).history()

    assert [(one.version, one.agent, one.state) for one in steps] == [
        (2, "reviewer", {"step": 2}),
        (1, "planner", {"step": 1}),
    ]
    assert [one.id for one in awaited] == [one.id for one in steps]


def test_an_item_is_known_by_one_name_elsewhere(store: CoherentStore) -> None:
    store.put(("planner", "a/b"), "plan", {"step": 1})

    name = store.artifact_name(("anybody", "a/b"), "plan")
    assert name == "a%2Fb/plan"
    assert store.core.read("tester", name).value == {"step": 1}


def test_an_item_that_never_was_has_no_history(store: CoherentStore) -> None:
    with pytest.raises(NotFound):
        store.history(PLANNER, "plan")


def test_whoever_watches_is_told_of_the_items_below_a_prefix(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"step": 1})
    store.put(("planner", "shared/x"), "plan", {"step": 1})
    store.put(("planner", "private"), "plan", {"step": 1})
    store.put(("planner", "shared", "deep"), "a/b", {"step": 1})
    store.delete(REVIEWER, "plan")

    mine = list(store.watch(("tester", "shared"), after=0, timeout=0))
    everything = list(store.watch(after=0, timeout=0))

    assert mine == [
        ItemChange(("tester", "shared"), "plan", 1, "planner", 1, False),
        ItemChange(("tester", "shared", "deep"), "a/b", 1, "planner", 4, False),
        ItemChange(("tester", "shared"), "plan", 2, "reviewer", 5, True),
    ]
    assert [one.namespace[0] for one in everything] == ["planner"] * 4 + ["reviewer"]


def test_a_watch_begins_when_it_is_called(store: CoherentStore) -> None:
    store.put(PLANNER, "plan", {"step": 1})
    changes = store.watch(REVIEWER)
    store.put(PLANNER, "plan", {"step": 2})

    assert next(changes).version == 2


def test_a_task_may_watch(store: CoherentStore) -> None:
    async def work() -> list[int]:
        store.put(PLANNER, "plan", {"step": 1})
        changes = store.awatch(REVIEWER, after=0)
        seen = [(await anext(changes)).version]
        await store.aput(PLANNER, "plan", {"step": 2})
        return [*seen, (await anext(changes)).version]

    assert asyncio.run(work()) == [1, 2]


def test_what_another_client_puts_is_told(tmp_path: Path) -> None:
    place = tmp_path / "shared.ropewalk"
    with CoherentStore(store=place) as here, CoherentStore(store=place) as there:
        changes = here.watch(REVIEWER)
        writer = threading.Thread(target=there.put, args=(PLANNER, "plan", {"step": 1}))
        writer.start()

        assert next(changes)[:4] == (REVIEWER, "plan", 1, "planner")
        writer.join()


def test_with_the_agent_from_the_config_namespaces_are_what_they_are() -> None:
    with CoherentStore(identity="config") as store:
        store.put(("alice", "memories"), "city", {"name": "Rome"})
        store.put(("bob", "memories"), "city", {"name": "Oslo"})

        seen = [one.namespace for one in store.watch(("alice",), after=0, timeout=0)]
        assert seen == [("alice", "memories")]


def test_a_wrong_prefix_is_refused_at_once(store: CoherentStore) -> None:
    with pytest.raises(ValueError, match="label"):
        store.watch((1,))  # type: ignore[arg-type]
