"""A typed state beside plain Python values: no change is lost, and none leaks."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ropewalk import AgentState, Externalized, Inline, MemoryStore
from ropewalk.codec import encode
from ropewalk.state import Runtime
from tests.conftest import SOAK

_NAMES = st.sampled_from(["small", "large", "other"])
_LEAVES = (
    st.none() | st.integers(-5, 5) | st.text(max_size=5) | st.booleans() | st.binary(max_size=4)
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(0, 3) | st.text(max_size=2), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
_TIMES = st.sampled_from([0, 1, 3, 400])
"""How often a value is repeated, so that some are trees of several nodes."""


class Modelled(AgentState):
    small: Inline[Any]
    large: Externalized[Any]
    other: Externalized[Any]


class Machine(RuleBasedStateMachine):
    """One state that is changed in every way, and all checkpoints that were taken of it."""

    checkpoints = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.runtime = Runtime(self.store, inline_threshold_bytes=1 << 20)
        self.state = Modelled(runtime=self.runtime)
        self.model: dict[str, Any] = {}

    def teardown(self) -> None:
        assert self.store.check(read_data=True).ok
        self.store.close()

    @rule(name=_NAMES, value=_VALUES, times=_TIMES)
    def assign(self, name: str, value: Any, times: int) -> None:
        given = [deepcopy(value) for _ in range(times)] if times else value
        setattr(self.state, name, given)
        self.model[name] = deepcopy(given)
        if isinstance(given, list):
            given.append("changed after it was assigned")

    @rule(name=_NAMES, value=_VALUES, at=st.integers(0, 500))
    def change_in_place(self, name: str, value: Any, at: int) -> None:
        if name not in self.model:
            return
        for held in (getattr(self.state, name), self.model[name]):
            _change(held, deepcopy(value), at)

    @rule(name=_NAMES)
    def assign_its_own_object_again(self, name: str) -> None:
        if name in self.model:
            setattr(self.state, name, getattr(self.state, name))

    @rule(name=_NAMES)
    def delete(self, name: str) -> None:
        if name in self.model:
            delattr(self.state, name)
            del self.model[name]

    @rule()
    def adopt(self) -> None:
        if "large" in self.model:
            self.state.other = self.state.ref("large")
            self.model["other"] = deepcopy(self.model["large"])

    @rule()
    def save(self) -> None:
        self.state.save()
        assert self.state.save() == []

    @rule()
    def unload(self) -> None:
        self.state.unload()

    @rule(target=checkpoints)
    def checkpoint(self) -> Any:
        taken = {
            name: place if name == "small" else json.loads(json.dumps(place))
            for name, place in self.state.to_checkpoint_dict().items()
        }
        return taken, deepcopy(self.model)

    @rule(taken=checkpoints)
    def go_back(self, taken: Any) -> None:
        self.state = Modelled.from_checkpoint_dict(taken[0], runtime=self.runtime)
        self.model = deepcopy(taken[1])

    @rule(taken=checkpoints)
    def read_an_old_one_and_change_it(self, taken: Any) -> None:
        old = Modelled.from_checkpoint_dict(taken[0], runtime=self.runtime)
        assert _exact(old.to_hydrated_dict()) == _exact(taken[1])
        for name in old:
            assert encode(getattr(old, name)) == encode(taken[1][name])
            _change(getattr(old, name), "LEAK", 0)

    @rule(taken=consumes(checkpoints))
    def collect(self, taken: Any) -> None:
        self.store.gc(recent=1)
        old = Modelled.from_checkpoint_dict(taken[0], runtime=self.runtime)
        assert _exact(old.to_hydrated_dict()) == _exact(taken[1])

    @invariant()
    def the_state_is_what_the_model_says(self) -> None:
        assert list(self.state) == [name for name in Modelled.fields() if name in self.model]
        assert _exact(self.state.to_hydrated_dict()) == _exact(self.model)

    @rule()
    def compare(self) -> None:
        same = Modelled(backend=MemoryStore(), **self.model)
        assert self.state == same
        same.small = "another"
        self.state.small = "one"
        self.model["small"] = "one"
        assert self.state != same


def _change(held: Any, value: Any, at: int) -> None:
    """Change a value somewhere, the same way in equal values."""
    if isinstance(held, list):
        if held and at % 3:
            inner = held[at % len(held)]
            if isinstance(inner, list | dict):
                _change(inner, value, at // 2)
            else:
                held[at % len(held)] = value
        elif at % 2:
            held.insert(at % (len(held) + 1), value)
        else:
            del held[: at % 7]
    elif isinstance(held, dict):
        held[at % 4] = value


def _exact(values: dict[str, Any]) -> dict[str, bytes]:
    return {name: encode(values[name]) for name in sorted(values)}


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=600 if SOAK else 60, stateful_step_count=40)
