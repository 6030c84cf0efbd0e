"""Reading the databases of LangGraph's own savers, without running what they name."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ropewalk.adapters.langgraph.deferred import raw, rebuild
from ropewalk.adapters.langgraph.transfer.databases import (
    Checkpointed,
    Key,
    LeftOut,
    Official,
    PendingWrite,
    open_official,
    parents_first,
)
from ropewalk.adapters.langgraph.transfer.values import Unreadable, ValueDecoder
from ropewalk.codec import Undeclared
from ropewalk.errors import InvalidInput, NotFound
from tests.frameworks.langgraph.official import (
    DECLARED,
    Colour,
    Pair,
    Plan,
    Point,
    asking_graph,
    chat_graph,
    config,
    edit,
    odd_values,
    postgres_saver,
    say,
    shown,
    sqlite_saver,
)
from tests.postgres import Postgres


def opening(source: str | Path, **options: Any) -> closing[Official]:
    return closing(open_official(source, **options))


def decoder(*declared: type) -> ValueDecoder:
    from langchain_core.documents import Document
    from langchain_core.messages import ToolMessage
    from langgraph.types import Interrupt, Send

    known = (AIMessage, HumanMessage, ToolMessage, Document, Send, Interrupt, *declared)
    names = {(cls.__module__, cls.__name__): cls for cls in known}
    return ValueDecoder(lambda module, name: names.get((module, name)), snapshot=_DeltaSnapshot)


def read_all(database: Official, thread: str, decoder: ValueDecoder) -> list[tuple[Any, ...]]:
    """What the saver's own `list` would show."""
    found = []
    for key in reversed(database.keys(thread)):
        got = database.checkpoint(thread, key, decoder)
        writes = list(database.writes(thread, key.namespace, key.id, decoder))
        assert isinstance(got, Checkpointed)
        pending = [
            (one.task_id, one.channel, one.value) for one in writes if type(one) is PendingWrite
        ]
        found.append((*key, got.checkpoint, got.metadata, pending))
    return found


