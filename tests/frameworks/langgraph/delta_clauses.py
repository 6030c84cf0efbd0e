"""What must hold of the history of a delta channel, clause by clause.

LangGraph's suite has these clauses since August 2026, but no release of it does. Each takes a
checkpointer and asks its asynchronous methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.types import _DeltaSnapshot as Snapshot

from tests.frameworks.langgraph.checkpoints import checkpoint_of, config_of, metadata_of, new_id

Clause: TypeAlias = Callable[[Any], Awaitable[None]]
Step: TypeAlias = tuple[Mapping[str, Any], list[tuple[str, Any]]]
"""The values that a checkpoint stores, and the writes that stand at it."""


async def build(saver: Any, *steps: Step, parent: Any = None) -> list[Any]:
    """A chain of checkpoints; their configs, the oldest first."""
    config = parent or config_of(f"delta-{new_id()}")
    configs = []
    for number, (values, writes) in enumerate(steps):
        made = checkpoint_of(values, version=number + 1)
        config = await saver.aput(config, made, metadata_of(number), dict(made["channel_versions"]))
        if writes:
            await saver.aput_writes(config, writes, f"task-{new_id()}")
        configs.append(config)
    return configs


async def history(saver: Any, config: Any, channel: str = "log") -> tuple[Any, list[Any]]:
    """The seed of a channel, "nothing" if it has none, and the values written after it."""
    found = (await saver.aget_delta_channel_history(config=config, channels=[channel]))[channel]
    seed = found.get("seed", "nothing")
    return (
        seed.value if isinstance(seed, Snapshot) else seed,
        [value for _, _, value in found["writes"]],
    )


def wrote(*values: Any, channel: str = "log") -> list[tuple[str, Any]]:
    """Writes to one channel."""
    return [(channel, value) for value in values]


async def writes_come_oldest_first(saver: Any) -> None:
    configs = await build(
        saver,
        ({"log": Snapshot("start")}, []),
        *(({}, wrote(number)) for number in range(1, 5)),
    )

    assert await history(saver, configs[-1]) == ("start", [1, 2, 3])


async def the_nearest_snapshot_is_the_seed(saver: Any) -> None:
    configs = await build(
        saver,
        ({"log": Snapshot("old")}, []),
        ({}, wrote("before")),
        ({"log": Snapshot("new")}, []),
        ({}, wrote("after")),
        ({}, []),
    )

    assert await history(saver, configs[-1]) == ("new", ["after"])


async def what_waits_at_the_checkpoint_itself_is_left_out(saver: Any) -> None:
    configs = await build(
        saver, ({"log": Snapshot("start")}, []), ({}, wrote("past")), ({}, wrote("waiting"))
    )

    assert await history(saver, configs[-1]) == ("start", ["past"])


async def each_channel_ends_at_its_own_snapshot(saver: Any) -> None:
    values = [{}, {"left": Snapshot("l")}, {}, {"right": Snapshot("r")}, {}]
    configs = await build(
        saver,
        *((one, [("left", step), ("right", -step)]) for step, one in enumerate(values)),
    )
    found = await saver.aget_delta_channel_history(config=configs[-1], channels=["left", "right"])

    assert list(found) == ["left", "right"]
    assert [write[2] for write in found["left"]["writes"]] == [1, 2, 3]
    assert [write[2] for write in found["right"]["writes"]] == [-3]
    assert found["left"]["seed"].value == "l" and found["right"]["seed"].value == "r"


async def no_channels_have_no_history(saver: Any) -> None:
    configs = await build(saver, ({"log": Snapshot("start")}, []), ({}, wrote("past")))

    assert await saver.aget_delta_channel_history(config=configs[-1], channels=[]) == {}


async def without_a_snapshot_there_is_no_seed(saver: Any) -> None:
    configs = await build(saver, *(({}, wrote(number)) for number in range(4)))

    assert await history(saver, configs[-1]) == ("nothing", [0, 1, 2])


async def a_plain_value_of_an_older_graph_is_a_seed(saver: Any) -> None:
    configs = await build(
        saver, ({}, wrote("older")), ({"log": [1, 2]}, []), ({}, wrote("newer")), ({}, [])
    )

    assert await history(saver, configs[-1]) == ([1, 2], ["newer"])


async def what_was_written_at_the_seed_is_replayed(saver: Any) -> None:
    configs = await build(
        saver,
        ({"log": ["a"]}, wrote("b")),
        ({"log": ["a", "b"]}, wrote("c")),
        ({}, wrote("d")),
        ({}, wrote("e")),
    )

    assert await history(saver, configs[-1]) == (["a", "b"], ["c", "d"])


UPSTREAM: tuple[Clause, ...] = (
    writes_come_oldest_first,
    the_nearest_snapshot_is_the_seed,
    what_waits_at_the_checkpoint_itself_is_left_out,
    each_channel_ends_at_its_own_snapshot,
    no_channels_have_no_history,
    without_a_snapshot_there_is_no_seed,
    a_plain_value_of_an_older_graph_is_a_seed,
    what_was_written_at_the_seed_is_replayed,
)
"""The clauses that LangGraph's suite has too."""


