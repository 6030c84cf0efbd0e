"""Tasks of a crew that work on shared artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from crewai import Task
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.tasks.task_output import TaskOutput
from crewai.utilities.guardrail import process_guardrail
from pydantic import PrivateAttr

from ropewalk.adapters.coherence import (
    BaseCoherenceAdapter,
    Turn,
    Writes,
    agent_name_of,
    contents_of,
    names_of,
    writes_of,
    written,
)
from ropewalk.errors import InvalidInput, VersionConflict
from ropewalk.store.asynchronous import twin


class CoherenceAdapter(BaseCoherenceAdapter):
    """Shared artifacts in a crew: fresh before a task, committed after it.

    `task` does both. `prepare_task_context` and `commit_task_artifact` are its halves, for
    callbacks, tools and flows.
    """

    def prepare_task_context(
        self, agent_name: str, artifact_ids: Iterable[str], now_tick: int | None = None
    ) -> dict[str, Any]:
        """The current contents of the artifacts, as one snapshot.

        Raises `NotFound` if one of them does not exist.
        """
        return contents_of(self._given(agent_name, artifact_ids, now_tick))

    def commit_task_artifact(
        self, agent_name: str, artifact_id: str, content: Any, now_tick: int | None = None
    ) -> int:
        """Commit a task's new content of one artifact; returns its new version.

        It is checked against the version the agent last saw. Concurrent changes are merged, or
        refused with `VersionConflict`.
        """
        return self._committed(agent_name, {artifact_id: content}, now_tick)[artifact_id]

    def commit_task_artifacts(
        self, agent_name: str, writes: Mapping[str, Any], now_tick: int | None = None
    ) -> dict[str, int]:
        """Commit a task's content of several artifacts, all or nothing; returns the versions."""
        return self._committed(agent_name, writes, now_tick)

    aprepare_task_context = twin(prepare_task_context)
    acommit_task_artifact = twin(commit_task_artifact)
    acommit_task_artifacts = twin(commit_task_artifacts)

    def task(
        self,
        *,
        reads: Iterable[str] = (),
        writes: Writes = None,
        agent_name: str | None = None,
        **fields: Any,
    ) -> CoherentTask:
        """A `Task` with these fields that works on shared artifacts.

        At each attempt, its prompt ends with the artifacts in `reads`. `writes` is the artifact
        that its output becomes, or the names of those fields of a structured output that are
        artifacts, or a function from the `TaskOutput` to the artifacts to commit. The agent's name
        is its role, unless `agent_name` is given.

        The commit follows your guardrails. If they refuse the output, or if others changed an
        artifact in between and it cannot be merged, the agent repeats the task on fresh artifacts,
        at most `guardrail_max_retries` times in all, and its new output passes all of your
        guardrails before it is committed. A task that fails commits nothing.
        """
        _check_fields(fields)
        if fields.get("guardrail") is not None:
            if fields.get("guardrails") is not None:
                raise InvalidInput("give guardrail= or guardrails=, not both")
            fields["guardrails"] = fields.pop("guardrail")
        name = None if agent_name is None else agent_name_of(agent_name)
        steps = _Steps(self, names_of(reads, "reads"), writes_of(writes), name)
        made = CoherentTask(**fields)
        made._share(steps, made._guardrails or _listed(made._guardrail))
        return made


class CoherentTask(Task):
    """A task that gets shared artifacts and commits its output; see `CoherenceAdapter.task`."""

    _steps: Any = PrivateAttr(default=None)
    _checks: list[Any] = PrivateAttr(default_factory=list)

    def prompt(self) -> str:
        """The prompt, with the current artifacts."""
        text: str = super().prompt()
        return text if self._steps is None else self._steps.begun(self, text)

    def copy(self, agents: Sequence[BaseAgent], task_mapping: dict[str, Task]) -> CoherentTask:
        """A copy that works on the same artifacts, as `kickoff_for_each` makes them."""
        made: CoherentTask = super().copy(agents, task_mapping)
        if self._steps is not None:
            made._share(self._steps, self._checks)
        return made

    def _share(self, steps: _Steps, checks: list[Any]) -> None:
        # CrewAI runs one guardrail after the other. When a later one has the task repeated, the
        # earlier ones do not see the new output. So there is a single guardrail, which runs them
        # all.
        self._steps, self._checks = steps, checks
        # The field, too: a crew derives the others from it when it takes the task.
        self.guardrails, self._guardrails = [self._commit], [self._commit]
        self.guardrail = self._guardrail = None

    def _commit(self, output: TaskOutput) -> tuple[bool, Any]:
        """A guardrail that commits an output which all others accept, or has the task repeated."""
        passed, said = self._checked(output)
        if not passed:
            return False, said
        if not _is_exported(said):
            said.pydantic, said.json_dict = self._export_output(said.raw)
        try:
            turn, made = self._steps.made(self, said)
            turn.commit(made)
        except VersionConflict as conflict:
            return False, _again(conflict)
        self._steps.ended(self)
        return True, said

    async def _ainvoke_guardrail_function(
        self,
        task_output: TaskOutput,
        agent: BaseAgent,
        tools: list[Any],
        guardrail: Any,
        guardrail_index: int | None = None,
    ) -> TaskOutput:
        """As in `Task`, but the commit is awaited after the guardrails.

        Guardrails run on the event loop, and the holder of an artifact may be a task of that loop.
        """
        ask = super()._ainvoke_guardrail_function
        if self._steps is None:
            return await ask(task_output, agent, tools, guardrail, guardrail_index)
        awaited = _Awaited(self)
        while True:
            task_output = await ask(task_output, agent, tools, awaited.check, guardrail_index)
            try:
                await self._acommit(task_output)
            except VersionConflict as conflict:
                awaited.refusal = _again(conflict)
            else:
                return task_output

    async def _acommit(self, output: TaskOutput) -> None:
        if not _is_exported(output):
            output.pydantic, output.json_dict = await self._aexport_output(output.raw)
        turn, made = self._steps.made(self, output)
        await turn.acommit(made)
        self._steps.ended(self)

    def _checked(self, output: TaskOutput) -> tuple[bool, Any]:
        """The output after all guardrails, or the reason why one of them refuses it."""
        for check in self._checks:
            said = process_guardrail(
                output=output,
                guardrail=check,
                retry_count=self._guardrail_retry_counts.get(0, 0),
                event_source=self,
                from_agent=self.agent,
                from_task=self,
            )
            if not said.success:
                return False, said.error
            output = self._passed(output, said.result)
        return True, output

    def _passed(self, output: TaskOutput, result: Any) -> TaskOutput:
        """The result of a guardrail, as CrewAI interprets it."""
        if result is None:
            raise InvalidInput("a guardrail that passes an output gives it back, not None")
        if isinstance(result, TaskOutput):
            return result
        if isinstance(result, str):
            output.raw = result
            output.pydantic, output.json_dict = self._export_output(result)
        return output


