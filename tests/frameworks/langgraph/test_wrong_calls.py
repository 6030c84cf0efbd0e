"""What a checkpointer says to who calls it wrongly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import FormatError, InvalidInput
from tests.frameworks.langgraph.checkpoints import config_of, put
from tests.frameworks.langgraph.official import sqlite_saver


@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
def test_one_id_in_the_place_of_several_drops_no_thread(strategy: str) -> None:
    saver = RopewalkSaver()
    put(saver, config_of("1"))

    with pytest.raises(InvalidInput, match=r"pass \['12'\]"):
        saver.prune("12", strategy=strategy)
    with pytest.raises(InvalidInput, match=r"pass \['12'\]"):
        asyncio.run(saver.aprune("12", strategy=strategy))
    with pytest.raises(InvalidInput, match="run_ids"):
        saver.delete_for_runs("12")
    assert list(saver.threads()) == ["1"]


def test_the_file_of_another_saver_says_how_it_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite_saver(path):
        pass

    with pytest.raises(FormatError, match="ropewalk import-langgraph"):
        RopewalkSaver(path)


def test_the_word_of_sqlite_for_memory_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInput, match="memory://"):
        RopewalkSaver(":memory:")
    assert list(tmp_path.iterdir()) == []


def test_a_memory_that_is_none_is_refused_at_once() -> None:
    wrong: Any = {}

    with pytest.raises(InvalidInput, match="RopewalkStore"):
        RopewalkSaver(memory=wrong)
