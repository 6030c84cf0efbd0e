"""A workflow of Microsoft Agent Framework that is stopped in the middle and goes on.

    pip install '.[agent-framework]'
    python examples/agent_framework_workflow.py book.ropewalk
    python examples/agent_framework_workflow.py book.ropewalk

Each run writes two chapters and then dies as a process dies. The next one goes on after the last
chapter that was written, until the book has five. There is no model behind it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

CHAPTERS, A_RUN = 5, 2


def build(storage: Any, dies: bool) -> Any:
    """The workflow: one executor that writes a chapter in each superstep."""
    # Here and not above: this file can be looked at where there is no Agent Framework.
    from agent_framework import Executor, WorkflowBuilder, handler

    class Writer(Executor):
        written = 0

        @handler(input=int, output=int, workflow_output=list[str])
        async def write(self, chapter, context):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
            if dies and self.written == A_RUN:
                print(f"dies while it writes chapter {chapter}")
                sys.stdout.flush()
                os._exit(0)
            self.written += 1
            chapters = [*(context.get_state("chapters") or []), f"Chapter {chapter}"]
            context.set_state("chapters", chapters)
            print(f"wrote chapter {chapter}")
            if chapter < CHAPTERS:
                await context.send_message(chapter + 1)
            else:
                await context.yield_output(chapters)

    writer = Writer(id="writer")
    builder = WorkflowBuilder(name="book", start_executor=writer, checkpoint_storage=storage)
    return builder.add_edge(writer, writer).build()


async def run(place: str) -> None:
    """Go on with the book, or begin it."""
    from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage

    async with RopewalkCheckpointStorage(place) as storage:
        latest = await storage.get_latest(workflow_name="book")
        workflow = build(storage, dies=True)
        if latest is None:
            result = await workflow.run(1)
        else:
            print(f"goes on after {len(latest.state.get('chapters', []))} chapters")
            result = await workflow.run(checkpoint_id=latest.checkpoint_id)
        ids = await storage.list_checkpoint_ids(workflow_name="book")
        written = result.get_outputs() or ["was finished before"]
        print(f"the book: {written[0]}; {len(ids)} checkpoints")


def main() -> None:
    """Run it once."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} STORE")
    try:
        asyncio.run(run(sys.argv[1]))
    except ImportError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
