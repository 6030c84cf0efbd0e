"""The checker finds each kind of broken promise, and accepts what keeps them all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.coherence.histories.checker import RULES, check
from tests.coherence.histories.recording import (
    ABSENT,
    BROKEN,
    OK,
    REFUSED,
    UNKNOWN,
    Operation,
    Record,
    Recorder,
    Seen,
    Version,
    load,
)


class Run:
    """A record in the making: operations one second apart, and what they leave."""

    def __init__(self) -> None:
        self.operations: dict[str, Operation] = {}
        self.versions: dict[tuple[str, int], Version] = {}
        self._now = 0.0

    def do(
        self, name: str, agent: str, kind: str, *at: str, lasts: float = 0.5, **more: Any
    ) -> None:
        """Let an agent do something, a second after what came before."""
        self._now += 1
        more.setdefault("outcome", OK)
        asked = {"invoked": self._now, "returned": self._now + lasts} | more
        self.operations[name] = Operation(name, agent, kind, at, **asked)

    def write(
        self, name: str, agent: str, artifact: str, *, kind: str = "edit", **more: Any
    ) -> None:
        """Let an agent write the next version."""
        number = 1 + max((one for at, one in self.versions if at == artifact), default=0)
        value = more.pop("value", None) or {"by": name}
        self.versions[artifact, number] = Version(artifact, number, value)
        more.setdefault("seen", {artifact: Seen(number, value)})
        self.do(name, agent, kind, artifact, writes=True, **more)

    def read(self, name: str, agent: str, artifact: str, version: int, **more: Any) -> None:
        """Let an agent read a version."""
        seen = {artifact: Seen(version, self.versions[artifact, version].value)}
        self.do(name, agent, "read", artifact, seen=seen, **more)

    def change(self, name: str, **more: Any) -> None:
        """Let an operation have been otherwise."""
        self.operations[name] = replace(self.operations[name], **more)

    def rules(self) -> list[str]:
        """The rules that this breaks."""
        record = Record(tuple(self.operations.values()), tuple(self.versions.values()))
        return sorted({one.rule for one in check(record)})


def sound() -> Run:
    """A run of two agents that keeps every promise."""
    run = Run()
    run.write("r1", "", "plan", kind="register")
    run.read("o1", "ann", "plan", 1)
    run.write("o2", "ann", "plan", expected=1)
    run.read("o3", "bob", "plan", 2)
    run.write("o4", "bob", "plan", expected=2, grant="g1")
    run.write("o5", "bob", "plan", kind="write", grant="g1")
    run.read("o6", "ann", "plan", 4)
    run.do("o7", "ann", "write", "plan", writes=True, expected=3, outcome=REFUSED,
           why="VersionConflict")  # fmt: skip
    run.do("o8", "ann", "write", "plan", writes=True, outcome=UNKNOWN, returned=math.inf)
    run.write("c1", "", "count", kind="register", value={"by": "c1", "count": 0})
    run.write("c2", "ann", "count", kind="edit", value={"by": "c2", "count": 1})
    run.write("c3", "bob", "count", kind="edit", value={"by": "c3", "count": 2})
    run.write("l1", "", "log", kind="register", value={"items": ["l1"], "total": 1})
    run.write("l2", "ann", "log", value={"items": ["l1", "l2"], "total": 2})
    run.write("l3", "bob", "log", value={"items": ["l1", "l2", "l3"], "total": 3})
    run.write(
        "l4", "bob", "log", kind="begin anew", value={"items": ["l4"], "total": 1}, expected=3
    )
    publish(run, "p1")
    publish(run, "p2")
    snapshot(run, "s1", 2, 2)
    run.write("d1", "ann", "note")
    run.versions["note", 2] = Version("note", 2, None, deleted=True)
    run.do("d2", "ann", "delete", "note", writes=True, expected=1, seen={"note": Seen(2, None)})
    run.do("d3", "bob", "read", "note", outcome=ABSENT)
    run.write("d4", "bob", "note", expected=0)
    for artifact in ("plan", "count", "log", "left", "right", "note"):
        last(run, artifact)
    return run


def publish(run: Run, name: str) -> None:
    """Let an agent write two artifacts at once."""
    number = 1 + max((one for at, one in run.versions if at == "left"), default=0)
    value = {"by": name}
    for at in ("left", "right"):
        run.versions[at, number] = Version(at, number, value)
    seen = {at: Seen(number, value) for at in ("left", "right")}
    run.do(name, "ann", "publish", "left", "right", writes=True, seen=seen)


def snapshot(run: Run, name: str, left: int, right: int) -> None:
    """Let an agent read two artifacts at once."""
    seen = {
        "left": Seen(left, run.versions["left", left].value),
        "right": Seen(right, run.versions["right", right].value),
    }
    run.do(name, "bob", "snapshot", "left", "right", seen=seen)


def last(run: Run, artifact: str) -> None:
    """Let a new agent write at the end."""
    before = [one for (at, _), one in run.versions.items() if at == artifact][-1].value
    name = f"last {artifact}"
    value: dict[str, Any] = {"by": name}
    if "count" in before:
        value["count"] = before["count"] + 1
    if "items" in before:
        value = {"items": [*before["items"], name], "total": before["total"] + 1}
    run.write(name, "new", artifact, kind="last", value=value)


def test_a_run_that_keeps_every_promise_is_accepted() -> None:
    assert sound().rules() == []


def test_an_operation_that_nobody_saw_the_end_of_may_have_happened() -> None:
    run = sound()
    run.write("u1", "ann", "plan", outcome=UNKNOWN, returned=math.inf, seen={})
    run.read("u2", "bob", "plan", 6)

    assert run.rules() == []


def test_a_read_may_be_late_within_its_bound() -> None:
    run = sound()
    run.write("w1", "ann", "plan")
    run.read("w2", "bob", "plan", 5, within=0.5)
    run.read("w3", "cat", "plan", 5, within=1.5)

    assert run.rules() == []


def test_a_read_that_takes_long_may_return_what_was_current_when_it_began() -> None:
    run = sound()
    run.read("w1", "bob", "plan", 5, lasts=2.0)
    run.write("w2", "ann", "plan")

    assert run.rules() == []


def test_reads_may_be_late_as_often_as_they_may() -> None:
    run = sound()
    run.write("w1", "ann", "plan")
    for number in range(3):
        run.read(f"w2{number}", "bob", "plan", 5, accesses=3)
        run.read(f"w3{number}", "cat", "plan", 5, accesses=3)

    assert run.rules() == []


def test_a_plain_write_may_be_refused_if_others_wrote() -> None:
    run = sound()
    run.do("w1", "bob", "write", "plan", writes=True, outcome=REFUSED, why="VersionConflict")

    assert run.rules() == []


def test_who_was_killed_has_seen_nothing() -> None:
    run = sound()
    run.write("p1l1.1", "bob", "plan", kind="write")

    assert run.rules() == []


# What is broken on purpose, and the rule that must notice.

Breaking = Callable[[Run], object]


def _stale(run: Run) -> None:
    run.write("w1", "ann", "plan")
    run.read("w2", "bob", "plan", 5)


def _stale_by_what_others_read(run: Run) -> None:
    """The write was never acknowledged, but somebody has seen it."""
    run.write("w1", "ann", "plan", outcome=UNKNOWN, returned=math.inf, seen={})
    run.read("w2", "bob", "plan", 6)
    run.read("w3", "cat", "plan", 5)


def _late_beyond_its_bound(run: Run) -> None:
    run.write("w1", "ann", "plan")
    run.do("w2", "ann", "snapshot", "left")
    run.read("w3", "bob", "plan", 5, within=1.4)


def _late_too_often(run: Run) -> None:
    run.write("w1", "ann", "plan")
    for number in range(4):
        run.read(f"w2{number}", "bob", "plan", 5, accesses=3)


def _read_before_it_was_written(run: Run) -> None:
    run.write("w1", "ann", "plan")
    run.read("w2", "bob", "plan", 6, invoked=0.1, returned=0.2)


def _written_in_the_past(run: Run) -> None:
    """An acknowledged write got a version below one that others had seen before it began."""
    run.write("w1", "ann", "plan", invoked=90.0, returned=91.0)
    run.write("w2", "bob", "plan", invoked=80.0, returned=81.0)


def _deleted_but_read(run: Run) -> None:
    run.read("w1", "bob", "note", 1)


def _absent_but_there(run: Run) -> None:
    run.do("w1", "bob", "read", "note", outcome=ABSENT)


def _absent_before_it_was_deleted(run: Run) -> None:
    run.change("d3", invoked=run.operations["d1"].returned + 0.1,
               returned=run.operations["d2"].invoked - 0.1)  # fmt: skip


def _forgotten_within_the_bound(run: Run) -> None:
    """The time allows it, but this agent had seen the later one itself."""
    run.read("w1", "bob", "plan", 5)
    run.read("w2", "bob", "plan", 4, within=100.0)


def _absent_after_it_was_seen(run: Run) -> None:
    run.read("w1", "bob", "note", 3)
    run.do("w2", "bob", "read", "note", outcome=ABSENT, within=100.0)


def _lost_increment(run: Run) -> None:
    run.write("w1", "ann", "count", kind="edit", value={"by": "w1", "count": 3})


def _counted_twice(run: Run) -> None:
    run.write("w1", "ann", "count", kind="edit", value={"by": "w1", "count": 5})


def _lost_line(run: Run) -> None:
    run.write("w1", "ann", "log", value={"items": ["l4", "w1"], "total": 2})


def _line_twice(run: Run) -> None:
    items = ["l4", "last log", "last log", "w1"]
    run.write("w1", "ann", "log", value={"items": items, "total": 4})


def _wrong_sum(run: Run) -> None:
    run.write("w1", "ann", "log", value={"items": ["l4", "last log", "w1"], "total": 4})


def _gap(run: Run) -> None:
    run.versions["plan", 7] = Version("plan", 7, {"by": "w1"})
    run.do("w1", "ann", "write", "plan", writes=True, outcome=UNKNOWN)


def _applied_twice(run: Run) -> None:
    run.write("w1", "ann", "plan")
    run.versions["plan", 7] = Version("plan", 7, {"by": "w1"})


def _written_by_nobody(run: Run) -> None:
    run.versions["plan", 6] = Version("plan", 6, {"by": "a ghost"})


def _refused_and_yet_written(run: Run) -> None:
    run.versions["plan", 6] = Version("plan", 6, {"by": "o7"})


def _acknowledged_and_not_there(run: Run) -> None:
    run.do("w1", "ann", "write", "plan", writes=True, seen={"plan": Seen(6, {"by": "w1"})})


def _acknowledged_and_overwritten(run: Run) -> None:
    run.change("o2", seen={"plan": Seen(1, {"by": "r1"})})


def _another_value(run: Run) -> None:
    run.change("o3", seen={"plan": Seen(2, {"by": "r1"})})


def _invented_value(run: Run) -> None:
    run.change("o3", seen={"plan": Seen(2, {})})


def _swapped_with_something_else(run: Run) -> None:
    run.write("w1", "ann", "plan", expected=3)


def _created_over_something(run: Run) -> None:
    run.write("w1", "ann", "plan", expected=0)


def _refused_without_a_rival(run: Run) -> None:
    run.do("w1", "ann", "write", "plan", writes=True, expected=5, outcome=REFUSED,
           why="VersionConflict")  # fmt: skip


def _creation_refused_without_a_rival(run: Run) -> None:
    run.do("w1", "ann", "write", "none", writes=True, expected=0, outcome=REFUSED,
           why="VersionConflict")  # fmt: skip


def _overwritten_blindly(run: Run) -> None:
    """Bob has seen version 4; version 5 is lost to him."""
    run.write("w1", "bob", "plan", kind="write")


def _published_blindly(run: Run) -> None:
    publish(run, "w1")


def _plain_write_refused_without_a_rival(run: Run) -> None:
    run.read("w1", "ann", "plan", 5)
    run.do("w2", "ann", "write", "plan", writes=True, outcome=REFUSED, why="VersionConflict")


def _held_for_ever(run: Run) -> None:
    refused: dict[str, Any] = {"writes": True, "outcome": REFUSED, "why": "ArtifactHeld"}
    run.do("w1", "ann", "write", "plan", **refused)
    run.do("w2", "ann", "write", "plan", **refused, invoked=1000.0, returned=1001.0)


def _held_by_nobody(run: Run) -> None:
    run.do("w1", "ann", "write", "count", writes=True, outcome=REFUSED, why="ArtifactHeld")


def _half_published(run: Run) -> None:
    publish(run, "w1")
    del run.versions["right", 4]
    run.change("w1", outcome=UNKNOWN, returned=math.inf, seen={})


def _half_seen(run: Run) -> None:
    """Nobody else has seen the second half either, so time alone does not tell."""
    run.change("p2", outcome=UNKNOWN, returned=math.inf, seen={})
    run.change(
        "s1", seen={"left": run.operations["s1"].seen["left"], "right": Seen(1, {"by": "p1"})}
    )


def _two_moments(run: Run) -> None:
    run.do("w1", "bob", "snapshot", "plan", "count", lasts=5.0, seen={
        "plan": Seen(5, {"by": "last plan"}), "count": Seen(5, {"by": "w3", "count": 4}),
    })  # fmt: skip
    run.write("w2", "ann", "plan", returned=run.operations["w1"].invoked + 1.5)
    run.write("w3", "ann", "count", value={"by": "w3", "count": 4})


def _written_between(run: Run) -> None:
    run.write("w1", "ann", "plan", grant="g2")
    run.write("w2", "bob", "plan")
    run.write("w3", "ann", "plan", grant="g2")


def _written_after_a_reclaim(run: Run) -> None:
    run.write("w1", "bob", "plan", grant="g1")


def _cannot_be_written(run: Run) -> None:
    run.change("last note", kind="write")


def _error(run: Run) -> None:
    run.do("w1", "ann", "read", "plan", outcome=BROKEN, why="KeyError: 'plan'")


MUTANTS: list[tuple[str, Breaking]] = [
    ("bounds", _stale),
    ("bounds", _stale_by_what_others_read),
    ("bounds", _late_beyond_its_bound),
    ("accesses", _late_too_often),
    ("bounds", _read_before_it_was_written),
    ("bounds", _written_in_the_past),
    ("bounds", _deleted_but_read),
    ("bounds", _absent_but_there),
    ("bounds", _absent_before_it_was_deleted),
    ("backwards", _forgotten_within_the_bound),
    ("backwards", _absent_after_it_was_seen),
    ("counters", _lost_increment),
    ("counters", _counted_twice),
    ("logs", _lost_line),
    ("logs", _line_twice),
    ("logs", _wrong_sum),
    ("versions", _gap),
    ("versions", _applied_twice),
    ("versions", _written_by_nobody),
    ("versions", _refused_and_yet_written),
    ("values", _acknowledged_and_not_there),
    ("values", _acknowledged_and_overwritten),
    ("values", _another_value),
    ("values", _invented_value),
    ("swaps", _swapped_with_something_else),
    ("swaps", _created_over_something),
    ("swaps", _refused_without_a_rival),
    ("swaps", _creation_refused_without_a_rival),
    ("swaps", _held_by_nobody),
    ("bases", _overwritten_blindly),
    ("bases", _published_blindly),
    ("bases", _plain_write_refused_without_a_rival),
    ("blocked", _held_for_ever),
    ("together", _half_published),
    ("together", _half_seen),
    ("together", _two_moments),
    ("grants", _written_between),
    ("grants", _written_after_a_reclaim),
    ("dead", _cannot_be_written),
    ("errors", _error),
]


@pytest.mark.parametrize(
    ("rule", "breaking"), MUTANTS, ids=lambda one: getattr(one, "__name__", one)
)
def test_what_is_broken_on_purpose_is_noticed(rule: str, breaking: Breaking) -> None:
    run = sound()
    breaking(run)

    assert rule in run.rules()


def test_each_rule_is_broken_on_purpose() -> None:
    assert {rule for rule, _ in MUTANTS} == set(RULES)


# What is written down comes back.


def test_what_a_process_did_comes_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one", "p1")
    name = recorder.begin("ann", "write", ["plan"], writes=True, expected=1)
    recorder.end(name, OK, {"plan": Seen(2, {"by": name})})
    (found,) = load([tmp_path / "one"])
    recorder.close()

    assert (found.name, found.agent, found.kind, found.artifacts) == (
        name,
        "ann",
        "write",
        ("plan",),
    )
    assert found.invoked <= found.returned < math.inf
    assert found.seen == {"plan": Seen(2, {"by": name})}
    assert found.writes and found.expected == 1


def test_what_a_killed_process_was_about_to_do_is_unknown(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one", "p1")
    recorder.begin("ann", "write", ["plan"], writes=True)
    torn = (tmp_path / "one").read_text()[:-5]
    (tmp_path / "two").write_text(torn)
    (found,) = load([tmp_path / "one", tmp_path / "two"])
    recorder.close()

    assert found.outcome == UNKNOWN and found.returned == math.inf
