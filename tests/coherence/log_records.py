"""Records for the tests of logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ropewalk.coherence.logs import Logs

WAIT = 30.0


def fetched(logs: Logs, version: int, agent: str = "planner") -> None:
    logs.transition("plan", agent, "INVALID", "SHARED", "fetch", version)


def read(logs: Logs, version: int, agent: str = "planner") -> None:
    logs.delivered(agent, "plan", version, "ab12", "fetch", "content")


def records_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def happened(path: Path) -> list[dict[str, Any]]:
    return [one for one in records_in(path) if "record" not in one]
