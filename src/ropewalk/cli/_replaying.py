"""The command that goes through the logs of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli._command import Run, command
from ropewalk.cli._errors import FOUND, LEFT_OUT, Usage

if TYPE_CHECKING:
    from ropewalk.coherence import Gap, Replay

# Named here as well, so that other commands need not load the layer.
INVARIANTS = "stale-read lost-update single-writer monotonic-version unwritten-version".split()
_SHOWN = 20


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
    from ropewalk.state._views._nodes import counted

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
