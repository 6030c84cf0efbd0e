"""What a program meets that does with a state what cannot be done: an error that helps."""

from __future__ import annotations

import copy
import pickle
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ropewalk import AgentState, Externalized, FileStore
from ropewalk.compat import Cache
from ropewalk.errors import InvalidInput, MissingContent, NotStorable
from ropewalk.state import Live, State, Versioned, events, task, view
from tests.store.key_values import DictKV

KEY = b"k" * 32


class Docs(AgentState):
    docs: Externalized[list[str]]


@pytest.fixture(params=["connection", "cursor", "lock", "socket", "generator"])
def resource(request: pytest.FixtureRequest) -> Iterator[Any]:
    db = sqlite3.connect(":memory:")
    with socket.socket() as opened:
        yield {
            "connection": db,
            "cursor": db.cursor(),
            "lock": threading.Lock(),
            "socket": opened,
            "generator": (number for number in [1]),
        }[request.param]
    db.close()


@pytest.mark.parametrize("key", [None, KEY])
def test_a_resource_is_refused_with_what_to_do_instead(resource: Any, key: bytes | None) -> None:
    state = Versioned(pickle_key=key)

    with pytest.raises(NotStorable, match=r"store what it gives, such as cursor\.fetchall\(\)"):
        state["kept"] = {"resources": [resource]}
    assert dict(state) == {}


def test_a_pickle_key_that_is_no_bytes_is_said_to_be_none() -> None:
    with pytest.raises(InvalidInput, match="16 bytes, not a str"):
        Versioned(pickle_key="a long enough text")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("state", [Live(), Versioned(), Versioned().namespace("part")])
def test_a_state_is_not_copied(state: State, make: Callable[[State], object]) -> None:
    with pytest.raises(TypeError, match=r"dict\(state\) has its values"):
        make(state)


def test_a_change_that_cannot_be_stored_is_a_change() -> None:
    state = Versioned()
    state["docs"] = []
    state.commit()
    state["docs"].append(object())

    assert state.dirty
    assert 'state["docs"][0] cannot be stored' in view(state, focus="changes")


def test_the_metadata_of_a_commit_is_read_from_its_checkout() -> None:
    state = Versioned()
    state["cost"] = 1
    said = state.commit(metadata={"model": "large"})
    state["cost"] = 2
    silent = state.commit()

    assert said is not None and silent is not None
    assert state.checkout(said).metadata == {"model": "large"}
    assert state.checkout(silent).metadata is None


def test_a_key_value_store_is_taken_wherever_a_store_is() -> None:
    kv = DictKV()
    state = Versioned(Cache(kv))
    state["docs"] = ["one"]
    state.commit()
    typed = Docs(backend=kv, docs=["two"])

    assert Versioned(kv)["docs"] == ["one"]
    assert Docs.from_checkpoint_dict(typed.to_checkpoint_dict(), backend=kv).docs == ["two"]


def test_content_of_another_store_is_said_to_be_there(tmp_path: Any) -> None:
    with FileStore(tmp_path / "one") as one, FileStore(tmp_path / "two") as two:
        checkpoint = Docs(backend=one, docs=["one"]).to_checkpoint_dict()

        with pytest.raises(MissingContent, match="another store of the same backend_id"):
            _ = Docs.from_checkpoint_dict(checkpoint, backend=two).docs


@pytest.mark.parametrize("event", [5, "searched", ["searched"]])
@pytest.mark.parametrize("make", [Live, Versioned])
def test_only_a_mapping_is_an_event(make: type[Live | Versioned], event: Any) -> None:
    state = make()

    with pytest.raises(InvalidInput, match="is a mapping"):
        state.note(event)
    assert events(state) == []


@pytest.mark.parametrize("arguments", [(), ("tea", "coffee")])
def test_a_task_that_is_called_wrongly_is_named(arguments: tuple[str, ...]) -> None:
    @task
    def research(topic: str) -> str:
        return topic

    state = Versioned()

    with pytest.raises(TypeError, match=r"^research\(\) was called wrongly: .*argument"):
        research(*arguments, state=state)
    assert state.history() == []
