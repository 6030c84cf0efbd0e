"""The logs of runs, written by hand with times that are chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropewalk.coherence.replay import Replay, replay

SECOND = 1_000_000


@dataclass
class Run:
    """The logs of one process, written by hand with times that are chosen."""

    folder: Path
    instance: str = "one"
    strategy: str = "lazy"
    bound_seconds: float | None = 0.0
    bound_reads: int | None = None
    ends: bool = True
    _states: list[dict[str, Any]] = field(default_factory=list)
    _audits: list[dict[str, Any]] = field(default_factory=list)
    _order: int = 0

    def read(
        self, agent: str, version: int, at: int, *, began: int | None = None, **more: Any
    ) -> None:
        self._deliver(agent, version, at, "fetch", at if began is None else began, more)

    def write(
        self, agent: str, version: int, at: int, *, began: int | None = None, **more: Any
    ) -> None:
        self._deliver(agent, version, at, "write", at if began is None else began, more)

    def state(self, agent: str, to: str, at: int, trigger: str = "acquire", **more: Any) -> None:
        self._order += 1
        self._states.append({
            "tick": at, "artifact_id": "plan", "agent_id": agent, "agent_name": agent,
            "from_state": "INVALID", "to_state": to, "trigger": trigger, "version": 1,
            "content_hash": None, "order": self._order, "time": at * SECOND, "token": None,
            "read_version": None, **more,
        })  # fmt: skip

    def save(self) -> Path:
        self.folder.mkdir(exist_ok=True)
        for stream, records in (("state_log", self._states), ("content_audit_log", self._audits)):
            if records:
                path = self.folder / f"{self.instance}.{stream}.jsonl"
                lines = self._numbered(stream, records)
                path.write_text("".join(json.dumps(one) + "\n" for one in lines))
        return self.folder

    def found(self, **more: Any) -> list[str]:
        return found_in(replay(self.save(), **more))

    def _deliver(
        self, agent: str, version: int, at: int, source: str, began: int, more: dict[str, Any]
    ) -> None:
        self._order += 1
        self._audits.append({
            "tick": at, "agent_id": agent, "agent_name": agent, "artifact_id": "plan",
            "version": version, "content_hash": None, "source": source, "outcome": "content",
            "order": self._order, "time": at * SECOND, "began": began * SECOND,
            "read_version": None, "merged": False, "degraded": False, "token": None, **more,
        })  # fmt: skip

    def _numbered(self, stream: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        schema = {"state_log": "state_log", "content_audit_log": "content_audit"}[stream]
        same = {"instance_id": self.instance, "schema_version": f"ropewalk.{schema}.v1"}
        begin = {
            "record": "begin", "stream": stream, "sequence_number": 0, "space": "team",
            "strategy": self.strategy, "bound_seconds": self.bound_seconds,
            "bound_reads": self.bound_reads, **same,
        }  # fmt: skip
        end = {"record": "end", "stream": stream, "sequence_number": len(records) + 1, **same}
        numbered = [
            {**one, "sequence_number": number, **same} for number, one in enumerate(records, 1)
        ]
        return [begin, *numbered, *([end] if self.ends else [])]


def found_in(done: Replay) -> list[str]:
    return [one.invariant for one in done.findings]
