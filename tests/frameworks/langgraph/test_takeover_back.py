"""Giving threads back to LangGraph's own savers."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from ropewalk.adapters.langgraph import RopewalkSaver, export_checkpoints, import_checkpoints
from ropewalk.errors import InvalidInput, NotFound
from tests.frameworks.langgraph.graphs import delta_graph, history
from tests.frameworks.langgraph.official import (
    ANSWERED,
    DECLARED,
    asking_graph,
    chat_graph,
    config,
    odd_values,
    postgres_saver,
    say,
    shown,
    sqlite_saver,
)
from tests.frameworks.langgraph.test_takeover import Source, fill, in_order


def as_theirs(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What LangGraph's serializer leaves of it: its tuples come back as lists."""
    serializer = JsonPlusSerializer()

    def kept(value: Any) -> Any:
        return serializer.loads_typed(serializer.dumps_typed(value))

    return [
        (*one[:3], kept(one[3]), one[4], [(*write[:2], kept(write[2])) for write in one[5]])
        for one in found
    ]


@pytest.fixture
def ours() -> Iterator[RopewalkSaver]:
    """A saver of ours that graphs ran with."""
    with RopewalkSaver(types=DECLARED) as saver:
        fill(saver)
        yield saver


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A database of each kind that is empty."""
    if request.param == "sqlite":
        path = tmp_path / "target.db"
        return Source(str(path), lambda: sqlite_saver(path))
    url = request.getfixturevalue("postgres_url")
    return Source(url, lambda: postgres_saver(url))


@pytest.mark.parametrize("thread", ["chat", "ask"])
def test_every_checkpoint_is_what_it_was(target: Source, ours: RopewalkSaver, thread: str) -> None:
    done = export_checkpoints(ours, target.place)

    with target.open() as saver:
        assert in_order(shown(saver, thread)) == in_order(as_theirs(shown(ours, thread)))
    assert done.is_whole and done.checkpoints == sum(1 for _ in ours.list(None))


def test_graphs_go_on_with_their_own_saver(target: Source, ours: RopewalkSaver) -> None:
    export_checkpoints(ours, target.place)
    with target.open() as saver:
        asked = asking_graph(saver).invoke(Command(resume="yes"), config("ask"))
        chat = chat_graph(saver)
        before = chat.get_state(config("chat")).values["messages"]
        say(chat, "chat", 1, first=9)

        assert asked == ANSWERED
        assert len(chat.get_state(config("chat")).values["messages"]) == len(before) + 3


def test_delta_channels_are_what_they_were(target: Source, ours: RopewalkSaver) -> None:
    graph = delta_graph(ours)
    for turn in range(5):
        graph.invoke({"log": [f"turn {turn}"]}, config("delta"))
    export_checkpoints(ours, target.place, threads=["delta"])
    with target.open() as saver:
        assert history(delta_graph(saver), config("delta")) == history(graph, config("delta"))


def test_what_was_pruned_of_a_delta_channel_cannot_be_given_back(
    target: Source, ours: RopewalkSaver
) -> None:
    graph = delta_graph(ours)
    graph.invoke({"log": ["one"]}, config("delta"))
    ours.prune(["delta"])
    done = export_checkpoints(ours, target.place, threads=["delta"])

    assert done.left_counts == {"pruned": 1} and done.checkpoints == 0


def test_there_and_back_is_the_same(target: Source, ours: RopewalkSaver) -> None:
    export_checkpoints(ours, target.place)
    with RopewalkSaver(types=DECLARED) as again:
        done = import_checkpoints(target.place, again, verify=True)

        assert done.is_whole
        for thread in ("chat", "ask"):
            assert in_order(shown(again, thread)) == in_order(as_theirs(shown(ours, thread)))


def test_rows_of_a_file_come_back_as_they_were(tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    with sqlite_saver(first) as saver:
        fill(saver)
    with RopewalkSaver() as between:  # It knows no class of theirs.
        import_checkpoints(first, between)
        export_checkpoints(between, second)

    columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel"
    assert rows(second, f"SELECT {columns} FROM writes") == rows(
        first, f"SELECT {columns} FROM writes"
    )
    with sqlite_saver(first) as one, sqlite_saver(second) as other:
        for thread in ("chat", "ask"):
            assert shown(other, thread) == shown(one, thread)
            assert shown(one, thread)


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute(statement))


def test_objects_of_classes_that_only_their_program_knows_are_given_back(tmp_path: Path) -> None:
    with RopewalkSaver(tmp_path / "ours", types=DECLARED) as saver:
        say(chat_graph(saver), "chat", 1)
    with RopewalkSaver(tmp_path / "ours") as stranger:
        done = export_checkpoints(stranger, tmp_path / "target.db")
    with sqlite_saver(tmp_path / "target.db") as official:
        found = official.get_tuple(config("chat"))
    assert found is not None

    # Only an enum has to be known: we keep the name of a member, and LangGraph its value.
    assert set(done.left_counts) <= {"not_storable"}
    if done.is_whole:
        assert found.checkpoint["channel_values"]["odd"]["point"] == odd_values(1)["point"]


def test_a_second_run_adds_what_came_since(target: Source, ours: RopewalkSaver) -> None:
    first = export_checkpoints(ours, target.place)
    again = export_checkpoints(ours, target.place)
    say(chat_graph(ours), "chat", 1, first=9)
    third = export_checkpoints(ours, target.place)

    assert (again.checkpoints, again.writes, again.present) == (0, 0, first.checkpoints)
    assert third.checkpoints == 4
    with target.open() as saver:
        assert in_order(shown(saver, "chat")) == in_order(as_theirs(shown(ours, "chat")))


def test_chosen_threads_go_alone(target: Source, ours: RopewalkSaver) -> None:
    export_checkpoints(ours, target.place, threads=["ask"])

    with target.open() as saver:
        assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"ask"}


def test_a_thread_that_is_not_there_is_named(tmp_path: Path, ours: RopewalkSaver) -> None:
    with pytest.raises(NotFound, match="absent"):
        export_checkpoints(ours, tmp_path / "target.db", threads=["absent"])

    assert not (tmp_path / "target.db").exists()


def test_a_schema_is_made_and_used(postgres_url: str, ours: RopewalkSaver) -> None:
    export_checkpoints(ours, postgres_url, schema="agents")
    with RopewalkSaver(types=DECLARED) as again:
        done = import_checkpoints(postgres_url, again, schema="agents")

    assert done.checkpoints == sum(1 for _ in ours.list(None))


def test_a_schema_of_a_file_is_refused(tmp_path: Path, ours: RopewalkSaver) -> None:
    with pytest.raises(InvalidInput, match="Postgres"):
        export_checkpoints(ours, tmp_path / "target.db", schema="agents")


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, ours: RopewalkSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)

    with pytest.raises(ImportError, match="langgraph-checkpoint-sqlite"):
        export_checkpoints(ours, tmp_path / "target.db")
