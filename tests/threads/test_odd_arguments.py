"""Arguments that are odd, and yet have one plain meaning, or none."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import pytest

from ropewalk import MemoryStore, SqliteStore
from ropewalk.errors import InvalidInput
from ropewalk.threads import Message, TextPart, ThreadCheckpointer
from ropewalk.threads.listing import make_cursor
from ropewalk.timeline import Timeline

T = {"thread_id": "t"}


class Word(str, Enum):  # noqa: UP042 - the kind whose str() is not its value
    USER = "user"
    NAME = "a name"


class Number(IntEnum):
    FIVE = 5


class Text(str):
    """As libraries have them for texts that know more."""


@pytest.fixture(params=["memory", "sqlite"])
def chat(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreadCheckpointer[Any]]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path)
    with store:
        yield ThreadCheckpointer(store)


def test_a_member_of_an_enum_names_what_its_value_names() -> None:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer()
    chat.put_state({"thread_id": Word.NAME, "user_id": Number.FIVE}, "state")

    assert chat.get_state({"thread_id": "a name", "user_id": 5}) == "state"


@pytest.mark.parametrize("id", [Word.NAME, Number.FIVE, Text("text")])
def test_a_message_is_named_by_the_value_alone(id: Any) -> None:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer()
    chat.put_messages(T, [Message("user", "hello", id=id)])
    found = chat.get_message(T, id)
    chat.put_messages(T, [Message("user", "hello again", id=id)])

    assert type(found.id) in (str, int)
    assert [one.text for one in chat.list_messages(T)] == ["hello again"]


def test_texts_of_other_classes_are_stored_as_texts() -> None:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer()
    role: Any = Word.USER
    chat.put_messages(T, [{"role": role, "content": Text("first"), "name": Text("Ann")}])
    chat.put_messages(T, [Message(role, [Text("second"), TextPart(Text("third"))])])
    first, second = chat.list_messages(T)

    assert (first.role, first.content, first.name) == ("user", "first", "Ann")
    assert second.text == "second\nthird"
    assert type(first.role) is type(first.content) is type(first.name) is str


@pytest.mark.parametrize("count", [1 << 63, 10**30])
def test_a_limit_that_no_list_reaches_is_no_limit(
    chat: ThreadCheckpointer[Any], count: int
) -> None:
    chat.put_messages(T, [{"role": "user", "content": "hello"}])

    assert len(chat.list_messages(T, "hello", limit=count)) == 1
    assert len(chat.list_messages(T, limit=count, newest_first=True)) == 1
    assert chat.list_messages(T, "hello", offset=count) == []
    assert len(chat.list_threads({}, limit=count)) == 1


@pytest.mark.parametrize("position", [-1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_cursor_that_no_list_gave_is_refused(
    chat: ThreadCheckpointer[Any], position: int, newest_first: bool
) -> None:
    chat.put_messages(T, [{"role": "user", "content": "hello"}])
    cursor = make_cursor(position, newest_first)

    with pytest.raises(InvalidInput, match="no cursor"):
        chat.list_messages(T, "hello", cursor=cursor, newest_first=newest_first)


@pytest.mark.parametrize("name", ["#no-number", "other"])
def test_a_timeline_that_is_no_thread_does_not_stand_in_the_way_of_a_list(
    chat: ThreadCheckpointer[Any], name: str
) -> None:
    chat.put_state(T, "state")
    Timeline(name, chat.store, tenant="threads").checkpoint({"other": "value"})

    assert [one.thread_id for one in chat.list_threads({})] == ["t"]


@pytest.mark.parametrize(
    "time", [10**400, float("nan"), float("inf"), pytest.param(10**5000, id="too long to show")]
)
def test_a_number_that_is_no_time_is_refused(time: Any) -> None:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer()

    with pytest.raises(InvalidInput, match="seconds since 1970"):
        chat.put_messages(T, [{"role": "user", "content": "x", "created_at": time}])


@pytest.mark.parametrize("seconds", [10**400, float("inf"), 1e308])
def test_a_cached_state_may_live_for_longer_than_can_be_counted(
    chat: ThreadCheckpointer[Any], seconds: float
) -> None:
    lasting: ThreadCheckpointer[Any] = ThreadCheckpointer(chat.store, cache_seconds=seconds)
    lasting.put_state_cache(T, "state")

    assert lasting.get_state_cache(T) == "state"
