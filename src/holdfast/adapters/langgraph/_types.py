"""The classes that the states of graphs may hold. (A beginning.)"""

from __future__ import annotations

from collections.abc import Iterable

from langchain_core import messages
from langgraph.types import Interrupt, Send

from holdfast.codec import Registry

_MESSAGES = ("AIMessage", "HumanMessage", "SystemMessage", "ToolMessage", "RemoveMessage")


class GraphTypes:
    """The closed registry of one saver."""

    def __init__(self, types: Iterable[type] = (), strict: bool = False) -> None:
        self.strict = strict
        self.registry = Registry([*[getattr(messages, name) for name in _MESSAGES], *types])
        self.registry.register(Send, encode=lambda s: [s.node, s.arg], decode=lambda v: Send(*v))
        self.registry.register(
            Interrupt, encode=lambda s: [s.value, s.id], decode=lambda v: Interrupt(*v)
        )

    def allow(self, names: Iterable[tuple[str, ...]]) -> None:
        """Allow classes by module and name."""
