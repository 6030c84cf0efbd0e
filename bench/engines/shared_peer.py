"""agent-coherence's CCSStore."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._shared import Peer

ENGINE = EngineInfo(
    name="shared-peer",
    label="CCSStore",
    open=Peer,
    environment="peers",
    package="agent-coherence",
    imports="ccs.adapters",
    note="its default, lazy, in one process, the only place where it works",
)
