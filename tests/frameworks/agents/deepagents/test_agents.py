"""Deep agents whose files, threads and memory are kept by Ropewalk, with a scripted model."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

import ropewalk
from ropewalk.adapters.deepagents import FileVersions, RopewalkBackend, fork_thread, thread_branch
from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.store import Store
from ropewalk.testing import Call, ModelServer, Turn, by_turn
from tests.frameworks.agents.deepagents.agents import (
    SCRIPT,
    agent_on,
    model_at,
    text_of,
    thread,
)
from tests.frameworks.turn import ROOT

ASKED = {"messages": [("user", "Plan a trip.")]}
WITHOUT_CRASH = [turn for turn in SCRIPT if not turn.calls or turn.calls[0].tool != "crash"]


def ended_with(agent: Any, config: dict[str, Any]) -> str:
    return str(agent.get_state(config).values["messages"][-1].content)


def test_a_run_keeps_its_messages_and_its_files(any_store: Store) -> None:
    with ModelServer(by_turn(WITHOUT_CRASH)) as server:
        agent, backend = agent_on(any_store, server.url)
        agent.invoke(ASKED, thread())

    files = backend.on("thread/one")
    assert text_of(files, "/plan.md") == "Oslo\nby train\n"
    steps = [step.description for step in reversed(files.timeline.history())]
    assert steps == ["write /plan.md", "edit /plan.md", "edit /plan.md"]
    assert ended_with(agent_on(any_store, "http://nowhere")[0], thread()) == "Done."
    assert any_store.check().ok


def test_the_client_of_anthropic_streams_a_scripted_answer() -> None:
    turn = Turn("Let me look that up.", [Call("lookup", {"city": "Rome"})])
    with ModelServer([turn, Turn("refused", status=429)]) as server:
        lookup = {"name": "lookup", "description": "Looks.", "input_schema": {"type": "object"}}
        model = model_at(server.url).bind_tools([lookup])
        chunks = list(model.stream("Hello"))
        with pytest.raises(Exception, match="refused"):
            model.invoke("Hello")

    whole = sum(chunks[1:], chunks[0])
    assert len(chunks) > 4 and whole.text == turn.text
    assert [(one["name"], one["args"]) for one in whole.tool_calls] == [
        ("lookup", {"city": "Rome"})
    ]
    assert server.requests[0].body["stream"] is True
    assert server.requests[1].messages == [{"role": "user", "content": "Hello"}]


def test_a_killed_run_goes_on_in_another_process(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.frameworks.agents.deepagents.agents"]
    with ModelServer(by_turn(SCRIPT)) as server:
        run = [*program, str(tmp_path), server.url, "one"]
        first = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
        with ropewalk.open(tmp_path / "store") as store:
            files = RopewalkBackend(store).on("thread/one")
            assert text_of(files, "/plan.md") == "Rome\nby train\n"
        second = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)

    assert first.returncode == -signal.SIGKILL and second.returncode == 0, second.stderr
    # No turn of the model was repeated, and no edit made twice.
    assert [request.turn for request in server.requests] == [0, 1, 2, 3, 4]
    with ropewalk.open(tmp_path / "store") as store:
        agent, backend = agent_on(store, "http://nowhere")
        files = backend.on("thread/one")

        assert ended_with(agent, thread()) == "Done."
        assert text_of(files, "/plan.md") == "Oslo\nby train\n"
        assert len(files.timeline.history()) == 3
        assert store.check().ok


def test_a_fork_has_the_messages_and_files_of_an_earlier_checkpoint(any_store: Store) -> None:
    with ModelServer(by_turn(WITHOUT_CRASH)) as server:
        agent, backend = agent_on(any_store, server.url)
        agent.invoke(ASKED, thread())
        for state in list(agent.get_state_history(thread())):
            if state.values.get("files_version") is None:
                continue  # Before the run looked at its files.
            name = f"fork-{state.config['configurable']['checkpoint_id']}"
            made = fork_thread(agent, state.config, name, backend)
            results = [
                message.content
                for message in state.values["messages"]
                if isinstance(message, ToolMessage)
            ]
            text = ("", "Rome\nby plane\n", "Rome\nby train\n", "Oslo\nby train\n")[len(results)]
            files = backend.on(f"thread/{name}")
            (found,) = files.download_files(["/plan.md"])

            assert (found.content or b"").decode() == text
            assert agent.get_state(made).values["messages"] == state.values["messages"]
            if len(results) == 1:
                agent.invoke(None if state.next else ASKED, made)  # Goes its own way.
                assert text_of(files, "/plan.md") == "Oslo\nby train\n"

    assert text_of(backend.on("thread/one"), "/plan.md") == "Oslo\nby train\n"
    assert any_store.check().ok


def test_a_fork_shares_what_is_stored() -> None:
    long = "\n".join(f"line {number} of a long file" for number in range(5000))
    script = [Turn.calling("write_file", file_path="/long.txt", content=long), Turn("Done.")]
    with ropewalk.MemoryStore() as store, ModelServer(by_turn(script)) as server:
        agent, backend = agent_on(store, server.url)
        agent.invoke(ASKED, thread())
        before = store.stats().stored
        fork_thread(agent, thread(), "two", backend)

        assert text_of(backend.on("thread/two"), "/long.txt") == long
        assert store.stats().stored - before < before / 4


def test_a_fork_that_cannot_be_made_says_why() -> None:
    with ropewalk.MemoryStore() as store, ModelServer(by_turn(WITHOUT_CRASH)) as server:
        agent, backend = agent_on(store, server.url, middleware=[])
        agent.invoke(ASKED, thread())
        other, _ = agent_on(store, server.url, checkpointer=InMemorySaver())

        with pytest.raises(InvalidInput, match="FileVersions"):
            fork_thread(agent, thread(), "two", backend)
        with pytest.raises(NotFound):
            fork_thread(agent, thread("none"), "two")
        with pytest.raises(InvalidInput, match="already"):
            fork_thread(agent, thread(), "one")
        with pytest.raises(InvalidInput, match="RopewalkSaver"):
            fork_thread(other, thread(), "two")
        assert fork_thread(agent, thread(), "two") == thread("two")
        assert ended_with(agent, thread("two")) == "Done."


def test_tools_that_run_at_once_lose_nothing() -> None:
    # Of one file, Deep Agents itself refuses a second change in a turn.
    names = [f"/{at}.md" for at in range(6)]
    script = [
        Turn("", [Call("write_file", {"file_path": one, "content": "one two"}) for one in names]),
        Turn(
            "",
            [
                Call("edit_file", {"file_path": one, "old_string": "two", "new_string": one})
                for one in names
            ],
        ),
        Turn("Done."),
    ]
    with ropewalk.MemoryStore() as store, ModelServer(by_turn(script)) as server:
        agent, backend = agent_on(store, server.url)
        agent.invoke(ASKED, thread())
        files = backend.on("thread/one")
        noted = agent.get_state(thread()).values["files_version"]

        assert [text_of(files, one) for one in names] == [f"one {one}" for one in names]
        assert noted["version"] == files.version() and len(files.timeline.history()) == 12


def test_ten_threads_run_at_once(tmp_path: Path) -> None:
    async def run(agent: Any) -> None:
        await asyncio.gather(*[agent.ainvoke(ASKED, thread(f"{at}")) for at in range(10)])

    with ropewalk.open(tmp_path) as store, ModelServer(by_turn(WITHOUT_CRASH)) as server:
        agent, backend = agent_on(store, server.url)
        asyncio.run(run(agent))

        for at in range(10):
            assert text_of(backend.on(f"thread/{at}"), "/plan.md") == "Oslo\nby train\n"
            assert ended_with(agent, thread(f"{at}")) == "Done."
        assert store.check().ok


def test_routes_of_a_composite_backend_have_files_of_their_own() -> None:
    script = [
        Turn(
            "",
            [
                Call("write_file", {"file_path": f"{folder}/a.md", "content": folder or "state"})
                for folder in ("", "/memories", "/shared")
            ],
        ),
        Turn("Done."),
    ]
    with ropewalk.MemoryStore() as store, ModelServer(by_turn(script)) as server:
        ours = RopewalkBackend(store)
        both = CompositeBackend(
            default=StateBackend(),
            routes={"/memories/": ours, "/shared/": StoreBackend(namespace=lambda _: ("shared",))},
        )
        agent, _ = agent_on(store, server.url, backend=both, middleware=[FileVersions(ours)])
        result = agent.invoke(ASKED, thread())

        assert text_of(ours, "/a.md") == "/memories"
        assert result["files"]["/a.md"]["content"] == "state"
        assert agent.store.get(("shared",), "/a.md").value["content"] == "/shared"
        # The channel of the files is a delta channel, and comes back from our checkpoints.
        assert agent.get_state(thread()).values["files"] == result["files"]


def test_a_pruned_thread_keeps_what_its_delta_channels_need() -> None:
    turns = [
        Turn.calling("write_file", file_path=f"/{at}.md", content=f"text {at}") for at in range(12)
    ]
    with ropewalk.MemoryStore() as store, ModelServer(by_turn([*turns, Turn("Done.")])) as server:
        saver = RopewalkSaver(store)
        agent, _ = agent_on(
            store, server.url, backend=StateBackend(), middleware=[], checkpointer=saver
        )
        result = agent.invoke(ASKED, thread())
        saver.prune(["one"])
        state = agent.get_state(thread())

        assert len(list(saver.list(thread()))) == 1
        assert state.values["messages"] == result["messages"] and len(result["messages"]) == 26
        assert state.values["files"] == result["files"] and len(result["files"]) == 12


def test_the_branch_of_a_thread_needs_one() -> None:
    with pytest.raises(InvalidInput, match="thread_id"):
        thread_branch({})
