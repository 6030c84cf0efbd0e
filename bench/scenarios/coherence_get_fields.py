"""An agent reads many small fields that another put, again and again, in one process."""

from __future__ import annotations

from bench._artifacts import fields
from bench.scenarios._shared import getting

SCENARIO = getting(
    "coherence-get-fields",
    "An agent reads many small fields that another put, again and again, in one process",
    fields,
    order=601,
)
