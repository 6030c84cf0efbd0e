"""Tasks against a model: a plain dict that is replaced only when a call succeeds."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ropewalk.state import FailEvent, State, SuccessEvent, Versioned, events, task
from ropewalk.store import MemoryStore

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=3) | st.text(max_size=3)


class Stop(Exception):
    """A body fails on purpose."""


def change(state: Any, key: str, value: Any) -> None:
    """Set a key, change a list in place, or remove a key."""
    held = state.get(key)
    if isinstance(held, list):
        held.append(value)
    elif held == value:
        del state[key]
    else:
        state[key] = deepcopy(value)


@task
def work(changes: list[tuple[str, Any]], fails: bool, state: State) -> int:
    for key, value in changes:
        change(state, key, value)
    if fails:
        raise Stop
    return len(changes)


@task
def outer(first: Any, second: Any, inner_fails: bool, fails: bool, state: State) -> None:
    change(state, *first)
    with suppress(Stop):
        work([second], inner_fails, state=state)
    if fails:
        state["lost"] = True
        raise Stop


class Tasks(RuleBasedStateMachine):
    """Calls on one handle, beside changes of the caller's own and another handle."""

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore()
        self.state = Versioned(self.store)
        self.model: dict[str, Any] = {}
        self.part: dict[str, Any] = {}
        self.succeeded = self.failed = 0

    @rule(key=KEYS, value=VALUES)
    def the_caller_changes(self, key: str, value: Any) -> None:
        change(self.state, key, value)
        change(self.model, key, value)

    @rule()
    def the_caller_commits(self) -> None:
        self.state.commit()

    @rule(changes=st.lists(st.tuples(KEYS, VALUES), max_size=3), fails=st.booleans())
    def call(self, changes: list[tuple[str, Any]], fails: bool) -> None:
        self._run(self.state, self.model, changes, fails)

    @rule(changes=st.lists(st.tuples(KEYS, VALUES), max_size=3), fails=st.booleans())
    def call_in_a_namespace(self, changes: list[tuple[str, Any]], fails: bool) -> None:
        self._run(self.state.namespace("part"), self.part, changes, fails)

    def _run(
        self, state: State, model: dict[str, Any], changes: list[tuple[str, Any]], fails: bool
    ) -> None:
        try:
            assert work(changes, fails, state=state) == len(changes)
        except Stop:
            assert fails
            self.failed += 1
        else:
            self.succeeded += 1
            for key, value in changes:
                change(model, key, value)

    @rule(
        first=st.tuples(KEYS, VALUES),
        second=st.tuples(KEYS, VALUES),
        inner_fails=st.booleans(),
        fails=st.booleans(),
    )
    def call_in_a_call(self, first: Any, second: Any, inner_fails: bool, fails: bool) -> None:
        try:
            outer(first, second, inner_fails, fails, state=self.state)
        except Stop:
            self.failed += 1
        else:
            self.succeeded += 1
        # What the outer call had done was committed before the inner one began.
        change(self.model, *first)
        if inner_fails:
            self.failed += 1
        else:
            self.succeeded += 1
            change(self.model, *second)

    @rule(changes=st.lists(st.tuples(KEYS, VALUES), max_size=3), fails=st.booleans())
    def calls_in_a_transaction(self, changes: list[tuple[str, Any]], fails: bool) -> None:
        model = deepcopy(self.model)
        try:
            with self.state.transaction():
                work(changes, False, state=self.state)
                if fails:
                    raise Stop
        except Stop:
            self.model = model
        else:
            self.succeeded += 1
            for key, value in changes:
                change(self.model, key, value)

    @rule()
    def somebody_else_looks(self) -> None:
        self.state.commit()
        other = Versioned(self.store)

        assert dict(other) == self.model
        assert dict(other.namespace("part")) == self.part
        assert len(events(other, kind=SuccessEvent)) == self.succeeded
        assert len(events(other, kind=FailEvent)) == self.failed

    @invariant()
    def the_state_is_as_the_model(self) -> None:
        if hasattr(self, "state"):
            assert dict(self.state) == self.model
            assert dict(self.state.namespace("part")) == self.part

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


TestTasks = Tasks.TestCase
TestTasks.settings = settings(max_examples=settings().max_examples // 5)
