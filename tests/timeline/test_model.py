"""A timeline against a plain model: whatever is done to it, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ropewalk.errors import Conflict, InvalidInput, MergeConflict, NotFound
from ropewalk.store import MemoryStore
from ropewalk.timeline import BranchInfo, Checkpoint, CheckpointStatus, Timeline

KEYS = st.sampled_from("abcd")
NAMES = st.sampled_from(["one", "two", "three"])
STATES = st.dictionaries(KEYS, st.integers(0, 3), max_size=4)


class Refs(NamedTuple):
    """Where everything was at a moment."""

    heads: dict[str, str]
    current: str


class Model(RuleBasedStateMachine):
    """Ids stand for steps; the model knows their states and parents, and where branches are."""

    @initialize()
    def begin(self) -> None:
        self.memory = MemoryStore()
        self.agent = Timeline("agent", self.memory)
        self.states: dict[str, Any] = {}
        self.parents: dict[str, tuple[str, ...]] = {}
        self.refs = Refs({}, "main")
        self.done: list[Refs] = []
        self.forks = 0

    # What is done.

    @rule(state=STATES, text=st.text(max_size=5))
    def checkpoint(self, state: dict[str, int], text: str) -> None:
        before = self.refs.heads.get(self.refs.current)
        made = self.agent.checkpoint(state, description=text.replace("\x00", ""))
        assert made.parents == (() if before is None else (before,))
        self.know(made, state)
        self.move({self.refs.current: made.id})

    @precondition(lambda self: self.has_head())
    @rule(count=st.integers(-1, 5))
    def rollback(self, count: int) -> None:
        chain = self.chain(self.refs.heads[self.refs.current])
        if count < 1:
            with pytest.raises(InvalidInput):
                self.agent.rollback(count)
            return
        if count < len(chain):
            assert self.agent.rollback(count).id == chain[count]
        else:
            with pytest.warns(UserWarning, match="first step"):
                assert self.agent.rollback(count).id == chain[-1]
        if len(chain) > 1:
            self.move({self.refs.current: chain[min(count, len(chain) - 1)]})

    @precondition(lambda self: self.has_head())
    @rule(name=NAMES, data=st.data())
    def branch(self, name: str, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(sorted(self.states)))
        if name in self.refs.heads:
            with pytest.raises(Conflict):
                self.agent.branch(name, start)
            self.switch(name, lambda: self.agent.branch(name))
            return
        assert self.agent.branch(name, start[:16]).created
        self.move({name: start}, name)

    @rule(name=st.one_of(NAMES, st.just("main")))
    def switch_branch(self, name: str) -> None:
        if name not in self.refs.heads:
            if name == "main" and not self.refs.heads:
                return
            with pytest.raises(NotFound):
                self.agent.switch_branch(name)
            return
        self.switch(name, lambda: self.agent.switch_branch(name))

    def switch(self, name: str, call: Callable[[], BranchInfo]) -> None:
        recorded = len(self.agent.operations())
        assert call() == BranchInfo(
            name, True, self.refs.heads[name], len(self.chain(self.refs.heads[name]))
        )
        if len(self.agent.operations()) > recorded:
            self.done.append(self.refs)
        self.refs = Refs(self.refs.heads, name)

    @precondition(lambda self: self.has_head())
    @rule(name=NAMES, strategy=st.sampled_from(["combine", "ours", "theirs"]))
    def merge(self, name: str, strategy: str) -> None:
        if name not in self.refs.heads:
            with pytest.raises(NotFound):
                self.agent.merge(name, strategy)
            return
        ours, theirs = self.refs.heads[self.refs.current], self.refs.heads[name]
        try:
            merged = self.agent.merge(name, strategy)
        except MergeConflict:
            assert strategy == "combine"
            return
        if theirs in self.ancestors(ours):
            assert merged.id == ours
            return
        if ours in self.ancestors(theirs):
            assert merged.id == theirs
        else:
            assert merged.parents == (ours, theirs)
            self.know(merged, merged.state)
        self.move({self.refs.current: merged.id})

    @rule()
    def undo(self) -> None:
        if not self.done:
            with pytest.raises(NotFound):
                self.agent.undo()
            return
        self.agent.undo()
        self.refs = self.done.pop()

    @precondition(lambda self: self.has_head())
    @rule()
    def fork(self) -> None:
        self.forks += 1
        head = self.refs.heads[self.refs.current]
        forked = self.agent.fork(f"fork {self.forks}")
        forked.checkpoint({"forked": self.forks})
        assert [one.id for one in forked.history(limit=None)][1:] == self.chain(head)

    @rule()
    def reopen(self) -> None:
        self.agent = Timeline("agent", self.memory.another())

    @precondition(lambda self: bool(self.done))
    @rule()
    def collect(self) -> None:
        self.memory.gc()

    # What must hold.

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        if not hasattr(self, "agent"):
            return
        head = self.refs.heads.get(self.refs.current)
        assert self.agent.current_branch == self.refs.current
        assert self.agent.get_state() == (None if head is None else self.states[head])
        found = {one.name: one.head for one in self.agent.list_branches()}
        assert found == self.refs.heads
        if head is not None:
            assert [one.id for one in self.agent.history(limit=None)] == self.chain(head)
            alive = {id for one in self.refs.heads.values() for id in self.ancestors(one)}
            for id in self.states:
                rolled_back = self.agent.get(id).status == CheckpointStatus.ROLLED_BACK
                assert rolled_back == (id not in alive)

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            assert self.memory.check(read_data=True).problems == ()
            self.agent.visualize_tree(fold=2)

    # The model.

    def has_head(self) -> bool:
        return self.refs.current in self.refs.heads

    def know(self, made: Checkpoint, state: Any) -> None:
        self.states[made.id], self.parents[made.id] = state, made.parents

    def move(self, heads: dict[str, str], current: str | None = None) -> None:
        self.done.append(self.refs)
        self.refs = Refs({**self.refs.heads, **heads}, current or self.refs.current)

    def chain(self, id: str) -> list[str]:
        chain = [id]
        while self.parents[chain[-1]]:
            chain.append(self.parents[chain[-1]][0])
        return chain

    def ancestors(self, id: str) -> set[str]:
        met, pending = {id}, [id]
        while pending:
            for parent in self.parents[pending.pop()]:
                if parent not in met:
                    met.add(parent)
                    pending.append(parent)
        return met


def test_a_timeline_does_what_the_model_does() -> None:
    few = settings(max_examples=max(settings().max_examples // 4, 1), stateful_step_count=25)
    run_state_machine_as_test(Model, settings=few)
