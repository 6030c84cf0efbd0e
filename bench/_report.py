"""The report: Markdown for people, JSON for programs. Pure functions over outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench._model import EngineInfo, Metric, Target
from bench._run import Outcome, Side
from bench._stats import Summary

OURS = "holdfast"


@dataclass(frozen=True)
class Verdict:
    """One target beside what was measured for it."""

    scenario: str
    target: Target
    unit: str
    measured: Summary | None
    judged: bool

    @property
    def result(self) -> str:
        """pass, miss, not judged (a quick run), or not measured."""
        if self.measured is None:
            return "not measured"
        if not self.judged:
            return "not judged"
        return "pass" if self.target.met(self.measured.median) else "miss"


def verdicts(outcomes: Iterable[Outcome], quick: bool) -> list[Verdict]:
    """Every target of every scenario that ran with our side."""
    return [
        _verdict(outcome, target, quick)
        for outcome in outcomes
        if OURS in outcome.sides
        for target in outcome.scenario.targets
    ]


def _verdict(outcome: Outcome, target: Target, quick: bool) -> Verdict:
    units = {metric.key: metric.unit for metric in outcome.scenario.metrics}
    ours = outcome.sides[OURS]
    # A side that failed in one repetition proves nothing by the others.
    measured = None if ours.failure else ours.figures.get(target.metric)
    unit = units.get(target.metric, "")
    return Verdict(outcome.scenario.name, target, unit, measured, judged=not quick)


# -- Markdown ---------------------------------------------------------------------------


def markdown(
    outcomes: Sequence[Outcome],
    infos: Mapping[str, EngineInfo],
    about: Mapping[str, str],
    quick: bool,
) -> str:
    """The whole report."""
    parts = ["# Benchmarks\n", _about(about, quick), _sides(outcomes, infos)]
    if found := verdicts(outcomes, quick):
        parts.append(_targets(found))
    parts += [_scenario(outcome, infos) for outcome in outcomes]
    return "\n".join(parts)


def _about(about: Mapping[str, str], quick: bool) -> str:
    lines = [f"- {name}: {value}" for name, value in about.items()]
    if quick:
        lines.append("- a quick run: smaller sizes, so targets are not judged")
    lines.append(
        "- a figure is the median over fresh processes, with the lowest and highest in "
        "brackets; sides take turns; times are CPU times; KB and MB are powers of 1,000"
    )
    return "\n".join(lines) + "\n"


def _sides(outcomes: Iterable[Outcome], infos: Mapping[str, EngineInfo]) -> str:
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.sides)
    noted = [infos[name] for name in names if infos[name].note]
    return "".join(f"- {info.label}: {info.note}\n" for info in noted)


def _targets(found: Sequence[Verdict]) -> str:
    rows = [
        [
            verdict.scenario,
            verdict.target.text,
            _bound(verdict),
            _figure(verdict.measured, verdict.unit, 3),
            verdict.result,
        ]
        for verdict in found
    ]
    return "## Targets\n\n" + _table(["scenario", "what", "target", "Holdfast", "result"], rows)


def _bound(verdict: Verdict) -> str:
    if verdict.unit == "yes/no":
        return "yes"
    return f"{verdict.target.bound} {verdict.target.limit:g} {verdict.unit}".strip()


def _scenario(outcome: Outcome, infos: Mapping[str, EngineInfo]) -> str:
    scenario = outcome.scenario
    size = ", ".join(f"{name} {value:,}" for name, value in outcome.size.items())
    head = f"## {scenario.name}\n\n{scenario.title}.\n\nSize: {size}; runs: {outcome.repeat}.\n"
    columns = ["side", *(_column(metric) for metric in scenario.metrics)]
    rows = [
        [_label(infos[name], side), *_cells(scenario.metrics, side)]
        for name, side in outcome.sides.items()
        if side.figures
    ]
    return "\n".join([head, _table(columns, rows), _notes(outcome, infos)])


def _column(metric: Metric) -> str:
    plain = metric.unit in ("", "yes/no")
    return metric.label if plain else f"{metric.label}, {metric.unit}"


def _label(info: EngineInfo, side: Side) -> str:
    return f"{info.label} ({side.version})" if side.version else info.label


def _cells(metrics: Iterable[Metric], side: Side) -> list[str]:
    return [_figure(side.figures.get(metric.key), metric.unit, metric.digits) for metric in metrics]


def _figure(summary: Summary | None, unit: str, digits: int) -> str:
    if summary is None:
        return "-"
    if unit == "yes/no":
        return "yes" if summary.low >= 1 else "no"
    low, middle, high = (
        f"{value:,.{digits}f}" for value in (summary.low, summary.median, summary.high)
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def _notes(outcome: Outcome, infos: Mapping[str, EngineInfo]) -> str:
    lines = list(outcome.scenario.notes)
    for name, side in outcome.sides.items():
        label = infos[name].label
        lines += [f"{label}: {note}." for note in side.notes]
        if side.failure:
            lines.append(f"{label}: did not run to its end: {side.failure}.")
    return "".join(f"- {line}\n" for line in lines)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(_escape(cell) for cell in line) + " |\n" for line in lines)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


# -- JSON -------------------------------------------------------------------------------


def document(outcomes: Sequence[Outcome], about: Mapping[str, str], quick: bool) -> dict[str, Any]:
    """The whole report as plain values."""
    return {
        "about": dict(about),
        "quick": quick,
        "targets": [_verdict_json(verdict) for verdict in verdicts(outcomes, quick)],
        "scenarios": {outcome.scenario.name: _outcome_json(outcome) for outcome in outcomes},
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "scenario": verdict.scenario,
        "metric": verdict.target.metric,
        "what": verdict.target.text,
        "bound": verdict.target.bound,
        "limit": verdict.target.limit,
        "measured": verdict.measured.median if verdict.measured else None,
        "result": verdict.result,
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "title": outcome.scenario.title,
        "size": dict(outcome.size),
        "repeat": outcome.repeat,
        "sides": {name: _side_json(side) for name, side in outcome.sides.items()},
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "version": side.version,
        "failure": side.failure,
        "notes": side.notes,
        "figures": {
            key: {"median": one.median, "low": one.low, "high": one.high, "values": one.values}
            for key, one in side.figures.items()
        },
    }
