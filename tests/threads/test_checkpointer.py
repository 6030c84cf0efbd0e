"""What a checkpointer does by itself: what it opens, remembers and lets go."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, StoreClosed
from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.testing.helpers import in_threads
from ropewalk.threads import Message, ThreadCheckpointer, checkpointer, search

T = {"thread_id": "t"}


def test_without_a_store_it_is_in_memory() -> None:
    with ThreadCheckpointer[Any]() as chat:
        assert isinstance(chat.store, MemoryStore)
        assert "MemoryStore" in repr(chat)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_opened_and_released(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer(kind(tmp_path / "chat.ropewalk"))
    chat.put_state(T, 1)
    assert isinstance(chat.store, SqliteStore)
    chat.release()

    with pytest.raises(StoreClosed):
        chat.put_state(T, 2)
    with ThreadCheckpointer[Any](tmp_path / "chat.ropewalk") as again:
        assert again.get_state(T) == 1


@pytest.mark.parametrize("given", [5, ["memory://"], object()])
def test_what_is_no_store_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput):
        ThreadCheckpointer(given)


def test_releasing_one_leaves_others_on_the_same_store_alone() -> None:
    with MemoryStore() as store:
        one, two = ThreadCheckpointer[Any](store), ThreadCheckpointer[Any](store)
        one.put_state(T, 1)
        asyncio.run(one.arelease())

        assert two.get_state(T) == 1
        assert asyncio.run(two.aget_state(T)) == 1


def test_what_was_begun_is_finished_before_the_store_is_closed(tmp_path: Path) -> None:
    async def use() -> list[Any]:
        chat: ThreadCheckpointer[Any] = ThreadCheckpointer(tmp_path / "store")
        puts = [
            asyncio.create_task(chat.aput(T, n, [Message("user", "x", id=n)])) for n in range(30)
        ]
        await puts[0]
        assert await chat.arelease() is True
        return await asyncio.gather(*puts, return_exceptions=True)

    ends = asyncio.run(use())
    with ThreadCheckpointer[Any](tmp_path / "store") as chat:
        stored = {one.id for one in chat.list_messages(T)}
        assert all(isinstance(end, str | StoreClosed) for end in ends)
        assert stored >= {n for n, end in enumerate(ends) if isinstance(end, str)}
        assert chat.get_state(T) in stored


def test_a_thread_that_was_let_go_of_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "_KEPT", 2)
    with ThreadCheckpointer[Any]() as chat:

        def work(by: int) -> None:
            for number in range(30):
                config = {"thread_id": (by + number) % 5}
                chat.put_messages(config, [Message("user", "x", id=f"{by}/{number}")])
                assert chat.get_message(config, f"{by}/{number}").text == "x"

        in_threads(4, work)

        found = [
            str(m.id) for thread in range(5) for m in chat.list_messages({"thread_id": thread})
        ]
        assert sorted(found) == sorted(f"{by}/{number}" for by in range(4) for number in range(30))
        assert len(chat._known) <= 2


def test_a_thread_that_was_let_go_of_still_follows_its_timeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpointer, "_KEPT", 1)
    with ThreadCheckpointer[Any]() as chat:
        chat.put_state(T, 1)
        history = chat.timeline(T)
        chat.put_state({"thread_id": "other"}, 1)
        chat.put_state(T, 2)
        history.branch("b")
        chat.put_state(T, 3)

        assert chat.get_state({**T, "branch": "b"}) == 3
        assert chat.get_state({**T, "branch": "main"}) == 2


def test_timelines_that_are_no_longer_used_are_not_remembered() -> None:
    with ThreadCheckpointer[Any]() as chat:
        kept = chat.timeline(T)
        for number in range(100):
            chat.timeline({"thread_id": number})
        gc.collect()

        assert list(chat._timelines) == [kept]


def test_what_was_cached_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "_MOST_MET", 10)
    with ThreadCheckpointer[Any]() as chat:
        for number in range(100):
            chat.put_state_cache({"thread_id": number}, number)

        assert len(chat._cache._met) <= 10
        assert chat.get_state_cache({"thread_id": 3}) == 3


def test_a_codec_is_given_whole() -> None:
    from ropewalk.codec import Codec

    with ThreadCheckpointer[Any](codec=Codec()) as chat:
        chat.put_state(T, 1)
    with pytest.raises(InvalidInput):
        ThreadCheckpointer(codec=Codec(), types=[Path])


def test_a_search_in_a_long_thread_leaves_an_index_behind_that_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(search, "SCANNED", 1000)
    with ThreadCheckpointer[Any](tmp_path / "store") as chat:
        chat.put_messages(T, [Message("user", f"Parcel {n} is LATE") for n in range(500)])
        found = [chat.list_messages(T, part) for part in ("rcel 49", "is late", "absent", "9")]
        for one in threading.enumerate():
            if one.name == "ropewalk-index":
                one.join()

        assert chat.store.text_index().state("threads/t/main") is not None
        assert list(map(len, found)) == [11, 500, 0, 95]
        assert [
            chat.list_messages(T, part) for part in ("rcel 49", "is late", "absent", "9")
        ] == found
