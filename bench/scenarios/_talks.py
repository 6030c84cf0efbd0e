"""A conversation of many messages: what appending, reading and searching cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from statistics import median
from typing import Any

from bench._clock import Stopwatch
from bench._model import Metric
from bench._stats import growth
from bench._text import Text
from bench._values import message, small_state
from bench.engines.conversations import Talk

PAGE = 20

FIRST_SEARCH = Metric("first_search_ms", "CPU of the first search", "ms", 1)
SEARCH = Metric("search_ms", "CPU of a search, first 20 found", "ms", 3)
NEW_SEARCH = Metric("new_search_ms", "CPU of a search after an append", "ms", 3)
LATEST = Metric("page_ms", "CPU of the latest 20", "ms", 3)
STATE = Metric("state_ms", "CPU of get_state", "ms", 4)

MESSAGES_NOTE = (
    "A message is about 1 KB and is made before the watch starts, as the side takes it: a Message "
    "of Ropewalk's or of pyagenity's, a dict for SQLiteSession. All sides run on the same Python."
)
SEARCH_NOTE = (
    "A search is for one word that some message has, another word each time. The first one lets "
    "Ropewalk make its index of words; one after an append brings it up to date."
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
    for _ in range(size["searches"]):
        _search(talk, conversation.word(), later)
    for item in list(conversation.more)[: size["new"]]:
        talk.append_each([talk.message(item)], Stopwatch())
        _search(talk, conversation.word(), new)
    return {
        "first_search_ms": first.cpu[0] * 1e3,
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
