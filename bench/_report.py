"""The report: Markdown for people, JSON for programs. Pure functions over outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench._clock import Summary, summarise
from bench._model import EngineInfo, Metric, Target
from bench._run import Outcome, Side


@dataclass(frozen=True)
class Verdict:
    """One target beside what was measured for it."""

    scenario: str
    target: Target
    unit: str
    measured: Summary | None
    judged: bool
    beside: str = ""
    """Which other side decided, in words; empty for a bound on our figure alone."""
    compared: bool = True
    """False if our figure is there, and none to compare it with."""

    @property
    def result(self) -> str:
        """pass, miss, not judged (a quick run), not compared, or not measured."""
        if not self.compared:
            return "not compared"
        if self.measured is None:
            return "not measured"
        if not self.judged:
            return "not judged"
        return "pass" if self.target.met(self.measured.median) else "miss"


def verdicts(outcomes: Iterable[Outcome], quick: bool) -> list[Verdict]:
    """Every target of every scenario that ran with the target's side of ours."""
    return [
        _verdict(outcome, target, quick)
        for outcome in outcomes
        for target in outcome.scenario.targets
        if target.side in outcome.sides
    ]


def _verdict(outcome: Outcome, target: Target, quick: bool) -> Verdict:
    units = {metric.key: metric.unit for metric in outcome.scenario.metrics}
    ours = outcome.sides[target.side]
    # A side that failed in one repetition proves nothing by the others.
    measured = None if ours.failure else ours.figures.get(target.metric)
    name, unit = outcome.scenario.name, units.get(target.metric, "")
    if not target.others:
        return Verdict(name, target, unit, measured, judged=not quick)
    if measured is None:
        return Verdict(name, target, "x", None, judged=not quick)
    return _compared(outcome, target, quick)


def _compared(outcome: Outcome, target: Target, quick: bool) -> Verdict:
    ours, ratios = outcome.sides[target.side], dict[str, Compared]()
    for name in target.others:
        other = outcome.sides.get(name)
        if other is not None and not other.failure and target.metric in other.figures:
            ratios[name] = compare(target, ours, other)
    if not ratios:
        return Verdict(outcome.scenario.name, target, "x", None, not quick, compared=False)
    worst = max if target.bound == "at most" else min
    decides = worst(ratios, key=lambda name: ratios[name].ratio.median)
    absent = [name for name in target.others if name not in ratios]
    told = [f"beside {decides}", ratios[decides].where]
    told.append(f"without {', '.join(absent)}" if absent else "")
    beside = ", ".join(part for part in told if part)
    return Verdict(
        outcome.scenario.name, target, "x", ratios[decides].ratio, not quick, beside=beside
    )


@dataclass(frozen=True)
class Compared:
    """A figure of ours beside that of one other side, and where in the work."""

    ratio: Summary
    where: str = ""


def compare(target: Target, ours: Side, other: Side) -> Compared:
    """The ratio of two sides; if one stopped early, at the last mark that both passed."""
    key = target.metric
    mine, theirs, where = ours.figures[key], other.figures[key], ""
    marks, others = ours.courses.get(key, []), other.courses.get(key, [])
    common = min(len(marks), len(others))
    if common < max(len(marks), len(others)) and common:
        mine, theirs = marks[common - 1], others[common - 1]
        where = f"at mark {common} of {max(len(marks), len(others))}"
    if len(mine.values) == len(theirs.values):  # Round by round: a busy machine is so to both.
        pairs = zip(mine.values, theirs.values, strict=True)
        return Compared(summarise([target.ratio(*pair) for pair in pairs]), where)
    return Compared(summarise([target.ratio(mine.median, theirs.median)]), where)


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
        "brackets; sides take turns; times are CPU times, unless they are called wall; KB and "
        "MB are powers of 1,000"
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
            _found(verdict),
            verdict.result,
        ]
        for verdict in found
    ]
    return "## Targets\n\n" + _table(["scenario", "what", "target", "Ropewalk", "result"], rows)


def _found(verdict: Verdict) -> str:
    figure = _figure(verdict.measured, verdict.unit, 3)
    return f"{figure}, {verdict.beside}" if verdict.beside else figure


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
        "side": verdict.target.side,
        "measured": verdict.measured.median if verdict.measured else None,
        "beside": verdict.beside,
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
