"""A process that holds a shared artifact, through an adapter, until it is killed.

    python -m tests.frameworks.holding MODULE:SUITE PLACE AGENT

It says `holding` when it does.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module

from ropewalk.coherence import CrashRecoveryConfig


def main(suite: str, place: str, agent: str) -> None:
    module, _, name = suite.partition(":")
    made = getattr(import_module(module), name)()
    quick = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=1)
    with (
        made.adapter_class(place, crash_recovery=quick, tick_seconds=2.0) as adapter,
        adapter.core.hold(agent, "plan"),
    ):
        print("holding", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
