"""Commands that take over the databases of LangGraph's own savers, and give them back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.care import size
from ropewalk.cli.command import Run, command
from ropewalk.cli.errors import LEFT_OUT, Usage
from ropewalk.cli.output import shown_url
from ropewalk.cli.targets import new_store_url, refuse_memory, store_url
from ropewalk.errors import NotAllowed
from ropewalk.store import open as open_store

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph import RopewalkSaver
    from ropewalk.adapters.langgraph.transfer.export import Exported
    from ropewalk.adapters.langgraph.transfer.takeover import Imported

Threads = Annotated[
    list[str] | None,
    typer.Option("--thread", metavar="ID", help="Only this thread. Can be repeated."),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--types",
        metavar="MODULE:CLASS",
        help="A class of yours that states hold; it is imported. Can be repeated.",
    ),
]
Schema = Annotated[
    str | None, typer.Option("--schema", metavar="NAME", help="Of Postgres: where the tables are.")
]
_SHOWN = 20


@command("store", name="import-langgraph")
def import_langgraph(
    run: Run,
    source: Annotated[
        str, typer.Argument(help="The file of a SqliteSaver, or the URL of a PostgresSaver.")
    ],
    thread: Threads = None,
    types: Types = None,
    schema: Schema = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every checkpoint back and compare it.")
    ] = False,
) -> int:
    """Take over the database of LangGraph's own saver. Can be run again. Makes the store.

    Ends with 11 if rows had to be left out: pickles, encrypted or damaged ones.

    Example: ropewalk import-langgraph checkpoints.sqlite --verify
    """
    adapter = _adapter()
    url = new_store_url(run.store)
    refuse_memory(url)
    before = _taken(url)
    with open_store(url) as store, run.out.bar("checkpoints") as progress:
        saver: RopewalkSaver = adapter.RopewalkSaver(store, types=_classes(types))
        done: Imported = adapter.import_checkpoints(
            source, saver, threads=thread, schema=schema, verify=verify, progress=progress
        )
    after = _taken(url)
    done.stored_bytes = None if before is None or after is None else after - before
    _show_left(run, done)
    _show_unknown(run, done)
    record = {"store": shown_url(url), **_told(done), "source": done.source._asdict()}
    run.out.done(record, _imported_text(done))
    return 0 if done.is_whole else LEFT_OUT


@command("store", name="export-langgraph")
def export_langgraph(
    run: Run,
    target: Annotated[
        str, typer.Argument(help="A file for a SqliteSaver, or the URL for a PostgresSaver.")
    ],
    thread: Threads = None,
    types: Types = None,
    schema: Schema = None,
) -> int:
    """Write LangGraph threads as LangGraph's own saver does. Can be run again.

    Example: ropewalk export-langgraph checkpoints.sqlite --thread support-42
    """
    adapter = _adapter()
    with run.opened() as store, run.out.bar("checkpoints") as progress:
        saver: RopewalkSaver = adapter.RopewalkSaver(store, types=_classes(types))
        done: Exported = _needing(
            lambda: adapter.export_checkpoints(
                saver, target, threads=thread, schema=schema, progress=progress
            )
        )
    _show_left(run, done)
    record = {"target": shown_url(target), **_told(done)}
    told = f"Wrote {done.checkpoints:,} checkpoints and {done.writes:,} writes of {done.threads:,}"
    there = f"; {done.present:,} were there" if done.present else ""
    run.out.done(
        record, f"{told} threads to {shown_url(target)}{there} ({size(done.target_bytes)})"
    )
    return 0 if done.is_whole else LEFT_OUT


def _adapter() -> Any:
    """LangGraph's adapter, which requires LangGraph."""
    from ropewalk.adapters import langgraph

    _needing(lambda: langgraph.RopewalkSaver)
    return langgraph


def _needing(work: Any) -> Any:
    try:
        return work()
    except ImportError as error:
        raise NotAllowed(str(error)) from error


def _classes(written: Iterable[str] | None) -> list[type]:
    """The named classes; they are the user's own, and are imported."""
    here = str(Path.cwd())
    if written and here not in sys.path:
        sys.path.insert(0, here)  # As `python -m` does it.
    return [_class(one) for one in written or ()]


def _class(written: str) -> type:
    module, colon, name = written.partition(":")
    if not colon or not module or not name:
        raise Usage(f"--types takes MODULE:CLASS, such as my_agent.state:Plan, not {written!r:.80}")
    try:
        found: Any = importlib.import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError) as error:
        raise Usage(f"--types {written}: {error}") from error
    if not isinstance(found, type):
        raise Usage(f"--types {written}: that is no class")
    return found


def _taken(url: str) -> int | None:
    """The size of a store that is not open."""
    try:
        with open_store(store_url(url), create=False) as store:
            return store._disk_bytes()
    except Exception:  # noqa: BLE001 - it is not there yet, or whoever opens it says what is wrong
        return 0


def _show_left(run: Run, done: Imported | Exported) -> None:
    """Report what was left out, separate from the result."""
    for one in done.left_out if run.json else done.left_out[:_SHOWN]:
        record = {"left_out": asdict(one)}
        run.out.row(record, one.checkpoint_id, (one.reason.replace("_", " "), "red"), f" {one}")
    more = done.left_counts.total() - _SHOWN
    if more > 0 and not run.json and not run.quiet:
        run.out.line((f"and {more:,} more", "red"))


def _show_unknown(run: Run, done: Imported) -> None:
    if run.json or run.quiet or not (done.checkpoints or done.writes):
        return
    for name, count in done.unknown.items():
        run.out.line(
            (f"{count:,} object{'s' * (count != 1)} of {name}", "yellow"),
            ", taken over by their fields: nothing to do if your graph's schema names the class; "
            f"else the saver needs it, RopewalkSaver(..., types=[{name.rpartition('.')[2]}])",
        )
    for name, count in done.refused.items():
        run.out.line((f"{count:,} objects of {name}", "yellow"), " did not fit their class")


def _told(done: Imported | Exported) -> dict[str, Any]:
    """The result, without the list of what was left out."""
    told = {name: getattr(done, name) for name in done.__dataclass_fields__}
    return {**told, "left_out": done.left_counts.total(), "left_counts": dict(done.left_counts)}


def _imported_text(done: Imported) -> str:
    told = (
        f"Took over {done.checkpoints:,} checkpoints and {done.writes:,} writes of "
        f"{done.threads:,} threads"
    )
    if done.present:
        told += f"; {done.present:,} were there"
    if done.verified is not None:
        told += f"; {done.verified:,} read back and equal"
    if done.stored_bytes and done.source_bytes and done.checkpoints:
        ratio = done.source_bytes / done.stored_bytes
        told += f". {size(done.source_bytes)} became {size(done.stored_bytes)}"
        told += f": {ratio:,.1f} times smaller" if ratio >= 1.05 else ""
    return told
