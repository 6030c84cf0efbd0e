"""Work on a history that notes what it was told, and what must be there after a power loss."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from ropewalk.history import History
from ropewalk.store import Operation, Store
from ropewalk.testing import CrashState
from ropewalk.testing.helpers import SPACE
from tests.store.crashes import Note

MAIN = "main"


class HistoryWork:
    """Versions of a chat on several branches, merged, undone and collected, by a seed.

    Each step is one operation. Which values the branches have after it is remembered here;
    what was acknowledged is noted.
    """

    def __init__(self, open_store: Callable[[], Store], note: Note, seed: int) -> None:
        self._open_store, self._note = open_store, note
        self._random = random.Random(seed)
        self._made = 0
        self.values: dict[int, dict[str, Any]] = {0: {}}
        """The values of the branches after each operation."""

    def run(self, steps: int) -> None:
        self._store = self._open_store()
        self._history = History(self._store, SPACE)
        self._commit(MAIN)
        actions = [self._chat] * 6 + [self._attach, self._branch, self._merge, self._drop]
        actions += [self._undo, self._back, self._tag, self._collect, self._reopen]
        for _ in range(steps - 1):
            self._random.choice(actions)()
        self._store.close()

    def check(self, store: Store, state: CrashState) -> None:
        """Everything that must hold of a store that was opened after a power loss."""
        history = History(store, SPACE)
        told: list[Any] = state.marked("told")
        operations = history.operations()
        landed = len(operations)
        assert [one.sequence for one in operations] == list(range(1, landed + 1))
        assert landed <= len(told) + 1
        if store.durability == "full":
            assert landed >= len(told), "an acknowledged commit is gone"
        assert operations[: len(told)] == told[:landed]
        assert {name: history.value(name) for name in history.branches()} == self.values[landed]
        assert store.check(read_data=True).problems == ()
        store.gc(recent=3)
        history.open().commit({"after": "the power loss"}, mergers=None)
        assert history.value()["after"] == "the power loss"
        assert store.check(read_data=True).problems == ()

    def _chat(self) -> None:
        self._commit(self._choose())

    def _attach(self) -> None:
        """Something large, that a store keeps in a place of its own."""
        self._commit(self._choose(), self._random.randbytes(270_000))

    def _commit(self, name: str, attached: bytes = b"") -> None:
        branch = self._history.open(name)
        state = branch.read() if branch.head is not None else {"messages": []}
        if attached:
            state["attached"] = attached
        else:
            state.pop("attached", None)
        state["messages"].append(self._random.randbytes(self._random.randrange(2000)))
        branch.commit(state)
        self._done({**self._now, name: copy.deepcopy(state)})

    def _branch(self) -> None:
        self._made += 1
        source, name = self._choose(), f"branch {self._made}"
        self._history.create_branch(name, source)
        self._done({**self._now, name: self._now[source]})

    def _merge(self) -> None:
        """Bring a branch that has only moved on back into the one that it came from."""
        self._made += 1
        into, name = self._choose(), f"branch {self._made}"
        self._history.create_branch(name, into)
        self._done({**self._now, name: self._now[into]})
        self._commit(name)
        self._history.merge(name, into)
        self._done({**self._now, into: self._now[name]})

    def _drop(self) -> None:
        name = self._choose()
        if name != MAIN:
            self._history.delete_branch(name)
            self._done({other: value for other, value in self._now.items() if other != name})

    def _undo(self) -> None:
        """Take back what was just done, so that it cannot have been collected."""
        before = self._now
        self._commit(self._choose())
        self._history.undo()
        self._done(before)

    def _back(self) -> None:
        """Put a branch where another one is."""
        name, other = self._choose(), self._choose()
        if self._history.branches()[name] != self._history.branches()[other]:
            self._history.move_branch(name, other)
            self._done({**self._now, name: self._now[other]})

    def _tag(self) -> None:
        self._made += 1
        self._history.create_tag(f"tag {self._made}", self._choose())
        self._done(self._now)

    def _collect(self) -> None:
        self._store.gc(recent=self._random.randrange(1, 4))

    def _reopen(self) -> None:
        self._store.close()
        self._store = self._open_store()
        self._history = History(self._store, SPACE)

    def _choose(self) -> str:
        return self._random.choice(sorted(self._now))

    @property
    def _now(self) -> dict[str, Any]:
        return self.values[len(self.values) - 1]

    def _done(self, values: dict[str, Any]) -> None:
        (last,) = self._last()
        self.values[last.sequence] = values
        self._note("told", last)

    def _last(self) -> list[Operation]:
        return self._history.operations(after=len(self.values) - 1)
