from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import _registry as registry
from bench import _report as report
from bench import _unit as unit
from bench._clock import Bounds, summarise
from bench._environment import KINDS, ROOT, interpreter, requirements
from bench._machine import describe
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench._run import Outcome, Side


def run_nothing(info: EngineInfo, size: object) -> Measured:
    return Measured()


SCENARIO = Scenario(
    name="chat",
    title="A list grows",
    run=run_nothing,
    engines=("ropewalk", "pickle"),
    metrics=(Metric("stored", "stored", "KB", 1), Metric("caught", "caught", "yes/no")),
    size={"messages": 10},
    quick={"messages": 1},
    targets=(
        Target("stored", 2.0, "new bytes"),
        Target("caught", 1.0, "a change in place is caught", "at least"),
    ),
)


def outcome(stored: Sequence[float], caught: Sequence[float] = (1.0,)) -> Outcome:
    ours = Side({"stored": summarise(stored), "caught": summarise(caught)}, version="1.0")
    floor = Side({"stored": summarise([9.0])}, notes=["stopped at 3 messages by its time cap"])
    return Outcome(SCENARIO, SCENARIO.size, len(stored), {"ropewalk": ours, "pickle": floor})


def test_every_scenario_names_known_sides_and_metrics() -> None:
    for scenario in registry.scenarios().values():
        assert set(scenario.engines) <= set(registry.engines())
        keys = {metric.key for metric in scenario.metrics}
        assert {target.metric for target in scenario.targets} <= keys
        for target in scenario.targets:
            assert {target.side, *target.others} <= set(scenario.engines)
        assert scenario.size.keys() == scenario.quick.keys()


def test_every_peer_is_pinned_and_says_what_a_program_imports() -> None:
    for name, kind in KINDS.items():
        pinned = {line.split("==")[0] for line in requirements(kind.requirements.read_text())}
        found = [info for info in registry.engines().values() if info.environment == name]
        peers = [info for info in found if info.package != "ropewalk"]

        assert {info.package for info in peers} <= pinned
        assert all(info.imports for info in peers)


def test_a_python_that_is_nowhere_is_said() -> None:
    assert interpreter(None) == sys.executable
    with pytest.raises(OSError, match=r"no Python 3\.0 "):
        interpreter("3.0")


def test_a_requirement_is_a_line_without_its_comment() -> None:
    assert requirements("# all\na==1\n\nb==2  # why\n") == ["a==1", "b==2"]


@pytest.mark.parametrize("engine", ["pickle", "msgpack", "zstd"])
def test_a_unit_measures_a_floor(engine: str) -> None:
    found = unit.measure("chat", engine, {"messages": 30, "seconds": 30})

    assert found["figures"]["messages"] == 30
    assert found["figures"]["amplification"] > 4
    assert found["notes"] == []


def test_a_unit_that_reaches_its_cap_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter([None] * 4)
    monkeypatch.setattr(Bounds, "reached", lambda bounds: next(steps, "its time cap"))

    found = unit.measure("chat", "pickle", {"messages": 100, "seconds": 30})

    assert found["figures"]["messages"] == 5
    assert found["notes"] == ["stopped at 5 messages by its time cap"]


def test_bounds_name_the_cap_that_was_reached() -> None:
    assert Bounds(seconds=3600).reached() is None
    assert "time" in str(Bounds(seconds=-1).reached())
    assert "memory" in str(Bounds(seconds=3600, memory=1).reached())


def test_a_target_is_met_by_the_median() -> None:
    results = [one.result for one in report.verdicts([outcome([1.0, 2.0, 50.0])], quick=False)]

    assert results == ["pass", "pass"]


def test_a_figure_beyond_its_target_is_a_miss() -> None:
    results = [one.result for one in report.verdicts([outcome([3.0], [0.0])], quick=False)]

    assert results == ["miss", "miss"]


def test_a_quick_run_judges_nothing() -> None:
    results = {one.result for one in report.verdicts([outcome([3.0])], quick=True)}

    assert results == {"not judged"}


def test_a_side_of_ours_that_failed_is_not_measured() -> None:
    failed = Outcome(SCENARIO, SCENARIO.size, 1, {"ropewalk": Side(failure="it broke")})

    results = {one.result for one in report.verdicts([failed], quick=False)}
    text = report.markdown([failed], registry.engines(), {}, quick=False)

    assert results == {"not measured"}
    assert "it broke" in text


def test_a_side_of_ours_that_failed_once_proves_nothing() -> None:
    mixed = outcome([1.0])
    mixed.sides["ropewalk"].failure = "it broke the second time"

    assert {one.result for one in report.verdicts([mixed], quick=False)} == {"not measured"}


def test_the_markdown_shows_median_spread_target_and_notes() -> None:
    text = report.markdown([outcome([1.0, 2.0, 5.0])], registry.engines(), {"cpu": "X"}, False)

    assert "| chat | new bytes | at most 2 KB | 2.000 (1.000 to 5.000) | pass |" in text
    assert "| chat | a change in place is caught | yes | yes | pass |" in text
    assert "2.0 (1.0 to 5.0)" in text
    assert "stopped at 3 messages by its time cap" in text
    assert "- cpu: X" in text


def test_the_json_holds_every_value() -> None:
    whole = json.loads(json.dumps(report.document([outcome([1.0, 3.0])], {}, quick=False)))

    stored = whole["scenarios"]["chat"]["sides"]["ropewalk"]["figures"]["stored"]
    assert stored == {"median": 2.0, "low": 1.0, "high": 3.0, "values": [1.0, 3.0]}
    assert [one["result"] for one in whole["targets"]] == ["pass", "pass"]


