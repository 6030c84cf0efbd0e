"""Taking over the databases of LangGraph's own savers."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from ropewalk.adapters.langgraph import RopewalkSaver, import_checkpoints
from ropewalk.adapters.langgraph.saver.log import listed
from ropewalk.adapters.langgraph.transfer.databases import Key, PendingWrite, open_official
from ropewalk.errors import NotFound
from tests.frameworks.langgraph.graphs import delta_graph, history
from tests.frameworks.langgraph.official import (
    ANSWERED,
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

Opening = Callable[[], AbstractContextManager[Any]]


class Source(NamedTuple):
    """A database, and LangGraph's own saver on it."""

    place: str
    open: Opening


def fill(saver: Any) -> None:
    """A chat that was forked, and a graph that waits for an answer."""
    chat = chat_graph(saver)
    say(chat, "chat", 2)
    earlier = list(chat.get_state_history(config("chat")))[3]
    chat.update_state(earlier.config, {"messages": [AIMessage(content="else", id="e")]})
    say(chat, "chat", 1, first=5)
    asking_graph(saver).invoke({"done": [], "answer": ""}, config("ask"))


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A database of each kind, with the same in it."""
    if request.param == "sqlite":
        path = tmp_path / "official.db"
        made = Source(str(path), lambda: sqlite_saver(path))
    else:
        url = request.getfixturevalue("postgres_url")
        made = Source(url, lambda: postgres_saver(url))
    with made.open() as saver:
        fill(saver)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a chat in it."""
    path = tmp_path / "chat.db"
    with sqlite_saver(path) as saver:
        say(chat_graph(saver), "chat", 2)
    return path


@pytest.fixture
def ours() -> Iterator[RopewalkSaver]:
    """A saver of ours that knows the classes of the graphs."""
    with RopewalkSaver(types=DECLARED) as saver:
        yield saver


def in_order(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda one: one[:2])


# What comes over.


@pytest.mark.parametrize("thread", ["chat", "ask"])
def test_every_checkpoint_is_what_it_was(source: Source, ours: RopewalkSaver, thread: str) -> None:
    done = import_checkpoints(source.place, ours, verify=True)

    with source.open() as saver:
        assert in_order(shown(ours, thread)) == in_order(shown(saver, thread))
    assert done.is_whole and done.verified == done.checkpoints == done.source.checkpoints
    assert done.writes == done.source.writes


def test_a_chat_goes_on_where_it_was(source: Source, ours: RopewalkSaver) -> None:
    import_checkpoints(source.place, ours)
    graph = chat_graph(ours)
    before = graph.get_state(config("chat")).values["messages"]
    say(graph, "chat", 1, first=9)
    after = graph.get_state(config("chat")).values["messages"]

    assert after[: len(before)] == before
    assert len(after) == len(before) + 3


def test_a_graph_that_waits_gets_its_answer(source: Source, ours: RopewalkSaver) -> None:
    import_checkpoints(source.place, ours)
    graph = asking_graph(ours)
    (waiting,) = graph.get_state(config("ask")).interrupts
    result = graph.invoke(Command(resume="yes"), config("ask"))

    assert waiting.value["question"] == "go on?"
    assert result == ANSWERED


def test_delta_channels_are_what_they_were(source: Source, ours: RopewalkSaver) -> None:
    with source.open() as saver:
        graph = delta_graph(saver)
        for turn in range(5):
            graph.invoke({"log": [f"turn {turn}"]}, config("delta"))
        wanted = history(graph, config("delta"))
        done = import_checkpoints(source.place, ours, verify=True)
        again = delta_graph(ours)

        assert done.is_whole
        assert history(again, config("delta")) == wanted
        assert again.invoke({"log": ["more"]}, config("delta")) == graph.invoke(
            {"log": ["more"]}, config("delta")
        )


def test_steps_of_a_thread_are_its_timeline(source: Source, ours: RopewalkSaver) -> None:
    from ropewalk.adapters.langgraph.saver.timeline import GraphTimeline

    import_checkpoints(source.place, ours)
    timeline = GraphTimeline("chat", ours.store)
    steps = timeline.history(limit=None)
    branches = timeline.list_branches()

    assert len(branches) == 2
    assert {step.logic_step for step in steps} >= {"talk", "note"}
    assert len(timeline.tree(fold=None)) == sum(
        1 for one in ours.list(config("chat")) if not one.config["configurable"]["checkpoint_ns"]
    )


