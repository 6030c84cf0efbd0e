"""AgentRef on files: each version of the value is one file."""

from __future__ import annotations

from importlib import import_module

from bench._model import EngineInfo, Place
from bench.engines.agentref import AgentRef


class AgentRefDisk(AgentRef):
    """The references, which it leaves to its user, are lines of one file."""

    def __init__(self, place: Place) -> None:
        content = import_module("agentref.storage").FilesystemCAS(place.folder / "content")
        super().__init__(content)
        self._references = place.folder / f"{place.branch}.jsonl"

    def _keep(self, reference: str) -> None:
        with self._references.open("a") as lines:
            lines.write(reference + "\n")

    def _newest(self) -> str:
        return self._references.read_text().splitlines()[-1]


ENGINE = EngineInfo(
    name="agentref-disk",
    label="AgentRef, files",
    open=AgentRefDisk,
    environment="peers",
    package="agent-checkpoint-cas",
    imports="agentref",
    note="each file is synced, its folder is not, and there is no relaxed setting; the "
    "references, which it leaves to the user's framework, are lines of a file, not synced",
)
