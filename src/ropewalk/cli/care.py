"""Commands that make stores, care for them, and judge the logs of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.adapters.langgraph.saver.checkpoints import thread_of
from ropewalk.cli.command import Run, command
from ropewalk.cli.errors import FOUND, LEFT_OUT, Usage, with_hint
from ropewalk.cli.output import on_one_line, shown_url
from ropewalk.cli.targets import (
    CONVERSATIONS,
    GRAPHS,
    SHARED,
    artifact_at,
    kinds_of,
    new_store_url,
    read_id,
    read_user,
    refuse_memory,
)
from ropewalk.cli.views import is_internal
from ropewalk.errors import Conflict, NotFound
from ropewalk.store import Problem, SpaceStats, Store, migrate, split_name
from ropewalk.store import open as open_store
from ropewalk.threads.address import Address
from ropewalk.timeline import Timeline
from ropewalk.timeline.timeline import TENANT

if TYPE_CHECKING:
    from ropewalk.coherence import Gap, Replay

Recent = Annotated[
    int,
    typer.Option("--recent", min=0, help="How many operations of each timeline stay undoable."),
]


# Named here as well, so that other commands need not load the layer.
INVARIANTS = "stale-read lost-update single-writer monotonic-version unwritten-version".split()
_SHOWN = 20


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
    from ropewalk.cli.demo import tell

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


@command("store", name="replay")
def replay_(
    run: Run,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Logs, or folders with logs (*.jsonl).")
    ],
    invariant: Annotated[
        list[str] | None,
        typer.Option("--invariant", metavar="NAME", help=f"Only this: {', '.join(INVARIANTS)}."),
    ] = None,
    skew: Annotated[
        float,
        typer.Option("--skew", min=0, metavar="SECONDS", help="How far clocks may be apart."),
    ] = 0.0,
) -> int:
    """Look for stale reads and lost updates in the logs of shared artifacts.

    Ends with 1 if a promise was broken, with 11 if none was but records are missing, as those
    of reads from a state log alone, or there are none to judge.

    Example: ropewalk replay runs/today
    """
    from ropewalk.coherence import replay

    unknown = [one for one in invariant or () if one not in INVARIANTS]
    if unknown:
        raise Usage(f"there is no invariant {unknown[0]!r}; there are {', '.join(INVARIANTS)}")
    done = replay(*paths, invariants=invariant or INVARIANTS, skew_seconds=skew)
    _show_findings(run, done)
    for gap in done.gaps if run.json else done.gaps[:_SHOWN]:
        run.out.row({"gap": gap._asdict()}, "gap", ("gap", "yellow"), f" {_told(gap)}")
    run.out.done(_record(done), *_verdict(done, invariant or []))
    if not done.ok:
        return FOUND
    return 0 if done.complete and not (done.findings or done.empty) else LEFT_OUT


def _show_findings(run: Run, done: Replay) -> None:
    shown: Counter[str] = Counter()
    for one in done.findings:
        shown[one.invariant] += 1
        if run.json or run.quiet or shown[one.invariant] <= _SHOWN:
            style = "red" if one.certain else "yellow"
            record = {"finding": asdict(one)}
            run.out.row(record, one.invariant, (one.invariant, style), f" {one}")
    if not (run.json or run.quiet):
        for name, count in shown.items():
            if count > _SHOWN:
                run.out.line(f"{name}: {count - _SHOWN:,} more; --json shows all")


def _told(gap: Gap) -> str:
    if gap.found is None:
        what = f"stops before record {gap.expected}: it is still written, was killed or was cut off"
    else:
        what = f"has record {gap.found} where {gap.expected} was to come"
    return f"the {gap.stream} of {gap.instance_id[:12]} {what}"


def _verdict(done: Replay, only: list[str]) -> list[str | tuple[str, str]]:
    from ropewalk.state.outline import counted

    certain = Counter(one.invariant for one in done.findings if one.certain)
    looked = (
        f": looked at {counted(done.reads, 'read')} and {counted(done.writes, 'write')} of "
        f"{counted(done.artifacts, 'artifact')} by {counted(done.agents, 'agent')} in "
        f"{counted(done.instances, 'process', 'processes')}"
    )
    notes = ""
    if done.degraded:
        notes += f"; {done.degraded:,} degraded reads are not judged"
    if done.unaudited:
        of = counted(done.unaudited, "process", "processes")
        notes += f"; the reads of {of} are in no log that was named: a content audit log has them"
    if done.blind:
        notes += f"; {counted(done.blind, 'write')} replaced what their agents had not read"
    if done.unbounded:
        notes += f"; {done.unbounded:,} reads have no bound, so they cannot be stale"
    if certain:
        told = ", ".join(f"{count:,} {name}" for name, count in certain.items())
        return [(f"broken ({told})", "red"), looked, notes]
    if done.empty:
        told = f" in {counted(done.files, 'file')}: record a run with `record_to` first"
        return [("nothing to judge", "yellow"), told]
    if done.findings or not done.complete:
        return [("nothing broken is certain, but records are missing", "yellow"), looked, notes]
    kept = f"no {' and no '.join(only)} was found" if only else "every promise was kept"
    return [(kept, "green"), looked, notes]


def _record(done: Replay) -> dict[str, Any]:
    counts = {
        name: value for name, value in asdict(done).items() if name not in ("findings", "gaps")
    }
    return {
        "ok": done.ok,
        "complete": done.complete,
        "findings": len(done.findings),
        "gaps": len(done.gaps),
        **counts,
    }
