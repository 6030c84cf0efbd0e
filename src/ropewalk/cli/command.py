"""Turns functions into commands: shared options and error handling."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ropewalk.adapters.langgraph.saver.timeline import GraphTimeline, graph_names
from ropewalk.cli import errors
from ropewalk.cli.errors import SeveralTimelines
from ropewalk.cli.output import Output, json_line, prepare_streams, warn
from ropewalk.cli.targets import (
    ArtifactView,
    Named,
    artifact_rows,
    changed_last,
    names_by_user,
    opened_store,
    sets_in,
)
from ropewalk.cli.views import GraphView, ThreadView, View
from ropewalk.store import Store
from ropewalk.timeline import Timeline


class _Program(TyperGroup):
    """Reports usage errors like all other errors, also as JSON."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        if "--json" not in (sys.argv[1:] if args is None else args):
            return super().main(args, *more, **extra)
        try:
            code = super().main(args, *more, **{**extra, "standalone_mode": False})
        except Exception as error:  # Typer raises errors without a public class in some releases.
            if not hasattr(error, "format_message"):
                raise
            code = _misused(error)
        sys.exit(code or 0)


def _misused(error: Any) -> int:
    """Report a usage error as JSON."""
    prepare_streams()
    context = getattr(error, "ctx", None)
    asked = "ropewalk" if context is None else context.command_path
    told = errors.Usage(error.format_message())
    errors.with_hint(told, f"`{asked} --help` says how it is called")
    print(json_line(errors.record(told, View())), file=sys.stderr)
    return errors.USAGE


