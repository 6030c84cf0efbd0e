"""Threads against plain lists: whatever is put, edited, deleted, rolled back and branched."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ropewalk.errors import MessageNotFound
from ropewalk.store import MemoryStore
from ropewalk.threads import Message, ThreadCheckpointer
from tests.conftest import SOAK
from tests.tree.support import small_nodes

T = {"thread_id": "t", "user_id": "u"}
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
IDS: list[Any] = ["a", "b", "c", "d", "e", "f", "g", "1", 1, 2, 0, "long" * 30]
TEXTS = ["red apple", "green apple", "red pear", "apples and pears", "", "x" * 400]
WORDS = ["red", "app", "pear", "apple red", "absent", ""]
STATES: list[Any] = [0, "text", {"step": 1}, {"step": 2, "notes": ["x" * 90]}, []]
NAMES = ["Name", "Other", None]

batches = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(TEXTS)), max_size=6)


class Said(NamedTuple):
    """A message in the model."""

    position: int
    id: Any
    text: str

    @property
    def key(self) -> tuple[type, Any]:
        return type(self.id), self.id


class Held(NamedTuple):
    """All that a thread holds at one commit."""

    messages: tuple[Said, ...] = ()
    state: Any = None
    name: tuple[str | None] | None = None
    mark: object = None
    next: int = 0

    def put(self, batch: list[tuple[Any, str]]) -> Held:
        """With messages: those with a new id at the end, others in the place of the old."""
        messages, following = list(self.messages), self.next
        for id, text in batch:
            key = (type(id), id)
            at = next((at for at, one in enumerate(messages) if one.key == key), None)
            if at is None:
                messages.append(Said(following, id, text))
                following += 1
            else:
                messages[at] = messages[at]._replace(text=text)
        return self._replace(messages=tuple(messages), next=following)

    @property
    def is_empty(self) -> bool:
        return not self.messages and self.state is None and self.name is None


class Cursor(NamedTuple):
    """A page that somebody began to read."""

    text: str
    last: int
    newest_first: bool
    search: str | None
    branch: str


def matches(text: str, search: str) -> bool:
    return search in text


class ThreadBesideLists(RuleBasedStateMachine):
    """Two checkpointers on one store, used in turn, and a model."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(small_nodes())
        small = {
            "thread.LAG": 5,
            "search.SCANNED": 20,
            "search._FEW_CHANGED": 3,
            "search._AT_ONCE": 6,
            "search._BATCH": 4,
        }
        for name, number in small.items():
            self.stack.enter_context(mock.patch(f"ropewalk.threads.{name}", number))
        self.store = MemoryStore()
        self.chats = [ThreadCheckpointer[Any](self.store) for _ in range(2)]
        self.branches: dict[str, list[Held]] = {"main": []}
        self.branch = "main"
        self.cached: dict[str, tuple[Any, object]] = {}
        self.cursors: list[Cursor] = []

    def teardown(self) -> None:
        assert self.store.check(read_data=True).problems == ()
        self.store.close()
        self.stack.close()

    @property
    def held(self) -> Held:
        steps = self.branches[self.branch]
        return steps[-1] if steps else Held()

    def becomes(self, after: Held, *, always: bool = False) -> None:
        """What a call makes of the model: one more commit, unless nothing changes."""
        if always or after[:3] != self.held[:3]:
            self.branches[self.branch].append(after)

    @initialize(start=st.sampled_from([0, 0, 3, 120, 127, 255]))
    def begin(self, start: int) -> None:
        """So that positions cross those where names stand among the keys."""
        if start:
            batch = [(f"old {number}", "x") for number in range(start)]
            self.chats[0].put_messages(T, self.made(batch))
            self.becomes(self.held.put(batch))
            self.chats[0].clean_thread(T)
            self.becomes(Held(next=start, mark=object()))

    def made(self, batch: list[tuple[Any, str]]) -> list[Message]:
        return [Message("user", text, id=id, created_at=MOMENT) for id, text in batch]

    # Changes.

    @rule(by=st.integers(0, 1), batch=batches)
    def put_messages(self, by: int, batch: list[tuple[Any, str]]) -> None:
        self.chats[by].put_messages(T, self.made(batch))
        self.becomes(self.held.put(batch))

    @rule(by=st.integers(0, 1), id=st.sampled_from(IDS))
    def delete(self, by: int, id: Any) -> None:
        key = (type(id), id)
        if not any(one.key == key for one in self.held.messages):
            with pytest.raises(MessageNotFound):
                self.chats[by].delete_message(T, id)
            return
        self.chats[by].delete_message(T, id)
        left = tuple(one for one in self.held.messages if one.key != key)
        self.becomes(self.held._replace(messages=left))

    @precondition(lambda self: self.held.messages)
    @rule(by=st.integers(0, 1), which=st.integers(0, 99), text=st.sampled_from(TEXTS))
    def edit(self, by: int, which: int, text: str) -> None:
        one = self.held.messages[which % len(self.held.messages)]
        self.chats[by].put_messages(T, self.made([(one.id, text)]))
        self.becomes(self.held.put([(one.id, text)]))

    @rule(by=st.integers(0, 1), state=st.sampled_from(STATES))
    def put_state(self, by: int, state: Any) -> None:
        mine = copy.deepcopy(state)
        self.chats[by].put_state(T, mine)
        if isinstance(mine, dict):
            mine.clear()
        self.becomes(self.held._replace(state=state, mark=object()), always=True)
        self.cached.pop(self.branch, None)

    @rule(by=st.integers(0, 1))
    def clear_state(self, by: int) -> None:
        self.chats[by].clear_state(T)
        if self.held.state is not None:
            self.becomes(self.held._replace(state=None, mark=object()))
        self.cached.pop(self.branch, None)

    @rule(by=st.integers(0, 1), name=st.sampled_from(NAMES))
    def put_thread(self, by: int, name: str | None) -> None:
        self.chats[by].put_thread(T, {"thread_name": name})
        self.becomes(self.held._replace(name=(name,)))

    @rule(
        by=st.integers(0, 1),
        state=st.none() | st.sampled_from(STATES),
        batch=batches,
        name=st.sampled_from(NAMES),
    )
    def put(self, by: int, state: Any, batch: list[tuple[Any, str]], name: str | None) -> None:
        record = None if name is None else {"thread_name": name}
        made = self.chats[by].put(T, state, self.made(batch), record)
        after, before = self.held.put(batch), len(self.branches[self.branch])
        if state is not None:
            after = after._replace(state=state, mark=object())
            self.cached.pop(self.branch, None)
        if name is not None:
            after = after._replace(name=(name,))
        self.becomes(after, always=state is not None)
        assert (made is None) == (len(self.branches[self.branch]) == before)

    @rule(by=st.integers(0, 1))
    def clean(self, by: int) -> None:
        assert self.chats[by].clean_thread(T) is not self.held.is_empty
        if not self.held.is_empty:
            self.becomes(Held(mark=object(), next=self.held.next))
        self.cached.pop(self.branch, None)

    # Time.

    @precondition(lambda self: len(self.branches[self.branch]) > 1)
    @rule(by=st.integers(0, 1), steps=st.integers(1, 8))
    def rollback(self, by: int, steps: int) -> None:
        steps = min(steps, len(self.branches[self.branch]) - 1)
        self.chats[by].timeline(T).rollback(steps)
        del self.branches[self.branch][-steps:]
        self.cursors = [one for one in self.cursors if one.branch != self.branch]

    @precondition(lambda self: self.branches[self.branch] and len(self.branches) < 3)
    @rule(by=st.integers(0, 1), back=st.integers(0, 3))
    def begin_branch(self, by: int, back: int) -> None:
        steps = self.branches[self.branch]
        back = min(back, len(steps) - 1)
        history = self.chats[by].timeline(T)
        name = f"branch {len(self.branches)}"
        history.branch(name, history.history(limit=None)[back].id)
        self.branches[name] = steps[: len(steps) - back]
        self.branch = name

    @precondition(lambda self: len(self.branches) > 1)
    @rule(by=st.integers(0, 1), which=st.integers(0, 2))
    def switch(self, by: int, which: int) -> None:
        name = sorted(self.branches)[which % len(self.branches)]
        self.chats[by].timeline(T).switch_branch(name)
        self.branch = name

    @rule(by=st.integers(0, 1))
    def reopen(self, by: int) -> None:
        self.chats[by] = ThreadCheckpointer(self.store)

    @rule()
    def lose_the_index(self) -> None:
        for name in self.branches:
            self.store.text_index().drop(f"threads%3Au/t/{name}")

    @rule()
    def collect(self) -> None:
        self.store.gc(recent=3)

    # The cache.

    @rule(by=st.integers(0, 1), state=st.sampled_from(STATES))
    def put_cache(self, by: int, state: Any) -> None:
        self.chats[by].put_state_cache(T, state)
        self.cached[self.branch] = (state, self.held.mark)

    @invariant()
    def the_cache_hides_no_newer_state(self) -> None:
        value, mark = self.cached.get(self.branch, (None, object()))
        wanted = value if mark is self.held.mark else None

        for chat in self.chats:
            assert chat.get_state_cache(T) == wanted

    # Pages.

    def wanted(self, search: str | None, newest_first: bool) -> list[Said]:
        found = [one for one in self.held.messages if search is None or matches(one.text, search)]
        return found[::-1] if newest_first else found

    @rule(
        by=st.integers(0, 1),
        offset=st.integers(0, 6),
        limit=st.none() | st.integers(0, 6),
        newest_first=st.booleans(),
        search=st.none() | st.sampled_from(WORDS),
    )
    def page(
        self, by: int, offset: int, limit: int | None, newest_first: bool, search: str | None
    ) -> None:
        page = self.chats[by].list_messages(T, search, offset, limit, newest_first=newest_first)
        rest = self.wanted(search, newest_first)[offset:]
        wanted = rest if limit is None else rest[:limit]

        assert [one.id for one in page] == [one.id for one in wanted]
        assert (page.cursor is not None) == (bool(wanted) and len(rest) > len(wanted))
        if page.cursor is not None:
            last = wanted[-1].position
            self.cursors.append(Cursor(page.cursor, last, newest_first, search, self.branch))

    @precondition(lambda self: any(one.branch == self.branch for one in self.cursors))
    @rule(by=st.integers(0, 1), which=st.integers(0, 99))
    def go_on(self, by: int, which: int) -> None:
        cursors = [one for one in self.cursors if one.branch == self.branch]
        one = cursors[which % len(cursors)]
        rest = [
            said
            for said in self.wanted(one.search, one.newest_first)
            if (said.position < one.last if one.newest_first else said.position > one.last)
        ]

        page = self.chats[by].list_messages(
            T, one.search, newest_first=one.newest_first, cursor=one.text
        )
        assert [said.id for said in page] == [said.id for said in rest]

    # What always holds.

    @rule(by=st.integers(0, 1))
    def find_each(self, by: int) -> None:
        for one in self.held.messages:
            assert self.chats[by].get_message(T, one.id).text == one.text
        keys = {one.key for one in self.held.messages}
        for id in IDS:
            if (type(id), id) not in keys:
                with pytest.raises(MessageNotFound):
                    self.chats[by].get_message(T, id)

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        held = self.held
        for chat in self.chats:
            found = chat.list_messages(T)
            assert [(type(one.id), one.id, one.text) for one in found] == [
                (*one.key, one.text) for one in held.messages
            ]
            assert chat.get_state(T) == held.state
            info = chat.get_thread(T)
            assert (info is None) == held.is_empty
            if info is not None:
                assert info.thread_name == (held.name or (None,))[0]
            assert len(chat.list_threads(T)) == (not held.is_empty)
            if held.messages:
                assert chat.get_message(T).id == held.messages[-1].id

    @invariant()
    def every_change_is_a_commit(self) -> None:
        history = self.chats[0].timeline(T).history(limit=None)
        assert len(history) == len(self.branches[self.branch])


def test_threads_do_what_the_model_does() -> None:
    count = 1500 if SOAK else 40
    run_state_machine_as_test(
        ThreadBesideLists, settings=settings(max_examples=count, stateful_step_count=40)
    )
