"""kvgit: a state held by a worktree in memory."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo
from bench.engines._held import Held
from bench.engines.kvgit import Kvgit


class KvgitState(Kvgit, Held):
    """It looks for no change, so what was changed in place is assigned again."""

    def look(self, name: str) -> Any:
        return self._tree[name]

    def set(self, name: str, value: Any) -> None:
        self._tree[name] = value

    def save(self) -> None:
        self._tree.commit()

    def reopen(self) -> None:
        self.__dict__.pop("_tree", None)

    def changed(self, name: str, value: Any) -> None:
        self.set(name, value)


ENGINE = EngineInfo(
    name="kvgit-state",
    label="kvgit, memory",
    open=KvgitState,
    environment="peers",
    package="kvgit",
    imports="kvgit",
    note="it detects no change in place: the program has to assign the value again, and a "
    "change of which it does not say so is lost. It loads a value above 8 MB at each read",
)
