"""What other processes do in these tests: run as `python -m tests.state.workers <what> ...`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from ropewalk import AgentState, Externalized, FileStore, Inline, SqliteStore, Store

ROOT = Path(__file__).parent.parent.parent
ENGINES: dict[str, type[FileStore | SqliteStore]] = {"files": FileStore, "sqlite": SqliteStore}


class Large(AgentState):
    """A state with a field that no step reads."""

    step: Inline[int]
    docs: Externalized[Any]


def run(*arguments: object) -> Any:
    """What a worker printed, from JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.state.workers", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def make(engine: str, folder: str, megabytes: str) -> dict[str, Any]:
    """Store a value of random bytes, and give a checkpoint."""
    random = Random(5)
    docs = [{"id": n, "data": random.randbytes(1_000_000)} for n in range(int(megabytes))]
    with _open(engine, folder) as store:
        return Large(backend=store, step=0, docs=docs).to_checkpoint_dict()


def ids(engine: str, folder: str, checkpoint: str) -> list[int]:
    """What the documents of a checkpoint are called."""
    with _open(engine, folder) as store:
        state = Large.from_checkpoint_dict(json.loads(checkpoint), backend=store)
        return [one["id"] for one in state.docs]


def steps(engine: str, folder: str, checkpoint: str, count: str, *read: str) -> dict[str, Any]:
    """Take steps, which read fields or nothing; how much memory they took beyond the imports."""
    before = _peak()
    kept = json.loads(checkpoint)
    with _open(engine, folder) as store:
        for number in range(int(count)):
            state = Large.from_checkpoint_dict(kept, backend=store)
            state.step = number + 1
            for name in read:
                state.hydrate(name)
            kept = json.loads(json.dumps(state.to_checkpoint_dict()))
    return {"above": _peak() - before, "checkpoint": kept}


def _open(engine: str, folder: str) -> Store:
    return ENGINES[engine](folder)


def _peak() -> int:
    # Not `ru_maxrss`: that counts what the parent had when it started this process.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [one for one in status.splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])) + "\n")
