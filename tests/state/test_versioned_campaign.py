"""Handles at random on stores that fail at random: every change is there in the end, once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from ropewalk.errors import Full, StoreFull, Unavailable
from ropewalk.state import Versioned
from ropewalk.store import MemoryStore, Store
from ropewalk.store.wrappers import WrapperStore
from tests.conftest import SOAK
from tests.state.large import messages, sentence

R = TypeVar("R")

SEEDS = 2_000 if SOAK else 25
RULES: dict[Any, Any] = {"n": "add", "log": "append", "chat": "append", "tags": "union"}


class Moody(WrapperStore):
    """Fails at random: before a call, or after it."""

    def __init__(self, store: Store, choose: random.Random) -> None:
        super().__init__(store)
        self._choose = choose
        self.mood = 0.0

    def _call(self, method: str, call: Callable[[], R]) -> R:
        if self._choose.random() < self.mood / 2:
            raise self._choose.choice([Unavailable("no answer"), StoreFull("full")])
        result = super()._call(method, call)
        if self._choose.random() < self.mood / 2:
            raise Unavailable("the answer was lost")
        return result


class Agent:
    """A handle that changes, commits and refreshes at random, and knows what it changed."""

    def __init__(self, name: str, memory: MemoryStore, choose: random.Random) -> None:
        self.name, self._choose = name, choose
        self.store = Moody(memory.another(), choose)
        self.state = Versioned(self.store, mergers=RULES)
        # Held over everything that happens, unless a block failed.
        self.log, self.chat = self.state["log"], self.state["chat"]
        self.tokens: list[str] = []

    def step(self) -> None:
        self.store.mood = self._choose.choice([0, 0, 0.02, 0.2])
        act = self._choose.choice(
            [self.change, self.change, self.commit, self.commit, self.refresh, self.block]
        )
        try:
            act()
        except (Unavailable, Full):
            pass
        finally:
            self.store.mood = 0.0
        if act == self.block:
            self.log, self.chat = self.state["log"], self.state["chat"]

    def token(self) -> str:
        return f"{self.name}/{len(self.tokens)}/{self._choose.randrange(10**9)}"

    def apply(self, token: str) -> None:
        """Changes that cannot fail: of objects that are held."""
        self.log.append(token)
        self.chat.append({"token": token, "text": sentence(len(self.tokens), 200)})
        self.state["tags"].add(token)
        self.state["n"] += 1
        self.state["plan"].setdefault(self.name, []).append(token)
        own = self.state.namespace("agents").namespace(self.name)
        own.setdefault("log", []).append(token)
        own["last"] = {"token": token}

    def change(self) -> None:
        mood, self.store.mood = self.store.mood, 0.0
        token = self.token()
        self.apply(token)
        self.tokens.append(token)
        self.store.mood = mood

    def commit(self) -> None:
        self.state.note({"token": None})
        self.state.commit()

    def refresh(self) -> None:
        self.state.refresh()

    def block(self) -> None:
        """A transaction: what it did stays if it was made, or if nobody knows."""
        token, fails = self.token(), self._choose.random() < 0.3
        inside = False
        try:
            with self.state.transaction():
                mood, self.store.mood = self.store.mood, 0.0
                inside = True
                self.log, self.chat = self.state["log"], self.state["chat"]
                self.apply(token)
                self.store.mood = mood
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return
        except (Unavailable, Full):
            if inside and self.state._working_copy.is_unsure:
                self.tokens.append(token)
            raise
        self.tokens.append(token)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_change_is_there_once_whatever_failed(seed: int) -> None:
    choose = random.Random(seed)
    memory = MemoryStore()
    begin = Versioned(memory)
    begin.update(n=0, log=[], chat=messages(80), tags=set(), plan={})
    begin.commit()
    agents = [Agent(name, memory, choose) for name in "abc"]
    for _ in range(60):
        choose.choice(agents).step()
    for agent in [*agents, *agents]:
        agent.state.commit()
        agent.state.refresh()

    tokens = [token for agent in agents for token in agent.tokens]
    final = Versioned(memory)
    assert Counter(final["log"]) == Counter(tokens)
    assert Counter(one["token"] for one in final["chat"][80:]) == Counter(tokens)
    assert final["chat"][:80] == messages(80)
    assert final["tags"] == set(tokens)
    assert final["n"] == len(tokens)
    for agent in agents:
        assert dict(agent.state) == dict(final)
        assert final["plan"].get(agent.name, []) == agent.tokens
        own = final.namespace("agents").namespace(agent.name)
        assert own.get("log", []) == agent.tokens
        assert own.get("last") == ({"token": agent.tokens[-1]} if agent.tokens else None)
        mine = [token for token in final["log"] if token.startswith(agent.name)]
        assert mine == agent.tokens
    assert memory.check(read_data=True).problems == ()
