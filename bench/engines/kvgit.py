"""kvgit: the whole value as one key; single keys for keyed work."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo

_KEY = "value"


class Kvgit(Engine):
    """A kvgit worktree on its memory backend, with its default settings."""

    def __init__(self) -> None:
        super().__init__()
        self._kvgit = import_module("kvgit")
        self._tree = self._kvgit.open("memory")
        self._backend = self._tree.repo.store

    def commit(self, value: Any) -> None:
        self._tree[_KEY] = value
        self._tree.commit()

    def read(self) -> Any:
        return self.get(_KEY)

    def stored_bytes(self) -> int:
        return sum(len(value) for _, value in self._backend.items())

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._tree.update(pairs)
        self._tree.commit()

    def put(self, key: str, value: Any) -> None:
        self._tree[key] = value
        self._tree.commit()

    def get(self, key: str) -> Any:
        # A second repository: the first one would answer from its cache of objects.
        return self._kvgit.Repo(self._backend).snapshot(branch="main")[key]


ENGINE = EngineInfo(
    name="kvgit",
    label="kvgit, memory",
    open=Kvgit,
    environment="peers",
    package="kvgit",
    imports="kvgit",
)
