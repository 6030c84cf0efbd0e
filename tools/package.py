"""Builds what would be published, and tries it as somebody who has nothing else.

`make package` runs this. The wheel and the source distribution are made in `dist/`. Then the
wheel alone is installed into an empty environment, and the demo and the command line run from
there, in a folder outside of the repository, so that nothing can come from `src/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
LEFT_BEHIND = {"__pycache__", "corpus", "crashes", ".DS_Store"}
"""What tools and fuzzers leave in the folders that are published."""


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    print("building the wheel from the source distribution", flush=True)
    shutil.rmtree(DIST, ignore_errors=True)
    # The wheel is made from the source distribution, which so proves to be whole.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, cwd=ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    check_sdist(sdist, project)
    check_wheel(wheel, project)
    try_it(wheel, project)
    print(f"{wheel.name} and {sdist.name} are in {DIST.name}, and work")
    return 0


def run(*command: object, cwd: Path | None = None, code: int = 0, **env: str) -> str:
    """What a program says on both streams; all of it is shown if it ends otherwise."""
    inherited = {name: value for name, value in os.environ.items() if name not in _CHANGING}
    done = subprocess.run(
        [str(one) for one in command],
        cwd=cwd, env={**inherited, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    said = f"`{' '.join(map(str, command))}` ended with {done.returncode}:\n{done.stdout}"
    expect(done.returncode == code, said)
    return done.stdout


_CHANGING = {"PYTHONPATH", "PYTHONHOME", "ROPEWALK_STORE", "VIRTUAL_ENV"}


def expect(holds: bool, said: str) -> None:
    if not holds:
        sys.exit(f"The package is not right. {said}")


def expect_files(found: Iterable[str], wanted: Iterable[str], where: str) -> None:
    found, wanted = set(found), set(wanted)
    expect(wanted <= found, f"{where} lacks {sorted(wanted - found)[:10]}")
    expect(found <= wanted, f"{where} has {sorted(found - wanted)[:10]}, which are not ours")


def files_below(folder: Path) -> Iterator[str]:
    """The files of a folder of the repository, without what tools leave there."""
    for file in folder.rglob("*"):
        if file.is_file() and not LEFT_BEHIND & set(file.relative_to(ROOT).parts):
            yield str(file.relative_to(ROOT))


def check_sdist(sdist: Path, project: dict) -> None:
    """Everything that the project says it holds is there, and nothing else."""
    with tarfile.open(sdist) as archive:
        files = [name.partition("/")[2] for name in archive.getnames()]
    claimed = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    wanted = {"pyproject.toml", "README.md", "LICENSE", ".gitignore", "PKG-INFO"}
    for name in claimed:
        place = ROOT / name.removeprefix("/")
        expect(place.exists(), f"pyproject.toml claims {name}, which is not there")
        wanted |= set(files_below(place)) if place.is_dir() else {place.name}
    expect_files(files, wanted, sdist.name)
    lacks = sorted(name for name in tracked() if (ROOT / name).exists() and name not in wanted)
    expect(not lacks, f"the repository has {lacks[:10]}, which {sdist.name} lacks")


def tracked() -> list[str]:
    """The files that git knows; none in an unpacked source distribution."""
    if not (ROOT / ".git").exists():
        return []
    return run("git", "ls-files", "-z", cwd=ROOT).rstrip("\0").split("\0")


def check_wheel(wheel: Path, project: dict) -> None:
    """The package with all its data, the license, and what pyproject.toml says."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        about = message_from_bytes(archive.read(f"{info}/METADATA"))
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    wanted = {name.removeprefix("src/") for name in files_below(ROOT / "src/ropewalk")}
    kinds = {Path(name).suffix for name in wanted} | {Path(name).name for name in wanted}
    expect({".lua", ".zdict", "py.typed"} <= kinds, "scripts, dictionaries or py.typed moved")
    listed = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    expect_files(names, wanted | {f"{info}/{name}" for name in listed}, wheel.name)
    declared = project["project"]
    for script, target in declared["scripts"].items():
        expect(f"{script} = {target}" in scripts, f"{wheel.name} has no program {script}")
    expect(about["Name"] == declared["name"], f"its name is {about['Name']}")
    expect(about["License-Expression"] == declared["license"], "it does not say its license")
    expect(about["Requires-Python"] == declared["requires-python"], "it takes another Python")
    extras = set(about.get_all("Provides-Extra", []))
    expect(extras == set(declared["optional-dependencies"]), f"its extras are {extras}")


def names_of(requirements: Iterable[str]) -> set[str]:
    """The packages that requirements ask for."""
    return {re.split(r"[^\w.-]", one)[0].lower() for one in requirements}


def try_it(wheel: Path, project: dict) -> None:
    """Install the wheel alone; tell the story, and do what its last lines say."""
    print("trying the wheel in an empty environment", flush=True)
    with tempfile.TemporaryDirectory(prefix="ropewalk-package-") as made:
        folder = Path(made)
        run(sys.executable, "-m", "venv", folder / "env")
        python = folder / "env/bin/python"
        before = installed(python)
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        run(*pip, wheel)
        needed = {"ropewalk", *names_of(project["project"]["dependencies"])}
        added = installed(python) - before
        expect(needed <= added <= needed | THEIRS, f"it brings {sorted(added)}")

        def here(command: str, code: int = 0) -> str:
            return run("bash", "-c", command, cwd=folder, code=code)

        where = here("env/bin/python -c 'import ropewalk; print(ropewalk.__file__)'").strip()
        expect(Path(where).is_relative_to(folder / "env"), f"ropewalk comes from {where}")
        refused = here("env/bin/ropewalk tree", code=2)
        expect(INSTALL.search(refused) is not None, f"without its extra it says {refused!r}")
        story = here("env/bin/python -c 'import ropewalk.cli as it; it.tell_story()'")
        install = INSTALL.search(story)
        expect(install is not None, "the story does not say how to get the command line")
        # Runs as it is printed: an index is not asked for what is there, only for what is not.
        here(install[0])
        last = story[story.rindex(":\n") + 2 :].splitlines()
        expect(len(last) == 3, f"the story ends with {last}")
        for command in last:
            expect(bool(here(command).strip()), f"`{command}` says nothing")
        for command in MORE:
            here(f"env/bin/{command}")


THEIRS = {"typing_extensions"}
"""What the packages that we need bring themselves: this one comes with pyfastcdc."""
INSTALL = re.compile(r"(\S+ -m )?pip install 'ropewalk\[cli\]'")
"""How to get the command line, as messages say it."""
MORE = (
    "ropewalk --version",
    "python -m ropewalk check --read-data",
    "ropewalk demo",
    "ropewalk log --timeline demo-2 --json",
    "ropewalk rollback --timeline demo-2",
    "ropewalk export demo.session --timeline demo",
    "ropewalk init --store file://plain",
    "ropewalk import demo.session --store file://plain",
    "ropewalk stats --store file://plain",
)


def installed(python: Path) -> set[str]:
    """The packages of an environment."""
    said = run(python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze")
    return {line.partition("==")[0].lower() for line in said.splitlines() if "==" in line}


if __name__ == "__main__":
    sys.exit(main())
