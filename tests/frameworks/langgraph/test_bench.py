"""Every scenario that compiles graphs runs, small, and every side takes part in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._model import Place
from bench._servers import running
from bench.engines.savers import saver
from bench.scenarios._sides import EVERY_SAVER, NO_SAVER, SAVER_MEMORY, SAVER_POOL

SMALL = {
    "langgraph-chat": {"steps": 12},
    "langgraph-chat-async": {"steps": 12},
    "langgraph-documents": {"documents": 3, "steps": 10},
    "langgraph-replace": {"documents": 3, "steps": 10},
    "langgraph-history": {"steps": 10},
    "langgraph-threads": {"threads": 2, "history": 5, "steps": 2},
    "langgraph-threads-small": {"threads": 2, "steps": 2},
    "langgraph-turns": {"turns": 10},
    "langgraph-turns-sync": {"turns": 10},
    "steps-new-threads": {"invokes": 12},
    "steps-chat": {"steps": 12},
    "steps-dialogue": {"turns": 12},
    "steps-calls": {},
    "steps-sharing": {"bytes": 50_000, "threads": 2},
}
OURS = [(name, registry.scenarios()[name].engines[0]) for name in SMALL]
SIDES = [
    *OURS,
    *(("langgraph-turns", side) for side in EVERY_SAVER[1:]),
    ("langgraph-history", SAVER_MEMORY),
    ("langgraph-threads", SAVER_POOL),
]
ONLY_SOME = {
    "added_s",  # not without a checkpointer, which is what it is measured from
    "again_ms",  # not where nothing can be opened again
    "grown",
    "server_ms",
    "server_s",
    "stored_kb",
    "stored_mb",
}


@pytest.mark.parametrize(("scenario", "side"), SIDES)
def test_a_unit_measures_a_graph(scenario: str, side: str) -> None:
    found: dict[str, Any] = unit.measure(scenario, side, SMALL[scenario])
    known = {metric.key for metric in registry.scenarios()[scenario].metrics}

    assert known - found["figures"].keys() <= ONLY_SOME
    if side != NO_SAVER and "stored_mb" in known:
        assert found["figures"]["stored_mb"] > 0


@pytest.mark.parametrize("name", [*EVERY_SAVER, SAVER_POOL])
def test_what_a_side_keeps_reads_back_when_it_is_opened_again(name: str, tmp_path: Path) -> None:
    info = registry.engines()[name]
    with running(info.server or "sqlite", tmp_path) as server:
        place = Place(tmp_path, url=server.url if server.serves else "")
        side = saver(info.open(place))
        if side.checkpointer() is None:
            return
        side.commit({"step": 1})
        side.commit({"step": 2})
        if side.lasting:
            side.close()
            side = saver(info.open(place))

        assert side.read() == {"step": 2}
        side.close()
