"""What is known to go wrong in a peer's checkpointers, and must not here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pydantic
import pytest

from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.testing.helpers import in_threads
from ropewalk.threads import ImagePart, Message, TextPart, ThreadCheckpointer, ThreadInfo

T = {"thread_id": "t"}
FACE = pytest.mark.parametrize("face", ["sync", "async"])


@pytest.fixture
def chat() -> Iterator[ThreadCheckpointer[Any]]:
    with ThreadCheckpointer[Any]() as chat:
        yield chat


class Execution(pydantic.BaseModel):
    """A part of a state."""

    step: int = 0
    data: dict[str, Any] = pydantic.Field(default_factory=dict)


class Agent(pydantic.BaseModel):
    """A state such as frameworks have."""

    context: list[str] = pydantic.Field(default_factory=list)
    execution: Execution = pydantic.Field(default_factory=Execution)


class ScoredAgent(Agent):
    """A program's own state, with a field more."""

    score: Annotated[int, pydantic.Field(ge=0)] = 0


# In memory: copies.


@FACE
def test_a_pydantic_state_is_copied_and_comes_back_as_its_own_class(face: str) -> None:
    with ThreadCheckpointer[Any](types=[Agent, ScoredAgent, Execution]) as chat:
        state = ScoredAgent(context=["a"], score=7)
        if face == "sync":
            chat.put_state(T, state)
        else:
            asyncio.run(chat.aput_state(T, state))
        state.context.append("changed")
        state.execution.step = 99
        state.execution.data["x"] = 1
        found: Any = chat.get_state(T)
        found.context.append("changed too")

        again = chat.get_state(T)
        assert type(again) is ScoredAgent
        assert again == ScoredAgent(context=["a"], score=7)
        assert type(again.execution) is Execution


def test_a_pydantic_state_that_is_changed_in_place_and_put_again_is_stored() -> None:
    with ThreadCheckpointer[Any](types=[Agent, Execution]) as chat:
        state = Agent()
        for step in range(3):
            state.execution.step = step
            state.context.append(str(step))
            chat.put_state(T, state)
        chat.put_state_cache(T, state)
        state.context.clear()

        assert chat.get_state(T) == Agent(context=["0", "1", "2"], execution=Execution(step=2))
        assert chat.get_state_cache(T) == chat.get_state(T)
        chat.timeline(T).rollback(2)
        assert chat.get_state(T) == Agent(context=["0"])


def test_messages_and_metadata_are_copied(chat: ThreadCheckpointer[Any]) -> None:
    made, info = Message("user", "a", metadata={"x": [1]}), {"metadata": {"deep": {"y": [1]}}}
    chat.put(T, messages=[made], thread=info)
    made.metadata["x"].append(2)
    info["metadata"]["deep"]["y"].append(2)
    chat.get_message(T).metadata["x"].append(3)
    found = chat.get_thread(T)
    assert found is not None
    found.metadata["deep"]["y"].append(3)

    again = chat.get_thread(T)
    assert again is not None
    assert chat.get_message(T).metadata == {"x": [1]}
    assert again.metadata == {"deep": {"y": [1]}}


# In memory: search.


@pytest.mark.parametrize("search", ["text", "annotations=[]", "type", "TextPart(", "aGVsbG8"])
def test_a_search_matches_no_names_of_fields_and_no_data(
    chat: ThreadCheckpointer[Any], search: str
) -> None:
    picture = ImagePart("data:image/png;base64,aGVsbG8gd29ybGQ=")
    chat.put_messages(T, [Message("user", [TextPart("hello"), picture]) for _ in range(5)])

    assert chat.list_messages(T, search) == []
    assert len(chat.list_messages(T, "hello")) == 5


@pytest.mark.parametrize("text", ["line1\nline2", 'it\'s "both" kinds', "tab\there", "back\\slash"])
def test_a_text_is_found_by_itself(chat: ThreadCheckpointer[Any], text: str) -> None:
    chat.put_messages(T, [Message("user", text), Message("user", "other")])

    assert [one.text for one in chat.list_messages(T, text)] == [text]


def test_a_search_looks_at_no_data_of_pictures(chat: ThreadCheckpointer[Any]) -> None:
    data = "data:image/png;base64," + "QUJD" * 50_000
    chat.put_messages(T, [Message("user", [TextPart("hello"), ImagePart(data)])])

    assert chat.list_messages(T, "QUJDQUJD") == []
    assert [one.text for one in chat.list_messages(T, "hello")] == ["hello"]


# In memory: pages.


def test_a_limit_of_zero_is_none_and_a_negative_offset_an_error(
    chat: ThreadCheckpointer[Any],
) -> None:
    chat.put_messages(T, [Message("user", "a"), Message("user", "b")])

    assert chat.list_messages(T, limit=0) == []
    assert chat.list_threads({}, limit=0) == []
    for call in (chat.list_messages, chat.list_threads):
        with pytest.raises(ValueError, match="offset"):
            call(T, offset=-1)


# In memory: whose thread it is.


def test_bob_reads_nothing_of_alice(chat: ThreadCheckpointer[Any]) -> None:
    alice, bob = {**T, "user_id": "alice"}, {**T, "user_id": "bob"}
    chat.put(alice, {"secret": 1}, [Message("user", "secret", id="m")], {"thread_name": "Secret"})
    chat.put_state_cache(alice, {"secret": 2})

    assert chat.get_state(bob) is None
    assert chat.get_state_cache(bob) is None
    assert chat.list_messages(bob, "secret") == []
    assert chat.get_thread(bob) is None
    assert chat.list_threads(bob) == []
    assert chat.list_threads({}) == []
    with pytest.raises(IndexError):
        chat.get_message(bob, "m")


