"""Threads on a store that fails at every call in turn: all of a call or nothing, and once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ropewalk.errors import MessageNotFound, RopewalkError
from ropewalk.store import MemoryStore, Store
from ropewalk.testing import Outcome, fail_every_call
from ropewalk.threads import Message, ThreadCheckpointer

T = {"thread_id": "t", "user_id": "u"}
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def made(*ids: str, text: str = "said") -> list[Message]:
    return [Message("user", f"{text} {id}", id=id, created_at=MOMENT) for id in ids]


Chat = ThreadCheckpointer[Any]
STEPS: list[Callable[[Chat], Any]] = [
    lambda chat: chat.put_messages(T, made("a", "b")),
    lambda chat: chat.put_state(T, {"step": 1}),
    lambda chat: chat.put(T, {"step": 2}, made("c", "d"), {"thread_name": "Name"}),
    lambda chat: chat.put_messages(T, made("b", text="edited")),
    lambda chat: chat.delete_message(T, "a"),
    lambda chat: chat.put_thread(T, {"thread_name": "Other"}),
    lambda chat: chat.put_messages(T, made(*(f"m{number}" for number in range(140)))),
    lambda chat: chat.put_messages(T, made("a", "b", "e")),
    lambda chat: chat.clear_state(T),
    lambda chat: chat.put(T, {"step": 3}, made("f", "g"), {"thread_name": "Last"}),
]


def contents(chat: Chat) -> tuple[Any, ...]:
    info = chat.get_thread(T)
    said = [(one.id, one.text) for one in chat.list_messages(T)]
    return chat.get_state(T), said, None if info is None else info.thread_name


def wanted() -> list[tuple[Any, ...]]:
    """What a thread holds before the first step and after each."""
    with ThreadCheckpointer[Any]() as chat:
        found = [contents(chat)]
        for step in STEPS:
            step(chat)
            found.append(contents(chat))
        return found


class Talker:
    """Does the steps, and remembers how many were acknowledged."""

    def __init__(self, tries: int) -> None:
        self.tries, self.wanted = tries, wanted()

    def run(self, store: Store) -> None:
        self.done, self.failed = 0, 0
        chat: Chat = ThreadCheckpointer(store)
        for step in STEPS:
            self.do(step, chat)
            self.done += 1

    def do(self, step: Callable[[Chat], Any], chat: Chat) -> None:
        for again in range(self.tries):
            try:
                step(chat)
            except MessageNotFound:
                if not again:
                    raise
                return  # It was deleted the first time, and only the reply was lost.
            except RopewalkError:
                self.failed += 1
                if again == self.tries - 1:
                    raise
            else:
                return

    def check(self, store: Store, outcome: Outcome[None]) -> None:
        found = contents(ThreadCheckpointer(store))
        if outcome.error is None:
            assert found == self.wanted[-1]
        else:
            assert found in self.wanted[self.done : self.done + 2]
        commits = ThreadCheckpointer[Any](store).timeline(T).history(limit=None)
        assert len(commits) <= self.done + 1 + self.failed
        ids = [id for id, _ in found[1]]
        assert len(set(ids)) == len(ids)
        reader: Chat = ThreadCheckpointer(store)
        for id, text in [*found[1][:6], *found[1][-6:]]:
            assert reader.get_message(T, id).text == text
        searched = ThreadCheckpointer[Any](store).list_messages(T, "said")
        assert [one.id for one in searched] == [id for id, text in found[1] if "said" in text]
        assert store.check(read_data=True).problems == ()


@pytest.mark.parametrize("tries", [1, 2])
def test_a_call_that_failed_changed_all_or_nothing_and_can_be_made_again(tries: int) -> None:
    talker = Talker(tries)

    assert fail_every_call(lambda: MemoryStore().another, talker.run, talker.check) > 40


def test_messages_whose_reply_was_lost_are_there_once_when_put_again() -> None:
    def work(store: Store) -> None:
        chat: Chat = ThreadCheckpointer(store)
        for batch in (made("a", "b"), made("c")):
            for _ in range(3):
                try:
                    chat.put_messages(T, batch)
                except RopewalkError:
                    continue
                break

    def check(store: Store, outcome: Outcome[None]) -> None:
        chat: Chat = ThreadCheckpointer(store)
        ids = [one.id for one in chat.list_messages(T)]
        commits = len(chat.timeline(T).history(limit=None))
        if outcome.fault is None or outcome.fault.kind != "dead":
            assert ids == ["a", "b", "c"]
            assert commits == 2
        else:
            assert ids in ([], ["a", "b"], ["a", "b", "c"])

    assert fail_every_call(lambda: MemoryStore().another, work, check) > 10


def test_reading_that_failed_can_be_done_again() -> None:
    def work(store: Store) -> list[str]:
        chat: Chat = ThreadCheckpointer(store)
        for _ in range(2):
            try:
                pages = [chat.list_messages(T, limit=3), chat.list_messages(T, "said", limit=3)]
                assert chat.get_state(T) == {"step": 1}
                assert len(chat.list_threads(T)) == 1
                return [str(one.id) for page in pages for one in page]
            except RopewalkError:
                continue
        raise RopewalkError("it failed twice")

    def fresh() -> Callable[[], Store]:
        memory = MemoryStore()
        chat: Chat = ThreadCheckpointer(memory.another())
        chat.put(T, {"step": 1}, made(*"abcde"))
        return memory.another

    def check(store: Store, outcome: Outcome[list[str]]) -> None:
        if outcome.fault is None or outcome.fault.kind != "dead":
            assert outcome.result == ["a", "b", "c"] * 2

    assert fail_every_call(fresh, work, check) > 10
