"""LangGraph: a model, a tool and the model again, one `invoke` for each turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from bench._model import Place
from bench.frameworks import Conversations, Session, Turn


class Script:
    """What the model says to the last message."""

    def __init__(self, ahead: list[Turn]) -> None:
        self._by_user = {turn.user: turn for turn in ahead}
        self._by_result = {turn.result: turn for turn in ahead}
        self._results = {turn.call: turn.result for turn in ahead}

    def reply(self, last: BaseMessage) -> AIMessage:
        """A call of the tool for the user's message, an answer for the tool's."""
        if isinstance(last, ToolMessage):
            return AIMessage(self._by_result[str(last.content)].answer)
        query = self._by_user[str(last.content)].call
        call = {"name": "lookup", "args": {"query": query}, "id": f"call-{abs(hash(query))}"}
        return AIMessage("", tool_calls=[call])

    def lookup(self, query: str) -> str:
        """Look something up."""
        return self._results[query]


class Model(BaseChatModel):
    """A model that follows a script."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.script.reply(messages[-1]))])


class Chat(TypedDict):
    """The messages."""

    messages: Annotated[list[AnyMessage], add_messages]


def compiled(script: Script, checkpointer: Any) -> Any:
    """A graph that calls a tool."""

    def model(state: Any) -> Any:
        return {"messages": [script.reply(state["messages"][-1])]}

    def tool(state: Any) -> Any:
        (call,) = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage(script.lookup(**call["args"]), tool_call_id=call["id"])]}

    def next(state: Any) -> str:
        return "tool" if state["messages"][-1].tool_calls else END

    builder: Any = StateGraph(Chat)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next, ["tool", END])
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=checkpointer)


class Talk(Session):
    """A thread."""

    def __init__(self, graph: Any, name: str) -> None:
        self._graph = graph
        self._config: Any = {"configurable": {"thread_id": name}}

    async def turn(self, turn: Turn) -> None:
        self._graph.invoke({"messages": [HumanMessage(turn.user)]}, self._config, durability="sync")


def texts(messages: list[Any]) -> list[str]:
    """The texts of messages."""
    return [
        one.tool_calls[0]["args"]["query"] if getattr(one, "tool_calls", ()) else str(one.content)
        for one in messages
    ]


class Alone(Conversations):
    """The threads in memory."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.saver = self.checkpointer()

    def checkpointer(self) -> Any:
        """What keeps the threads."""
        return InMemorySaver()

    def graph(self, ahead: list[Turn]) -> Any:
        """The graph of a conversation."""
        return compiled(Script(ahead), self.saver)

    async def session(self, name: str, ahead: list[Turn]) -> Talk:
        return Talk(self.graph(ahead), name)


class Own(Alone):
    """LangGraph's `SqliteSaver`, which syncs each commit."""

    def checkpointer(self) -> Any:
        self._db = sqlite3.connect(self.place.folder / "threads.sqlite", check_same_thread=False)
        saver = SqliteSaver(self._db)
        saver.setup()
        self._db.execute("PRAGMA synchronous = FULL")
        return saver

    async def texts(self, name: str) -> list[str]:
        state = self.graph([]).get_state({"configurable": {"thread_id": name}})
        return texts(state.values["messages"])

    async def shut(self) -> None:
        self._db.close()


class Ours(Own):
    """`RopewalkSaver` on the embedded store."""

    def checkpointer(self) -> Any:
        from ropewalk.adapters.langgraph import RopewalkSaver

        return RopewalkSaver(str(self.place.folder / "agent.ropewalk"))

    async def shut(self) -> None:
        self.saver.close()
