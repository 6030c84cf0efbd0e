"""Values that saving itself changes, and values that never stay."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from ropewalk import (
    AgentState,
    Inline,
    MemoryStore,
    NotStorable,
    Timeline,
    Versioned,
    create_runtime,
)
from ropewalk.codec import Codec, Registry
from ropewalk.coherence import CoherenceCore
from ropewalk.errors import ChangedMeanwhile, Conflict
from ropewalk.threads import ThreadCheckpointer
from ropewalk.tree import TreeWriter, load


class Meddler:
    """An object whose `encode=` changes something."""

    def __init__(self, meddle: Callable[[], Any]) -> None:
        self.meddle = meddle


class Restless:
    """An object that is pickled to something else each time."""

    numbers = itertools.count()

    def __getstate__(self) -> int:
        return next(self.numbers)


def meddling(encode: Callable[[Meddler], Any] = lambda one: one.meddle()) -> Codec:
    registry = Registry()
    registry.register(Meddler, encode=encode, decode=lambda stored: stored)
    return Codec(registry)


def saved_by_timeline(value: Any, codec: Codec) -> Any:
    timeline = Timeline("agent", store=MemoryStore(), codec=codec)
    return timeline.get(timeline.checkpoint(value).id).state


def saved_by_versioned(value: Any, codec: Codec) -> Any:
    state = Versioned(codec=codec)
    state["value"] = value
    made = state.commit()
    assert made is not None
    return state.checkout(made)["value"]


def saved_by_thread(value: Any, codec: Codec) -> Any:
    checkpointer = ThreadCheckpointer(MemoryStore(), codec=codec, cache_seconds=None)
    checkpointer.put_state({"thread_id": "t"}, value)
    return checkpointer.get_state({"thread_id": "t"})


def saved_by_coherence(value: Any, codec: Codec) -> Any:
    with CoherenceCore(codec=codec) as core:
        core.write("agent", "plan", value)
        return core.read("other", "plan").value


def saved_by_tree(value: Any, codec: Codec) -> Any:
    writer, objects = TreeWriter(codec), {}
    written = writer.write(value)
    objects.update({one.id: one for one in written.objects})
    return load(written.root, lambda ids: [objects[id] for id in ids], codec)


def encoded(value: Any, codec: Codec) -> Any:
    return codec.decode(codec.encode(value))


FACES = [
    saved_by_timeline,
    saved_by_versioned,
    saved_by_thread,
    saved_by_coherence,
    saved_by_tree,
    encoded,
]


@pytest.mark.parametrize("save", FACES)
@pytest.mark.parametrize("size", [3, 3000])
def test_an_encode_that_empties_its_list_is_stored_with_the_list_as_it_was(
    save: Callable[..., Any], size: int
) -> None:
    held: list[Any] = []
    held += [Decimal(1), Meddler(held.clear), *[(n, Decimal(n)) for n in range(size)]]

    found = save({"held": held}, meddling())

    assert found["held"] in ([], [Decimal(1), None, *[(n, Decimal(n)) for n in range(size)]])


@pytest.mark.parametrize("save", FACES)
@pytest.mark.parametrize("size", [3, 3000])
def test_an_encode_that_changes_its_dict_is_stored_with_the_dict_as_it_was(
    save: Callable[..., Any], size: int
) -> None:
    held: dict[str, Any] = {"first": Meddler(lambda: (held.pop("k0", 0), held.update(new=1))[0])}
    held |= {f"k{n}": Decimal(n) for n in range(size)}

    found = save({"held": held}, meddling())["held"]

    assert ("k0" in found) != ("new" in found)
    assert {key for key in found if key not in ("k0", "new", "first")} == {
        f"k{n}" for n in range(1, size)
    }


@pytest.mark.parametrize("save", FACES)
def test_a_list_that_grows_whenever_it_is_saved_is_stored_once(save: Callable[..., Any]) -> None:
    held: list[Any] = []
    codec = meddling(lambda one: held.append(Meddler(int)))
    held += [Meddler(int) for _ in range(200)]

    found = save(held, codec)

    assert len(found) >= 200
    assert set(found) == {None}


@pytest.mark.parametrize("save", FACES)
def test_an_object_that_becomes_another_one_for_ever_is_refused(save: Callable[..., Any]) -> None:
    codec = meddling(lambda one: [Meddler(int), Meddler(int)])

    with pytest.raises(NotStorable, match="nested too deeply"):
        save({"held": Meddler(int)}, codec)


@pytest.mark.parametrize("save", FACES)
def test_what_is_never_the_same_twice_is_refused_with_its_place(save: Callable[..., Any]) -> None:
    codec = Codec(pickle_key=b"a key of sixteen bytes or more")

    with pytest.raises(ChangedMeanwhile) as caught:
        save({"docs": [1, {"meta": Restless()}]}, codec)
    assert isinstance(caught.value, Conflict)
    assert caught.value.path.endswith('["docs"][1]["meta"]')
    assert caught.value.path in str(caught.value)


@dataclass
class Shown:
    """A property that changes what holds the object, whenever it is read."""

    name: str
    holder: Any = None

    @property
    def count(self) -> int:
        self.holder.clear()
        return 1


def test_a_property_is_not_read_when_its_object_is_saved() -> None:
    held: list[Any] = [Shown("a"), Shown("b")]
    codec = Codec(types=[Shown])

    assert encoded(held, codec) == held


def test_a_walk_that_finds_its_dict_changed_says_so() -> None:
    held: dict[str, Any] = {}

    def walk(one: Meddler) -> Any:
        return [held.setdefault(key + "x", 1) for key in held]

    held["a"] = Meddler(int)

    with pytest.raises(ChangedMeanwhile):
        meddling(walk).encode(held)


def test_a_value_that_grows_deeper_and_deeper_comes_to_an_end() -> None:
    top: dict[str, Any] = {"n": {}, "d": Decimal(1)}
    stop = threading.Event()

    def deepen() -> None:
        inner = top
        while not stop.is_set():
            inner["n"] = {"d": Decimal(1), "n": {}}
            inner = inner["n"]

    thread = threading.Thread(target=deepen)
    thread.start()
    try:
        for save in FACES:
            for _ in range(3):
                try:
                    save(top, Codec())
                except (NotStorable, ChangedMeanwhile):
                    top["n"] = {}
    finally:
        stop.set()
        thread.join()


def test_the_event_loop_may_change_what_is_being_saved() -> None:
    timeline = Timeline("agent", store=MemoryStore())
    state: dict[str, Any] = {"prices": {f"k{n}": Decimal(n) for n in range(300)}}

    async def go() -> list[str]:
        saved = []
        for turn in range(60):
            saving = asyncio.create_task(timeline.acheckpoint(state))
            step = 0
            while not saving.done():
                step += 1
                prices = state["prices"]
                prices[f"new{turn}.{step}"] = Decimal(turn)
                prices.pop(next(iter(prices)))
                await asyncio.sleep(0)
            saved.append((await saving).id)
        return saved

    saved = asyncio.run(go())

    for id in saved:
        assert len(timeline.get(id).state["prices"]) in (300, 301)
    assert timeline.store.check(read_data=True).ok


def test_a_field_of_a_typed_state_is_named_in_the_refusal() -> None:
    class Held(AgentState):
        small: Inline[dict[str, Any]]

    runtime = create_runtime(codec=Codec(pickle_key=b"a key of sixteen bytes or more"))

    with pytest.raises(ChangedMeanwhile, match=r'state.small\["a"\] was changed'):
        Held(runtime=runtime, small={"a": Restless()})
