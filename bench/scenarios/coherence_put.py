"""An agent puts texts, each in the place of the last, in one process."""

from __future__ import annotations

from bench._artifacts import text
from bench.scenarios._shared import putting

SCENARIO = putting(
    "coherence-put",
    "An agent puts texts, each in the place of the last, in one process",
    text,
    order=602,
)
