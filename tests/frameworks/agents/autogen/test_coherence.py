"""Shared artifacts in conversations: fresh before a turn, committed after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from ropewalk.adapters.autogen import CoherenceAdapter, CoherentAgent
from ropewalk.errors import InvalidInput, NotFound, VersionConflict
from tests.frameworks.sharing import SharingSuite


class TestSharing(SharingSuite):
    adapter_class = CoherenceAdapter

    def given(self, adapter: Any, agent: str, names: list[str], **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = adapter.pre_turn_context(agent, names, **options)
        return found

    def committed(
        self, adapter: Any, agent: str, writes: Mapping[str, Any], **options: Any
    ) -> dict[str, int]:
        versions: dict[str, int] = adapter.post_turn_commit(agent, writes, **options)
        return versions

    async def agiven(self, adapter: Any, agent: str, names: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = await adapter.apre_turn_context(agent, names)
        return found

    async def acommitted(self, adapter: Any, agent: str, writes: Any) -> dict[str, int]:
        versions: dict[str, int] = await adapter.apost_turn_commit(agent, writes)
        return versions


@pytest.fixture
def adapter() -> Iterator[CoherenceAdapter]:
    with CoherenceAdapter() as made:
        made.register_artifact(name="plan", content="begin")
        yield made


def plan_of(adapter: CoherenceAdapter) -> Any:
    return adapter.core.read("onlooker", "plan").value


class Speaker(BaseChatAgent):
    """An agent who answers what it heard with what a function says."""

    def __init__(self, name: str, answer: Callable[[str], Any]) -> None:
        super().__init__(name, "speaks")
        self.heard: list[str] = []
        self._answer = answer

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage, StructuredMessage[Any])

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        said = "\n".join(one.to_text() for one in messages)
        self.heard.append(said)
        answer = self._answer(said)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, BaseChatMessage):
            return Response(chat_message=answer)
        kind = TextMessage if isinstance(answer, str) else StructuredMessage[type(answer)]
        return Response(chat_message=kind(content=answer, source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.heard.clear()


def assistant(name: str, *answers: str, **options: Any) -> AssistantAgent:
    """An assistant whose model says these answers."""
    return AssistantAgent(name, ReplayChatCompletionClient(list(answers)), **options)


def prompts_of(agent: AssistantAgent) -> list[str]:
    """What the model of an assistant was asked, one text for each call."""
    calls = agent._model_client.create_calls
    return ["\n".join(str(one.content) for one in call["messages"]) for call in calls]


def test_an_agent_is_told_an_artifact_and_its_answer_becomes_the_next_version(
    adapter: CoherenceAdapter,
) -> None:
    planner = assistant("planner", "go on")
    agent = adapter.agent(planner, reads=["plan"], writes="plan")
    result = asyncio.run(agent.run(task="Plan the trip."))
    found = adapter.core.read("onlooker", "plan")

    assert "## plan (version 1)\nbegin" in prompts_of(planner)[0]
    assert result.messages[-1].to_text() == "go on"
    assert (found.version, found.value, found.agent) == (2, "go on", "planner")


def test_agents_of_a_team_work_on_what_the_others_committed(adapter: CoherenceAdapter) -> None:
    def add(name: str) -> Callable[[str], str]:
        return lambda said: f"{said.partition('version ')[2].partition(')')[0]} {name}"

    speakers = [Speaker(name, add(name)) for name in ("ann", "bob")]
    team = RoundRobinGroupChat(
        [adapter.agent(one, reads=["plan"], writes="plan") for one in speakers],
        termination_condition=MaxMessageTermination(5),
    )
    result = asyncio.run(team.run(task="Plan."))

    said = [one.to_text() for one in result.messages[1:]]
    assert said == ["1 ann", "2 bob", "3 ann", "4 bob"]
    assert plan_of(adapter) == "4 bob"


def test_a_model_context_shows_only_the_newest_version(adapter: CoherenceAdapter) -> None:
    context = adapter.model_context("planner", reads=["plan"])
    planner = assistant("planner", "first", "second", model_context=context)
    agent = adapter.agent(planner, writes="plan")

    async def work() -> Any:
        await agent.run(task="Plan.")
        await adapter.apre_turn_context("reviewer", ["plan"])
        await adapter.apost_turn_commit("reviewer", {"plan": "reviewed"})
        await agent.run(task="Plan again.")
        return await agent.save_state()

    state = asyncio.run(work())
    second = prompts_of(planner)[1]

    assert "## plan (version 3)\nreviewed" in second
    assert "begin" not in second and second.count("Shared artifacts") == 1
    assert "Shared artifacts" not in str(state)
    assert plan_of(adapter) == "second"


def test_a_model_context_wraps_another_and_keeps_its_state(adapter: CoherenceAdapter) -> None:
    inner = BufferedChatCompletionContext(buffer_size=1)
    context = adapter.model_context("planner", reads=["plan"], inner=inner)
    planner = assistant("planner", "one", "two", "three", model_context=context)

    async def work() -> Any:
        await planner.run(task="First.")
        await planner.run(task="Second.")
        saved = await planner.save_state()
        await planner.on_reset(CancellationToken())
        cleared = await inner.get_messages()
        await planner.load_state(saved)
        return cleared, await context.get_messages()

    cleared, loaded = asyncio.run(work())

    assert "First." not in prompts_of(planner)[1]
    assert cleared == []
    assert [one.content for one in loaded[1:]] == ["two"]


def test_a_tool_call_inside_a_turn_sees_the_newest_version(adapter: CoherenceAdapter) -> None:
    context = adapter.model_context("planner", reads=["plan"])

    async def review() -> str:
        """Review the plan."""
        await adapter.apost_turn_commit("reviewer", {"plan": "reviewed"})
        return "done"

    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage

    call = CreateResult(
        content=[FunctionCall(id="1", name="review", arguments="{}")],
        usage=RequestUsage(prompt_tokens=0, completion_tokens=0),
        finish_reason="function_calls",
        cached=False,
    )
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=False,
        family=ModelFamily.UNKNOWN,
        structured_output=False,
    )
    client = ReplayChatCompletionClient([call, "on reviewed"], model_info=info)
    planner = AssistantAgent(
        "planner", client, tools=[review], reflect_on_tool_use=True, model_context=context
    )
    asyncio.run(adapter.agent(planner, writes="plan").run(task="Plan."))

    assert "## plan (version 2)\nreviewed" in prompts_of(planner)[1]
    assert plan_of(adapter) == "on reviewed"


def test_a_turn_that_fails_commits_nothing(adapter: CoherenceAdapter) -> None:
    def fail(_: str) -> str:
        raise RuntimeError("no answer")

    agent = adapter.agent(Speaker("planner", fail), reads=["plan"], writes="plan")
    with pytest.raises(RuntimeError, match="no answer"):
        asyncio.run(agent.run(task="Plan."))
    assert adapter.core.read("onlooker", "plan").version == 1


def test_a_turn_that_is_cancelled_commits_nothing(adapter: CoherenceAdapter) -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def wait() -> str:
            begun.set()
            await asyncio.Event().wait()
            return "never"

        agent = adapter.agent(Speaker("planner", lambda _: wait()), reads=["plan"], writes="plan")
        turn = asyncio.create_task(agent.run(task="Plan."))
        await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(work())

    assert adapter.core.read("onlooker", "plan").version == 1


def test_a_turn_whose_token_was_cancelled_commits_nothing(adapter: CoherenceAdapter) -> None:
    """Also where the agent does not look at the token."""

    async def work() -> None:
        begun, go_on, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def answer() -> str:
            begun.set()
            await go_on.wait()
            answered.set()
            return "late"

        speaker = Speaker("planner", lambda _: answer())
        agent = adapter.agent(speaker, reads=["plan"], writes="plan")
        team = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))
        token = CancellationToken()
        running = asyncio.create_task(team.run(task="Plan.", cancellation_token=token))
        await begun.wait()
        token.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        await answered.wait()

    asyncio.run(work())

    assert adapter.core.read("onlooker", "plan").version == 1


def test_a_turn_that_waits_for_who_holds_an_artifact_can_be_cancelled(
    adapter: CoherenceAdapter,
) -> None:
    async def work() -> None:
        token = CancellationToken()

        def answer(_: str) -> str:
            asyncio.get_running_loop().call_later(0.05, token.cancel)
            return "mine"

        agent = adapter.agent(Speaker("planner", answer), reads=["plan"], writes="plan")
        with adapter.core.hold("reviewer", "plan"), pytest.raises(asyncio.CancelledError):
            await agent.run(task="Plan.", cancellation_token=token)

    asyncio.run(work())

    assert adapter.core.read("onlooker", "plan").version == 1


@pytest.mark.parametrize(
    "writes",
    ["plan", lambda response: {"plan": response.chat_message.to_text()}],
    ids=["name", "function"],
)
def test_a_turn_may_write_what_it_does_not_read_and_others_wrote_before(
    adapter: CoherenceAdapter, writes: Any
) -> None:
    turns = count(1)
    agent = adapter.agent(Speaker("planner", lambda _: f"plan {next(turns)}"), writes=writes)
    asyncio.run(agent.run(task="Plan."))
    adapter.core.edit("reviewer", "plan", lambda plan: f"{plan}, reviewed")
    asyncio.run(agent.run(task="Plan."))

    assert plan_of(adapter) == "plan 2"


def test_an_artifact_that_is_not_there_stops_the_turn(adapter: CoherenceAdapter) -> None:
    speaker = Speaker("planner", lambda _: "never asked")
    with pytest.raises(NotFound, match="notes"):
        asyncio.run(adapter.agent(speaker, reads=["notes"]).run(task="Plan."))
    assert speaker.heard == []


def late(adapter: CoherenceAdapter, times: int) -> Callable[[str], str]:
    """Answers that come after a reviewer changed the plan, so many times."""
    reviews = iter(range(times))

    def answer(said: str) -> str:
        for review in reviews:
            adapter.pre_turn_context("reviewer", ["plan"])
            adapter.post_turn_commit("reviewer", {"plan": f"review {review}"})
            break
        return f"on {said.partition('version ')[2].partition(')')[0]}"

    return answer


def test_a_turn_whose_artifact_changed_meanwhile_is_refused(adapter: CoherenceAdapter) -> None:
    agent = adapter.agent(Speaker("planner", late(adapter, 1)), reads=["plan"], writes="plan")

    with pytest.raises(VersionConflict):
        asyncio.run(agent.run(task="Plan."))
    assert plan_of(adapter) == "review 0"


def test_a_turn_is_taken_again_on_the_new_version(adapter: CoherenceAdapter) -> None:
    speaker = Speaker("planner", late(adapter, 1))
    agent = adapter.agent(speaker, reads=["plan"], writes="plan", attempts=2)
    result = asyncio.run(agent.run(task="Plan."))

    assert [one.to_text() for one in result.messages] == ["Plan.", "on 2"]
    assert "review 0" in speaker.heard[1] and "Others changed" in speaker.heard[1]
    assert plan_of(adapter) == "on 2"


def test_an_assistant_takes_its_turn_again_on_the_new_version(adapter: CoherenceAdapter) -> None:
    context = adapter.model_context("planner", reads=["plan"])
    planner = assistant("planner", "stale", "fresh", model_context=context)
    create = planner._model_client.create
    answer = late(adapter, 1)

    async def create_late(*arguments: Any, **options: Any) -> Any:
        await asyncio.to_thread(answer, "")
        return await create(*arguments, **options)

    planner._model_client.create = create_late
    asyncio.run(adapter.agent(planner, writes="plan", attempts=2).run(task="Plan."))

    assert "## plan (version 2)\nreview 0" in prompts_of(planner)[1]
    assert plan_of(adapter) == "fresh"


def test_a_turn_that_is_always_too_late_overwrites_nothing(adapter: CoherenceAdapter) -> None:
    speaker = Speaker("planner", late(adapter, 9))
    agent = adapter.agent(speaker, reads=["plan"], writes="plan", attempts=3)

    with pytest.raises(VersionConflict):
        asyncio.run(agent.run(task="Plan."))
    assert len(speaker.heard) == 3
    assert plan_of(adapter) == "review 2"


@pytest.mark.parametrize("name", [None, "planner"], ids=["two agents", "one agent"])
def test_turns_that_are_taken_at_the_same_time_lose_nothing(name: str | None) -> None:
    with CoherenceAdapter(mergers={list: "append"}) as adapter:
        adapter.register_artifact(name="plan", content=[])

        async def work() -> None:
            met = asyncio.Barrier(2)

            async def wait(topic: str, _: str) -> str:
                await met.wait()
                return topic

            def joined(response: Response) -> dict[str, Any]:
                return {"plan": [response.chat_message.to_text()]}

            agents = [
                adapter.agent(
                    Speaker(topic, partial(wait, topic)),
                    reads=["plan"],
                    writes=joined,
                    agent_name=name,
                )
                for topic in ("sights", "food")
            ]
            await asyncio.gather(*(one.run(task="Plan.") for one in agents))

        asyncio.run(work())

        assert sorted(plan_of(adapter)) == ["food", "sights"]


class Trip(BaseModel):
    place: str
    days: int


def test_a_structured_message_becomes_a_plain_value_or_parts(adapter: CoherenceAdapter) -> None:
    speaker = Speaker("planner", lambda _: Trip(place="Rome", days=3))
    asyncio.run(adapter.agent(speaker, writes="plan").run(task="Plan."))
    asyncio.run(adapter.agent(speaker, writes=["place", "days"]).run(task="Plan."))
    found = adapter.pre_turn_context("onlooker", ["plan", "place", "days"])

    assert found == {"plan": {"place": "Rome", "days": 3}, "place": "Rome", "days": 3}


def test_a_handoff_is_not_taken_for_the_work(adapter: CoherenceAdapter) -> None:
    handoff = HandoffMessage(content="your turn", source="planner", target="reviewer")
    speaker = Speaker("planner", lambda _: handoff)
    asyncio.run(adapter.agent(speaker, reads=["plan"], writes="plan").run(task="Plan."))
    before = plan_of(adapter)
    said = adapter.agent(speaker, writes=lambda response: {"plan": response.chat_message.target})
    asyncio.run(said.run(task="Plan."))

    assert before == "begin"
    assert plan_of(adapter) == "reviewer"


def test_parts_of_plain_text_are_refused(adapter: CoherenceAdapter) -> None:
    agent = adapter.agent(Speaker("planner", lambda _: "text"), writes=["place"])

    with pytest.raises(InvalidInput, match="no mapping"):
        asyncio.run(agent.run(task="Plan."))


def test_a_stream_has_what_the_agent_said_and_a_committed_response(
    adapter: CoherenceAdapter,
) -> None:
    planner = assistant("planner", "go on", model_client_stream=True)
    agent = adapter.agent(planner, reads=["plan"], writes="plan")

    async def work() -> list[str]:
        seen: AsyncIterator[Any] = agent.run_stream(task="Plan.")
        return [type(one).__name__ async for one in seen]

    kinds = asyncio.run(work())

    assert kinds[0] == "TextMessage" and kinds[-2:] == ["TextMessage", "TaskResult"]
    assert "ModelClientStreamingChunkEvent" in kinds
    assert plan_of(adapter) == "go on"


def test_the_rest_is_the_agents_own(adapter: CoherenceAdapter) -> None:
    planner = assistant("planner", "one", "two", description="plans")
    agent = adapter.agent(planner, writes="plan")

    async def work() -> Any:
        await agent.run(task="First.")
        saved = await agent.save_state()
        await agent.on_reset(CancellationToken())
        cleared = await planner.model_context.get_messages()
        await agent.load_state(saved)
        await agent.on_pause(CancellationToken())
        await agent.on_resume(CancellationToken())
        await agent.close()
        return cleared, await planner.model_context.get_messages()

    cleared, loaded = asyncio.run(work())

    assert isinstance(agent, CoherentAgent)
    assert (agent.name, agent.description) == ("planner", "plans")
    assert agent.produced_message_types == planner.produced_message_types
    assert (len(cleared), len(loaded)) == (0, 2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"agent": 5}, "wraps an agent of AgentChat, not 5"),
        ({"attempts": 0}, "attempts is a whole number from 1 on"),
        ({"attempts": "3"}, "attempts is a whole number from 1 on"),
        ({"reads": 5}, "reads is a list of names"),
        ({"writes": 5}, "writes is the name of an artifact, a list of names, or a function"),
        ({"writes": [5]}, "writes is a list of names"),
        ({"agent_name": 5}, "agent_name is the name of an agent"),
    ],
)
def test_what_makes_no_agent_on_artifacts_is_refused(
    adapter: CoherenceAdapter, options: dict[str, Any], expected: str
) -> None:
    given = {"agent": Speaker("planner", lambda _: "never asked"), **options}

    with pytest.raises(InvalidInput, match=expected):
        adapter.agent(**given)
