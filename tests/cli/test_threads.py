"""Conversations at the command line: which there are, what was said, and their history."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk import Message, ThreadCheckpointer, Timeline
from ropewalk.threads import Transcript
from tests.cli.support import Done, here, process

ALICE = {"thread_id": "support-42", "user_id": "alice"}
NAMED = ("--thread", "support-42", "--user", "alice")
CALL = {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"n":7}'}}


def fill(chat: ThreadCheckpointer[Any]) -> None:
    """A conversation of a user, and two of nobody in particular."""
    chat.put_messages(ALICE, [Message("user", "My parcel is late.\nIt is order 7.", id="m1")])
    question = Message("assistant", "Which order is it?", id="m2")
    chat.put(ALICE, {"step": "find"}, [question], {"thread_name": "Late parcel"})
    chat.put_messages(ALICE, [{"role": "assistant", "tool_calls": [CALL], "id": "m3"}])
    answer = {"role": "tool", "tool_call_id": "c1", "content": "In Paris", "id": "m4"}
    chat.put_messages(ALICE, [answer])
    chat.put_state(ALICE, {"step": "refund", "order": 7})
    chat.put_messages({"thread_id": 12}, [Message("user", "Hello", id=1)])
    chat.put_messages({"thread_id": "#odd"}, [Message("user", "Hello", id="#x")])


@pytest.fixture(scope="session")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has only threads."""
    folder = tmp_path_factory.mktemp("threads")
    with ThreadCheckpointer[Any](folder / ".ropewalk") as chat:
        fill(chat)
    return folder


