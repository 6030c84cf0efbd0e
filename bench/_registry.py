"""Finds the scenarios and engines: a table of each subject in its folder."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from bench import engines as engines_folder
from bench import scenarios as scenarios_folder
from bench._model import EngineInfo, Scenario


def _modules(folder: ModuleType) -> list[ModuleType]:
    found = sorted(one.name for one in pkgutil.iter_modules(folder.__path__))
    names = [name for name in found if not name.startswith("_")]
    return [importlib.import_module(f"{folder.__name__}.{name}") for name in names]


def engines() -> dict[str, EngineInfo]:
    """All engines by name. No peer is imported before it is opened."""
    infos: list[EngineInfo] = [info for one in _modules(engines_folder) for info in one.ENGINES]
    return {info.name: info for info in sorted(infos, key=lambda info: info.name)}


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name, in the order in which they run."""
    found: list[Scenario] = []
    for module in _modules(scenarios_folder):
        found += getattr(module, "SCENARIOS", ())  # The rest is work that others share.
    found.sort(key=lambda scenario: (scenario.order, scenario.name))
    return {scenario.name: scenario for scenario in found}
