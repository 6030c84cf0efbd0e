"""AgentRef: a state with one externalized field, in files."""

from __future__ import annotations

from importlib import import_module

from bench._model import EngineInfo, Place
from bench.engines._lines import Lines
from bench.engines.agentref_state import AgentRefState


class AgentRefStateDisk(AgentRefState):
    """The checkpoints are lines of one file."""

    def __init__(self, place: Place) -> None:
        self._lines = Lines(place)
        super().__init__(import_module("agentref.storage").FilesystemCAS(place.folder / "content"))

    def _keep(self, checkpoint: str) -> None:
        self._lines.add(checkpoint)

    def _newest(self) -> str:
        return self._lines.newest()


ENGINE = EngineInfo(
    name="agentref-state-disk",
    label="AgentRef, files",
    open=AgentRefStateDisk,
    environment="peers",
    package="agent-checkpoint-cas",
    imports="agentref",
    note="each file is synced, its folder is not; the checkpoints, which it leaves to the user's "
    "framework, are lines of a file, not synced",
)
