"""One turn of a conversation in a process of its own: `python -m tests.frameworks.turn`.

The arguments are the framework, the folder of a store, and what is wanted, as JSON. It prints
what came of it as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.frameworks.trip import WAITING, Kit

ROOT = Path(__file__).parent.parent.parent


def turn_in_another_process(kit: Kit, folder: Path, **wanted: Any) -> dict[str, Any]:
    """What came of a turn there; see `take_turn` for what may be wanted."""
    return finish(start(kit, folder, **wanted))


def start(kit: Kit, folder: Path, **wanted: Any) -> subprocess.Popen[str]:
    """Begin a turn in another process."""
    name = vars(kit)["__name__"].split(".")[-2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.frameworks.turn", name, str(folder), json.dumps(wanted)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_the_first_node(process: subprocess.Popen[str]) -> None:
    """Read until a turn that waits in its first node is there."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.strip() == WAITING:
            return
    raise AssertionError(process.communicate()[1])


def finish(process: subprocess.Popen[str], expected: int = 0) -> dict[str, Any]:
    """Let a turn go on, and give what came of it; nothing if it is expected to fail."""
    out, err = process.communicate("go on\n", timeout=300)
    assert process.returncode == expected, err
    told: dict[str, Any] = {} if expected else json.loads(out.splitlines()[-1])
    return told


def take_turn(
    kit: Kit,
    checkpointer: Any,
    config: dict[str, Any],
    say: str | None = None,
    given: dict[str, Any] | None = None,
    interrupts: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Say something, or hand over what is given, and tell what the graph did."""
    before = checkpointer.get_state(config)
    seen = 0 if before is None else len(before.visited)
    messages = [checkpointer.models.message.text_message(say)] if say else []
    graph = kit.build(checkpointer, **(interrupts or {}))
    graph.invoke({**({"messages": messages} if say else {}), **(given or {})}, dict(config))
    return tell(checkpointer, config, seen)


def tell(checkpointer: Any, config: dict[str, Any], seen: int) -> dict[str, Any]:
    """What a thread has come to, and which nodes ran since so many were seen."""
    state = checkpointer.get_state(config)
    return {
        "class": type(state).__name__,
        "ran": state.visited[seen:],
        "plans": {place: plan.days for place, plan in state.plans.items()},
        "stage": state.stage.name,
        "notes": state.notes,
        "interrupted": state.is_interrupted(),
        "at": state.execution_meta.current_node,
        "said": [message.text() for message in checkpointer.list_messages(config)],
    }


def main(framework: str, folder: str, wanted: str) -> None:
    kit: Any = import_module(f"tests.frameworks.{framework}.graph")
    checkpointer = kit.RopewalkCheckpointer(folder, types=[kit.TripState])
    print(json.dumps(take_turn(kit, checkpointer, **json.loads(wanted))))
    checkpointer.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
