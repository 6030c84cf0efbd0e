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
from ropewalk.codec import Codec
from ropewalk.coherence import CoherenceCore
from ropewalk.errors import ChangedMeanwhile
from ropewalk.history import History
from ropewalk.threads import ThreadCheckpointer
from tests.races.world import TYPES, World, changing, check_world

LANGGRAPH = "tests.frameworks.langgraph.race"
MOST_SAVED = 2000
"""All that is saved is read again: so many values take some seconds."""
SAYS_WHERE = 100.0
"""Seconds after which a run says where its threads are, again and again: it is stuck if they
stay there, and else slow."""


class Race:
    """One run: how long, and what came of it."""

    def __init__(self, seed: int, seconds: float, folder: str) -> None:
        self.world = World(seed)
        self.store = ropewalk.open(str(Path(folder) / "agent.ropewalk"))
        self.refused = 0
        self.saved: list[Any] = []
        self._began = time.monotonic()
        self._until = self._began + seconds

    @property
    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._until and len(self.saved) < MOST_SAVED

    def tell(self, done: str) -> None:
        """Say how long it took up to here, for whoever finds the run slow."""
        took = time.monotonic() - self._began
        sys.stderr.write(f"{done} after {took:.1f} s, {time.process_time():.1f} s of CPU\n")
        sys.stderr.flush()

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
        self.tell(f"saved {len(self.saved)} of {self.world.changes} changes")

    async def arun(self, call: Callable[[], Any]) -> None:
        """The same while the event loop goes on and changes it."""
        while self.goes_on:
            task = asyncio.ensure_future(call())
            while not task.done():
                self.world.change()
                await asyncio.sleep(0)
            self.save(task.result)
        self.tell(f"saved {len(self.saved)} of {self.world.changes} changes")


def history(race: Race) -> None:
    space = History(race.store, "team/agent", codec=Codec(types=TYPES))
    branch = space.open()
    race.run(lambda: branch.commit(race.world.value))
    for commit in race.saved:
        check_world(space.value(commit))


def timeline(race: Race) -> None:
    one = ropewalk.Timeline("agent", store=race.store, codec=Codec(types=TYPES))
    race.run(lambda: one.checkpoint(race.world.value).id)
    for id in race.saved:
        check_world(one.get(id).state)


def timeline_async(race: Race) -> None:
    one = ropewalk.Timeline("agent", store=race.store, codec=Codec(types=TYPES))

    async def save() -> str:
        return (await one.acheckpoint(race.world.value)).id

    asyncio.run(race.arun(save))
    for id in race.saved:
        check_world(one.get(id).state)


def versioned(race: Race) -> None:
    state = ropewalk.Versioned(race.store, types=TYPES)
    state.update(race.world.value)
    race.run(state.commit)
    check_versions(race, state)


def versioned_async(race: Race) -> None:
    state = ropewalk.Versioned(race.store, types=TYPES)
    state.update(race.world.value)
    asyncio.run(race.arun(state.acommit))
    check_versions(race, state)


def check_versions(race: Race, state: ropewalk.Versioned) -> None:
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


class Held(ropewalk.AgentState):
    small: ropewalk.Inline[dict[str, Any]]
    world: ropewalk.Externalized[dict[str, Any]]


def runtime_of(race: Race) -> Any:
    return ropewalk.create_runtime(
        backend=race.store, codec=Codec(types=TYPES), inline_threshold_bytes=1 << 20
    )


def typed(race: Race) -> None:
    runtime = runtime_of(race)

    def save() -> Any:
        value = race.world.value
        return Held(runtime=runtime, small=value["pair"], world=value).to_checkpoint_dict()

    race.run(save)
    check_held(race, runtime)


def typed_async(race: Race) -> None:
    runtime = runtime_of(race)

    async def save() -> Any:
        held, value = Held(runtime=runtime), race.world.value
        await held.aassign(small=value["pair"], world=value)
        return await held.ato_checkpoint_dict()

    asyncio.run(race.arun(save))
    check_held(race, runtime)


def check_held(race: Race, runtime: Any) -> None:
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
    with CoherenceCore(race.store, codec=Codec(types=TYPES)) as core:
        coherence_of(core, race)
        for step in core.history("plan").history(limit=None):
            check_world(step.state)


def coherence_async(race: Race) -> None:
    with CoherenceCore(race.store, codec=Codec(types=TYPES)) as core:

        async def save() -> Any:
            return (await core.awrite("agent", "plan", race.world.value)).version

        asyncio.run(race.arun(save))
        for step in core.history("plan").history(limit=None):
            check_world(step.state)


def coherence_in_memory(race: Race) -> None:
    with CoherenceCore(codec=Codec(types=TYPES)) as core:
        coherence_of(core, race)


FACES: dict[str, Callable[[Race], None]] = {
    one.__name__: one
    for one in (
        history,
        timeline,
        timeline_async,
        versioned,
        versioned_async,
        versioned_in_one_key,
        threads,
        threads_async,
        typed,
        typed_async,
        coherence,
        coherence_async,
        coherence_in_memory,
    )
}


def main(face: str, seed: str, seconds: str) -> None:
    """Run one face, and print what came of it."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(SAYS_WHERE, repeat=True)
    faces = FACES if face in FACES else importlib.import_module(LANGGRAPH).FACES
    sys.setswitchinterval((5e-3, 1e-4, 1e-5)[int(seed) % 3])
    with tempfile.TemporaryDirectory() as folder:
        race = Race(int(seed), float(seconds), folder)
        faces[face](race)
        race.tell("read it again")
        report = race.store.check(read_data=True)
        assert report.ok, report
        race.tell("checked")
        assert race.saved, "nothing was saved"
        sys.stdout.write(f"{len(race.saved)} saved, {race.refused} refused\n")
        race.store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
