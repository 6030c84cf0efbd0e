"""AgentRef: the whole value in one `Externalized` field on its memory store."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo


class AgentRef(Engine):
    """Keeps each checkpoint as the reference in JSON, beside the content store."""

    def __init__(self, content: Any = None) -> None:
        super().__init__()
        agentref = import_module("agentref")
        kept = import_module("agentref.storage").InMemoryCAS() if content is None else content
        self._content = kept
        self._runtime = agentref.create_runtime(backend=self._content)
        field = agentref.Externalized[object]
        bases = (agentref.AgentRefState,)
        self._class: Any = type(bases[0])("State", bases, {"__annotations__": {"value": field}})
        self._reference: Any = agentref.ContentRef
        self._now = self._class(_runtime=self._runtime)
        self._checkpoints: list[str] = []

    def commit(self, value: Any) -> None:
        self._now.value = value
        self._keep(self._now.to_checkpoint_dict()["value"].to_json())

    def _keep(self, reference: str) -> None:
        self._checkpoints.append(reference)

    def _newest(self) -> str:
        return self._checkpoints[-1]

    def read(self) -> Any:
        reference = self._reference.from_json(self._newest())
        state = self._class.from_checkpoint_dict({"value": reference}, runtime=self._runtime)
        return state.value

    def stored_bytes(self) -> int:
        content = sum(len(self._content.get(one)) for one in self._content.iter_hashes())
        return content + sum(map(len, self._checkpoints))


ENGINE = EngineInfo(
    name="agentref",
    label="AgentRef, memory",
    open=AgentRef,
    environment="peers",
    package="agent-checkpoint-cas",
    imports="agentref",
)
