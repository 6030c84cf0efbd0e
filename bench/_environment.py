"""The peers' own environments: virtual environments beside ours, made when first needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).parent

Say = Callable[[str], None]


@dataclass(frozen=True)
class Kind:
    """An environment that can be made."""

    folder: Path
    requirements: Path
    version: str | None = None
    """The Python that it needs; None is the one that runs the benchmarks."""


KINDS = {
    "peers": Kind(ROOT / ".bench-venv", HERE / "peers.txt"),
    "python-3.12": Kind(ROOT / ".bench-venv-3.12", HERE / "peers-3.12.txt", "3.12"),
    "frameworks": Kind(ROOT / ".bench-venv-frameworks", HERE / "peers-frameworks.txt", "3.12"),
    "coherence-0.6": Kind(ROOT / ".bench-venv-coherence-0.6", HERE / "peers-coherence-0.6.txt"),
}


@dataclass(frozen=True)
class Environment:
    """Where the peers' interpreter is, and what could not be installed there."""

    python: Path
    failed: tuple[str, ...] = ()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def requirements(text: str) -> list[str]:
    """The lines that name a package."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def prepare(name: str, say: Say) -> Environment:
    """Make an environment, or use it as it is when nothing changed.

    Raises OSError if its Python is not to be found.
    """
    kind = KINDS[name]
    base = interpreter(kind.version)
    stamp, wanted = kind.folder / "installed.txt", _stamp(kind, base)
    if stamp.exists() and stamp.read_text() == wanted:
        return Environment(_python(kind.folder))
    say(f"making the peers' environment in {kind.folder.name} (once)")
    shutil.rmtree(kind.folder, ignore_errors=True)
    subprocess.run([base, "-m", "venv", str(kind.folder)], check=True)
    (kind.folder / ".gitignore").write_text("*\n")
    failed = _install(kind, say)
    if not failed:
        stamp.write_text(wanted)
    return Environment(_python(kind.folder), tuple(failed))


def _stamp(kind: Kind, base: str) -> str:
    wanted = kind.requirements.read_text() + (_asked(base, "sys.version") or "")
    return sha256(wanted.encode()).hexdigest()


def interpreter(version: str | None) -> str:
    """A Python of a version: this one, one on the path or one of pyenv's; raises OSError."""
    if version is None:
        return sys.executable
    for candidate in _candidates(version):
        if _asked(candidate, "'%d.%d' % sys.version_info[:2]") == version:
            return candidate
    raise FileNotFoundError(f"no Python {version} was found on the path or among pyenv's")


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    yield f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from (str(one / "bin" / "python") for one in sorted(pyenv.glob(f"{version}*")))


def _asked(python: str, what: str) -> str | None:
    """What an interpreter says; None if it does not run, as a shim of pyenv's may not."""
    command = [python, "-c", f"import sys; print({what})"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _install(kind: Kind, say: Say) -> list[str]:
    wanted = requirements(kind.requirements.read_text())
    say(f"installing {len(wanted)} packages: {', '.join(wanted)}")
    if _pip(kind, wanted):
        return []
    say("installing all at once failed; one by one:")
    failed = []
    for one in wanted:
        installed = _pip(kind, [one])
        say(f"  {one}: {'installed' if installed else 'could not be installed'}")
        if not installed:
            failed.append(one)
    return failed


def _pip(kind: Kind, wanted: list[str]) -> bool:
    python = str(_python(kind.folder))
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    return subprocess.run([*command, *wanted], check=False).returncode == 0
