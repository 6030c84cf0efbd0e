"""What a developer does with a timeline, example by example, with nothing prepared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk import FileStore, SqliteStore
from ropewalk import Timeline as AgentStateProtocol
from ropewalk.recovery import CompositeStrategy, DegradeGracefully, RetryWithBackoff
from ropewalk.timeline import Middleware as AgentStateProtocolMiddleware
from ropewalk.timeline import checkpoint_context, forget_agents
from ropewalk.timeline import step as agentstateprotocol_step


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    forget_agents()


@pytest.fixture
def agent() -> Iterator[AgentStateProtocol]:
    with AgentStateProtocol("research-agent") as opened:
        yield opened


TASK = "Find best coffee shops in NYC"


def test_an_agent_saves_its_steps_goes_back_and_tries_another_path() -> None:
    agent = AgentStateProtocol("research-agent")
    agent.checkpoint(
        state={"task": TASK, "stage": "parse"},
        metadata={"confidence": 0.92},
        description="Parsed request",
        logic_step="parse_input",
    )
    agent.checkpoint(
        state={"task": TASK, "stage": "search", "results": ["Devocion", "La Cabra"]},
        metadata={"confidence": 0.87},
        description="Collected candidates",
        logic_step="search",
    )
    agent.rollback()
    agent.branch("reviews-first")
    agent.checkpoint(state={"task": TASK, "stage": "reviews"}, logic_step="review_aggregation")

    assert agent.get_state() == {"task": TASK, "stage": "reviews"}
    assert agent.current_branch == "reviews-first"
    assert [step.logic_step for step in agent.history()] == ["review_aggregation", "parse_input"]
    agent.close()
    with AgentStateProtocol("research-agent") as again:  # as in another process
        assert again.current_branch == "reviews-first"
        assert again.get_state() == {"task": TASK, "stage": "reviews"}
        assert again.history("main")[0].metadata == {"confidence": 0.92}


def test_a_checkpoint_has_an_id_and_a_hash(agent: AgentStateProtocol) -> None:
    cp = agent.checkpoint(
        state={"reasoning": "User likely prefers quiet places with Wi-Fi"},
        metadata={"confidence": 0.88, "tokens_used": 132},
        description="Preference inference",
        logic_step="infer_preferences",
    )

    again = agent.checkpoint(state={"reasoning": "User likely prefers quiet places with Wi-Fi"})
    assert cp.id != again.id
    assert cp.hash == again.hash


def test_a_rollback_goes_back_by_one_by_several_or_to_an_id(agent: AgentStateProtocol) -> None:
    steps = [agent.checkpoint(state={"step": number}) for number in range(8)]

    assert agent.rollback().state == {"step": 6}
    assert agent.rollback(steps=3).state == {"step": 3}
    assert agent.rollback(to_checkpoint_id=steps[1].id[:8]).state == {"step": 1}
    assert agent.get_state() == {"step": 1}


def test_a_branch_is_switched_to_and_back_from(agent: AgentStateProtocol) -> None:
    agent.checkpoint(state={"strategy": "stepwise"})
    agent.branch("creative")
    agent.checkpoint(state={"strategy": "lateral"})
    agent.switch_branch("main")

    assert agent.get_state() == {"strategy": "stepwise"}
    agent.merge("creative")
    assert agent.get_state() == {"strategy": "lateral"}


def test_a_risky_call_is_tried_again_and_then_falls_back(agent: AgentStateProtocol) -> None:
    calls: list[Any] = []

    def call_external_api(query: str) -> Any:
        calls.append(query)
        raise ConnectionError("the API does not answer")

    def use_cached_data(state: Any) -> Any:
        return {"headlines": ["from the cache"]}

    def risky_api_call(state: Any) -> Any:
        return call_external_api(state["query"])

    result, cp = agent.safe_execute(
        func=risky_api_call,
        state={"query": "latest market headlines"},
        description="fetch_headlines",
        max_retries=3,
        fallback=use_cached_data,
    )

    assert result == cp.state == {"headlines": ["from the cache"]}
    assert calls == ["latest market headlines"] * 3
    assert agent.current_branch == "main"
    assert agent.metrics["failed_attempts"] == 3


def test_the_tree_shows_what_happened(agent: AgentStateProtocol) -> None:
    agent.checkpoint({"n": 1}, description="Task accepted")
    agent.checkpoint({"n": 2}, description="Plan generated")
    failed: list[int] = []

    def retried(state: Any) -> Any:
        if not failed:
            failed.append(1)
            raise TimeoutError("too slow")
        return {"n": 3}

    agent.safe_execute(retried, {"n": 2}, description="API")
    agent.checkpoint({"n": 4}, description="Summary complete")

    tree = agent.visualize_tree()
    shown = [line.split(" [")[0] for line in tree.splitlines()]
    assert shown == [
        "● Task accepted",
        "● Plan generated",
        "● Before: API",
        "├─ ✗ Failed (attempt 1): API",
        "↺ API",
        "● Summary complete",
    ]
    assert "TimeoutError: too slow" in tree
    assert agent.history()[0].short in tree


def test_a_decorated_function_is_a_step() -> None:
    @agentstateprotocol_step("analyze_data")
    def analyze(state: Any) -> Any:
        return {"analysis": state["data"] * 2}

    result = analyze({"data": 21})

    assert result == {"analysis": 42}
    with AgentStateProtocol("default") as default:
        assert default.get_state() == {"analysis": 42}
        assert [step.logic_step for step in default.history()] == ["analyze_data"] * 2


def test_strategies_are_composed() -> None:
    agent = AgentStateProtocol(
        "resilient-agent",
        recovery_strategies=[
            CompositeStrategy(
                [
                    RetryWithBackoff(base_delay=0.001, max_delay=0.03),
                    DegradeGracefully(),
                ]
            )
        ],
    )
    seen: list[Any] = []

    def hungry(state: Any) -> Any:
        seen.append(state)
        if len(seen) == 1:
            raise ConnectionError("try again")
        if len(seen) == 2:
            raise RuntimeError("too much")
        return {"ok": True}

    agent.safe_execute(hungry, {"query": "x"}, max_retries=3)

    assert seen[:2] == [{"query": "x"}] * 2
    assert seen[2] == {"query": "x", "_quality": "minimal", "_max_tokens": 100}
    agent.close()


@pytest.mark.parametrize("storage", [FileStore, SqliteStore])
def test_an_agent_is_found_again_in_its_storage(storage: type[Any]) -> None:
    with storage("agent.db") as opened:
        agent = AgentStateProtocol("my-agent", storage_backend=opened)
        agent.checkpoint({"n": 1})

    with storage("agent.db") as opened:
        assert AgentStateProtocol("my-agent", storage_backend=opened).get_state() == {"n": 1}


def test_a_wrapped_function_of_a_framework_is_a_step() -> None:
    class Chain:
        def invoke(self, given: dict[str, str]) -> str:
            return given["input"].upper()

    my_chain = Chain()
    middleware = AgentStateProtocolMiddleware("langchain-agent")
    wrapped_chain = middleware.wrap(my_chain.invoke, "process_query")
    result = wrapped_chain({"input": "Hello"})

    assert result == "HELLO"
    assert middleware.agent.get_state() == {"result": "HELLO"}
    assert [step.logic_step for step in middleware.get_history()] == ["process_query"] * 2
    assert "process_query" in middleware.get_tree()


def test_a_block_is_a_step() -> None:
    with checkpoint_context(description="Data processing") as ctx:
        result = sum(range(10))
        ctx.state = {"result": result}

    assert ctx.checkpoint is not None and ctx.checkpoint.state == {"result": 45}
    assert ctx.agent.get_state() == {"result": 45}
