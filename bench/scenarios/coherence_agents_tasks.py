"""1,000 agents as tasks of one process."""

from __future__ import annotations

from bench.scenarios._agents import as_tasks
from bench.scenarios._agents_here import scenario

SCENARIO = scenario("coherence-agents-tasks", "tasks", as_tasks, order=621)
