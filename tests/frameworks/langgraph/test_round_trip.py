"""Any value that can be stored comes back through the saver and the stores as what it was."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from ropewalk.adapters.langgraph import CoherentStore, RopewalkSaver, RopewalkStore
from ropewalk.store import MemoryStore
from tests.frameworks.langgraph.checkpoints import checkpoint_of, config_of, metadata_of
from tests.frameworks.langgraph.test_exact import Kind, Place, Plan, Rank, Ticket, same

PLACE = ("team", "notes")


def atoms() -> st.SearchStrategy[Any]:
    """What holds nothing else, and may be a key."""
    numbers = st.integers() | st.floats() | st.booleans() | st.complex_numbers()
    moments = st.datetimes() | st.dates() | st.times() | st.timedeltas()
    texts = st.text(max_size=20) | st.binary(max_size=20)
    exact = st.fractions() | st.decimals(allow_nan=False) | st.uuids()
    ranges = st.builds(range, st.integers(), st.integers(), st.integers(min_value=1))
    patterns = st.text("ab.*[]", max_size=8).map(re.escape).map(re.compile)
    networks = st.ip_addresses().map(ipaddress.ip_network)
    members = st.sampled_from([Kind.GOOD, Rank.FIRST])
    plain = st.none() | numbers | texts | moments
    return plain | exact | ranges | patterns | st.ip_addresses() | networks | members


def keys() -> st.SearchStrategy[Any]:
    """What may be a key or a member of a set."""
    return st.recursive(
        atoms(),
        lambda parts: st.one_of(
            st.lists(parts, max_size=3).map(tuple),
            st.frozensets(parts, max_size=3),
            st.builds(Place, st.text(max_size=5), parts),
        ),
        max_leaves=4,
    )


def values() -> st.SearchStrategy[Any]:
    """Anything that comes back exactly."""
    return st.recursive(atoms() | st.binary(max_size=20).map(bytearray), holders, max_leaves=10)


def holders(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Everything that holds other values."""
    items, texts = st.lists(parts, max_size=4), st.text(max_size=5)
    named = st.dictionaries(texts, parts, max_size=4)
    keyed = st.dictionaries(keys(), parts, max_size=4)
    return st.one_of(
        items,
        items.map(tuple),
        items.map(deque),
        named,
        keyed,
        keyed.map(OrderedDict),
        keyed.map(lambda one: defaultdict(list, one)),
        st.lists(keys(), max_size=4).map(Counter),
        st.sets(keys(), max_size=4),
        st.builds(Place, texts, parts),
        st.builds(Ticket, texts, parts, items),
        st.builds(Plan, title=texts, steps=items),
        st.builds(HumanMessage, texts, additional_kwargs=named),
        st.builds(AIMessage, texts, id=texts, response_metadata=named),
    )


def _checkpoint(value: Any) -> Any:
    with MemoryStore() as store:
        made = checkpoint_of({"value": value}, version=1)
        RopewalkSaver(store).put(config_of(), made, metadata_of(), {"value": 1})
        found = RopewalkSaver(store).get_tuple(config_of())
        assert found is not None
        return found.checkpoint["channel_values"]["value"]


def _pending_write(value: Any) -> Any:
    with MemoryStore() as store:
        saver = RopewalkSaver(store)
        config = saver.put(config_of(), checkpoint_of({}, version=1), metadata_of(), {})
        saver.put_writes(config, [("value", value)], "task")
        found = RopewalkSaver(store).get_tuple(config)
        assert found is not None and found.pending_writes is not None
        ((_, _, written),) = found.pending_writes
        return written


def _item(value: Any) -> Any:
    with MemoryStore() as store:
        RopewalkStore(store).put(PLACE, "k", {"value": value})
        found = RopewalkStore(store).get(PLACE, "k")
        assert found is not None
        return found.value["value"]


def _shared_item(value: Any) -> Any:
    with (
        MemoryStore() as store,
        CoherentStore(store=store) as writer,
        CoherentStore(store=store) as reader,
    ):
        writer.put(PLACE, "k", {"value": value})
        found = reader.get(PLACE, "k")
        assert found is not None
        return found.value["value"]


FACES: dict[str, Callable[[Any], Any]] = {
    "a checkpoint": _checkpoint,
    "a pending write": _pending_write,
    "an item of the store": _item,
    "an item of the coherent store": _shared_item,
}


@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
@settings(max_examples=max(settings().max_examples // 4, 5))
@given(values(), keys())
def test_any_value_comes_back(face: Callable[[Any], Any], value: Any, key: Any) -> None:
    whole = [value, {key: 1, "other": key}, frozenset({key})]
    assert same(face(whole), whole)
