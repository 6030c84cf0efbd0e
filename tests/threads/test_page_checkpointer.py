"""Every method of the peer's page: its name, parameters, result and errors, sync and async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from ropewalk.threads import Message, ThreadCheckpointer, ThreadInfo

CONFIG = {"thread_id": "t1"}
STATE = {"step": 1}
REQUIRED = inspect.Parameter.empty
LISTED = {"config": REQUIRED, "search": None, "offset": None, "limit": None}


class Row(NamedTuple):
    """One method of the page."""

    name: str
    parameters: dict[str, Any]
    """By name and in order, with their defaults."""
    arguments: tuple[Any, ...]
    """Of a call that succeeds on a thread with a message, a state and a record."""
    gives: Callable[[Any], bool]
    raises: type[Exception] | None = None
    """What is raised when there is no such message."""


def is_true(value: Any) -> bool:
    return value is True


def is_none(value: Any) -> bool:
    return value is None


def is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and [type(one) for one in value] == [kind]


PAGE = [
    Row("setup", {}, (), is_none),
    Row(
        "put_state",
        {"config": REQUIRED, "state": REQUIRED},
        (CONFIG, STATE),
        lambda value: value is STATE,
    ),
    Row("get_state", {"config": REQUIRED}, (CONFIG,), lambda value: bool(value == STATE)),
    Row("clear_state", {"config": REQUIRED}, (CONFIG,), is_true),
    Row(
        "put_state_cache",
        {"config": REQUIRED, "state": REQUIRED},
        (CONFIG, STATE),
        lambda value: value is STATE,
    ),
    Row("get_state_cache", {"config": REQUIRED}, (CONFIG,), lambda value: bool(value == STATE)),
    Row(
        "put_messages",
        {"config": REQUIRED, "messages": REQUIRED, "metadata": None},
        (CONFIG, [Message("user", "two")], {"channel": "web"}),
        is_true,
    ),
    Row(
        "get_message",
        {"config": REQUIRED, "message_id": REQUIRED},
        (CONFIG, "m1"),
        lambda value: isinstance(value, Message) and value.id == "m1",
        IndexError,
    ),
    Row("list_messages", LISTED, (CONFIG, "hel", 0, 5), is_list_of(Message)),
    Row(
        "delete_message",
        {"config": REQUIRED, "message_id": REQUIRED},
        (CONFIG, "m1"),
        is_true,
        IndexError,
    ),
    Row(
        "put_thread",
        {"config": REQUIRED, "thread_info": REQUIRED},
        (CONFIG, ThreadInfo("t1", "Name")),
        is_true,
    ),
    Row("get_thread", {"config": REQUIRED}, (CONFIG,), lambda value: type(value) is ThreadInfo),
    Row("list_threads", LISTED, ({}, "na", 0, 5), is_list_of(ThreadInfo)),
    Row("clean_thread", {"config": REQUIRED}, (CONFIG,), is_true),
    Row("release", {}, (), is_true),
]
OURS = {"put", "timeline"}
"""What the page does not have."""

EACH = pytest.mark.parametrize("row", PAGE, ids=[row.name for row in PAGE])
FACE = pytest.mark.parametrize("face", ["sync", "async"])


@pytest.fixture
def chat() -> Iterator[ThreadCheckpointer[Any]]:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer()
    message = Message("user", "hello", id="m1")
    chat.put(CONFIG, STATE, [message], ThreadInfo("t1", "Name"))
    chat.put_state_cache(CONFIG, STATE)
    yield chat
    chat.release()


def call(chat: ThreadCheckpointer[Any], face: str, name: str, *arguments: Any) -> Any:
    if face == "sync":
        return getattr(chat, name)(*arguments)
    return asyncio.run(getattr(chat, f"a{name}")(*arguments))


@FACE
@EACH
def test_a_method_has_the_parameters_of_the_page(row: Row, face: str) -> None:
    name = row.name if face == "sync" else f"a{row.name}"
    method = getattr(ThreadCheckpointer, name)

    _, *found = inspect.signature(method).parameters.values()
    assert inspect.iscoroutinefunction(method) is (face == "async")
    assert [one.name for one in found][: len(row.parameters)] == list(row.parameters)
    for one, default in zip(found, row.parameters.values(), strict=False):
        assert one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        # One that the page requires may have a default here.
        assert one.default == default if default is not REQUIRED else True
    for one in found[len(row.parameters) :]:
        assert one.kind is inspect.Parameter.KEYWORD_ONLY
        assert one.default is not REQUIRED


@FACE
@EACH
def test_a_method_gives_what_the_page_says(
    chat: ThreadCheckpointer[Any], row: Row, face: str
) -> None:
    assert row.gives(call(chat, face, row.name, *row.arguments))


@FACE
@EACH
def test_a_method_takes_its_arguments_by_name(
    chat: ThreadCheckpointer[Any], row: Row, face: str
) -> None:
    name = row.name if face == "sync" else f"a{row.name}"
    named = dict(zip(row.parameters, row.arguments, strict=True))
    given = getattr(chat, name)(**named)

    assert row.gives(given if face == "sync" else asyncio.run(wait(given)))


async def wait(given: Any) -> Any:
    return await given


@FACE
@pytest.mark.parametrize("row", [row for row in PAGE if row.raises], ids=lambda row: row.name)
def test_a_message_that_is_not_there_raises_what_the_page_says(
    chat: ThreadCheckpointer[Any], row: Row, face: str
) -> None:
    assert row.raises is not None
    with pytest.raises(row.raises):
        call(chat, face, row.name, CONFIG, "absent")


@FACE
def test_of_a_thread_that_is_not_there_is_nothing(face: str) -> None:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer()

    for name in ("get_state", "get_state_cache", "get_thread"):
        assert call(chat, face, name, CONFIG) is None
    assert call(chat, face, "list_messages", CONFIG) == []
    assert call(chat, face, "list_threads", {}) == []
    assert call(chat, face, "clear_state", CONFIG) is True
    assert call(chat, face, "clean_thread", CONFIG) is False
    with pytest.raises(IndexError):
        call(chat, face, "get_message", CONFIG)
    chat.release()


def test_there_are_no_methods_beside_the_page_and_our_own() -> None:
    names = {
        name
        for name, _ in inspect.getmembers(ThreadCheckpointer, inspect.isfunction)
        if not name.startswith("_")
    }

    page = {row.name for row in PAGE}
    assert names == {one for name in page | OURS for one in (name, f"a{name}")}
