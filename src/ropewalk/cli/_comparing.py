"""Commands that ask the past: what changed, which step wrote it, when it became so."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from ropewalk.cli import _values as values
from ropewalk.cli._command import Run, command
from ropewalk.cli._errors import FOUND, Usage
from ropewalk.cli._looking import Limit, most, step_record, step_spans
from ropewalk.codec import Path
from ropewalk.errors import InvalidInput
from ropewalk.timeline import Checkpoint, Diff, Timeline
from ropewalk.tree import ABSENT

PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help='A place in the state: docs[3].title, ["a b"].')
]
_DIFF_STYLES = {"+": "green", "-": "red", "~": "yellow"}


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
            run.out.record({name: values.plain(one) for name, one in told.items()})
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
        _answer(run, timeline.blame(steps), steps)


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
        return lambda found: values.same(values.plain(found), wanted)
    if test is Test.DIFFERS:
        return lambda found: not values.same(values.plain(found), wanted)
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
        return any(values.same(values.plain(one), wanted) for one in found)
    return False
