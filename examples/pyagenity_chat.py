"""A conversation that outlives its process, in agentflow or in pyagenity.

    pip install '.[agentflow]'                # or '.[pyagenity]'; Python 3.12
    python examples/pyagenity_chat.py chat.ropewalk "a week in Rome"
    python examples/pyagenity_chat.py chat.ropewalk "two days in Oslo"

There is no model behind it, so that it runs anywhere: the one node of the graph answers.
"""

from __future__ import annotations

import sys
from typing import Any

import ropewalk

CONFIG = {"thread_id": "travel", "user_id": "alice"}


def answer(state: Any, config: dict[str, Any]) -> Any:
    """The node: a model would be asked here."""
    wish = state.context[-1]
    state.places = [*state.places, wish.text().split()[-1]]
    counted = "1 place" if len(state.places) == 1 else f"{len(state.places)} places"
    return type(wish).text_message(f"{counted} so far: {', '.join(state.places)}", role="assistant")


def open_chat(path: str) -> tuple[Any, Any]:
    """The compiled graph and its checkpointer, in the framework that is installed."""
    # Here and not above: this file can be looked at where there is no framework.
    try:
        from agentflow.core.graph import StateGraph
        from agentflow.core.state import AgentState
        from agentflow.utils import END

        from ropewalk.adapters.agentflow import RopewalkCheckpointer
    except ImportError:
        from pyagenity.graph import StateGraph
        from pyagenity.state import AgentState
        from pyagenity.utils import END

        from ropewalk.adapters.pyagenity import RopewalkCheckpointer

    from pydantic import Field

    # A name of its own, so that it is read again wherever the class is then.
    @ropewalk.register(name="travel-state")
    class TravelState(AgentState):
        places: list[str] = Field(default_factory=list)

    graph = StateGraph(TravelState())
    graph.add_node("answer", answer)
    graph.set_entry_point("answer")
    graph.add_edge("answer", END)
    checkpointer: Any = RopewalkCheckpointer(path, types=[TravelState])
    return graph.compile(checkpointer=checkpointer), checkpointer


def main(path: str, wish: str) -> None:
    app, checkpointer = open_chat(path)
    message = checkpointer.models.message
    app.invoke({"messages": [message.text_message(wish)]}, dict(CONFIG))
    for one in checkpointer.list_messages(CONFIG):
        print(f"{one.role}: {one.text()}")
    checkpointer.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
