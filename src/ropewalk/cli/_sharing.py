"""The command that lists the artifacts that agents share."""

from __future__ import annotations

from datetime import UTC, datetime

from ropewalk.cli._artifacts import ArtifactRow, artifact_rows
from ropewalk.cli._command import Run, command
from ropewalk.cli._looking import Limit, most
from ropewalk.cli._output import on_one_line


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
