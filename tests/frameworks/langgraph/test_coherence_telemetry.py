"""Telemetry for LangSmith: its own client, a graph of LangGraph, and a server that listens."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langsmith import Client, traceable, tracing_context
from langsmith.run_helpers import get_current_run_tree

from ropewalk.coherence import CoherenceCore


class Listener(ThreadingHTTPServer):
    """A server that takes what a client of LangSmith sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.metadata: dict[str, dict[str, Any]] = {}

    @property
    def client(self) -> Client:
        url = f"http://127.0.0.1:{self.server_port}"
        return Client(api_url=url, api_key="test", auto_batch_tracing=False, info={})


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        self._take()

    def do_PATCH(self) -> None:
        self._take()

    def _take(self) -> None:
        run = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        metadata = (run.get("extra") or {}).get("metadata", {})
        self.server.metadata.setdefault(run.get("name", ""), {}).update(metadata)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def core() -> Iterator[CoherenceCore]:
    with CoherenceCore(telemetry="langsmith") as made:
        made.write("planner", "plan", {"step": 1})
        yield made


class State(TypedDict):
    step: int


def test_what_a_node_does_with_artifacts_is_sent_with_its_run(
    core: CoherenceCore, listener: Listener
) -> None:
    def review(state: State) -> State:
        core.read("reviewer", "plan")
        return {"step": core.read("reviewer", "plan").value["step"]}

    def revise(state: State) -> State:
        return {"step": core.edit("planner", "plan", lambda plan: {"step": 2}).value["step"]}

    graph = StateGraph(State)
    graph.add_node("review", review)
    graph.add_node("revise", revise)
    graph.add_edge(START, "review")
    graph.add_edge("review", "revise")
    graph.add_edge("revise", END)
    with tracing_context(enabled=True, client=listener.client):
        graph.compile().invoke({"step": 0})

    review_told, revise_told = listener.metadata["review"], listener.metadata["revise"]
    assert review_told["ropewalk.operations"] == review_told["ropewalk.reads"] == 2
    assert review_told["ropewalk.cache_hit_rate"] == 0.5
    assert review_told["ropewalk.agent_name"] == "reviewer"
    assert (revise_told["ropewalk.operation"], revise_told["ropewalk.reads"]) == ("put", 0)


def test_runs_are_counted_apart(core: CoherenceCore, listener: Listener) -> None:
    @traceable
    def read(times: int) -> Any:
        for _ in range(times):
            core.read("reviewer", "plan")
        run = get_current_run_tree()
        assert run is not None
        return dict(run.extra["metadata"])

    with tracing_context(enabled=True, client=listener.client):
        told = [read(3), read(1)]

    assert [one["ropewalk.reads"] for one in told] == [3, 1]


def test_asynchronous_reads_are_those_of_their_run(core: CoherenceCore, listener: Listener) -> None:
    @traceable
    async def read() -> Any:
        await core.aread("reviewer", "plan")
        run = get_current_run_tree()
        assert run is not None
        return dict(run.extra["metadata"])

    async def both() -> list[Any]:
        return list(await asyncio.gather(read(), read()))

    with tracing_context(enabled=True, client=listener.client):
        told = asyncio.run(both())

    assert [one["ropewalk.reads"] for one in told] == [1, 1]


def test_without_a_run_nothing_is_done(core: CoherenceCore) -> None:
    with tracing_context(enabled=False):
        assert core.read("reviewer", "plan").value == {"step": 1}
    assert core._client.recorder.logs.failures == 0
