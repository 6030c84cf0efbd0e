"""A long thread: what is asked of the store does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

from ropewalk.store import MemoryStore
from ropewalk.store.wrappers import WrapperStore
from ropewalk.threads import Message, ThreadCheckpointer, search
from ropewalk.tree import Object, ObjectId, Reader
from tests.conftest import SOAK

COUNT = 100_000 if SOAK else 30_000
TOGETHER = 1000
T = {"thread_id": "long"}


class Counting(WrapperStore):
    """A store that counts the objects that are read of it."""

    read_objects = 0

    def reader(self, space: str) -> Reader:
        read = super().reader(space)

        def counted(ids: Sequence[ObjectId]) -> Sequence[Object]:
            self.read_objects += len(ids)
            return read(ids)

        return counted


def said(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"common words and needle{number}", "id": f"m{number}"}


@pytest.fixture(scope="module")
def store() -> Iterator[Counting]:
    """A store with a long thread, whose messages were searched once."""
    with Counting(MemoryStore()) as store:
        chat: ThreadCheckpointer[Any] = ThreadCheckpointer(store)
        for first in range(0, COUNT, TOGETHER):
            chat.put_messages(T, [said(number) for number in range(first, first + TOGETHER)])
        with (
            mock.patch.object(search, "SCANNED", 1000),
            mock.patch.object(search.Indexing, "begin", lambda self, scope, make: make()),
        ):
            chat = ThreadCheckpointer(store)
            assert len(chat.list_messages(T, "needle27777")) == 1
        yield store


Chat = ThreadCheckpointer[Any]
READS: dict[str, tuple[Callable[[Chat], Any], Any]] = {
    "the first page": (lambda chat: ids(chat.list_messages(T, limit=20)), list(range(20))),
    "the latest page": (
        lambda chat: ids(chat.list_messages(T, limit=20, newest_first=True)),
        list(range(COUNT - 1, COUNT - 21, -1)),
    ),
    "a page in the middle": (
        lambda chat: ids(chat.list_messages(T, offset=15_000, limit=20)),
        list(range(15_000, 15_020)),
    ),
    "the latest message": (lambda chat: ids([chat.get_message(T)]), [COUNT - 1]),
    "a message by its id": (lambda chat: ids([chat.get_message(T, "m4321")]), [4321]),
    "a search hit": (lambda chat: ids(chat.list_messages(T, "needle26543")), [26_543]),
    "a page of many hits": (
        lambda chat: ids(chat.list_messages(T, "comm", limit=20)),
        list(range(20)),
    ),
    "the latest of many hits": (
        lambda chat: ids(chat.list_messages(T, "comm", limit=5, newest_first=True)),
        list(range(COUNT - 1, COUNT - 6, -1)),
    ),
    "a search without hits": (lambda chat: ids(chat.list_messages(T, "absent")), []),
    "the record": (lambda chat: len(chat.list_threads({})), 1),
}


def ids(messages: list[Message]) -> list[int]:
    return [int(str(one.id)[1:]) for one in messages]


@pytest.mark.parametrize("name", READS)
def test_a_read_touches_few_objects_however_long_the_thread_is(store: Counting, name: str) -> None:
    work, wanted = READS[name]
    chat: Chat = ThreadCheckpointer(store)
    before = store.read_objects

    assert work(chat) == wanted
    assert store.read_objects - before <= 50


def test_an_append_touches_few_objects_however_long_the_thread_is(store: Counting) -> None:
    chat: Chat = ThreadCheckpointer(store)
    before = store.read_objects

    chat.put_messages(T, [said(COUNT)])
    assert store.read_objects - before <= 50
    before = store.read_objects
    for number in range(1, 101):
        chat.put_messages(T, [said(COUNT + number)])
    assert store.read_objects - before <= 50
    assert chat.get_message(T).id == f"m{COUNT + 100}"
    for number in range(101):
        chat.delete_message(T, f"m{COUNT + number}")
    assert store.read_objects - before <= 300
    assert ids(chat.list_messages(T, "comm", limit=1, newest_first=True)) == [COUNT - 1]
