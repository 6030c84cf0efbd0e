"""What is read of a long log: as much as was asked for, however long it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk import SqliteStore
from ropewalk.history import History
from ropewalk.store import log
from ropewalk.tree import Commit

SPACE = "team/agent"


def versions_of(store: SqliteStore, count: int) -> list[Commit]:
    """Versions of a value of several nodes, in which something else changes each time."""
    branch = History(store, SPACE).open()
    rows = [{"n": n, "text": f"row {n} " * 30} for n in range(120)]
    made = []
    for number in range(count):
        rows[number * 7 % len(rows)] = {"n": -number, "text": f"changed {number} " * 20}
        made.append(branch.commit({"rows": rows}))
    return made


def calls_of(work: Callable[[], Any]) -> int:
    """How many calls some work takes."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_check_of_four_times_as_many_versions_takes_about_four_times_as_long(
    tmp_path: Path,
) -> None:
    calls = []
    for count in (60, 240):
        path = tmp_path / str(count)
        with SqliteStore(path) as store:
            versions_of(store, count)
        with SqliteStore(path) as store:
            calls.append(calls_of(lambda: store.check(read_data=True)))

    assert calls[1] < 5 * calls[0]


@pytest.mark.parametrize("what", ["a place that is forgotten", "a collection"])
def test_an_old_version_is_found_through_its_commit(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_PLACES", 1 << 14 if what == "a collection" else 32)
    calls = []
    for count in (60, 240):
        with SqliteStore(tmp_path / str(count)) as store:
            made = versions_of(store, count)
            history = History(store, SPACE)
            for commit in made:
                assert history.resolve(commit.id) == commit
            if what == "a collection":
                store.gc(recent=0, grace=0)
            first = made[1 : count // 6]
            calls.append(calls_of(lambda: [history.value(one) for one in first]) / len(first))  # noqa: B023

    assert calls[1] < 2 * calls[0]
