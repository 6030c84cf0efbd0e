"""States whose checkpoints belong to the user's framework: a reference and a small number each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bench.engines._held import VALUE, Held


class Checkpointed(Held):
    """A typed state with one externalized field. Each checkpoint is a line of JSON."""

    def __init__(self, state_class: Any, runtime: Any) -> None:
        super().__init__()
        self._class, self._runtime = state_class, runtime
        self._checkpoints: list[str] = []
        self._now: Any = None
        self.reopen()

    def look(self, name: str) -> Any:
        return getattr(self._now, name)

    def set(self, name: str, value: Any) -> None:
        setattr(self._now, name, value)

    def save(self) -> None:
        self._keep(json.dumps(self._checkpoint()))

    def _checkpoint(self) -> dict[str, Any]:
        """What is kept of the state, as JSON can say it."""
        found: dict[str, Any] = self._now.to_checkpoint_dict()
        return found

    def reopen(self) -> None:
        newest = self._newest()
        told = json.loads(newest) if newest else {}
        self._now = self._class.from_checkpoint_dict(told, runtime=self._runtime)

    def _keep(self, checkpoint: str) -> None:
        self._checkpoints.append(checkpoint)

    def _newest(self) -> str:
        return self._checkpoints[-1] if self._checkpoints else ""

    def commit(self, value: Any) -> None:
        self.set(VALUE, value)
        self.save()

    def read(self) -> Any:
        self.reopen()
        return self.look(VALUE)

    def load(self, pairs: Mapping[str, Any]) -> None:
        self.commit(dict(pairs))

    def put(self, key: str, value: Any) -> None:
        whole = self.look(VALUE)
        whole[key] = value
        self.commit(whole)
