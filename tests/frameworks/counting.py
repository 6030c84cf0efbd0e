"""A process that counts in a shared artifact, through an adapter, beside others that do.

python -m tests.frameworks.counting MODULE:SUITE PLACE AGENT TIMES
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from ropewalk.errors import VersionConflict


def count(suite: Any, adapter: Any, agent: str, times: int) -> None:
    """Add 1 so many times, each time to what the agent was given."""
    done = 0
    while done < times:
        number = suite.given(adapter, agent, ["count"])["count"]["n"]
        with suppress(VersionConflict):
            suite.committed(adapter, agent, {"count": {"n": number + 1}})
            done += 1


def main(suite: str, place: str, agent: str, times: str) -> None:
    module, _, name = suite.partition(":")
    made = getattr(import_module(module), name)()
    with made.adapter_class(place) as adapter:
        count(made, adapter, agent, int(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
