"""A planner and three reviewers, each in a process of its own, share one plan.

    python examples/coherence_plan.py                       # a folder, for this machine
    python examples/coherence_plan.py postgresql://...      # or any other store

The reviewers take tasks from the plan and put their findings into it, all at once, and no
task is done twice and no finding is lost. An editor holds the summary, so that nobody else may
write it, and is killed: after a few seconds of silence another one takes over.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import ropewalk
from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig

TASKS = tuple(f"module-{number:02}" for number in range(1, 13))
REVIEWERS = ("ann", "bob", "cy")


def shared(store: Any) -> CoherenceCore:
    """The artifacts of this project, as every process opens them."""
    recovery = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=2)
    return CoherenceCore(store, name="review", crash_recovery=recovery)


def take(name: str, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan in which a reviewer has taken the next task, if there is one."""
    if plan["open"]:
        plan["taken"][name] = plan["open"].pop(0)
    return plan


def finish(name: str, finding: str, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan in which a reviewer is done with its task."""
    task = plan["taken"].pop(name)
    plan["findings"].append({"task": task, "by": name, "text": finding})
    return plan


def review(url: str, name: str) -> None:
    """What a reviewer does: take a task, look at it, say what was found, until none is left."""
    with ropewalk.open(url) as store, shared(store) as artifacts:
        while True:
            plan = artifacts.edit(name, "plan", partial(take, name)).value
            task = plan["taken"].get(name)
            if task is None:
                return
            finding = f"{task} has {len(task)} letters"  # A model would be asked here.
            artifacts.edit(name, "plan", partial(finish, name, finding))


def hold(url: str, name: str) -> None:
    """What the first editor does: it holds the summary, and never gets to write it."""
    with ropewalk.open(url) as store, shared(store) as artifacts:
        artifacts.hold(name, "summary")
        print("held", flush=True)
        signal.pause()


def started(role: str, url: str, name: str) -> subprocess.Popen[str]:
    """Another process of this program."""
    command = [sys.executable, __file__, role, url, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def plan(url: str) -> None:
    """The planner, which starts the others and looks at what they made."""
    with ropewalk.open(url) as store, shared(store) as artifacts:
        begin = {"open": list(TASKS), "taken": {}, "findings": []}
        # Whatever an earlier run has left: an agent that has not seen it, replaces it.
        artifacts.publish("planner", {"plan": begin, "summary": ""})
        reviewers = [started("review", url, name) for name in REVIEWERS]
        for one in reviewers:
            if one.wait() != 0:
                sys.exit("a reviewer failed")
        tell(artifacts)
        take_over(artifacts, url)


def tell(artifacts: CoherenceCore) -> None:
    """Say what the reviewers made of the plan."""
    found = artifacts.read("planner", "plan")
    done = Counter(finding["task"] for finding in found.value["findings"])
    print(f"tasks: {len(TASKS)}, findings: {sum(done.values())}")
    print(f"some were done twice: {max(done.values()) > 1}")
    print(f"versions of the plan: {found.version}")
    last = artifacts.history("plan").history(limit=1)[0]
    print(f"the last was written by a reviewer: {last.agent in REVIEWERS}")


def take_over(artifacts: CoherenceCore, url: str) -> None:
    """Kill an editor that holds the summary, and let another write it."""
    editor = started("hold", url, "first-editor")
    assert editor.stdout is not None
    editor.stdout.readline()
    editor.kill()
    editor.wait()
    print("the first editor was killed while it held the summary")
    written = artifacts.edit("second-editor", "summary", lambda _: "Twelve modules, all fine.")
    print(f"written by {written.agent}: {written.value}")


def main(arguments: list[str]) -> None:
    """One of the roles; the planner if none is named."""
    if len(arguments) == 3:
        {"review": review, "hold": hold}[arguments[0]](*arguments[1:])
        return
    if arguments:
        plan(arguments[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        plan(str(Path(folder) / "shared.ropewalk"))


if __name__ == "__main__":
    main(sys.argv[1:])