@pytest.fixture
def folder(talked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for one test, as the current folder."""
    copy = tmp_path / "threads"
    shutil.copytree(talked, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def chat(folder: Path) -> Iterator[ThreadCheckpointer[Any]]:
    """The conversations, for what a test wants to add or see."""
    with ThreadCheckpointer[Any](folder / ".ropewalk") as opened:
        yield opened


def on(*arguments: str) -> Done:
    """A command on the thread of a user, which must go well."""
    done = here(*arguments, *NAMED)
    assert done.code == 0, done.err
    return done


# Which threads there are.


def test_threads_are_listed_with_names_and_numbers_of_messages(folder: Path) -> None:
    lines = here("threads").out.splitlines()

    assert [line.split("Z ", 1)[1] for line in lines] == [
        "##odd 1 message",
        "#12 1 message",
        "support-42 of alice 4 messages: Late parcel",
    ]


def test_threads_of_one_user_can_be_searched_and_cut(folder: Path) -> None:
    assert here("threads", "-q", "--user", "alice").out == "support-42\n"
    assert here("threads", "-q", "--search", "PARC").out == "support-42\n"
    assert here("threads", "-q", "--limit", "1").out == "##odd\n"
    assert here("threads", "--user", "bob").out == ""


def test_threads_that_were_cleaned_are_not_listed(chat: ThreadCheckpointer[Any]) -> None:
    chat.clean_thread(ALICE)

    assert here("threads", "--user", "alice").out == ""
    assert here("log", *NAMED).code == 0


def test_a_store_without_threads_lists_none(page: Path) -> None:
    assert here("threads") == Done(0, "", "")


def test_timelines_that_are_no_threads_do_not_stand_in_the_way(
    chat: ThreadCheckpointer[Any],
) -> None:
    for name, tenant in (("#odd", "threads"), ("odd", "threads"), ("odd", "threads:#odd")):
        Timeline(name, chat.store, tenant=tenant).checkpoint({"other": "value"})

    assert here("threads", "-q").code == 0
    assert len(here("threads", "-q").out.split()) == 3


def test_agents_says_that_there_are_threads(folder: Path) -> None:
    assert here("agents").out == "and 3 threads: `ropewalk threads` lists them\n"
    assert here("agents", "-q").out == here("agents", "--json").out == ""


# What was said.


def test_messages_are_shown_with_who_spoke_and_what_stands_beside(folder: Path) -> None:
    lines = on("messages").out.splitlines()

    assert [line.split("Z ", 1)[-1] for line in lines] == [
        "user m1",
        "    My parcel is late.",
        "    It is order 7.",
        "assistant m2",
        "    Which order is it?",
        "assistant m3",
        '    (calls find_order: {"n":7})',
        "tool m4",
        "    In Paris",
        "    (answers c1)",
    ]


def test_messages_can_be_searched_and_chosen_by_role(folder: Path) -> None:
    assert on("messages", "-q", "--search", "ORD").out.split() == ["m1", "m2"]
    assert on("messages", "-q", "--search", "ord", "--role", "user").out.split() == ["m1"]
    assert on("messages", "-q", "--role", "user", "--role", "tool").out.split() == ["m1", "m4"]
    assert here("messages", *NAMED, "--role", "boss").code == 3


def test_messages_come_in_pages(folder: Path) -> None:
    first = on("messages", "--newest-first", "--limit", "3", "--json").records
    rest = on("messages", "--newest-first", "--json", "--cursor", first[-1]["cursor"]).records

    assert [one["id"] for one in first[:-1]] == ["m4", "m3", "m2"]
    assert [one["id"] for one in rest] == ["m1"]
    told = on("messages", "--newest-first", "--limit", "3").out.splitlines()[-1]
    assert told == f"more: --cursor {first[-1]['cursor']}"
    assert here("messages", *NAMED, "--cursor", "nonsense").code == 3


def test_messages_are_of_a_branch(folder: Path) -> None:
    on("branch", "other")
    on("rollback", "2")

    assert on("messages", "-q").out.split() == ["m1", "m2", "m3"]
    assert on("messages", "-q", "--branch", "main").out.split() == ["m1", "m2", "m3", "m4"]
    assert here("messages", *NAMED, "--branch", "none").code == 4


def test_what_was_said_cannot_command_a_terminal(chat: ThreadCheckpointer[Any]) -> None:
    chat.put_messages(ALICE, [Message("user", "\x1b[2J gone", id="m\x1b5", name="\x1b[31m")])

    assert "\x1b" not in on("messages").out
    assert "\\x1b[2J gone" in on("messages").out


def test_each_has_its_names_as_json(folder: Path) -> None:
    assert here("threads", "--json", "--user", "alice").record.items() >= {
        "thread_id": "support-42", "user_id": "alice", "name": "Late parcel", "messages": 4,
    }.items()  # fmt: skip
    assert [one["thread_id"] for one in here("threads", "--json").records] == [
        "#odd", 12, "support-42",
    ]  # fmt: skip
    assert {tuple(one) for one in on("messages", "--json").records} == {
        ("id", "role", "name", "created_at", "text", "content", "tool_calls", "tool_call_id",
         "usage", "metadata", "extra"),
    }  # fmt: skip


# Choosing one.


def test_ids_are_written_as_names_are_spelled(folder: Path) -> None:
    assert here("messages", "--thread", "#12", "-q").out == "#1\n"
    assert here("messages", "--thread", "##odd", "-q").out == "##x\n"
    assert here("log", "--thread", "12").code == 4
    wrong = here("log", "--thread", "#odd")
    assert wrong.code == 2
    assert "'#12' is the number 12" in wrong.err


def test_an_empty_id_is_called_so(folder: Path) -> None:
    wrong = here("messages", "--thread", "")

    assert wrong.code == 2
    assert "thread is empty" in wrong.err


def test_where_only_threads_are_a_command_says_how_to_choose_one(folder: Path) -> None:
    done = here("log")

    assert done.code == 2
    assert "'##odd', '#12'; 'support-42' of user 'alice'" in done.err
    assert "--thread" in done.err
    assert "--user" in done.err


def test_a_thread_has_to_be_named(folder: Path) -> None:
    assert "'support-42'" in here("log", "--user", "alice").err
    assert here("log", "--user", "alice").code == 2
    assert here("messages").code == 2
    assert "ropewalk threads" in here("messages").err


@pytest.mark.parametrize("command", ["log", "messages"])
def test_an_unknown_thread_is_not_made(folder: Path, command: str) -> None:
    nowhere = here(command, "--thread", "nowhere")
    forgotten = here(command, "--thread", "support-42")
    strange = here(command, "--thread", "#12", "--user", "alice")

    assert (nowhere.code, forgotten.code, strange.code) == (4, 4, 4)
    assert "it has '##odd', '#12'" in nowhere.err
    assert "there is one of 'alice': add --user" in forgotten.err
    assert "leave out --user" in strange.err
    assert len(here("threads", "-q").out.split()) == 3


def test_an_agent_and_a_thread_are_two_timelines(folder: Path) -> None:
    for more in (("--thread", "#12"), ("--user", "alice")):
        done = here("log", "--agent", "x", *more)
        assert done.code == 2
        assert "--timeline" in done.err


def test_agents_and_threads_stand_side_by_side(chat: ThreadCheckpointer[Any]) -> None:
    Timeline("support-42", chat.store).checkpoint({}, description="Of the agent")

    assert "Of the agent" in here("log").out
    assert "a state" in on("log").out


def test_the_shell_completes_threads_and_users(folder: Path) -> None:
    def completed(line: str) -> list[str]:
        env = {
            "_ROPEWALK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        return process(cwd=folder, env=env).out.split()

    assert completed("ropewalk log --user alice --thread su") == ["support-42"]
    assert completed("ropewalk messages --user al") == ["alice"]
    assert completed("ropewalk switch --user alice --thread support-42 ma") == ["main"]


# Its history.


def test_a_thread_has_a_log_and_a_tree(folder: Path) -> None:
    steps = [line.split("Z ", 1)[1] for line in on("log").out.splitlines()]

    assert steps == [
        "a state (main *)", "1 message", "1 message", "a state, 1 message, the record", "1 message",
    ]  # fmt: skip
    assert len(on("tree").out.splitlines()) == 6  # The last one says what the signs mean.
    assert on("branches", "-q").out == "main\n"


def test_a_step_is_shown_with_its_state_its_record_and_its_messages(folder: Path) -> None:
    told = on("show", "--json").record["state"]

    assert list(told) == ["thread", "state", "messages"]
    assert told["thread"]["thread_name"] == "Late parcel"
    assert told["state"] == {"step": "refund", "order": 7}
    assert [(one["position"], one["id"]) for one in told["messages"]] == [
        (0, "m1"), (1, "m2"), (2, "m3"), (3, "m4"),
    ]  # fmt: skip
    assert told["messages"][0]["content"] == "My parcel is late.\nIt is order 7."
    assert "thread      support-42" in on("show").out


def test_a_place_in_a_thread_is_written_by_what_people_see(folder: Path) -> None:
    assert on("show", "main", "state.step").out == '"refund"\n'
    assert on("show", "main", "thread.thread_name").out == '"Late parcel"\n'
    assert on("show", "main", "messages[1].content").out == '"Which order is it?"\n'
    assert on("show", "main", 'messages["m2"].content').out == '"Which order is it?"\n'
    assert json.loads(on("show", "main", "messages[3]").out)["content"] == "In Paris"
    assert on("show", "main", "messages[1].created_at").out.startswith('"20')
    assert here("show", "main", 'messages["none"]', *NAMED).code == 4
    assert here("show", "main", "messages", *NAMED).code == 3


def test_what_a_message_brought_is_compared_without_marks(folder: Path) -> None:
    told = on("diff", "--json").records
    first, last = on("log", "-q").out.split()[-1], on("log", "-q").out.split()[0]
    whole = {one["path"]: one for one in on("diff", first, last, "--json").records}

    assert [(one["path"], one["old"], one["new"]) for one in told if "old" in one] == [
        ("state.step", "find", "refund"),
    ]  # fmt: skip
    assert sorted(whole) == ["messages[1]", "messages[2]", "messages[3]", "state", "thread"]
    assert whole["messages[3]"]["new"]["content"] == "In Paris"
    assert whole["messages[3]"]["new"]["created_at"].startswith("20")
    assert "+ state[\"step\"]: 'refund'" in on("diff").out.splitlines()
    assert on("diff", "-q").out.split() == ["state.step", "state.order"]


def test_an_edit_of_a_message_is_shown_where_it_is(chat: ThreadCheckpointer[Any]) -> None:
    edited = chat.get_message(ALICE, "m2").replace(content="Which one?")
    chat.put_messages(ALICE, [edited])
    chat.delete_message(ALICE, "m4")

    assert on("diff", "-q").out == "messages[3]\n"
    head = on("log", "-q").out.split()
    assert on("diff", head[2], head[1]).out.splitlines() == [
        "- messages[1][\"content\"]: 'Which order is it?'",
        "+ messages[1][\"content\"]: 'Which one?'",
    ]


def test_blame_and_bisect_find_the_step_of_a_message_and_of_a_state(folder: Path) -> None:
    steps = on("log", "-q").out.split()

    assert on("blame", "state.step", "-q").out.strip() == steps[0]
    assert on("blame", 'messages["m3"]', "-q").out.strip() == steps[2]
    assert on("blame", "messages[0].content", "--json").record["path"] == "messages[0].content"
    assert on("bisect", "state.step", "refund", "-q").out.strip() == steps[0]
    assert on("bisect", "messages[1]", "--exists", "-q").out.strip() == steps[3]


def test_blame_takes_the_places_in_an_item_as_they_are_shown(
    chat: ThreadCheckpointer[Any],
) -> None:
    items = Transcript("items", chat)
    items.append([{"role": "user", "content": "Hi"}, {"role": "assistant", "tags": ["a"]}])
    items.save([{"role": "user", "content": "Hi"}, {"role": "assistant", "tags": ["b"]}])
    named = ("--thread", "items")
    last, first = here("log", *named, "-q").out.split()

    for place in ("messages[1]", "messages[1].tags", "messages[1].item.tags[0]"):
        assert here("blame", place, *named, "-q").out.strip() == last
    assert here("blame", "messages[1].item.role", *named, "-q").out.strip() == first
    wrong = here("blame", "messages[1].item.nothing", *named)
    assert wrong.code == 4 and "nothing at messages[1].item.nothing now" in wrong.err


def test_a_thread_can_go_back_and_branch_and_come_back(chat: ThreadCheckpointer[Any]) -> None:
    on("rollback")
    assert chat.get_state(ALICE) == {"step": "find"}
    on("undo")
    assert chat.get_state(ALICE) == {"step": "refund", "order": 7}
    on("branch", "other")
    on("rollback", "4")
    assert [one.id for one in chat.list_messages(ALICE)] == ["m1"]
    on("switch", "main")
    on("tag", "sent")
    on("revert", "sent")
    assert chat.get_state(ALICE) == {"step": "find"}
    on("cherry-pick", "sent")

    assert chat.get_state(ALICE) == {"step": "refund", "order": 7}
    assert len(chat.list_messages(ALICE)) == 4
    assert on("metrics", "--json").record["rollbacks"] == 2


def test_branches_that_both_got_messages_do_not_merge_by_themselves(
    chat: ThreadCheckpointer[Any],
) -> None:
    on("branch", "other")
    on("switch", "main")
    chat.put_messages({**ALICE, "branch": "main"}, [Message("user", "Here", id="here")])
    chat.put_messages({**ALICE, "branch": "other"}, [Message("user", "There", id="there")])

    refused = here("merge", "other", *NAMED, "--json")
    conflicts = {one["path"]: one for one in json.loads(refused.err)["conflicts"]}
    assert refused.code == 5
    assert sorted(conflicts) == [f"messages[4].{name}" for name in ("content", "created_at", "id")]
    assert conflicts["messages[4].id"]["ours"] == "here"
    assert conflicts["messages[4].created_at"]["theirs"].startswith("20")
    on("merge", "other", "--strategy", "theirs")
    assert chat.get_message(ALICE).id == "there"


def test_a_fork_of_a_thread_is_a_thread_of_the_same_user(chat: ThreadCheckpointer[Any]) -> None:
    on("fork", "#43")
    copy = {"thread_id": 43, "user_id": "alice"}

    assert [one.id for one in chat.list_messages(copy)] == ["m1", "m2", "m3", "m4"]
    assert {one.thread_id for one in chat.list_threads(copy)} == {"support-42", 43}
    assert here("fork", "#odd", *NAMED).code == 2


def test_a_thread_travels_in_a_file(chat: ThreadCheckpointer[Any]) -> None:
    on("export", "thread.session")
    bob = ("--thread", "#7", "--user", "bob")

    assert here("import", "thread.session", *bob).code == 0
    assert chat.get_message({"thread_id": 7, "user_id": "bob"}, "m4").text == "In Paris"
    assert here("import", "thread.session", *bob).code == 5
    assert here("import", "thread.session", "--name", "x", *bob).code == 2
    assert here("import", "thread.session", "--user", "bob").code == 2


def test_stats_names_threads_and_counts_their_messages_together(folder: Path) -> None:
    lines = [line.split() for line in here("stats").out.splitlines()]

    assert ["thread", "support-42", "of", "alice"] in [line[:4] for line in lines]
    assert [line[-1] for line in lines].count("messages") == 3


def test_looking_at_a_thread_changes_no_byte(folder: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    before = content()
    for arguments in (("log",), ("tree",), ("show",), ("diff",), ("messages",)):
        on(*arguments)
    assert here("threads").code == 0

    assert content() == before


def test_metadata_of_a_put_are_found_where_they_are_shown(chat: ThreadCheckpointer[Any]) -> None:
    chat.put_messages(ALICE, [Message("user", "Hi", id="m5")], {"channel": "web"})
    chat.put_messages(ALICE, [Message("user", "Ho", id="m6", metadata={"n": 1})], {"channel": "tv"})

    assert on("show", "main", 'messages["m5"].metadata.channel').out == '"web"\n'
    assert json.loads(on("show", "main", 'messages["m5"].metadata').out) == {"channel": "web"}
    assert on("show", "main", 'messages["m6"].metadata.channel').out == '"tv"\n'
    assert on("show", "main", 'messages["m6"].metadata.n').out == "1\n"

    chat.put_messages(ALICE, [chat.get_message(ALICE, "m6").replace(content="Hey")])
    assert "metadata" in on("diff").out
    assert "about" not in on("diff").out