def test_pending_writes_keep_their_numbers_and_paths(source: Source, ours: RopewalkSaver) -> None:
    import_checkpoints(source.place, ours)
    thread = ours._thread("ask")
    found = {
        (one.address.namespace, one.address.id, task, number, path, channel)
        for one in listed(thread.look())
        for path, task, number, channel, _ in thread.reader().writes(one.writes)
    }
    with closing(open_official(source.place)) as database:
        wanted = {
            (key.namespace, key.id, one.task_id, one.idx, one.task_path, one.channel)
            for key in database.keys("ask")
            for one in database.writes("ask", key.namespace, key.id, _nothing())
            if isinstance(one, PendingWrite)
        }

    assert found == wanted
    assert {number for *_, number, _, _ in found} >= {0, -3}


def _nothing() -> Any:
    from ropewalk.adapters.langgraph.transfer.values import ValueDecoder

    return ValueDecoder(lambda module, name: None, snapshot=lambda value: value)


def test_writes_whose_checkpoint_never_came_are_kept(file: Path, ours: RopewalkSaver) -> None:
    with sqlite_saver(file) as saver:
        where = config("chat", checkpoint_ns="", checkpoint_id="later")
        saver.put_writes(where, [("messages", "early")], "task")
    done = import_checkpoints(file, ours)

    assert done.writes == done.source.writes
    thread = ours._thread("chat")
    from ropewalk.adapters.langgraph.saver.checkpoints import Address

    log, address = thread.look(), Address("", "later")
    assert thread.reader().pending(log.writes(log.find(address), address)) == [
        ("task", "messages", "early")
    ]


def test_chosen_threads_come_alone(source: Source, ours: RopewalkSaver) -> None:
    import_checkpoints(source.place, ours, threads=["ask"])

    assert list(ours.threads()) == ["ask"]


def test_a_thread_that_is_not_there_is_named(source: Source, ours: RopewalkSaver) -> None:
    with pytest.raises(NotFound, match="absent"):
        import_checkpoints(source.place, ours, threads=["absent"])


def test_progress_ends_with_the_whole(source: Source, ours: RopewalkSaver) -> None:
    told: list[tuple[str, int, int]] = []
    done = import_checkpoints(
        source.place, ours, progress=lambda step, seen, total: told.append((step, seen, total))
    )

    count = done.source.checkpoints
    assert told == [("taking over", number, count) for number in range(1, count + 1)]


def test_two_hundred_checkpoints_shrink(tmp_path: Path) -> None:
    path, chance = tmp_path / "long.db", random.Random(3)
    words = ["".join(chance.choices("abcdefghijklmnop", k=6)) for _ in range(2000)]
    with sqlite_saver(path) as saver:
        saver.setup()
        saver.conn.execute("PRAGMA synchronous = OFF")
        graph = chat_graph(saver)
        for turn in range(50):
            text = " ".join(chance.choices(words, k=140))
            graph.invoke({"messages": [HumanMessage(text, id=f"h{turn}")]}, config("long"))
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with RopewalkSaver(tmp_path / "ours", types=DECLARED) as ours:
        done = import_checkpoints(path, ours)
    assert done.stored_bytes is not None
    ratio = done.source_bytes / done.stored_bytes
    print(f"{done.source_bytes:,} bytes became {done.stored_bytes:,}: {ratio:.1f} times smaller")

    assert done.checkpoints == 200
    assert ratio > 8


# Again.


def test_a_second_run_adds_nothing(source: Source, ours: RopewalkSaver) -> None:
    first = import_checkpoints(source.place, ours)
    before = shown(ours, "chat"), ours._thread("chat").look().target
    second = import_checkpoints(source.place, ours)

    assert (second.checkpoints, second.writes, second.threads) == (0, 0, 0)
    assert second.present == first.checkpoints
    assert (shown(ours, "chat"), ours._thread("chat").look().target) == before


def test_what_came_since_is_added(source: Source, ours: RopewalkSaver) -> None:
    first = import_checkpoints(source.place, ours)
    with source.open() as saver:
        say(chat_graph(saver), "chat", 1, first=7)
        say(chat_graph(saver), "new", 1)
        asking_graph(saver).invoke(Command(resume="yes"), config("ask"))
        second = import_checkpoints(source.place, ours, verify=True)

        assert second.is_whole and second.present == first.checkpoints
        for thread in ("chat", "new", "ask"):
            assert in_order(shown(ours, thread)) == in_order(shown(saver, thread))


