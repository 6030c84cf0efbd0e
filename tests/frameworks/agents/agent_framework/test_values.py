"""What may be in a checkpoint: the framework's objects, and a program's own."""

from __future__ import annotations

import asyncio
import enum
import pickle
import types
from dataclasses import dataclass, field
from typing import Any

import pytest
from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentSession,
    ChatResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
)
from agent_framework._workflows._runner_context import WorkflowMessage
from pydantic import BaseModel

from ropewalk import MemoryStore
from ropewalk.adapters.agent_framework import RopewalkCheckpointStorage
from ropewalk.adapters.agent_framework.values import read_type
from ropewalk.errors import FormatError


class Mood(enum.Enum):
    CALM = "calm"


@dataclass
class Ticket:
    title: str
    mood: Mood = Mood.CALM
    tags: set[str] = field(default_factory=set)


class Order(BaseModel):
    number: int
    lines: list[str] = []


class Opaque:
    """Neither plain data nor declared."""

    def __init__(self, value: int) -> None:
        self.value = value


LOADED: list[str] = []


class Shelf:
    """Brackets behind it run code."""

    def __class_getitem__(cls, item: Any) -> Any:
        note("brackets")


def note(what: str) -> None:
    LOADED.append(what)


class Trap:
    """Notes when it is unpickled."""

    def __reduce__(self) -> Any:
        return note, ("a pickle was loaded",)


def came_back(value: Any, **options: Any) -> Any:
    """A value after a trip through a checkpoint, read by another storage."""

    async def trip() -> Any:
        store = MemoryStore()
        made = WorkflowCheckpoint("flow", "graph", state={"value": value})
        await RopewalkCheckpointStorage(store, **options).save(made)
        found = await RopewalkCheckpointStorage(store, **options).get_latest(workflow_name="flow")
        assert found is not None
        return found.state["value"]

    return asyncio.run(trip())


def parts(value: Any) -> Any:
    """An object of the framework as plain values, to be compared."""
    if isinstance(value, dict):
        return {name: parts(one) for name, one in value.items()}
    if isinstance(value, list):
        return [parts(one) for one in value]
    if type(value).__module__.startswith("agent_framework") and not isinstance(value, enum.Enum):
        return type(value), parts(vars(value))
    return value


TALK = [
    Message("user", ["Where is it?"], author_name="me", additional_properties={"seen": True}),
    Message("assistant", [Content.from_function_call("1", "find", arguments={"what": "it"})]),
    Message("tool", [Content.from_function_result("1", result={"place": ["here"]})]),
    Message(
        "assistant",
        [
            Content.from_text("Here", annotations=[{"type": "citation", "title": "a map"}]),
            Content.from_uri("https://example.com/map.png", media_type="image/png"),
        ],
        message_id="4",
    ),
]
RESPONSE = AgentResponse(messages=TALK[1:], response_id="r", usage_details={"total_token_count": 3})


@pytest.mark.parametrize(
    "value",
    [
        TALK,
        RESPONSE,
        ChatResponse(messages=TALK, model="small", finish_reason="stop"),
        AgentExecutorRequest(TALK, should_respond=False),
        AgentExecutorResponse("agent", RESPONSE, TALK),
        AgentSession(session_id="s").to_dict(),
        WorkflowMessage(TALK[0], "a", target_id="b", trace_contexts=[{"traceparent": "00"}]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_the_framework_come_back(value: Any) -> None:
    assert parts(came_back(value)) == parts(value)


@pytest.mark.parametrize(
    "answer", [bool, Ticket, list[str], dict[str, int] | None, str | Order, Any], ids=str
)
def test_a_pending_request_comes_back_with_the_types_it_names(answer: Any) -> None:
    event = WorkflowEvent.request_info("7", "asker", Ticket("may I?"), answer)

    found = came_back(event)

    assert parts(found) == parts(event)
    assert found.response_type == answer and found.request_type is Ticket


@pytest.mark.parametrize(
    "named", [[f"{__name__}.Shelf", "builtins.int"], [], ["|"], 7, [["|"], "builtins.int"]], ids=str
)
def test_a_type_that_a_store_names_runs_no_code(named: Any) -> None:
    LOADED.clear()

    with pytest.raises(FormatError, match="as a type"):
        read_type(named)

    assert LOADED == []


def test_a_generic_class_of_the_program_is_refused_when_it_is_saved() -> None:
    hint = types.GenericAlias(Shelf, (int,))
    event = WorkflowEvent.request_info("7", "asker", Ticket("may I?"), hint)

    with pytest.raises(WorkflowCheckpointException, match="generic class"):
        came_back(event)


def test_what_a_models_client_gave_is_left_out_as_the_framework_does() -> None:
    client = object()
    message = Message("assistant", [Content.from_text("hi", raw_representation=client)])
    message.raw_representation = client

    found = came_back(message)

    assert found.raw_representation is None and found.contents[0].raw_representation is None
    assert found.text == "hi"


@pytest.mark.parametrize(
    "value",
    [Ticket("one", tags={"a"}), Order(number=1, lines=["a"]), (1, {2}), b"bytes", {3: "three"}],
    ids=str,
)
def test_plain_objects_of_the_program_come_back(value: Any) -> None:
    found = came_back(value)

    assert found == value and type(found) is type(value)


def test_what_is_not_plain_is_refused_when_it_is_saved_and_told_where() -> None:
    with pytest.raises(WorkflowCheckpointException, match=r'\["state"\]\["value"\].*Opaque'):
        came_back(Opaque(1))


def test_with_a_key_it_is_pickled() -> None:
    assert came_back(Opaque(1), pickle_key=b"a key of 16 bytes").value == 1


def test_nothing_is_unpickled_without_the_key() -> None:
    async def read(**options: Any) -> None:
        store = MemoryStore()
        made = WorkflowCheckpoint("flow", "graph", state={"value": Trap()})
        await RopewalkCheckpointStorage(store, pickle_key=b"a key of 16 bytes").save(made)
        storage = RopewalkCheckpointStorage(store, **options)
        with pytest.raises(WorkflowCheckpointException):
            await storage.load(made.checkpoint_id)

    for options in ({}, {"pickle_key": b"another key of 25 bytes."}):
        asyncio.run(read(**options))
    assert LOADED == []
    pickle.loads(pickle.dumps(Trap()))
    assert LOADED  # The trap would have been noticed.
