"""A process that saves a value through one face while a thread changes it.

`python -m tests.races.race FACE SEED SECONDS`. It ends with 0 if all that was acknowledged
reads back as it should and the store is sound; what a crash leaves is another exit code.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ropewalk
from ropewalk.coherence import CoherenceCore
from ropewalk.errors import ChangedMeanwhile
from ropewalk.threads import ThreadCheckpointer
from tests.races.world import TYPES, World, changing, check_world

LANGGRAPH = "tests.frameworks.langgraph.race"


class Race:
    """One run: how long, and what came of it."""

    def __init__(self, seed: int, seconds: float, folder: str) -> None:
        self.world = World(seed)
        self.store = ropewalk.open(str(Path(folder) / "agent.ropewalk"))
        self.refused = 0
        self.saved: list[Any] = []
        self._until = time.monotonic() + seconds

    @property
    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._until

    def save(self, call: Callable[[], Any]) -> None:
        """Save once; the value may be refused as one that changes."""
        try:
            self.saved.append(call())
        except ChangedMeanwhile:
            self.refused += 1

    def run(self, call: Callable[[], Any]) -> None:
        """Save again and again while another thread changes the value."""
        with changing(self.world):
            while self.goes_on:
                self.save(call)

    async def arun(self, call: Callable[[], Any]) -> None:
        """The same while the event loop goes on and changes it."""
        while self.goes_on:
            task = asyncio.ensure_future(call())
            while not task.done():
                self.world.change()
                await asyncio.sleep(0)
            self.save(task.result)


def timeline(race: Race) -> None:
    one = ropewalk.Timeline("agent", store=race.store, codec=ropewalk.Codec(types=TYPES))
    race.run(lambda: one.checkpoint(race.world.value).id)
    for id in race.saved:
        check_world(one.get(id).state)


def timeline_async(race: Race) -> None:
    one = ropewalk.Timeline("agent", store=race.store, codec=ropewalk.Codec(types=TYPES))

    async def save() -> str:
        return (await one.acheckpoint(race.world.value)).id

    asyncio.run(race.arun(save))
    for id in race.saved:
        check_world(one.get(id).state)


def versioned(race: Race) -> None:
    state = ropewalk.Versioned(race.store, types=TYPES)
    state.update(race.world.value)
    race.run(state.commit)
    for id in race.saved:
        if id is not None:
            check_world(dict(state.checkout(id)))


def versioned_in_one_key(race: Race) -> None:
    state = ropewalk.Versioned(race.store, types=TYPES)
    state["world"] = race.world.value

    def save() -> Any:
        state["beside"] = race.world.value
        return state.commit()

    race.run(save)
    for id in race.saved:
        if id is not None:
            found = state.checkout(id)
            check_world(found["world"])
            check_world(found["beside"])


def threads(race: Race) -> None:
    checkpointer = ThreadCheckpointer(race.store, types=TYPES)
    config = {"thread_id": "t"}
    race.run(lambda: checkpointer.put(config, state=race.world.value))
    for step in checkpointer.timeline(config).history(limit=None):
        check_world(step.state["state"])
    check_world(checkpointer.get_state(config))


def threads_async(race: Race) -> None:
    checkpointer = ThreadCheckpointer(race.store, types=TYPES)
    config = {"thread_id": "t"}
    asyncio.run(race.arun(lambda: checkpointer.aput_state(config, race.world.value)))
    for step in checkpointer.timeline(config).history(limit=None):
        check_world(step.state["state"])


def typed(race: Race) -> None:
    class Held(ropewalk.AgentState):
        small: ropewalk.Inline[dict[str, Any]]
        world: ropewalk.Externalized[dict[str, Any]]

    runtime = ropewalk.create_runtime(
        backend=race.store, codec=ropewalk.Codec(types=TYPES), inline_threshold_bytes=1 << 20
    )

    def save() -> Any:
        value = race.world.value
        held = Held(runtime=runtime, small=value["pair"], world=value)
        return held.to_checkpoint_dict()

    race.run(save)
    for found in race.saved:
        held = Held.from_checkpoint_dict(found, runtime=runtime)
        assert held.small["a"] == held.small["b"]
        check_world(held.world)


def coherence_of(core: Any, race: Race) -> None:
    def save() -> Any:
        written = core.write("agent", "plan", race.world.value)
        check_world(core.read("reader", "plan").value)
        return written.version

    race.run(save)


def coherence(race: Race) -> None:
    with CoherenceCore(race.store, codec=ropewalk.Codec(types=TYPES)) as core:
        coherence_of(core, race)
        for step in core.history("plan").history(limit=None):
            check_world(step.state)


def coherence_in_memory(race: Race) -> None:
    with CoherenceCore(codec=ropewalk.Codec(types=TYPES)) as core:
        coherence_of(core, race)


FACES: dict[str, Callable[[Race], None]] = {
    one.__name__: one
    for one in (
        timeline,
        timeline_async,
        versioned,
        versioned_in_one_key,
        threads,
        threads_async,
        typed,
        coherence,
        coherence_in_memory,
    )
}


def main(face: str, seed: str, seconds: str) -> None:
    """Run one face, and print what came of it."""
    faulthandler.enable()
    faces = FACES if face in FACES else importlib.import_module(LANGGRAPH).FACES
    sys.setswitchinterval((5e-3, 1e-4, 1e-5)[int(seed) % 3])
    with tempfile.TemporaryDirectory() as folder:
        race = Race(int(seed), float(seconds), folder)
        faces[face](race)
        report = race.store.check(read_data=True)
        assert report.ok, report
        assert race.saved, "nothing was saved"
        sys.stdout.write(f"{len(race.saved)} saved, {race.refused} refused\n")
        race.store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
