"""A workflow of many large values, run with LangGraph's state and with states kept outside of it.

Documents are gathered in rounds, cut into passages, ranked, written up and checked. No model
is called: each node computes its output from what it reads, so that the end is the same on
every side, or its hash tells.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from langgraph.graph import END, START, StateGraph

from bench._text import Text

THREAD: Any = {"configurable": {"thread_id": "research"}, "recursion_limit": 10_000}
LARGE = {"pages": list[dict[str, Any]], "passages": list[dict[str, Any]], "draft": str}
"""What is large; the rest is small."""
SMALL = {"question": str, "round": int, "ranked": list[int], "notes": list[str], "digest": str}

_PAGE = 60_000
_PASSAGE = 3_000
_BEST = 24


class Research(NamedTuple):
    """How much is gathered."""

    rounds: int
    pages: int

    def graph(self, schema: Any, wrap: Callable[[Any], Any]) -> Any:
        """The graph, which the side compiles."""
        builder: Any = StateGraph(schema)
        nodes = (self.plan, self.fetch, self.cut, self.rank, self.write, self.check, self.report)
        for node in nodes:
            builder.add_node(node.__name__, wrap(_plain(node)))
        names = [node.__name__ for node in nodes]
        for before, after in zip((START, *names[:4]), names, strict=False):
            builder.add_edge(before, after)
        builder.add_edge("write", "check")
        builder.add_conditional_edges("check", self._next, ["plan", "report"])
        builder.add_edge("report", END)
        return builder

    def digest(self) -> str:
        """What the report must say, computed without a graph."""
        state = self.first()
        while state["round"] < self.rounds:
            for node in (self.plan, self.fetch, self.cut, self.rank, self.write, self.check):
                state |= node(state)
        return str(self.report(state)["digest"])

    def first(self) -> dict[str, Any]:
        """What the graph is given."""
        return {"question": "What is known of it?", "round": 0}

    def plan(self, state: Any) -> dict[str, Any]:
        """The next round begins; nothing large is read."""
        return {"round": state["round"] + 1}

    def fetch(self, state: Any) -> dict[str, Any]:
        """Pages as a search finds them."""
        text = Text(1000 + state["round"])
        found = [
            {"url": f"https://example.com/{state['round']}/{at}", "html": text.prose(_PAGE)}
            for at in range(self.pages)
        ]
        return {"pages": found}

    def cut(self, state: Any) -> dict[str, Any]:
        """The passages of the pages, after those of earlier rounds."""
        known = list(state["passages"]) if state["round"] > 1 else []
        for page in state["pages"]:
            for start in range(0, len(page["html"]), _PASSAGE):
                text = page["html"][start : start + _PASSAGE]
                known.append({"id": len(known), "url": page["url"], "text": text})
        return {"passages": known}

    def rank(self, state: Any) -> dict[str, Any]:
        """The best passages, by a rule."""
        order = sorted(state["passages"], key=lambda one: (-one["text"].count("e"), one["id"]))
        return {"ranked": [one["id"] for one in order[:_BEST]]}

    def write(self, state: Any) -> dict[str, Any]:
        """A draft from the best passages."""
        passages = state["passages"]
        parts = [passages[number]["text"] for number in state["ranked"]]
        return {"draft": f"Round {state['round']}\n" + "\n".join(parts)}

    def check(self, state: Any) -> dict[str, Any]:
        """A note on the draft; it reads nothing else that is large."""
        note = f"{state['round']}: {len(state['draft'])} characters, {_hash(state['draft'])[:8]}"
        return {"notes": [*(state["notes"] if state["round"] > 1 else []), note]}

    def report(self, state: Any) -> dict[str, Any]:
        """The end: a hash of all that was found."""
        whole = [state["question"], state["notes"], state["draft"], state["ranked"]]
        return {"digest": _hash(json.dumps([whole, _digests(state["passages"])]))}

    def _next(self, state: Any) -> str:
        return "plan" if state["round"] < self.rounds else "report"


def _plain(node: Any) -> Any:
    """A method as a function, which every side can wrap."""

    def run(state: Any) -> Any:
        return node(state)

    run.__name__ = node.__name__
    return run


def _digests(passages: list[dict[str, Any]]) -> list[str]:
    return [_hash(f"{one['id']} {one['url']} {one['text']}") for one in passages]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    """Write the digest of a workflow of so many rounds and pages, as JSON."""
    rounds, pages = map(int, sys.argv[1:])
    print(json.dumps(Research(rounds, pages).digest()))


if __name__ == "__main__":
    main()
