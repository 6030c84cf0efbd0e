"""A workflow that is killed goes on, in another process, after its last checkpoint."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage
from tests.frameworks.agents.agent_framework.flows import counting
from tests.frameworks.turn import ROOT

FLOWS = "tests.frameworks.agents.agent_framework.flows"
PROGRAM = f"import asyncio\nfrom {FLOWS} import main\nasyncio.run(main())"


def test_a_killed_workflow_goes_on_after_its_last_step(tmp_path: Path) -> None:
    place = tmp_path / "store"
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.split() == ["1", "2", "3"]

    async def go_on() -> list[object]:
        async with RopewalkCheckpointStorage(place) as storage:
            latest = await storage.get_latest(workflow_name="counting")
            assert latest is not None and latest.state["log"] == [1, 2, 3]
            workflow = counting(storage)
            result = await workflow.run(checkpoint_id=latest.checkpoint_id)
            (counter,) = workflow.executors.values()
            assert storage.store.check().problems == ()
            return [result.get_outputs(), counter.done]

    assert asyncio.run(go_on()) == [[[1, 2, 3, 4, 5, 6]], [1, 2, 3, 4, 5, 6]]


def test_a_program_that_has_not_loaded_workflows_reads_a_checkpoint(tmp_path: Path) -> None:
    place = str(tmp_path / "store")

    async def write() -> None:
        async with RopewalkCheckpointStorage(place) as storage:
            await counting(storage).run(1)

    asyncio.run(write())
    program = (
        "import asyncio, sys\n"
        "from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage\n"
        "async def read():\n"
        "    async with RopewalkCheckpointStorage(sys.argv[1]) as storage:\n"
        "        saved = await storage.list_checkpoints(workflow_name='counting')\n"
        "        print(sum(len(one.messages) for one in saved))\n"
        "asyncio.run(read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, check=False
    )

    assert done.stdout == "6\n", done.stderr


def test_two_processes_run_one_workflow_and_lose_nothing(tmp_path: Path) -> None:
    place = tmp_path / "store"
    program = (
        f"import asyncio, sys\nfrom {FLOWS} import *\n"
        "async def run():\n"
        "    async with RopewalkCheckpointStorage(sys.argv[1]) as storage:\n"
        "        for _ in range(3):\n"
        "            await counting(storage).run(1)\n"
        "asyncio.run(run())\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(place)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in running:
        _, said = one.communicate(timeout=300)
        assert one.returncode == 0 and "Failed to create checkpoint" not in said, said

    async def read() -> list[list[int]]:
        async with RopewalkCheckpointStorage(place) as storage:
            saved = await storage.list_checkpoints(workflow_name="counting")
            return sorted(one.state.get("log", []) for one in saved)

    steps = [list(range(1, step + 1)) for step in range(7)]
    assert asyncio.run(read()) == sorted(steps * 6)
