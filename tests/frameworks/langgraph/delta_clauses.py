"""What must hold of the history of a delta channel, clause by clause.

LangGraph's suite has some of these clauses since August 2026, but no release of it does. Each
takes a checkpointer and asks its asynchronous methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot as Snapshot
from langgraph.types import Command

from tests.frameworks.langgraph.checkpoints import checkpoint_of, config_of, metadata_of, new_id
from tests.frameworks.langgraph.graphs import extend, twofold, twofold_graph

Clause: TypeAlias = Callable[[Any], Awaitable[None]]
Step: TypeAlias = tuple[Mapping[str, Any], list[tuple[str, Any]]]
"""The values that a checkpoint stores, and the writes that stand at it."""


async def build(saver: Any, *steps: Step, parent: Any = None, version: int = 1) -> list[Any]:
    """A chain of checkpoints; their configs, the oldest first."""
    config = parent or config_of(f"delta-{new_id()}")
    configs = []
    for number, (values, writes) in enumerate(steps, version - 1):
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


async def what_comes_after_a_child_did_not_lead_to_it(saver: Any) -> None:
    root, child = await build(saver, ({"log": Snapshot("start")}, wrote("first")), ({}, []))
    await saver.aput_writes(root, wrote("late"), f"task-{new_id()}")
    (other,) = await build(saver, ({}, []), parent=root)

    assert await history(saver, child) == ("start", ["first"])
    assert "late" in (await history(saver, other))[1]


OURS: tuple[Clause, ...] = (
    a_fork_sees_nothing_of_the_other_branch,
    tasks_of_one_step_come_in_the_order_of_their_paths,
    without_an_id_the_newest_checkpoint_is_meant,
    an_unknown_thread_has_empty_history,
    an_empty_snapshot_is_a_seed_too,
    a_namespace_has_its_own_history,
    what_comes_after_a_child_did_not_lead_to_it,
)
"""What follows from the interface, and no suite asks."""


# What a channel is made again of.


async def rebuilt(saver: Any, config: Any, channel: str = "log") -> list[Any]:
    """The value of a channel at a checkpoint, as a graph makes it again."""
    found = await saver.aget_tuple(config)
    spec: Any = DeltaChannel(extend, list)
    spec.key = channel
    stored = found.checkpoint["channel_values"]
    if channel in stored:
        return list(spec.from_checkpoint(stored[channel]).get())
    past = (await saver.aget_delta_channel_history(config=config, channels=[channel]))[channel]
    made = spec.from_checkpoint(past["seed"]) if "seed" in past else spec.from_checkpoint([])
    made.replay_writes(past["writes"])
    return list(made.get())


async def grown(
    saver: Any, number: int, every: int, parent: Any = None, before: tuple[Any, ...] = ()
) -> list[tuple[Any, list[Any]]]:
    """A chain of checkpoints whose log grows, with a snapshot now and then, and what it is."""
    config, log = parent or config_of(f"delta-{new_id()}"), list(before)
    found = []
    for step in range(number):
        values = {"log": Snapshot(list(log))} if step % every == 0 else {}
        (config,) = await build(saver, (values, []), parent=config, version=len(log) + 1)
        found.append((config, list(log)))
        log.append(f"{len(log)}-{new_id()[:8]}")
        await saver.aput_writes(config, wrote(log[-1:]), f"task-{new_id()}")
    return found


async def all_are_rebuilt(saver: Any, *chains: list[tuple[Any, list[Any]]]) -> None:
    """Make every checkpoint of some chains again."""
    for chain in chains:
        for config, log in chain:
            assert await rebuilt(saver, config) == log


async def every_checkpoint_is_made_again(saver: Any) -> None:
    await all_are_rebuilt(saver, await grown(saver, 9, 4), await grown(saver, 5, 100))


async def tasks_beside_each_other_are_applied_in_order(saver: Any) -> None:
    root, head = await build(saver, ({"log": Snapshot(["start"])}, []), ({}, []))
    for path, value in (("~2", "second"), ("~1", "first"), ("~3", "third")):
        await saver.aput_writes(head, wrote([value]), f"task-{new_id()}", path)
    (after,) = await build(saver, ({}, []), parent=head)

    assert await rebuilt(saver, after) == ["start", "first", "second", "third"]
    assert await rebuilt(saver, root) == ["start"]


async def both_sides_of_a_fork_are_made_again(saver: Any) -> None:
    left = await grown(saver, 5, 3)
    config, log = left[2]
    # As a graph does it: what comes first on the other side is a snapshot.
    right = await grown(saver, 5, 3, config, (*log, "right"))
    left += await grown(saver, 3, 2, left[-1][0], (*left[-1][1], "left"))

    await all_are_rebuilt(saver, left, right)


async def a_copy_is_made_again(saver: Any) -> None:
    chain = await grown(saver, 6, 4)
    target = f"copy-{new_id()}"
    await saver.acopy_thread(chain[0][0]["configurable"]["thread_id"], target)
    copied = [
        ({"configurable": {**config["configurable"], "thread_id": target}}, log)
        for config, log in chain
    ]

    await all_are_rebuilt(saver, chain, copied)


RECONSTRUCTION: tuple[Clause, ...] = (
    every_checkpoint_is_made_again,
    tasks_beside_each_other_are_applied_in_order,
    both_sides_of_a_fork_are_made_again,
    a_copy_is_made_again,
)
"""What is made again of histories: the value that the channel had."""


# Forks of a graph that has a delta channel beside a plain one, both with the same values.


async def _states(graph: Any, config: Any) -> dict[str, Any]:
    """The logs of every checkpoint, which are two of the same."""
    found = {}
    async for one in graph.aget_state_history(config):
        assert one.values.get("log", []) == one.values.get("plain", []), one.metadata
        found[one.config["configurable"]["checkpoint_id"]] = one.values.get("plain", [])
    return found


async def _forked(saver: Any, fork: Callable[[Any, Any], Awaitable[Any]]) -> None:
    """Fork a thread from each checkpoint of a run; what was there stays what it is."""
    graph = twofold_graph(saver)
    config = config_of(f"fork-{new_id()}")
    for turn in range(2):
        await graph.ainvoke(twofold(f"turn {turn}"), config)
    before = await _states(graph, config)
    for old in [one.config async for one in graph.aget_state_history(config)][:5]:
        await fork(graph, old)
        after = await _states(graph, config)

        assert {id: after[id] for id in before} == before
        before = after


async def a_fork_by_an_input(saver: Any) -> None:
    async def fork(graph: Any, old: Any) -> None:
        given = await graph.ainvoke(twofold("other"), old)
        assert given["log"] == given["plain"]

    await _forked(saver, fork)


async def a_fork_that_plays_again(saver: Any) -> None:
    async def fork(graph: Any, old: Any) -> None:
        await graph.ainvoke(None, old)

    await _forked(saver, fork)


async def a_fork_by_an_update_whose_both_sides_go_on(saver: Any) -> None:
    async def fork(graph: Any, old: Any) -> None:
        left = (await graph.aget_state(config_of(old["configurable"]["thread_id"]))).config
        right = await graph.aupdate_state(old, twofold("by hand"), as_node="first")
        await graph.ainvoke(None, right)
        await graph.ainvoke(twofold("left"), left)
        await graph.ainvoke(twofold("right"), right)

    await _forked(saver, fork)


async def a_fork_by_a_copy(saver: Any) -> None:
    async def fork(graph: Any, old: Any) -> None:
        copy = await graph.aupdate_state(old, None, as_node="__copy__")
        copied, original = await graph.aget_state(copy), await graph.aget_state(old)
        assert (copied.values, copied.next) == (original.values, original.next)

    await _forked(saver, fork)


async def a_resume_at_an_older_checkpoint(saver: Any) -> None:
    graph = twofold_graph(saver)
    config = config_of(f"fork-{new_id()}")
    base = await graph.aupdate_state(config, twofold("start"), as_node="__start__")
    await graph.ainvoke(None, config, durability="exit")
    before = await _states(graph, config)
    await graph.ainvoke(Command(resume="again"), base, durability="sync")
    after = await _states(graph, config)

    assert {id: after[id] for id in before} == before


FORKS: tuple[Clause, ...] = (
    a_fork_by_an_input,
    a_fork_that_plays_again,
    a_fork_by_an_update_whose_both_sides_go_on,
    a_fork_by_a_copy,
    a_resume_at_an_older_checkpoint,
)
"""Forks, with a real graph: each state is that of a plain channel, and what was there stays."""
