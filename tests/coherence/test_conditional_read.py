"""Reading with `have`: not modified, a delta, or the whole."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, Delta, Full, NotModified
from ropewalk.errors import InvalidInput, NotFound

TEXT = "\n".join(f"{number}. A step of the plan" for number in range(50))
DATA = {"steps": [{"name": f"step {number}", "done": False} for number in range(20)]}


def changed(data: dict[str, Any]) -> dict[str, Any]:
    steps = [dict(one) for one in data["steps"]]
    steps[7]["done"] = True
    return {"steps": steps, "owner": "alice"}


def test_the_newest_version_is_not_modified(core: CoherenceCore) -> None:
    made = core.write("planner", "plan", TEXT)

    found = core.read("reviewer", "plan", have=[1])

    assert isinstance(found, NotModified)
    assert (found.version, found.artifact.value) == (1, TEXT)
    assert isinstance(core.read("reviewer", "plan", have=[(1, made.content_hash)]), NotModified)


def test_a_text_that_changed_is_a_unified_diff_against_the_version_one_has(
    core: CoherenceCore,
) -> None:
    core.write("planner", "plan", TEXT)
    core.write("planner", "plan", new := TEXT.replace("7. A step", "7. Another step"))

    found = core.read("reviewer", "plan", have=[1])

    assert isinstance(found, Delta)
    assert (found.base, found.version) == (1, 2)
    assert "+7. Another step of the plan" in str(found.patch)
    assert found.apply(TEXT) == new


def test_data_that_changed_is_a_json_patch(core: CoherenceCore) -> None:
    core.write("planner", "plan", DATA)
    core.write("planner", "plan", changed(DATA))

    found = core.read("reviewer", "plan", have=[1])

    assert isinstance(found, Delta)
    assert found.patch == [
        {"op": "add", "path": "/owner", "value": "alice"},
        {"op": "replace", "path": "/steps/7/done", "value": True},
    ]
    assert found.apply(DATA) == changed(DATA)


def test_the_patch_is_against_the_newest_version_that_one_has(core: CoherenceCore) -> None:
    for number in range(5):
        core.write("planner", "plan", TEXT.replace("7. A", f"7. {number} a"))

    found = core.read("reviewer", "plan", have=[1, 4, 2])

    assert isinstance(found, Delta)
    assert found.base == 4


def test_a_delta_that_is_not_smaller_is_the_whole(core: CoherenceCore) -> None:
    core.write("planner", "plan", "short")
    core.write("planner", "plan", "other")

    assert isinstance(core.read("reviewer", "plan", have=[1]), Full)


def test_who_has_nothing_or_another_history_is_given_the_whole(core: CoherenceCore) -> None:
    core.write("planner", "plan", TEXT)
    core.write("planner", "plan", TEXT + "\nOne more")

    for have in ([], [7], [(1, "0" * 64)], [(2, "0" * 64)]):
        found = core.read("reviewer", "plan", have=have)
        assert isinstance(found, Full)
        assert found.value == TEXT + "\nOne more"
    assert [one.name for one in core_full(core).sections] == ["lines 1-51"]


def core_full(core: CoherenceCore) -> Full:
    found = core.read("reviewer", "plan", have=[])
    assert isinstance(found, Full)
    return found


def test_versions_from_before_a_deletion_are_no_base_where_they_are_gone(
    core: CoherenceCore,
) -> None:
    core.write("planner", "plan", TEXT)
    core.delete("planner", "plan")
    with pytest.raises(NotFound):
        core.read("reviewer", "plan", have=[1])
    core.write("planner", "plan", TEXT + "\nAgain")

    found = core.read("reviewer", "plan", have=[2])

    assert isinstance(found, Full)
    kept = core.read("reviewer", "plan", have=[1])
    assert isinstance(kept, Full if core.store is None else Delta)


def test_a_value_that_json_cannot_say_is_given_as_a_whole(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"done": {1, 2, 3}, "text": TEXT})
    core.write("planner", "plan", {"done": {1, 2}, "text": TEXT})

    assert isinstance(core.read("reviewer", "plan", have=[1]), Full)
    assert isinstance(core.read("reviewer", "plan", have=[2]), NotModified)


@pytest.mark.parametrize("have", ["1", [0], [True], [("1", 1)], [(1, 2)], 3])
def test_versions_are_numbers_or_pairs(have: Any) -> None:
    core = CoherenceCore()
    core.write("planner", "plan", TEXT)

    with pytest.raises(InvalidInput):
        core.read("reviewer", "plan", have=have)


async def read_twice(core: CoherenceCore) -> None:
    found = await core.aread("reviewer", "plan", have=[1])
    assert isinstance(found, Delta)


def test_the_asynchronous_twin_reads_in_the_same_way(core: CoherenceCore) -> None:
    import asyncio

    core.write("planner", "plan", TEXT)
    core.write("planner", "plan", TEXT + "\nOne more")

    asyncio.run(read_twice(core))