def test_the_last_checkpoint_may_have_been_put_again(file: Path, ours: RopewalkSaver) -> None:
    import_checkpoints(file, ours)
    with sqlite_saver(file) as saver:
        last = saver.get_tuple(config("chat"))
        assert last is not None
        where = {**(last.parent_config or {})["configurable"]}
        saver.put({"configurable": where}, last.checkpoint, {**last.metadata, "again": 1}, {})
        done = import_checkpoints(file, ours)

        assert done.checkpoints == 1
        assert in_order(shown(ours, "chat")) == in_order(shown(saver, "chat"))


KILLED = """
import sys
from ropewalk.adapters.langgraph import RopewalkSaver, import_checkpoints

def tell(step, done, total):
    if done == 100:
        print("here", flush=True)
        sys.stdin.read()

with RopewalkSaver(sys.argv[2]) as saver:
    import_checkpoints(sys.argv[1], saver, progress=tell)
"""


def test_a_run_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    with sqlite_saver(path) as saver:
        say(chat_graph(saver), "long", 40, words=5)
    running = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), str(tmp_path / "ours")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with running:
        assert running.stdout is not None and running.stdout.readline() == b"here\n"
        running.kill()
    with RopewalkSaver(tmp_path / "ours", types=DECLARED) as ours:
        there = sum(1 for _ in ours.list(config("long")))
        done = import_checkpoints(path, ours, verify=True)

        assert 0 < there < done.source.checkpoints
        assert (done.present, done.verified) == (there, done.source.checkpoints)
        with sqlite_saver(path) as saver:
            assert in_order(shown(ours, "long")) == in_order(shown(saver, "long"))
        assert ours.store.check(read_data=True).ok


# Classes that nobody declared.


@pytest.mark.parametrize(
    ("name", "cls"), [("plan", Plan), ("point", Point), ("colour", Colour), ("pair", Pair)]
)
def test_objects_of_unknown_classes_become_objects_once_the_class_is_known(
    source: Source, tmp_path: Path, name: str, cls: type
) -> None:
    with RopewalkSaver(tmp_path / "ours") as saver:
        done = import_checkpoints(source.place, saver, verify=True)
    with RopewalkSaver(tmp_path / "ours", types=DECLARED) as saver:
        found = saver.get_tuple(config("chat"))
    assert found is not None

    assert done.is_whole
    assert done.unknown[f"{cls.__module__}.{cls.__name__}"] > 0
    assert found.checkpoint["channel_values"]["odd"][name] == odd_values(2)[name]


def test_who_does_not_know_a_class_reads_what_was_stored_of_it(file: Path, tmp_path: Path) -> None:
    with RopewalkSaver(tmp_path / "ours") as saver:
        import_checkpoints(file, saver)
    with RopewalkSaver(tmp_path / "ours") as saver, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = saver.get_tuple(config("chat"))
    assert found is not None
    odd = found.checkpoint["channel_values"]["odd"]

    assert odd["colour"] == "b"
    assert odd["pair"] == {"first": 1, "second": "q"}
    assert odd["point"] == {"x": 2, "y": [{"x": 1, "y": None}]}
    assert any("official.Plan" in str(one.message) for one in told)


# Rows that are left out.


def second_of(file: Path) -> Key:
    with closing(open_official(file)) as database:
        return database.keys("chat")[1]


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("pickle", b"cos\nsystem\n(S'touch pickled'\ntR.", "pickle"),
        ("msgpack+aes", b"\x00" * 40, "encrypted"),
        ("msgpack", b"\xc1", "damaged"),
    ],
)
def test_a_row_that_cannot_be_read_is_left_out_and_named(
    file: Path, ours: RopewalkSaver, kind: str, data: bytes, reason: str
) -> None:
    bad = second_of(file)
    update = "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = ?"
    edit(file, update, kind, data, bad.id)
    done = import_checkpoints(file, ours, verify=True)
    ids = {one.config["configurable"]["checkpoint_id"] for one in ours.list(config("chat"))}

    assert not done.is_whole and done.left_counts == {reason: 1}
    assert [one.checkpoint_id for one in done.left_out] == [bad.id]
    assert bad.id not in ids and len(ids) == done.source.checkpoints - 1 == done.verified


