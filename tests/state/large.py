"""Values that are large enough to be stored as trees."""

from __future__ import annotations

import random
from typing import Any


def messages(count: int, start: int = 0) -> list[dict[str, Any]]:
    """A conversation; from about 30 messages on it is a tree."""
    return [
        {"role": ("user", "assistant")[number % 2], "content": sentence(number), "id": number}
        for number in range(start, start + count)
    ]


def sentence(seed: int, length: int = 120) -> str:
    """Text that does not repeat itself."""
    return random.Random(seed).randbytes(length // 2).hex()
