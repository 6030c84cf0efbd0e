"""Crews whose model is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from pydantic import PrivateAttr

from ropewalk.adapters.crewai import CoherenceAdapter

Answer = Callable[[str], str]


class Model(BaseLLM):
    """A model that answers a prompt with what a function says, and remembers the prompts."""

    _answer: Answer = PrivateAttr()
    _prompts: list[str] = PrivateAttr(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        return self._prompts

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        said = messages if isinstance(messages, str) else messages[-1]["content"]
        self._prompts.append(said)
        return self._answer(said)

    async def acall(self, messages: Any, *_: Any, **__: Any) -> str:
        return self.call(messages)


def answering(answer: Answer) -> Model:
    made = Model(model="function")
    made._answer = answer
    return made


def agent_of(role: str, answer: Answer, **fields: Any) -> Agent:
    """An agent who answers with what a function says."""
    return Agent(role=role, goal="work", backstory="works", llm=answering(answer), **fields)


def task_of(adapter: CoherenceAdapter, agent: Agent, **fields: Any) -> Any:
    """A task for an agent, on shared artifacts."""
    fields = {"description": "Plan the trip.", "expected_output": "A plan.", **fields}
    return adapter.task(agent=agent, **fields)


def crew_of(*tasks: Task, **fields: Any) -> Crew:
    """A crew that does tasks one after the other."""
    agents = list({id(task.agent): task.agent for task in tasks}.values())
    return Crew(agents=agents, tasks=list(tasks), **fields)
