"""Listing checkpoints: order, filters, limits, and threads that have nothing to do with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.langgraph.checkpoints import config_of, id_of, put, put_chain, steps, written


def test_a_thread_is_listed_from_the_newest_to_the_oldest(either: Any) -> None:
    configs = put_chain(either, config_of(), [{"a": number} for number in range(12)])
    put_chain(either, config_of("other"), [{"a": 1}])

    found = list(either.list(config_of()))

    assert [one.config for one in found] == configs[::-1]
    assert [one.parent_config for one in found] == [*configs[-2::-1], None]
    assert [one.checkpoint["channel_values"]["a"] for one in found] == list(range(11, -1, -1))


def test_all_namespaces_are_listed_unless_one_is_named(either: Any) -> None:
    for namespace in ("", "a:1", "a:1|b:2", "c:3"):
        put(either, config_of("t", namespace))

    def found(namespace: str | None) -> set[str]:
        listed = either.list(config_of("t", namespace))
        return {one.config["configurable"]["checkpoint_ns"] for one in listed}

    assert found(None) == {"", "a:1", "a:1|b:2", "c:3"}
    assert found("") == {""} and found("a:1") == {"a:1"} and found("a") == set()


def test_without_a_config_every_thread_is_listed(either: Any) -> None:
    for thread in ("t", "u/v", "7"):
        put_chain(either, config_of(thread), [{"a": 1}, {"a": 2}])

    found = list(either.list(None))
    assert sorted(str(one.config["configurable"]["thread_id"]) for one in found) == [
        "7", "7", "t", "t", "u/v", "u/v",
    ]  # fmt: skip
    assert len(list(either.list(None, limit=4))) == 4
    assert len(list(either.list(None, filter={"step": 1}))) == 3


def test_a_config_with_an_id_lists_that_one(either: Any) -> None:
    first, second, _ = put_chain(either, config_of(), [{"a": 1}, {"a": 2}, {"a": 3}])

    assert [one.config for one in either.list(second)] == [second]
    assert list(either.list(config_of("u", at=id_of(first)))) == []


def test_before_is_strictly_older_and_comes_before_the_limit(either: Any) -> None:
    configs = put_chain(either, config_of(), [{"a": number} for number in range(6)])

    def found(**wanted: Any) -> list[int]:
        return steps(either.list(config_of(), **wanted))

    assert found(before=configs[3]) == [2, 1, 0]
    assert found(before=configs[3], limit=2) == [2, 1]
    assert found(before=configs[0]) == []
    assert found(before=config_of()) == [5, 4, 3, 2, 1, 0]
    assert found(before=config_of(at="ffffffff")) == [5, 4, 3, 2, 1, 0]
    assert found(limit=0) == [] and found(limit=100) == [5, 4, 3, 2, 1, 0]


def test_the_limit_counts_what_the_filter_lets_through(either: Any) -> None:
    config = config_of()
    for step in range(10):
        config = put(either, config, {"a": step}, step=step, odd=bool(step % 2))

    assert steps(either.list(config_of(), filter={"odd": True}, limit=2)) == [9, 7]
    assert steps(either.list(config_of(), filter={"odd": True}, before=config, limit=2)) == [7, 5]


def test_a_filter_compares_values_of_any_kind(either: Any) -> None:
    values = [1, "1", 1.5, True, None, ["x"], {"deep": 1}, "", 0]
    config = config_of()
    for step, value in enumerate(values):
        config = put(either, config, {}, step=step, mark=value)

    def found(value: Any) -> list[int]:
        return steps(either.list(config_of(), filter={"mark": value}))

    assert found("1") == [1] and found(1.5) == [2] and found(["x"]) == [5]
    assert found({"deep": 1}) == [6] and found("") == [7] and found(2) == []
    assert found({}) == [] and found([]) == [] and found("None") == []
    assert set(found(1)) - {3} == {0} and set(found(True)) - {0} == {3}


def test_every_key_of_a_filter_must_hold(either: Any) -> None:
    config = put(either, config_of(), {}, step=1, user="alice", team="x")
    put(either, config, {}, step=2, user="alice", team="y")

    assert steps(either.list(config_of(), filter={"user": "alice", "team": "y"})) == [2]
    assert steps(either.list(config_of(), filter={"user": "alice", "team": "z"})) == []
    assert steps(either.list(config_of(), filter={"user": "alice"})) == [2, 1]
    assert steps(either.list(config_of(), filter={})) == [2, 1]
    assert steps(either.list(config_of(), filter=None)) == [2, 1]
    assert steps(either.list(config_of(), filter={"nowhere": "x"})) == []


KEYS = [
    "') OR 1=1 --", "a.b", "$.x", "$[0]", "a'b", 'a"b', "x') = '1' OR ('1' = '1", "%", "*", "",
    "__class__", "é😀", "NUL\x00", "x" * 3_000, "@>", "{}", "step --",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key[:20]))
def test_a_hostile_key_of_a_filter_is_just_a_key(either: Any, key: str) -> None:
    first = put(either, config_of(), {}, step=0)
    put(either, first, {}, step=1, **{key: "here"})

    assert steps(either.list(config_of(), filter={key: "here"})) == [1]
    assert steps(either.list(config_of(), filter={key: "elsewhere"})) == []
    assert steps(either.list(config_of(), filter={key: "' OR 1=1 --"})) == []
    assert len(list(either.list(config_of()))) == 2


def test_a_listed_checkpoint_has_its_writes(either: Any) -> None:
    first, second = put_chain(either, config_of(), [{"a": 1}, {"a": 2}])
    either.put_writes(first, [("a", "x")], "task")
    either.put_writes(second, [("a", "y"), ("b", "z")], "task")

    found = [[tuple(one) for one in each.pending_writes] for each in either.list(config_of())]

    assert found == [written(either, second), written(either, first)]


def test_a_list_that_is_left_early_harms_nobody(saver: Any) -> None:
    put_chain(saver, config_of(), [{"a": number} for number in range(20)])
    listing = saver.list(config_of())
    next(listing)
    put(saver, config_of("other"), {"a": 1})
    put(saver, saver.get_tuple(config_of()).config, {"a": "newest"}, step=99)
    rest = list(listing)

    assert len(rest) in (18, 19) and steps(rest)[-1] == 0
    assert saver.get_tuple(config_of()).metadata["step"] == 99


def test_a_listed_checkpoint_can_be_read_after_the_thread_is_gone(saver: Any) -> None:
    put_chain(saver, config_of(), [{"a": [number] * 50} for number in range(5)])
    found = list(saver.list(config_of()))
    values = [one.checkpoint["channel_values"]["a"][0] for one in found]
    saver.delete_thread("t")

    assert values == [4, 3, 2, 1, 0]
    assert list(saver.list(config_of())) == []
