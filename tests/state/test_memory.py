"""How much memory steps take over a large value that none of them reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.state import workers

ALLOWED = 30_000_000


@pytest.mark.parametrize("engine", ["files", "sqlite"])
def test_steps_that_read_nothing_take_next_to_no_memory(tmp_path: Path, engine: str) -> None:
    checkpoint = workers.run("make", engine, tmp_path, 20)
    taken = workers.run("steps", engine, tmp_path, json.dumps(checkpoint), 100)

    assert taken["checkpoint"]["docs"] == checkpoint["docs"]
    assert taken["checkpoint"]["step"] == 100
    assert taken["above"] < ALLOWED / 2
    read = workers.run("steps", engine, tmp_path, json.dumps(checkpoint), 1, "docs")
    assert read["above"] > 20_000_000  # it would have been seen


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["files", "sqlite"])
def test_a_hundred_steps_over_a_hundred_megabytes_take_under_thirty(
    tmp_path: Path, engine: str
) -> None:
    checkpoint = workers.run("make", engine, tmp_path, 100)
    taken = workers.run("steps", engine, tmp_path, json.dumps(checkpoint), 100)

    assert taken["above"] < ALLOWED
