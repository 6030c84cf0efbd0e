"""Writing: what is checked, merged, refused, published and deleted, on every engine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import FrameType
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, State
from ropewalk.errors import ArtifactHeld, InvalidInput, NotFound, NotStorable, VersionConflict
from ropewalk.tree import ABSENT
from tests.coherence.conftest import OpenCore


def test_a_write_on_a_version_succeeds_when_that_is_the_newest(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1, if_version=0)
    core.read("reviewer", "plan")

    assert core.write("reviewer", "plan", 2, if_version=1).version == 2
    assert core.write("reviewer", "plan", 3, if_version=2).version == 3
    assert core.write("planner", "plan", 4, if_version=3).version == 4


def test_a_write_on_an_older_version_is_refused(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.write("planner", "plan", {"a": 2})

    with pytest.raises(VersionConflict) as caught:
        core.write("reviewer", "plan", {"b": 1}, if_version=1)
    with pytest.raises(VersionConflict):
        core.write("reviewer", "plan", {"b": 1}, if_version=0)

    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert core.read("reviewer", "plan").value == {"a": 2}


def test_changes_of_different_places_are_merged(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1, "b": 1})
    core.read("reviewer", "plan")
    core.write("planner", "plan", {"a": 2, "b": 1})

    made = core.write("reviewer", "plan", {"a": 1, "b": 2})

    assert made.version == 3
    assert made.value == core.read("planner", "plan").value == {"a": 2, "b": 2}


def test_changes_of_the_same_place_are_refused(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.read("reviewer", "plan")
    core.write("planner", "plan", {"a": 2})

    with pytest.raises(VersionConflict):
        core.write("reviewer", "plan", {"a": 3})
    assert core.read("planner", "plan").value == {"a": 2}


def test_the_same_change_by_two_is_no_agreement(core: CoherenceCore) -> None:
    core.write("planner", "count", {"n": 5})
    core.read("reviewer", "count")
    core.write("planner", "count", {"n": 6})

    with pytest.raises(VersionConflict):
        core.write("reviewer", "count", {"n": 6})


def test_a_merger_settles_the_same_place(open_core: OpenCore) -> None:
    core = open_core(mergers={"n": "add"})
    core.write("planner", "count", {"n": 5})
    core.read("reviewer", "count")
    core.write("planner", "count", {"n": 6})

    assert core.write("reviewer", "count", {"n": 6}).value == {"n": 7}


def test_an_agent_that_has_seen_nothing_replaces_what_is_there(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)

    assert core.write("reviewer", "plan", 2).version == 2


def test_who_only_writes_replaces_what_others_changed_at_the_same_place(
    core: CoherenceCore,
) -> None:
    core.write("planner", "plan", {"a": 1})
    core.edit("reviewer", "plan", lambda _: {"a": 2})

    made = core.write("planner", "plan", {"a": 3})

    assert made.replaced and not made.merged
    assert core.read("reviewer", "plan").value == {"a": 3}
    assert [one.state for one in core.history("plan").history()] == [{"a": 3}, {"a": 2}, {"a": 1}]


def test_what_who_only_writes_did_not_change_is_merged(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1, "b": 1, "c": [1]})
    core.edit("reviewer", "plan", lambda _: {"a": 2, "b": 2, "c": [2]})

    made = core.write("planner", "plan", {"a": 3, "b": 1, "c": [1]})

    assert made.replaced and made.merged
    assert made.value == {"a": 3, "b": 2, "c": [2]}


def test_who_only_writes_replaces_nothing_where_all_can_be_merged(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1, "b": 1})
    core.edit("reviewer", "plan", lambda value: {**value, "b": 2})

    assert not core.write("planner", "plan", {"a": 2, "b": 1}).replaced


def test_mergers_go_before_replacing(open_core: OpenCore) -> None:
    core = open_core(mergers={"n": "add"})
    core.write("planner", "count", {"n": 5, "by": "planner"})
    core.edit("reviewer", "count", lambda _: {"n": 6, "by": "reviewer"})

    assert core.write("planner", "count", {"n": 7, "by": "me"}).value == {"n": 8, "by": "me"}


def test_who_says_again_what_it_wrote_last_means_it(core: CoherenceCore) -> None:
    core.write("planner", "status", {"is": "idle"})
    core.edit("reviewer", "status", lambda _: {"is": "busy"})

    assert core.write("planner", "status", {"is": "idle"}).replaced
    assert core.read("reviewer", "status").value == {"is": "idle"}


def test_who_only_writes_writes_anew_what_was_deleted(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.delete("reviewer", "plan")

    made = core.write("planner", "plan", {"a": 2})

    assert (made.version, made.replaced) == (3, False)
    assert core.read("reviewer", "plan").value == {"a": 2}


@pytest.mark.parametrize(
    "read",
    [
        lambda core: core.read("reviewer", "plan"),
        lambda core: core.snapshot("reviewer", ["plan"]),
        lambda core: core.search("reviewer"),
        lambda core: core.edit("reviewer", "plan", lambda value: value),
    ],
    ids=["read", "snapshot", "search", "edit"],
)
def test_what_was_read_since_the_last_write_is_not_replaced(
    core: CoherenceCore, read: Callable[[CoherenceCore], object]
) -> None:
    core.write("reviewer", "plan", {"a": 1})
    read(core)
    core.edit("planner", "plan", lambda _: {"a": 2})

    with pytest.raises(VersionConflict):
        core.write("reviewer", "plan", {"a": 3})
    with pytest.raises(VersionConflict):
        core.publish("reviewer", {"plan": {"a": 3}})
    assert core.read("planner", "plan").value == {"a": 2}


def test_a_search_that_does_not_give_an_artifact_has_not_read_it(core: CoherenceCore) -> None:
    core.write("reviewer", "plan", {"a": 1})
    core.search("reviewer", where=lambda value: value["a"] > 1)
    core.edit("planner", "plan", lambda _: {"a": 2})

    assert core.write("reviewer", "plan", {"a": 3}).replaced


def test_to_hold_is_not_to_read(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.read("reviewer", "plan")
    core.edit("planner", "plan", lambda _: {"a": 2})

    with core.hold("reviewer", "plan"):
        with pytest.raises(VersionConflict):
            core.write("reviewer", "plan", {"a": 3})
        core.read("reviewer", "plan")
        assert core.write("reviewer", "plan", {"a": 3}).version == 3


def test_a_write_that_was_refused_leaves_its_agent_with_what_it_read(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.read("reviewer", "plan")
    core.edit("planner", "plan", lambda _: {"a": 2})

    for _ in range(2):
        with pytest.raises(VersionConflict):
            core.write("reviewer", "plan", {"a": 3})


def test_of_several_artifacts_what_was_only_written_is_replaced(core: CoherenceCore) -> None:
    core.publish("planner", {"plan": {"a": 1}, "notes": {"a": 1}})
    core.edit("reviewer", "plan", lambda _: {"a": 2})
    made = core.publish("planner", {"plan": {"a": 3}, "notes": {"a": 3}})

    assert {name: one.replaced for name, one in made.items()} == {"plan": True, "notes": False}


def test_who_is_never_merged_is_refused_also_without_a_read(open_core: OpenCore) -> None:
    core = open_core(on_conflict="raise")
    core.write("planner", "plan", {"a": 1})
    core.edit("reviewer", "plan", lambda _: {"a": 2})

    with pytest.raises(VersionConflict):
        core.write("planner", "plan", {"a": 3})


def test_who_only_writes_is_told_what_was_replaced(open_core: OpenCore) -> None:
    told: list[Any] = []
    core = open_core(on_metric=told.append)
    core.write("planner", "plan", {"a": 1})
    core.write("reviewer", "plan", {"a": 2})
    core.write("planner", "plan", {"a": 3})
    core.write("planner", "plan", {"a": 4})
    core.flush()

    assert [(one.operation, one.agent_name, one.key) for one in told] == [
        ("put", "planner", "plan"),
        ("put", "reviewer", "plan"),
        ("replaced", "reviewer", "plan"),
        ("put", "planner", "plan"),
        ("replaced", "planner", "plan"),
        ("put", "planner", "plan"),
    ]


def test_writers_that_never_read_are_never_refused(core: CoherenceCore) -> None:
    def write(agent: str) -> list[int]:
        return [core.write(agent, "plan", {"by": agent, "n": n}).version for n in range(8)]

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(write, ["a", "b", "c", "d"]))

    assert sorted(chain(*made)) == list(range(1, 33))
    assert core.read("reader", "plan").value["n"] == 7


def test_whoever_chooses_it_overwrites_what_it_did_not_see(open_core: OpenCore) -> None:
    core = open_core(on_conflict="overwrite")
    core.write("planner", "plan", 1)
    core.read("reviewer", "plan")
    core.write("planner", "plan", 2)

    assert core.write("reviewer", "plan", 3).version == 3


def test_whoever_chooses_it_is_refused_without_a_merge(open_core: OpenCore) -> None:
    core = open_core(on_conflict="raise")
    core.write("planner", "plan", {"a": 1, "b": 1})
    core.read("reviewer", "plan")
    core.write("planner", "plan", {"a": 2, "b": 1})

    with pytest.raises(VersionConflict):
        core.write("reviewer", "plan", {"a": 1, "b": 2})


def test_of_what_is_published_together_all_is_refused_or_none(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.read("reviewer", "plan")
    core.write("planner", "plan", 2)

    with pytest.raises(VersionConflict):
        core.publish("reviewer", {"budget": 1, "plan": 3})
    with pytest.raises(VersionConflict):
        core.publish("planner", {"budget": 1, "plan": 3}, if_versions={"plan": 1})
    with pytest.raises(NotFound):
        core.read("planner", "budget")


def test_an_agent_that_does_two_things_at_once_loses_neither(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 0, "b": 0, "c": 0})
    one, other = core.read("planner", "plan"), core.read("planner", "plan")
    core.publish("planner", {"plan": {**one.value, "a": 1}}, since={"plan": one})
    core.publish("planner", {"plan": {**other.value, "b": 1}}, since={"plan": other})

    assert core.read("planner", "plan").value == {"a": 1, "b": 1, "c": 0}
    with pytest.raises(VersionConflict):
        core.publish("planner", {"plan": {**other.value, "a": 2}}, since={"plan": other})


def test_what_was_deleted_is_gone_for_everybody(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.read("reviewer", "plan")

    assert core.delete("planner", "plan") is True
    assert core.delete("planner", "plan") is False
    for agent in ("planner", "reviewer", "other"):
        with pytest.raises(NotFound):
            core.read(agent, "plan")
    assert core.artifacts() == []


def test_versions_go_on_after_a_deletion(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.read("reviewer", "plan")
    core.delete("planner", "plan")

    assert core.write("planner", "plan", 2, if_version=0).version == 3
    assert core.read("reviewer", "plan").value == 2


def test_a_write_on_what_was_deleted_meanwhile_is_refused(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.read("reviewer", "plan")
    core.delete("planner", "plan")

    with pytest.raises(VersionConflict):
        core.write("reviewer", "plan", {"a": 2})


def test_a_deletion_on_an_older_version_is_refused(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.write("planner", "plan", 2)

    with pytest.raises(VersionConflict):
        core.delete("planner", "plan", if_version=1)
    assert core.delete("planner", "plan", if_version=2)


def test_an_artifact_is_registered_once(core: CoherenceCore) -> None:
    core.register_artifact("plan", {"step": 1})

    with pytest.raises(VersionConflict):
        core.register_artifact("plan", {"step": 2})
    assert core.read("planner", "plan").version == 1


def test_what_cannot_be_stored_is_refused_and_changes_nothing(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)

    with pytest.raises(NotStorable):
        core.write("planner", "plan", object())
    with pytest.raises(NotStorable):
        core.publish("planner", {"plan": 2, "budget": object()})
    assert core.read("planner", "plan").version == 1


def test_who_deletes_under_a_grant_still_has_it(core: CoherenceCore) -> None:
    with core.hold("planner", "plan"):
        core.write("planner", "plan", 1)
        core.delete("planner", "plan")
        with pytest.raises(NotFound):
            core.read("planner", "plan")
        with pytest.raises(ArtifactHeld):
            core.write("reviewer", "plan", 2)
        core.write("planner", "plan", 3)
        state = core.state("planner", "plan")

    assert state is State.MODIFIED
    assert core.read("reviewer", "plan").value == 3


def test_a_publish_that_is_interrupted_is_made_or_not() -> None:
    class Interrupting:
        """Raises what Ctrl-C raises before the n-th line of a commit in memory."""

        def __init__(self, line: int) -> None:
            self.left, self.met = line, False

        def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
            code = frame.f_code
            if code.co_qualname != "LocalAuthority.commit":
                return self if event == "call" else None
            self.left -= event == "line"
            if self.left == 0 and not self.met:
                self.met = True
                raise KeyboardInterrupt
            return self

    seen, line, met = set(), 1, True
    while met:
        core, tracer = CoherenceCore(), Interrupting(line)
        core.publish("planner", {"plan": 1, "budget": 1})
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            core.publish("planner", {"plan": 2, "budget": 2})
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        found = core.snapshot("reviewer", ["plan", "budget"])
        seen.add((found["plan"].value, found["budget"].value))
        line, met = line + 1, tracer.met

    assert seen == {(1, 1), (2, 2)}


def test_an_artifact_that_is_there_can_be_taken_as_it_is(core: CoherenceCore) -> None:
    core.register_artifact("plan", 1, exist_ok=True)
    core.register_artifact("plan", 2, exist_ok=True)

    with pytest.raises(VersionConflict, match="exist_ok=True"):
        core.register_artifact("plan", 3)
    assert core.read("planner", "plan").value == 1


@pytest.mark.parametrize("size", [-1, 1.5, "many"])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(InvalidInput, match="size_tokens"):
        CoherenceCore().register_artifact("plan", 1, size_tokens=size)


def test_what_is_not_there_cannot_be_taken_away_on_a_condition(core: CoherenceCore) -> None:
    with pytest.raises(InvalidInput, match="cannot be taken away"):
        core.publish("planner", {"plan": ABSENT, "notes": 1}, if_versions={"plan": 0})

    assert core.artifacts() == []
