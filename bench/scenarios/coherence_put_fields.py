"""An agent puts many small fields, each time in the place of the last, in one process."""

from __future__ import annotations

from bench._artifacts import fields
from bench.scenarios._shared import putting

SCENARIO = putting(
    "coherence-put-fields",
    "An agent puts many small fields, each time in the place of the last, in one process",
    fields,
    order=603,
)
