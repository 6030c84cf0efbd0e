"""LlamaIndex: documents are gathered, cut, ranked and written up, one run of a workflow a step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from workflows import Context, Workflow, step
from workflows.events import StartEvent, StopEvent

from bench._research import LARGE, SMALL, Research
from bench.frameworks.memory import (
    Workload,
    agentref_adapter,
    agentref_files,
    our_state,
    our_store,
)

_ROUND = ("plan", "fetch", "cut", "rank", "write", "check")
_READS = {
    "first": (),
    "plan": ("round",),
    "fetch": ("round",),
    "cut": ("round", "pages", "passages"),
    "rank": ("passages",),
    "write": ("round", "ranked", "passages"),
    "check": ("round", "draft", "notes"),
    "report": ("question", "notes", "draft", "ranked", "passages"),
}
"""What each step reads."""


class Steps(Workflow):
    """Takes one step of the work in each run."""

    def __init__(self, side: Alone, work: Research) -> None:
        super().__init__(timeout=None)
        self._side, self._work = side, work

    @step
    async def take(self, ctx: Context, event: StartEvent) -> StopEvent:
        """Take the step that the event names."""
        store = self._side.store(ctx)
        state = {name: await store.get(name, default=None) for name in _READS[event.node]}
        node = getattr(self._work, event.node)
        result = node(state) if _READS[event.node] else node()
        for name, value in result.items():
            await store.set(name, value)
        return StopEvent(result=result.get("digest"))


class Alone(Workload):
    """The context is dumped after each step, and every dump is kept, as LangGraph's saver does."""

    def prepare(self, size: Mapping[str, int]) -> None:
        self._work = Research(size["rounds"], size["pages"])
        self._workflow = Steps(self, self._work)

    def run(self) -> list[str]:
        return [asyncio.run(self._run())]

    async def _run(self) -> str:
        context: Any = None
        kept: list[Any] = []
        digest = ""
        for node in ("first", *(_ROUND * self._work.rounds), "report"):
            handler: Any = self._workflow.run(ctx=context, node=node)
            digest = await handler
            context = handler.ctx
            kept.append(await self.dumped(context))
        return digest

    def store(self, context: Any) -> Any:
        """The state, as a step uses it."""
        return context.store

    async def dumped(self, context: Any) -> Any:
        """What a checkpoint keeps."""
        return context.to_dict()


class AgentRef(Alone):
    """AgentRef's proxy of the store; the context itself cannot be dumped with its references."""

    def prepare(self, size: Mapping[str, int]) -> None:
        super().prepare(size)
        self._adapter = agentref_adapter("LlamaIndex", LARGE, SMALL, agentref_files(self.place))

    def store(self, context: Any) -> Any:
        return self._adapter.context_store(context.store)

    async def dumped(self, context: Any) -> Any:
        return await self.store(context).to_checkpoint_dict()


class Ours(Alone):
    """Our proxy of the store, on the embedded store."""

    def prepare(self, size: Mapping[str, int]) -> None:
        from ropewalk.adapters.llamaindex import LlamaIndexAdapter

        super().prepare(size)
        self._content = our_store(self.place)
        self._adapter = LlamaIndexAdapter(our_state(LARGE, SMALL), backend=self._content)

    def store(self, context: Any) -> Any:
        return self._adapter.context_store(context.store)

    def close(self) -> None:
        self._content.close()


def digests(size: Mapping[str, int]) -> list[str]:
    """What the work must end with."""
    return [Research(size["rounds"], size["pages"]).digest()]
