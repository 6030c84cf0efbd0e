"""A long conversation on disk: appended; its bytes; read again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._clock import Stopwatch, folder_bytes
from bench._model import PEAK, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._values import payload_bytes
from bench.engines.conversations import talk
from bench.scenarios import _talks as talks
from bench.scenarios._on_disk import AMPLIFICATION
from bench.scenarios._sides import (
    EVERY_TALK_ON_DISK,
    PEER_TALK_ON_DISK,
    TALK_ON_DISK,
)
from bench.scenarios._talks import Conversation


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Append, close and measure; the same with a tenth; then read."""
    found = Measured()
    whole, tenth = Conversation(size["messages"]), Conversation(size["messages"] // 10)
    with TemporaryDirectory() as name:
        found.figures |= _append(info, Path(name), whole)
        found.figures |= _read(info, Path(name), whole, size)
    with TemporaryDirectory() as name:
        part = _append(info, Path(name), tenth)
    found.figures["linear"] = found.figures["folder_mb"] / part["folder_mb"]
    if info.name != PEER_TALK_ON_DISK:
        with TemporaryDirectory() as name:
            found.figures |= _append_with_states(info, Path(name), tenth)
    return found


def _append(info: EngineInfo, folder: Path, conversation: Conversation) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    side.append_each([side.message(item) for item in conversation.items], watch)
    watch(side.close)
    stored = folder_bytes(folder)
    figures = {"all_s": sum(watch.wall), "all_cpu": sum(watch.cpu)}
    del watch.wall[-1], watch.cpu[-1]
    return figures | {
        **talks.appended(watch),
        "folder_mb": stored / 1e6,
        "amplification": stored / payload_bytes(conversation.items),
    }


def _read(
    info: EngineInfo, folder: Path, conversation: Conversation, size: Mapping[str, int]
) -> dict[str, float]:
    side = talk(info.open(Place(folder)))
    assert side.read() == conversation.texts, "the messages did not read back"
    figures = talks.read_pages(side, conversation.texts, size["reads"])
    if info.name != PEER_TALK_ON_DISK:
        before = folder_bytes(folder)
        figures |= talks.search(side, conversation, size)
        figures["index_mb"] = (folder_bytes(folder) - before) / 1e6
    side.close()
    return figures


def _append_with_states(
    info: EngineInfo, folder: Path, conversation: Conversation
) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    for step, item in enumerate(conversation.items):
        message, state = side.message(item), side.make_state(conversation.state(step))
        watch(partial(side.append_with, message, state))
    assert side.state() == state, "the state did not read back"
    side.close()
    return {"both_wall_ms": median(watch.wall) * 1e3}


SCENARIO = Scenario(
    name="threads-disk",
    title="A conversation of 10,000 messages on disk: appended one by one, durably",
    run=run,
    engines=EVERY_TALK_ON_DISK,
    metrics=(
        Metric("messages", "messages", digits=0),
        Metric("append_wall_ms", "alone: wall per append", "ms", 3),
        Metric("append_ms", "CPU per append", "ms", 3),
        Metric("grown", "CPU, last tenth / first tenth", "x"),
        Metric("all_s", "wall of all appends and the close", "s", 1),
        Metric("both_wall_ms", "wall per append with a state", "ms", 3),
        Metric("folder_mb", "folder after close", "MB", 2),
        AMPLIFICATION,
        Metric("linear", "bytes / those of a tenth of the messages", "x"),
        Metric("page_wall_ms", "wall of the latest 20", "ms", 3),
        talks.LATEST,
        talks.FIRST_SEARCH,
        talks.SEARCH,
        talks.NEW_SEARCH,
        Metric("index_mb", "index of words", "MB", 2),
        PEAK,
    ),
    size={"messages": 10_000, "reads": 300, "searches": 50, "new": 20},
    quick={"messages": 300, "reads": 30, "searches": 5, "new": 3},
    targets=(Target("linear", 10.5, "bytes of 10 times the messages", side=TALK_ON_DISK),),
    notes=(
        talks.MESSAGES_NOTE,
        talks.SEARCH_NOTE,
        "Both sides use WAL and synchronous = FULL, so that what was appended survives a power "
        "loss: Ropewalk sets it, SQLiteSession leaves it as SQLite was built, which the unit asks.",
        "SQLiteSession offers coroutines only, which run on threads of the event loop. Ropewalk is "
        "measured as called, and awaited too.",
    ),
    order=410,
    repeat=3,
)
