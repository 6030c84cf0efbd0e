"""Running the program: as a real process, in a terminal, and quickly in this one."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from ropewalk.cli.app import app

PROGRAM = [sys.executable, "-m", "ropewalk"]

# What the page of the mission does, with its import line changed.
PAGE = """
from ropewalk import Timeline as AgentStateProtocol

agent = AgentStateProtocol("research-agent")
agent.checkpoint(
    state={"task": "Find best coffee shops in NYC", "stage": "parse"},
    metadata={"confidence": 0.92},
    description="Parsed request",
    logic_step="parse_input",
)
agent.checkpoint(
    state={
        "task": "Find best coffee shops in NYC",
        "stage": "search",
        "results": ["Devocion", "La Cabra"],
    },
    metadata={"confidence": 0.87},
    description="Collected candidates",
    logic_step="search",
)
agent.rollback()
agent.branch("reviews-first")
agent.checkpoint(
    state={"task": "Find best coffee shops in NYC", "stage": "reviews"},
    logic_step="review_aggregation",
)
agent.close()
"""


class Done(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines of its output, as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        """The one line of its output."""
        (found,) = self.records
        return found


def environment(**more: str) -> dict[str, str]:
    """The environment of a process, without what would change the program."""
    kept = {name: value for name, value in os.environ.items() if name not in _CHANGING}
    return {**kept, "PYTHONUTF8": "1", **more}


_CHANGING = {"ROPEWALK_STORE", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"}


def process(*arguments: str, cwd: Path, **more: Any) -> Done:
    """Run the program in a process of its own, with pipes."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=environment(**more.pop("env", {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        **more,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def script(source: str, cwd: Path) -> None:
    """Run Python in a process of its own."""
    subprocess.run([sys.executable, "-c", source], cwd=cwd, env=environment(), check=True)


def here(*arguments: str, env: Mapping[str, str] | None = None) -> Done:
    """Run a command in this process, in the current folder."""
    done = CliRunner().invoke(app, list(arguments), env=env, prog_name="ropewalk")
    return Done(done.exit_code, done.stdout, done.stderr)


def terminal(*arguments: str, cwd: Path, **env: str) -> tuple[int, str]:
    """Run the program in a terminal; its exit code and all that the terminal got."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": "100", **env}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side was closed.
            break
        if not some:
            break
        got += some
    os.close(ours)
    return running.wait(timeout=120), got.decode()


def damage(page: Path) -> None:
    """Change a byte in the largest record of the page's store."""
    with closing(sqlite3.connect(page / ".ropewalk/store.db")) as db:
        rows = [
            (table, column, key, data)
            for table, column in (("tail", "frame"), ("segments", "data"))
            for key, data in db.execute(f"SELECT key, {column} FROM {table}")
        ]
        table, column, key, data = max(rows, key=lambda row: len(row[3]))
        changed = data[:-1] + bytes([data[-1] ^ 0xFF])
        db.execute(f"UPDATE {table} SET {column} = ? WHERE key = ?", (changed, key))
        db.commit()
