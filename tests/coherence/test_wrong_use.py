"""What a user is told who uses shared artifacts wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import ArtifactHeld, InvalidInput, NotAllowed, VersionConflict
from ropewalk.store import MemoryStore


async def coroutine_function(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bus": "redis"}, "bus is None, False, or has publish"),
        ({"bus": True}, "bus is None, False, or has publish"),
        ({"name": ""}, "name is a text"),
        ({"name": 3}, "name is a text"),
        ({"name": None}, "name is a text"),
        ({"instance_id": 5}, "instance_id is a text"),
        ({"instance_id": ""}, "instance_id is a text"),
        ({"stratgy": "lease"}, "has no parameter stratgy.* CoherenceCore takes .*strategy"),
        ({"strategy_name": "lease"}, "Did you mean strategy?"),
        ({"strategy": "lease", "ttl_ticks": 3, "on_metrics": print}, "Did you mean on_metric?"),
    ],
)
def test_what_a_core_cannot_be_made_of_is_refused_by_its_name(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        CoherenceCore(**given)


def test_a_wrong_value_of_a_parameter_does_not_list_the_others() -> None:
    with pytest.raises(InvalidInput) as caught:
        CoherenceCore(strategy="lease", ttl_ticks=0)

    assert "takes" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.snapshot("a", "plan"),
        lambda core: core.watch("plan"),
        lambda core: core.publish("a", ["plan"]),
        lambda core: core.edit("a", "plan", {"step": 2}),
        lambda core: core.edit("a", "plan", coroutine_function),
        lambda core: asyncio.run(core.aedit("a", "plan", coroutine_function)),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused(call: Callable[[CoherenceCore], object]) -> None:
    with CoherenceCore() as core:
        core.write("a", "plan", {"step": 1})

        with pytest.raises(InvalidInput):
            call(core)


def test_a_conflict_says_which_places_both_changed_and_what_to_do() -> None:
    with CoherenceCore() as core:
        core.write("a", "plan", {"step": 1, "owner": "a"})
        core.read("b", "plan")
        core.write("a", "plan", {"step": 2, "owner": "a"})
        with pytest.raises(VersionConflict) as caught:
            core.write("b", "plan", {"step": 3, "owner": "a"})

    assert [one.path for one in caught.value.conflicts] == [("step",)]
    assert str(caught.value).startswith("artifact 'plan'")
    assert 'without a merger for value["step"]' in str(caught.value)
    assert "use `edit`" in str(caught.value)


def test_who_asks_for_one_version_is_not_told_of_mergers() -> None:
    with CoherenceCore() as core:
        core.write("a", "plan", 1)
        with pytest.raises(VersionConflict) as caught:
            core.write("a", "plan", 2, if_version=7)

    assert caught.value.conflicts == ()
    assert "merger" not in str(caught.value)


def test_holding_twice_in_one_thread_is_refused_and_never_waits_for_itself() -> None:
    with CoherenceCore() as core, core.hold("a", "plan"), pytest.raises(ArtifactHeld) as caught:
        core.hold("a", "plan")

    assert "in this thread" in str(caught.value)


def test_a_thread_does_not_wait_for_ever_for_what_it_holds() -> None:
    with CoherenceCore() as core:
        first = core.hold("a", "plan")

        with pytest.raises(ArtifactHeld, match="would wait for itself"):
            core.hold("a", "plan")
        assert first.release()
        core.hold("a", "plan").release()


def test_a_task_waits_for_another_of_its_agent() -> None:
    async def work() -> list[int]:
        done: list[int] = []

        async def one(number: int) -> None:
            async with await core.ahold("a", "plan"):
                done.append(number)

        await asyncio.gather(*map(one, range(4)))
        return done

    with CoherenceCore() as core:
        assert sorted(asyncio.run(work())) == [0, 1, 2, 3]


class FunctionBus:
    """Gives functions where objects are wanted, or the other way round."""

    def __init__(self, wrong: str) -> None:
        self._wrong = wrong

    def publish(self, topic: str, message: bytes) -> None: ...

    def subscribe(self, topic: str, receive: Any, gap: Any = None) -> Any:
        return (lambda: None) if self._wrong == "subscribe" else self

    def on_gap(self, doubt: Any) -> Any:
        return self if self._wrong == "on_gap" else (lambda: None)

    def close(self) -> None: ...


def test_a_bus_that_gives_no_way_to_end_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    bus: Any = FunctionBus("on_gap")
    with pytest.raises(InvalidInput, match="on_gap gives a function"):
        CoherenceCore(MemoryStore(), bus=bus)

    bus = FunctionBus("subscribe")
    with CoherenceCore(MemoryStore(), strategy="lease", bus=bus) as core:
        core.write("a", "plan", 1)
        assert core.read("b", "plan").value == 1
    assert "gives what has a close()" in caplog.text


def test_an_artifact_shows_what_it_is() -> None:
    with CoherenceCore() as core:
        made = core.write("a", "plan", {"step": 1})

        assert repr(made) == "<Artifact 'plan' version 1 by 'a': {'step': 1}>"


def test_a_benchmark_that_is_not_here_yet_is_said_to_be_so() -> None:
    with pytest.raises(InvalidInput, match="not here yet"):
        CoherenceCore(benchmark=True)


@pytest.mark.parametrize("artifact", [3, "", None, [], "\ud800"])
def test_what_is_no_name_is_refused_also_to_an_agent_that_has_read(
    core: CoherenceCore, artifact: Any
) -> None:
    core.write("planner", "plan", 1)
    core.read("planner", "plan")

    with pytest.raises(InvalidInput, match="an artifact is a name"):
        core.read("planner", artifact)


def test_a_folder_that_cannot_be_made_records_nothing(core: CoherenceCore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(NotAllowed, match="cannot be recorded"):
        core.record_to(tmp_path / "file" / "run")
