"""LlamaIndex: a workflow that takes a turn in each run, with the messages in `ctx.store`."""

from __future__ import annotations

from typing import Any

from workflows import Context, Workflow, step
from workflows.events import StartEvent, StopEvent

from bench._model import Place
from bench.frameworks import Conversations, Rows, Session, Turn


class Chat(Workflow):
    """Appends the messages of a turn."""

    @step
    async def answer(self, ctx: Context, event: StartEvent) -> StopEvent:
        """Answer."""
        known = await ctx.store.get("messages", default=[])
        await ctx.store.set("messages", [*known, *event.messages])
        return StopEvent(result=len(known))


def _messages(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"role": "user", "text": turn.user},
        {"role": "assistant", "text": turn.call},
        {"role": "tool", "text": turn.result},
        {"role": "assistant", "text": turn.answer},
    ]


class Talk(Session):
    """A context, in which one run follows another."""

    def __init__(self, side: Alone, name: str) -> None:
        self._side, self.name = side, name
        self.context: Any = None

    async def turn(self, turn: Turn) -> None:
        handler = self._side.run(self, _messages(turn))
        await handler
        self.context = handler.ctx
        await self._side.save(self)


class Alone(Conversations):
    """The workflow alone: its context is not saved."""

    async def open(self) -> None:
        self.workflow = Chat(timeout=None)

    def run(self, talk: Talk, messages: list[dict[str, Any]]) -> Any:
        """Run a turn."""
        return self.workflow.run(ctx=talk.context, messages=messages)

    async def session(self, name: str, ahead: list[Turn]) -> Talk:
        return Talk(self, name)

    async def save(self, talk: Talk) -> None:
        """Save a context."""


class Own(Alone):
    """The context is saved whole, as JSON, in SQLite: the framework's store needs its server."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._rows = Rows(place)

    async def save(self, talk: Talk) -> None:
        self._rows.put(talk.name, talk.context.to_dict())

    async def texts(self, name: str) -> list[str]:
        context: Any = Context.from_dict(self.workflow, self._rows.get(name))
        return [one["text"] for one in await context.store.get("messages")]

    async def shut(self) -> None:
        self._rows.close()


class Ours(Alone):
    """`RopewalkRuntime` on the embedded store."""

    async def open(self) -> None:
        from ropewalk.adapters.llamaindex import RopewalkRuntime

        self._runtime = RopewalkRuntime(self.place.folder / "agent.ropewalk")
        self.workflow = Chat(timeout=None, runtime=self._runtime)

    def run(self, talk: Talk, messages: list[dict[str, Any]]) -> Any:
        return self.workflow.run(ctx=talk.context, run_id=talk.name, messages=messages)

    async def texts(self, name: str) -> list[str]:
        context = await self._runtime.restore(self.workflow, name)
        return [one["text"] for one in await context.store.get("messages")]

    async def shut(self) -> None:
        await self._runtime.destroy()
