"""Graphs that LangGraph's own savers keep, so that there is something to take over."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import re
import sqlite3
import uuid
import zoneinfo
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt
from pydantic import BaseModel


class Inner(BaseModel):
    """A model inside another one: LangGraph stores it without its class."""

    number: int = 1


class Plan(BaseModel):
    """A model."""

    steps: list[Inner]
    when: dt.datetime


@dataclasses.dataclass
class Point:
    """A dataclass, which may hold another one."""

    x: int
    y: Any


class Colour(enum.Enum):
    """An enum, which LangGraph stores by value."""

    RED = "r"
    BLUE = "b"


class Pair(NamedTuple):
    """A named tuple."""

    first: int
    second: str


DECLARED = (Plan, Point, Colour, Pair)


class Chat(TypedDict):
    """What the graph holds."""

    messages: Annotated[list[Any], add_messages]
    odd: Any
    count: int


def odd_values(number: int) -> dict[str, Any]:
    """One of everything that LangGraph's serializer has a form for."""
    return {
        "uuid": uuid.UUID(int=number),
        "zoned": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "naive": dt.datetime(2026, 1, 1, 1, 2, 3, 4),
        "date": dt.date(2026, 1, 2),
        "time": dt.time(1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        "span": dt.timedelta(1, 2, 3),
        "decimal": decimal.Decimal("1.20"),
        "set": {1, 2},
        "frozen": frozenset("ab"),
        "deque": collections.deque([1, 2]),
        "path": pathlib.Path("/a/b"),
        "pattern": re.compile("a+", re.IGNORECASE),
        "zone": zoneinfo.ZoneInfo("Europe/Berlin"),
        "address": ipaddress.ip_address("1.2.3.4"),
        "network": ipaddress.ip_network("::/8"),
        "plan": Plan(steps=[Inner(number=number)], when=dt.datetime(2026, 1, 1)),
        "point": Point(number, [Point(1, None)]),
        "colour": Colour.BLUE,
        "pair": Pair(1, "q"),
        "document": Document(page_content="c", metadata={"k": 1}),
        "bytes": b"\x00\xff",
        "keys": {1: 2, "a": 3},
        "big": 2**63,
        "none": None,
    }


def talk(state: Chat) -> dict[str, Any]:
    """Answer, with a call of a tool."""
    number = state.get("count", 0)
    call = {"name": "look", "args": {"x": number}, "id": f"call-{number}"}
    return {
        "messages": [
            AIMessage(content=f"answer {number}", id=f"a{number}", tool_calls=[call]),
            ToolMessage(content="found", tool_call_id=f"call-{number}", id=f"t{number}"),
        ],
        "count": number + 1,
    }


def note(state: Chat) -> dict[str, Any]:
    """Keep something odd."""
    return {"odd": odd_values(state["count"])}


def chat_graph(saver: Any) -> Any:
    """Two nodes after one another."""
    builder = StateGraph(Chat)
    builder.add_node("talk", talk)
    builder.add_node("note", note)
    builder.add_edge(START, "talk")
    builder.add_edge("talk", "note")
    builder.add_edge("note", END)
    return builder.compile(checkpointer=saver)


def config(thread: str, **more: Any) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread, **more}}


def say(graph: Any, thread: str, turns: int, first: int = 0, words: int = 20) -> None:
    """Talk for some turns."""
    for turn in range(first, first + turns):
        text = " ".join(f"word-{turn}-{number * 7 % 101}" for number in range(words))
        message = HumanMessage(content=text, id=f"h{turn}")
        graph.invoke({"messages": [message]}, config(thread, user="bob"))


ANSWERED = {"done": ["part 1", "part 2", "part 1", "part 2", "dug"], "answer": "yes"}
"""What the asking graph gives in the end; its subgraph hands on what it was given."""


class Work(TypedDict):
    """What the asking graph holds."""

    done: Annotated[list[str], lambda old, new: [*(old or []), *new]]
    answer: str


def asking_graph(saver: Any) -> Any:
    """A graph with parallel branches, a subgraph and a question to a human."""
    inner = StateGraph(Work)
    inner.add_node("dig", lambda state: {"done": ["dug"]})
    inner.add_edge(START, "dig")
    outer = StateGraph(Work)
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_node("part", lambda given: {"done": [f"part {given}"]})
    outer.add_node("ask", _ask)
    outer.add_conditional_edges(START, lambda state: [Send("part", 1), Send("part", 2)])
    outer.add_edge("part", "inner")
    outer.add_edge("inner", "ask")
    outer.add_edge("ask", END)
    return outer.compile(checkpointer=saver)


def _ask(state: Work) -> dict[str, Any]:
    return {"answer": interrupt({"question": "go on?", "so far": state["done"]})}


@contextmanager
def sqlite_saver(path: Path) -> Iterator[SqliteSaver]:
    """LangGraph's own saver on a file."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


@contextmanager
def postgres_saver(url: str) -> Iterator[Any]:
    """LangGraph's own saver on a database."""
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


def edit(path: Path, statement: str, *values: Any) -> None:
    """Change a file as whoever can write to it could."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def shown(saver: Any, thread: str) -> list[tuple[Any, ...]]:
    """All that a saver shows of a thread, to compare it with what another one shows."""
    return [
        (
            found.config["configurable"]["checkpoint_ns"],
            found.config["configurable"]["checkpoint_id"],
            (found.parent_config or {}).get("configurable", {}).get("checkpoint_id"),
            found.checkpoint,
            found.metadata,
            found.pending_writes,
        )
        for found in saver.list(config(thread))
    ]
