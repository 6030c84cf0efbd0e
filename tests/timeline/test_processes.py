"""Several processes on one timeline: each step is one line, in the words of who made it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk import Timeline
from tests.cli.support import environment, process

STEPS = 25
WRITERS = ("ann", "ben", "cat", "dan")
WRITER = """
import sys
from ropewalk import Timeline

name, steps = sys.argv[1], int(sys.argv[2])
with Timeline("team") as agent:
    state = agent.get_state()
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(steps):
        state[name] = number  # Nothing is read again: others write beside this one.
        agent.checkpoint(state, {"by": name}, f"Step {number} of {name}", f"work-{name}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where four processes have worked on one timeline at once."""
    folder = tmp_path_factory.mktemp("team")
    with Timeline("team", folder / ".ropewalk") as agent:
        agent.checkpoint({}, description="Began")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(STEPS)],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in WRITERS
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    return folder


def test_each_step_is_there_once_in_its_own_words(folder: Path) -> None:
    with Timeline("team", folder / ".ropewalk") as agent:
        *steps, first = agent.history(limit=None)

        assert first.description == "Began"
        for name in WRITERS:
            own = [step for step in steps if step.metadata == {"by": name}]
            assert [step.description for step in own] == [
                f"Step {number} of {name}" for number in reversed(range(STEPS))
            ]
            assert {step.logic_step for step in own} == {f"work-{name}"}
        assert len(steps) == STEPS * len(WRITERS) == agent.metrics["checkpoints"] - 1
        assert agent.metrics["merges"] == 0  # Nobody asked for one.
        assert agent.get_state() == dict.fromkeys(WRITERS, STEPS - 1)
        assert any(step.merged for step in steps)
        for step in steps:
            assert step.merged == step.to_dict(state=False)["merged"] == (len(step.parents) == 2)


def test_a_step_that_was_merged_bears_a_mark_wherever_it_is_listed(folder: Path) -> None:
    with Timeline("team", folder / ".ropewalk") as agent:
        steps = agent.history(limit=None)
        merged = [f"{step.description} {'[merged]' if step.merged else ''}" for step in steps]
        lines = agent.tree(fold=None)
    count = str(len(steps))

    log = process("log", "-n", count, cwd=folder).out.replace(" (main *)", "").splitlines()
    assert [line.split("Z ")[1].strip() for line in log] == [line.strip() for line in merged]
    records = process("log", "-n", count, "--json", cwd=folder).records
    assert [one["merged"] for one in records] == [step.merged for step in steps]
    assert [(line.id, line.merged) for line in lines] == [
        (step.id, step.merged) for step in reversed(steps)
    ]
    *drawn, legend = process("tree", "--all", cwd=folder).out.splitlines()
    assert [line.endswith("[merged]") for line in drawn] == [line.merged for line in lines]
    assert legend.endswith("[merged] with what others did meanwhile")
    last = next(step for step in steps if step.merged)
    assert "merged      with what others did" in process("show", last.short, cwd=folder).out


def test_the_state_that_was_handed_over_is_kept_beside_it(folder: Path) -> None:
    with Timeline("team", folder / ".ropewalk") as agent:
        step = next(step for step in agent.history(limit=None) if step.merged)
        own = agent.get(step.parents[1])

        assert (own.description, own.metadata) == (step.description, step.metadata)
        assert own.state == {step.metadata["by"]: step.state[step.metadata["by"]]}
        assert len(step.state) > 1
        agent.tag("kept", own.id)
        assert own.id in [line.id for line in agent.tree(fold=None)]
        agent.delete_tag("kept")
