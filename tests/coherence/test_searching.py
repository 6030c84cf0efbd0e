"""Finding artifacts, when they came to be, and taking several away at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from ropewalk.codec import Codec
from ropewalk.coherence import CoherenceCore
from ropewalk.errors import InvalidInput
from ropewalk.store import MemoryStore
from ropewalk.store.wrappers import WrapperStore
from ropewalk.tree import ABSENT

R = TypeVar("R")


@pytest.fixture(params=["memory", "sqlite"])
def core(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CoherenceCore]:
    """Artifacts in memory, and in a store."""
    store = None if request.param == "memory" else str(tmp_path / "store")
    with CoherenceCore(store) as made:
        yield made


def test_a_search_gives_what_was_written_latest_first(core: CoherenceCore) -> None:
    for number, name in enumerate(["docs/a", "docs/b", "notes/c", "docs/d"]):
        core.write("planner", name, {"n": number})
    core.write("planner", "docs/a", {"n": 9})
    found = core.search("reviewer", "docs/")

    assert [(one.name, one.version, one.value["n"]) for one in found] == [
        ("docs/a", 2, 9),
        ("docs/d", 1, 3),
        ("docs/b", 1, 1),
    ]
    assert {one.source for one in found} == {"search"}


@pytest.mark.parametrize("way", ["write", "delete"])
def test_what_an_agent_writes_while_it_searches_is_newer_than_what_it_finds(
    core: CoherenceCore, way: str
) -> None:
    core.write("planner", "plan", {"n": 1})

    def meanwhile(_: object) -> bool:
        core.write("planner", "plan", {"n": 2})
        if way == "delete":
            core.delete("planner", "plan")
        return True

    core.search("planner", where=meanwhile)
    core.write("planner", "plan", {"n": 3})

    assert core.read("reviewer", "plan").value == {"n": 3}


def test_a_page_counts_what_passes(core: CoherenceCore) -> None:
    for number in range(10):
        core.write("planner", f"n{number}", number)
    found = core.search("reviewer", where=lambda value: value % 2 == 1, limit=2, offset=1)

    assert [one.value for one in found] == [7, 5]


def test_only_what_was_found_counts_as_seen(core: CoherenceCore) -> None:
    core.write("planner", "odd", {"n": 1})
    core.write("planner", "even", {"n": 2})
    core.search("reviewer", where=lambda value: value["n"] == 1)
    core.publish("planner", {"odd": {"n": 3}, "even": {"n": 3}})
    replaced = core.write("reviewer", "even", {"n": 4})
    merged = core.write("reviewer", "odd", {"n": 1, "other": 2})

    assert replaced.value == {"n": 4}
    assert merged.value == {"n": 3, "other": 2}


def test_an_artifact_knows_when_it_came_to_be(core: CoherenceCore) -> None:
    first = core.write("planner", "plan", 1)
    second = core.write("planner", "plan", 2)
    core.delete("planner", "plan")
    again = core.write("planner", "plan", 3)

    assert first.created == first.time == second.created <= second.time
    assert core.read("reviewer", "plan").created == again.created == again.time > second.time


def test_a_publish_may_take_artifacts_away(core: CoherenceCore) -> None:
    core.write("planner", "old", 1)
    core.write("reviewer", "old", 2)
    made = core.publish("planner", {"new": 1, "old": ABSENT, "never": ABSENT})

    assert list(made) == ["new"] and core.artifacts() == ["new"]
    assert core.publish("planner", {"never": ABSENT}) == {}


def test_a_codec_may_be_given_for_the_values() -> None:
    with pytest.raises(InvalidInput):
        CoherenceCore(codec=Codec(), types=[dict])


def test_a_name_may_be_longer_than_an_engine_takes(core: CoherenceCore) -> None:
    core.write("planner", "漢" * 600, 1)
    core.write("planner", "a\nb", 2)

    assert core.read("reviewer", "漢" * 600).value == 1
    assert core.artifacts() == ["a\nb", "漢" * 600]


def test_a_search_fetches_what_it_looks_at_together() -> None:
    memory = MemoryStore()
    writer = CoherenceCore(memory, bus=False)
    values = {
        f"n{number}": {"n": number, "text": "x" * 9_000 * (number == 7)} for number in range(50)
    }
    writer.publish("planner", values)
    counted = Counted(memory.another())
    with CoherenceCore(counted, bus=False) as reader:
        found = reader.search("reviewer", where=lambda value: value["n"] % 10 == 7)

    assert {one.name: one.value for one in found} == {
        f"n{number}": values[f"n{number}"] for number in (7, 17, 27, 37, 47)
    }
    assert 0 < counted.reads < 12, "not one for each artifact"


class Counted(WrapperStore):
    """A store that counts how often objects are read."""

    reads = 0

    def _call(self, method: str, call: Callable[[], R]) -> R:
        self.reads += method == "read"
        return call()
