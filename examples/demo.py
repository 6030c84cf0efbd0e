"""An agent's state grows over steps, is changed, compared, rolled back and merged.

Run it with `make demo`. Every step is a commit in a store on disk; the bytes of its folder
stand beside what storing each step whole would take.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard

import holdfast
from holdfast.codec import encode, format_path
from holdfast.history import Commit

STEPS = 400
WORDS = (
    "the a cafe near station quiet open late coffee terrace menu review rating price map "
    "search result found better walk minutes good seat window crowded weekend breakfast "
    "ask user prefers answer compare list plan next step check source says closes at noon"
).split()


class Bill:
    """Commits states, and counts what storing each of them whole would take."""

    def __init__(self, branch: holdfast.Branch) -> None:
        self.branch = branch
        self.whole = self.squeezed = self.commits = 0
        self.spent = 0.0

    def save(self, state: dict[str, Any], description: str) -> Commit:
        """One step."""
        started = time.process_time()
        commit = self.branch.commit(state, description=description)
        self.spent += time.process_time() - started
        self.commits += 1
        whole = encode(state)
        self.whole += len(whole)
        self.squeezed += len(zstandard.compress(whole, 3))
        return commit


def main() -> None:
    """Tell the story."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        tell(Path(folder) / "agent.holdfast")


def tell(folder: Path) -> None:
    """Work in a store, close it, and open it again."""
    say = random.Random(7)
    store = holdfast.open(folder)
    history = holdfast.History(store, "demo/agent", agent="cafe finder")
    bill = Bill(history.open())

    title(f"1. An agent works for {STEPS} steps; every step is a commit on disk")
    state = first_state(say)
    bill.save(state, "Began")
    for step in range(1, STEPS + 1):
        work(state, step, say)
        done = bill.save(state, f"Step {step}")
        if step in (1, 10, 100, STEPS):
            report(bill, step)

    title("2. One word is changed deep inside, in place")
    state["messages"][STEPS // 2]["content"] += " (corrected)"
    corrected = bill.save(state, "Corrected a message")
    for change in history.diff(done, corrected):
        line(f"{change.kind} {format_path(change.path, 'state')}", f"... {change.new[-24:]!r}")

    title("3. It goes ten steps back, and back on that")
    tenth = list(history.steps(limit=11))[-1]
    history.move_branch("main", to=tenth)
    line("the branch is at", f"{history.resolve().short} {history.resolve().description!r}")
    history.undo()
    line("after undo it is at", f"{history.resolve().short} {history.resolve().description!r}")

    title("4. Two agents go on from the same version, and meet again")
    ours, theirs = history.open(), history.open()
    mine, yours = ours.read(), theirs.read()
    mine["visited"], yours["visited"] = 2, 3
    mine["notes"].append("asked for a table at the window")
    yours["notes"].append("the terrace is closed on Mondays")
    theirs.commit(yours, description="Walked to three")
    meet(ours, mine)
    result = history.value()
    line("visited: 2 by one, 3 by the other", result["visited"])
    for note in result["notes"]:
        line("note", note)

    title("5. A value that cannot come back exactly is refused, with its place")
    try:
        bill.branch.commit({**state, "tools": [{"name": "map", "connection": sys.stdout}]})
    except holdfast.NotStorable as refusal:
        print(f"   {refusal}")

    title("6. Another process opens the folder, and everything is there")
    store.close()
    with holdfast.open(folder) as again:
        reopened = holdfast.History(again, "demo/agent")
        line("versions", len(list(reopened.ancestors())))
        line("operations", len(reopened.operations(limit=10_000)))
        line("every byte read and verified", "ok" if again.check(read_data=True).ok else "damaged")
    settle(bill, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))


def meet(ours: holdfast.Branch, mine: dict[str, Any]) -> None:
    """Commit what another agent has changed too."""
    try:
        ours.commit(mine, description="Walked to two")
    except holdfast.MergeConflict as conflict:
        for one in conflict.conflicts:
            line(
                f"conflict {format_path(one.path, 'state')}",
                f"{one.base!r} -> {one.ours!r} | {one.theirs!r}",
            )
    rules = {"visited": "add", "notes": "append"}
    ours.commit(mine, description="Walked to two", mergers=rules)


def settle(bill: Bill, kept: int) -> None:
    title("The bill")
    line(f"{bill.commits} versions, each stored whole", f"{bill.whole / 1e6:,.1f} MB")
    line("each stored whole and compressed", f"{bill.squeezed / 1e6:,.1f} MB")
    line("the whole folder of the store", f"{kept / 1e6:,.2f} MB")
    line("that is", f"{bill.whole / kept:,.0f} and {bill.squeezed / kept:,.0f} times less")


def first_state(say: random.Random) -> dict[str, Any]:
    return {
        "task": "find a quiet cafe",
        "messages": [],
        "documents": {f"guide-{n}": prose(say, 1500) for n in range(20)},
        "notes": [],
        "visited": 0,
        "step": 0,
    }


def work(state: dict[str, Any], step: int, say: random.Random) -> None:
    role = "assistant" if step % 2 else "user"
    state["messages"].append({"id": step, "role": role, "content": prose(say, 170)})
    state["step"] = step


def prose(say: random.Random, words: int) -> str:
    return " ".join(say.choices(WORDS, k=words))


def report(bill: Bill, step: int) -> None:
    spent = bill.spent / bill.commits * 1e3
    line(
        f"step {step:>3}: {spent:.2f} ms CPU a step",
        f"whole each time {bill.whole / 1e3:>9,.0f} KB",
    )


def title(text: str) -> None:
    print(f"\n{text}")


def line(name: str, value: object) -> None:
    print(f"   {name:<44} {value}")


if __name__ == "__main__":
    main()
