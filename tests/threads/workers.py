"""Processes that the tests of threads start, and kill.

    python -m tests.threads.workers append PLACE NAME COUNT
    python -m tests.threads.workers write PLACE SEED

Each says `ready`, and begins when a line comes in. Then it says what was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ropewalk.threads import ThreadCheckpointer

ROOT = Path(__file__).parent.parent.parent
T = {"thread_id": "shared", "user_id": "team"}


def message(id: Any, text: str = "said") -> dict[str, Any]:
    return {"role": "user", "content": f"{text} {id}", "id": id}


def opened(place: str) -> ThreadCheckpointer[Any]:
    """The threads that all workers share."""
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer(place)
    chat.setup()
    say("ready")
    sys.stdin.readline()
    return chat


def append(place: str, name: str, count: str) -> None:
    """Append messages, one or two at a time, by both faces; then say what it reads."""
    with opened(place) as chat, asyncio.Runner() as runner:
        number, choose = 0, random.Random(name)
        while number < int(count):
            size = min(choose.choice([1, 1, 2]), int(count) - number)
            made = [message(f"{name}/{number + more}") for more in range(size)]
            if choose.random() < 0.5:
                chat.put_messages(T, made)
            else:
                runner.run(chat.aput_messages(T, made))
            number += size
            if choose.random() < 0.2:
                chat.put_messages(T, made)  # Once more, as after a reply that was lost.
            say(f"{name}/{number - 1}")
        assert chat.get_message(T, f"{name}/0").text == f"said {name}/0"


def write(place: str, seed: str) -> None:
    """Put a state, messages and the record at once, again and again."""
    chat, choose = opened(place), random.Random(int(seed))
    while True:
        number = (chat.get_state(T) or {"number": 0})["number"] + 1
        state = {"number": number, "blob": choose.randbytes(choose.choice([10, 20_000]))}
        made = [message(f"{number}/{one}") for one in range(choose.randrange(1, 4))]
        say(f"try {number} {len(made)}")
        chat.put(T, state, made, {"thread_name": str(number), "metadata": {"count": len(made)}})
        say(f"done {number} {len(made)}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # At once, and whole.


def start(*arguments: object) -> subprocess.Popen[str]:
    """A worker that will be ready to begin."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.threads.workers", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def begin(*workers: subprocess.Popen[str]) -> None:
    """Let workers go when all are ready."""
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()


if __name__ == "__main__":
    work: dict[str, Callable[..., None]] = {"append": append, "write": write}
    work[sys.argv[1]](*sys.argv[2:])
