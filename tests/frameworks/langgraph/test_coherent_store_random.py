"""Random graphs that load, save and run graphs inside, several runs at once: nothing is lost.

A value is a text to which each save adds a mark of its own. Nothing in it can be merged, so of
two saves that were made from the same text one must be refused. A mark whose save was accepted
is in the text at the end.

A node saves only if its run has loaded since it last saved, as far as the node knows. What is
put without a read may replace: that is tested in `test_coherent_store_puts`.
"""

from __future__ import annotations

import operator
import random
import threading
import time
from itertools import count
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.config import get_store
from langgraph.graph import START, StateGraph

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.errors import VersionConflict
from tests.conftest import SOAK
from tests.frameworks.langgraph.coherent import PLACE

SEEDS = 400 if SOAK else 16


def longest(one: str, other: str) -> str:
    return max(one, other, key=len)


Loads = frozenset[int]


class State(TypedDict, total=False):
    seen: Annotated[str, longest]
    loaded: Annotated[Loads, operator.or_]
    saved: Annotated[Loads, operator.or_]
    """The loads that came before a save."""


class Campaign:
    """Some runs of one random graph, all at once."""

    def __init__(self, seed: str, store: CoherentStore) -> None:
        self._choose, self._store = random.Random(seed), store
        self._marks, self._loads = count(1), count(1)
        self.accepted: list[str] = []
        self.refused = 0
        self._nodes = {"load": self._load, "save": self._save, "both": self._both}

    def run(self) -> str:
        """Let the runs go; what is there at the end."""
        self._store.put(PLACE, "n", {"text": "<0>"})
        graph = self._graph(2).compile(store=self._store)
        runs = [
            threading.Thread(target=graph.invoke, args=({},))
            for _ in range(self._choose.randint(1, 3))
        ]
        for one in runs:
            one.start()
        for one in runs:
            one.join()
        return self._text(self._store)

    # Nodes.

    def _load(self, _: State) -> State:
        self._pause()
        seen = self._text(get_store())
        self._pause()
        return {"seen": seen, "loaded": Loads([next(self._loads)])}

    def _save(self, state: State) -> State:
        loaded = state.get("loaded", Loads())
        if loaded <= state.get("saved", Loads()):
            return {}  # What is only put may replace what is there.
        mark = f"<{next(self._marks)}>"
        self._pause()
        made = state["seen"] + mark
        try:
            get_store().put(PLACE, "n", {"text": made})
        except VersionConflict:
            self.refused += 1
            return {}
        self.accepted.append(mark)
        return {"seen": made, "loaded": loaded, "saved": loaded}

    def _both(self, state: State) -> State:
        loaded = self._load(state)
        known: State = {**loaded, "loaded": loaded["loaded"] | state.get("loaded", Loads())}
        return {**loaded, **self._save(known)}

    # Graphs.

    def _graph(self, depth: int) -> StateGraph[Any, Any, Any, Any]:
        """Steps one after the other, of one or two nodes each."""
        builder, before = StateGraph(State), [START]
        for step in range(self._choose.randint(1, 3)):
            names = [f"{step}.{number}" for number in range(self._choose.randint(1, 2))]
            for name in names:
                builder.add_node(name, self._node(depth))
                builder.add_edge(before if before != [START] else START, name)
            before = names
        return builder

    def _node(self, depth: int) -> Any:
        kind = self._choose.choice([*self._nodes, "in turn", *(["graph", "call"] if depth else [])])
        if kind in self._nodes:
            return self._nodes[kind]
        if kind == "in turn":
            builder = StateGraph(State)
            builder.add_sequence([("load", self._load), ("save", self._save)])
            builder.add_edge(START, "load")
            return builder.compile()
        inside = self._graph(depth - 1).compile()
        if kind == "graph":
            return inside
        times = self._choose.randint(1, 2)

        def call(state: State) -> State:
            for _ in range(times):
                state = inside.invoke(state)
            return state

        return call

    def _pause(self) -> None:
        time.sleep(random.random() * 0.002)

    def _text(self, store: Any) -> str:
        return str(store.get(PLACE, "n").value["text"])


@pytest.mark.parametrize("ttl", [None, {}], ids=["plain", "ttl"])
@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_random_graphs_lose_nothing(identity: Any, ttl: Any) -> None:
    accepted = refused = 0
    for seed in range(SEEDS):
        with CoherentStore(identity=identity, ttl=ttl) as store:
            campaign = Campaign(f"{identity} {ttl} {seed}", store)
            text = campaign.run()

            assert [one for one in campaign.accepted if one not in text] == [], f"seed {seed}"
            accepted, refused = accepted + len(campaign.accepted), refused + campaign.refused

    assert accepted and refused
