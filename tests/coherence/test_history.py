"""The history of an artifact: which versions there were, by whom, and what was deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ropewalk import MemoryStore
from ropewalk.coherence import CoherenceCore
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.store.record import Node, Place
from ropewalk.tree import ObjectId
from tests.coherence.conftest import OpenCore

LONG = "notes/" + "n" * 400
ODD = ("~tilde", LONG, "two\nlines", "..", "ключ")


def stored(**options: Any) -> CoherenceCore:
    """A set of artifacts in a store of its own."""
    return CoherenceCore(MemoryStore(), **options)


def test_each_step_tells_its_version_and_who_wrote_it(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.write("reviewer", "plan", 2)

    timeline = core.history("plan")

    assert [(one.version, one.deleted, one.agent) for one in timeline.history()] == [
        (2, False, "reviewer"),
        (1, False, "planner"),
    ]
    assert [one.description for one in timeline.history()] == [
        "version 2 by reviewer, replaced version 1 unread",
        "version 1 by planner",
    ]
    assert [one.replaced for one in timeline.history()] == [True, False]
    assert [line.split(" [")[0] for line in timeline.visualize_tree().splitlines()] == [
        "● version 1 by planner",
        "● version 2 by reviewer, replaced version 1 unread",
    ]
    assert timeline.head.to_dict()["version"] == 2
    assert timeline.head.to_dict()["replaced"] is True


def test_a_deletion_is_told_from_a_stored_none(core: CoherenceCore) -> None:
    core.write("planner", "plan", None)
    none = core.history("plan").history()[0]
    core.delete("reviewer", "plan")
    gone = core.history("plan").history()[0]

    assert (none.version, none.deleted, none.state) == (1, False, None)
    assert (gone.version, gone.deleted, gone.state) == (2, True, None)
    assert gone.description == "deleted, version 2 by reviewer"
    assert (none.to_dict()["deleted"], gone.to_dict()["deleted"]) == (False, True)


def test_an_artifact_that_never_was_has_no_history(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.write("planner", LONG, 1)

    for name in ("nope", "~nope", LONG + "x"):
        with pytest.raises(NotFound, match=r"^there is no artifact '") as caught:
            core.history(name)
        assert "plan" not in str(caught.value)


def test_a_history_is_of_one_artifact(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.publish("planner", {"plan": 2, "budget": 1})
    core.write("planner", "budget", 2)

    timeline = core.history("plan")

    assert [(one.name, one.is_current) for one in timeline.list_branches()] == [("plan", True)]
    assert len(timeline.tree()) == 2
    assert timeline.metrics["checkpoints"] == len(timeline.operations()) == 2
    assert [one.sequence for one in timeline.last_operations()] == [
        one.sequence for one in reversed(timeline.operations())
    ]
    for look in (timeline.get, timeline.history):
        with pytest.raises(NotFound):
            look("budget")


@pytest.mark.parametrize("name", ODD)
def test_an_artifact_is_shown_by_its_own_name(open_core: OpenCore, name: str) -> None:
    core = open_core()
    core.write("planner", name, 1)
    core.write("planner", name, 2)

    timeline = core.history(name)

    assert [one.name for one in timeline.list_branches()] == [timeline.current_branch] == [name]
    assert "~" not in timeline.visualize_tree().replace("~tilde", "")
    assert name[:20].partition("\n")[0] in timeline.visualize_tree()
    assert [one.branch for one in timeline.history(name)] == [name, name]
    assert timeline.get(name).version == timeline.get("2").version == 2
    assert repr(name) in repr(timeline)


def test_a_version_is_found_by_its_number(core: CoherenceCore) -> None:
    for number in range(1, 5):
        core.write("planner", "plan", {"step": number})
    timeline = core.history("plan")

    assert [timeline.at(str(number)).state["step"] for number in (1, 4)] == [1, 4]
    assert timeline.get(timeline.get("3").id[:12]).state == {"step": 3}
    assert [one.path for one in timeline.diff("1", "3")] == [("step",)]
    with pytest.raises(NotFound, match="artifact 'plan' has no version 5"):
        timeline.get("5")
    for unknown in ("0", "12345", "9" * 30, "٣"):
        with pytest.raises(NotFound):
            timeline.get(unknown)


def test_an_artifact_that_is_named_like_a_number_goes_before_a_version() -> None:
    core = stored()
    core.write("planner", "1", "first")
    core.write("planner", "1", "second")

    assert core.history("1").get("1").state == "second"


def test_in_memory_a_history_begins_at_what_is_kept() -> None:
    core = CoherenceCore()
    for number in range(1, 151):
        core.write("planner", "plan", number)
    timeline = core.history("plan")

    assert [one.version for one in timeline.history(limit=None)] == [*range(150, 50, -1)]
    assert timeline.get("51").state == 51
    with pytest.raises(NotFound):
        timeline.get("50")


def test_after_a_deletion_versions_go_on(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.delete("planner", "plan")
    core.write("planner", "plan", 3)

    newest = core.history("plan").history()[0]

    assert (newest.version, newest.deleted, newest.state) == (3, False, 3)


def test_what_a_step_tells_is_not_stored() -> None:
    core = stored()
    core.write("planner", "plan", 1)
    step = core.history("plan").history()[0]
    store = core._authority.store  # type: ignore[attr-defined]
    (space,) = store.spaces()
    (commit,) = store.reader(space)([bytes.fromhex(step.id)])

    assert b"version" not in commit.payload


def test_the_log_of_others_costs_no_reads() -> None:
    class Counting(MemoryStore):
        reads = 0

        def _node(self, space: str, id: ObjectId, place: Place) -> Node | None:
            self.reads += 1
            return super()._node(space, id, place)

    store = Counting()
    core = CoherenceCore(store)
    for number in range(100):
        core.write("planner", f"note-{number}", number)
    core.write("planner", "plan", 1)
    store.reads = 0

    (step,) = core.history("plan").history()

    assert step.status == "active"
    assert store.reads <= 2


def test_a_migrated_artifact_keeps_its_history() -> None:
    from ropewalk import migrate

    source, target = MemoryStore(), MemoryStore()
    core = CoherenceCore(source)
    for number in range(3):
        core.write("planner", "plan", number)
        core.write("planner", LONG, number)
    migrate(source, target)

    timeline = CoherenceCore(target).history(LONG)
    assert [one.state for one in timeline.history(limit=None)] == [2, 1, 0]
    assert timeline.get("1").state == 0


def test_what_happens_to_one_artifact_can_be_watched() -> None:
    core = stored()
    core.write("planner", "plan", 1)
    timeline = core.history("plan")
    changes = timeline.watch(timeout=0.05)
    core.write("planner", "budget", 1)
    core.write("planner", "plan", 2)

    assert [one.metadata["versions"] for one in changes] == ["2"]

    async def work() -> list[object]:
        seen = timeline.awatch(timeout=0.05)
        return [one.metadata["versions"] async for one in seen]

    assert asyncio.run(work()) == []


@pytest.mark.parametrize("verb", ["tag", "delete_tag", "export_session", "rollback", "merge"])
def test_what_would_change_it_is_refused(core: CoherenceCore, verb: str) -> None:
    core.write("planner", "plan", 1)

    with pytest.raises(InvalidInput, match="only their writes add to it"):
        getattr(core.history("plan"), verb)("x")
