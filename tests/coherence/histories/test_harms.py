"""A run that nobody disturbed, or in which agents stopped working, proves nothing and fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.coherence.histories.accounts import account, expect_harm, expect_work
from tests.coherence.histories.campaign import Campaign, crashes
from tests.coherence.histories.harms import Attendance, Tail, faults
from tests.coherence.histories.recording import OK, UNKNOWN, Operation, Record, Recorder
from tests.coherence.histories.worker import FAULTS, Settings


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """One in which everything has happened."""
    made = Campaign(tmp_path, "sqlite", "", ["lazy"], "seed", 1.0)
    made.counts.update([*made.harms, "objects collected"])
    told = {"messages": 9, **dict.fromkeys(FAULTS, 1)}
    for process in ("p0l0", "p2l0"):
        (tmp_path / f"{process}.faults").write_text(json.dumps(told))
    return made


def test_a_run_with_every_harm_is_accepted(campaign: Campaign) -> None:
    expect_harm(campaign, account(campaign, Record((), ())))


@pytest.mark.parametrize("harm", ["kill", "pause", "collect", "objects collected"])
def test_a_run_without_a_kind_of_harm_fails(campaign: Campaign, harm: str) -> None:
    del campaign.counts[harm]

    with pytest.raises(AssertionError, match=harm):
        expect_harm(campaign, account(campaign, Record((), ())))


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_run_without_a_kind_of_fault_fails(campaign: Campaign, fault: str) -> None:
    told = {"messages": 9, **dict.fromkeys(FAULTS, 1), fault: 0}
    (campaign.folder / "p0l0.faults").write_text(json.dumps(told))

    with pytest.raises(AssertionError, match=fault):
        expect_harm(campaign, account(campaign, Record((), ())))


def test_a_run_in_which_the_deaf_process_had_nothing_to_miss_fails(campaign: Campaign) -> None:
    (campaign.folder / "p2l0.faults").unlink()

    with pytest.raises(AssertionError, match="deaf"):
        expect_harm(campaign, account(campaign, Record((), ())))


def test_what_the_deaf_process_lost_is_no_fault_of_others(campaign: Campaign) -> None:
    found = faults(campaign.folder)

    assert (found["lose"], found["lost by the deaf"], found["messages"]) == (1, 1, 9)


def test_a_run_in_which_agents_did_not_do_some_of_everything_fails() -> None:
    only_read = Operation("p0l0.1", "agent 0", "read", ("plan",), 1.0, 2.0, OK)

    with pytest.raises(AssertionError, match="edit"):
        expect_work(Record((only_read,), ()))


def test_a_thread_that_ended_with_an_error_is_noticed_although_its_process_was_killed(
    campaign: Campaign,
) -> None:
    (campaign.folder / "p0l0.errors").write_text("lost its server")
    (campaign.folder / "p1l0.errors").write_text("Traceback (most recent call last):\n  ...")

    assert [one.partition(":")[0] for one in crashes(campaign)] == ["p1l0"]


# Agents that go on.


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """What a process writes down."""
    made = Recorder(tmp_path / "p0l0.history", "p0l0")
    yield made
    made.close()


def test_what_was_done_before_does_not_show_that_an_agent_goes_on(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.end(recorder.begin("agent 0", "read", ["plan"]), OK)
    half = recorder.begin("agent 4", "read", ["plan"])
    tail = Tail(tmp_path / "p0l0.history")
    recorder.end(half, OK)
    recorder.end(recorder.begin("agent 1", "read", ["plan"]), OK)
    recorder.end(recorder.begin("agent 2", "read", ["plan"]), UNKNOWN)

    assert list(tail.done()) == ["agent 1"]


def test_a_line_that_is_just_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "p0l0.history"
    with closing(Recorder(path, "p0l0")) as recorder:
        recorder.end(recorder.begin("agent 0", "read", ["plan"]), OK)
        recorder.end(recorder.begin("agent 1", "read", ["plan"]), OK)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:20])

    tail = Tail(path)

    assert list(tail.done()) == []
    path.write_bytes(b"".join(lines))
    assert list(tail.done()) == ["agent 1"]


def test_an_agent_that_does_nothing_any_more_is_named(recorder: Recorder, tmp_path: Path) -> None:
    settings = Settings(str(tmp_path), "sqlite", "", "lazy", "p0l0", ("agent 0", "agent 4"), "")
    attendance = Attendance([settings], tmp_path)
    recorder.end(recorder.begin("agent 0", "read", ["plan"]), OK)

    assert attendance.missing() == ["agent 4"]