def test_a_row_that_names_a_function_calls_nothing(
    file: Path, ours: RopewalkSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap_of_rows.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    bad = second_of(file)
    calls = [
        ormsgpack.Ext(code, ormsgpack.packb([module, name, argument]))
        for module, name in (("os", "system"), ("trap_of_rows", "run"))
        for code, argument in ((0, f"touch {tmp_path}/called"), (1, [f"touch {tmp_path}/called"]))
    ]
    with sqlite_saver(file) as saver:
        where = config("chat", checkpoint_ns="", checkpoint_id=bad.id)
        saver.put_writes(where, [("messages", "x")], "hostile")
    edit(
        file,
        "UPDATE writes SET value = ?, type = 'msgpack' WHERE task_id = 'hostile'",
        ormsgpack.packb(calls),
    )
    done = import_checkpoints(file, ours)
    with pytest.warns(UserWarning, match="os.system|trap_of_rows"):
        found = ours.get_tuple(config("chat", checkpoint_ns="", checkpoint_id=bad.id))
    assert found is not None and found.pending_writes is not None
    (value,) = [value for task, _, value in found.pending_writes if task == "hostile"]

    assert done.is_whole and done.unknown["os.system"] == 2
    assert value[0] == f"touch {tmp_path}/called"
    assert not (tmp_path / "called").exists() and "trap_of_rows" not in sys.modules


class Turning:
    """A cipher that hides nothing from anybody."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "turn", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "turn"
        return ciphertext[::-1]


def test_encrypted_rows_are_read_by_who_has_their_cipher(
    tmp_path: Path, ours: RopewalkSaver
) -> None:
    path = tmp_path / "encrypted.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection, serde=EncryptedSerializer(Turning()))
        say(chat_graph(saver), "chat", 1)
        without = import_checkpoints(path, ours)
        done = import_checkpoints(path, ours, verify=True, cipher=Turning())

        assert without.checkpoints == 0 and set(without.left_counts) == {"encrypted"}
        assert done.is_whole
        assert in_order(shown(ours, "chat")) == in_order(shown(saver, "chat"))


@pytest.mark.parametrize(
    "change",
    [
        "checkpoint_ns = 'a' || char(0) || 'b'",
        "checkpoint_id = CAST(x'ff6162' AS TEXT)",
        "metadata = '[1]'",
        "metadata = x'ff'",
        "checkpoint = 5",
        "checkpoint = NULL",
        "type = NULL",
        "checkpoint_id = x'61'",
    ],
)
def test_a_row_that_no_saver_wrote_leaves_the_others(
    file: Path, ours: RopewalkSaver, change: str
) -> None:
    edit(file, f"UPDATE checkpoints SET {change} WHERE checkpoint_id = ?", second_of(file).id)
    done = import_checkpoints(file, ours)

    assert done.left_counts == {"damaged": 1}
    assert done.checkpoints == done.source.checkpoints - 1


@pytest.mark.parametrize(
    "change",
    [
        "checkpoint = '[1]'",
        "checkpoint = 'null'",
        "checkpoint = jsonb_set(checkpoint, '{channel_versions}', '5')",
        "checkpoint = jsonb_set(checkpoint, '{channel_values}', '5')",
        "checkpoint = jsonb_set(checkpoint, '{v}', '\"x\"')",
        "metadata = '5'",
        "checkpoint_ns = 'elsewhere'",
    ],
)
def test_a_row_of_postgres_that_no_saver_wrote_leaves_the_others(
    postgres: Postgres, postgres_url: str, ours: RopewalkSaver, change: str
) -> None:
    with postgres_saver(postgres_url) as saver:
        say(chat_graph(saver), "chat", 2)
    with closing(open_official(postgres_url)) as database:
        bad = database.keys("chat")[1]
    statement = f"UPDATE checkpoints SET {change} WHERE checkpoint_id = '{bad.id}'"
    postgres.run(statement, postgres_url.rpartition("/")[2])
    done = import_checkpoints(postgres_url, ours)

    assert done.checkpoints + done.left_counts.total() == done.source.checkpoints
    assert set(done.left_counts) <= {"damaged"}


@pytest.mark.parametrize("id", ["a/b c", "#12", "~x", "..", "é" * 300, "langgraph:x", "1"])
def test_any_thread_id_comes_over(file: Path, ours: RopewalkSaver, id: str) -> None:
    edit(file, "UPDATE checkpoints SET thread_id = ?", id)
    edit(file, "UPDATE writes SET thread_id = ?", id)
    done = import_checkpoints(file, ours, verify=True)

    assert done.is_whole and list(ours.threads()) == [id]
    with sqlite_saver(file) as saver:
        assert in_order(shown(ours, id)) == in_order(shown(saver, id))


def test_verifying_finds_what_is_different(file: Path, ours: RopewalkSaver) -> None:
    import_checkpoints(file, ours)
    update = "UPDATE checkpoints SET metadata = '{\"step\": 99}' WHERE checkpoint_id = ?"
    edit(file, update, second_of(file).id)
    done = import_checkpoints(file, ours, verify=True)

    assert done.left_counts == {"different": 1}
    assert done.verified == done.source.checkpoints - 1
