"""What a state costs: reads, encodings and bytes follow the change, not the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ropewalk.codec import Codec, Registry
from ropewalk.state import Versioned
from ropewalk.store import MemoryStore
from ropewalk.store.model import Operation
from ropewalk.store.record import Append
from ropewalk.store.wrappers import WrapperStore
from ropewalk.tree import Object, ObjectId, Reader
from tests.conftest import SOAK
from tests.state.large import messages, sentence


class Counting(WrapperStore):
    """Counts the objects that are read, and the bytes that are stored."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(store or MemoryStore())
        self.read_objects = self.stored_bytes = self.stored_objects = 0

    def reader(self, space: str) -> Reader:
        read = super().reader(space)

        def counted(ids: Sequence[ObjectId]) -> Sequence[Object]:
            self.read_objects += len(ids)
            return read(ids)

        return counted

    def _land(self, append: Append) -> Operation:
        operation = super()._land(append)
        stored = {one.id: one.stored for one in self.inner.scan()}
        self.stored_objects += len(append.sent)
        self.stored_bytes += sum(stored[one.id] for one in append.sent)
        return operation

    def another(self) -> Counting:
        """A store object on the same data that has counted nothing."""
        assert isinstance(self.inner, MemoryStore)
        return Counting(self.inner.another())


class Costly:
    """A value that knows how often it was encoded and decoded."""

    encoded = decoded = 0


def counting_codec() -> Codec:
    def encode(_: Costly) -> int:
        Costly.encoded += 1
        return 1

    def decode(_: Any) -> Costly:
        Costly.decoded += 1
        return Costly()

    Costly.encoded = Costly.decoded = 0
    registry = Registry()
    registry.register(Costly, name="Costly", encode=encode, decode=decode)
    return Codec(registry)


@pytest.fixture(scope="module")
def many() -> Counting:
    """A state of 20,000 keys."""
    store = Counting()
    state = Versioned(store)
    state.update({f"key {number}": {"text": sentence(number)} for number in range(20_000)})
    state.commit()
    return store


def test_opening_a_large_state_and_reading_one_key_reads_one_path(many: Counting) -> None:
    store = many.another()
    state = Versioned(store)
    opened = store.read_objects
    assert state["key 12345"]["text"] == sentence(12345)

    assert opened <= 2
    assert store.read_objects <= 8


def test_counting_keys_and_asking_for_one_that_is_not_there_reads_one_path(
    many: Counting,
) -> None:
    store = many.another()
    state = Versioned(store)

    assert len(state) == 20_000
    assert "no such key" not in state
    assert store.read_objects <= 8


def test_setting_one_key_of_a_large_state_stores_one_path(many: Counting) -> None:
    store = many.another()
    state = Versioned(store)
    state["key 777"] = {"text": "changed"}
    state.commit()

    assert store.stored_objects <= 6
    assert store.stored_bytes < 24_000
    assert store.read_objects <= 12


def test_clearing_a_large_state_reads_its_keys_and_no_values() -> None:
    store = Counting()
    codec = counting_codec()
    state = Versioned(store, codec=codec)
    state.update({f"key {number}": Costly() for number in range(2_000)})
    state.commit()
    Costly.decoded = 0
    again = Versioned(store.another(), codec=codec)
    again.clear()
    again.commit()

    assert Costly.decoded == 0
    assert again.store.read_objects < 200  # type: ignore[attr-defined]
    assert len(Versioned(store)) == 0


def test_a_commit_encodes_nothing_of_what_was_not_read() -> None:
    codec = counting_codec()
    store = MemoryStore()
    state = Versioned(store, codec=codec)
    state.update({f"key {number}": [Costly()] for number in range(500)})
    state.commit()
    again = Versioned(store, codec=codec)
    Costly.encoded = Costly.decoded = 0
    again["new"] = 1
    again.commit()
    assert (Costly.encoded, Costly.decoded) == (0, 0)
    assert again["key 7"]
    again["new"] = 2
    again.commit()

    assert Costly.decoded == 1
    assert Costly.encoded <= 10


def test_a_commit_without_changes_asks_the_store_for_nothing() -> None:
    store = Counting()
    state = Versioned(store)
    state.update(chat=messages(500), small=[1])
    state.commit()
    before = store.read_objects, store.stored_objects
    for _ in range(5):
        state.commit()

    assert (store.read_objects, store.stored_objects) == before


@pytest.mark.parametrize("opened", ["held", "read"])
def test_an_append_to_a_long_list_stores_a_few_kilobytes(opened: str) -> None:
    store = Counting()
    state = Versioned(store)
    state["chat"] = messages(2_000)
    state.commit()
    if opened == "read":
        store = store.another()
        state = Versioned(store)
    state["chat"].append({"role": "user", "content": "hello"})
    before = store.stored_bytes
    state.commit()

    assert store.stored_bytes - before < 8_000


@pytest.mark.parametrize("opened", ["held", "read"])
def test_a_changed_field_in_a_value_of_megabytes_stores_little(opened: str) -> None:
    store = Counting()
    state = Versioned(store)
    state["table"] = {str(n): {"text": sentence(n, 400), "n": n} for n in range(12_000)}
    state.commit()
    assert store.stored_bytes > 2 << 20
    if opened == "read":
        store = store.another()
        state = Versioned(store)
    state["table"]["6000"]["n"] = "changed"
    before = store.stored_bytes
    state.commit()

    assert store.stored_bytes - before < 48_000


def test_a_thousand_appends_store_about_what_was_appended() -> None:
    store = Counting()
    state = Versioned(store)
    state["chat"] = []
    payload = 0
    for message in messages(1_000):
        state["chat"].append(message)
        payload += len(state.codec.encode(message))
        state.commit()

    # A commit has an overhead of its own, whatever it holds.
    assert store.stored_bytes <= 2 * payload + 1_000 * 600


def test_what_is_remembered_to_find_changes_does_not_grow_with_commits() -> None:
    state = Versioned()
    state["nested"] = [[messages(60), sentence(n, 12_000)] for n in range(20)]
    state.commit()
    most = 0
    for number in range(1_000 if SOAK else 200):
        chat, _ = part = state["nested"][number % 20]
        chat[number % 60]["content"] = sentence(number, 200)
        part[1] = sentence(1000 + number, 150_000)
        state.commit()
        slot = next(iter(state._working_copy.cached.top.entries.values()))
        most = max(most, sum(mirror.size for mirror in slot.mirrors.values()))

    # 16 MB of what is no longer needed, and three times what is.
    assert most < (16 << 20) + 3 * (4 << 20)


def test_keys_that_come_and_go_leave_nothing_behind() -> None:
    state = Versioned()
    state["kept"] = 1
    state.commit()
    for number in range(300):
        state[f"short-lived {number}"] = [number]
        if number % 2:
            state.commit()
        del state[f"short-lived {number}"]
        state.commit()

    assert set(state) == {"kept"}
    assert len(state._working_copy.cached.top.entries) <= 2
    assert state._working_copy.cached._removed == []
