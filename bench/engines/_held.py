"""Sides that hold a state: values by name, read and changed in place, then committed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from bench._model import Engine

VALUE = "value"
"""The name of the value that is large, or grows."""
SMALL = "small"
"""The name of a number beside it."""


class Held(Engine):
    """A handle on a state, as a program keeps it between its commits."""

    @abstractmethod
    def look(self, name: str) -> Any:
        """The object that the handle gives for a name."""

    @abstractmethod
    def set(self, name: str, value: Any) -> None:
        """Assign a value, which the next commit stores."""

    @abstractmethod
    def save(self) -> None:
        """Commit."""

    @abstractmethod
    def reopen(self) -> None:
        """Go on with a new handle on what was committed."""

    def changed(self, name: str, value: Any) -> None:
        """Say that an object was changed in place, where a side does not look itself."""


def held(engine: Engine) -> Held:
    """The engine, which must be one that holds a state."""
    assert isinstance(engine, Held), f"{type(engine).__name__} holds no state"
    return engine
