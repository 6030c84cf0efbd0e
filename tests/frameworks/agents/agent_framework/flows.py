"""A workflow that counts, for the tests, and a program whose fourth step kills it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from agent_framework import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler

from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage

LAST = 6


class Counter(Executor):
    """Counts to six, one number a superstep, and notes each in the state of the workflow."""

    def __init__(self, deadly: int | None = None) -> None:
        super().__init__(id="counter")
        self.deadly, self.done = deadly, list[int]()

    @handler
    async def count(self, number: int, context: WorkflowContext[int, list[int]]) -> None:
        if number == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        print(number, flush=True)
        self.done.append(number)
        context.set_state("log", [*(context.get_state("log") or []), number])
        if number == LAST:
            await context.yield_output(context.get_state("log"))
        else:
            await context.send_message(number + 1)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"done": self.done}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.done = list(state["done"])


def counting(storage: Any, name: str = "counting", deadly: int | None = None) -> Workflow:
    """The workflow."""
    counter = Counter(deadly)
    builder = WorkflowBuilder(name=name, start_executor=counter, checkpoint_storage=storage)
    return builder.add_edge(counter, counter).build()


async def main() -> None:
    """Run it until it is killed."""
    async with RopewalkCheckpointStorage(sys.argv[1]) as storage:
        await counting(storage, deadly=4).run(1)
