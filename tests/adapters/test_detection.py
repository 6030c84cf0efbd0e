"""Which framework is in use: named, configured, or imported; and nothing is imported to see it."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from ropewalk import (
    AmbiguousFrameworkError,
    Framework,
    MemoryStore,
    NoFrameworkDetectedError,
    detect_active_framework,
)
from ropewalk.errors import InvalidInput
from ropewalk.state import Runtime, using

MODULES = {
    "langgraph": Framework.LANGGRAPH,
    "llama_index": Framework.LLAMAINDEX,
    "autogen_agentchat": Framework.AUTOGEN,
    "autogen_core": Framework.AUTOGEN,
    "autogen": Framework.AUTOGEN,
    "crewai": Framework.CREWAI,
    "deepagents": Framework.DEEPAGENTS,
}


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*MODULES, "agents"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def imported(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_without_a_framework_the_error_says_what_to_do() -> None:
    with pytest.raises(NoFrameworkDetectedError, match=r"explicit='langgraph'.*openai-agents"):
        detect_active_framework()


@pytest.mark.parametrize(("name", "framework"), MODULES.items())
def test_a_framework_that_is_imported_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, framework: Framework
) -> None:
    imported(monkeypatch, name)

    assert detect_active_framework() is framework


def test_several_frameworks_are_listed_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    imported(monkeypatch, "crewai", "langgraph")

    with pytest.raises(AmbiguousFrameworkError, match=r"langgraph, crewai.*explicit='langgraph'"):
        detect_active_framework()


def test_a_framework_that_is_built_on_another_wins_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    imported(monkeypatch, "langgraph", "deepagents")
    assert detect_active_framework() is Framework.DEEPAGENTS

    imported(monkeypatch, "crewai")
    with pytest.raises(AmbiguousFrameworkError, match="crewai, deepagents"):
        detect_active_framework()


def test_a_package_that_only_has_the_name_of_a_framework_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported(monkeypatch, "agents")
    with pytest.raises(NoFrameworkDetectedError):
        detect_active_framework()

    vars(sys.modules["agents"]).update(Agent=object, Runner=object)
    assert detect_active_framework() is Framework.OPENAI_AGENTS


def test_a_module_that_may_not_be_imported_is_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "langgraph", None)

    with pytest.raises(NoFrameworkDetectedError):
        detect_active_framework()


def test_what_is_named_goes_before_what_is_configured_before_what_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported(monkeypatch, "langgraph")

    assert detect_active_framework() is Framework.LANGGRAPH
    with using(Runtime(MemoryStore(), framework="autogen")):
        assert detect_active_framework() is Framework.AUTOGEN
        assert detect_active_framework("crewai") is Framework.CREWAI
        assert detect_active_framework(Framework.LLAMAINDEX) is Framework.LLAMAINDEX


@pytest.mark.parametrize("name", ["django", "", 5, object()])
def test_an_unknown_name_is_refused_with_those_that_are_known(name: object) -> None:
    with pytest.raises(InvalidInput, match="langgraph, llamaindex, autogen"):
        detect_active_framework(name)  # type: ignore[arg-type]


def test_nothing_is_imported_to_find_out() -> None:
    program = (
        "import sys, ropewalk, ropewalk.adapters\n"
        "try: ropewalk.detect_active_framework()\n"
        "except ropewalk.NoFrameworkDetectedError: pass\n"
        "class S(ropewalk.AgentState): pass\n"
        "ropewalk.auto_adapt(S, 'crewai')\n"
        "names = 'langgraph llama_index autogen crewai deepagents agents asyncio'.split()\n"
        "assert not [name for name in names if name in sys.modules]\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
