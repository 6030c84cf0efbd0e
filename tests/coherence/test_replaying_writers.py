"""What `replay` finds of grants and of versions that cannot be."""

from __future__ import annotations

from pathlib import Path

from ropewalk.coherence.replay import replay
from tests.coherence.runs import Run, found_in

# Several writers.


def test_two_agents_with_the_grant_at_once_are_found(run: Run) -> None:
    run.state("a", "EXCLUSIVE", 1)
    run.state("b", "EXCLUSIVE", 2)

    done = replay(run.save())
    assert found_in(done) == ["single-writer"]
    assert done.findings[0].message == "got the grant while a in one had it"


def test_a_grant_that_was_given_back_or_taken_away_can_be_given_again(run: Run) -> None:
    run.state("a", "EXCLUSIVE", 1)
    run.state("a", "MODIFIED", 2, "commit")
    run.state("a", "SHARED", 3, "release")
    run.state("b", "EXCLUSIVE", 4)
    run.state("b", "INVALID", 5, "reclaim_heartbeat")
    run.state("c", "EXCLUSIVE", 6)

    assert run.found() == []


def test_a_reclaim_is_told_by_the_process_that_did_it(tmp_path: Path) -> None:
    silent = Run(tmp_path / "run", instance="silent", ends=False)
    silent.state("a", "EXCLUSIVE", 1)
    silent.save()
    other = Run(tmp_path / "run", instance="other")
    other.state("a", "INVALID", 5, "reclaim_heartbeat")
    other.state("b", "EXCLUSIVE", 6)

    assert other.found() == []


def test_a_grant_with_a_later_token_follows_one_whose_end_nobody_wrote_down(run: Run) -> None:
    run.state("a", "EXCLUSIVE", 1, token=1)
    run.state("b", "EXCLUSIVE", 2, token=2)

    assert run.found() == []


def test_one_token_for_two_agents_is_found(run: Run) -> None:
    run.state("a", "EXCLUSIVE", 1, token=1)
    run.state("b", "EXCLUSIVE", 2, token=1)

    assert run.found() == ["single-writer"]


def test_grants_without_tokens_of_two_processes_only_perhaps_overlap(tmp_path: Path) -> None:
    for instance, agent in (("one", "a"), ("two", "b")):
        run = Run(tmp_path / "run", instance=instance)
        run.state(agent, "EXCLUSIVE", 1)
        run.save()

    done = replay(run.folder)
    assert [one.certain for one in done.findings] == [False]
    assert done.ok


def test_a_write_while_another_has_the_grant_is_found(run: Run) -> None:
    run.write("a", 1, 1, token=7)
    run.write("b", 2, 2, read_version=1)
    run.write("a", 3, 3, read_version=2, token=7)

    done = replay(run.save())
    assert [(one.invariant, one.agent) for one in done.findings] == [("single-writer", "b")]
    assert done.findings[0].message == "wrote version 2 while a in one had the grant 7"


def test_a_write_with_a_grant_that_was_taken_away_is_found(run: Run) -> None:
    run.write("a", 1, 1, token=7)
    run.write("b", 2, 2, read_version=1, token=8)
    run.write("a", 3, 3, read_version=2, token=7)

    assert set(run.found()) == {"single-writer"}


def test_writes_before_and_after_a_grant_are_right(run: Run) -> None:
    run.write("b", 1, 1)
    run.write("a", 2, 2, read_version=1, token=7)
    run.write("a", 3, 3, read_version=2, token=7)
    run.write("b", 4, 4, read_version=3)
    run.write("b", 5, 5, read_version=4, token=8)

    assert run.found() == []


# Versions that go back.


def test_a_version_that_two_agents_wrote_is_found(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("b", 1, 1)

    assert run.found() == ["monotonic-version"]


def test_an_agent_that_reads_an_older_version_than_before_is_found(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", strategy="lease", bound_seconds=60.0)
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 2, 3)
    run.read("b", 1, 4)

    done = replay(run.save())
    assert found_in(done) == ["monotonic-version"]
    assert done.findings[0].message == "read version 1 after version 2"


def test_reads_of_one_agent_at_the_same_time_may_end_in_any_order(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", strategy="lease", bound_seconds=60.0)
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 2, 5, began=4)
    run.read("b", 1, 6, began=3)

    assert run.found() == []


def test_a_write_that_began_after_a_later_version_was_known_is_found(run: Run) -> None:
    run.write("a", 2, 2)
    run.write("b", 1, 3)

    assert run.found() == ["monotonic-version"]


# Versions of nobody.


def test_a_version_that_nobody_wrote_is_found_once(run: Run) -> None:
    run.write("a", 1, 1)
    run.read("b", 2, 2)
    run.read("b", 2, 3)

    done = replay(run.save())
    assert found_in(done) == ["unwritten-version"]
    assert done.findings[0].certain


def test_a_process_that_was_killed_may_have_written_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", ends=False)
    run.write("a", 1, 1)
    run.read("b", 2, 2)

    done = replay(run.save())
    assert [one.certain for one in done.findings] == [False]
    assert done.ok
    assert not done.complete


def test_a_write_whose_end_nobody_knows_may_have_been_it(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("a", 0, 2, outcome="error")
    run.read("b", 2, 3)

    done = replay(run.save())
    assert [(one.invariant, one.certain) for one in done.findings] == [("unwritten-version", False)]


def test_a_degraded_read_may_give_what_waits_to_be_written(run: Run) -> None:
    run.write("a", 1, 1, content_hash="aa")
    run.read("a", 1, 2, content_hash="bb", degraded=True)

    assert run.found() == []


def test_what_was_written_before_the_logs_began_is_not_judged(run: Run) -> None:
    run.read("b", 4, 1)
    run.write("a", 5, 2, read_version=4)

    assert run.found() == []


def test_another_content_than_the_one_that_was_written_is_found(run: Run) -> None:
    run.write("a", 1, 1, content_hash="aa")
    run.read("b", 1, 2, content_hash="aa")
    run.read("c", 1, 3, content_hash="cc")

    done = replay(run.save())
    assert [(one.invariant, one.agent) for one in done.findings] == [("unwritten-version", "c")]
