"""Sides that keep a conversation: messages appended one by one, a state, pages and search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench._clock import Stopwatch
from bench._model import Engine


class Talk(Engine):
    """One conversation. What is handed in and given out is shared with nobody."""

    @abstractmethod
    def message(self, item: dict[str, Any]) -> Any:
        """A message as the side takes it, from its id, its role and its text."""

    def append(self, message: Any) -> None:
        """Append one message."""
        raise NotImplementedError("this side is awaited")

    def append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        """Append messages one by one, each on the watch."""
        for message in messages:
            watch(partial(self.append, message))

    @abstractmethod
    def page(self, count: int) -> list[Any]:
        """The latest messages, the side's own objects, the oldest of them first."""

    @abstractmethod
    def text(self, message: Any) -> str:
        """What a message says."""

    def make_state(self, state: dict[str, Any]) -> Any:
        """A state as the side takes it."""
        return state

    def append_with(self, message: Any, state: Any) -> None:
        """Append a message and put the state that goes with it."""
        raise NotImplementedError("this side keeps no state")

    def put_state(self, state: Any) -> None:
        """Put a state."""
        raise NotImplementedError("this side keeps no state")

    def state(self) -> Any:
        """The newest state, which is the caller's own."""
        raise NotImplementedError("this side keeps no state")

    def search(self, word: str, count: int) -> list[Any]:
        """The first messages that have a word."""
        raise NotImplementedError("this side has no search")

    def commit(self, value: Any) -> None:
        """Append what is new in a list of all messages."""
        messages = [self.message(item) for item in value[len(self.read()) :]]
        self.append_each(messages, Stopwatch())

    def read(self) -> Any:
        """The texts of all messages."""
        return [self.text(one) for one in self.page(1_000_000)]


def talk(engine: Engine) -> Talk:
    """The engine, which must be one that keeps a conversation."""
    assert isinstance(engine, Talk), f"{type(engine).__name__} keeps no conversation"
    return engine
