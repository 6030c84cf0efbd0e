"""A deep agent, the script of its model, and a program that runs it in a process of its own.

    python -m tests.frameworks.agents.deepagents.agents FOLDER URL THREAD

The agent goes on with the thread where it stopped. Its tool `crash` kills the process, once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool

import ropewalk
from ropewalk.adapters.deepagents import FileVersions, RopewalkBackend, thread_branch
from ropewalk.adapters.langgraph import RopewalkSaver, RopewalkStore
from ropewalk.store import Store
from ropewalk.testing import Turn

SCRIPT = [
    Turn.calling("write_file", file_path="/plan.md", content="Rome\nby plane\n"),
    Turn.calling("edit_file", file_path="/plan.md", old_string="plane", new_string="train"),
    Turn.calling("crash"),
    Turn.calling("edit_file", file_path="/plan.md", old_string="Rome", new_string="Oslo"),
    Turn("Done."),
]


def thread(name: str = "one") -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def model_at(url: str, **options: Any) -> ChatAnthropic:
    """The client of Anthropic, with a scripted model behind it."""
    settings = {"max_retries": 0, **options}
    return ChatAnthropic(model_name="claude-sonnet-4-6", base_url=url, api_key="none", **settings)


def agent_on(
    store: Store, url: str, tools: Sequence[Any] = (), **options: Any
) -> tuple[Any, RopewalkBackend]:
    """An agent whose threads have files of their own, and these files."""
    backend = RopewalkBackend(store, branch=thread_branch)
    agent = create_deep_agent(
        model=model_at(url),
        tools=list(tools),
        **{
            "backend": backend,
            "middleware": [FileVersions(backend)],
            "checkpointer": RopewalkSaver(store),
            "store": RopewalkStore(store),
            **options,
        },
    )
    return agent, backend


def text_of(backend: RopewalkBackend, path: str) -> str:
    (found,) = backend.download_files([path])
    assert found.content is not None, found
    return str(found.content, "utf-8")


def ropewalk_says(*command: str) -> str:
    """What the command line prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def main(folder: str, url: str, name: str) -> None:
    """Run the agent until it ends, or dies."""
    mark = Path(folder) / "crashed"

    @tool
    def crash() -> str:
        """End the process, once."""
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    with ropewalk.open(Path(folder) / "store") as store:
        agent, _ = agent_on(store, url, [crash])
        begun = agent.get_state(thread(name)).created_at is not None
        given = None if begun else {"messages": [("user", "Plan a trip.")]}
        agent.invoke(given, thread(name), durability="sync")


if __name__ == "__main__":
    main(*sys.argv[1:])
