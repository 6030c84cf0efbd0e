"""The faces for LangGraph, for `tests.races.race`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict

from ropewalk.adapters.langgraph import CoherentStore, RopewalkSaver, RopewalkStore
from tests.frameworks.langgraph.checkpoints import checkpoint_of, config_of, metadata_of, new_id
from tests.races.race import Race
from tests.races.world import TYPES, changing, check_world

PLACE = ("team", "notes")


def _also_messages(race: Race) -> None:
    """Messages beside all else: some whose fields change together, some that are replaced."""
    messages = race.world.value["messages"] = [
        AIMessage("0", id="0", additional_kwargs={"n": "0"}) for _ in range(40)
    ]
    plain = race.world.change

    def change() -> None:
        plain()
        at = race.world.changes
        n = str(at)
        messages[at % 20].__dict__.update(content=n, id=n)
        messages[20 + at % 20] = AIMessage(n, id=n, additional_kwargs={"n": n})

    race.world.change = change  # type: ignore[method-assign]


def _check(values: Any) -> None:
    check_world(values)
    assert len(values["messages"]) == 40
    for one in values["messages"]:
        assert one.content == one.id
    for one in values["messages"][20:]:
        assert one.additional_kwargs == {"n": one.content}


class _Checkpoints:
    """Checkpoints of one thread, one after another."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.saver = RopewalkSaver(race.store, types=TYPES)
        self.config = config_of()

    def arguments(self) -> tuple[Any, ...]:
        made = checkpoint_of({}, version=new_id())
        made["channel_values"] = self.race.world.value
        made["channel_versions"] = dict.fromkeys(self.race.world.value, new_id())
        return self.config, made, metadata_of(), made["channel_versions"]

    def check(self) -> None:
        for config in self.race.saved:
            found = self.saver.get_tuple(config)
            assert found is not None
            _check(found.checkpoint["channel_values"])
            for _, _, value in found.pending_writes or []:
                _check(value)


def saver(race: Race) -> None:
    _also_messages(race)
    made = _Checkpoints(race)

    def save() -> Any:
        config = made.saver.put(*made.arguments())
        made.saver.put_writes(config, [("world", race.world.value)], "task")
        return config

    race.run(save)
    made.check()


def saver_async(race: Race) -> None:
    _also_messages(race)
    made = _Checkpoints(race)

    async def save() -> Any:
        return await made.saver.aput(*made.arguments())

    asyncio.run(race.arun(save))
    made.check()


class _State(TypedDict):
    world: dict[str, Any]
    n: int


def graph(race: Race) -> None:
    """A graph whose nodes hand on an object that a thread goes on changing."""
    _also_messages(race)

    def step(state: _State) -> dict[str, Any]:
        return {"world": race.world.value, "n": state["n"] + 1}

    builder = StateGraph(_State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: END if state["n"] > 5 else "step")
    kept = RopewalkSaver(race.store, types=TYPES)
    made = builder.compile(checkpointer=kept)
    runs = 0
    with changing(race.world):
        while race.goes_on:
            config: Any = {"configurable": {"thread_id": str(runs)}}
            race.save(lambda: made.invoke({"world": race.world.value, "n": 0}, config))  # noqa: B023
            runs += 1
    for run in range(runs):
        for found in kept.list(config_of(str(run))):
            world = found.checkpoint["channel_values"].get("world")
            if world is not None:
                _check(world)


def _save_items(race: Race, made: BaseStore) -> None:
    def save() -> Any:
        made.put(PLACE, "world", race.world.value)
        found = made.get(PLACE, "world")
        assert found is not None
        _check(found.value)
        return True

    race.run(save)


def _save_items_async(race: Race, made: BaseStore) -> None:
    async def save() -> Any:
        await made.aput(PLACE, "world", race.world.value)
        found = await made.aget(PLACE, "world")
        assert found is not None
        _check(found.value)
        return True

    asyncio.run(race.arun(save))


def store(race: Race) -> None:
    _also_messages(race)
    _save_items(race, RopewalkStore(race.store, types=TYPES))


def store_async(race: Race) -> None:
    _also_messages(race)
    _save_items_async(race, RopewalkStore(race.store, types=TYPES))


def coherent_store(race: Race) -> None:
    _also_messages(race)
    with CoherentStore(store=race.store, types=TYPES) as made:
        _save_items(race, made)


def coherent_store_async(race: Race) -> None:
    _also_messages(race)
    with CoherentStore(store=race.store, types=TYPES) as made:
        _save_items_async(race, made)


FACES: dict[str, Callable[[Race], None]] = {
    one.__name__: one
    for one in (
        saver,
        saver_async,
        graph,
        store,
        store_async,
        coherent_store,
        coherent_store_async,
    )
}
