"""agent-coherence's CCSStore in the version that its page describes."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._shared import Peer

ENGINE = EngineInfo(
    name="shared-peer-page",
    label="CCSStore of its page",
    open=Peer,
    environment="coherence-0.6",
    package="agent-coherence",
    imports="ccs.adapters",
    note="the version that its page describes",
)
