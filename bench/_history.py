"""Lists the history of a thread in a process that does nothing else.

`python -m bench._history ENGINE FOLDER URL STEPS` writes one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench._clock import own_peak_bytes, resident_bytes
from bench._model import Place
from bench._registry import engines
from bench.engines.savers import Saver, saver


def listed(side: Saver, steps: int) -> dict[str, float]:
    """The figures of one listing of all snapshots, which are all held, and of looking at them."""
    from bench._graphs import Talking, now

    loop = Talking(0)
    graph = loop.compiled(side.checkpointer(), side.delta)
    before, began = resident_bytes(), now()
    snapshots = list(graph.get_state_history(loop.config()))
    done, held, peak = now(), resident_bytes(), own_peak_bytes()
    last = [found[-1].id for one in snapshots if (found := _messages(one))]
    looked = time.perf_counter()
    counted = sum(len(message.content) > 0 for one in snapshots for message in _messages(one))
    read = time.perf_counter()
    assert last == [f"message-{number}" for number in range(steps, -1, -1)], "another history"
    assert counted == (steps + 1) * (steps + 2) // 2, "messages are missing in the history"
    return {
        "history_s": done.wall - began.wall,
        "history_cpu_s": done.cpu - began.cpu,
        "last_s": looked - began.wall,
        "read_s": read - began.wall,
        "more_mb": (max(peak, held) - before) / 1e6,
        "read_mb": (own_peak_bytes() - before) / 1e6,
        "snapshots": len(snapshots),
    }


def _messages(snapshot: Any) -> list[Any]:
    found: list[Any] = snapshot.values.get("messages", [])
    return found


def main() -> None:
    """Whatever a peer prints goes to the error stream."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine, folder, url, steps = sys.argv[1:]
    side = saver(engines()[engine].open(Place(Path(folder), url=url)))
    answer.write(json.dumps(listed(side, int(steps))) + "\n")
    answer.close()
    side.close()


if __name__ == "__main__":
    main()
