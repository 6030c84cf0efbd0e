"""A team of AutoGen that is saved after each task, and goes on from one run to the next.

    pip install '.[autogen]' autogen-ext
    python examples/autogen_multi_agent.py team.ropewalk "a week in Rome"
    python examples/autogen_multi_agent.py team.ropewalk "and two days in Oslo"
    python examples/autogen_multi_agent.py team.ropewalk --rollback

The agents keep their messages in the store as they come, and the saved team holds references to
them. Large results of tools are kept outside the team's own report. There is no model behind it,
so that it runs anywhere.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ropewalk import SqliteStore, Store
from ropewalk.adapters.autogen import AutoGenAdapter, TeamTimeline

AGENTS = ("scout", "planner")


def build(store: Store) -> Any:
    """The team: a scout and a planner who answer in turns."""
    # Here and not above: this file can be looked at where there is no AutoGen.
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_ext.models.replay import ReplayChatCompletionClient

    from ropewalk.adapters.autogen import RopewalkContext
    from ropewalk.threads import ThreadCheckpointer

    threads: ThreadCheckpointer[Any] = ThreadCheckpointer(store)
    members = [
        AssistantAgent(
            name,
            ReplayChatCompletionClient([f"{name}: noted."] * 99),  # stands for your model
            model_context=RopewalkContext(f"trip/{name}", threads),
        )
        for name in AGENTS
    ]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(3))


async def run(store: Store, task: str) -> None:
    """Go on where the team was, do one task, and save the team."""
    team, timeline = build(store), TeamTimeline("trip", store)
    if await timeline.ahead() is not None:
        loaded = await timeline.load_state(team)
        print(f"goes on after: {loaded.description}")
    result = await team.run(task=task)
    saved = await timeline.save_state(team, task)
    print(f"saved as {saved.short}; the whole state takes {len(json.dumps(saved.state)):,} bytes")

    report = [{"role": "worker", "said": one.to_text(), "found": "x" * 50_000} for one in
              result.messages]  # fmt: skip
    adapter = AutoGenAdapter(backend=store)
    small = adapter.externalize_message_history(report, threshold_bytes=1024)
    same = adapter.hydrate_message_history(small) == report
    print(f"a report of {len(json.dumps(report)):,} bytes, as references {len(json.dumps(small)):,}"
          f"; it comes back: {'yes' if same else 'NO'}")  # fmt: skip
    for step in reversed(timeline.history()):
        print(f"  {step.short} {step.description}")


def main() -> None:
    """Do a task, or take the team back by one."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} STORE TASK, or STORE --rollback")
    with SqliteStore(sys.argv[1]) as store:
        if sys.argv[2] == "--rollback":
            back = TeamTimeline("trip", store).rollback()
            print(f"the next run goes on after: {back.description}")
            return
        try:
            asyncio.run(run(store, sys.argv[2]))
        except ModuleNotFoundError:
            sys.exit("this example runs a team: pip install 'ropewalk[autogen]' autogen-ext")


if __name__ == "__main__":
    main()
