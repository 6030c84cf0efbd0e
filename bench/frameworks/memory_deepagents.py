"""Deep Agents: ten runs at once on one Postgres, each gathers documents and reports on them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from deepagents import create_deep_agent
from deepagents.graph import DeepAgentState
from langchain.tools import InjectedState, InjectedToolCallId
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from bench._text import Text
from bench.frameworks.memory import Workload, agentref_adapter, our_state

_DOCUMENT = 50_000
_LARGE = {"documents": list[dict[str, Any]]}
_SMALL = {"digest": str}


class Plain(DeepAgentState):
    """The state with its documents as they are."""

    documents: list[dict[str, Any]]
    digest: str


class Model(BaseChatModel):
    """Gathers so many times, reports, and answers."""

    rounds: int

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        done = sum(isinstance(one, ToolMessage) for one in messages)
        said = AIMessage("Done.")
        if done <= self.rounds:
            name, given = ("gather", {"number": done}) if done < self.rounds else ("report", {})
            said = AIMessage("", tool_calls=[{"name": name, "args": given, "id": f"call-{done}"}])
        return ChatResult(generations=[ChatGeneration(message=said)])


def gathered(number: int, count: int) -> list[dict[str, Any]]:
    """The documents of a search."""
    text = Text(1000 + number)
    return [{"id": f"{number}-{at}", "text": text.prose(_DOCUMENT)} for at in range(count)]


def digest(documents: list[dict[str, Any]]) -> str:
    """The report: a hash of all documents."""
    found = hashlib.sha256()
    for one in documents:
        found.update(f"{one['id']} {one['text']}".encode())
    return found.hexdigest()


class Alone(Workload):
    """The documents are in the state, whole, and `PostgresSaver` keeps it."""

    def prepare(self, size: Mapping[str, int]) -> None:
        self._size = size
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool: Any = ConnectionPool(
            self.place.url, kwargs=options, min_size=size["runs"], max_size=size["runs"], open=True
        )
        self._pool.wait()
        self.saver: Any = PostgresSaver(self._pool)
        self.saver.setup()
        self._agent = self.agent(Model(rounds=size["rounds"]), [self._gather(), self._report()])

    def agent(self, model: Any, tools: list[Any]) -> Any:
        """The agent."""
        return create_deep_agent(model, tools, state_schema=Plain, checkpointer=self.saver)

    def known(self, state: Any) -> list[dict[str, Any]]:
        """The documents in a state."""
        found: list[dict[str, Any]] = state.get("documents") or []
        return found

    def update(self, values: dict[str, Any]) -> dict[str, Any]:
        """What a tool returns for the state."""
        return values

    def _gather(self) -> Any:
        def gather(
            number: int,
            state: Annotated[Any, InjectedState],
            call: Annotated[str, InjectedToolCallId],
        ) -> Command[Any]:
            """Gather documents."""
            documents = [*self.known(state), *gathered(number, self._size["pages"])]
            answer = ToolMessage(f"{len(documents)} documents", tool_call_id=call)
            return Command(update={**self.update({"documents": documents}), "messages": [answer]})

        return gather

    def _report(self) -> Any:
        def report(
            state: Annotated[Any, InjectedState], call: Annotated[str, InjectedToolCallId]
        ) -> Command[Any]:
            """Report on the documents."""
            answer = ToolMessage("reported", tool_call_id=call)
            return Command(update={"digest": digest(self.known(state)), "messages": [answer]})

        return report

    def run(self) -> list[str]:
        with ThreadPoolExecutor(self._size["runs"]) as pool:
            return list(pool.map(self._one, range(self._size["runs"])))

    def _one(self, number: int) -> str:
        config: Any = {"configurable": {"thread_id": f"run-{number}"}, "recursion_limit": 1000}
        end = self._agent.invoke({"messages": [HumanMessage("Gather, and report.")]}, config)
        found: str = end["digest"]
        return found

    def close(self) -> None:
        self._pool.close()


class AgentRef(Alone):
    """The tools hand AgentRef's references to the state, and its store is in the same Postgres."""

    def prepare(self, size: Mapping[str, int]) -> None:
        from agentref.storage import PostgresCAS

        self._content = PostgresCAS(dsn=self.place.url)
        self._adapter = agentref_adapter("LangGraph", _LARGE, _SMALL, self._content)
        super().prepare(size)

    def known(self, state: Any) -> list[dict[str, Any]]:
        if not state.get("documents"):
            return []
        found = self._adapter.hydrate_state_for_node({"documents": state["documents"]})
        documents: list[dict[str, Any]] = found["documents"]
        return documents

    def update(self, values: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = self._adapter.externalize_node_update(values)
        return made

    def close(self) -> None:
        super().close()
        self._content.close()


class Ours(Alone):
    """`DeepAgentsAdapter` with `PostgresStore` and the same `PostgresSaver`."""

    def prepare(self, size: Mapping[str, int]) -> None:
        import ropewalk

        self._content = ropewalk.open(self.place.url)
        super().prepare(size)

    def agent(self, model: Any, tools: list[Any]) -> Any:
        from ropewalk.adapters.deepagents import DeepAgentsAdapter

        adapter = DeepAgentsAdapter(our_state(_LARGE, _SMALL), backend=self._content)
        return adapter.create_deep_agent(model, tools, checkpointer=self.saver)

    def close(self) -> None:
        super().close()
        self._content.close()


def digests(size: Mapping[str, int]) -> list[str]:
    """What the runs must end with."""
    rounds = range(size["rounds"])
    whole = [one for number in rounds for one in gathered(number, size["pages"])]
    return [digest(whole)] * size["runs"]
