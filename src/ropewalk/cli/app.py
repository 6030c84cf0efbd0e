"""The program: its commands, in the order in which `ropewalk --help` lists them."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from ropewalk import __version__
from ropewalk.cli import (  # noqa: F401 - they declare
    care,
    change,
    conversations,
    show,
    takeover,
)
from ropewalk.cli.command import app

__all__ = ["app", "run"]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ropewalk {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is.", callback=_show_version),
    ] = False,
) -> None:
    pass


# In the order in which people need them, not in that of the modules.
_ORDER = (
    "init sql demo agents threads messages artifacts log tree branches show diff blame bisect "
    "branch switch rollback merge cherry-pick revert fork undo redo tag ops metrics export import "
    "import-langgraph export-langgraph replay stats check gc migrate"
).split()
app.registered_commands.sort(key=lambda one: _ORDER.index(str(one.name)))


def run() -> None:
    """Run the command that the arguments name."""
    # Few cycles are made, and a log of ten thousand operations makes many objects.
    gc.set_threshold(50_000)
    app(prog_name="ropewalk")
