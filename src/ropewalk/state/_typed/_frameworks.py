"""The frameworks that Ropewalk knows by name. None of them is imported."""

from __future__ import annotations

from enum import StrEnum

from ropewalk.errors import InvalidInput


class Framework(StrEnum):
    """A framework that keeps checkpoints of its own."""

    LANGGRAPH = "langgraph"
    LLAMAINDEX = "llamaindex"
    AUTOGEN = "autogen"
    CREWAI = "crewai"
    DEEPAGENTS = "deepagents"
    OPENAI_AGENTS = "openai-agents"


_BY_PACKAGE = {
    "llama-index": Framework.LLAMAINDEX,
    "autogen-agentchat": Framework.AUTOGEN,
    "autogen-core": Framework.AUTOGEN,
    "pyautogen": Framework.AUTOGEN,
    "ag2": Framework.AUTOGEN,
}
"""Names of packages that are not the framework's own."""


def framework_of(name: Framework | str) -> Framework:
    """The framework of this name, or of a package of this name; raises `InvalidInput`."""
    if isinstance(name, str):
        spelled = name.strip().lower().replace("_", "-")
        found = _BY_PACKAGE.get(spelled)
        if found is not None:
            return found
        if spelled in list(Framework):
            return Framework(spelled)
    known = ", ".join(Framework)
    raise InvalidInput(f"{name!r:.80} is not a framework that is known here: {known}")
