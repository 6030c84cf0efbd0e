"""The values that the scenarios hand over, made from one seeded text."""

from __future__ import annotations

import json
from typing import Any

from bench._text import Text


def payload_bytes(value: Any) -> int:
    """The raw size of a value: its compact JSON, whatever a side stores."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def message(text: Text, number: int) -> dict[str, Any]:
    """One chat message of about 1 KB."""
    role = "assistant" if number % 2 else "user"
    return {"id": f"message-{number}", "role": role, "content": text.prose(950)}


def short_message(text: Text, number: int) -> dict[str, Any]:
    """One chat message of about 570 bytes."""
    role = "assistant" if number % 2 else "user"
    return {"id": f"message-{number}", "role": role, "content": text.prose(520)}


def document(text: Text, number: int) -> dict[str, Any]:
    """One document of about 10 KB."""
    meta = {"author": text.title(), "reviewed": False, "tags": [text.title(), text.title()]}
    return {"id": number, "title": text.title(), "text": text.prose(10_000), "meta": meta}


def record(text: Text, number: int) -> dict[str, Any]:
    """One small dict of about 80 bytes."""
    score = round(text.random.random() * 100, 3)
    tags = [text.title(), text.title()]
    return {"id": number, "name": text.title(), "score": score, "tags": tags}


def small_state(text: Text) -> dict[str, Any]:
    """The state of an agent, about 600 bytes, with a number of the step."""
    return {
        "task": text.title(),
        "step": 0,
        "stage": "search",
        "notes": [text.prose(150), text.prose(150)],
        "scores": {text.title(): round(text.random.random(), 3) for _ in range(6)},
        "done": False,
    }


def section(text: Text, number: int) -> dict[str, Any]:
    """One section of about 100 KB: a dict of lists of dicts of lists."""
    return {
        "id": f"section-{number}",
        "title": text.title(),
        "parts": [_part(text, at) for at in range(20)],
    }


def _part(text: Text, number: int) -> dict[str, Any]:
    steps = [{"at": at, "done": False, "note": text.prose(460)} for at in range(10)]
    return {"name": text.title(), "rank": number, "owner": {"name": text.title()}, "steps": steps}
