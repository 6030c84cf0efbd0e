"""The program: its commands, in the order in which `holdfast --help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import _caring, _changing, _comparing, _looking  # noqa: F401 - they declare
from holdfast.cli._command import app

__all__ = ["app", "run"]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is.", callback=_show_version),
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command that the arguments name."""
    app(prog_name="holdfast")
