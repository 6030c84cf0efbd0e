"""What a client knows of its agents' copies, whatever comes in which order."""

from __future__ import annotations

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.coherence.directory import Directory
from ropewalk.coherence.protocol import Version
from ropewalk.errors import NotFound
from ropewalk.store import MemoryStore


def version(number: int) -> Version:
    return Version(number, bytes([number]), "writer", 0)


@pytest.fixture
def directory() -> Directory:
    """That of a client which follows the log, so that everything is told to it once."""
    return Directory(follows=True)


def is_current(directory: Directory, agent: str) -> bool:
    entry = directory.entry(agent, "plan")
    return entry is not None and directory.is_current("plan", entry)


def test_what_was_heard_before_a_copy_came_makes_it_old(directory: Directory) -> None:
    gaps = directory.gaps
    directory.invalidated("plan", 6, 5)
    directory.fetched("ann", "plan", version(5), 0.0, gaps)

    assert not is_current(directory, "ann")


def test_what_was_heard_is_remembered_when_the_last_holder_forgets(directory: Directory) -> None:
    directory.fetched("bob", "plan", version(5), 0.0, directory.gaps)
    gaps = directory.gaps
    directory.invalidated("plan", 6, 5)
    directory.forgotten("bob", "plan", "recover")
    directory.fetched("ann", "plan", version(5), 0.0, gaps)

    assert not is_current(directory, "ann")


def test_a_copy_that_was_asked_for_before_a_deletion_is_doubted(directory: Directory) -> None:
    gaps = directory.gaps
    directory.invalidated("plan", 6, 5)
    directory.deleted("plan", 6)
    directory.fetched("ann", "plan", version(5), 0.0, gaps)

    assert not is_current(directory, "ann")
    assert directory.newest("plan") == 5


def test_a_deletion_that_is_told_late_hides_nothing_that_came_after_it(
    directory: Directory,
) -> None:
    directory.committed("ann", "plan", version(8), 0.0, directory.gaps)
    directory.forgotten("ann", "plan", "delete")
    directory.deleted("plan", 6)

    assert directory.newest("plan") == 8


def test_what_one_agent_read_makes_older_copies_of_others_old(directory: Directory) -> None:
    directory.fetched("ann", "plan", version(5), 0.0, directory.gaps)
    directory.fetched("bob", "plan", version(6), 0.0, directory.gaps)

    assert is_current(directory, "bob")
    assert not is_current(directory, "ann")


def test_an_agent_does_not_read_what_it_has_just_taken_away() -> None:
    with MemoryStore() as store:
        CoherenceCore(store).write("ann", "note", "here")
        # Nobody wakes this client, so the log is read when it begins, and then not for long.
        with CoherenceCore(store, strategy="broadcast", tick_seconds=1000, bus=False) as core:
            while core.read("ann", "note").source == "fetch":
                pass
            core.delete("ann", "note")

            with pytest.raises(NotFound):
                core.read("ann", "note")


def test_an_agent_that_found_nothing_does_not_read_what_was_there_before() -> None:
    with MemoryStore() as store, CoherenceCore(store.another()) as other:
        other.write("bob", "note", "here")
        with CoherenceCore(store, strategy="broadcast", tick_seconds=1000, bus=False) as core:
            while core.read("ann", "note").source == "fetch":
                pass
            other.delete("bob", "note")
            with pytest.raises(NotFound):
                core.snapshot("ann", ["note"])  # Asks the engine, whatever the strategy.

            with pytest.raises(NotFound):
                core.read("ann", "note")
