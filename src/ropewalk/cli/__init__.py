"""The command line: `ropewalk`. The only layer that reads the environment and the terminal."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

__all__ = ["main", "tell_story"]

_NO_TYPER = "The command line needs two more packages: pip install 'ropewalk[cli]'"


def main() -> None:
    """Run a command, and end the process with its exit code."""
    try:
        run = _load()
    except KeyboardInterrupt:
        sys.exit(130)
    run()


def _load() -> Callable[[], None]:
    """What runs a command. To import it takes most of the first second."""
    import signal

    # Until a command begins nothing has to be cleaned up, so an interrupt ends the process as
    # it ends any other: by the signal, without a traceback. A shell that starts us in the
    # background has interrupts ignored, and so they stay. What happens before the first line of
    # this package, while Python itself starts, is not ours to say.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105 - what is imported for it would be too early
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        except ValueError:
            pass  # Only the main thread is interrupted, and this is another.
    try:
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print(_NO_TYPER, file=sys.stderr)
        sys.exit(2)
    from ropewalk.cli.app import run

    return run


def tell_story(store: str | PathLike[str] = ".ropewalk") -> str:
    """Run the demo in a store, printing as it goes; the name of its timeline.

    Needs only the core of Ropewalk.
    """
    from ropewalk.cli.demo import tell

    return tell(store)
