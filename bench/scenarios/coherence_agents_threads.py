"""1,000 agents as threads of one process."""

from __future__ import annotations

from bench.scenarios._agents import as_threads
from bench.scenarios._agents_here import scenario

SCENARIO = scenario("coherence-agents-threads", "threads", as_threads, order=620)
