"""The contract of sessions, held by the threads of a deep agent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest
from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from typer.testing import CliRunner

from ropewalk import Store
from ropewalk.adapters.deepagents import fork_thread
from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.cli.app import app
from ropewalk.errors import InvalidInput
from ropewalk.testing import SessionContract, SessionKit
from ropewalk.timeline import Timeline
from tests.frameworks.agents.deepagents.agents import ropewalk_says


class Echo(BaseChatModel):
    """A model that repeats what the user said."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> ChatResult:
        message = AIMessage(f"You said: {messages[-1].text}")
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "echo"


class Session(NamedTuple):
    agent: Any
    config: Any


class Kit(SessionKit):
    adapter = "ropewalk.adapters.deepagents"
    entry = "RopewalkBackend"
    framework = "deepagents"
    extra = "deepagents"
    stores_whole_turns = False
    lacks: ClassVar = {"change": "a graph adds messages and replaces them by their ids"}

    def open(self, store: Store, id: str) -> Session:
        agent = create_deep_agent(Echo(), checkpointer=RopewalkSaver(store, on_conflict="raise"))
        return Session(agent, {"configurable": self.config(id)})

    def say(self, session: Session, text: str) -> None:
        given = {"messages": [HumanMessage(text)]}
        session.agent.invoke(given, session.config, durability="sync")

    def items(self, session: Session) -> list[Any]:
        found = session.agent.get_state(session.config).values.get("messages", [])
        return [(one.type, one.text) for one in found]

    def texts(self, store: Store, id: str) -> list[str]:
        return [text for kind, text in self.items(self.open(store, id)) if kind == "human"]

    def timeline(self, store: Store, id: str) -> Timeline:
        return RopewalkSaver(store).timeline(id)

    def fork(self, session: Session, turns: int, id: str) -> Session:
        at = next(
            state.config
            for state in session.agent.get_state_history(session.config)
            if not state.next and len(state.values["messages"]) == 2 * turns
        )
        return Session(session.agent, fork_thread(session.agent, at, id))


class TestThreadsOfDeepAgents(SessionContract):
    kit = Kit
    engines: ClassVar = {"memory": "", "sqlite": "", "postgres": "postgres_url"}

    def test_a_fork_of_the_timeline_is_a_session(
        self, open_store: Callable[[], Store], do: Callable[..., Any]
    ) -> None:
        """A thread of a graph is forked by `fork_thread`, which its timeline leads to."""
        store = open_store()
        session = do("open", store, "chat")
        do("say", session, random.Random(3).randbytes(200_000).hex())
        items, before = do("items", session), store.stats().stored

        with pytest.raises(InvalidInput, match="copy_thread"):
            self.kit().timeline(store, "chat").fork("second")
        do("fork", session, 1, "second")
        assert do("items", do("open", open_store(), "second")) == items
        assert store.stats().stored - before < 100_000  # The text of 400 KB is shared.

    def test_the_command_line_shows_and_moves_it(
        self, shared_place: str, open_store: Callable[[], Store], do: Callable[..., Any]
    ) -> None:
        """Of the verbs, those that a thread of a graph has; its messages are a delta channel."""
        store = open_store()
        session = do("open", store, "chat")
        do("say", session, "What is the weather?")
        head = self.kit().timeline(store, "chat").head
        assert head is not None
        do("say", session, "And tomorrow?")
        at = head.id[:8]

        where = ["--store", shared_place]
        log, tree = (ropewalk_says(verb, "--thread", "chat", *where) for verb in ("log", "tree"))
        ropewalk_says("rollback", "--to", head.id, "--thread", "chat", *where)

        assert at in log and at in tree
        done = CliRunner().invoke(app, ["messages", "--thread", "chat", *where])
        assert done.exit_code == 3 and "graph.get_state(config)" in done.output
        assert self.kit().texts(open_store(), "chat") == ["What is the weather?"]
        ropewalk_says("check", *where)
