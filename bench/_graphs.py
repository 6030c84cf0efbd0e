"""The graphs that are run with one checkpointer after another. No model is called."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from bench._text import Text, document, message, small_state

THREAD: Any = {"configurable": {"thread_id": "bench"}}


class Chat(TypedDict):
    """Messages, as almost every graph has them."""

    messages: Annotated[list[AnyMessage], add_messages]


class DeltaChat(TypedDict):
    """The same in a channel that stores what is written to it, and every 100th time itself."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Library(TypedDict):
    """Documents that are loaded once, and a number that changes."""

    documents: list[dict[str, Any]]
    counter: int


def extended(value: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """A list with what several writes add to it."""
    return [*value, *(item for write in writes for item in write)]


class DeltaLibrary(TypedDict):
    """The same, with the documents in a channel of writes."""

    documents: Annotated[list[dict[str, Any]], DeltaChannel(extended)]
    counter: int


def merged(value: dict[str, Any], write: dict[str, Any]) -> dict[str, Any]:
    """A dict with what a write replaces in it."""
    return {**value, **write}


def all_merged(value: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same for several writes."""
    for write in writes:
        value = {**value, **write}
    return value


class Shelf(TypedDict):
    """Documents by name, some of which are replaced."""

    documents: Annotated[dict[str, Any], merged]
    counter: int


class DeltaShelf(TypedDict):
    """The same, with the documents in a channel of writes."""

    documents: Annotated[dict[str, Any], DeltaChannel(all_merged)]
    counter: int


class Small(TypedDict):
    """The state of an agent, of which only the number of the step changes."""

    task: str
    step: int
    stage: str
    notes: list[str]
    scores: dict[str, float]
    done: bool


class Mark(NamedTuple):
    """When a node began."""

    wall: float
    cpu: float


def now() -> Mark:
    """The two clocks, the second of this process with all its threads."""
    return Mark(time.perf_counter(), time.process_time())


def spoken(item: dict[str, Any]) -> AnyMessage:
    """A message of LangChain's from an item of the text."""
    made = AIMessage if item["role"] == "assistant" else HumanMessage
    return made(content=item["content"], id=item["id"])


class Loop(ABC):
    """A graph whose one node runs again and again, one superstep each, in one `invoke`."""

    plain: type
    delta: type | None = None
    """The state with a DeltaChannel, if there is such a graph."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.marks: list[Mark] = []

    @abstractmethod
    def first(self) -> dict[str, Any]:
        """What the graph is given."""

    @abstractmethod
    def step(self, state: Any) -> dict[str, Any]:
        """What the node returns."""

    @abstractmethod
    def check(self, values: dict[str, Any]) -> None:
        """Fail if these are not the values at the end."""

    def compiled(self, checkpointer: Any, delta: bool = False) -> Any:
        """The graph with a checkpointer, or with None."""
        schema = self.delta if delta else self.plain
        assert schema is not None, f"{type(self).__name__} has no DeltaChannel"
        builder: Any = StateGraph(schema)
        builder.add_node("work", self._work)
        builder.add_edge(START, "work")
        builder.add_conditional_edges("work", self._next, ["work", END])
        return builder.compile(checkpointer=checkpointer)

    def config(self, thread: str = "bench") -> Any:
        """How the graph is invoked."""
        return {"configurable": {"thread_id": thread}, "recursion_limit": self.steps + 10}

    def _work(self, state: Any) -> dict[str, Any]:
        self.marks.append(now())
        return self.step(state)

    def _next(self, state: Any) -> str:
        return "work" if len(self.marks) < self.steps else END


class Talking(Loop):
    """Each step adds a message of about 1 KB."""

    plain, delta = Chat, DeltaChat

    def __init__(self, steps: int, seed: int = 8, history: int = 0) -> None:
        super().__init__(steps)
        text = Text(seed)
        self._items = [message(text, number) for number in range(history + steps + 1)]
        self._history = history + 1

    def first(self) -> dict[str, Any]:
        return {"messages": [spoken(item) for item in self._items[: self._history]]}

    def step(self, state: Any) -> dict[str, Any]:
        return {"messages": [spoken(self._items[self._history + len(self.marks) - 1])]}

    def check(self, values: dict[str, Any]) -> None:
        found = [(one.type, one.id, one.content) for one in values["messages"]]
        wanted = [(one.type, one.id, one.content) for one in map(spoken, self._items)]
        assert found == wanted, "the messages did not read back"


class Counting(Loop):
    """Documents of 10 KB are loaded by the first step; each step changes a number."""

    plain, delta = Library, DeltaLibrary

    def __init__(self, steps: int, documents: int) -> None:
        super().__init__(steps)
        text = Text(8)
        self._documents = [document(text, number) for number in range(documents)]

    def first(self) -> dict[str, Any]:
        return {"counter": 0}

    def step(self, state: Any) -> dict[str, Any]:
        count = {"counter": state["counter"] + 1}
        return count if len(self.marks) > 1 else {**count, "documents": self._documents}

    def check(self, values: dict[str, Any]) -> None:
        assert values["counter"] == self.steps, "the counter did not read back"
        assert values["documents"] == self._documents, "the documents did not read back"


class Replacing(Loop):
    """The documents are a dict; the first step loads it, each other one replaces one of them."""

    plain, delta = Shelf, DeltaShelf

    def __init__(self, steps: int, documents: int) -> None:
        super().__init__(steps)
        text = Text(8)
        self._documents = {f"document-{at}": document(text, at) for at in range(documents)}
        self._new = [document(text, at) for at in range(steps)]

    def first(self) -> dict[str, Any]:
        return {"counter": 0}

    def step(self, state: Any) -> dict[str, Any]:
        number = len(self.marks) - 1
        changed = self._replaced(number) if number else self._documents
        return {"counter": number, "documents": changed}

    def _replaced(self, number: int) -> dict[str, Any]:
        name = f"document-{number * 7919 % len(self._documents)}"
        return {name: self._new[number]}

    def check(self, values: dict[str, Any]) -> None:
        wanted = dict(self._documents)
        for number in range(1, self.steps):
            wanted |= self._replaced(number)
        assert values["documents"] == wanted, "the documents did not read back"


class Stepping(Loop):
    """Each step changes one number in a state of about 600 bytes."""

    plain = Small

    def __init__(self, steps: int, seed: int = 8) -> None:
        super().__init__(steps)
        self._state = small_state(Text(seed))

    def first(self) -> dict[str, Any]:
        return dict(self._state)

    def step(self, state: Any) -> dict[str, Any]:
        return {"step": len(self.marks)}

    def check(self, values: dict[str, Any]) -> None:
        assert values == {**self._state, "step": self.steps}, "the state did not read back"


class Turns:
    """A chat as users have it: each turn is one `invoke` with a message that is answered."""

    def __init__(self, turns: int) -> None:
        text = Text(8)
        self.items = [message(text, number) for number in range(2 * turns)]
        self._answered = 0

    def compiled(self, checkpointer: Any, delta: bool = False) -> Any:
        """The graph with a checkpointer, or with None."""
        builder: Any = StateGraph(DeltaChat if delta else Chat)
        builder.add_node("answer", self._answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        return builder.compile(checkpointer=checkpointer)

    def asked(self, turn: int) -> AnyMessage:
        """What the user says."""
        return spoken(self.items[2 * turn])

    def _answer(self, state: Any) -> dict[str, Any]:
        self._answered += 1
        return {"messages": [spoken(self.items[2 * self._answered - 1])]}

    def check(self, messages: list[Any]) -> None:
        """Fail if these are not all messages."""
        found = [(one.type, one.id, one.content) for one in messages]
        wanted = [(one.type, one.id, one.content) for one in map(spoken, self.items)]
        assert found == wanted, "the messages did not read back"


class Requests:
    """A small graph of three nodes, as one web request runs it: each changes small fields."""

    nodes = ("plan", "work", "answer")

    def __init__(self) -> None:
        self._text = Text(8)
        self._asked: dict[str, Any] = {}

    def compiled(self, checkpointer: Any) -> Any:
        """The graph with a checkpointer, or with None."""
        builder: Any = StateGraph(Small)
        for number, name in enumerate(self.nodes, 1):
            builder.add_node(name, self._node(name, number))
        for one, other in pairwise((START, *self.nodes, END)):
            builder.add_edge(one, other)
        return builder.compile(checkpointer=checkpointer)

    def first(self) -> dict[str, Any]:
        """A state of about 600 bytes, with which a thread begins."""
        self._asked = small_state(self._text)
        return dict(self._asked)

    def next(self) -> dict[str, Any]:
        """What the user asks in a thread that is there."""
        told = {"task": self._text.title(), "step": 0}
        self._asked |= told
        return told

    def check(self, values: dict[str, Any]) -> None:
        """Fail if this is not what became of the last request."""
        wanted = {**self._asked, "step": len(self.nodes), "stage": self.nodes[-1]}
        assert values == wanted, "the state did not read back"

    def _node(self, name: str, number: int) -> Callable[[Any], dict[str, Any]]:
        return lambda state: {"step": number, "stage": name}
