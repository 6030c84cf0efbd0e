"""AgentRef: a state with one externalized field, and the checkpoints that it leaves to others."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import EngineInfo
from bench.engines._checkpointed import Checkpointed
from bench.engines._held import SMALL, VALUE


class AgentRefState(Checkpointed):
    """The content in a store, and the checkpoints beside it."""

    def __init__(self, content: Any = None) -> None:
        agentref = import_module("agentref")
        kept = import_module("agentref.storage").InMemoryCAS() if content is None else content
        self._content = kept
        fields = {VALUE: agentref.Externalized[object], SMALL: agentref.Inline[object]}
        bases = (agentref.AgentRefState,)
        made = type(bases[0])("State", bases, {"__annotations__": fields})
        super().__init__(made, agentref.create_runtime(backend=kept))

    def changed(self, name: str, value: Any) -> None:
        self.set(name, value)

    def _checkpoint(self) -> dict[str, Any]:
        found = super()._checkpoint()
        return found | {VALUE: found[VALUE].to_dict()} if VALUE in found else found

    def stored_bytes(self) -> int:
        content = sum(len(self._content.get(one)) for one in self._content.iter_hashes())
        return content + sum(map(len, self._checkpoints))


ENGINE = EngineInfo(
    name="agentref-state",
    label="AgentRef, memory",
    open=AgentRefState,
    environment="peers",
    package="agent-checkpoint-cas",
    imports="agentref",
    note="one externalized field, beside an inline number; it has no history, so each "
    "checkpoint is a line that its user keeps. It detects no change in place: the program has to "
    "assign the value again, and a change of which it does not say so is lost. Many keys are one "
    "dict in the field",
)
