"""A process with one agent that holds an artifact and does what it is told.

    python -m tests.coherence.grant_worker URL TICK_SECONDS HEARTBEAT_TICKS

Each line of its input is a command, each is answered by one line of JSON:
`hold`, `read`, `write VALUE` (under the grant), `plain VALUE`, `state`, `release`, and `beaten`
when the grant was renewed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig, Grant
from ropewalk.errors import RopewalkError

ROOT = Path(__file__).parent.parent.parent
AGENT, ARTIFACT = "worker", "plan"


class Worker:
    """Such a process, as a test sees it."""

    def __init__(self, url: str, tick: float, heartbeat: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, url, str(tick), str(heartbeat)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.pid = self._process.pid
        assert self.answer() == "ready"

    def ask(self, command: str) -> Any:
        """What it answers."""
        self.tell(command)
        return self.answer()

    def tell(self, command: str) -> None:
        """Give a command, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The next line that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the worker ended"
        return json.loads(line)

    def stop(self) -> None:
        """Let no time pass for it until it is told to go on.

        Just after it renewed its grant: in the middle of that it may have locked the engine, and
        would keep all others out.
        """
        assert self.ask("beaten")
        os.kill(self.pid, signal.SIGSTOP)

    def kill(self) -> None:
        """End it as the system does when there is no memory."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _do(core: CoherenceCore, grants: list[Grant], command: str, *rest: str) -> Any:
    match command:
        case "hold":
            grants.append(core.hold(AGENT, ARTIFACT))
            return grants[-1].token
        case "read":
            found = core.read(AGENT, ARTIFACT)
            return [found.value, found.source, found.degraded]
        case "write":
            return grants[-1].write(rest[0]).version
        case "plain":
            return core.write(AGENT, ARTIFACT, rest[0]).version
        case "state":
            return core.state(AGENT, ARTIFACT)
        case "release":
            return grants[-1].release()
        case "beaten":
            before = grants[-1].deadline
            while grants[-1].deadline == before:
                time.sleep(0.001)
            return True
    raise AssertionError(command)


def _main(url: str, tick: str, heartbeat: str) -> None:
    config = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=int(heartbeat))
    core = CoherenceCore(url, tick_seconds=float(tick), crash_recovery=config)
    grants: list[Grant] = []
    _say("ready")
    for line in sys.stdin:
        try:
            _say(_do(core, grants, *line.split()))
        except RopewalkError as error:
            _say({"error": type(error).__name__, "trigger": getattr(error, "trigger", None)})


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
