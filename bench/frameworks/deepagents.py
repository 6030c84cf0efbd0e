"""Deep Agents: an agent with a tool, one `invoke` for each turn."""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent

from bench.frameworks import Turn, langgraph
from bench.frameworks.langgraph import Model, Script


def deep_agent(ahead: list[Turn], checkpointer: Any) -> Any:
    """A deep agent that calls a tool in each turn."""
    script = Script(ahead)

    def lookup(query: str) -> str:
        """Look something up."""
        return script.lookup(query)

    # With room for the whole conversation, so that none of it is summarised.
    model = Model(script=script, profile={"max_input_tokens": 10_000_000})
    return create_deep_agent(model, [lookup], checkpointer=checkpointer)


class Alone(langgraph.Alone):
    """The threads in memory."""

    def graph(self, ahead: list[Turn]) -> Any:
        return deep_agent(ahead, self.saver)


class Own(langgraph.Own):
    """LangGraph's `SqliteSaver`, which syncs each commit."""

    def graph(self, ahead: list[Turn]) -> Any:
        return deep_agent(ahead, self.saver)


class Ours(langgraph.Ours):
    """`RopewalkSaver` on the embedded store."""

    def graph(self, ahead: list[Turn]) -> Any:
        return deep_agent(ahead, self.saver)
