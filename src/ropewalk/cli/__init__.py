"""The command line: `ropewalk`. The only layer that reads the environment and the terminal."""

from __future__ import annotations

import sys
from os import PathLike

__all__ = ["main", "tell_story"]

_NO_TYPER = "The command line needs two more packages: pip install 'ropewalk[cli]'"


def main() -> None:
    """Run a command, and end the process with its exit code."""
    try:
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print(_NO_TYPER, file=sys.stderr)
        sys.exit(2)
    from ropewalk.cli._app import run

    run()


def tell_story(store: str | PathLike[str] = ".ropewalk") -> str:
    """Run the demo in a store, printing as it goes; the name of its timeline.

    Needs only the core of Ropewalk.
    """
    from ropewalk.cli._story import tell

    return tell(store)