def test_a_missing_thread_id_is_no_shared_thread(chat: ThreadCheckpointer[Any]) -> None:
    with pytest.raises(ValueError, match="thread_id"):
        chat.put_state({}, 1)
    with pytest.raises(ValueError, match="thread_id"):
        chat.get_state({"user_id": "alice"})


def test_thread_1_and_thread_text_1_are_two(chat: ThreadCheckpointer[Any]) -> None:
    chat.put_state({"thread_id": 1}, "whole")
    chat.put_state({"thread_id": "1"}, "text")

    assert chat.get_state({"thread_id": 1}) == "whole"
    assert [one.thread_id for one in chat.list_threads({})] == ["1", 1]


def test_thread_0_is_a_thread(chat: ThreadCheckpointer[Any]) -> None:
    chat.put_state({"thread_id": 0, "user_id": 0}, "zero")

    assert chat.get_state({"thread_id": 0, "user_id": 0}) == "zero"
    assert [one.thread_id for one in chat.list_threads({"user_id": 0})] == [0]


# In memory: emptying.


def test_cleaning_leaves_nothing_and_clearing_leaves_no_cache(
    chat: ThreadCheckpointer[Any],
) -> None:
    chat.put(T, 1, [Message("user", "a")], {"thread_name": "Name"})
    chat.put_state_cache(T, 2)
    chat.clear_state(T)
    assert chat.get_state_cache(T) is None
    chat.put_state(T, 3)
    chat.put_state_cache(T, 4)
    chat.clean_thread(T)

    assert (chat.get_state(T), chat.get_state_cache(T), chat.get_thread(T)) == (None, None, None)
    assert chat.list_messages(T) == []


# In memory: messages twice, and what is said of them.


def test_a_message_put_twice_is_there_once_and_metadata_of_each_put_are_kept(
    chat: ThreadCheckpointer[Any],
) -> None:
    one, two = Message("user", "a"), Message("user", "b")
    chat.put_messages(T, [one], {"turn": 1})
    chat.put_messages(T, [one, two], {"turn": 2})

    assert [found.metadata for found in chat.list_messages(T)] == [{"turn": 1}, {"turn": 2}]


# In memory: locks.


def test_threads_that_delete_by_the_synchronous_methods_leave_nothing() -> None:
    with ThreadCheckpointer[Any]() as chat:
        for by in range(4):
            made = [Message("user", "x", id=f"{by}/{number}") for number in range(100)]
            chat.put_messages(T, made)

        def work(by: int) -> None:
            for number in range(100):
                chat.delete_message(T, f"{by}/{number}")

        in_threads(4, work)

        assert chat.list_messages(T) == []


def test_two_event_loops_contend_without_an_error() -> None:
    with ThreadCheckpointer[Any]() as chat:

        async def work(by: int) -> None:
            calls = [chat.aput_messages(T, [Message("user", f"{by} {n}")]) for n in range(20)]
            calls += [chat.aput_state(T, n) for n in range(5)]
            await asyncio.gather(*calls)

        in_threads(2, lambda by: asyncio.run(work(by)))

        assert len(chat.list_messages(T)) == 40


# On a server: what could not run.


def test_setup_and_every_call_work_on_a_store_that_was_just_made(tmp_path: Any) -> None:
    with SqliteStore(tmp_path / "new") as store:
        chat: ThreadCheckpointer[Any] = ThreadCheckpointer(store)
        asyncio.run(chat.asetup())
        asyncio.run(chat.aput_thread(T, ThreadInfo("t", metadata={"json": {"a": [1]}})))
        asyncio.run(chat.aput_state(T, {"json": [1, {"b": None}]}))
        asyncio.run(chat.aput_messages(T, [Message("user", [TextPart("hi")])]))

        (found,) = asyncio.run(chat.alist_messages(T))
        assert found.content == (TextPart("hi"),)
        assert asyncio.run(chat.aget_state(T)) == {"json": [1, {"b": None}]}


def test_the_synchronous_methods_work_again_and_again_and_beside_a_running_loop() -> None:
    with ThreadCheckpointer[Any](MemoryStore()) as chat:

        async def use() -> list[Any]:
            found = []
            for number in range(3):
                chat.put_state(T, number)
                found += [chat.get_state(T), await chat.aget_state(T)]
            return found

        assert asyncio.run(use()) == [0, 0, 1, 1, 2, 2]
        assert asyncio.run(use()) == [0, 0, 1, 1, 2, 2]
        chat.put_state(T, 3)
        assert chat.get_state(T) == 3


def test_of_three_writes_in_one_put_never_two_are_seen() -> None:
    with ThreadCheckpointer[Any]() as chat:
        over = threading.Event()
        torn: list[Any] = []

        def work(number: int) -> None:
            if number == 0:
                for step in range(60):
                    record = {"thread_name": str(step)}
                    chat.put(T, step, [Message("user", "x", id=step)], record)
                over.set()
            while not over.is_set():
                newest = chat.timeline(T).head
                if newest is None:
                    continue
                held = newest.state
                last = max(key for key in held if isinstance(key, int))
                seen = (held["state"], held[last]["id"], int(held["thread"]["thread_name"]))
                if len(set(seen)) != 1:
                    torn.append(seen)

        in_threads(3, work)

        assert torn == []
