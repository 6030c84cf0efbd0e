"""LangGraph's databases and threads on the command line, as real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.threads import ThreadCheckpointer
from tests.cli.support import Done, environment, here, process, terminal
from tests.frameworks.langgraph.official import (
    ANSWERED,
    DECLARED,
    asking_graph,
    chat_graph,
    config,
    edit,
    postgres_saver,
    say,
    shown,
    sqlite_saver,
)
from tests.frameworks.langgraph.test_takeover import fill, in_order, second_of
from tests.frameworks.turn import ROOT
from tests.pages import run_page


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database of a SqliteSaver, and a store that has taken it over."""
    folder = tmp_path_factory.mktemp("taken")
    with sqlite_saver(folder / "official.db") as saver:
        fill(saver)
    done = ropewalk("import-langgraph", "official.db", cwd=folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def taken(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for one test, as the current folder."""
    folder = tmp_path / "taken"
    shutil.copytree(written, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ROPEWALK_STORE", raising=False)
    return folder


@pytest.fixture
def place(taken: Path) -> Path:
    """The same without the store."""
    shutil.rmtree(taken / ".ropewalk")
    return taken


@pytest.fixture
def saver(taken: Path) -> Iterator[RopewalkSaver]:
    """A saver on that store."""
    with RopewalkSaver(taken / ".ropewalk", types=DECLARED) as opened:
        yield opened


def ropewalk(*arguments: str, cwd: Path) -> Done:
    """Run the program in a process of its own."""
    return process(*arguments, cwd=cwd, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})


# Taking over.


def test_a_file_is_taken_over_and_it_is_said_how_much_smaller_it_became(place: Path) -> None:
    done = ropewalk("import-langgraph", "official.db", "--verify", cwd=place)

    assert done.code == 0, done.err
    assert "Took over 20 checkpoints and 34 writes of 2 threads" in done.out
    assert "20 read back and equal" in done.out and "times smaller" in done.out
    assert "objects of tests.frameworks.langgraph.official.Plan, taken over by their" in done.out


AGENT = """
import sys
from dataclasses import dataclass
from typing import TypedDict

from langgraph.graph import START, StateGraph
from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.official import sqlite_saver

@dataclass
class Draft:
    text: str

class State(TypedDict):
    draft: Draft

def graph(saver):
    builder = StateGraph(State)
    builder.add_node("write", lambda state: {"draft": Draft("hello")})
    builder.add_edge(START, "write")
    return builder.compile(checkpointer=saver)

CONFIG = {"configurable": {"thread_id": "drafts"}}
"""
BEFORE = """
from agent import *
with sqlite_saver("official.db") as saver:
    graph(saver).invoke({}, CONFIG)
"""
AFTER = """
from agent import *
with RopewalkSaver(".ropewalk") as saver:
    assert graph(saver).get_state(CONFIG).values == {"draft": Draft("hello")}
"""


def test_of_classes_it_is_said_what_the_graph_has_to_do_and_that_is_so(tmp_path: Path) -> None:
    def run(source: str) -> None:
        path = f"{tmp_path}:{ROOT / 'src'}:{ROOT}"
        env = environment(PYTHONPATH=path)
        subprocess.run([sys.executable, "-W", "error", "-c", source], cwd=tmp_path, env=env,
                       check=True)  # fmt: skip

    (tmp_path / "agent.py").write_text(AGENT)
    run(BEFORE)
    done = ropewalk("import-langgraph", "official.db", cwd=tmp_path)
    told = next(line for line in done.out.splitlines() if "agent.Draft" in line)

    assert "nothing to do if your graph's schema names the class" in told
    assert "types=[Draft]" in told
    run(AFTER)


def test_classes_that_are_named_are_taken_over_as_objects(place: Path) -> None:
    (place / "own_state.py").write_text("from tests.frameworks.langgraph.official import *\n")
    types = [f"--types=own_state:{cls.__name__}" for cls in DECLARED]
    done = ropewalk("import-langgraph", "official.db", "--json", *types, cwd=place)

    assert done.record["unknown"] == {}
    assert done.record["checkpoints"] == done.record["source"]["checkpoints"] == 20


@pytest.mark.parametrize("types", ["nothing", "os:nothing", "no_such_module:X", "os:system"])
def test_a_class_that_is_none_is_wrong_usage(place: Path, types: str) -> None:
    done = here("import-langgraph", "official.db", "--types", types)

    assert done.code == 2 and "--types" in done.err


def test_a_second_run_says_that_all_was_there(taken: Path) -> None:
    done = here("import-langgraph", "official.db")

    assert done.code == 0
    assert "Took over 0 checkpoints and 0 writes of 0 threads; 20 were there" in done.out


def test_rows_that_are_left_out_have_an_exit_code_of_their_own(tmp_path: Path) -> None:
    with sqlite_saver(tmp_path / "official.db") as saver:
        say(chat_graph(saver), "chat", 1)
    bad = second_of(tmp_path / "official.db")
    edit(
        tmp_path / "official.db",
        "UPDATE checkpoints SET type = 'pickle' WHERE checkpoint_id = ?",
        bad.id,
    )
    done = ropewalk("import-langgraph", "official.db", cwd=tmp_path)
    told = ropewalk("import-langgraph", "official.db", "--json", cwd=tmp_path)

    assert done.code == told.code == 11
    assert f"pickle thread 'chat' {bad.id}: the checkpoint: it is a pickle" in done.out
    assert told.records[0]["left_out"]["checkpoint_id"] == bad.id
    assert told.records[-1]["left_counts"] == {"pickle": 1}


def test_a_terminal_shows_how_far_it_is(place: Path) -> None:
    path = f"{ROOT / 'src'}:{ROOT}"
    code, shown = terminal("import-langgraph", "official.db", cwd=place, PYTHONPATH=path)

    assert code == 0
    assert "taking over" in shown and "of 20 checkpoints" in shown


@pytest.mark.parametrize(
    ("source", "code"), [("absent.db", 4), ("other.db", 3), ("postgresql://127.0.0.1:1/x", 7)]
)
def test_a_source_that_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.db").write_text("something else " * 100)
    done = here("import-langgraph", str(tmp_path / source) if "/" not in source else source)

    assert done.code == code and done.err.startswith("Error: ")


def test_postgres_is_taken_over_by_its_url(postgres_url: str, tmp_path: Path) -> None:
    with postgres_saver(postgres_url) as official:
        fill(official)
        done = ropewalk("import-langgraph", postgres_url, "--thread", "ask", cwd=tmp_path)
        with RopewalkSaver(tmp_path / ".ropewalk", types=DECLARED) as saver:
            assert in_order(shown(saver, "ask")) == in_order(shown(official, "ask"))

    assert done.code == 0 and "of 1 threads" in done.out


def test_a_graph_goes_on_with_what_was_given_back(taken: Path) -> None:
    done = ropewalk("export-langgraph", "back.db", cwd=taken)
    with sqlite_saver(taken / "back.db") as official:
        result = asking_graph(official).invoke(Command(resume="yes"), config("ask"))

    assert done.code == 0, done.err
    assert "Wrote 20 checkpoints and 34 writes of 2 threads to back.db" in done.out
    assert result == ANSWERED


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/langgraph-migrate.md", monkeypatch)


# Looking.


def test_threads_of_langgraph_are_listed_beside_conversations(taken: Path) -> None:
    with ThreadCheckpointer[Any](taken / ".ropewalk") as chat:
        chat.put_messages({"thread_id": "talk"}, [{"role": "user", "content": "hi"}])
    done = here("threads", "--json", "--size")
    found = {one["thread_id"]: one for one in done.records}

    assert {id: one["kind"] for id, one in found.items()} == {
        "chat": "langgraph", "ask": "langgraph", "talk": "thread",
    }  # fmt: skip
    assert found["chat"]["checkpoints"] == 13
    assert found["ask"]["namespaces"] == 2
    assert all(one["bytes"] > 0 for one in found.values())
    assert "chat of LangGraph 13 checkpoints, step " in here("threads").out


def test_threads_of_langgraph_are_searched_in_any_case(taken: Path) -> None:
    assert here("threads", "-q", "--search", "HA").out == "chat\n"
    assert here("threads", "-q", "--search", "nobody").out == ""
    assert sorted(here("threads", "-q", "--search", " ").out.split()) == ["ask", "chat"]


def test_the_log_names_the_nodes_that_ran(taken: Path) -> None:
    lines = here("log", "--thread", "chat").out.splitlines()

    assert "loop 8: note (main *)" in lines[0]
    assert ": talk" in lines[1]


def test_the_tree_shows_forks(taken: Path) -> None:
    out = here("tree", "--thread", "chat", "--all").out

    assert "update" in out and "(fork-" in out and "note [" in out


def test_a_step_is_found_by_its_checkpoint_id(taken: Path, saver: RopewalkSaver) -> None:
    found = saver.get_tuple(config("chat"))
    assert found is not None
    id = found.config["configurable"]["checkpoint_id"]
    told = here("show", "--thread", "chat", id, "--json").record

    assert told["checkpoint_id"] == id
    assert told["state"]["count"] == found.checkpoint["channel_values"]["count"]


def test_messages_are_shown_by_what_they_say(taken: Path) -> None:
    out = here("show", "--thread", "chat").out
    value = here("show", "--thread", "chat", "main", "messages[1]", "--json").record

    assert value["value"]["type"] == "ai" and value["value"]["content"] == "answer 0"
    assert value["value"]["tool_calls"][0]["name"] == "look"
    assert "$class" not in str(value) and '"content": "answer 0"' in out
    assert "branch:to" not in out and "__start__" not in out


def test_a_diff_shows_the_message_and_no_internal_channel(taken: Path) -> None:
    history = here("log", "--thread", "chat", "--quiet").out.split()
    out = here("diff", "--thread", "chat", history[2], history[1]).out

    assert 'state["messages"]' in out and "'type': 'ai'" in out
    assert "branch:to" not in out


def test_blame_finds_the_node_that_wrote(taken: Path) -> None:
    out = here("blame", "--thread", "chat", "messages[1].content").out

    assert ": talk" in out


def test_stats_group_what_langgraph_keeps(taken: Path) -> None:
    out = here("stats").out

    assert "LangGraph thread chat" in out and "checkpoints and pending writes" in out


def test_an_id_of_both_kinds_has_to_be_told_apart(taken: Path) -> None:
    with ThreadCheckpointer[Any](taken / ".ropewalk") as chat:
        chat.put_messages({"thread_id": "chat"}, [{"role": "user", "content": "hi"}])
    both = here("log", "--thread", "chat")
    ours = here("messages", "--thread", "threads:chat")
    theirs = here("log", "--thread", "langgraph:chat")

    assert both.code == 2 and "langgraph:chat" in both.err
    assert ours.code == 0 and "hi" in ours.out
    assert theirs.code == 0 and ": talk" in theirs.out


def test_messages_of_a_graph_are_shown_elsewhere(taken: Path) -> None:
    done = here("messages", "--thread", "chat")

    assert done.code == 3 and "ropewalk show --thread chat" in done.err


def test_a_thread_that_is_not_there_is_said(taken: Path) -> None:
    done = here("log", "--thread", "langgraph:absent")

    assert done.code == 4 and "'ask', 'chat'" in done.err


def test_without_a_name_the_threads_are_listed(taken: Path) -> None:
    done = here("log")

    assert done.code == 2 and "'ask', 'chat' of LangGraph" in done.err


# Changing.


@pytest.mark.parametrize(
    "arguments",
    [
        "branch x", "switch main", "merge main", "cherry-pick main", "revert main", "fork other",
        "tag x", "export x.session",
    ],
)  # fmt: skip
def test_what_only_a_graph_may_do_is_refused(taken: Path, arguments: str) -> None:
    before = here("log", "--thread", "chat", "--json").out
    done = here(*arguments.split(), "--thread", "chat")

    assert done.code == 3 and "is a thread of LangGraph" in done.err
    assert here("log", "--thread", "chat", "--json").out == before


def test_undo_takes_back_what_a_saver_did_last(taken: Path, saver: RopewalkSaver) -> None:
    before = shown(saver, "chat")
    saver.prune(["chat"])
    pruned = len(shown(saver, "chat"))
    done = here("undo", "--thread", "chat")
    after = shown(saver, "chat")
    redone = here("redo", "--thread", "chat")

    assert (done.code, redone.code) == (0, 0), done.err + redone.err
    assert pruned == 1 and after == before
    assert len(shown(saver, "chat")) == 1


@pytest.mark.parametrize("verb", ["rollback", "undo"])
def test_a_bad_step_is_taken_back_and_stays_in_the_history(
    taken: Path, saver: RopewalkSaver, verb: str
) -> None:
    say(chat_graph(saver), "chat", 1, first=9)
    before = shown(saver, "chat")
    done = here(verb, "--thread", "chat")
    after = shown(saver, "chat")
    records = here("log", "--thread", "chat", "--json").records
    undone = here("undo" if verb == "rollback" else "redo", "--thread", "chat")

    assert (done.code, undone.code) == (0, 0), done.err + undone.err
    assert after[1:] == before and records[0]["description"].startswith("fork")
    assert after[0][3]["channel_values"] == before[1][3]["channel_values"]
    assert shown(saver, "chat") == before


def test_a_graph_goes_on_after_an_undo(taken: Path, saver: RopewalkSaver) -> None:
    graph = chat_graph(saver)
    graph.update_state(config("chat"), {"count": 99})
    here("undo", "--thread", "chat")
    count = graph.get_state(config("chat")).values["count"]
    say(graph, "chat", 1, first=9)

    assert count != 99
    assert graph.get_state(config("chat")).values["count"] == count + 1


def test_operations_are_those_of_the_saver(taken: Path, saver: RopewalkSaver) -> None:
    saver.prune(["chat"])
    actions = [one["action"] for one in here("ops", "--thread", "chat", "--json").records]

    assert actions[0] == "prune" and set(actions[1:]) == {"put"}
