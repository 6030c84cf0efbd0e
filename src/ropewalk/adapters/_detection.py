"""Which framework a program uses, seen without importing any."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

from ropewalk.errors import AmbiguousFrameworkError, NoFrameworkDetectedError
from ropewalk.state import Framework, get_config
from ropewalk.state.runtime import framework_of

_MODULES: Final[dict[Framework, tuple[str, ...]]] = {
    Framework.LANGGRAPH: ("langgraph",),
    Framework.LLAMAINDEX: ("llama_index",),
    Framework.AUTOGEN: ("autogen_agentchat", "autogen_core", "autogen"),
    Framework.CREWAI: ("crewai",),
    Framework.DEEPAGENTS: ("deepagents",),
    Framework.OPENAI_AGENTS: ("agents",),
}
"""What a program has imported that uses a framework."""

_MARKS: Final[dict[str, tuple[str, ...]]] = {"agents": ("Agent", "Runner")}
"""What modules must have to count, whose names others may use too."""

_BUILT_ON: Final = {Framework.DEEPAGENTS: Framework.LANGGRAPH}
"""A framework that is built on another wins over it."""


def detect_active_framework(explicit: Framework | str | None = None) -> Framework:
    """The framework in use: the one that is named, else configured, else imported.

    Imports nothing. Raises `NoFrameworkDetectedError`, `AmbiguousFrameworkError` if
    several are imported, and `InvalidInput` for a name that is not known.
    """
    chosen = get_config().framework if explicit is None else explicit
    if chosen is not None:
        return framework_of(chosen)
    found = [one for one in Framework if any(map(_is_imported, _MODULES[one]))]
    below = {_BUILT_ON[one] for one in found if one in _BUILT_ON}
    found = [one for one in found if one not in below]
    if not found:
        raise NoFrameworkDetectedError(
            "no framework is imported. Import one first, or name it: "
            f"explicit={Framework.LANGGRAPH.value!r}, or configure(framework=...). Known are "
            f"{', '.join(Framework)}."
        )
    if len(found) > 1:
        raise AmbiguousFrameworkError(
            f"several frameworks are imported: {', '.join(found)}. Say which is meant: "
            f"explicit={found[0].value!r}, or configure(framework={found[0].value!r})."
        )
    return found[0]


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType):
        return False
    return all(mark in vars(module) for mark in _MARKS.get(name, ()))
