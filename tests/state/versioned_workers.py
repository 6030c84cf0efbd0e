"""Processes that the tests of states start, and kill.

    python -m tests.state.versioned_workers own ENGINE FOLDER NAME COUNT
    python -m tests.state.versioned_workers add ENGINE FOLDER NAME COUNT
    python -m tests.state.versioned_workers write ENGINE FOLDER SEED

Each says `ready`, and begins when a line comes in. Then it says what was acknowledged.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

from ropewalk.state import Versioned
from ropewalk.store import FileStore, SqliteStore
from tests.state.large import messages

ENGINES: dict[str, type[SqliteStore | FileStore]] = {"sqlite": SqliteStore, "files": FileStore}
RULES = {"n": "add", "log": "append"}


def opened(engine: str, folder: str) -> Versioned:
    """The state that all workers share."""
    state = Versioned(ENGINES[engine](folder), mergers=RULES)
    say("ready")
    sys.stdin.readline()
    return state


def own(engine: str, folder: str, name: str, count: str) -> None:
    """Set keys of its own, one commit each, with one handle that lives long."""
    state = opened(engine, folder)
    for number in range(int(count)):
        state[f"{name}/{number}"] = {"by": name, "number": number}
        state.commit()
        say(f"{name}/{number}")
    state.store.close()


def add(engine: str, folder: str, name: str, count: str) -> None:
    """Add to one counter, and append to one list that it holds, in place."""
    state = opened(engine, folder)
    log, chat = state["log"], state.namespace("agents").namespace(name)
    chat["own"] = messages(50)
    for number in range(int(count)):
        state["n"] += 1
        log.append(f"{name}/{number}")
        chat["own"].append(number)
        if number % 7 == 3:
            state.refresh()
        state.commit(agent_note(name))
        say(f"{name}/{number}")
    assert state["log"] is log
    state.store.close()


def agent_note(name: str) -> str:
    return f"by {name}"


def write(engine: str, folder: str, seed: str) -> None:
    """Commit version after version, and say each when it is acknowledged."""
    choose, state = random.Random(int(seed)), opened(engine, folder)
    while True:
        number = state.get("count", 0) + 1
        state["count"] = number
        state.setdefault("chat", []).append({"id": number, "text": "x" * choose.randrange(3000)})
        state.setdefault("last", {})["number"] = number
        if choose.random() < 0.1:
            state["blob"] = (number, choose.randbytes(200_000))
        if choose.random() < 0.05:
            del state["chat"][:20]
        say(f"try {number}")
        say(f"{number} {state.commit()}")


def shown(state: Any) -> str:
    """What must be true of the state at any commit."""
    number = state["count"]
    assert state["last"] == {"number": number}
    assert [one["id"] for one in state["chat"]] == list(
        range(state["chat"][0]["id"], number + 1) if state["chat"] else []
    )
    assert state.get("blob", (0, b""))[0] <= number
    return str(number)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # At once, and whole.


if __name__ == "__main__":
    work: dict[str, Callable[..., None]] = {"own": own, "add": add, "write": write}
    work[sys.argv[1]](*sys.argv[2:])
