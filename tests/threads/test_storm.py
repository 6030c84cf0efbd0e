"""Everything at once, by several threads of the program, beside collections and rollbacks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import Conflict, InvalidInput, MessageNotFound, NotFound, RefMoved
from ropewalk.testing.helpers import in_threads
from ropewalk.threads import Message, ThreadCheckpointer
from tests.conftest import SOAK
from tests.engines import opening

STEPS = 4000 if SOAK else 60
CONFIGS = [{"thread_id": number} for number in range(3)]
Chat = ThreadCheckpointer[Any]


def said(choose: random.Random) -> Message:
    return Message("user", f"word {choose.random()}", id=choose.randrange(400))


def put(chat: Chat, config: Any, choose: random.Random) -> None:
    state = {"chance": choose.random(), "list": list(range(choose.randrange(300)))}
    chat.put(config, state, [said(choose)], {"thread_name": "Name"})


def append(chat: Chat, config: Any, choose: random.Random) -> None:
    chat.put_messages(config, [said(choose) for _ in range(choose.randrange(1, 30))])


def delete(chat: Chat, config: Any, choose: random.Random) -> None:
    found = chat.list_messages(config, limit=5)
    if found:
        chat.delete_message(config, choose.choice(found).id)


def read(chat: Chat, config: Any, choose: random.Random) -> None:
    limit, reverse = choose.choice([None, 5]), choose.random() < 0.5
    for search in (None, "wor"):
        page = chat.list_messages(config, search, limit=limit, newest_first=reverse)
        ids = [one.id for one in page]
        assert len(set(ids)) == len(ids)
        assert all(one.text.startswith("word") for one in page)
    chat.get_state(config)
    chat.list_threads({})


def cache(chat: Chat, config: Any, choose: random.Random) -> None:
    chat.put_state_cache(config, choose.random())
    chat.get_state_cache(config)


def clear(chat: Chat, config: Any, choose: random.Random) -> None:
    chat.clear_state(config)
    if choose.random() < 0.1:
        chat.clean_thread(config)


def travel(chat: Chat, config: Any, choose: random.Random) -> None:
    if choose.random() < 0.3:
        chat.timeline(config).rollback()
    elif choose.random() < 0.2:
        chat.timeline(config).branch(f"b{choose.random()}")


def collect(chat: Chat, config: Any, choose: random.Random) -> None:
    if choose.random() < 0.2:
        chat.store.gc(recent=1)


Step = Callable[[Chat, Any, random.Random], None]
WORK: list[Step] = [
    put, put, append, append, delete, read, cache, clear, travel, collect
]  # fmt: skip
EXPECTED: dict[Step, tuple[type[Exception], ...]] = {
    delete: (MessageNotFound,),
    travel: (RefMoved, Conflict, NotFound, InvalidInput, UserWarning),
}
"""What somebody else may have made impossible meanwhile."""


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_whatever_happens_at_once_nothing_breaks(engine: str, memory_folder: Path) -> None:
    with opening(engine, memory_folder) as open_store:
        chats: list[Chat] = [ThreadCheckpointer(open_store()) for _ in range(2)]
        done: Counter[str] = Counter()

        def work(seed: int) -> None:
            choose = random.Random(seed)
            for _ in range(STEPS):
                step = choose.choice(WORK)
                try:
                    step(choose.choice(chats), choose.choice(CONFIGS), choose)
                except EXPECTED.get(step, ()):
                    continue
                done[step.__name__] += 1

        in_threads(4, work)

        assert sum(done.values()) > 3 * STEPS
        assert chats[0].store.check(read_data=True).problems == ()
        for config in CONFIGS:
            first, second = (chat.list_messages(config) for chat in chats)
            assert first == second
            for one in first:
                assert chats[0].get_message(config, one.id) == one
            assert chats[1].list_messages(config, "word") == first
            assert chats[0].get_state(config) == chats[1].get_state(config)
