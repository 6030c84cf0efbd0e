"""Putting and getting checkpoints, as checkpointers often get them wrong."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import InvalidInput
from tests.frameworks.langgraph.checkpoints import (
    TIME,
    checkpoint_of,
    config_of,
    id_of,
    metadata_of,
    new_id,
    put,
    put_chain,
    written,
)


def test_everything_about_a_checkpoint_comes_back(either: Any) -> None:
    made = checkpoint_of({"a": 1, "b": ["x"]}, version="00000000000000000000000000000001.5")
    kept = copy.deepcopy(made)
    config = either.put(config_of(), made, metadata_of(3, run_id="r"), made["channel_versions"])
    found = either.get_tuple(config)

    assert dict(found.checkpoint) == kept and found.checkpoint["ts"] == TIME
    assert dict(found.metadata) == metadata_of(3, run_id="r")
    assert found.config == config == config_of(at=made["id"])
    assert found.parent_config is None and list(found.pending_writes) == []


def test_an_id_that_is_put_again_is_replaced(either: Any) -> None:
    root = put(either, config_of(), {"a": "root"})
    made = checkpoint_of({"a": "old", "gone": 1}, version="v1")
    either.put(root, made, metadata_of(1), made["channel_versions"])
    either.put_writes(config_of(at=made["id"]), [("a", "kept")], "task")
    again = checkpoint_of({"a": "new"}, at=made["id"], version="v2")
    config = either.put(root, again, metadata_of(2, more=True), again["channel_versions"])
    found = either.get_tuple(config)

    assert dict(found.checkpoint["channel_values"]) == {"a": "new"}
    assert dict(found.metadata) == metadata_of(2, more=True)
    assert found.parent_config == root
    assert written(either, config) == [("task", "a", "kept")]
    assert [id_of(one.config) for one in either.list(config_of())] == [made["id"], id_of(root)]


def test_an_older_id_that_is_put_again_does_not_become_the_newest(either: Any) -> None:
    first, second = put_chain(either, config_of(), [{"a": 1}, {"a": 2}])
    again = checkpoint_of({"a": "again"}, at=id_of(first), version="v9")
    either.put(config_of(), again, metadata_of(), again["channel_versions"])

    assert either.get_tuple(config_of()).config == second
    assert dict(either.get_tuple(first).checkpoint["channel_values"]) == {"a": "again"}


def test_the_greatest_id_is_the_newest_whatever_came_last(either: Any) -> None:
    for at in ("b", "c", "a"):
        made = checkpoint_of({"at": at}, at=at, version=at)
        either.put(config_of(), made, metadata_of(), made["channel_versions"])

    assert either.get_tuple(config_of()).checkpoint["id"] == "c"
    assert [one.checkpoint["id"] for one in either.list(config_of())] == ["c", "b", "a"]


def test_a_channel_with_a_version_may_have_no_value(either: Any) -> None:
    made = checkpoint_of({"a": 1})
    versions = {"a": "v1", "empty": "v1"}
    made["channel_versions"] = dict(versions)
    config = either.put(config_of(), made, metadata_of(), versions)
    found = either.get_tuple(config).checkpoint

    assert dict(found["channel_values"]) == {"a": 1}
    assert dict(found["channel_versions"]) == versions


def test_a_channel_that_did_not_change_is_still_there(either: Any) -> None:
    root = put(either, config_of(), {"a": [1], "b": [2]})
    before = either.get_tuple(root).checkpoint
    made = checkpoint_of({"a": [1], "b": [3]})
    made["channel_versions"] = {"a": before["channel_versions"]["a"], "b": "zz"}
    config = either.put(root, made, metadata_of(1), {"b": "zz"})

    assert dict(either.get_tuple(config).checkpoint["channel_values"]) == {"a": [1], "b": [3]}


def test_two_forks_with_equal_versions_keep_their_own_values(either: Any) -> None:
    root = put(either, config_of(), {"a": 0})
    configs = []
    for value in ("left", "right"):
        made = checkpoint_of({"a": value}, version=f"{2:032}.{value}")
        configs.append(either.put(root, made, metadata_of(1), made["channel_versions"]))

    found = [either.get_tuple(one).checkpoint["channel_values"]["a"] for one in configs]

    assert found == ["left", "right"]


def test_what_is_changed_after_put_was_stored_before(either: Any) -> None:
    made = checkpoint_of({"a": {"list": [1]}})
    metadata = metadata_of(0, tags={"x": 1})
    config = either.put(config_of(), made, metadata, made["channel_versions"])
    made["channel_values"]["a"]["list"].append(2)
    made["versions_seen"]["node"]["start"] = 7
    metadata["step"] = 9
    found = either.get_tuple(config)

    assert found.checkpoint["channel_values"]["a"] == {"list": [1]}
    assert found.checkpoint["versions_seen"]["node"] == {"start": 1}
    assert found.metadata["step"] == 0


def test_what_a_reader_changes_others_do_not_see(either: Any) -> None:
    config = put(either, config_of(), {"a": {"list": [1]}, "b": [{"deep": [0]}]})
    for found in (either.get_tuple(config), next(iter(either.list(config_of())))):
        found.checkpoint["channel_values"]["a"]["list"].append(2)
        found.checkpoint["channel_values"]["b"][0]["deep"].append(2)
        found.checkpoint["channel_values"]["c"] = 1
        found.checkpoint["channel_versions"]["a"] = "other"
        found.metadata["step"] = 77
    again = either.get_tuple(config)

    assert dict(again.checkpoint["channel_values"]) == {"a": {"list": [1]}, "b": [{"deep": [0]}]}
    assert again.checkpoint["channel_versions"]["a"] != "other" and again.metadata["step"] == 0


def test_a_value_changed_in_place_between_two_puts_is_stored_twice(either: Any) -> None:
    value: dict[str, Any] = {"list": [1], "text": "x"}
    first = put(either, config_of(), {"a": value})
    value["list"].append(2)
    second = put(either, first, {"a": value})

    found = [either.get_tuple(one).checkpoint["channel_values"]["a"] for one in (first, second)]
    assert found == [{"list": [1], "text": "x"}, {"list": [1, 2], "text": "x"}]


@pytest.mark.parametrize("thread_id", [7, 0, -1, 2**70])
def test_a_number_may_name_a_thread(either: Any, thread_id: int) -> None:
    config = put(either, config_of(thread_id), {"a": 1})
    either.put_writes(config, [("a", 2)], "task")
    found = either.get_tuple(config_of(thread_id))

    assert found.checkpoint["channel_values"]["a"] == 1 and len(found.pending_writes) == 1
    assert str(found.config["configurable"]["thread_id"]) == str(thread_id)
    assert len(list(either.list(config_of(thread_id)))) == 1
    either.delete_thread(thread_id)
    assert either.get_tuple(config_of(thread_id)) is None


def test_without_a_namespace_the_root_is_meant(either: Any) -> None:
    made = checkpoint_of({"a": 1})
    bare = config_of(namespace=None)
    config = either.put(bare, made, metadata_of(), made["channel_versions"])
    either.put_writes(config_of(namespace=None, at=made["id"]), [("a", 2)], "task")

    assert config == config_of(at=made["id"])
    assert either.get_tuple(bare).config == config
    assert written(either, config_of(namespace=None, at=made["id"])) == [("task", "a", 2)]


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**63), 2**80, 1.5, float("inf"), "", "NUL in the \x00 middle", "é😀",
        {"deep": {"er": [1, {"x": None}]}}, [], ["a", 1], {"": 1}, {"dotted.key": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_metadata_may_hold_any_plain_value(either: Any, value: Any) -> None:
    config = put(either, config_of(), {"a": 1}, odd=value)
    found = either.get_tuple(config).metadata["odd"]

    expected = value.replace("\x00", "") if isinstance(value, str) else value
    assert found == expected and type(found) is type(expected)


def test_what_the_config_says_of_a_run_is_in_the_metadata(either: Any) -> None:
    config = config_of()
    config["configurable"] |= {"user": "alice", "step": 99, "__secret": 1, "object": object()}
    config["metadata"] = {"run_id": "r1", "score": 0.5, "langgraph_node": "n", "listed": [1]}
    found = either.get_tuple(put(either, config, {"a": 1}, step=4)).metadata

    assert dict(found) == {**metadata_of(4), "user": "alice", "run_id": "r1", "score": 0.5}


HOSTILE = [
    "a/b/../c", "..", ".", "x" * 5_000, "with space\nand line", "é😀", "%2F", "a|b:c", "'; DROP --",
    "{}", "*", "refs/heads/main", "C:\\x", " ",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:20]))
def test_any_text_may_be_the_id_of_anything(either: Any, name: str) -> None:
    made = checkpoint_of({name: name}, at=name, version=name)
    config = either.put(config_of(name, name), made, metadata_of(), made["channel_versions"])
    either.put_writes(config, [(name, name)], name, name)
    put(either, config_of(name + "x", name), {"a": "other"})
    found = either.get_tuple(config_of(name, name))

    assert found.config == config == config_of(name, name, name)
    assert dict(found.checkpoint["channel_values"]) == {name: name}
    assert written(either, config) == [(name, name, name)]
    assert len(list(either.list(config_of(name)))) == 0
    assert len(list(either.list(config_of(name, None)))) == 1
    either.delete_thread(name)
    assert either.get_tuple(config) is None
    assert either.get_tuple(config_of(name + "x", name)) is not None


def test_a_namespace_with_a_nul_is_refused(either: Any) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        put(either, config_of("t", "a\x00b"), {"a": 1})

    assert list(either.list(None)) == []


def test_two_hundred_namespaces_inside_each_other(either: Any) -> None:
    namespace = "|".join(f"node:{number}" for number in range(200))
    config = put(either, config_of("t", namespace), {"a": 1})

    assert either.get_tuple(config_of("t", namespace)).config == config
    assert either.get_tuple(config_of("t")) is None


def test_versions_grow_and_never_meet(saver: RopewalkSaver) -> None:
    first = [saver.get_next_version(None, None) for _ in range(100)]
    second = [saver.get_next_version(one, None) for one in first]

    assert len({*first, *second}) == 200
    assert all(after > max(first) for after in second)


def test_who_goes_on_twice_from_a_version_meets_nobody(saver: RopewalkSaver) -> None:
    first = saver.get_next_version(None, None)
    several = [saver.get_next_version(first, None) for _ in range(100)]
    further = [saver.get_next_version(one, None) for one in several]

    assert len({*several, *further}) == 200


def test_a_child_goes_on_with_other_versions_than_its_parent(saver: RopewalkSaver) -> None:
    first = saver.get_next_version(None, None)
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(here, saver.get_next_version(first, None).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(there, 100).decode() != saver.get_next_version(first, None)


ODD_VERSIONS = [
    "00000000000000000000000000000007.0123456789",
    "00000000000000000000000000000007.4294967296",
    "00000000000000000000004294967296.0000000001",
    "00000000000000000000000000000007.1234567890 ",
    "0000000000000000000000000000000٧.1234567890",
    "00000000000000000000000000000007.12345",
    b"12345678",
    7,
    7.0,
    "",
]


@pytest.mark.parametrize("version", ODD_VERSIONS, ids=repr)
def test_versions_of_every_form_come_back(either: Any, version: Any) -> None:
    made = checkpoint_of({"a": 1}, version=version)
    made["channel_versions"]["b"] = "00000000000000000000000000000008.4294967295"
    made["versions_seen"] = {"node": {"a": version}, "other": {}}
    kept = copy.deepcopy(made)
    config = either.put(config_of(), made, metadata_of(), made["channel_versions"])
    found = either.get_tuple(config).checkpoint

    assert repr(found["channel_versions"]) == repr(kept["channel_versions"])
    assert repr(found["versions_seen"]) == repr(kept["versions_seen"])


ODD_IDS = [
    "1ef4f797-8335-6428-8001-8a1503f9b875",
    "1EF4F797-8335-6428-8001-8A1503F9B875",
    "1ef4f79783356428-8001-8a15-03f9b875-",
    "1ef4f797-8335-6428-8001-8a1503f9b875\n",
    "first",
]


@pytest.mark.parametrize("id", ODD_IDS)
def test_ids_of_every_form_come_back(either: Any, id: str) -> None:
    made = checkpoint_of({"a": 1}, at=id)
    config = either.put(config_of(), made, metadata_of(), made["channel_versions"])
    either.put_writes(config, [("a", 2)], id)
    child = put(either, config, {"a": 2})

    assert either.get_tuple(config).checkpoint["id"] == id
    assert either.get_tuple(child).parent_config == config
    assert written(either, config) == [(id, "a", 2)]


def test_what_is_not_there_is_none(either: Any) -> None:
    put(either, config_of())

    assert either.get_tuple(config_of("other")) is None
    assert either.get_tuple(config_of("t", "other")) is None
    assert either.get_tuple(config_of(at=new_id())) is None


def test_metadata_has_the_shape_of_json(either: Any) -> None:
    config = put(either, config_of(), {"a": 1}, counters={"log": (1, 2)}, pair=(1, (2,)))
    found = either.get_tuple(config).metadata

    assert found["counters"] == {"log": [1, 2]} and found["pair"] == [1, [2]]
