"""Importing the part of an adapter that needs its framework, or saying what to install."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType


def import_with(
    module: str, framework: str, packages: Mapping[str, tuple[str, str]], install: str
) -> ModuleType:
    """Import a module of an adapter.

    `packages` has, by the name that it is imported as, the distribution of each package that the
    module needs, and the oldest version that will do. Raises `ImportError` with the command to
    `install` if one is missing or older.
    """
    adapter = module.rpartition(".")[0]
    for distribution, oldest in packages.values():
        try:
            found = version(distribution)
        except PackageNotFoundError:
            continue  # The import says so, unless it came without metadata.
        if _numbers(found) < _numbers(oldest):
            raise ImportError(
                f"{adapter} needs {framework} {oldest} or newer, and {distribution} {found} is "
                f"installed: {install}"
            )
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in packages:
            raise ImportError(f"{adapter} needs {framework}: {install}") from error
        raise


def _numbers(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", version.partition("+")[0])[:3]]
