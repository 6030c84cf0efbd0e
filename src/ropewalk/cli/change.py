"""Commands that move branches. Each is an operation, and `undo` takes it back."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from ropewalk.cli.command import Run, command, names_of_branches
from ropewalk.cli.errors import Usage
from ropewalk.cli.show import action_of, branches, operation_record, step_record, step_spans
from ropewalk.cli.targets import read_id
from ropewalk.codec import Path, parse_path
from ropewalk.errors import NotFound
from ropewalk.history.history import REDOES, UNDOES
from ropewalk.store import Operation
from ropewalk.store.model import Scalar
from ropewalk.timeline import BranchInfo, Checkpoint, Timeline

StepArgument = Annotated[
    str, typer.Argument(help="An id, the beginning of one, a branch or a tag.")
]
At = Annotated[
    str | None, typer.Option("--at", metavar="ID", help="The checkpoint. Default: the newest step.")
]
Delete = Annotated[bool, typer.Option("--delete", "-d", help="Remove it instead.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


@command()
def branch(
    run: Run,
    name: Annotated[
        str | None,
        typer.Argument(help="Its name. Default: list them.", autocompletion=names_of_branches),
    ] = None,
    at: At = None,
    delete: Delete = False,
    dry_run: DryRun = False,
) -> None:
    """Switch to a branch, which begins here if it is new; or remove one.

    Example: ropewalk branch reviews-first
    """
    if name is None:
        if delete:
            raise Usage("--delete needs the name of a branch")
        branches(run)
        return
    with run.changing() as timeline:
        if delete:
            _delete_branch(run, timeline, name, dry_run)
        elif dry_run:
            raise Usage("--dry-run goes with --delete: nothing else here deletes")
        else:
            made = timeline.branch(name, at)
            verb = "Created and switched to" if made.created else "Switched to existing"
            _show_branch(run, verb, made, created=made.created)


@command()
def switch(
    run: Run, name: Annotated[str, typer.Argument(autocompletion=names_of_branches)]
) -> None:
    """Make another branch the current one.

    Example: ropewalk switch main
    """
    with run.changing() as timeline:
        _show_branch(run, "Switched to", timeline.switch_branch(name))


@command()
def rollback(
    run: Run,
    steps: Annotated[int, typer.Argument(help="How many steps to go back.")] = 1,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ID", help="Go back to this checkpoint.")
    ] = None,
) -> None:
    """Put the branch at an earlier step, at most at its first. Nothing is deleted.

    Example: ropewalk rollback 3
    """
    with run.changing() as timeline:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step = timeline.rollback(steps, to)
        for one in caught:
            run.out.warning(str(one.message))
        _show_step(run, timeline, "Rolled back", step)


@command()
def merge(
    run: Run,
    source: Annotated[
        str,
        typer.Argument(help="A branch, a tag or a checkpoint.", autocompletion=names_of_branches),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            help="combine, ours, theirs, prefer_source or prefer_higher_confidence: who wins "
            "where both changed the same."
        ),
    ] = "combine",
    merger: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=NAME",
            help="For one path: ours, theirs, append, union, add or text. Can be repeated.",
        ),
    ] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="Describe the merge.")] = "",
) -> None:
    """Bring the changes of a branch into the current one.

    Example: ropewalk merge reviews-first --merger notes=append
    """
    mergers = dict(_merger(one) for one in merger or [])
    with run.changing() as timeline:
        step = timeline.merge(source, strategy, mergers=mergers, description=message)
        _show_step(run, timeline, f"Merged {source}", step)


def _merger(written: str) -> tuple[Path, str]:
    path, separator, name = written.rpartition("=")
    if not separator or not path or not name:
        raise Usage(f"--merger takes PATH=NAME, such as notes=append, not {written!r:.80}")
    return parse_path(path), name


@command(name="cherry-pick")
def cherry_pick(run: Run, checkpoint: StepArgument) -> None:
    """Do again, on the branch, what one step changed.

    Example: ropewalk cherry-pick 3a7996fa
    """
    with run.changing() as timeline:
        _show_step(run, timeline, "Picked", timeline.cherry_pick(checkpoint))


@command()
def revert(run: Run, checkpoint: StepArgument) -> None:
    """Take back, on the branch, what one step changed; later steps stay.

    Example: ropewalk revert 3a7996fa
    """
    with run.changing() as timeline:
        _show_step(run, timeline, "Reverted", timeline.revert(checkpoint))


@command()
def fork(
    run: Run,
    name: Annotated[str, typer.Argument(help="The name of the new timeline.")],
    at: At = None,
) -> None:
    """Begin a new timeline at a checkpoint. It shares all that is stored.

    Example: ropewalk fork second-agent --at 3a7996fa
    """
    if run.thread is not None:
        read_id(name, "the name")  # Of another thread of the same user.
    with run.changing() as timeline:
        made = timeline.fork(name, at)
        head = made.at(made.current_branch).checkpoint
        record = {"agent": name, "branch": made.current_branch, "head": head.id}
        run.out.done(record, "Forked ", (name, "bold cyan"), " at ", *step_spans(run, head))


@command()
def undo(
    run: Run,
    sequence: Annotated[
        int | None, typer.Argument(help="The number of an operation. Default: the last one.")
    ] = None,
) -> None:
    """Take back the last operation, or one by its number, whatever it was.

    Example: ropewalk undo
    """
    with run.changing() as timeline:
        done = timeline.undo(sequence)
        _show_undone(run, timeline, "Undid", done, done.metadata.get(UNDOES))


@command()
def redo(run: Run) -> None:
    """Do again what the last undo took back.

    Example: ropewalk redo
    """
    with run.changing() as timeline:
        done = timeline.redo()
        _show_undone(run, timeline, "Redid", done, done.metadata.get(REDOES))


@command()
def tag(
    run: Run,
    name: Annotated[str | None, typer.Argument(help="Its name. Default: list them.")] = None,
    at: At = None,
    delete: Delete = False,
    dry_run: DryRun = False,
) -> None:
    """Name a checkpoint for good, or remove a name. Without a name, list the tags.

    Example: ropewalk tag released --at 3a7996fa
    """
    with run.timeline() if name is None else run.changing() as timeline:
        if name is None:
            if delete:
                raise Usage("--delete needs the name of a tag")
            for one, id in timeline.tags().items():
                run.out.row({"tag": one, "id": id}, one, (one, "bold cyan"), f" {id[:8]}")
        elif delete:
            _delete_tag(run, timeline, name, dry_run)
        elif dry_run:
            raise Usage("--dry-run goes with --delete: nothing else here deletes")
        else:
            timeline.tag(name, at)
            id = timeline.tags()[name]
            run.out.done({"tag": name, "id": id}, "Tagged ", (id[:8], "yellow"), f" as {name}")


def _delete_branch(run: Run, timeline: Timeline, name: str, dry_run: bool) -> None:
    heads = {one.name: one.head for one in timeline.list_branches()}
    if not dry_run:
        timeline.delete_branch(name)
    elif name not in heads:
        raise NotFound(f"timeline {timeline.name!r} has no branch {name!r:.80}")
    record = {"deleted": name, "head": heads[name], "dry_run": dry_run}
    _show_deleted(run, record, f"branch {name}", heads[name], dry_run)


def _delete_tag(run: Run, timeline: Timeline, name: str, dry_run: bool) -> None:
    tags = timeline.tags()
    if not dry_run:
        timeline.delete_tag(name)
    elif name not in tags:
        raise NotFound(f"timeline {timeline.name!r} has no tag {name!r:.80}")
    record = {"deleted": name, "id": tags[name], "dry_run": dry_run}
    _show_deleted(run, record, f"tag {name}", tags[name], dry_run)


def _show_deleted(run: Run, record: dict[str, object], what: str, id: str, dry_run: bool) -> None:
    verb = "Would remove" if dry_run else "Removed"
    run.out.done(record, f"{verb} {what}, which was at ", (id[:8], "yellow"))


def _show_branch(run: Run, verb: str, branch: BranchInfo, **more: object) -> None:
    record = {
        "branch": branch.name,
        "head": branch.head or None,
        "checkpoints": branch.checkpoint_count,
        **more,
    }
    at = f" at {branch.head[:8]}" if branch.head else ""
    run.out.done(record, f"{verb} branch ", (branch.name, "bold cyan"), at)


def _show_step(run: Run, timeline: Timeline, verb: str, step: Checkpoint) -> None:
    name = timeline.current_branch
    record = {"head_of": name, **step_record(run, step)}
    run.out.done(record, f"{verb}: ", (name, "bold cyan"), " is at ", *step_spans(run, step))


def _show_undone(
    run: Run, timeline: Timeline, verb: str, done: Operation, number: Scalar | None
) -> None:
    """Name the operation that was taken back, or came back, and say where the branch is."""
    assert isinstance(number, int)
    (meant,) = timeline.operations(number - 1, 1)
    action = action_of(meant)
    record = {**operation_record(done), "of": {"sequence": number, "action": action}}
    name = timeline.current_branch
    told = f"{verb} operation {number} ({action}): "
    heads = {one.name: one.head for one in timeline.list_branches()}
    at = heads[name][:8] if name in heads else "its beginning"
    run.out.done(record, told, (name, "bold cyan"), " is at ", (at, "yellow"))
