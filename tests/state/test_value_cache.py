"""The values that an adapter keeps in memory: copied exactly, and never more than so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from ropewalk import MemoryStore
from ropewalk.state import ContentRef
from ropewalk.state.value_cache import ValueCache, copied

PLAIN: list[Any] = [
    None,
    True,
    1.5,
    "text",
    b"bytes",
    [],
    [1, True, 1.0, None],
    {"a": {1: "one", None: b"", (1.5): [2]}},
    ([1], {"b": ([],)}, (), 1 << 70),
    [{"id": at, "text": "x" * 100} for at in range(50)],
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    found = copied(value)

    assert found is not None and repr(found.value) == repr(value)
    assert not _containers(found.value) & _containers(value)


def _containers(value: Any) -> set[int]:
    if not isinstance(value, (list, dict, tuple)):
        return set()
    parts = value.values() if isinstance(value, dict) else value
    inner = set[int]().union(*map(_containers, parts))
    return inner if isinstance(value, tuple) else inner | {id(value)}


class Text(str):
    pass


@pytest.mark.parametrize(
    "value",
    [[bytearray(b"x")], {"a": {1, 2}}, [Text("x")], OrderedDict(a=1), {Text("k"): 1}, [object()]],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_is_copied(value: Any) -> None:
    assert copied(value) is None


def test_a_value_that_holds_itself_is_not_copied() -> None:
    value: list[Any] = []
    value.append(value)

    assert copied(value) is None


def ref(number: int, size: int) -> ContentRef:
    return ContentRef(f"{number:064x}", "memory", "str", size)


class Everything(MemoryStore):
    """Lacks nothing that it is asked for."""

    def missing(self, ids: Any, space: str | None = None) -> list[bytes]:
        return []


def test_the_values_used_least_recently_are_evicted() -> None:
    cache = ValueCache(Everything(), limit=1000)
    for number in range(3):
        cache.put(ref(number, 400), str(number), 0, None)
        cache.get(ref(0, 400))
    cache.put(ref(3, 2000), "too large", 0, None)
    cache.put(ref(4, 100), list(range(100)), 100, None)

    assert [number for number in range(5) if cache.get(ref(number, 400))] == [0, 2]


def test_a_value_that_the_store_lacks_is_dropped() -> None:
    cache = ValueCache(MemoryStore())
    cache.put(ref(1, 1), "x", 0, None)

    assert cache.get(ref(1, 1)) is None
