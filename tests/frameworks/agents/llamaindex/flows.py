"""Workflows that tests run, and a process that runs one and may be killed in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from pydantic import BaseModel
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from ropewalk.adapters.llamaindex import RopewalkRuntime


class Found(Event):
    docs: list[str]


class Read(Event):
    text: str


class Research(Workflow):
    """Three steps, which write what they do into `ctx.store`."""

    dies_in = ""
    runs: list[str]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.runs = []

    async def _ran(self, ctx: Context, name: str) -> None:
        self.runs.append(name)
        print(name, flush=True)
        log = await ctx.store.get("log", default=[])
        await ctx.store.set("log", [*log, name])
        if self.dies_in == name:
            os.kill(os.getpid(), signal.SIGKILL)

    @step
    async def find(self, ctx: Context, ev: StartEvent) -> Found:
        await self._ran(ctx, "find")
        await ctx.store.set("topic", ev.get("topic"))
        return Found(docs=["a", "b"])

    @step
    async def read(self, ctx: Context, ev: Found) -> Read:
        await self._ran(ctx, "read")
        return Read(text=" ".join(ev.docs))

    @step
    async def write(self, ctx: Context, ev: Read) -> StopEvent:
        await self._ran(ctx, "write")
        return StopEvent(result=f"{await ctx.store.get('topic')}: {ev.text}")


class Asking(Workflow):
    """Asks a person, and waits for the answer."""

    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="Really?")

    @step
    async def act(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        await ctx.store.set("answer", ev.response)
        return StopEvent(result=ev.response)


class Plan(BaseModel):
    places: list[str] = []
    days: int = 0


class Typed(Workflow):
    """Has a class for its state."""

    @step
    async def plan(self, ctx: Context[Plan], ev: StartEvent) -> Found:
        async with ctx.store.edit_state() as state:
            state.places.append(ev.get("place"))
            state.days += 1
        return Found(docs=[])

    @step
    async def done(self, ctx: Context[Plan], ev: Found) -> StopEvent:
        return StopEvent(result=(await ctx.store.get_state()).model_dump())


class Part(Event):
    number: int


class Done(Event):
    number: int


class Parallel(Workflow):
    """Ten steps at the same time, and one that collects what they found."""

    dies_at = -1

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Part | None:
        for number in range(10):
            ctx.send_event(Part(number=number))
        return None

    @step(num_workers=10)
    async def work(self, ctx: Context, ev: Part) -> Done:
        print("work", ev.number, flush=True)
        async with ctx.store.edit_state() as state:
            state[f"part{ev.number}"] = ev.number
        return Done(number=ev.number)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        found = ctx.collect_events(ev, [Done] * 10)
        if ev.number == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if found is None:
            return None
        return StopEvent(result=sorted(one.number for one in found))


async def main(folder: str, workflow: Workflow) -> None:
    runtime = RopewalkRuntime(folder)
    with runtime.registering():
        made = type(workflow)()
    try:
        ctx: Any = await runtime.restore(made, "run")
    except LookupError:
        ctx = None
    print("result", await made.run(ctx=ctx, run_id="run", topic="bees"), flush=True)
    await runtime.destroy()


if __name__ == "__main__":
    if sys.argv[2] == "parallel":
        Parallel.dies_at = int(sys.argv[3])
        asyncio.run(main(sys.argv[1], Parallel()))
    else:
        Research.dies_in = sys.argv[2]
        asyncio.run(main(sys.argv[1], Research()))
