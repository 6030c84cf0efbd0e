"""`python -m bench`: runs the scenarios and writes the report."""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import _registry as registry
from bench import _report as report
from bench._environment import ROOT, Environment, prepare
from bench._machine import describe
from bench._model import Scenario
from bench._run import Outcome, run_scenario
from bench._text import Text, message

RESULTS = Path(__file__).with_name("results")


def say(line: str) -> None:
    """Progress, on the error stream."""
    print(line, file=sys.stderr, flush=True)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Ropewalk beside its peers and plain floors, on the same work.",
        epilog="Exit code: 0 also when a target is missed; 1 when a side of ours could not be "
        "measured or, with --strict, when a target is missed; 2 for a wrong command line.",
    )
    known = ", ".join(registry.scenarios())
    parser.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help=f"some of: {known}; engines, threads, langgraph, frameworks, coherence or 'state-*' "
        "are several",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of every side")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="so many steps, where a scenario has steps"
    )
    parser.add_argument("--only", metavar="SIDES", help="only these sides, with commas between")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="for the report")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument("--list", action="store_true", help="list scenarios and sides, and stop")
    chosen = parser.parse_args(given)
    _check(parser, chosen)
    return chosen


def _check(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    sides = chosen.only.split(",") if chosen.only else []
    unknown = [name for name in chosen.scenarios if not _named(name)]
    unknown += [name for name in sides if name not in registry.engines()]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)} (--list shows what there is)")
    if chosen.repeat is not None and chosen.repeat < 1:
        parser.error("--repeat must be at least 1")
    if chosen.steps is not None and chosen.steps < 10:
        parser.error("--steps must be at least 10")


def _named(asked: str) -> list[str]:
    """The scenarios of a name, in which a star stands for anything, or of a family."""
    known = registry.scenarios()
    return fnmatch.filter(known, asked) or fnmatch.filter(known, f"{asked}-*")


def show_list() -> None:
    """Print every scenario and side."""
    for scenario in registry.scenarios().values():
        print(f"{scenario.name:10} {scenario.title}")
        print(f"{'':10} sides: {', '.join(scenario.engines)}")
    print()
    for info in registry.engines().values():
        print(f"{info.name:20} {info.label}")


def _about(failed: Sequence[str]) -> dict[str, str]:
    about = describe(ROOT)
    try:
        about["text"] = _text_ratio()
    except ImportError:
        about["text"] = "ratio not measured: zstandard is not installed"
    if failed:
        about["could not be installed"] = ", ".join(failed)
    return about


def _text_ratio() -> str:
    import zstandard

    text = Text(1)
    contents = [message(text, number)["content"].encode() for number in range(2000)]
    squeeze = zstandard.ZstdCompressor(level=3).compress
    raw = sum(map(len, contents))
    alone = raw / sum(len(squeeze(one)) for one in contents)
    whole = raw / len(squeeze(b"".join(contents)))
    return f"zstd level 3 makes messages of 1 KB {alone:.2f} times smaller, all of them {whole:.2f}"


def _environments(chosen: list[Scenario], only: set[str] | None) -> dict[str, Environment]:
    infos = registry.engines()
    sides = [one for scenario in chosen for one in scenario.sides(infos).values()]
    wanted = {one.environment for one in sides if not only or one.name in only} - {"ours"}
    made: dict[str, Environment] = {}
    for name in sorted(wanted):
        try:
            made[name] = prepare(name, say)
        except (OSError, subprocess.SubprocessError) as error:
            say(f"the environment {name} could not be made: {error}")
    return made


def picked(chosen: argparse.Namespace) -> list[Scenario]:
    """The scenarios that were asked for; all of them if none was."""
    known = registry.scenarios()
    names = dict.fromkeys(name for asked in chosen.scenarios for name in _named(asked))
    return [known[name] for name in names] or list(known.values())


def sized(scenario: Scenario, chosen: argparse.Namespace) -> Mapping[str, int]:
    """How much work a scenario does."""
    size = scenario.quick if chosen.quick else scenario.size
    if chosen.steps is None or "steps" not in size:
        return size
    return {**size, "steps": chosen.steps}


def _small(chosen: argparse.Namespace) -> bool:
    """Whether it does less than the targets are for."""
    return bool(chosen.quick) or chosen.steps is not None


def run(
    scenarios: list[Scenario],
    chosen: argparse.Namespace,
    only: set[str] | None,
    environments: Mapping[str, Environment],
) -> list[Outcome]:
    """Run the chosen scenarios."""
    outcomes = []
    for scenario in scenarios:
        size = sized(scenario, chosen)
        repeat = chosen.repeat or (1 if chosen.quick else scenario.repeat)
        names = [name for name in scenario.engines if only is None or name in only]
        infos = scenario.sides(registry.engines())
        if names:
            outcomes.append(run_scenario(scenario, infos, names, size, repeat, environments, say))
    return outcomes


def write(outcomes: list[Outcome], quick: bool, folder: Path, about: Mapping[str, str]) -> str:
    """Write both files; give back the Markdown."""
    text = report.markdown(outcomes, registry.engines(), about, quick)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.md").write_text(text)
    whole = json.dumps(report.document(outcomes, about, quick), indent=1)
    (folder / "latest.json").write_text(whole + "\n")
    return text


def exit_code(found: list[report.Verdict], strict: bool) -> int:
    """1 when ours was not measured or, under strict, when a target is missed."""
    results = {verdict.result for verdict in found}
    return int("not measured" in results or (strict and "miss" in results))


def main() -> int:
    """The command."""
    chosen = arguments()
    if chosen.list:
        show_list()
        return 0
    scenarios = picked(chosen)
    only = set(chosen.only.split(",")) if chosen.only else None
    environments = _environments(scenarios, only)
    about = _about([one for made in environments.values() for one in made.failed])
    outcomes = run(scenarios, chosen, only, environments)
    print(write(outcomes, _small(chosen), chosen.out, about))
    return exit_code(report.verdicts(outcomes, _small(chosen)), chosen.strict)


if __name__ == "__main__":
    sys.exit(main())
