"""Finds an interpreter that is new enough for what needs one. `make frameworks` calls this.

`python tools/find_python.py 3.12` prints the path of a Python 3.12 or newer: the one that runs
this if it is, else one from the PATH or from pyenv. It prints one sentence if there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NEWEST = 14
"""The newest Python 3 whose name is looked for."""
SEEN = "import sys, venv; print('%d.%d' % sys.version_info[:2])"


def main(wanted: str) -> int:
    least = parse(wanted)
    for python in candidates(least[1]):
        if version_of(python) >= least:
            print(python)
            return 0
    print(
        f"these tests need Python {wanted} or newer, and there is none on the PATH or in pyenv: "
        f"install one, or name one with PYTHON=, for example make frameworks "
        f"PYTHON=/opt/python{wanted}/bin/python3.",
        file=sys.stderr,
    )
    return 1


def candidates(least: int) -> Iterator[str]:
    """Where an interpreter may be, the most likely to suit first."""
    yield sys.executable
    names = [f"python3.{minor}" for minor in range(least, NEWEST + 1)]
    yield from filter(None, map(shutil.which, names))
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for name in names:
        yield from map(str, sorted(root.glob(f"versions/*/bin/{name}")))


def version_of(python: str) -> tuple[int, int]:
    """The version of an interpreter; (0, 0) if it does not run, or can make no environments."""
    try:
        done = subprocess.run([python, "-c", SEEN], capture_output=True, text=True, check=False)
    except OSError:
        return (0, 0)
    # A shim of pyenv is on the PATH also where the version behind it is not to be used.
    return parse(done.stdout) if done.returncode == 0 else (0, 0)


def parse(version: str) -> tuple[int, int]:
    major, minor = version.strip().split(".")
    return int(major), int(minor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
