"""Handles against plain dicts: whatever is changed, committed, held and reopened in any order."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ropewalk.codec import default_codec
from ropewalk.errors import MergeConflict
from ropewalk.state import Versioned
from ropewalk.store import MemoryStore
from tests.conftest import SOAK
from tests.state.large import messages, sentence

KEYS = ["a", "b", "c", 1, True, ("t", 1)]
PLACES = [(), (), (), ("x",), ("x", "y")]

small = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from(["", "word", "text"]),
    st.just(1.0),
    st.builds(tuple, st.lists(st.integers(0, 3), max_size=2)),
)


def _large(seed: int, kind: int) -> Any:
    match kind:
        case 0:
            return messages(220, start=seed * 1000)
        case 1:
            return sentence(seed, 20_000)
        case 2:
            return [messages(60, start=seed), [sentence(n, 30) for n in range(400)], seed]
        case 3:
            return {str(n): [sentence(n, 40)] for n in range(seed, seed + 150)}
        case _:
            return {"inner": {n: sentence(n) for n in range(60)}, "raw": bytearray(9000)}


large = st.builds(_large, st.integers(0, 3), st.integers(0, 4))
values = st.recursive(
    small,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["k", "l", "m", 2]), inner, max_size=3),
        st.sets(st.integers(0, 9), max_size=4),
    ),
    max_leaves=6,
)
any_value = st.one_of(values, values, large)


def encoded(value: Any) -> bytes:
    return default_codec.encode(value)


def name_of(place: tuple[str, ...], key: Any) -> tuple[tuple[str, ...], bytes]:
    return place, encoded(key)


def contents(state: Any, place: tuple[str, ...] = ()) -> dict[Any, Any]:
    """All that a state holds, in the form of the model."""
    found = {name_of(place, key): value for key, value in state.items()}
    for name in state.namespaces():
        found |= contents(state.namespace(name), (*place, name))
    return found


def expect_equal(found: dict[Any, Any], model: dict[Any, Any]) -> None:
    assert found.keys() == model.keys()
    for name, value in model.items():
        assert encoded(found[name]) == encoded(value), name


def expect_merged(
    base: dict[Any, Any], mine: dict[Any, Any], theirs: dict[Any, Any], found: dict[Any, Any]
) -> None:
    """What one side alone changed is there as that side left it."""
    for name in base.keys() | mine.keys() | theirs.keys() | found.keys():
        before, ours, others, after = (
            encoded(side[name]) if name in side else None for side in (base, mine, theirs, found)
        )
        if ours == before:
            assert after == others, name
        elif others in (before, ours):
            assert after == ours, name


class States(RuleBasedStateMachine):
    """Three handles on one branch, and one on a state of its own.

    `models` says what a handle should hold, `heads` what is committed, and `bases` what
    was committed when a handle last looked.
    """

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.commits: dict[str, dict[Any, Any]] = {}
        self.names: dict[str, str] = {}

    @initialize()
    def begin(self) -> None:
        self.handles = [Versioned(self.store.another()) for _ in range(3)]
        self.side = Versioned(self.store.another(), name="side")
        self.heads: dict[str, dict[Any, Any]] = {"default": {}, "side": {}}
        self.models: list[dict[Any, Any]] = [{} for _ in range(4)]
        self.bases: list[dict[Any, Any]] = [{} for _ in range(4)]

    # Which handle, and what it should hold.

    def _pick(self, number: int) -> tuple[Versioned, dict[Any, Any]]:
        handle = self.side if number == 3 else self.handles[number]
        return handle, self.models[number]

    def _place(self, handle: Versioned, place: tuple[str, ...]) -> Any:
        found: Any = handle
        for name in place:
            found = found.namespace(name)
        return found

    # Changes.

    @rule(
        number=st.integers(0, 3),
        place=st.sampled_from(PLACES),
        key=st.sampled_from(KEYS),
        value=any_value,
    )
    def set_a_key(self, number: int, place: tuple[str, ...], key: Any, value: Any) -> None:
        handle, model = self._pick(number)
        self._place(handle, place)[key] = value
        model[name_of(place, key)] = value

    @rule(number=st.integers(0, 3), place=st.sampled_from(PLACES), key=st.sampled_from(KEYS))
    def remove_a_key(self, number: int, place: tuple[str, ...], key: Any) -> None:
        handle, model = self._pick(number)
        where = self._place(handle, place)
        assert (key in where) == (name_of(place, key) in model)
        if key in where:
            del where[key]
            del model[name_of(place, key)]

    @rule(
        target=held,
        number=st.integers(0, 3),
        place=st.sampled_from(PLACES),
        key=st.sampled_from(KEYS),
    )
    def hold_an_object(self, number: int, place: tuple[str, ...], key: Any) -> Any:
        handle, model = self._pick(number)
        name = name_of(place, key)
        where = self._place(handle, place)
        if name not in model:
            assert where.get(key, "nothing") == "nothing"
            return None
        value = where[key]
        assert encoded(value) == encoded(model[name])
        model[name] = value  # From here on what changes it in place changes the model too.
        return (number, name, value)

    @rule(one=held, steps=st.lists(st.integers(0, 400), max_size=3), change=any_value)
    def change_what_is_held(self, one: Any, steps: list[int], change: Any) -> None:
        if one is None:
            return
        number, name, value = one
        _, model = self._pick(number)
        if model.get(name) is not value:
            return  # It was replaced or removed since.
        for step in steps:
            inner = _inside(value, step)
            if inner is None:
                break
            value = inner
        _mutate(value, steps[0] if steps else 0, change)

    @rule(one=consumes(held))
    def let_go(self, one: Any) -> None:
        pass

    # Commits.

    @rule(number=st.integers(0, 3))
    def commit(self, number: int) -> None:
        handle, model = self._pick(number)
        mine, changed = copy.deepcopy(model), handle.dirty
        try:
            hash = handle.commit()
        except MergeConflict:
            self._compare(number)  # Nothing was changed by it.
            self.reset(number)
            return
        after = contents(handle)
        if not changed:
            expect_equal(after, mine)
            return
        assert hash is not None
        expect_merged(self.bases[number], mine, self.heads[handle.name], after)
        self.commits[hash] = self._stand(number, copy.deepcopy(after))
        self.names[hash] = handle.name
        self.models[number] = after
        assert not handle.dirty
        expect_equal(contents(handle.checkout(hash)), after)
        expect_equal(contents(Versioned(self.store.another(), name=handle.name)), after)

    def _stand(self, number: int, content: dict[Any, Any]) -> dict[Any, Any]:
        self.heads[self._pick(number)[0].name] = self.bases[number] = content
        return content

    @rule(number=st.integers(0, 3))
    def refresh(self, number: int) -> None:
        handle, model = self._pick(number)
        mine = copy.deepcopy(model)
        try:
            handle.refresh()
        except MergeConflict:
            self._compare(number)
            return
        after = contents(handle)
        expect_merged(self.bases[number], mine, self.heads[handle.name], after)
        self.bases[number] = self.heads[handle.name]
        self.models[number] = after

    @rule(number=st.integers(0, 3))
    def reset(self, number: int) -> None:
        self._pick(number)[0].reset()
        self._forget(number)

    @rule(number=st.integers(0, 3))
    def reopen(self, number: int) -> None:
        fresh = Versioned(self.store.another(), name=self._pick(number)[0].name)
        if number == 3:
            self.side = fresh
        else:
            self.handles[number] = fresh
        self._forget(number)

    def _forget(self, number: int) -> None:
        self.bases[number] = self.heads[self._pick(number)[0].name]
        self.models[number] = copy.deepcopy(self.bases[number])

    @rule(number=st.integers(0, 3), data=st.data())
    @precondition(lambda self: self.commits)
    def go_back_to_any_commit(self, number: int, data: st.DataObject) -> None:
        handle, _ = self._pick(number)
        known = [commit.id.hex() for commit in handle.history()]
        if known:
            hash = data.draw(st.sampled_from(known))
            handle.reset(hash)
            self._stand(number, self.commits[hash])
            self._forget(number)

    @rule(
        number=st.integers(0, 3),
        key=st.sampled_from(KEYS),
        place=st.sampled_from(PLACES),
        value=any_value,
    )
    def a_transaction_fails(
        self, number: int, key: Any, place: tuple[str, ...], value: Any
    ) -> None:
        self.refresh(number)  # A block begins at the newest version.
        handle, model = self._pick(number)
        before = copy.deepcopy(model)
        try:
            with handle.transaction():
                where = self._place(handle, place)
                for held in list(where.values()):
                    _mutate(held, 1, "in a block that fails")
                where[key] = value
                for other in list(handle):
                    del handle[other]
                raise ZeroDivisionError
        except MergeConflict:
            self._compare(number)
        except ZeroDivisionError:
            self.models[number] = before

    @rule(number=st.integers(0, 3), data=st.data())
    @precondition(lambda self: self.commits)
    def check_out_any_commit(self, number: int, data: st.DataObject) -> None:
        handle, _ = self._pick(number)
        known = [hash for hash, name in self.names.items() if name == handle.name]
        if known:
            hash = data.draw(st.sampled_from(sorted(known)))
            expect_equal(contents(handle.checkout(hash)), self.commits[hash])

    # What always holds.

    def _compare(self, number: int) -> None:
        handle, model = self._pick(number)
        expect_equal(contents(handle), model)

    @invariant()
    def lengths_agree(self) -> None:
        for number in range(4 if hasattr(self, "models") else 0):
            handle, model = self._pick(number)
            assert len(handle) == sum(place == () for place, _ in model)

    def teardown(self) -> None:
        if hasattr(self, "models"):
            for number in range(4):
                self._compare(number)
            for hash, content in self.commits.items():
                handle = self.side if self.names[hash] == "side" else self.handles[0]
                expect_equal(contents(handle.checkout(hash)), content)
            assert self.store.check(read_data=True).problems == ()


def _inside(value: Any, step: int) -> Any:
    """A container inside a value, if there is one at a step."""
    match value:
        case list() | tuple() if value:
            return value[step % len(value)]
        case dict() if value:
            return list(value.values())[step % len(value)]
    return None


def _mutate(value: Any, step: int, change: Any) -> None:
    """Change a value in place, in one of the ways that it has."""
    match value:
        case list():
            _mutate_list(value, step, change)
        case dict():
            _mutate_dict(value, step, change)
        case set():
            value.symmetric_difference_update({step, -1})
        case bytearray():
            value[step % len(value) : step % len(value) + 1] = b"xyz"


def _mutate_list(value: list[Any], step: int, change: Any) -> None:
    at = step % (len(value) + 1)
    match step % 5:
        case 0:
            value.append(change)
        case 1:
            value.insert(at, change)
        case 2:
            del value[at : at + 1 + step % 3]
        case 3 if value:
            value[at % len(value)] = change
        case _:
            value.reverse()


def _mutate_dict(value: dict[Any, Any], step: int, change: Any) -> None:
    keys = list(value)
    match step % 4:
        case 0:
            value[f"new {step}"] = change
        case 1 if keys:
            del value[keys[step % len(keys)]]
        case 2 if keys:
            value[keys[step % len(keys)]] = change
        case _ if keys:
            key = keys[step % len(keys)]
            value[key] = value.pop(key)


def test_states_hold_and_store_what_plain_dicts_would() -> None:
    run_state_machine_as_test(
        States,
        settings=settings(
            max_examples=1_500 if SOAK else 100, stateful_step_count=80 if SOAK else 50
        ),
    )