async def a_fork_sees_nothing_of_the_other_branch(saver: Any) -> None:
    root, left, _ = await build(
        saver, ({"log": Snapshot("start")}, []), ({}, wrote("left")), ({}, [])
    )
    right = await build(saver, ({}, wrote("right")), ({}, []), parent=root)

    assert await history(saver, right[-1]) == ("start", ["right"])
    assert await history(saver, left) == ("start", [])


async def tasks_of_one_step_come_in_the_order_of_their_paths(saver: Any) -> None:
    root, middle = await build(saver, ({"log": Snapshot("start")}, []), ({}, []))
    for path, task, value in (("~b", "1", "third"), ("~a", "9", "second"), ("~a", "3", "first")):
        await saver.aput_writes(middle, wrote(value), task, path)
    (head,) = await build(saver, ({}, []), parent=middle)

    assert await history(saver, head) == ("start", ["first", "second", "third"])
    assert await history(saver, middle) == ("start", [])
    assert await history(saver, root) == ("nothing", [])


async def without_an_id_the_newest_checkpoint_is_meant(saver: Any) -> None:
    configs = await build(saver, ({"log": Snapshot("start")}, []), ({}, wrote("past")), ({}, []))
    thread = config_of(configs[-1]["configurable"]["thread_id"])

    assert await history(saver, thread) == ("start", ["past"])


async def an_unknown_thread_has_empty_history(saver: Any) -> None:
    found = await saver.aget_delta_channel_history(
        config=config_of(f"none-{new_id()}"), channels=["log", "other"]
    )

    assert found == {"log": {"writes": []}, "other": {"writes": []}}


async def an_empty_snapshot_is_a_seed_too(saver: Any) -> None:
    configs = await build(
        saver, ({}, wrote("old")), ({"log": Snapshot(None)}, []), ({}, wrote("new")), ({}, [])
    )

    assert await history(saver, configs[-1]) == (None, ["new"])


async def a_namespace_has_its_own_history(saver: Any) -> None:
    thread = f"delta-{new_id()}"
    inner = config_of(thread, "inner:1")
    outer = await build(saver, ({}, wrote("outer")), ({}, []), parent=config_of(thread))
    nested = await build(saver, ({}, wrote("inner")), ({}, []), parent=inner)

    assert await history(saver, outer[-1]) == ("nothing", ["outer"])
    assert await history(saver, nested[-1]) == ("nothing", ["inner"])


OURS: tuple[Clause, ...] = (
    a_fork_sees_nothing_of_the_other_branch,
    tasks_of_one_step_come_in_the_order_of_their_paths,
    without_an_id_the_newest_checkpoint_is_meant,
    an_unknown_thread_has_empty_history,
    an_empty_snapshot_is_a_seed_too,
    a_namespace_has_its_own_history,
)
"""What follows from the interface, and no suite asks."""