app = typer.Typer(
    name="ropewalk",
    cls=_Program,
    help="Look at the timelines of agents, go back, branch and merge; care for a store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass
class Run:
    """The values of the options that all commands share."""

    store: str | None = None
    agent: str | None = None
    thread: str | None = None
    user: str | None = None
    artifact: str | None = None
    set_name: str | None = None
    branch: str | None = None
    json: bool = False
    quiet: bool = False
    debug: bool = False

    @cached_property
    def out(self) -> Output:
        """The output."""
        return Output(json=self.json, quiet=self.quiet)

    @contextmanager
    def opened(self, *, create: bool = False) -> Iterator[Store]:
        """The store."""
        with opened_store(self.store, create=create) as store:
            yield store

    @contextmanager
    def timeline(self) -> Iterator[Timeline]:
        """The timeline to read: of several, the one that changed last, with a note."""
        with self.opened() as store:
            try:
                found = self._named.find(store)
            except SeveralTimelines:
                self.agent = changed_last(store)
                found = self._named.find(store)
                self.out.note(
                    f"the store has several timelines; this is {self.agent!r}, which changed "
                    "last. --timeline names another"
                )
            self._show_as(store, found)
            yield found

    @contextmanager
    def changing(self) -> Iterator[Timeline]:
        """The timeline to change: with several, one must be named."""
        with self.opened() as store:
            found = self._named.find(store)
            self._show_as(store, found)
            yield found

    @property
    def _named(self) -> Named:
        return Named(**{name: getattr(self, name) for name in Named._fields})

    def _show_as(self, store: Store, found: Timeline) -> None:
        if isinstance(found, GraphTimeline):
            self.view = GraphView()
        elif self.artifact is not None:
            self.view = ArtifactView(store, found)

    @cached_property
    def view(self) -> View:
        """How the content of the timeline is displayed."""
        return View() if self.thread is None else ThreadView()


def _names_of_agents(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, Timeline.agents)


def names_of_branches(ctx: typer.Context, incomplete: str) -> list[str]:
    """Shell completion: the branches of the timeline named so far."""
    named = Named(**{name: ctx.params.get(name) for name in Named._fields if name != "branch"})

    def ask(store: Store) -> list[str]:
        return [one.name for one in named.find(store).list_branches()]

    return _completed(ctx, incomplete, ask)


def _names_of_threads(ctx: typer.Context, incomplete: str) -> list[str]:
    user = ctx.params.get("user")

    def ask(store: Store) -> list[str]:
        return names_by_user(store).get(user, []) + (graph_names(store) if user is None else [])

    return _completed(ctx, incomplete, ask)


def _names_of_users(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(
        ctx, incomplete, lambda store: [one for one in names_by_user(store) if one is not None]
    )


def _names_of_artifacts(ctx: typer.Context, incomplete: str) -> list[str]:
    of_set = ctx.params.get("set_name")
    return _completed(
        ctx, incomplete, lambda store: sorted({row.name for row in artifact_rows(store, of_set)})
    )


def _names_of_sets(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, sets_in)


def _completed(ctx: typer.Context, incomplete: str, ask: Callable[[Store], list[str]]) -> list[str]:
    try:
        with opened_store(ctx.params.get("store")) as store:
            return [name for name in ask(store) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell that completes shows no errors
        return []


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "store": (
        Annotated[
            str | None,
            typer.Option(
                "--store",
                metavar="URL",
                help="The store: a folder, or a URL such as file://folder, "
                "postgresql://user@host/database, redis://host or s3://bucket/prefix. Default: "
                "$ROPEWALK_STORE, else .ropewalk: the nearest upwards, or a new one here.",
            ),
        ],
        None,
    ),
    "agent": (
        Annotated[
            str | None,
            typer.Option(
                "--timeline",
                "--agent",
                metavar="NAME",
                help="The timeline. Default: the only one in the store; of several, commands "
                "that only look take the one that changed last.",
                autocompletion=_names_of_agents,
            ),
        ],
        None,
    ),
    "thread": (
        Annotated[
            str | None,
            typer.Option(
                "--thread",
                metavar="ID",
                help="The timeline of a thread, instead of an agent's; also of LangGraph. "
                "'#12' is the number 12.",
                autocompletion=_names_of_threads,
            ),
        ],
        None,
    ),
    "user": (
        Annotated[
            str | None,
            typer.Option(
                "--user",
                metavar="ID",
                help="Whose thread. Default: nobody's in particular; lists show all users.",
                autocompletion=_names_of_users,
            ),
        ],
        None,
    ),
    "artifact": (
        Annotated[
            str | None,
            typer.Option(
                "--artifact",
                metavar="NAME",
                help="The timeline of an artifact that agents share, instead of an agent's.",
                autocompletion=_names_of_artifacts,
            ),
        ],
        None,
    ),
    "set_name": (
        Annotated[
            str | None,
            typer.Option(
                "--set",
                metavar="NAME",
                help="Of which set the artifact is. Default: the only one, or 'shared'; lists "
                "show all sets.",
                autocompletion=_names_of_sets,
            ),
        ],
        None,
    ),
    "branch": (
        Annotated[
            str | None,
            typer.Option(
                "--branch",
                metavar="NAME",
                help="The branch to work on. Default: the current one.",
                autocompletion=names_of_branches,
            ),
        ],
        None,
    ),
    "json": (Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")], False),
    "quiet": (
        Annotated[
            bool,
            typer.Option("--quiet", "-q", help="Only names and ids; nothing if all went well."),
        ],
        False,
    ),
    "debug": (Annotated[bool, typer.Option("--debug", help="Show where an error arose.")], False),
}
_FIRST, _LAST = ("store",), ("json", "quiet", "debug")
_SHARED = {
    "store": (*_FIRST, *_LAST),
    "users": (*_FIRST, "user", *_LAST),
    "place": (*_FIRST, "thread", "user", *_LAST),
    "thread": (*_FIRST, "thread", "user", "branch", *_LAST),
    "sets": (*_FIRST, "set_name", *_LAST),
    "timeline": (
        *_FIRST,
        "agent",
        "thread",
        "user",
        "artifact",
        "set_name",
        "branch",
        *_LAST,
    ),
}

Command = Callable[..., int | None]


def command(
    on: Literal["store", "users", "place", "thread", "sets", "timeline"] = "timeline",
    *,
    name: str | None = None,
) -> Callable[[Command], Command]:
    """Make a function that takes a `Run` a command, with the shared options.

    Its return value is the exit code; None is success.
    """
    shared = _SHARED[on]

    def declare(function: Command) -> Command:
        def called(**given: Any) -> None:
            run = Run(**{option: given.pop(option) for option in shared})
            code = _guarded(run, lambda: function(run, **given))
            if code:
                raise typer.Exit(code)

        wrapped: Any = wraps(function)(called)
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        added = [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=_OPTIONS[option][0],
                default=_OPTIONS[option][1],
            )
            for option in shared
        ]
        listed = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + added
        wrapped.__signature__ = inspect.Signature(listed)
        wrapped.__annotations__ = {one.name: one.annotation for one in listed}
        help_text = inspect.cleandoc(function.__doc__ or "")
        app.command(name or function.__name__.replace("_", "-"), help=help_text)(wrapped)
        return function

    return declare


def _guarded(run: Run, work: Callable[[], int | None]) -> int:
    """Run a command; returns its exit code."""
    prepare_streams()
    try:
        with _interruptible():
            code = work() or 0
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return errors.BROKEN_PIPE
    except KeyboardInterrupt:
        warn("Interrupted. What was finished before stays.")
        return errors.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place to say what went wrong
        if isinstance(error, OSError):
            _drop_output()
        return _failed(run, error)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let an interrupt raise; before and after a command it ends the process at once."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _drop_output() -> None:
    """Discard pending output if its reader is gone.

    Python flushes it at exit, and would then end with an exit code of its own.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(run: Run, error: Exception) -> int:
    if run.debug:
        traceback.print_exception(error)
    known = errors.as_ropewalk(error)
    if known is None:
        warn(f"Error: {type(error).__name__}: {error}. This is a mistake in Ropewalk.")
        warn("Hint: --debug shows where; please report it")
        return errors.UNEXPECTED
    if run.json:
        print(json_line(errors.record(known, run.view)), file=sys.stderr)
    else:
        warn(f"Error: {' '.join(str(known).split())}")
        for detail in errors.details(known, run.view):
            warn(f"  {detail}")
        told = errors.hint(known)
        if told:
            warn(f"Hint: {told}")
    return errors.exit_code(known)
