"""One agent that does several things at once: what each of them puts is compared with its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.store.base import BaseStore, PutOp
from langgraph.types import RetryPolicy, Send

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.adapters.langgraph.coherent import lineage
from ropewalk.errors import VersionConflict
from tests.frameworks.langgraph.coherent import MANY, PLACE, Open, Work, add_one, number_in


def counted(store: BaseStore, meet: threading.Barrier) -> bool:
    """Count up as a plain store would be used; whether the put was taken."""
    found: Any = store.get(PLACE, "n")
    meet.wait(30)
    try:
        store.put(PLACE, "n", {"n": found.value["n"] + 1})
    except VersionConflict:
        return False
    return True


def sending(node: Any, **options: Any) -> StateGraph[Any, Any, Any, Any]:
    """A graph that runs a node several times at once."""
    builder = StateGraph(Work)
    builder.add_node("count", node, **options)
    builder.add_conditional_edges(START, lambda _: [Send("count", {}) for _ in range(MANY)])
    return builder


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_of_tasks_that_send_starts_none_takes_away_what_another_put(
    open_store: Open, identity: Any
) -> None:
    store, meet = open_store(identity=identity), threading.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})
    given = (
        sending(lambda _: {"done": [counted(get_store(), meet)]}).compile(store=store).invoke({})
    )

    assert 1 <= number_in(store) == sum(given["done"])


def test_asynchronous_tasks_that_send_starts_take_nothing_away(open_store: Open) -> None:
    store, meet = open_store(identity="config"), asyncio.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})

    async def count(_: Any) -> Work:
        found: Any = await get_store().aget(PLACE, "n")
        await meet.wait()
        try:
            await get_store().aput(PLACE, "n", {"n": found.value["n"] + 1})
        except VersionConflict:
            return {"done": [False]}
        return {"done": [True]}

    given = asyncio.run(sending(count).compile(store=store).ainvoke({}))

    assert 1 <= number_in(store) == sum(given["done"])


def test_a_retry_policy_counts_what_was_refused(open_store: Open) -> None:
    store = open_store(identity="config")
    store.put(PLACE, "n", {"n": 0})

    def count(_: Any) -> Work:
        found: Any = get_store().get(PLACE, "n")
        get_store().put(PLACE, "n", {"n": found.value["n"] + 1})
        return {}

    again = RetryPolicy(
        initial_interval=0.001,
        backoff_factor=1.0,
        jitter=False,
        max_attempts=1000,
        retry_on=VersionConflict,
    )
    sending(count, retry_policy=again).compile(store=store).invoke({})

    assert number_in(store) == MANY


def test_changes_of_tasks_at_different_places_are_merged(open_store: Open) -> None:
    store, meet = open_store(identity="config"), threading.Barrier(MANY)
    store.put(PLACE, "n", {})

    def add(_: Any) -> Work:
        found: Any = get_store().get(PLACE, "n")
        own = f"part {meet.wait(30)}"
        get_store().put(PLACE, "n", {**found.value, own: True})
        return {}

    sending(add).compile(store=store).invoke({})
    found: Any = store.get(PLACE, "n")

    assert sorted(found.value) == [f"part {number}" for number in range(MANY)]


def test_tools_of_one_turn_take_nothing_away(open_store: Open) -> None:
    store, meet = open_store(identity="config"), threading.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})

    @tool
    def count(store: Annotated[BaseStore, InjectedStore()]) -> str:
        """Count up."""
        return str(counted(store, meet))

    calls: Any = [{"name": "count", "args": {}, "id": str(one)} for one in range(MANY)]
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([count]))
    builder.add_edge(START, "tools")
    given = builder.compile(store=store).invoke({"messages": [AIMessage("", tool_calls=calls)]})

    taken = [one.content for one in given["messages"][1:]].count("True")
    assert 1 <= number_in(store) == taken


def test_conversations_side_by_side_take_nothing_away(open_store: Open) -> None:
    store = open_store(identity="config")
    store.put(PLACE, "n", {"n": 0})
    read: dict[str, int] = {}

    def look(_: Any, config: RunnableConfig) -> Work:
        read[config["configurable"]["thread_id"]] = number_in(get_store())
        return {}

    def say(_: Any, config: RunnableConfig) -> Work:
        seen = read[config["configurable"]["thread_id"]]
        get_store().put(PLACE, "n", {"n": seen + 1})
        return {}

    builder = StateGraph(Work)
    builder.add_node("look", look)
    builder.add_node("say", say)
    builder.add_edge(START, "look")
    builder.add_edge("look", "say")
    graph = builder.compile(store=store, checkpointer=RopewalkSaver(), interrupt_before=["say"])
    threads: Any = [{"configurable": {"thread_id": one, "agent": "ann"}} for one in ("t1", "t2")]
    for thread in threads:
        graph.invoke({}, thread)
    graph.invoke(None, threads[0])

    with pytest.raises(VersionConflict):
        graph.invoke(None, threads[1])
    assert number_in(store) == 1


def test_what_a_run_read_too_long_ago_is_not_put_over(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "_MOST", 50)
    store = open_store()
    for name in ("n", *map(str, range(30))):
        store.put(PLACE, name, {"n": 0})

    def count(_: Any) -> Work:
        seen = number_in(get_store())
        for name in range(30):
            get_store().get(PLACE, str(name))
        elsewhere = threading.Thread(target=store.put, args=(PLACE, "n", {"n": 100}))
        elsewhere.start()
        elsewhere.join()
        with pytest.raises(VersionConflict):
            get_store().put(PLACE, "n", {"n": seen + 1})
        get_store().put(PLACE, "new", {"n": 1})
        get_store().put(PLACE, "n", {"n": number_in(get_store()) + 1})
        return {}

    builder = StateGraph(Work)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.compile(store=store).invoke({})

    assert number_in(store) == 101


def test_what_a_part_of_a_node_puts_is_compared_with_what_the_node_got(open_store: Open) -> None:
    store = open_store()
    store.put(PLACE, "n", {"n": 0})

    def count(_: Any) -> Work:
        seen = number_in(get_store())
        # The same agent elsewhere: a thread that does not know of the run.
        elsewhere = threading.Thread(target=store.put, args=(PLACE, "n", {"n": 100}))
        elsewhere.start()
        elsewhere.join()
        part = RunnableLambda(lambda n: get_store().put(PLACE, "n", {"n": n + 1}))
        with pytest.raises(VersionConflict):
            part.invoke(seen)
        return {"done": [True]}

    builder = StateGraph(Work)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    given = builder.compile(store=store).invoke({})

    assert given == {"done": [True]}
    assert number_in(store) == 100


@pytest.mark.parametrize("batched", [False, True])
def test_a_put_after_one_that_was_merged_keeps_what_was_merged_in(
    open_store: Open, batched: bool
) -> None:
    store = open_store()

    def put(agent: str, value: dict[str, int]) -> None:
        if batched:
            store.batch([PutOp((agent, "shared"), "n", value)])
        else:
            store.put((agent, "shared"), "n", value)

    put("ann", {"a": 0, "b": 0})
    store.get(("bob", "shared"), "n")
    put("bob", {"a": 0, "b": 1})
    put("ann", {"a": 1, "b": 0})
    put("ann", {"a": 2, "b": 0})
    found: Any = store.get(("ann", "shared"), "n")

    assert found.value == {"a": 2, "b": 1}


def test_after_a_merge_that_was_read_the_next_put_takes_its_place(open_store: Open) -> None:
    store = open_store()
    store.put(("ann", "shared"), "n", {"a": 0, "b": 0})
    store.get(("bob", "shared"), "n")
    store.put(("bob", "shared"), "n", {"a": 0, "b": 1})
    store.put(("ann", "shared"), "n", {"a": 1, "b": 0})
    store.get(("ann", "shared"), "n")
    store.put(("ann", "shared"), "n", {"a": 2, "b": 0})
    found: Any = store.get(("ann", "shared"), "n")

    assert found.value == {"a": 2, "b": 0}


def test_edits_that_wait_leave_the_holder_a_thread(open_store: Open) -> None:
    store = open_store()
    store.put(PLACE, "n", {"n": 0})
    many = 20  # More than there are threads for.

    async def work() -> None:
        async with asyncio.timeout(60), await store.ahold(PLACE, "n"):
            edits = [
                asyncio.create_task(store.aedit((f"agent {one}", "shared"), "n", add_one))
                for one in range(many)
            ]
            await asyncio.sleep(0.2)
            await store.aput(PLACE, "n", {"n": 100})
        await asyncio.gather(*edits)

    asyncio.run(work())

    assert number_in(store) == 100 + many
