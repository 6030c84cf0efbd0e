"""A long conversation in memory: appended, paged through, searched; a state beside it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._clock import Stopwatch
from bench._model import PEAK, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench.engines.conversations import talk
from bench.scenarios import _talks as talks
from bench.scenarios._sides import EVERY_TALK, PEER_TALK, TALK
from bench.scenarios._talks import Conversation


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Append one by one and read; then append to another, with a state each."""
    conversation = Conversation(size["messages"])
    with TemporaryDirectory() as name:
        figures = _append_and_read(info, Path(name), conversation, size)
    with TemporaryDirectory() as name:
        figures |= _append_with_states(info, Path(name), conversation)
    return Measured(figures)


def _append_and_read(
    info: EngineInfo, folder: Path, conversation: Conversation, size: Mapping[str, int]
) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    side.append_each([side.message(item) for item in conversation.items], watch)
    figures = talks.appended(watch)
    assert side.read() == conversation.texts, "the messages did not read back"
    figures |= talks.read_pages(side, conversation.texts, size["reads"])
    figures |= talks.read_states(side, conversation, size["reads"])
    figures |= talks.search(side, conversation, size)
    side.close()
    return figures


def _append_with_states(
    info: EngineInfo, folder: Path, conversation: Conversation
) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    state = None
    for step, item in enumerate(conversation.items):
        message, state = side.message(item), side.make_state(conversation.state(step))
        watch(partial(side.append_with, message, state))
    assert side.read() == conversation.texts, "the messages did not read back"
    assert side.state() == state, "the state did not read back"
    side.close()
    return {"both_ms": median(watch.cpu) * 1e3}


SCENARIO = Scenario(
    name="threads-memory",
    title="A conversation of 10,000 messages: appended one by one, read and searched",
    run=run,
    engines=EVERY_TALK,
    metrics=(
        Metric("messages", "messages", digits=0),
        Metric("append_ms", "CPU per append", "ms", 4),
        Metric("grown", "last tenth / first tenth", "x"),
        Metric("growth", "growth per message already there", "us", 4),
        Metric("both_ms", "CPU per append with a state", "ms", 4),
        talks.LATEST,
        talks.STATE,
        Metric("plain_ms", "CPU of get_state, a plain dict", "ms", 4),
        talks.SEARCH,
        talks.NEW_SEARCH,
        talks.FIRST_SEARCH,
        PEAK,
    ),
    size={"messages": 10_000, "reads": 500, "searches": 50, "new": 20},
    quick={"messages": 500, "reads": 50, "searches": 10, "new": 5},
    targets=(
        Target("page_ms", 1.5, "the latest page, over the peer", side=TALK, over=(PEER_TALK,)),
        Target("state_ms", 1.5, "get_state, over the peer", side=TALK, over=(PEER_TALK,)),
        Target(
            "search_ms", 5.0, "a search of the peer's over ours", "at least", side=TALK,
            under=(PEER_TALK,),
        ),
        Target(
            "new_search_ms", 5.0, "the same after an append", "at least", side=TALK,
            under=(PEER_TALK,),
        ),
    ),
    notes=(
        talks.MESSAGES_NOTE,
        talks.SEARCH_NOTE,
        "The state has about 600 bytes. The peer's is an AgentState of the framework with them in "
        "a field; the second column of get_state hands a plain dict to every side. The line of "
        "SQLite is for orientation: it asks the disk whether somebody else wrote, at each call.",
    ),
    order=400,
    repeat=3,
)  # fmt: skip
