"""Commands that show what is there: steps, states, what changed and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from ropewalk.adapters.langgraph.saver.timeline import GraphTimeline, graph_names
from ropewalk.cli.command import Run, command
from ropewalk.cli.errors import FOUND, Usage, with_hint
from ropewalk.cli.output import Span, on_one_line, plain, pretty_json, same
from ropewalk.cli.targets import ArtifactRow, artifact_rows, names_by_user, sets_in, told_sets
from ropewalk.codec import Path
from ropewalk.errors import InvalidInput, PathNotFound
from ropewalk.history.history import REDOES, UNDOES
from ropewalk.store import Operation, Store
from ropewalk.timeline import Checkpoint, CheckpointStatus, Diff, Timeline, TreeLine, drawing
from ropewalk.timeline.checkpoint import Past
from ropewalk.tree import ABSENT

Limit = Annotated[
    int, typer.Option("--limit", "-n", min=0, help="How many to show at most; 0 shows all.")
]
STYLES = {
    CheckpointStatus.ACTIVE: "green",
    CheckpointStatus.ROLLED_BACK: "dim",
    CheckpointStatus.RECOVERED: "yellow",
    CheckpointStatus.FAILED: "red",
}
_MARKS = {
    CheckpointStatus.ACTIVE: "*",
    CheckpointStatus.ROLLED_BACK: "o",
    CheckpointStatus.RECOVERED: "r",
    CheckpointStatus.FAILED: "!",
}

PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help='A place in the state: docs[3].title, ["a b"].')
]
_DIFF_STYLES = {"+": "green", "-": "red", "~": "yellow"}


def most(limit: int) -> int | None:
    """A limit as methods take it."""
    return limit or None


def step_record(run: Run, step: Checkpoint) -> dict[str, Any]:
    """A checkpoint as one object of JSON."""
    told = step.to_dict(state=False)
    told["metadata"] = plain(told["metadata"])
    return {**told, **run.view.facts(step)}


def step_spans(run: Run, step: Checkpoint, names: list[str] | None = None) -> list[Span]:
    """A checkpoint on one line, for people."""
    spans: list[Span] = [
        (_MARKS[step.status], STYLES[step.status]),
        " ",
        (step.short, "yellow"),
        " ",
        (f"{step.time:%Y-%m-%d %H:%M:%S}Z", "dim"),
        " ",
        run.view.title(step),
    ]
    if names:
        spans += [" ", (f"({', '.join(names)})", "bold cyan")]
    if step.merged:
        spans += [" ", (drawing.MERGED, "magenta")]
    if step.error:
        spans += [" ", (step.error, "red")]
    return spans


@command()
def log(
    run: Run,
    limit: Limit = 50,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only attempts that failed, of all branches.")
    ] = False,
) -> None:
    """List the steps of a branch, newest first.

    Example: ropewalk log --limit 10
    """
    with run.timeline() as timeline:
        names = names_by_id(timeline)
        shown = timeline.failures if failed else timeline.history
        step = None
        for step in shown(limit=most(limit)):
            run.out.row(step_record(run, step), step.id, *step_spans(run, step, names.get(step.id)))
        branches = [on_one_line(one.name) for one in timeline.list_branches()]
        if step is None and branches and not failed and timeline.head is None:
            run.out.note(
                f"branch {timeline.current_branch!r} has no steps; --branch shows those of "
                f"{', '.join(branches[:5])}{', ...' if len(branches) > 5 else ''}"
            )


def names_by_id(timeline: Timeline) -> dict[str, list[str]]:
    """The branches and tags at each checkpoint that has some."""
    found: dict[str, list[str]] = {}
    for branch in timeline.list_branches():
        star = " *" if branch.is_current else ""
        found.setdefault(branch.head, []).append(on_one_line(branch.name) + star)
    for tag, id in timeline.tags().items():
        found.setdefault(id, []).append(f"tag: {tag}")
    return found


@command()
def tree(
    run: Run,
    limit: Limit = 0,
    fold: Annotated[
        int, typer.Option("--fold", min=2, help="Fold runs of more steps than this.")
    ] = 12,
    show_all: Annotated[bool, typer.Option("--all", help="Fold nothing.")] = False,
) -> None:
    """Draw the steps as a tree, oldest first. With --limit, the last lines of it.

    Example: ropewalk tree --all
    """
    with run.timeline() as timeline:
        lines = timeline.tree(fold=None if show_all else fold, unicode=run.out.unicode)
        for one in lines[-limit:]:
            if run.out.quiet and one.id is None:
                continue
            if one.id is not None and isinstance(timeline, GraphTimeline):
                one = one._replace(description=run.view.title(timeline.get(one.id)))
            run.out.row(_line_record(one), one.id or "", *_line_spans(one))
        if run.json or run.quiet:
            return
        if not lines:
            run.out.line("(no checkpoints yet)")
            return
        run.out.line("Signs: ", *legend_spans(run, lines))


def legend_spans(run: Run, lines: list[TreeLine]) -> list[Span]:
    """What the signs of a tree mean."""
    style = drawing.Style(unicode=run.out.unicode)
    spans: list[Span] = []
    for status, mark in style.marks.items():
        spans += [(mark, STYLES[status]), f" {status.replace('_', ' ')}  "]
    spans += [(style.more, "dim"), " not shown  * current branch"]
    if any(line.merged for line in lines):
        spans += ["  ", (drawing.MERGED, "magenta"), " with what others did meanwhile"]
    return spans


def _line_record(line: TreeLine) -> dict[str, Any]:
    return {
        "id": line.id,
        "depth": len(line.prefix) // 3,
        "hidden": line.hidden,
        "hidden_failures": line.hidden_failures,
        "status": None if line.status is None else str(line.status),
        "description": line.description,
        "branches": list(line.branches),
        "current": line.is_current,
        "tags": list(line.tags),
        "merges": list(line.merges),
        "merged": line.merged,
        "error": line.error or None,
    }


def _line_spans(line: TreeLine) -> list[Span]:
    if line.id is None or line.status is None:
        return [(str(line), "dim")]
    spans: list[Span] = [
        (line.prefix, "dim"),
        (line.mark, STYLES[line.status]),
        " ",
        line.description,
        " ",
        (f"[{line.id[:8]}]", "yellow"),
    ]
    if line.names:
        spans += [" ", (f"({', '.join(line.names)})", "bold cyan")]
    if line.told_merges:
        spans += [" ", (line.told_merges, "magenta")]
    if line.error:
        spans += [" ", (line.error, "red")]
    return spans


@command()
def branches(run: Run, limit: Limit = 0) -> None:
    """List the branches; a star marks the current one.

    Example: ropewalk branches
    """
    with run.timeline() as timeline:
        for one in timeline.list_branches()[: most(limit)]:
            record = {
                "name": one.name,
                "current": one.is_current,
                "head": one.head,
                "checkpoints": one.checkpoint_count,
            }
            mark: Span = ("* ", "green") if one.is_current else "  "
            name: Span = (on_one_line(one.name), "bold cyan")
            count = f" {one.checkpoint_count} steps"
            run.out.row(record, one.name, mark, name, " ", (one.head[:8], "yellow"), count)


@command()
def show(
    run: Run,
    checkpoint: Annotated[
        str | None, typer.Argument(help="An id, the beginning of one, a branch or a tag.")
    ] = None,
    path: Annotated[
        str | None, typer.Argument(help="Show only what is there: docs[3].title")
    ] = None,
) -> None:
    """Show a checkpoint and its state, or one place in it. Default: the newest step.

    Example: ropewalk show 3a7996fa 'messages[0].content'
    """
    with run.timeline() as timeline:
        past = timeline.at(timeline.current_branch if checkpoint is None else checkpoint)
        step = past.checkpoint
        if path is not None:
            _show_part(run, past, path)
        elif run.json:
            state = plain(run.view.whole(step.state))
            run.out.record({**step_record(run, step), "state": state, "traceback": step.traceback})
        elif run.quiet:
            run.out.line(step.id)
        else:
            _show_step(run, step)


def _show_part(run: Run, past: Past, written: str) -> None:
    path = run.view.parse(written, past)
    value = run.view.part(path, past.get(path)) if path else run.view.whole(past.state)
    if run.json:
        told = {"path": run.view.spell(path), "value": plain(value)}
        run.out.record({"id": past.checkpoint.id, **told})
    else:
        run.out.lines(pretty_json(value))


def _show_step(run: Run, step: Checkpoint) -> None:
    facts = {
        "checkpoint": step.id,
        "hash": step.hash,
        "parents": " ".join(step.parents),
        "agent" if run.thread is None else "thread": step.agent,
        "branch": step.branch,
        "time": step.time.isoformat(),
        "status": str(step.status),
        "merged": "with what others did meanwhile" if step.merged else "",
        "description": step.description,
        "step": step.logic_step,
        "error": step.error or "",
        **run.view.facts(step),
    }
    width = 1 + max(len(name) for name, fact in facts.items() if fact)
    for name, fact in facts.items():
        if fact:
            style = STYLES[step.status] if name in ("status", "error") else ""
            run.out.line((f"{name:<{max(12, width)}}", "dim"), (" ".join(fact.split("\n")), style))
    if step.traceback:
        run.out.lines(step.traceback.rstrip(), before="    ", style="red")
    state = run.view.whole(step.state)
    for name, value in (("metadata", step.metadata), ("state", state)):
        if value or name == "state":
            run.out.line((name, "dim"))
            run.out.lines(pretty_json(value), before="    ")


@command()
def ops(
    run: Run,
    limit: Limit = 50,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing operations as they happen.")
    ] = False,
) -> None:
    """List what was done to the timeline, newest first. With --watch, wait for more.

    Example: ropewalk ops --limit 5
    """
    with run.timeline() as timeline:
        if watch:
            for one in timeline.watch():
                _show_operation(run, one)
                print(end="", flush=True)
            return
        for one in timeline.last_operations(limit=most(limit)):
            _show_operation(run, one)


def operation_record(operation: Operation) -> dict[str, Any]:
    """An operation as one object of JSON."""
    return {
        "sequence": operation.sequence,
        "time": operation.time,
        "action": operation.metadata.get("action"),
        "moves": [
            {"ref": name, "from": before and before.hex(), "to": target and target.hex()}
            for name, before, target in operation.moves
        ],
        "metadata": plain(dict(operation.metadata)),
        "write_id": operation.write_id,
    }


def action_of(operation: Operation) -> str:
    """What the log calls an operation."""
    return str(operation.metadata.get("action") or "commit")


def _show_operation(run: Run, operation: Operation) -> None:
    meant = operation.metadata.get(REDOES, operation.metadata.get(UNDOES))
    action = action_of(operation) + ("" if meant is None else f" of {meant!r}")
    spans: list[Span] = [(f"{operation.sequence:>6} ", "yellow"), (f"{action:<14}", "bold")]
    for name, before, target in operation.moves:
        kind, named = run.view.ref(name)
        was = "new" if before is None else before.hex()[:8]
        now = "gone" if target is None else target.hex()[:8]
        spans += [f" {kind} ", (on_one_line(named), "cyan"), f" {was} -> {now}"]
    run.out.row(operation_record(operation), str(operation.sequence), *spans)


@command()
def metrics(run: Run) -> None:
    """Say how often what was done, and how much there is.

    Example: ropewalk metrics
    """
    with run.timeline() as timeline:
        told = timeline.metrics
        if run.json:
            run.out.record(told)
            return
        for name, count in told.items():
            run.out.line(f"{name:<16} ", (f"{count:>10,}", "yellow"))


@command("store")
def agents(run: Run, limit: Limit = 0) -> None:
    """List the timelines in the store.

    Example: ropewalk agents
    """
    with run.opened() as store:
        for name in Timeline.agents(store)[: most(limit)]:
            timeline = Timeline(name, store)
            heads = {one.name: one for one in timeline.list_branches()}
            head = heads.get(timeline.current_branch)
            count = 0 if head is None else head.checkpoint_count
            record = {
                "name": name,
                "current_branch": timeline.current_branch,
                "branches": len(heads),
                "checkpoints": count,
                "head": None if head is None else head.head,
            }
            told = f" {count} steps on {timeline.current_branch}, {len(heads)} branch(es)"
            run.out.row(record, name, (name, "bold cyan"), told)
        if not run.json and not run.quiet:
            _tell_of_others(run, store)


def _tell_of_others(run: Run, store: Store) -> None:
    """Say what else is in a store, and which command lists it."""
    threads = sum(map(len, names_by_user(store).values())) + len(graph_names(store))
    if threads:
        told = f"and {threads:,} thread{'s' * (threads > 1)}: `ropewalk threads` lists them"
        run.out.line((told, "dim"))
    sets = sets_in(store)
    if sets:
        told = f"and artifacts of {told_sets(sets)}: `ropewalk artifacts` lists them"
        run.out.line((told, "dim"))


@command()
def diff(
    run: Run,
    old: Annotated[str | None, typer.Argument(help="An id, a branch or a tag.")] = None,
    new: Annotated[str | None, typer.Argument(help="The same. Default: the newest step.")] = None,
    limit: Limit = 0,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 if there are differences.")
    ] = False,
) -> int:
    """Show what changed from one checkpoint to another. Default: in the last step.

    Example: ropewalk diff abc123 def456
    """
    with run.timeline() as timeline:
        found = run.view.diff(timeline.diff(_before(timeline) if old is None else old, new))
        # Large values are read when they are shown, so the store must still be open.
        _show_diff(run, Diff(found.changes[: most(limit)]))
    return FOUND if exit_code and found else 0


def _show_diff(run: Run, shown: Diff) -> None:
    if run.json:
        for change, told in zip(shown.changes, shown.to_dict(), strict=True):
            told["path"] = run.view.spell(change.path)
            run.out.record({name: plain(one) for name, one in told.items()})
    elif run.quiet:
        for change in shown:
            run.out.line(run.view.spell(change.path))
    elif shown:
        for line in (line for change in shown for line in run.view.lines(change)):
            run.out.line((line, _DIFF_STYLES.get(line.lstrip()[:1], "")))
    else:
        run.out.line("no differences")


def _before(timeline: Timeline) -> str:
    head = timeline.at(timeline.current_branch).checkpoint
    if head.parent_id is None:
        raise InvalidInput(
            f"checkpoint {head.short} is the first step: name two checkpoints to compare"
        )
    return head.parent_id


@command()
def blame(run: Run, path: PathArgument) -> None:
    """Find the step that last wrote what is at a path.

    Example: ropewalk blame 'messages[0].content'
    """
    with run.timeline() as timeline:
        steps = _parsed(run, timeline, path)
        try:
            step = timeline.blame(steps)
        except PathNotFound:
            raise with_hint(
                PathNotFound(f"there is nothing at {path:.200} now"),
                "`ropewalk show` prints what is there",
            ) from None
        _answer(run, step, steps)


class Test(StrEnum):
    """What `bisect` holds the value at a path against."""

    EQUALS = "equals"
    DIFFERS = "differs"
    ABOVE = "above"
    BELOW = "below"
    CONTAINS = "contains"
    EXISTS = "exists"
    MISSING = "missing"


@command()
def bisect(
    run: Run,
    path: PathArgument,
    value: Annotated[
        str | None, typer.Argument(help='JSON: 3, true, "text". Other text stands for itself.')
    ] = None,
    test: Annotated[Test, typer.Option("--test", help="What the value is held against.")] = (
        Test.EQUALS
    ),
    exists: Annotated[
        bool, typer.Option("--exists", help="The same as --test exists: needs no VALUE.")
    ] = False,
) -> None:
    """Find the first step at which the value at a path is VALUE.

    Looks at few steps, so it must have become true once and stayed so.

    Example: ropewalk bisect status '"failed"'
    """
    chosen = Test.EXISTS if exists else test
    with run.timeline() as timeline:
        steps = _parsed(run, timeline, path)
        _answer(run, timeline.bisect(_predicate(chosen, value), steps), steps)


def _parsed(run: Run, timeline: Timeline, written: str) -> Path:
    """A place that somebody wrote; where its name has to be looked up, at the newest step."""
    return run.view.parse(written, timeline.at(timeline.current_branch))


def _answer(run: Run, step: Checkpoint, path: Path) -> None:
    record = {"path": run.view.spell(path), **step_record(run, step)}
    run.out.row(record, step.id, *step_spans(run, step))


def _predicate(test: Test, written: str | None) -> Callable[[Any], bool]:
    """A question to the value at a path; `ABSENT` where there is none."""
    if test in (Test.EXISTS, Test.MISSING):
        if written is not None:
            raise Usage(f"--test {test} takes no VALUE")
        return lambda found: (found is ABSENT) == (test is Test.MISSING)
    if written is None:
        raise Usage("bisect needs a PATH and a VALUE, or --exists")
    wanted = _parse(written)
    if test is Test.EQUALS:
        return lambda found: same(plain(found), wanted)
    if test is Test.DIFFERS:
        return lambda found: not same(plain(found), wanted)
    if test is Test.CONTAINS:
        return lambda found: _contains(found, wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        raise Usage(f"--test {test} takes a number, not {written!r:.80}")
    return lambda found: (
        _is_number(found) and (found > wanted if test is Test.ABOVE else found < wanted)
    )


def _parse(written: str) -> Any:
    try:
        return json.loads(written)
    except ValueError:
        return written  # A word without quotes is what people mean by it.
    except RecursionError:
        raise InvalidInput(f"{written!r:.80} is nested too deeply") from None


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, str):
        return isinstance(wanted, str) and wanted in found
    if isinstance(found, list | tuple | set | frozenset | dict):
        return any(same(plain(one), wanted) for one in found)
    return False


@command("sets")
def artifacts(run: Run, limit: Limit = 50) -> None:
    """List the artifacts that agents share, the latest written first.

    Without --set, those of all sets.

    Example: ropewalk artifacts --set trip
    """
    with run.opened() as store:
        for row in artifact_rows(store, run.set_name)[: most(limit)]:
            _show_row(run, row)


def _show_row(run: Run, row: ArtifactRow) -> None:
    written = datetime.fromtimestamp(row.newest.time / 1e6, UTC)
    record = {
        "set": row.set_name,
        "name": row.name,
        "version": row.newest.number,
        "agent": row.newest.agent,
        "time": written.isoformat(),
    }
    writer = on_one_line(row.newest.agent)
    told = f" of set {row.set_name} version {row.newest.number} by {writer}"
    time = (f"{written:%Y-%m-%d %H:%M:%S}Z ", "dim")
    run.out.row(record, row.name, time, (on_one_line(row.name), "bold cyan"), told)
