"""The class of the page about key-value stores, to be tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ropewalk import KVStore

PAGE = Path(__file__).parents[2] / "docs/in-depth/own-storage.md"


def source() -> str:
    """The block of the page that has the class."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^```python\n((?:(?!^```).)*class RedisStore.*?)^```", text, re.M | re.S)
    assert found
    return found[1]


def redis_store(url: str) -> KVStore:
    """The example, on a server."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(source(), str(PAGE), "exec", dont_inherit=True), names)
    made: KVStore = names["RedisStore"](url)
    return made
