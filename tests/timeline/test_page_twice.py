"""The page of the mission and the first example of README, as scripts that run twice in a folder.

Only the import lines of the page are others, and what stands for something is filled in: the
functions that it calls, and the ids.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from ropewalk import Timeline
from tests.cli.support import Done, environment, process
from tests.pages import python_blocks

README = Path(__file__).parents[2] / "README.md"

GIVEN = """
def call_external_api(query):
    raise ConnectionError("the API does not answer")

def use_cached_data(state):
    return {"headlines": ["from the cache"]}

def process(data):
    return sorted(data)

def process_data(data):
    return sum(data)

class my_chain:
    def invoke(given):
        return given["input"].upper()

raw_data = [3, 1, 2]
data = [1, 2, 3]
"""

PAGE = """
from ropewalk import Timeline as AgentStateProtocol

agent = AgentStateProtocol("research-agent")
agent.checkpoint(
    state={"task": "Find best coffee shops in NYC", "stage": "parse"},
    metadata={"confidence": 0.92},
    description="Parsed request",
    logic_step="parse_input",
)
agent.checkpoint(
    state={
        "task": "Find best coffee shops in NYC",
        "stage": "search",
        "results": ["Devocion", "La Cabra"],
    },
    metadata={"confidence": 0.87},
    description="Collected candidates",
    logic_step="search",
)

# Recover if next step fails
agent.rollback()

# Try a different path
agent.branch("reviews-first")
agent.checkpoint(
    state={"task": "Find best coffee shops in NYC", "stage": "reviews"},
    logic_step="review_aggregation",
)

cp = agent.checkpoint(
    state={"reasoning": "User likely prefers quiet places with Wi-Fi"},
    metadata={"confidence": 0.88, "tokens_used": 132},
    description="Preference inference",
    logic_step="infer_preferences",
)
print(cp.id, cp.hash)

abc123 = agent.history()[-1].id

agent.rollback()              # One step back
agent.rollback(steps=3)       # N steps back
agent.rollback(to_checkpoint_id=abc123)

agent.checkpoint(state={"strategy": "stepwise"})
agent.branch("creative")
agent.checkpoint(state={"strategy": "lateral"})
agent.switch_branch("main")

def risky_api_call(state):
    return call_external_api(state["query"])

result, cp = agent.safe_execute(
    func=risky_api_call,
    state={"query": "latest market headlines"},
    description="fetch_headlines",
    max_retries=3,
    fallback=use_cached_data,
)

print(agent.visualize_tree())

from ropewalk.timeline import step as agentstateprotocol_step

@agentstateprotocol_step("analyze_data")
def analyze(state):
    return {"analysis": process(state["data"])}

result = analyze({"data": raw_data})

from ropewalk import Timeline as AgentStateProtocol
from ropewalk.recovery import RetryWithBackoff, DegradeGracefully, CompositeStrategy

agent = AgentStateProtocol(
    "resilient-agent",
    recovery_strategies=[
        CompositeStrategy([
            RetryWithBackoff(base_delay=1.0, max_delay=30.0),
            DegradeGracefully(),
        ])
    ],
)

from ropewalk import FileStore as FileSystemStorage, SqliteStore as SQLiteStorage

# File-based storage (easy to inspect)
agent = AgentStateProtocol("my-agent", storage_backend=FileSystemStorage(".agentstateprotocol"))

# SQLite storage (good for production querying)
agent = AgentStateProtocol("my-agent", storage_backend=SQLiteStorage("agent.db"))

from ropewalk.timeline import Middleware as AgentStateProtocolMiddleware

middleware = AgentStateProtocolMiddleware("langchain-agent")
wrapped_chain = middleware.wrap(my_chain.invoke, "process_query")
result = wrapped_chain({"input": "Hello"})

from ropewalk.timeline import checkpoint_context

with checkpoint_context(description="Data processing") as ctx:
    result = process_data(data)
    ctx.state = {"result": result}
"""

COMMANDS = """
ropewalk demo
ropewalk log
ropewalk tree
ropewalk branches
ropewalk diff abc123 def456
ropewalk metrics
"""


def run(source: str, folder: Path) -> Done:
    """Run a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def commands(written: str, folder: Path) -> dict[str, Done]:
    """Run commands as they are written, each in a process; what each verb gave."""
    done: dict[str, Done] = {}
    for line in written.strip().splitlines():
        program, verb, *arguments = shlex.split(line.removeprefix("$ "))
        assert program == "ropewalk"
        if "abc123" in arguments:  # Two ids that a reader would take from the log.
            arguments = re.findall(r"^\* ([0-9a-f]{8}) ", done["log"].out, re.MULTILINE)[1::-1]
        done[verb] = process(verb, *arguments, cwd=folder)
        assert done[verb].code == 0, done[verb].err
    return done


def test_the_page_runs_from_top_to_bottom_twice_in_one_folder(tmp_path: Path) -> None:
    for again in (False, True):
        done = run(GIVEN + PAGE, tmp_path)

        assert done.code == 0, done.err
        # The branch has three steps, one of which was taken back; the second time it has more.
        assert ("UserWarning: branch 'reviews-first' can go back by 1 step" in done.err) != again
        assert "Traceback" not in done.err
        assert "Failed (attempt 3): fetch_headlines" in done.out
        told = commands(COMMANDS, tmp_path)
        assert "reviews-first" in told["demo"].out
        assert "Chose by distance" in told["log"].out
        assert "Signs: " in told["tree"].out
        assert "* main" in told["branches"].out
        assert "Devocion" in told["diff"].out
        assert "failed_attempts" in told["metrics"].out

    with Timeline("research-agent", tmp_path / ".ropewalk") as agent:
        assert Timeline.agents(agent.store) == [
            "default", "demo", "demo-2", "langchain-agent", "research-agent",
        ]  # fmt: skip
        assert [one.name for one in agent.list_branches()] == ["creative", "main", "reviews-first"]
        assert agent.get_state() == {"headlines": ["from the cache"]}
        assert agent.history("creative", 1)[0].state == {"strategy": "lateral"}
        assert agent.metrics["failed_attempts"] == 6
        assert agent.store.check(read_data=True).ok


def test_the_first_page_runs_twice_in_one_folder(tmp_path: Path) -> None:
    source = "\n".join(block for _, block in python_blocks(README.parent / "docs/basics/start.md"))

    for _ in range(2):
        assert run(source, tmp_path)[::2] == (0, "")


def test_the_first_example_of_readme_runs_twice_in_one_folder(tmp_path: Path) -> None:
    _, source = python_blocks(README)[0]
    blocks = re.findall(r"^```console\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    written = next(block for block in blocks if block.startswith("$ ropewalk tree"))

    for _ in range(2):
        done = run(source, tmp_path)
        assert (done.code, done.err) == (0, "")
        told = commands(written, tmp_path)
        assert told["undo"].out.startswith("Undid operation ")
        assert all(one.err == "" for one in told.values())
    with Timeline("research-agent", tmp_path / ".ropewalk") as agent:
        assert agent.current_branch == "main"
        assert agent.store.check(read_data=True).ok
