"""The page about state management, example by example; only import lines differ.

`agent` is this library itself: its `task` is the decorator. Placeholders are filled in.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

import ropewalk as agent
from ropewalk import ActionEvent, KVStore, Live, Versioned, current_state, events, view
from ropewalk.compat import Cache, Disk
from ropewalk.errors import NotFound, NotStorable


def test_no_state() -> None:
    @agent.task
    def analyze_data(data: list[float]) -> dict:  # type: ignore[type-arg]
        """Analyze data without memory."""
        current_state()["seen"] = [*current_state().get("seen", []), *data]
        return dict(current_state())

    # Each call is independent. No state object is needed.
    result1 = analyze_data([1, 2, 3])
    result2 = analyze_data([4, 5, 6])  # No memory of the previous call

    assert result1 == {"seen": [1, 2, 3]}
    assert result2 == {"seen": [4, 5, 6]}


def test_a_task_as_the_page_writes_it() -> None:
    @agent.task
    def analyze_data(data: list[float]) -> dict:  # type: ignore[type-arg, empty-body]
        """Analyze data without memory."""
        pass  # noqa: PIE790 - as on the page

    assert analyze_data([1, 2, 3]) is None


def test_without_a_state_a_task_may_hold_any_object() -> None:
    @agent.task
    def count_rows(connection: sqlite3.Connection) -> int:
        state = current_state()
        state["cursor"] = connection.execute("select 1 union select 2")
        return len(state["cursor"].fetchall())

    with sqlite3.connect(":memory:") as connection:
        assert count_rows(connection) == 2
        assert count_rows(connection, state=Live()) == 2
    connection.close()


def test_in_memory_state() -> None:
    @agent.task
    def build_analysis(data: list[float]) -> dict:  # type: ignore[type-arg]
        """Build cumulative analysis with memory."""
        current_state()["seen"] = [*current_state().get("seen", []), *data]
        return dict(current_state())

    # State persists across calls within the same process.
    shared_state = Live()
    result1 = build_analysis([1, 2, 3], state=shared_state)
    result2 = build_analysis([4, 5, 6], state=shared_state)  # Remembers result1

    assert result1 == {"seen": [1, 2, 3]}
    assert result2 == {"seen": [1, 2, 3, 4, 5, 6]}


def test_persistent_state() -> None:
    @agent.task
    def build_analysis(data: list[float]) -> dict:  # type: ignore[type-arg]
        """Build cumulative analysis with memory."""
        current_state().setdefault("seen", []).extend(data)
        return dict(current_state())

    # State persists across calls and can survive process restarts.
    shared_state = Versioned()
    result1 = build_analysis([1, 2, 3], state=shared_state)
    result2 = build_analysis([4, 5, 6], state=shared_state)  # Remembers result1

    assert result1 == {"seen": [1, 2, 3]}
    assert result2 == {"seen": [1, 2, 3, 4, 5, 6]}
    assert len(shared_state.history()) == 2


def test_unpicklable_objects_in_versioned_state() -> None:
    with sqlite3.connect(":memory:") as db:
        state = Versioned()
        with pytest.raises(NotStorable) as refused:
            state["cursor"] = db.execute("select 1")
        state["rows"] = db.execute("select 1").fetchall()

        assert 'state["cursor"]' in str(refused.value)
        assert dict(state) == {"rows": [(1,)]}
    db.close()


@agent.task
def remember(word: str) -> None:
    current_state().setdefault("words", []).append(word)


def test_inspecting_historical_state(capsys: pytest.CaptureFixture[str]) -> None:
    state = Versioned()
    remember("first", state=state)
    remember("second", state=state)

    # 1. Find an event of interest after a run
    all_events = events(state)
    action_event = next(e for e in all_events if isinstance(e, ActionEvent))

    # 2. Get the commit hash from that event
    commit_to_inspect = action_event.commit_hash
    assert commit_to_inspect is not None  # for the type checker

    # 3. Checkout the state to a new variable
    historical_state = state.checkout(commit_to_inspect)

    # `historical_state` is a read-only view of the past.
    print(f"--- Inspecting state at {commit_to_inspect[:7]} ---")  # noqa: T201
    print(view(historical_state, focus="full"))  # noqa: T201

    printed = capsys.readouterr().out
    assert f"--- Inspecting state at {commit_to_inspect[:7]} ---" in printed
    assert 'words: ["first"]' in printed
    assert state["words"] == ["first", "second"]
    with pytest.raises(TypeError):
        historical_state["words"] = []  # type: ignore[index]


def test_disk_storage(tmp_path: Path) -> None:
    # Path to storage directory
    state = Versioned(Disk(tmp_path / "storage"))
    remember("kept", state=state)
    state.store.close()

    # Optional size limit (default: 1GB)
    state = Versioned(Disk(tmp_path / "storage", size_limit=500 * 1024 * 1024))

    assert state["words"] == ["kept"]
    state.store.close()


def test_cached_disk_storage(tmp_path: Path) -> None:
    disk_store = Disk(tmp_path / "storage")
    state = Versioned(Cache(disk_store, max_bytes=64 * 1024 * 1024))
    remember("kept", state=state)

    assert Versioned(disk_store)["words"] == ["kept"]
    state.store.close()
    disk_store.close()


class RedisStore(KVStore):
    """As on the page, with a dict in the place of a server."""

    servers: dict[str, dict[str, bytes]] = {}  # noqa: RUF012 - servers outlive their clients

    def __init__(self, redis_url: str) -> None:
        self._data = self.servers.setdefault(redis_url, {})
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        return self._data.get(key)

    def set(self, key: str, value: bytes) -> None:
        self._data[key] = value

    # ... implement remaining abstract methods

    def keys(self, prefix: str) -> Iterable[str]:
        return [key for key in list(self._data) if key.startswith(prefix)]

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        with self._lock:
            if self._data.get(key) != expected:
                return False
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value
            return True


def test_custom_storage_backends() -> None:
    # Use with your agent
    state = Versioned(RedisStore("redis://localhost:6379"))
    remember("kept", state=state)

    assert Versioned(RedisStore("redis://localhost:6379"))["words"] == ["kept"]


def test_the_quick_reference() -> None:
    @agent.task
    def my_task(data: str) -> str:
        return data

    assert my_task("data") == my_task("data", state=Live()) == my_task("data", state=Versioned())


def test_outside_of_a_task_there_is_no_state() -> None:
    with pytest.raises(NotFound):
        current_state()
