from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._clock import Stopwatch
from bench._model import Place
from bench._run import UnitFailed, _interpreter
from bench.engines.conversations import Talk, talk
from bench.scenarios._sides import (
    EVERY_TALK,
    EVERY_TALK_ON_DISK,
    PEER_TALK,
    PEER_TALK_ON_DISK,
    TALK,
    TALK_AWAITED,
    TALK_ON_DISK,
    TALK_RELAXED,
)
from bench.scenarios.conversations import Conversation

OURS = [TALK, TALK_RELAXED, TALK_ON_DISK, TALK_AWAITED]
SMALL = {"messages": 60, "reads": 2, "searches": 2, "new": 2}


def opened(name: str, folder: Path) -> Talk:
    return talk(registry.engines()[name].open(Place(folder)))


def measured(scenario: str, name: str) -> dict[str, Any]:
    return unit.measure(scenario, name, SMALL)


@pytest.mark.parametrize("name", OURS)
def test_a_conversation_is_appended_to_paged_and_searched(name: str, tmp_path: Path) -> None:
    side, conversation, watch = opened(name, tmp_path), Conversation(30), Stopwatch()
    side.append_each([side.message(item) for item in conversation.items], watch)
    side.append_with(side.message(next(conversation.more)), conversation.state(3))

    assert len(watch.wall) == 30
    assert side.read()[:30] == conversation.texts
    assert len(side.page(20)) == 20
    assert side.state() == conversation.state(3)
    assert side.search(conversation.word(), 20)
    side.close()


@pytest.mark.parametrize("name", [TALK_ON_DISK, TALK_AWAITED, TALK_RELAXED])
def test_a_conversation_on_disk_reads_back_after_it_was_closed(name: str, tmp_path: Path) -> None:
    side = opened(name, tmp_path)
    items = Conversation(3).items
    side.commit(items)
    side.close()

    side = opened(name, tmp_path)
    assert side.read() == [item["content"] for item in items]
    side.close()


@pytest.mark.parametrize("name", [TALK, TALK_RELAXED])
def test_a_unit_measures_a_conversation_in_memory(name: str) -> None:
    figures = measured("threads-memory", name)["figures"]
    known = {metric.key for metric in registry.scenarios()["threads-memory"].metrics}

    assert figures["messages"] == SMALL["messages"]
    assert known <= figures.keys()


@pytest.mark.parametrize("name", [TALK_ON_DISK, TALK_AWAITED])
def test_a_unit_measures_a_conversation_on_disk(name: str) -> None:
    found = measured("threads-disk", name)
    known = {metric.key for metric in registry.scenarios()["threads-disk"].metrics}

    assert 1 < found["figures"]["linear"] < 10
    assert found["figures"]["amplification"] > 0
    assert known <= found["figures"].keys()


def test_a_conversation_is_the_same_for_every_side() -> None:
    one, other = Conversation(5), Conversation(5)

    assert one.items == other.items
    assert [one.word() for _ in range(9)] == [other.word() for _ in range(9)]
    assert next(one.more)["id"] == "message-5"


def test_without_its_python_a_peer_is_missing_and_ours_is_not() -> None:
    infos = registry.engines()

    for name in {*EVERY_TALK, *EVERY_TALK_ON_DISK} - {PEER_TALK, PEER_TALK_ON_DISK}:
        assert _interpreter(infos[name], {}) == Path(sys.executable)
    for name in (PEER_TALK, PEER_TALK_ON_DISK):
        with pytest.raises(UnitFailed, match=r"python-3\.12 could not be made"):
            _interpreter(infos[name], {})


def test_reads_search_appends_and_bytes_have_targets() -> None:
    found = {
        target.metric
        for name in ("threads-memory", "threads-disk")
        for target in registry.scenarios()[name].targets
    }

    assert found == {"page_ms", "state_ms", "search_ms", "new_search_ms", "linear", "list_us"}
