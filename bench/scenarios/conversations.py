"""Conversations, in memory and on disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Stopwatch, folder_bytes, growth
from bench._model import PEAK, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._text import Text, message, payload_bytes, small_state
from bench.engines.conversations import Talk, talk
from bench.scenarios._sides import (
    EVERY_TALK,
    EVERY_TALK_ON_DISK,
    PEER_TALK,
    PEER_TALK_ON_DISK,
    TALK,
    TALK_ON_DISK,
)
from bench.scenarios.values import AMPLIFICATION

PAGE = 20

LIST = Metric("list_us", "CPU of listing all, per message", "us", 1)
FIRST_SEARCH = Metric("first_search_ms", "CPU of the first search", "ms", 1)
INDEX = Metric("index_ms", "CPU of the index that it begins", "ms", 0)
SEARCH = Metric("search_ms", "CPU of a search, first 20 found", "ms", 3)
NEW_SEARCH = Metric("new_search_ms", "CPU of a search after an append", "ms", 3)
LATEST = Metric("page_ms", "CPU of the latest 20", "ms", 3)
STATE = Metric("state_ms", "CPU of get_state", "ms", 4)

MESSAGES_NOTE = (
    "A message is about 1 KB and is made before the watch starts, as the side takes it: a Message "
    "of Ropewalk's or of pyagenity's, a dict for SQLiteSession. All sides run on the same Python."
)
SEARCH_NOTE = (
    "A search is for one word that some message has, another word each time. The first one reads "
    "messages, and Ropewalk begins to make an index behind; the others come when that is made."
)


class Conversation:
    """The messages, the words that are searched for, and a small state with a step."""

    def __init__(self, count: int) -> None:
        text = Text(1)
        self.items = [message(text, number) for number in range(count)]
        self.texts = [item["content"] for item in self.items]
        self._state = small_state(text)
        self._random = Random(2)
        self.more = (message(text, number) for number in range(count, 2 * count))

    def state(self, step: int) -> dict[str, Any]:
        """The state at a step."""
        return {**self._state, "step": step}

    def word(self) -> str:
        """A word that some message has."""
        found: list[str] = re.findall(r"\b[a-z]{5,}\b", self._random.choice(self.texts))
        return self._random.choice(found)


def appended(watch: Stopwatch) -> dict[str, float]:
    """What appending cost."""
    tenth = max(1, len(watch.cpu) // 10)
    return {
        "messages": len(watch.cpu),
        "append_ms": median(watch.cpu) * 1e3,
        "append_wall_ms": median(watch.wall) * 1e3,
        "grown": median(watch.cpu[-tenth:]) / median(watch.cpu[:tenth]),
        "growth": growth(watch.cpu),
    }


def read_pages(talk: Talk, wanted: list[str], rounds: int) -> dict[str, float]:
    """The latest page, again and again."""
    found, watch = _again(partial(talk.page, PAGE), rounds)
    assert [talk.text(one) for one in found] == wanted[-PAGE:], "the latest page did not read back"
    return {"page_ms": median(watch.cpu) * 1e3, "page_wall_ms": median(watch.wall) * 1e3}


def read_states(talk: Talk, conversation: Conversation, rounds: int) -> dict[str, float]:
    """The newest state, of the kind that the side's framework has, and as a plain dict."""
    figures = {}
    plain = conversation.state(7)
    for key, state in (("state_ms", talk.make_state(plain)), ("plain_ms", plain)):
        talk.put_state(state)
        found, watch = _again(talk.state, rounds)
        assert found == state, "a state did not read back"
        assert found is not state, "a state is shared"
        figures[key] = median(watch.cpu) * 1e3
    return figures


def search(talk: Talk, conversation: Conversation, size: Mapping[str, int]) -> dict[str, float]:
    """Searches: the first, some more, and some after an append each."""
    first, later, new = Stopwatch(), Stopwatch(), Stopwatch()
    _search(talk, conversation.word(), first)
    index = Stopwatch()
    index(talk.settle)
    for _ in range(size["searches"]):
        _search(talk, conversation.word(), later)
    for item in list(conversation.more)[: size["new"]]:
        talk.append_each([talk.message(item)], Stopwatch())
        _search(talk, conversation.word(), new)
    return {
        "first_search_ms": first.cpu[0] * 1e3,
        "index_ms": index.cpu[0] * 1e3,
        "search_ms": median(later.cpu) * 1e3,
        "new_search_ms": median(new.cpu) * 1e3,
    }


def _search(talk: Talk, word: str, watch: Stopwatch) -> None:
    found = watch(partial(talk.search, word, PAGE))
    assert found, f"no message with {word!r} was found"
    assert all(word in talk.text(one).lower() for one in found), "another message was found"


def _again(action: Callable[[], Any], rounds: int) -> tuple[Any, Stopwatch]:
    watch = Stopwatch()
    for _ in range(rounds):
        found = watch(action)
    return found, watch


