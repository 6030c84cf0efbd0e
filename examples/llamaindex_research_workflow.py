"""Research in a workflow of LlamaIndex, which goes on where it was after its process was killed.

    pip install '.[llamaindex]'
    python examples/llamaindex_research_workflow.py

The workflow runs in a process of its own, which kills itself in the middle. A second process
takes the run up after the last step that finished. The documents are large, so that `ctx.store`
holds a reference to them. There is no model behind it, so that it runs anywhere.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from ropewalk import AgentState, Externalized, Inline, Timeline
from ropewalk import open as open_store
from ropewalk.errors import NotFound

RUN = "how-bees-find-home"
PASSAGES = 200
"""Documents that the search finds, of about 5 KB."""


class ResearchState(AgentState):
    """What the workflow knows. Documents are large, so that its context keeps a reference."""

    current_step: Inline[str]
    docs: Externalized[list[dict[str, Any]]]
    best: Inline[list[int]]


def research(runtime: Any, adapter: Any, *, dies: bool) -> Any:
    """The workflow, in a runtime that stores where it is."""
    # Here and not above: this file can be looked at where there is no LlamaIndex.
    from workflows import Context, Workflow, step
    from workflows.context import JsonSerializer
    from workflows.events import Event, StartEvent, StopEvent

    class Found(Event):
        count: int

    class Ranked(Event):
        pass

    class Research(Workflow):
        @step
        async def retrieve(self, ctx: Context, ev: StartEvent) -> Found:
            """Find documents: a search engine would be asked here."""
            print("retrieve", flush=True)
            store = adapter.context_store(ctx.store)
            await store.set("current_step", "retrieve")
            await store.set("docs", [_passage(ev.topic, number) for number in range(PASSAGES)])
            return Found(count=PASSAGES)

        @step
        async def rank(self, ctx: Context, ev: Found) -> Ranked:
            """Choose the best of them."""
            print("rank", flush=True)
            store = adapter.context_store(ctx.store)
            docs = await store.get("docs")
            order = sorted(docs, key=lambda doc: doc["score"], reverse=True)
            await store.set("current_step", "rank")
            await store.set("best", [doc["id"] for doc in order[:3]])
            return Ranked()

        @step
        async def answer(self, ctx: Context, ev: Ranked) -> StopEvent:
            """Answer from the best documents: a model would be asked here."""
            if dies:
                print("killed", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            print("answer", flush=True)
            store = adapter.context_store(ctx.store)
            docs, best = await store.get("docs"), await store.get("best")
            quotes = [docs[number]["text"][:10] for number in best]
            return StopEvent(result=f"{len(docs)} documents, best: {'; '.join(quotes)}")

    # The serializer knows the events of the workflow, and no other class.
    return Research(runtime=runtime, serializer=JsonSerializer(allowed_types=()))


async def run(folder: str, *, dies: bool) -> None:
    """Start the run, or go on with it."""
    from ropewalk.adapters.llamaindex import LlamaIndexAdapter, RopewalkRuntime

    runtime = RopewalkRuntime(folder)
    adapter = LlamaIndexAdapter(ResearchState, backend=runtime.store)
    workflow = research(runtime, adapter, dies=dies)
    try:
        ctx = await runtime.restore(workflow, RUN)
    except NotFound:
        ctx = None
    print(await workflow.run(ctx=ctx, run_id=RUN, topic="bees"))
    await runtime.destroy()


def main() -> None:
    """Run the workflow in two processes, the first of which does not end well."""
    try:
        import workflows  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("this example runs a workflow: pip install 'ropewalk[llamaindex]'")

    with tempfile.TemporaryDirectory() as folder:
        for process in ("dies", "goes-on"):
            program = [sys.executable, __file__, folder, process]
            subprocess.run(program, check=process == "goes-on")
        with open_store(folder) as store:
            for one in reversed(Timeline(RUN, store).history()):
                print(f"{one.id[:8]}  {one.description}")


def _passage(topic: str, number: int) -> dict[str, Any]:
    text = " ".join(f"{topic} {number}.{line}: what is known of it" for line in range(120))
    return {"id": number, "score": (number * 7919) % 1009, "text": text}


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(run(sys.argv[1], dies=sys.argv[2] == "dies"))
    else:
        main()
