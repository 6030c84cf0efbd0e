"""Sides that save an agent's steps: a state with a description and the name of the step."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from bench._model import Engine

_NAMES = ("plan", "search", "read", "extract", "compare", "write", "review", "answer")


class Steps(Engine):
    """Tells each state with the same words, whoever saves it."""

    can_look_back = False
    """Whether it can show the steps that were saved before it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def commit(self, value: Any) -> None:
        self._number += 1
        name = _NAMES[self._number % len(_NAMES)]
        self.save(value, f"Step {self._number}: {name} the sources", name)

    @abstractmethod
    def save(self, state: Any, description: str, logic_step: str) -> None:
        """Save one step."""

    def history(self, limit: int) -> int:
        """Ask for the newest steps; how many came."""
        raise NotImplementedError

    def tree(self) -> str:
        """The drawing of all steps."""
        raise NotImplementedError