class _Awaited:
    """The guardrail of a task whose commit follows it asynchronously."""

    def __init__(self, task: CoherentTask) -> None:
        self._task, self._retries = task, 0
        self.refusal: str | None = None
        """Why what it passed could not be committed: it refuses that next."""

    def check(self, output: TaskOutput) -> tuple[bool, Any]:
        """Whether all guardrails accept an output. Refuses as often as CrewAI would allow."""
        refusal, self.refusal = self.refusal, None
        passed, said = self._task._checked(output) if refusal is None else (False, refusal)
        if not passed:
            if self._retries == self._task.guardrail_max_retries:
                raise RuntimeError(
                    f"Task failed guardrail validation after {self._retries} retries. "
                    f"Last error: {said}"
                )
            self._retries += 1
        return passed, said


class _Steps:
    """What a task and its copies do before and after an agent works on them."""

    def __init__(
        self, adapter: CoherenceAdapter, reads: list[str], writes: Writes, agent_name: str | None
    ) -> None:
        self._adapter, self._reads, self._writes = adapter, reads, writes
        self._agent_name = agent_name

    def begun(self, task: CoherentTask, prompt: str) -> str:
        """The prompt of one attempt; the commit is checked against the artifacts in it."""
        agent = self._agent_name or (task.agent.role if task.agent else None)
        if agent is None:
            raise InvalidInput("a task that no agent has needs agent_name=")
        turn = self._adapter._turn(agent, self._reads, self._writes)
        _UNDER_WAY.set({**_UNDER_WAY.get({}), task.id: turn})
        return f"{prompt}\n\n{turn.text()}" if self._reads else prompt

    def made(self, task: CoherentTask, output: TaskOutput) -> tuple[Turn, dict[str, Any]]:
        """The turn of the last attempt, and what to commit of it."""
        turn = _UNDER_WAY.get({})[task.id]
        return turn, written(self._writes, output, lambda: _value(output))

    def ended(self, task: CoherentTask) -> None:
        """Discard the turn."""
        under_way = _UNDER_WAY.get({})
        _UNDER_WAY.set({id: turn for id, turn in under_way.items() if id != task.id})


_UNDER_WAY: ContextVar[dict[UUID, Turn]] = ContextVar("ropewalk_tasks")
"""The running step, by context.

One task may run in several threads or event loops, and a tool may run a crew inside a task.
"""


def _again(conflict: VersionConflict) -> str:
    return (
        f"{conflict} Others changed what you worked on. The shared artifacts in your task "
        "are now the newest ones: do the task again with them."
    )


def _is_exported(output: TaskOutput) -> bool:
    """Whether CrewAI exports the output after the guardrails, which is now."""
    return output.pydantic is not None or output.json_dict is not None


def _value(output: TaskOutput) -> Any:
    """An output as a plain value."""
    if output.pydantic is not None:
        return output.pydantic.model_dump()
    return output.raw if output.json_dict is None else output.json_dict


def _listed(guardrail: Any) -> list[Any]:
    return [] if guardrail is None else [guardrail]


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Raise for a keyword that is not a field of a task, which CrewAI would ignore."""
    known = ["reads", "writes", "agent_name", *CoherentTask.model_fields]
    for name in fields:
        if name not in known:
            near = "".join(f" Is it {one!r}?" for one in get_close_matches(name, known, 1))
            raise InvalidInput(f"a task has no field {name!r:.80}.{near}")
