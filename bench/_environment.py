"""The peers' own environment: a virtual environment beside ours, made when first needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench-venv"
REQUIREMENTS = Path(__file__).with_name("peers.txt")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """Where the peers' interpreter is, and what could not be installed there."""

    python: Path
    failed: tuple[str, ...] = ()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _stamp() -> str:
    wanted = REQUIREMENTS.read_text() + sys.version
    return sha256(wanted.encode()).hexdigest()


def requirements(text: str) -> list[str]:
    """The lines that name a package."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def prepare(say: Say) -> Environment:
    """Make the environment, or use it as it is when nothing changed."""
    stamp = FOLDER / "installed.txt"
    if stamp.exists() and stamp.read_text() == _stamp():
        return Environment(_python(FOLDER))
    say("making the peers' environment in .bench-venv (once)")
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    (FOLDER / ".gitignore").write_text("*\n")
    failed = _install(say)
    if not failed:
        stamp.write_text(_stamp())
    return Environment(_python(FOLDER), tuple(failed))


def _install(say: Say) -> list[str]:
    wanted = requirements(REQUIREMENTS.read_text())
    say(f"installing {len(wanted)} packages: {', '.join(wanted)}")
    if _pip(wanted):
        return []
    say("installing all at once failed; one by one:")
    failed = []
    for one in wanted:
        installed = _pip([one])
        say(f"  {one}: {'installed' if installed else 'could not be installed'}")
        if not installed:
            failed.append(one)
    return failed


def _pip(wanted: list[str]) -> bool:
    command = [str(_python(FOLDER)), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    return subprocess.run([*command, *wanted], check=False).returncode == 0
