"""An agent reads a text that another put, again and again, in one process."""

from __future__ import annotations

from bench._artifacts import text
from bench.scenarios._shared import getting

SCENARIO = getting(
    "coherence-get",
    "An agent reads a text that another put, again and again, in one process",
    text,
    order=600,
)
