"""Failures of a peer's store for LangGraph, each as a test that it fails and we pass.

They were found by experiment in agent-coherence 0.15; the comments say what it did. The others
of the nine are in `tests/coherence/test_nine_failures.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.errors import VersionConflict


@pytest.fixture(params=("lazy", "eager", "lease", "access_count", "broadcast"))
def store(request: pytest.FixtureRequest) -> Iterator[CoherentStore]:
    """With each of the strategies in turn."""
    with CoherentStore(strategy=request.param) as made:
        yield made


def value(store: CoherentStore, namespace: tuple[str, ...], key: str) -> Any:
    found = store.get(namespace, key)
    return None if found is None else found.value


# 1. An agent that waits for its model, while others work, reads an old plan for ever.


def test_an_agent_that_was_silent_reads_what_others_put_meanwhile(store: CoherentStore) -> None:
    # There, 118 puts of others were fine, and after 119 the silent agent read {"v": 1} for ever.
    store.put(("A", "shared"), "plan", {"v": 1})
    for number in range(120):
        store.put(("B", "other"), "k", {"i": number})
    store.put(("B", "shared"), "plan", {"v": 2})

    assert value(store, ("A", "shared"), "plan") == {"v": 2}
    assert value(store, ("C", "shared"), "plan") == {"v": 2}


def test_what_is_deleted_and_created_again_is_read_anew(store: CoherentStore) -> None:
    # There, the silent agent went on reading the deleted content.
    store.put(("A", "shared"), "plan", {"v": 1})
    for number in range(120):
        store.put(("B", "other"), "k", {"i": number})
    store.delete(("B", "shared"), "plan")
    gone = value(store, ("A", "shared"), "plan")
    store.put(("B", "shared"), "plan", {"v": 2})

    assert gone is None
    assert value(store, ("A", "shared"), "plan") == {"v": 2}


# 3. An observer that fails tears a put in two.


def test_a_callback_that_raises_breaks_no_put() -> None:
    # There, the caller saw the exception, and other agents stayed at the old value.
    def fails(*_: object) -> None:
        raise RuntimeError("the observer is broken")

    with CoherentStore(state_log=fails, content_audit_log=fails, on_metric=fails) as store:
        store.put(("A", "shared"), "plan", {"v": 1})
        store.get(("B", "shared"), "plan")
        store.put(("A", "shared"), "plan", {"v": 2})

        assert value(store, ("B", "shared"), "plan") == {"v": 2}


# 4. Puts of several agents overwrite each other.


def test_increments_of_four_agents_are_all_there(store: CoherentStore) -> None:
    # There, 1,251 of 2,000 survived.
    store.put(("main", "shared"), "count", {"n": 0})

    def count(agent: str) -> None:
        left = 50
        while left:
            seen = value(store, (agent, "shared"), "count")
            try:
                store.put((agent, "shared"), "count", {"n": seen["n"] + 1})
            except VersionConflict:
                continue
            left -= 1

    threads = [threading.Thread(target=count, args=(f"A{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert value(store, ("main", "shared"), "count") == {"n": 200}


# 8. Users read each other's memories, and keys that differ are one.


def test_users_are_kept_apart_where_the_agent_comes_from_the_config() -> None:
    # There, Bob read Alice's record and overwrote it, because the user was taken for an agent.
    with CoherentStore(identity="config") as store:
        store.put(("alice", "memories"), "address", {"street": "Alice's"})
        seen = value(store, ("bob", "memories"), "address")
        store.put(("bob", "memories"), "address", {"street": "Bob's"})

        assert seen is None
        assert value(store, ("alice", "memories"), "address") == {"street": "Alice's"}
        assert [item.value for item in store.search(("bob",))] == [{"street": "Bob's"}]


def test_scopes_and_keys_with_separators_are_their_own(store: CoherentStore) -> None:
    # There, these were one artifact, and the second put wiped the first.
    places = [
        (("A", "x:y"), "z"), (("A", "x"), "y:z"), (("A", "x", "y"), "z"),
        (("A", "x/y"), "z"), (("A", "x%2Fy"), "z"), (("A", "x"), "y/z"),
    ]  # fmt: skip
    for number, (namespace, key) in enumerate(places):
        store.put(namespace, key, {"n": number})

    found = [value(store, namespace, key) for namespace, key in places]
    assert found == [{"n": number} for number in range(len(places))]
