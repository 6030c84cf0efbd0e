"""The one place where the benchmarks touch Holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._model import Engine


class Holdfast(Engine):
    """Versions of one value in a memory store."""

    def __init__(self) -> None:
        super().__init__()
        raise NotImplementedError("the tree and the memory store are not written yet")

    def commit(self, value: Any) -> None: ...

    def read(self) -> Any: ...

    def stored_bytes(self) -> int:
        return 0

    def load(self, pairs: Mapping[str, Any]) -> None: ...
