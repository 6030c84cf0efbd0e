"""The demo: an agent that works, fails, recovers, goes back, branches and merges.

Needs only the core, so that it can be told before anything else is installed.
"""

from __future__ import annotations

import os
import random
import shlex
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from shutil import which
from typing import Any

import zstandard

from ropewalk.cli.output import shown_url
from ropewalk.cli.targets import VARIABLE, new_store_url
from ropewalk.codec import encode
from ropewalk.recovery import RetryWithBackoff
from ropewalk.store import Store
from ropewalk.store import open as open_store
from ropewalk.timeline import Timeline

NAME = "demo"
TURNS = 200
_WORDS = (
    "the a cafe near station quiet open late coffee terrace menu review rating price map "
    "search result found better walk minutes good seat window crowded weekend breakfast "
    "ask user prefers answer compare list plan next step check source says closes at noon"
).split()

Say = Callable[[str], None]


def tell(store: str | PathLike[str], *, print_line: Say = print) -> str:
    """Tell the story in a store, which is made if it is not there; its timeline's name."""
    url = fspath(store)
    before = _folder_bytes(url)
    story = _Story(print_line)
    with open_store(url) as opened:
        name = _free_name(opened)
        story.run(opened, name)
    story.reopen(url, name)
    story.settle(_folder_bytes(url) - before if _is_folder(url) else None)
    _say_how_to_look(print_line, url, name)
    return name


class _Story:
    def __init__(self, say: Say) -> None:
        self._say = say
        self._random = random.Random(7)  # noqa: S311 - text for a demo
        self._steps = self._whole = self._squeezed = 0
        self._agent: Timeline

    def run(self, store: Store, name: str) -> None:
        retry = RetryWithBackoff(base_delay=0.01, max_delay=0.05)
        self._agent = Timeline(name, store, recovery_strategies=[retry])
        state = self._work()
        state = self._fail_and_recover(state)
        self._go_back(state)
        self._branch_and_merge()
        self._title("5. The whole run")
        self._say(self._agent.visualize_tree())

    def reopen(self, url: str, name: str) -> None:
        self._title("6. Another process would find all of it")
        with open_store(url, create=False) as store:
            again = Timeline(name, store)
            self._fact("checkpoints", again.metrics["checkpoints"])
            self._fact("current branch", again.current_branch)
            verdict = "sound" if store.check(read_data=True).ok else "damaged"
            self._fact("every byte read and verified", verdict)

    def settle(self, stored: int | None) -> None:
        self._title("The bill")
        self._fact(f"{self._steps} steps, each stored whole", _megabytes(self._whole))
        self._fact("each stored whole and compressed", _megabytes(self._squeezed))
        if stored is None:
            self._fact("what the store takes", "see `ropewalk stats`")
            return
        self._fact("what this run added to the store's folder", _megabytes(stored))
        if stored > 0:
            times = f"{self._whole / stored:,.0f} and {self._squeezed / stored:,.0f} times less"
            self._fact("that is", times)

    # The acts.

    def _work(self) -> dict[str, Any]:
        self._title(f"1. An agent looks for a cafe; each of {TURNS} turns is a checkpoint")
        state: dict[str, Any] = {
            "task": "Find a quiet cafe",
            "stage": "parse",
            "messages": [],
            "notes": [],
            "guides": {f"guide-{n}": self._prose(1500) for n in range(20)},
        }
        self._save(state, "Parsed request", "parse_input", confidence=0.92)
        state["stage"] = "search"
        for turn in range(1, TURNS + 1):
            role = "assistant" if turn % 2 else "user"
            state["messages"].append({"id": turn, "role": role, "content": self._prose(170)})
            self._save(state, f"Turn {turn}", "search")
        self._fact("messages", len(state["messages"]))
        return state

    def _fail_and_recover(self, state: dict[str, Any]) -> dict[str, Any]:
        self._title("2. A call fails three times; the answer in the cache is used instead")

        def ask_the_map(given: dict[str, Any]) -> dict[str, Any]:
            given["messages"].clear()  # What a failed attempt breaks is its own copy.
            raise TimeoutError("the map did not answer")

        def use_cache(given: dict[str, Any]) -> dict[str, Any]:
            return {**given, "stage": "found", "results": ["Devocion", "La Cabra"]}

        found, step = self._agent.safe_execute(
            ask_the_map, state, description="ask_the_map", max_retries=3, fallback=use_cache
        )
        self._count(state)
        self._count(found)
        failures = self._agent.metrics["failed_attempts"]
        self._fact("failed attempts, kept with their tracebacks", failures)
        self._fact("messages that are still there", len(found["messages"]))
        self._fact("the branch is at", f"{step.short} {step.description!r}")
        result: dict[str, Any] = found
        return result

    def _go_back(self, state: dict[str, Any]) -> None:
        self._title("3. A step was wrong: roll back, undo that, roll back after all")
        wrong = {**state, "stage": "book", "results": []}
        self._save(wrong, "Booked the wrong place", "book", confidence=0.2)
        for verb, act in (
            ("after rollback()", self._agent.rollback),
            ("after undo()", self._agent.undo),
            ("after rollback() again", self._agent.rollback),
        ):
            act()
            head = self._agent.head
            self._fact(verb, "" if head is None else f"{head.short} {head.description!r}")

    def _branch_and_merge(self) -> None:
        self._title("4. Two ways are tried, and both are kept")
        agent = self._agent
        agent.branch("reviews-first")
        state = agent.get_state()
        state["notes"].append("the reviews praise the terrace of Devocion")
        self._save(state, "Read the reviews", "review_aggregation", confidence=0.88)
        agent.switch_branch("main")
        state = agent.get_state()
        state["choice"] = "Devocion"
        self._save(state, "Chose by distance", "choose", confidence=0.71)
        merged = agent.merge("reviews-first")
        self._count(merged.state)
        self._fact("merged", f"{merged.short}, made from two")
        self._fact("choice, from main", merged.state["choice"])
        self._fact("note, from reviews-first", merged.state["notes"][0])
        self._say("   what the merge brought to main:")
        for line in str(agent.diff(merged.parents[0], merged.id)).split("\n"):
            self._say(f"      {line}")

    # Helpers.

    def _save(
        self, state: dict[str, Any], description: str, logic_step: str, **metadata: float
    ) -> None:
        self._agent.checkpoint(state, metadata, description, logic_step)
        self._count(state)

    def _count(self, state: dict[str, Any]) -> None:
        """What storing this state whole would take."""
        whole = encode(state)
        self._steps += 1
        self._whole += len(whole)
        self._squeezed += len(zstandard.compress(whole, 3))

    def _prose(self, words: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=words))

    def _title(self, text: str) -> None:
        self._say(f"\n{text}")

    def _fact(self, name: str, value: object) -> None:
        self._say(f"   {name:<46} {value}")


