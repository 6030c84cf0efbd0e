"""A client of a server: several of one process share what a program would share."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from typing import Any

from bench._model import Engine
from bench.engines._replay import Change, replayed


class Client(Engine):
    """What one agent commits. Each client has a history of its own on the server."""

    @abstractmethod
    def another(self, name: str) -> Client:
        """One more client in this process. It must be asked for by one thread at a time."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the server, for the clients that came from this one too."""


class Floor(Client):
    """Sends what changed in the fewest round trips that make it durable, and nothing else."""

    def commit(self, value: Any) -> None:
        self.change(value, (), value)

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._send(pickle.dumps((path, new), protocol=5))

    def read(self) -> Any:
        changes: list[Change] = [pickle.loads(data) for data in self._sent()]
        return replayed(changes)

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Keep these bytes so that a power loss does not take them."""

    @abstractmethod
    def _sent(self) -> list[bytes]:
        """All that this client ever sent, in order."""
