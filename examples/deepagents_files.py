"""A deep agent whose files are versions: it writes a plan, changes it, and is taken back.

    pip install '.[deepagents]'
    python examples/deepagents_files.py [FOLDER]

A scripted model stands for a real one, so that it runs anywhere. Run it again with the same
folder to see the conversation go on, and then look at what it left:

    ropewalk --store FOLDER log --timeline files --branch thread/trip
"""

from __future__ import annotations

import sys
from typing import Any

import ropewalk
from ropewalk.testing import ModelRequest, ModelServer, Turn

PLANS = ("by plane", "by train", "by ship", "on foot")
"""How the agent would travel, in the order in which it thinks of it."""


def script(request: ModelRequest) -> Turn:
    """What the model does: it looks at the plan, changes it, and says so."""
    number, step = divmod(request.turn, 2)
    if step == 1:
        return Turn(f"We go {PLANS[number % len(PLANS)]}.")
    if number == 0:
        return Turn.calling("write_file", file_path="/plan.md", content=f"To Rome\n{PLANS[0]}\n")
    old, new = PLANS[(number - 1) % len(PLANS)], PLANS[number % len(PLANS)]
    return Turn.calling("edit_file", file_path="/plan.md", old_string=old, new_string=new)


def made_on(store: ropewalk.Store, url: str) -> tuple[Any, Any]:
    """An agent, and the files of all its threads."""
    # Imported here, so that this file can be read where Deep Agents is not installed.
    from deepagents import create_deep_agent
    from langchain_anthropic import ChatAnthropic

    from ropewalk.adapters.deepagents import FileVersions, RopewalkBackend, thread_branch
    from ropewalk.adapters.langgraph import RopewalkSaver

    files = RopewalkBackend(store, branch=thread_branch)
    agent = create_deep_agent(
        model=ChatAnthropic(model_name="claude-sonnet-4-6", base_url=url, api_key="none"),
        backend=files,
        middleware=[FileVersions(files)],
        checkpointer=RopewalkSaver(store),
    )
    return agent, files


def main(folder: str = "trip.ropewalk") -> None:
    """Take two turns, and fork the conversation before the second one."""
    from ropewalk.adapters.deepagents import fork_thread

    with ropewalk.open(folder) as store, ModelServer(script) as server:
        agent, files = made_on(store, server.url)
        trip: Any = {"configurable": {"thread_id": "trip"}}
        plan = files.on("thread/trip")
        for wish in ("Plan a trip to Rome.", "Think again."):
            before = agent.get_state(trip).config
            said = agent.invoke({"messages": [("user", wish)]}, trip, durability="sync")
            print(f"{wish:22}", said["messages"][-1].content)
        for step in reversed(plan.timeline.history()):
            print("  step", step.short, step.description)

        name = f"trip-before-{plan.version()[:8]}"
        fork_thread(agent, before, name, files)
        print("fork has:", lines(files.on(f"thread/{name}")), "- trip has:", lines(plan))


def lines(files: Any) -> list[str]:
    """The lines of the plan."""
    return str(files.read("/plan.md").file_data["content"]).splitlines()


if __name__ == "__main__":
    main(*sys.argv[1:])