def run_disk(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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
            found.figures |= _append_with_states_disk(info, Path(name), tenth)
    return found


def _append(info: EngineInfo, folder: Path, conversation: Conversation) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    side.append_each([side.message(item) for item in conversation.items], watch)
    watch(side.close)
    stored = folder_bytes(folder)
    figures = {"all_s": sum(watch.wall), "all_cpu": sum(watch.cpu)}
    del watch.wall[-1], watch.cpu[-1]
    return figures | {
        **appended(watch),
        "folder_mb": stored / 1e6,
        "amplification": stored / payload_bytes(conversation.items),
    }


def _read(
    info: EngineInfo, folder: Path, conversation: Conversation, size: Mapping[str, int]
) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    listed = watch(partial(side.page, len(conversation.texts)))
    assert list(map(side.text, listed)) == conversation.texts, "the messages did not read back"
    figures = {"list_us": watch.cpu[0] / len(listed) * 1e6}
    figures |= read_pages(side, conversation.texts, size["reads"])
    if info.name != PEER_TALK_ON_DISK:
        before = folder_bytes(folder)
        figures |= search(side, conversation, size)
        figures["index_mb"] = (folder_bytes(folder) - before) / 1e6
    side.close()
    return figures


def _append_with_states_disk(
    info: EngineInfo, folder: Path, conversation: Conversation
) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    for step, item in enumerate(conversation.items):
        message, state = side.message(item), side.make_state(conversation.state(step))
        watch(partial(side.append_with, message, state))
    assert side.state() == state, "the state did not read back"
    side.close()
    return {"both_wall_ms": median(watch.wall) * 1e3}


def run_memory(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Append one by one and read; then append to another, with a state each."""
    conversation = Conversation(size["messages"])
    with TemporaryDirectory() as name:
        figures = _append_and_read(info, Path(name), conversation, size)
    with TemporaryDirectory() as name:
        figures |= _append_with_states_memory(info, Path(name), conversation)
    return Measured(figures)


def _append_and_read(
    info: EngineInfo, folder: Path, conversation: Conversation, size: Mapping[str, int]
) -> dict[str, float]:
    side, watch = talk(info.open(Place(folder))), Stopwatch()
    side.append_each([side.message(item) for item in conversation.items], watch)
    figures = appended(watch)
    assert side.read() == conversation.texts, "the messages did not read back"
    figures |= read_pages(side, conversation.texts, size["reads"])
    figures |= read_states(side, conversation, size["reads"])
    figures |= search(side, conversation, size)
    side.close()
    return figures


def _append_with_states_memory(
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


SCENARIOS = (
    Scenario(
        name="threads-disk",
        title="A conversation of 10,000 messages on disk: appended one by one, durably",
        run=run_disk,
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
            LIST,
            LATEST,
            FIRST_SEARCH,
            INDEX,
            SEARCH,
            NEW_SEARCH,
            Metric("index_mb", "index of the text", "MB", 2),
            PEAK,
        ),
        size={"messages": 10_000, "reads": 300, "searches": 50, "new": 20},
        quick={"messages": 300, "reads": 30, "searches": 5, "new": 3},
        targets=(
            Target("linear", 10.5, "bytes of 10 times the messages", side=TALK_ON_DISK),
            Target("list_us", 15.0, "listing 10,000 messages, each", side=TALK_ON_DISK),
        ),
        notes=(
            MESSAGES_NOTE,
            SEARCH_NOTE,
            "Both sides use WAL and synchronous = FULL, so that what was appended survives a power "
            "loss: Ropewalk sets it, SQLiteSession leaves it as SQLite was built, which the unit "
            "asks.",
            "SQLiteSession offers coroutines only, which run on threads of the event loop. "
            "Ropewalk is measured as called, and awaited too.",
        ),
        order=410,
        repeat=3,
    ),
    Scenario(
        name="threads-memory",
        title="A conversation of 10,000 messages: appended one by one, read and searched",
        run=run_memory,
        engines=EVERY_TALK,
        metrics=(
            Metric("messages", "messages", digits=0),
            Metric("append_ms", "CPU per append", "ms", 4),
            Metric("grown", "last tenth / first tenth", "x"),
            Metric("growth", "growth per message already there", "us", 4),
            Metric("both_ms", "CPU per append with a state", "ms", 4),
            LATEST,
            STATE,
            Metric("plain_ms", "CPU of get_state, a plain dict", "ms", 4),
            SEARCH,
            NEW_SEARCH,
            FIRST_SEARCH,
            INDEX,
            PEAK,
        ),
        size={"messages": 10_000, "reads": 500, "searches": 50, "new": 20},
        quick={"messages": 500, "reads": 50, "searches": 10, "new": 5},
        targets=(
            Target("page_ms", 1.5, "the latest page, over the peer", side=TALK, over=(PEER_TALK,)),
            Target("state_ms", 1.5, "get_state, over the peer", side=TALK, over=(PEER_TALK,)),
            Target(
                "search_ms",
                5.0,
                "a search of the peer's over ours",
                "at least",
                side=TALK,
                under=(PEER_TALK,),
            ),
            Target(
                "new_search_ms",
                5.0,
                "the same after an append",
                "at least",
                side=TALK,
                under=(PEER_TALK,),
            ),
        ),
        notes=(
            MESSAGES_NOTE,
            SEARCH_NOTE,
            "The state has about 600 bytes. The peer's is an AgentState of the framework with "
            "them in a field; the second column of get_state hands a plain dict to every side. "
            "The line of SQLite is for orientation: it asks the disk whether somebody else "
            "wrote, at each call.",
        ),
        order=400,
        repeat=3,
    ),
)