def beside(target: Target, ours: Sequence[float], **others: Sequence[float]) -> report.Verdict:
    """The verdict on a target; a side without figures has failed."""
    scenario = replace(SCENARIO, targets=(target,))
    sides = {"ropewalk": Side({"stored": summarise(ours)})}
    for name, values in others.items():
        figures = {"stored": summarise(values)} if values else {}
        sides[name] = Side(figures, failure=None if values else "it broke")
    return report.verdicts([Outcome(scenario, {}, 1, sides)], quick=False)[0]


def test_a_target_can_bound_our_figure_over_that_of_another_side() -> None:
    target = Target("stored", 1.5, "over the floor", over=("pickle",))

    assert beside(target, [3.0], pickle=[2.0]).result == "pass"
    assert beside(target, [3.1], pickle=[2.0]).result == "miss"


def test_a_target_can_ask_how_far_others_are_above_us() -> None:
    target = Target("stored", 2.0, "below them", "at least", under=("pickle",))

    assert beside(target, [3.0], pickle=[6.0]).result == "pass"
    assert beside(target, [3.0], pickle=[5.9]).result == "miss"


def test_among_several_sides_the_one_that_is_worst_for_us_decides() -> None:
    target = Target("stored", 2.0, "below all", "at least", under=("pickle", "zstd"))

    verdict = beside(target, [1.0], pickle=[9.0], zstd=[3.0])

    assert verdict.measured is not None
    assert verdict.measured.median == 3.0
    assert verdict.beside == "beside zstd"


def test_a_comparison_is_made_round_by_round() -> None:
    target = Target("stored", 1.5, "over the floor", over=("pickle",))

    verdict = beside(target, [1.0, 10.0, 1.0], pickle=[1.0, 10.0, 2.0])

    assert verdict.measured is not None
    assert verdict.measured.values == (1.0, 1.0, 0.5)


def test_a_side_that_failed_is_named_as_left_out_of_a_comparison() -> None:
    target = Target("stored", 2.0, "below all", "at least", under=("pickle", "zstd"))

    verdict = beside(target, [1.0], pickle=[9.0], zstd=[])

    assert verdict.beside == "beside pickle, without zstd"


def test_a_figure_with_nothing_beside_it_is_not_compared_and_fails_nothing() -> None:
    target = Target("stored", 2.0, "below all", "at least", under=("pickle",))

    verdict = beside(target, [1.0])

    assert verdict.result == "not compared"
    assert command.exit_code([verdict], strict=True) == 0


def test_a_side_that_stopped_early_is_compared_at_the_last_mark_that_both_passed() -> None:
    target = Target("stored", 2.0, "below it", "at least", under=("pickle",))
    ours, other = Side({"stored": summarise([10.0])}), Side({"stored": summarise([12.0])})
    ours.courses["stored"] = [summarise([mark]) for mark in (1.0, 2.0, 10.0)]
    other.courses["stored"] = [summarise([mark]) for mark in (4.0, 12.0)]

    found = report.compare(target, ours, other)

    assert found.ratio.median == 6.0
    assert found.where == "at mark 2 of 3"


@pytest.mark.parametrize(
    ("stored", "strict", "code"), [(1.0, False, 0), (9.0, False, 0), (1.0, True, 0), (9.0, True, 1)]
)
def test_a_miss_fails_only_a_strict_run(stored: float, strict: bool, code: int) -> None:
    found = report.verdicts([outcome([stored])], quick=False)

    assert command.exit_code(found, strict) == code


def test_a_run_in_which_ours_was_not_measured_fails() -> None:
    failed = Outcome(SCENARIO, SCENARIO.size, 1, {"ropewalk": Side(failure="it broke")})

    assert command.exit_code(report.verdicts([failed], quick=False), strict=False) == 1


def test_the_machine_is_described_with_its_disk_and_load(tmp_path: Path) -> None:
    about = describe(tmp_path)

    assert about["disk"].startswith("a write of 4 KB with its sync takes ")
    assert float(about["load before the run"]) >= 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("family", ["engines", "threads", "state", "langgraph", "steps"])
def test_the_name_of_a_family_names_all_of_it(family: str) -> None:
    chosen = command.picked(command.arguments([family]))

    assert [one.name for one in chosen] == [
        one for one in registry.scenarios() if one.startswith(f"{family}-")
    ]


def test_a_scenario_whose_name_begins_others_names_itself() -> None:
    assert [one.name for one in command.picked(command.arguments(["chat"]))] == ["chat"]


def test_a_star_names_several_scenarios_in_the_order_in_which_they_run() -> None:
    chosen = command.arguments(["chat*", "chat"])

    assert [scenario.name for scenario in command.picked(chosen)] == ["chat", "chat-disk"]


@pytest.mark.parametrize(
    "given",
    [["nonsense"], ["nonsense-*"], ["--only", "nobody"], ["--repeat", "0"], ["--steps", "1"]],
)
def test_a_wrong_command_line_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.arguments(given)

    assert refused.value.code == 2


def test_the_environment_of_a_peer_needs_no_ropewalk() -> None:
    code = (
        "import sys; sys.modules['ropewalk'] = None\n"
        "from bench import _registry, _unit\n"
        "assert _registry.scenarios() and _registry.engines()"
    )

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
