"""Pending writes, as checkpointers often get them wrong."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.base import WRITES_IDX_MAP

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.checkpoints import (
    checkpoint_of,
    config_of,
    metadata_of,
    new_id,
    put,
    written,
)

SPECIAL = sorted(WRITES_IDX_MAP)


def test_writes_come_in_the_order_of_path_then_task_then_position(either: Any) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("c", 5)], "task-0", "~__pregel_push, 1")
    either.put_writes(config, [("c", 3)], "task-2", "~__pregel_pull, node")
    either.put_writes(config, [("b", 1), ("a", 2)], "task-1", "~__pregel_pull, node")
    either.put_writes(config, [("z", 0)], "task-9")
    either.put_writes(config, [("c", 4)], "task-8", "~__pregel_push, 0")

    assert [value for _, _, value in written(either, config)] == [0, 1, 2, 3, 4, 5]


def test_only_writes_to_delta_channels_do_not_wait_for_their_checkpoint(
    monkeypatch: pytest.MonkeyPatch, saver: RopewalkSaver
) -> None:
    """LangGraph waits for those before it puts the checkpoint that follows."""
    monkeypatch.setattr("ropewalk.adapters.langgraph.saver.thread._LINGER", 600)
    config = put(saver, config_of(), counters_since_delta_snapshot={"log": (1, 1)})
    saver.put_writes(config, [("log", 1)], "task-1")
    with ThreadPoolExecutor() as pool:
        other = pool.submit(saver.put_writes, config, [("other", 2)], "task-2")
        put(saver, config)
        other.result()

    assert written(saver, config) == [("task-1", "log", 1), ("task-2", "other", 2)]


def test_paths_are_compared_as_text(either: Any) -> None:
    config = put(either, config_of())
    paths = ["~p, 9", "~p, 10", "", "~p, é", "~P, 1", "~p"]
    for number, path in enumerate(paths):
        either.put_writes(config, [("c", path)], f"task-{number}", path)

    assert [value for _, _, value in written(either, config)] == sorted(paths)


def test_positions_of_more_than_ten_writes_are_numbers(either: Any) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("c", number) for number in range(250)], "task")

    assert [value for _, _, value in written(either, config)] == list(range(250))


def test_a_write_that_is_there_stays_as_it_is(either: Any) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("a", "first"), ("b", "first")], "task")
    either.put_writes(config, [("a", "again"), ("x", "again"), ("c", "new")], "task")

    assert written(either, config) == [
        ("task", "a", "first"),
        ("task", "b", "first"),
        ("task", "c", "new"),
    ]


@pytest.mark.parametrize("channel", SPECIAL)
def test_a_special_write_replaces_the_one_before(either: Any, channel: str) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("a", 1)], "task")
    for value in ("first", "second"):
        either.put_writes(config, [(channel, value)], "task")
    either.put_writes(config, [(channel, "of another")], "zask")

    assert written(either, config) == [
        ("task", channel, "second"),
        ("task", "a", 1),
        ("zask", channel, "of another"),
    ]


def test_special_writes_of_one_task_are_told_apart_and_come_before_the_others(
    either: Any,
) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("a", 1), *((channel, channel) for channel in SPECIAL)], "task")

    assert [channel for _, channel, _ in written(either, config)] == [
        *sorted(SPECIAL, key=WRITES_IDX_MAP.__getitem__),
        "a",
    ]


def test_a_special_write_replaces_also_beside_ordinary_ones(either: Any) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("__interrupt__", "old"), ("a", "old")], "task")
    either.put_writes(config, [("__interrupt__", "new"), ("a", "new")], "task")

    assert written(either, config) == [("task", "__interrupt__", "new"), ("task", "a", "old")]


def test_writes_may_come_before_their_checkpoint(either: Any) -> None:
    made = checkpoint_of({"a": 1})
    ahead = config_of(at=made["id"])
    either.put_writes(ahead, [("a", "early")], "task")
    before = either.get_tuple(ahead), list(either.list(config_of())), either.get_tuple(config_of())
    either.put(config_of(), made, metadata_of(), made["channel_versions"])

    assert before == (None, [], None)
    assert written(either, ahead) == [("task", "a", "early")]


def test_writes_that_never_got_a_checkpoint_go_with_their_thread(either: Any) -> None:
    made = checkpoint_of({"a": 1})
    either.put_writes(config_of(at=made["id"]), [("a", "early")], "task")
    either.delete_thread("t")
    either.put(config_of(), made, metadata_of(), made["channel_versions"])

    assert written(either, config_of()) == []


def test_writes_belong_to_one_checkpoint_of_one_namespace_of_one_thread(either: Any) -> None:
    at = new_id()
    places = [("t", ""), ("t", "inner:1"), ("t", "inner:2"), ("u", "")]
    for thread, namespace in places:
        made = checkpoint_of({"a": 1}, at=at)
        config = config_of(thread, namespace)
        either.put(config, made, metadata_of(), made["channel_versions"])
        either.put_writes(config_of(thread, namespace, at), [("a", (thread, namespace))], "task")

    for place in places:
        assert [tuple(value) for _, _, value in written(either, config_of(*place, at))] == [place]


def test_no_writes_are_no_change(either: Any) -> None:
    config = put(either, config_of())
    either.put_writes(config, [], "task")

    assert written(either, config) == []


def test_one_channel_may_be_written_twice_by_one_task(either: Any) -> None:
    config = put(either, config_of())
    either.put_writes(config, [("a", 1), ("a", 1), ("a", 2)], "task")

    assert written(either, config) == [("task", "a", 1), ("task", "a", 1), ("task", "a", 2)]


def test_the_next_checkpoint_begins_without_writes(either: Any) -> None:
    first = put(either, config_of())
    either.put_writes(first, [("a", 1)], "task")
    second = put(either, first)

    assert written(either, second) == [] and len(written(either, first)) == 1


def test_the_path_of_a_task_is_an_argument_by_that_name() -> None:
    for method in (RopewalkSaver.put_writes, RopewalkSaver.aput_writes):
        assert list(inspect.signature(method).parameters) == [
            "self", "config", "writes", "task_id", "task_path",
        ]  # fmt: skip


def test_a_written_value_that_is_changed_later_was_stored_before(either: Any) -> None:
    config = put(either, config_of())
    value = {"list": [1]}
    either.put_writes(config, [("a", value)], "task")
    value["list"].append(2)
    written(either, config)[0][2]["list"].append(3)

    assert written(either, config) == [("task", "a", {"list": [1]})]
