"""The codec for the states of graphs. (A beginning.)"""

from __future__ import annotations

from holdfast.adapters.langgraph._types import GraphTypes
from holdfast.codec import Codec


class Memo:
    """What is remembered of values that were encoded."""

    def turn(self) -> None:
        """Begin a new generation."""


class GraphCodec(Codec):
    """Encodes the values of one thread. Not for several threads at once."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types.registry)
        self.memo = Memo()
