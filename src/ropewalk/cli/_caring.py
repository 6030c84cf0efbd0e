"""Commands that make stores, care for them, and move timelines in and out."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.adapters.langgraph.names import thread_of
from ropewalk.cli._artifacts import SHARED, artifact_at
from ropewalk.cli._command import Run, command
from ropewalk.cli._errors import FOUND, Usage, with_hint
from ropewalk.cli._finding import new_store_url, refuse_memory
from ropewalk.cli._graphs import is_internal
from ropewalk.cli._output import on_one_line
from ropewalk.cli._threads import CONVERSATIONS, GRAPHS, kinds_of, read_id, read_user
from ropewalk.cli._urls import shown_url
from ropewalk.errors import Conflict, NotFound
from ropewalk.store import Problem, SpaceStats, Store, migrate, split_name
from ropewalk.store import open as open_store
from ropewalk.threads.address import Address
from ropewalk.timeline import Timeline
from ropewalk.timeline.timeline import TENANT

Recent = Annotated[
    int,
    typer.Option("--recent", min=0, help="How many operations of each timeline stay undoable."),
]


@command("store")
def init(run: Run) -> None:
    """Make a store: .ropewalk in the current folder, or what --store says.

    Example: ropewalk init --store postgresql://user@host/database
    """
    url = new_store_url(run.store)
    refuse_memory(url)
    was_there = _is_there(url)
    with open_store(url) as store:
        shown = shown_url(url)
        record = {"store": shown, "engine": type(store).__name__, "created": not was_there}
        verb = "There is a store already in" if was_there else "Made a store in"
        run.out.done(record, f"{verb} {shown}")


def _is_there(url: str) -> bool:
    try:
        open_store(url, create=False).close()
    except NotFound:
        return False
    return True


@command("store")
def sql(
    run: Run,
    schema: Annotated[
        str, typer.Option("--schema", metavar="NAME", help="The schema that holds the tables.")
    ] = "ropewalk",
) -> None:
    """Print what makes the tables of a store in Postgres, for who does that by hand.

    Asks no server. Example: ropewalk sql --schema agents > store.sql
    """
    from ropewalk.store import PostgresStore

    script = PostgresStore.sql(schema)
    if run.json:
        run.out.record({"schema": schema, "sql": script})
    else:
        run.out.lines(script.rstrip())


@command("store")
def demo(run: Run) -> None:
    """Tell the story of an agent that fails and recovers, and leave its store behind.

    Example: ropewalk demo
    """
    from ropewalk.cli._story import tell

    url = new_store_url(run.store)
    refuse_memory(url)
    silent = run.quiet or run.json
    name = tell(url, print_line=lambda text: None if silent else run.out.lines(text))
    if silent:
        run.out.row({"store": shown_url(url), "agent": name}, name)


@command("store")
def check(
    run: Run,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="Read and verify every byte of every object.")
    ] = False,
) -> int:
    """Look for damage. Ends with 1 if there is some; changes nothing.

    Example: ropewalk check --read-data
    """
    with run.opened() as store, run.out.progress() as progress:
        report = store.check(read_data=read_data, progress=progress)
    for problem in report.problems:
        _show_problem(run, problem)
    told = asdict(report)
    told["problems"] = len(report.problems)
    counts = f"{report.objects:,} objects, {report.operations:,} operations, {report.refs:,} refs"
    verdict = ("sound", "green") if report.ok else (f"{len(report.problems)} problem(s)", "red")
    run.out.done({"ok": report.ok, **told}, verdict, f": looked at {counts}")
    return 0 if report.ok else FOUND


def _show_problem(run: Run, problem: Problem) -> None:
    told = f" {problem.subject}: {problem.message}"
    run.out.row({"problem": problem._asdict()}, problem.subject, (problem.code, "red"), told)


@command("store")
def gc(
    run: Run,
    recent: Recent = 1000,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds to wait before deleting.")
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Delete the objects that no branch, tag or recent operation reaches.

    Example: ropewalk gc --dry-run
    """
    with run.opened() as store, run.out.progress() as progress:
        done = store.gc(recent=recent, grace=grace, dry_run=dry_run, progress=progress)
    verb = "Would delete" if dry_run else "Deleted"
    told = f"{verb} {done.freed:,} objects ({size(done.freed_bytes)}); "
    run.out.done(asdict(done), told, f"{done.kept:,} stay ({size(done.kept_bytes)})")


@command("store")
def stats(run: Run, recent: Recent = 1000) -> None:
    """Say what takes the room: by timeline, branch and top-level key.

    Example: ropewalk stats
    """
    with run.opened() as store:
        with run.out.progress() as progress:
            told = store.stats(recent=recent, progress=progress)
        if run.json:
            run.out.record(asdict(told))
            return
        disk = "" if told.disk is None else f", {size(told.disk)} on disk"
        run.out.line(f"{told.objects:,} objects, {size(told.stored)} stored{disk}")
        run.out.line(f"{size(told.payload)} before compression")
        run.out.line(f"{size(told.freed_bytes)} that `ropewalk gc` would free now")
        for space in told.spaces:
            _show_space(run, store, space)


