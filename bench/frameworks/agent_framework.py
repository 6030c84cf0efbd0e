"""Microsoft Agent Framework: a workflow that takes a turn in each superstep, and checkpoints it."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import (
    Executor,
    FileCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    handler,
)

from bench.frameworks import Conversations, Session, Turn

_MOST = 1_000_000


class Talker(Executor):
    """Takes a turn, and sends itself the number of the next one."""

    def __init__(self) -> None:
        super().__init__(id="talker")
        self.asked: asyncio.Queue[Turn | None] = asyncio.Queue()
        self.ready = asyncio.Event()

    @handler
    async def talk(self, number: int, context: WorkflowContext[int, int]) -> None:
        self.ready.set()
        turn = await self.asked.get()
        if turn is None:
            await context.yield_output(number)
            return
        messages = [
            {"role": "user", "text": turn.user},
            {"role": "assistant", "call": turn.call, "call_id": f"call-{number}"},
            {"role": "tool", "text": turn.result, "call_id": f"call-{number}"},
            {"role": "assistant", "text": turn.answer},
        ]
        context.set_state("messages", [*(context.get_state("messages") or []), *messages])
        await context.send_message(number + 1)


class Talk(Session):
    """A workflow that runs as long as the conversation."""

    def __init__(self, name: str, storage: Any) -> None:
        self._talker = Talker()
        builder = WorkflowBuilder(
            name=name,
            start_executor=self._talker,
            checkpoint_storage=storage,
            max_iterations=_MOST,
        )
        self._workflow: Workflow = builder.add_edge(self._talker, self._talker).build()
        self._task: asyncio.Task[Any] | None = None

    async def turn(self, turn: Turn) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            await self._talker.ready.wait()
        self._talker.ready.clear()
        self._talker.asked.put_nowait(turn)
        await self._talker.ready.wait()  # The next superstep begins once this one was stored.

    async def end(self) -> None:
        assert self._task is not None
        self._talker.asked.put_nowait(None)
        await self._task

    async def _run(self) -> Any:
        return await self._workflow.run(0)


class Nowhere:
    """A storage that keeps nothing: what checkpoints cost the framework itself."""

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Drop a checkpoint."""
        return str(checkpoint.checkpoint_id)


class Alone(Conversations):
    """The workflow makes its checkpoints, which are not kept."""

    storage: Any = Nowhere()

    async def session(self, name: str, ahead: list[Turn]) -> Talk:
        return Talk(name, self.storage)


class Own(Alone):
    """The framework's `FileCheckpointStorage`."""

    async def open(self) -> None:
        self.storage = FileCheckpointStorage(self.place.folder)

    async def texts(self, name: str) -> list[str]:
        checkpoint = await self.storage.get_latest(workflow_name=name)
        return [one.get("text") or one["call"] for one in checkpoint.state["messages"]]


class Ours(Own):
    """`RopewalkCheckpointStorage` on the embedded store."""

    async def open(self) -> None:
        from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage

        self.storage = RopewalkCheckpointStorage(self.place.folder / "agent.ropewalk")

    async def shut(self) -> None:
        self.storage.close()
