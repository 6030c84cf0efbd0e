"""`auto_adapt` gives each framework's own adapter."""

from __future__ import annotations

import pytest

from ropewalk import AgentState, Externalized, MemoryStore, auto_adapt


class State(AgentState):
    docs: Externalized[list[str]]


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("langgraph", "LangGraphAdapter"),
        ("llamaindex", "LlamaIndexAdapter"),
        ("autogen", "AutoGenAdapter"),
        ("deepagents", "DeepAgentsAdapter"),
    ],
)
def test_the_frameworks_own_adapter_is_given(framework: str, name: str) -> None:
    found = auto_adapt(State, framework, backend=MemoryStore())

    assert type(found).__name__ == name and found.framework == framework
