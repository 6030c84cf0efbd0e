"""A state in a store that was damaged: a loud, specific error, and never another value."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ropewalk.errors import (
    Corrupt,
    MissingObjects,
    NotFound,
    PathNotFound,
    RopewalkError,
)
from ropewalk.state import Versioned
from ropewalk.store import FileStore, SqliteStore, Store
from ropewalk.tree import ObjectId
from ropewalk.tree.nodes import linked
from tests.state.large import messages, sentence
from tests.store.files import contract as files
from tests.store.sqlite import contract as sqlite

Engine: TypeAlias = type[SqliteStore | FileStore]


def flip(store: Store, id: ObjectId) -> None:
    """Change one bit of an object where it lies."""
    if isinstance(store, SqliteStore):
        sqlite.damage(store.path, id)
    else:
        assert isinstance(store, FileStore)
        files.damage(store.path, id)


def lose(store: Store, id: ObjectId) -> None:
    """Take an object out of its store."""
    if isinstance(store, SqliteStore):
        sqlite.lose(store.path, id)
    else:
        assert isinstance(store, FileStore)
        files.lose(store.path, id)


CONTENT: dict[str, Any] = {
    "small": {"a": [1, 2, 3]},
    "chat": messages(150),
    "text": sentence(1, 30_000),
    "nested": {"deep": {str(n): [sentence(n)] for n in range(100)}},
    **{f"key {n}": sentence(n, 200) for n in range(100)},
}


@pytest.fixture(params=[SqliteStore, FileStore])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture
def folder(engine: Engine, memory_folder: Path) -> Path:
    """A store with a state of two commits."""
    place = memory_folder / "whole"
    with engine(place) as store:
        state = Versioned(store)
        state.update(CONTENT)
        state.namespace("agent")["notes"] = messages(50)
        state.note({"kind": "began"})
        state.commit()
        state["later"] = 1
        state.commit()
    return place


def objects(engine: Engine, place: Path) -> list[ObjectId]:
    with engine(place) as store:
        return [stored.id for stored in store.scan()]


@pytest.mark.parametrize("harm", [flip, lose])
def test_whichever_object_is_harmed_no_wrong_value_is_ever_given(
    engine: Engine, folder: Path, harm: Callable[[Store, ObjectId], None]
) -> None:
    told = 0
    for number, id in enumerate(objects(engine, folder)):
        place = folder.with_name(f"{number}")
        shutil.copytree(folder, place)
        with engine(place) as store:
            harm(store, id)
        with engine(place) as store:
            told += read_all(store)
        shutil.rmtree(place)

    assert told > 20


def read_all(store: Store) -> bool:
    """Read every key by itself; whether there was an error, which must be one of ours."""
    wanted = {**CONTENT, "later": 1}
    try:
        state = Versioned(store)
    except (Corrupt, NotFound):
        return True
    calls: list[tuple[Callable[[], Any], Any]] = [
        (lambda: len(state), len(wanted)),
        (lambda: sorted(state), sorted(wanted)),
        (lambda: dict(state.items()), wanted),
        (lambda: state.namespace("agent")["notes"], messages(50)),
        (lambda: [one.record["kind"] for one in state.records()], ["began"]),
        (lambda: [len(state.checkout(one.id.hex())) for one in state.history()], [105, 104]),
        *[(partial(state.get, key, "a default"), value) for key, value in wanted.items()],
        *[(partial(state.__contains__, key), True) for key in wanted],
    ]
    return sum(is_told(call, expected) for call, expected in calls) > 0  # Every call is made.


def is_told(call: Callable[[], Any], expected: Any) -> bool:
    """Whether a call raises a specific error; else it must give what is expected."""
    try:
        assert call() == expected
    except PathNotFound:
        raise
    except (Corrupt, NotFound):
        return True
    return False


@pytest.mark.parametrize("harm", [flip, lose])
def test_a_commit_on_a_harmed_state_takes_nothing_else_away(
    engine: Engine, folder: Path, harm: Callable[[Store, ObjectId], None]
) -> None:
    for number, id in enumerate(objects(engine, folder)[::4]):
        place = folder.with_name(f"{number}")
        shutil.copytree(folder, place)
        with engine(place) as store:
            harm(store, id)
        with engine(place) as store:
            try:
                state = Versioned(store)
                state["key 50"] = "changed"
                state.commit()
            except RopewalkError:
                continue
            again = Versioned(store)
            for key, value in {**CONTENT, "key 50": "changed"}.items():
                is_told(partial(again.get, key), value)
        shutil.rmtree(place)


def test_the_error_names_what_is_damaged(engine: Engine, folder: Path) -> None:
    with engine(folder) as store:
        state = Versioned(store)
        head = bytes.fromhex(state.commit_hash or "")
        flip(store, head)
    with engine(folder) as store, pytest.raises(Corrupt) as caught:
        Versioned(store)

    # A record is damaged as a whole.
    said = (
        "states/default/log is damaged" if engine is FileStore else "record 2 of 'states/default'"
    )
    assert said in str(caught.value)


def test_a_head_that_is_gone_is_no_empty_state(engine: Engine, folder: Path) -> None:
    with engine(folder) as store:
        head = bytes.fromhex(Versioned(store).commit_hash or "")
        lose(store, head)
    with engine(folder) as store, pytest.raises(NotFound, match=head.hex()[:12]):
        Versioned(store)


def test_a_value_that_is_missing_is_not_replaced_by_a_default(engine: Engine, folder: Path) -> None:
    with engine(folder) as store:
        state = Versioned(store)
        entry = state._working_copy.cached._stored((), state.codec.encode("chat"))
        lose(store, linked(entry or b"") or b"")
    with engine(folder) as store:
        state = Versioned(store)
        past = state.checkout("main")
        calls: list[Callable[[], Any]] = [
            lambda: state["chat"],
            lambda: state.get("chat"),
            lambda: state.get("chat", []),
            lambda: state.pop("chat", []),
            lambda: state.setdefault("chat", []),
            lambda: past["chat"],
            lambda: past.get("chat"),
            lambda: dict(state),
            lambda: dict(past),
        ]
        for call in calls:
            with pytest.raises(MissingObjects):
                call()

        assert "chat" in state
        assert not state.dirty
        state["chat"] = "written anew"
        state.commit()
        assert Versioned(store)["chat"] == "written anew"
        assert Versioned(store)["text"] == CONTENT["text"]


def test_a_branch_whose_row_was_taken_out_is_found_by_a_check(memory_folder: Path) -> None:
    with SqliteStore(memory_folder / "store") as store:
        state = Versioned(store)
        state["a"] = 1
        state.commit()
    with sqlite3.connect(memory_folder / "store" / "store.db") as database:
        database.execute("DELETE FROM refs")
    with SqliteStore(memory_folder / "store") as store:
        problems = store.check().problems

    assert [one.subject for one in problems] == ["states/default"]
    assert "one is gone" in problems[0].message
