"""An agent's state grows over steps, is changed, compared and merged.

Run it with `make demo`. Every step is a version; the bytes that were stored stand
beside what storing each step whole would take.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import zstandard

import holdfast
from holdfast.codec import encode, format_path
from holdfast.store import Move
from holdfast.tree import Edited, ObjectId, Written

STEPS = 400
SPACE = "demo/agent"
BRANCH = "branch/main"
WORDS = (
    "the a cafe near station quiet open late coffee terrace menu review rating price map "
    "search result found better walk minutes good seat window crowded weekend breakfast "
    "ask user prefers answer compare list plan next step check source says closes at noon"
).split()


class Agent:
    """Keeps a state in a store: each `save` is one version under a ref."""

    def __init__(self, store: holdfast.MemoryStore) -> None:
        self.store = store
        self.writer = holdfast.TreeWriter()
        self.head: ObjectId | None = None
        self.whole = self.squeezed = 0
        self.spent = 0.0

    def save(self, state: dict[str, Any]) -> ObjectId:
        """Store what changed since the last version, and move the ref to the new one."""
        started = time.process_time()
        written = self.writer.write(state)
        self.commit(written)
        self.writer.accept(written)
        self.spent += time.process_time() - started
        whole = encode(state)
        self.whole += len(whole)
        self.squeezed += len(zstandard.compress(whole, 3))
        return written.root

    def commit(self, new: Written | Edited) -> None:
        """Store objects and move the ref, both or neither."""
        move = Move(BRANCH, self.head, new.root)
        self.store.commit(SPACE, new.objects, new.needs, [move])
        self.head = new.root

    def keep(self, new: Written | Edited) -> ObjectId:
        """Store the objects of another version, without moving the ref."""
        self.store.commit(SPACE, new.objects, new.needs)
        return new.root


def main() -> None:
    """Tell the story."""
    say = random.Random(7)
    store = holdfast.MemoryStore()
    agent = Agent(store)

    title(f"1. An agent works for {STEPS} steps; every step is a version")
    state = first_state(say)
    root = agent.save(state)
    for step in range(1, STEPS + 1):
        work(state, step, say)
        root = agent.save(state)
        if step in (1, 10, 100, STEPS):
            report(agent, step)
    assert holdfast.load(root, store.read) == state

    title("2. One word is changed deep inside, in place")
    before = store.sizes.written_bytes
    state["messages"][STEPS // 2]["content"] += " (corrected)"
    corrected = agent.save(state)
    line("found by comparison, and stored with", f"{store.sizes.written_bytes - before:,} bytes")
    show_diff(root, corrected, store)

    title("3. Two agents go on from the same version, and meet again")
    ours = other_version(agent, state, visited=2, note="asked for a table at the window")
    theirs = other_version(agent, state, visited=3, note="the terrace is closed on Mondays")
    rules = {"visited": "add", "notes": "append"}
    merged = holdfast.merge(corrected, ours, theirs, store.read, mergers=rules)
    agent.commit(merged)
    result = holdfast.load(merged.root, store.read)
    line("visited: 2 by one, 3 by the other", result["visited"])
    for note in result["notes"]:
        line("note", note)

    title("4. Where no merger is named, a conflict is reported and nothing changes")
    try:
        holdfast.merge(corrected, ours, theirs, store.read)
    except holdfast.MergeConflict as conflict:
        for one in conflict.conflicts:
            line(format_path(one.path, "state"), f"{one.base!r} -> {one.ours!r} | {one.theirs!r}")

    title("5. A value that cannot come back exactly is refused, with its place")
    try:
        agent.save({**state, "tools": [{"name": "map", "connection": sys.stdout}]})
    except holdfast.NotStorable as refusal:
        print(f"   {refusal}")

    title("The bill")
    kept = store.sizes.frame_bytes
    line(f"{STEPS + 2} versions, each stored whole", f"{agent.whole / 1e6:,.1f} MB")
    line("each stored whole and compressed", f"{agent.squeezed / 1e6:,.1f} MB")
    line("the same versions in Holdfast", f"{kept / 1e6:,.2f} MB")
    line("that is", f"{agent.whole / kept:,.0f} and {agent.squeezed / kept:,.0f} times less")


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


def other_version(agent: Agent, state: dict[str, Any], visited: int, note: str) -> ObjectId:
    changed = {**state, "visited": visited, "notes": [note]}
    return agent.keep(agent.writer.write(changed))


def show_diff(old: ObjectId, new: ObjectId, store: holdfast.MemoryStore) -> None:
    for change in holdfast.diff(old, new, store.read):
        line(f"{change.kind} {format_path(change.path, 'state')}", f"... {change.new[-24:]!r}")


def report(agent: Agent, step: int) -> None:
    stored = agent.store.sizes.frame_bytes
    spent = agent.spent / (step + 1) * 1e3
    line(
        f"step {step:>3}: stored {stored / 1e3:>7,.0f} KB",
        f"whole each time {agent.whole / 1e3:>9,.0f} KB   {spent:.2f} ms CPU a step",
    )


def title(text: str) -> None:
    print(f"\n{text}")


def line(name: str, value: object) -> None:
    print(f"   {name:<44} {value}")


if __name__ == "__main__":
    main()
