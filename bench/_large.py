"""A state of 200 MB that grows and changes by 1 MB at a time, with a timeline or without one."""

from __future__ import annotations

from random import Random
from typing import Any

import ropewalk
from bench._clock import own_peak_bytes, resident_bytes
from bench._text import Text, payload_bytes

_MESSAGES = 1000


def take(folder: str | None, megabytes: int, more: int) -> dict[str, float]:
    """Grow to so many MB, then replace some; commit each time if there is a folder."""
    timeline = ropewalk.Timeline("bench", ropewalk.SqliteStore(folder)) if folder else None
    prose, random = Text(1).prose(4_000_000), Random(2)
    documents: list[Any] = []
    for number in range(megabytes + more):
        made = _document(prose, random, number)
        if number < megabytes:
            documents.append(made)
        else:
            documents[number % megabytes] = made
        if timeline:
            timeline.checkpoint({"documents": documents})
    held = resident_bytes()
    peak = own_peak_bytes()
    if timeline:
        timeline.store.close()
    encoded = sum(map(payload_bytes, documents))
    return {"peak_mb": peak / 1e6, "held_mb": held / 1e6, "encoded_mb": encoded / 1e6}


def _document(prose: str, random: Random, number: int) -> list[dict[str, Any]]:
    """1,000 messages of 1 KB. A slice of a long text each, because text is slow to make."""
    starts = [random.randrange(len(prose) - 950) for _ in range(_MESSAGES)]
    return [
        {"id": f"message-{number}-{at}", "role": "user", "content": prose[start : start + 950]}
        for at, start in enumerate(starts)
    ]