def fill(saver: Any) -> None:
    say(chat_graph(saver), "chat", 2)
    asking_graph(saver).invoke({"done": [], "answer": ""}, config("ask"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "official.db"
    with sqlite_saver(path) as saver:
        fill(saver)
    return path


@pytest.fixture
def opened(written: Path) -> Iterator[Official]:
    with opening(written) as database:
        yield database


@pytest.mark.parametrize("thread", ["chat", "ask"])
def test_a_file_reads_as_the_saver_that_wrote_it_shows_it(
    written: Path, opened: Official, thread: str
) -> None:
    with sqlite_saver(written) as saver:
        assert read_all(opened, thread, decoder(*DECLARED)) == shown(saver, thread)


@pytest.mark.parametrize("thread", ["chat", "ask"])
def test_a_postgres_database_reads_as_the_saver_that_wrote_it_shows_it(
    postgres_url: str, thread: str
) -> None:
    with postgres_saver(postgres_url) as saver:
        fill(saver)
        with opening(postgres_url) as database:
            found = read_all(database, thread, decoder(*DECLARED))

        assert sorted(found, key=lambda one: one[:2]) == sorted(
            shown(saver, thread), key=lambda one: one[:2]
        )


def test_what_is_written_meanwhile_is_not_seen(written: Path, opened: Official) -> None:
    before = opened.counts()
    with sqlite_saver(written) as saver:
        say(chat_graph(saver), "chat", 1, first=2)

    assert opened.counts() == before


def test_counts_and_threads_are_those_of_the_tables(opened: Official) -> None:
    assert opened.threads() == ["ask", "chat"]
    assert opened.counts() == opened.counts(["ask", "chat"])
    assert opened.counts(["chat"]).checkpoints == len(opened.keys("chat"))
    assert opened.counts(["chat"]).writes == len(opened.write_keys("chat"))


# Classes.


@pytest.mark.parametrize(
    "value", [odd_values(7)["plan"], Point(1, {2}), Colour.BLUE, Pair(1, "q")], ids=str
)
def test_a_class_that_nobody_declared_is_kept_until_somebody_does(value: Any) -> None:
    reader = decoder()
    found = reader.decode(*JsonPlusSerializer().dumps_typed([value]))[0]

    assert type(found) is Undeclared
    assert found.name == f"langgraph:{type(value).__module__}.{type(value).__name__}"
    assert reader.unknown[f"{type(value).__module__}.{type(value).__name__}"] == 1
    assert rebuild(type(value), found.content) == value


def test_what_stands_for_a_class_is_what_was_stored_of_it() -> None:
    found = decoder().decode(*JsonPlusSerializer().dumps_typed([Colour.BLUE, Point(1, 2)]))

    assert [raw(one.content) for one in found] == ["b", {"x": 1, "y": 2}]


def test_an_object_that_its_class_does_not_take_is_kept_and_counted() -> None:
    kind, data = JsonPlusSerializer().dumps_typed([Colour.BLUE])
    reader = decoder(Colour)
    found = reader.decode(kind, data.replace(b"\xa1b", b"\xa1z"))

    assert raw(found[0].content) == "z"
    assert reader.refused == {f"{Colour.__module__}.Colour": 1}


def test_a_message_that_is_stored_again_is_made_once() -> None:
    data = JsonPlusSerializer().dumps_typed([HumanMessage(content="word " * 50, id="h")])
    reader = decoder()

    assert reader.decode(*data)[0] is reader.decode(*data)[0]


def test_tuples_in_a_set_are_tuples_again() -> None:
    data = JsonPlusSerializer().dumps_typed({(1, ("a", 2)), (3, 4)})

    assert decoder().decode(*data) == {(1, ("a", 2)), (3, 4)}


# Hostile and damaged rows.


def call_of(module: str, name: str, code: int, argument: Any, *more: str) -> bytes:
    return ormsgpack.packb([ormsgpack.Ext(code, ormsgpack.packb([module, name, argument, *more]))])


@pytest.mark.parametrize("code", range(6))
def test_nothing_that_bytes_name_is_imported_or_called(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap_of_bytes.py").write_text(
        f"open({str(tmp_path / 'imported')!r}, 'w')\n"
        f"def spring(*given, **named): open({str(tmp_path / 'called')!r}, 'w')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments: list[Any] = ["x", ["x"], {"x": 1}, "x", {"x": 1}, {"x": 1}]
    reader = decoder()
    for module, name in (("trap_of_bytes", "spring"), ("os", "system"), ("builtins", "eval")):
        data = call_of(module, name, code, arguments[code], "spring")
        (found,) = reader.decode("msgpack", data)

        assert raw(found.content) == arguments[code]
    assert not (tmp_path / "imported").exists() and not (tmp_path / "called").exists()
    assert "trap_of_bytes" not in sys.modules


def test_old_json_calls_nothing_either() -> None:
    told = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch x"]}
    secret = {"lc": 1, "type": "secret", "id": ["HOME"]}
    found = decoder().decode("json", json.dumps([told, secret]).encode())

    assert raw(found[0].content) == "touch x"
    assert found[1] == secret


def test_old_json_gives_messages_and_times() -> None:
    message = HumanMessage(content="hi", id="1")
    told = [
        message.to_json(),
        {"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["0" * 32]},
        {"lc": 2, "type": "constructor", "id": ["builtins", "set"], "args": [[1, 2]]},
        {
            "lc": 2,
            "type": "constructor",
            "id": ["datetime", "datetime"],
            "method": "fromisoformat",
            "args": ["2026-01-01T00:00:00"],
        },
        {"lc": 2, "type": "constructor", "id": [Plan.__module__, "Plan"],
         "kwargs": {"steps": [], "when": "2026-01-01T00:00:00"}},
    ]  # fmt: skip
    found = decoder(Plan).decode("json", json.dumps(told).encode())

    assert found[0] == message
    assert [type(one).__name__ for one in found[1:]] == ["UUID", "set", "datetime", "Plan"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("pickle", "pickle"), ("msgpack+aes", "encrypted"), ("yaml", "unknown"), (None, "damaged")],
)
def test_what_is_not_read_says_why(kind: str | None, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decoder().decode(kind, b"\x80")

    assert caught.value.reason == reason


def test_bytes_from_anywhere_are_read_or_refused() -> None:
    chance = random.Random(8)
    good = JsonPlusSerializer().dumps_typed(odd_values(1))[1]
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            data = data[: chance.randrange(len(data))]
        with suppress(Unreadable):
            decoder(*DECLARED).decode(chance.choice(["msgpack", "json"]), bytes(data))


def test_a_value_nested_without_end_is_refused() -> None:
    data = b"\x90"
    for _ in range(3000):
        data = ormsgpack.packb(ormsgpack.Ext(5, b"\x93\xa1m\xa1n" + data))

    with pytest.raises(Unreadable):
        decoder().decode("msgpack", data)


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("msgpack", b"\xc1", "damaged"),
        ("pickle", b"cos\nsystem\n(S'touch x'\ntR.", "pickle"),
        ("msgpack+aes", b"\x00" * 40, "encrypted"),
        ("msgpack", ormsgpack.packb({"v": 4}), "damaged"),
    ],
)
def test_one_bad_row_leaves_the_others_readable(
    written: Path, kind: str, data: bytes, reason: str
) -> None:
    with opening(written) as database:
        bad = database.keys("chat")[2]
    edit(
        written,
        "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = ?",
        kind,
        data,
        bad.id,
    )
    with opening(written) as database:
        found = [database.checkpoint("chat", key, decoder()) for key in database.keys("chat")]
    left = [one for one in found if isinstance(one, LeftOut)]

    assert [(one.checkpoint_id, one.reason) for one in left] == [(bad.id, reason)]
    assert bad.id in str(left[0])


def test_a_bad_write_leaves_the_others_readable(written: Path, opened: Official) -> None:
    place = opened.write_keys("chat")[0]
    edit(written, "UPDATE writes SET type = 'pickle' WHERE task_id = ? AND idx = ?", *place[2:])
    with opening(written) as database:
        found = list(database.writes("chat", place.namespace, place.checkpoint_id, decoder()))

    assert sum(isinstance(one, LeftOut) for one in found) == 1
    assert any(isinstance(one, PendingWrite) for one in found)


# Layouts.


def test_a_file_from_before_task_paths_reads(written: Path) -> None:
    edit(written, "ALTER TABLE writes DROP COLUMN task_path")
    with opening(written) as database:
        key = database.keys("chat")[0]
        found = list(database.writes("chat", key.namespace, key.id, decoder()))

    assert {one.task_path for one in found if isinstance(one, PendingWrite)} == {""}


def test_a_file_without_writes_reads(written: Path) -> None:
    edit(written, "DROP TABLE writes")

    with opening(written) as database:
        assert database.counts().writes == 0
        assert database.write_keys("chat") == []


def test_a_file_that_nobody_may_change_reads(written: Path) -> None:
    with closing(sqlite3.connect(written)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    written.chmod(0o400)
    written.parent.chmod(0o500)
    try:
        with opening(written) as database:
            assert database.counts().threads == 2
    finally:
        written.parent.chmod(0o700)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_official(tmp_path / "absent.db")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)

    with pytest.raises(InvalidInput, match="SqliteSaver"):
        open_official(path)


def test_a_database_of_something_else_is_refused(postgres_url: str) -> None:
    with pytest.raises(InvalidInput, match="checkpoints"):
        open_official(postgres_url)


def test_a_schema_can_be_named(postgres: Postgres, postgres_url: str) -> None:
    postgres.run("CREATE SCHEMA agents", postgres_url.rpartition("/")[2])
    with postgres_saver(f"{postgres_url}?options=-csearch_path%3Dagents") as saver:
        say(chat_graph(saver), "chat", 1)
    with opening(postgres_url, schema="agents") as database:
        assert database.threads() == ["chat"]
        assert database.size() > 0
    with pytest.raises(InvalidInput, match="others"):
        open_official(postgres_url, schema="others")


@pytest.mark.filterwarnings("ignore:ShallowPostgresSaver is deprecated")
def test_a_shallow_database_reads_as_its_saver_shows_it(postgres_url: str) -> None:
    from langgraph.checkpoint.postgres import ShallowPostgresSaver

    with ShallowPostgresSaver.from_conn_string(postgres_url) as saver:
        saver.setup()
        say(chat_graph(saver), "chat", 2)
        with opening(postgres_url) as database:
            (found,) = read_all(database, "chat", decoder(*DECLARED))
        (wanted,) = shown(saver, "chat")

        assert {**found[3], "pending_sends": []} == wanted[3]
        assert found[4] == wanted[4]


# Order.


def test_a_checkpoint_stands_after_the_one_before_it() -> None:
    keys = [Key("", "1", "2"), Key("", "2", "3"), Key("", "3", None), Key("", "4", "gone")]

    assert [key.id for key in parents_first(keys)] == ["3", "2", "1", "4"]


def test_a_circle_of_checkpoints_ends() -> None:
    keys = [Key("", "1", "2"), Key("", "2", "1")]

    assert sorted(key.id for key in parents_first(keys)) == ["1", "2"]


def test_a_database_is_read_without_the_package_that_wrote_it() -> None:
    program = (
        "import sys\n"
        "sys.modules['langgraph.checkpoint.postgres'] = None\n"
        "sys.modules['langgraph.checkpoint.sqlite'] = None\n"
        "import ropewalk.adapters.langgraph.transfer.databases\n"
        "import ropewalk.adapters.langgraph.transfer.postgres\n"
        "import ropewalk.adapters.langgraph.transfer.takeover\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
