"""What was acknowledged stays readable, whatever went wrong before it."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.adapters.langgraph.saver import values as reading
from ropewalk.adapters.langgraph.saver.checkpoints import Address
from ropewalk.adapters.langgraph.saver.thread import GraphThread, Put
from ropewalk.errors import NotStorable, UndeclaredClass
from tests.frameworks.langgraph.checkpoints import checkpoint_of, config_of, metadata_of, put

LINES = [f"line {number} " + "x" * 200 for number in range(300)]


@dataclass
class Note:
    """What only some programs declare."""

    text: str


class Secretive(Exception):
    """Cannot be shown, and so not be stored."""

    def __repr__(self) -> str:
        raise ValueError("it has no text")


def read(path: Path, channel: str = "a") -> Any:
    """A channel of the newest checkpoint, as another program reads it."""
    with RopewalkSaver(path) as saver:
        found = saver.get_tuple(config_of())
    assert found is not None
    return found.checkpoint["channel_values"][channel]


def put_of(values: dict[str, Any]) -> Put:
    made: Any = checkpoint_of(values)
    return Put(Address("", made["id"]), made, metadata_of(), None, None)


def test_a_value_that_raises_when_it_is_stored_harms_no_other_checkpoint(tmp_path: Path) -> None:
    longer = [*LINES, "new" * 2000]
    with RopewalkSaver(tmp_path / "s") as saver:
        put(saver, config_of(), {"a": LINES})
        both = [put_of({"a": longer}), put_of({"a": longer, "b": Secretive()})]
        saver._thread("t").land_all(both)
        assert both[0].error is None
        assert str(both[1].error) == "it has no text"
        put(saver, config_of(), {"a": [*longer, "last"]})
        found = [one.checkpoint["channel_values"]["a"] for one in saver.list(config_of())]

    assert read(tmp_path / "s") == [*longer, "last"]
    assert found == [[*longer, "last"], longer, LINES]


def test_a_run_that_stops_while_it_encodes_leaves_nothing_half_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        put(saver, config_of(), {"a": LINES})
        thread: Any = saver._thread("t")
        with monkeypatch.context() as patched:
            patched.setattr(thread._codec, "turn", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                put(saver, config_of(), {"a": [*LINES, "new" * 2000]})
        put(saver, config_of(), {"a": [*LINES, "new" * 2000, "last"]})

    assert read(tmp_path / "s")[-1] == "last"


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("drop", ["delete_thread", "prune"])
def test_what_another_saver_dropped_and_collected_is_sent_again(tmp_path: Path, drop: str) -> None:
    documents = [str(number) + "q" * 300 for number in range(500)]
    with RopewalkSaver(tmp_path / "s") as saver, RopewalkSaver(tmp_path / "s") as other:
        old = put(saver, config_of(), {"a": documents})
        put(saver, config_of(), {"a": LINES})
        saver.get_tuple(old)
        if drop == "prune":
            other.prune(["t"])
        else:
            other.delete_thread("t")
        for number in range(3):
            put(other, config_of(), {"n": number})
        other.store.gc(recent=1)
        saver.pins("t")  # It looks at the thread, and not at the values.
        put(saver, config_of(), {"a": [*documents, "last"]})

    assert read(tmp_path / "s") == [*documents, "last"]


def test_what_is_warm_of_a_subgraph_is_sent_again_if_it_was_collected(tmp_path: Path) -> None:
    below = config_of(namespace="below")
    with RopewalkSaver(tmp_path / "s") as saver, RopewalkSaver(tmp_path / "s") as other:
        put(saver, below, {"a": LINES})
        other.delete_thread("t")
        for number in range(3):
            put(other, config_of(), {"n": number})
        other.store.gc(recent=1)
        saver.get_tuple(config_of())
        put(saver, config_of(), {"n": 4})
        put(saver, below, {"a": [*LINES, "last"]})
    with RopewalkSaver(tmp_path / "s") as saver:
        found: Any = saver.get_tuple(below)

    assert found.checkpoint["channel_values"] == {"a": [*LINES, "last"]}


def test_a_checkpoint_that_cannot_be_read_leaves_no_channel_in_the_next_one(
    tmp_path: Path,
) -> None:
    with RopewalkSaver(tmp_path / "s", types=[Note]) as saver:
        put(saver, config_of(), {"a": 1, "note": Note("x"), "z": 2})
    with RopewalkSaver(tmp_path / "s", strict=True, classes="declared") as saver:
        with pytest.raises(UndeclaredClass):
            saver.get_tuple(config_of())
        put(saver, config_of(), {"a": 3})
        found: Any = saver.get_tuple(config_of())

    assert found.checkpoint["channel_values"] == {"a": 3}


def test_what_a_reader_changes_in_a_large_state_nobody_else_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_KEPT", 100_000)
    shared = [Document(page_content=f"{number}" * 50) for number in range(200)]
    large = [Document(page_content=f"{number} large" * 100) for number in range(500)]
    with RopewalkSaver(tmp_path / "s") as saver:
        put(saver, config_of(), {"a": shared, "b": large, "c": shared})
        for _ in range(4):
            found: Any = saver.get_tuple(config_of())
            for one in found.checkpoint["channel_values"]["c"]:
                one.metadata["changed"] = True
        again: Any = saver.get_tuple(config_of())

    assert again.checkpoint["channel_values"] == {"a": shared, "b": large, "c": shared}


def test_a_refused_value_leaves_nothing_in_the_next_checkpoint() -> None:
    with RopewalkSaver() as saver:
        with pytest.raises(NotStorable):
            put(saver, config_of(), {"a": 1, "b": object()})
        put(saver, config_of(), {"a": 2})
        found = saver.get_tuple(config_of())

    assert found is not None and found.checkpoint["channel_values"] == {"a": 2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_was_forked_while_others_write_does_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RopewalkSaver(tmp_path / "s") as saver:
        put(saver, config_of(), {"a": 0})
        busy, go_on = threading.Event(), threading.Event()
        land = GraphThread._land

        def slowly(thread: Any, *wanted: Any) -> Any:
            if threading.current_thread() is writer:
                busy.set()
                go_on.wait()
            return land(thread, *wanted)

        monkeypatch.setattr(GraphThread, "_land", slowly)
        writer = threading.Thread(target=put, args=(saver, config_of(), {"a": 1}))
        writer.start()
        busy.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            put(saver, config_of(), {"a": 2})
            os._exit(0)
        _, status = os.waitpid(child, 0)
        go_on.set()
        writer.join()
        found = [one.checkpoint["channel_values"]["a"] for one in saver.list(config_of())]

    assert status == 0 and sorted(found) == [0, 1, 2]


def test_steps_that_are_not_meant_to_be_stored_are_no_lag() -> None:
    saver = RopewalkSaver()
    first = saver.get_next_version(None)
    last = saver.get_next_version(saver.get_next_version(first))
    made = checkpoint_of({"a": 1}, version=last)
    ahead = saver.lag
    saver.put(config_of(), made, metadata_of(), {"a": last})

    assert ahead == 3 and saver.lag == 0


def test_a_thread_whose_id_is_no_proper_text_is_listed() -> None:
    saver = RopewalkSaver()
    put(saver, config_of("\ud800 half"), {"a": 1})

    assert list(saver.threads()) == ["\ud800 half"]
    assert [one.checkpoint["channel_values"] for one in saver.list(None)] == [{"a": 1}]


def test_a_channel_of_many_megabytes_is_stored(tmp_path: Path) -> None:
    text = "many lines\n" * 2_000_000
    with RopewalkSaver(tmp_path / "s") as saver:
        put(saver, config_of(), {"a": text})
        put(saver, config_of(), {"a": f"{text}last"})

    assert read(tmp_path / "s") == f"{text}last"
