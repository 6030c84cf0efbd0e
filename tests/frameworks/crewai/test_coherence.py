"""Shared artifacts in crews: fresh before a task, committed after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import pytest
from crewai import Task, TaskOutput
from pydantic import BaseModel

from ropewalk.adapters.crewai import CoherenceAdapter, CoherentTask
from ropewalk.errors import ArtifactHeld, InvalidInput, NotFound
from tests.frameworks.crewai.crews import agent_of, crew_of, task_of
from tests.frameworks.sharing import SharingSuite


class TestSharing(SharingSuite):
    adapter_class = CoherenceAdapter
    processes = 2  # CrewAI takes seconds to import.

    def given(self, adapter: Any, agent: str, names: list[str], **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = adapter.prepare_task_context(agent, names, **options)
        return found

    def committed(
        self, adapter: Any, agent: str, writes: Mapping[str, Any], **options: Any
    ) -> dict[str, int]:
        if len(writes) == 1:
            ((name, value),) = writes.items()
            return {name: adapter.commit_task_artifact(agent, name, value, **options)}
        versions: dict[str, int] = adapter.commit_task_artifacts(agent, writes, **options)
        return versions

    async def agiven(self, adapter: Any, agent: str, names: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = await adapter.aprepare_task_context(agent, names)
        return found

    async def acommitted(self, adapter: Any, agent: str, writes: Any) -> dict[str, int]:
        return {
            name: await adapter.acommit_task_artifact(agent, name, value)
            for name, value in writes.items()
        }


@pytest.fixture
def adapter() -> Iterator[CoherenceAdapter]:
    with CoherenceAdapter() as made:
        made.register_artifact(name="plan", content="begin")
        yield made


def plan_of(adapter: CoherenceAdapter) -> Any:
    return adapter.core.read("onlooker", "plan").value


def test_a_task_gets_an_artifact_in_its_prompt_and_its_output_becomes_the_next_version(
    adapter: CoherenceAdapter,
) -> None:
    agent = agent_of("planner", lambda _: "go on")
    output = crew_of(task_of(adapter, agent, reads=["plan"], writes="plan")).kickoff()
    found = adapter.core.read("onlooker", "plan")

    assert "## plan (version 1)\nbegin" in agent.llm.prompts[0]
    assert output.raw == "go on"
    assert (found.version, found.value, found.agent) == (2, "go on", "planner")


def test_a_task_works_on_what_the_task_before_it_committed(adapter: CoherenceAdapter) -> None:
    planner = agent_of("planner", lambda _: "planned")
    reviewer = agent_of("reviewer", lambda said: "reviewed" if "planned" in said else "stale")
    tasks = [
        task_of(adapter, one, reads=["plan"], writes="plan", context=[])
        for one in (planner, reviewer)
    ]
    crew_of(*tasks).kickoff()

    assert plan_of(adapter) == "reviewed"


def test_a_crew_that_runs_again_reads_anew(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda said: "second" if "first" in said else "first")
    crew = crew_of(task_of(adapter, agent, reads=["plan"], writes="plan"))
    crew.kickoff()
    crew.kickoff()

    assert plan_of(adapter) == "second"


def test_asynchronous_kickoffs_do_the_same(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda said: "second" if "first" in said else "first")
    crew = crew_of(task_of(adapter, agent, reads=["plan"], writes="plan"))

    async def work() -> None:
        await crew.akickoff()
        await crew.kickoff_async()

    asyncio.run(work())

    assert plan_of(adapter) == "second"


def test_copies_of_a_crew_work_on_the_same_artifact(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda said: "second" if "first" in said else "first")
    crew = crew_of(task_of(adapter, agent, reads=["plan"], writes="plan"))
    outputs = crew.kickoff_for_each(inputs=[{"n": 1}, {"n": 2}])

    assert [one.raw for one in outputs] == ["first", "second"]
    assert plan_of(adapter) == "second"


def test_a_task_that_fails_commits_nothing(adapter: CoherenceAdapter) -> None:
    def fail(_: str) -> str:
        raise RuntimeError("no answer")

    agent = agent_of("planner", fail, max_retry_limit=0)
    with pytest.raises(RuntimeError, match="no answer"):
        crew_of(task_of(adapter, agent, reads=["plan"], writes="plan")).kickoff()
    assert adapter.core.read("onlooker", "plan").version == 1


def test_an_output_that_a_guardrail_refuses_is_not_committed(adapter: CoherenceAdapter) -> None:
    def long_enough(output: TaskOutput) -> tuple[bool, Any]:
        return (True, output.raw) if len(output.raw) > 5 else (False, "too short")

    answers = iter(["short", "long enough"])
    agent = agent_of("planner", lambda _: next(answers))
    task = task_of(adapter, agent, reads=["plan"], writes="plan", guardrail=long_enough)
    crew_of(task).kickoff()
    found = adapter.core.read("onlooker", "plan")

    assert (found.version, found.value) == (2, "long enough")


def no_secrets(output: TaskOutput) -> tuple[bool, Any]:
    return (False, "no secrets") if "secret" in output.raw else (True, output.raw)


def no_shouting(output: TaskOutput) -> tuple[bool, Any]:
    return (True, output.raw.lower())


@pytest.mark.parametrize("kickoff", ["kickoff", "akickoff"])
def test_after_a_conflict_the_new_output_passes_all_guardrails_before_it_is_committed(
    adapter: CoherenceAdapter, kickoff: str
) -> None:
    answers = iter(["First plan", "a secret", "Second plan"])

    def answer(_: str) -> str:
        said = next(answers)
        if said == "First plan":
            adapter.commit_task_artifact("reviewer", "plan", "reviewed")
        return said

    agent = agent_of("planner", answer)
    guardrails = [no_secrets, no_shouting]
    task = task_of(adapter, agent, reads=["plan"], writes="plan", guardrails=guardrails)
    output = started(crew_of(task), kickoff)
    found = adapter.core.read("onlooker", "plan")

    assert (found.version, found.value) == (3, "second plan")
    assert output.raw == "second plan"
    assert len(agent.llm.prompts) == 3


def started(crew: Any, kickoff: str) -> Any:
    """What came of a crew, by one of the ways to start it."""
    if kickoff == "kickoff":
        return crew.kickoff()
    return asyncio.run(crew.akickoff())


@pytest.mark.parametrize("kickoff", ["kickoff", "akickoff"])
def test_conflicts_and_refusals_share_the_retries(adapter: CoherenceAdapter, kickoff: str) -> None:
    answers = iter(["too late", "a secret", "another secret", "never asked"])

    def answer(_: str) -> str:
        said = next(answers)
        if said == "too late":
            adapter.commit_task_artifact("reviewer", "plan", "reviewed")
        return said

    task = task_of(
        adapter,
        agent_of("planner", answer),
        reads=["plan"],
        writes="plan",
        guardrail=no_secrets,
        guardrail_max_retries=2,
    )
    with pytest.raises(Exception, match=r"after 2 retries.*no secrets"):
        started(crew_of(task), kickoff)
    assert next(answers) == "never asked"
    assert plan_of(adapter) == "reviewed"


def test_copies_of_a_crew_keep_their_guardrails(adapter: CoherenceAdapter) -> None:
    answers = iter(["a secret", "a plan"])
    agent = agent_of("planner", lambda _: next(answers))
    crew = crew_of(task_of(adapter, agent, writes="plan", guardrail=no_secrets))
    crew.kickoff_for_each(inputs=[{"n": 1}])
    found = adapter.core.read("onlooker", "plan")

    assert (found.version, found.value) == (2, "a plan")


def test_a_guardrail_may_be_said_in_words(adapter: CoherenceAdapter) -> None:
    verdicts = iter(["false", "true"])
    answers = iter(["a secret", "a plan"])

    def answer(said: str) -> str:
        if "No secrets." in said:
            return f'{{"valid": {next(verdicts)}, "feedback": "no secrets"}}'
        return next(answers)

    agent = agent_of("planner", answer)
    crew_of(task_of(adapter, agent, writes="plan", guardrails=["No secrets."])).kickoff()
    found = adapter.core.read("onlooker", "plan")

    assert (found.version, found.value) == (2, "a plan")


def test_an_event_loop_goes_on_while_a_task_waits_for_a_coroutine_that_holds_its_artifact(
    adapter: CoherenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of("planner", lambda said: "on edited" if "edited" in said else "on stale")
    crew = crew_of(task_of(adapter, agent, reads=["plan"], writes="plan"))
    publish = adapter.core.propose

    async def work() -> None:
        loop, refused = asyncio.get_running_loop(), asyncio.Event()

        def tell(*wanted: Any) -> Any:
            try:
                return publish(*wanted)
            except ArtifactHeld:
                loop.call_soon_threadsafe(refused.set)
                raise

        monkeypatch.setattr(adapter.core, "propose", tell)
        with await adapter.core.ahold("editor", "plan"):
            running = asyncio.create_task(crew.akickoff())
            await refused.wait()
            await adapter.core.awrite("editor", "plan", "edited")
        await running

    asyncio.run(work())

    assert plan_of(adapter) == "on edited"
    assert len(agent.llm.prompts) == 2


@pytest.mark.parametrize(
    "writes", ["plan", lambda output: {"plan": output.raw}], ids=["name", "function"]
)
def test_a_task_may_write_what_it_does_not_read_and_others_wrote_before(
    adapter: CoherenceAdapter, writes: Any
) -> None:
    attempts = count(1)
    agent = agent_of("planner", lambda _: f"plan {next(attempts)}")
    crew = crew_of(task_of(adapter, agent, writes=writes))
    crew.kickoff()
    adapter.core.edit("reviewer", "plan", lambda plan: f"{plan}, reviewed")
    crew.kickoff()

    assert plan_of(adapter) == "plan 2"


def test_an_artifact_that_is_not_there_stops_the_crew(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda _: "never asked")
    with pytest.raises(NotFound, match="notes"):
        crew_of(task_of(adapter, agent, reads=["notes"])).kickoff()
    assert agent.llm.prompts == []


def test_a_task_whose_artifact_changed_meanwhile_is_done_again_on_the_new_one(
    adapter: CoherenceAdapter,
) -> None:
    def answer(said: str) -> str:
        if "reviewed" not in said:
            adapter.commit_task_artifact("reviewer", "plan", "reviewed")
        return "on reviewed" if "reviewed" in said else "on stale"

    agent = agent_of("planner", answer)
    crew_of(task_of(adapter, agent, reads=["plan"], writes="plan")).kickoff()

    assert len(agent.llm.prompts) == 2
    assert "## plan (version 2)\nreviewed" in agent.llm.prompts[1]
    assert plan_of(adapter) == "on reviewed"


def test_a_task_that_is_always_too_late_fails_and_overwrites_nothing(
    adapter: CoherenceAdapter,
) -> None:
    reviews = iter(range(9))

    def answer(_: str) -> str:
        adapter.commit_task_artifact("reviewer", "plan", f"review {next(reviews)}")
        return "too late"

    agent = agent_of("planner", answer)
    task = task_of(adapter, agent, reads=["plan"], writes="plan", guardrail_max_retries=1)
    with pytest.raises(Exception, match=r"after 1 retries.*plan"):
        crew_of(task).kickoff()
    assert plan_of(adapter) == "review 1"


@pytest.mark.parametrize("shared_agent", [False, True], ids=["two agents", "one agent"])
def test_tasks_that_run_at_the_same_time_lose_nothing(shared_agent: bool) -> None:
    with CoherenceAdapter(mergers={list: "append"}) as adapter:
        adapter.register_artifact(name="plan", content=[])
        met = threading.Barrier(2)

        def answer(said: str) -> str:
            met.wait(60)
            return "sights" if "Sights" in said else "food"

        name = "planner" if shared_agent else None
        agents = [agent_of(role, answer) for role in ("first", "second")]

        def joined(output: TaskOutput) -> dict[str, Any]:
            return {"plan": [output.raw]}

        tasks = [
            task_of(
                adapter,
                agent,
                reads=["plan"],
                writes=joined,
                agent_name=name,
                description=topic,
                async_execution=True,
            )
            for agent, topic in zip(agents, ("Sights", "Food"), strict=True)
        ]
        end = Task(
            description="End.", expected_output="Done.", agent=agent_of("last", lambda _: "done")
        )
        crew_of(*tasks, end).kickoff()

        assert sorted(plan_of(adapter)) == ["food", "sights"]


def test_of_tasks_that_run_at_the_same_time_one_is_done_again(adapter: CoherenceAdapter) -> None:
    met = threading.Barrier(2)
    begun: set[str] = set()

    def adding(role: str) -> Callable[[str], str]:
        def answer(said: str) -> str:
            if role not in begun:
                begun.add(role)
                met.wait(60)
            plan = said.partition("## plan (version ")[2].splitlines()[1]
            return f"{plan}, {role}"

        return answer

    agents = [agent_of(role, adding(role)) for role in ("sights", "food")]
    tasks = [
        task_of(adapter, agent, reads=["plan"], writes="plan", async_execution=True)
        for agent in agents
    ]
    done = agent_of("last", lambda _: "done")
    crew_of(*tasks, Task(description="End.", expected_output="Done.", agent=done)).kickoff()

    assert sorted(plan_of(adapter).split(", ")) == ["begin", "food", "sights"]
    assert sum(len(agent.llm.prompts) for agent in agents) == 3


class Trip(BaseModel):
    place: str
    days: int


def test_a_structured_output_becomes_a_plain_value(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda _: '{"place": "Rome", "days": 3}')
    output = crew_of(task_of(adapter, agent, writes="plan", output_pydantic=Trip)).kickoff()

    assert output.pydantic == Trip(place="Rome", days=3)
    assert plan_of(adapter) == {"place": "Rome", "days": 3}


def test_parts_of_a_structured_output_become_artifacts(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda _: '{"place": "Rome", "days": 3}')
    output = crew_of(task_of(adapter, agent, writes=["place", "days"], output_json=Trip)).kickoff()
    found = adapter.prepare_task_context("onlooker", ["place", "days"])

    assert output.json_dict == {"place": "Rome", "days": 3}
    assert found == {"place": "Rome", "days": 3}


def test_parts_of_plain_text_are_refused(adapter: CoherenceAdapter) -> None:
    agent = agent_of("planner", lambda _: "text")

    with pytest.raises(InvalidInput, match="no mapping"):
        crew_of(task_of(adapter, agent, writes=["place"])).kickoff()


def test_a_crew_inside_a_task_has_its_own_turn(adapter: CoherenceAdapter) -> None:
    adapter.register_artifact(name="notes", content="none")
    helper = agent_of("helper", lambda _: "noted")
    inside = crew_of(task_of(adapter, helper, reads=["notes"], writes="notes"))

    def answer(_: str) -> str:
        inside.kickoff()
        return "planned"

    crew_of(task_of(adapter, agent_of("planner", answer), reads=["plan"], writes="plan")).kickoff()

    assert adapter.prepare_task_context("onlooker", ["plan", "notes"]) == {
        "plan": "planned",
        "notes": "noted",
    }


@pytest.mark.filterwarnings("ignore:function callbacks cannot be serialized")
def test_callbacks_come_after_the_commit(adapter: CoherenceAdapter) -> None:
    seen: list[Any] = []
    agent = agent_of("planner", lambda _: "planned")
    task = task_of(adapter, agent, writes="plan", callback=lambda _: seen.append(plan_of(adapter)))
    crew_of(task).kickoff()

    assert seen == ["planned"]


def test_a_task_of_ours_is_a_task(adapter: CoherenceAdapter) -> None:
    task = task_of(adapter, agent_of("planner", lambda _: ""), reads="plan")

    assert isinstance(task, Task) and isinstance(task, CoherentTask)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"read": ["plan"]}, "no field 'read'. Is it 'reads'"),
        ({"reads": 5}, "reads is a list of names"),
        ({"writes": 5}, "writes is the name of an artifact, a list of names, or a function"),
        ({"writes": [5]}, "writes is a list of names"),
        ({"agent_name": 5}, "agent_name is the name of an agent"),
        ({"guardrail": "short", "guardrails": ["long"]}, "not both"),
    ],
)
def test_what_makes_no_task_on_artifacts_is_refused(
    adapter: CoherenceAdapter, fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected):
        task_of(adapter, agent_of("planner", lambda _: ""), **fields)
