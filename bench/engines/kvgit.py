"""kvgit: the whole value as one key; single keys for keyed work."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo

_KEY = "value"


class Kvgit(Engine):
    """A kvgit worktree on a backend, with its default settings."""

    def __init__(self, backend: Any = None, branch: str = "main") -> None:
        super().__init__()
        self._kvgit = import_module("kvgit")
        self._backend = import_module("kvgit.kv").Memory() if backend is None else backend
        self._branch = branch

    @cached_property
    def _tree(self) -> Any:
        # When it is first needed: it reads all keys, which reading one key does not.
        return self._kvgit.Repo(self._backend).worktree(self._branch, create=True)

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
        return self._kvgit.Repo(self._backend).snapshot(branch=self._branch)[key]


ENGINE = EngineInfo(
    name="kvgit",
    label="kvgit, memory",
    open=Kvgit,
    environment="peers",
    package="kvgit",
    imports="kvgit",
)