def _show_space(run: Run, store: Store, space: SpaceStats) -> None:
    steps = f" in {space.commits:,} steps" if space.commits else ""
    run.out.line(
        (_named(space.name), "bold cyan"),
        f" {size(space.stored)}{steps}, {space.operations:,} operations",
    )
    named = [ref for ref in space.refs if not ref.name.startswith("attempt/")]
    for ref in named[:20]:
        told = f"{size(ref.stored):>10}  {size(ref.alone):>10} alone  "
        run.out.line(f"  {told}", (_ref_named(store, space.name, ref.name), "cyan"))
    for name, stored in _by_key(space)[:20]:
        run.out.line(f"  {size(stored):>10}  {name}")


def _ref_named(store: Store, space: str, ref: str) -> str:
    """A ref, for people: in a set it is an artifact."""
    is_artifact = split_name(space)[0] == SHARED and ref.startswith("branch/")
    return on_one_line(artifact_at(store, space, ref)) if is_artifact else ref


def _by_key(space: SpaceStats) -> list[tuple[str, int]]:
    """What the keys of a space take, the largest first; the messages of a thread together."""
    kind = split_name(space.name)[0].partition(":")[0]
    amounts: Counter[str] = Counter()
    for one in space.keys:
        amounts[_grouped(kind, one.key, one.kind) or one.kind] += one.stored
    return amounts.most_common()


def _grouped(kind: str, key: str, what: str) -> str:
    """What a key, or what is none, is counted as, in a space of a kind."""
    if kind == CONVERSATIONS and key.isdecimal():
        return "messages"
    if kind == GRAPHS and what in ("commits", "metadata", "events"):
        return "checkpoints and pending writes"
    if kind == GRAPHS and is_internal(key):
        return "internal channels"
    return key


def _named(space: str) -> str:
    """A space, for people: an agent, a thread and whose it is, or artifacts and their set."""
    tenant, name = split_name(space)
    if tenant == TENANT:
        return name
    if tenant == SHARED:
        return f"artifacts of set {name}"
    kind, _, user = tenant.partition(":")
    whose = f" of {user}" if user else ""
    if kind == GRAPHS:
        return f"LangGraph thread {thread_of(space) or name}"
    return f"thread {name}{whose}" if kind == CONVERSATIONS else space


@command("store", name="migrate")
def migrate_(
    run: Run,
    target: Annotated[
        str, typer.Argument(help="A folder or a URL, as for --store; made if need be.")
    ],
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave behind what is damaged.")
    ] = False,
) -> int:
    """Copy everything into another store, of any engine. Can be run again.

    Example: ropewalk migrate file://backup
    """
    refuse_memory(target)
    with run.opened() as source, open_store(target) as there, run.out.progress() as progress:
        if source.header.store_id == there.header.store_id:
            raise Conflict(f"{shown_url(target)} is the same store: choose another one")
        done = migrate(source, there, keep_going=keep_going, progress=progress)
    for problem in done.lost:
        _show_problem(run, problem)
    record: dict[str, Any] = asdict(done)
    record["lost"] = len(done.lost)
    counts = f"{done.objects:,} objects ({size(done.bytes)}) and {done.operations:,} operations"
    run.out.done(record, f"Copied {counts}; {done.present:,} objects were there")
    return FOUND if done.lost or done.left else 0


@command()
def export(
    run: Run, file: Annotated[Path, typer.Argument(help="A file that is not there.")]
) -> None:
    """Write the whole timeline to one file.

    Example: ropewalk export run.session
    """
    with run.timeline() as timeline, run.out.progress() as progress:
        length = timeline.export_session(file, progress=progress)
        name = timeline.name
    record = {"file": str(file), "agent": name, "bytes": length}
    run.out.done(record, f"Wrote {name} to {file} ({size(length)})")


@command("place", name="import")
def import_(
    run: Run,
    file: Annotated[Path, typer.Argument(help="A file that `ropewalk export` wrote.")],
    name: Annotated[
        str | None, typer.Option("--name", help="The timeline's name here. Default: its own.")
    ] = None,
) -> None:
    """Bring a timeline from a file into the store, or a thread. Everything is verified.

    Example: ropewalk import run.session --name copy
    """
    place = _place(run, name)
    with run.opened() as store, run.out.progress() as progress:
        try:
            made = Timeline.import_session(file, store, progress=progress, **place)
        except Conflict as error:
            option = "--name" if run.thread is None else "--thread"
            raise with_hint(error, f"choose another name with {option}") from error
        steps = made.metrics["checkpoints"]
    record = {"agent": made.name, "checkpoints": steps}
    run.out.done(record, "Imported ", (made.name, "bold cyan"), f": {steps:,} steps")


def _place(run: Run, name: str | None) -> dict[str, Any]:
    """Where a timeline is brought to: its name, and the tenant of a thread."""
    if run.thread is None:
        if run.user is not None:
            raise Usage("--user goes with --thread")
        return {"name": name}
    if name is not None:
        raise Usage("--name is for a timeline of an agent, and --thread for one of a thread")
    kind, graph, conversation = kinds_of(run.thread)
    if kind == GRAPHS:
        raise with_hint(
            Usage(f"a session is a timeline of ours, and {graph!r:.80} would be one of LangGraph"),
            "`ropewalk import-langgraph` takes over threads of LangGraph",
        )
    address = Address(read_id(conversation, "--thread"), read_user(run.user), None)
    return {"name": address.name, "tenant": address.tenant}


def size(count: int) -> str:
    """Bytes, for people."""
    if count < 1000:
        return f"{count} B"
    for unit in ("KB", "MB", "GB"):
        count_in = count / {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
        if count_in < 1000 or unit == "GB":
            return f"{count_in:,.1f} {unit}"
    raise AssertionError
