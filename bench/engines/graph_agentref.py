"""LangGraph with AgentRef's adapter: large fields are files, by their hash."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._graph import Build, GraphSide, saver


class AgentRefGraph(GraphSide):
    """Each large field is externalized, all nodes are wrapped."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._agentref = import_module("agentref")
        self._content = import_module("agentref.storage").FilesystemCAS(str(place.folder))

    def compiled(self, build: Build, large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
        fields = {name: self._agentref.Externalized[one] for name, one in large.items()}
        fields |= {name: self._agentref.Inline[one] for name, one in small.items()}
        named = {"__annotations__": fields, "__module__": __name__}
        state = type("GraphState", (self._agentref.AgentRefState,), named)
        adapters = import_module("agentref.adapters.langgraph")
        adapter = adapters.LangGraphAdapter(state, backend=self._content)
        return build(adapter.schema(), adapter.wrap_node).compile(checkpointer=saver())


ENGINE = EngineInfo(
    name="graph-agentref",
    label="LangGraph with AgentRef",
    open=AgentRefGraph,
    environment="peers",
    package="agent-checkpoint-cas",
    imports="agentref.adapters.langgraph",
    note="its adapter with FilesystemCAS, beside LangGraph's InMemorySaver",
)
