"""What frameworks keep conversations in: in memory, their own way, and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final

from bench._model import EngineInfo, Place

FRAMEWORKS: Final = {
    "langgraph": "LangGraph, a graph with a tool",
    "deepagents": "Deep Agents, an agent with a tool",
    "llamaindex_chat": "LlamaIndex, the memory of an agent",
    "llamaindex_workflow": "LlamaIndex, a workflow that keeps its messages",
    "autogen": "AutoGen, an agent with a tool",
    "agent_framework": "Agent Framework, a workflow that keeps its messages",
}
"""The module of each in `bench.frameworks`, and what it is."""

_PACKAGES: Final = {
    "langgraph": ("langgraph-checkpoint-sqlite", "langgraph.checkpoint.sqlite"),
    "deepagents": ("deepagents", "deepagents"),
    "llamaindex_chat": ("llama-index-core", "llama_index.core"),
    "llamaindex_workflow": ("llama-index-workflows", "workflows"),
    "autogen": ("autogen-agentchat", "autogen_agentchat"),
    "agent_framework": ("agent-framework-core", "agent_framework"),
}

_NOTES: Final = {
    "langgraph": (
        "SqliteSaver, synchronous = FULL",
        "with InMemorySaver",
        "RopewalkSaver on the embedded store",
    ),
    "deepagents": (
        "SqliteSaver, synchronous = FULL",
        "with InMemorySaver",
        "RopewalkSaver on the embedded store",
    ),
    "llamaindex_chat": (
        "SQLAlchemyChatStore on SQLite",
        "SQLAlchemyChatStore in memory",
        "RopewalkChatStore on the embedded store",
    ),
    "llamaindex_workflow": (
        "Context.to_dict() after each run, replaced as JSON in SQLite",
        "the context is not saved",
        "RopewalkRuntime on the embedded store",
    ),
    "autogen": (
        "save_state() after each turn, replaced as JSON in SQLite",
        "save_state() after each turn, which is not kept",
        "TeamTimeline on the embedded store",
    ),
    "agent_framework": (
        "FileCheckpointStorage",
        "its checkpoints are not kept",
        "RopewalkCheckpointStorage on the embedded store",
    ),
}


def _opener(framework: str, side: str) -> Callable[[Place], Any]:
    def open_side(place: Place) -> Any:
        return getattr(import_module(f"bench.frameworks.{framework}"), side)(place)

    return open_side


def _engines() -> Iterator[EngineInfo]:
    for framework, title in FRAMEWORKS.items():
        subject = title.partition(",")[0]
        package, imports = _PACKAGES[framework]
        own, alone, ours = _NOTES[framework]
        make = partial(EngineInfo, environment="frameworks")
        theirs = partial(make, package=package, imports=imports)
        yield theirs(
            name=f"{framework}-own",
            label=f"{subject}'s own",
            open=_opener(framework, "Own"),
            note=own,
        )
        yield theirs(
            name=f"{framework}-alone",
            label=f"{subject} alone",
            open=_opener(framework, "Alone"),
            note=alone,
        )
        yield make(
            name=f"{framework}-ropewalk",
            label=f"{subject} with Ropewalk",
            open=_opener(framework, "Ours"),
            package="ropewalk",
            imports="ropewalk",
            note=ours,
        )


_WORKLOADS: Final = {
    "llamaindex": ("LlamaIndex", "llama-index-workflows", "workflows"),
    "autogen": ("AutoGen", "autogen-agentchat", "autogen_agentchat"),
    "deepagents": ("Deep Agents", "deepagents", "deepagents"),
}


def _workloads() -> Iterator[EngineInfo]:
    for framework, (subject, package, imports) in _WORKLOADS.items():
        make = partial(EngineInfo, environment="frameworks")
        where = "in memory"
        if framework == "deepagents":
            where = "by PostgresSaver"
            make = partial(make, server="postgres")
        module = f"memory_{framework}"
        yield make(
            name=f"{framework}-memory-alone",
            label=f"{subject} alone",
            open=_opener(module, "Alone"),
            package=package,
            imports=imports,
            note=f"every checkpoint is kept {where}, whole",
        )
        yield make(
            name=f"{framework}-memory-agentref",
            label=f"{subject} with AgentRef",
            open=_opener(module, "AgentRef"),
            package="agent-checkpoint-cas",
            imports="agentref",
            note=f"its adapter; every checkpoint is kept {where}",
        )
        yield make(
            name=f"{framework}-memory-ropewalk",
            label=f"{subject} with Ropewalk",
            open=_opener(module, "Ours"),
            package="ropewalk",
            imports="ropewalk",
            note=f"our adapter; every checkpoint is kept {where}",
        )


ENGINES = (*_engines(), *_workloads())