def _free_name(store: Store) -> str:
    taken = set(Timeline.agents(store))
    name, number = NAME, 1
    while name in taken:
        number += 1
        name = f"{NAME}-{number}"
    return name


def _say_how_to_look(say: Say, url: str, name: str) -> None:
    """End with commands that run as they are printed, from the current folder."""
    if find_spec("typer") is None:
        python = shlex.quote(_from_here(sys.executable))
        say(f"\nThe command line comes with: {python} -m pip install 'ropewalk[cli]'")
    shown = shown_url(url)
    store, how = f" --store {shlex.quote(shown)}", "Look at it with"
    if url == new_store_url(None):  # Where commands look without being told.
        store = ""
    elif shown != url:  # With a password in it, which is not repeated.
        store, how = "", f"Look at it, with the whole URL in {VARIABLE}, with"
    say(f"\nThe timeline {name!r} is in {shown}. {how}:")
    for verb in ("tree", "log", "show"):
        say(f"   {_program()} {verb}{store} --timeline {name}")


def _program() -> str:
    """What a shell calls the command line of this environment."""
    script = Path(sysconfig.get_path("scripts"), "ropewalk")
    if not script.is_file():
        return f"{shlex.quote(_from_here(sys.executable))} -m ropewalk"
    found = which("ropewalk")
    if found is not None and script.samefile(found):
        return "ropewalk"
    return shlex.quote(_from_here(str(script)))


def _from_here(file: str) -> str:
    """A program in a folder below the current one, by the shorter of its paths."""
    below = Path(file).is_relative_to(Path.cwd())
    return os.path.relpath(file) if below else file


def _is_folder(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def _folder_bytes(url: str) -> int:
    folder = Path(url.removeprefix("file://"))
    with suppress(OSError, ValueError):  # Opening the store says it better.
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return 0


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.2f} MB"
