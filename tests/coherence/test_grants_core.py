"""Agents that hold artifacts, on every engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig, Grant, State
from ropewalk.errors import ArtifactHeld, GrantLost, InvalidInput, NotFound, VersionConflict
from ropewalk.store import MemoryStore
from ropewalk.testing.helpers import PATIENCE, Clock
from tests.coherence.conftest import OpenCore

LONG = "a name that is longer than a name of a branch can be " * 8


def test_a_holder_reads_and_writes_alone(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"step": 1})

    with core.hold("planner", "plan") as grant:
        assert core.state("planner", "plan") is State.EXCLUSIVE
        made = grant.write({"step": 2})
        assert (made.version, made.state) == (2, State.MODIFIED)
        assert core.read("planner", "plan").state is State.MODIFIED
        assert core.read("reviewer", "plan").value == {"step": 2}
        for refused in (
            lambda: core.write("reviewer", "plan", {"step": 0}),
            lambda: core.publish("reviewer", {"notes": 1, "plan": {"step": 0}}),
            lambda: core.delete("reviewer", "plan"),
            lambda: core.hold("reviewer", "plan", timeout=0),
        ):
            with pytest.raises(ArtifactHeld) as caught:
                refused()
            assert (caught.value.artifact, caught.value.agent) == ("plan", "planner")

    assert core.state("planner", "plan") is State.SHARED
    assert core.write("reviewer", "plan", {"step": 3}).version == 3
    assert core.artifacts() == ["plan"]


@pytest.mark.parametrize("artifact", ["not yet there", "~tilde", LONG, "ünï/cødé"])
def test_an_artifact_is_held_before_it_is_there(core: CoherenceCore, artifact: str) -> None:
    with core.hold("planner", artifact) as grant:
        with pytest.raises(NotFound):
            core.read("planner", artifact)
        with pytest.raises(ArtifactHeld):
            core.write("reviewer", artifact, 0)
        grant.write(1)

    assert core.read("reviewer", artifact).value == 1


def test_another_client_is_refused_too(open_core: OpenCore, engine: str) -> None:
    if engine == "local":
        pytest.skip("these artifacts have one client")
    here, there = open_core(), open_core()
    here.write("planner", "plan", 1)

    with here.hold("planner", "plan") as grant:
        with pytest.raises(ArtifactHeld):
            there.write("planner", "plan", 2)
        with pytest.raises(ArtifactHeld):
            there.hold("planner", "plan", timeout=0)
        grant.write(3)

    assert there.read("planner", "plan").value == 3
    assert there.write("planner", "plan", 4).version == 3


def test_a_holder_counts_on_what_was_confirmed_under_its_grant(open_core: OpenCore) -> None:
    core = open_core(strategy="lease", ttl_seconds=1000, bus=False)
    other = open_core(strategy="lease", ttl_seconds=1000, bus=False)
    core.write("planner", "plan", 1)
    core.read("reviewer", "plan")
    if core.store is None:
        other = core
    other.write("writer", "plan", 2)

    with core.hold("reviewer", "plan"):
        found = core.read("reviewer", "plan")

    assert found.value == 2


def test_an_edit_waits_for_the_holder(core: CoherenceCore) -> None:
    core.write("planner", "plan", [1])
    done: list[Any] = []

    with core.hold("planner", "plan") as grant:
        waiting = threading.Thread(
            target=lambda: done.append(core.edit("reviewer", "plan", lambda value: [*value, 3]))
        )
        waiting.start()
        grant.write([1, 2])
        assert done == []
    waiting.join(PATIENCE)

    assert done[0].value == [1, 2, 3]


def test_an_edit_waits_no_longer_than_it_is_told(core: CoherenceCore) -> None:
    core.write("planner", "plan", [1])

    with core.hold("planner", "plan"), pytest.raises(ArtifactHeld):
        core.edit("reviewer", "plan", lambda value: value, timeout=0)


def test_a_holder_publishes_what_it_holds_with_what_nobody_holds(core: CoherenceCore) -> None:
    with core.hold("planner", "plan"), core.hold("planner", "notes"):
        made = core.publish("planner", {"plan": 1, "notes": 2, "free": 3})

    assert {name: one.version for name, one in made.items()} == {"plan": 1, "notes": 1, "free": 1}


def test_one_lost_grant_stops_a_publish_of_many(core: CoherenceCore) -> None:
    with core.hold("planner", "plan") as plan, core.hold("planner", "notes") as notes:
        core._authority.release(plan.lease)  # As if somebody had ended it.

        with pytest.raises(GrantLost) as caught:
            core.publish("planner", {"notes": 2, "plan": 1})

        assert caught.value.artifact == "plan"
        assert notes.write(2).version == 1
    assert core.artifacts() == ["notes"]


def test_a_conflict_under_a_grant_is_a_conflict(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)

    with core.hold("planner", "plan"), pytest.raises(VersionConflict):
        core.write("planner", "plan", 2, if_version=7)


def test_a_reclaimed_holder_may_neither_write_nor_read_from_its_copy(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    grant = core.hold("planner", "plan")
    core.heartbeat("planner", now_tick=1)

    ended = core.enforce_stable_grant_timeouts(current_tick=100, heartbeat_timeout_ticks=10)

    assert [(one.agent, one.artifact, one.trigger) for one in ended] == [
        ("planner", "plan", "reclaim_heartbeat")
    ]
    assert core.state("planner", "plan") is State.INVALID
    assert core.write("reviewer", "plan", 2).version == 2
    assert core.read("planner", "plan").value == 2
    with pytest.raises(GrantLost):
        grant.write(3)
    with pytest.raises(GrantLost):
        core.write("planner", "plan", 3)
    grant.release()
    assert core.write("planner", "plan", 3).version == 3


@pytest.mark.parametrize(
    "work",
    [
        lambda core: core.read("planner", "plan"),
        lambda core: core.write("planner", "plan", 2),
        lambda core: core.edit("planner", "plan", lambda value: value + 1),
        lambda core: core.publish("planner", {"plan": 2}),
        lambda core: core.delete("planner", "plan"),
        lambda core: core.snapshot("planner", ["plan"]),
        lambda core: core.search("planner"),
        lambda core: core.hold("planner", "notes"),
    ],
    ids=["read", "write", "edit", "publish", "delete", "snapshot", "search", "hold"],
)
def test_everything_that_an_agent_does_is_a_sign_of_life(
    work: Callable[[CoherenceCore], Any],
) -> None:
    with CoherenceCore() as core:
        core.write("planner", "plan", 1)
        core.hold("planner", "plan")
        core.heartbeat("planner", now_tick=3)
        core.heartbeat("reviewer", now_tick=15)
        work(core)
        ended = core.enforce_stable_grant_timeouts(24, heartbeat_timeout_ticks=10)
        later = core.enforce_stable_grant_timeouts(25, heartbeat_timeout_ticks=10)

    assert ended == []
    assert {(one.agent, one.trigger) for one in later} == {("planner", "reclaim_heartbeat")}


def test_an_operation_renews_what_its_agent_holds_if_the_beat_is_late(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CrashRecoveryConfig(heartbeat_timeout_ticks=900)
    with CoherenceCore(MemoryStore(clock=clock), clock=clock, crash_recovery=config) as core:
        grant = core.hold("planner", "plan")
        before, renewed = grant.deadline, threading.Event()
        monkeypatch.setattr(core._directory, "renewed", lambda *_: renewed.set())
        clock.advance(400.0)  # The beat sleeps for 300 real seconds.
        core.search("planner")

        assert renewed.wait(PATIENCE)
        assert grant.deadline == before + 400.0


@pytest.mark.parametrize("tick", ["7", 1.5, -1, True])
def test_a_tick_that_is_none_is_refused(tick: Any) -> None:
    with CoherenceCore() as core:
        for call in (
            lambda: core.heartbeat("planner", now_tick=tick),
            lambda: core.read("planner", "plan", now_tick=tick),
            lambda: core.recover("planner", now_tick=tick),
            lambda: core.enforce_stable_grant_timeouts(current_tick=tick),
        ):
            with pytest.raises(InvalidInput, match="tick is a whole number"):
                call()


def test_recovering_forgets_copies_and_grants(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    grant = core.hold("planner", "plan")

    core.recover(agent_name="planner", now_tick=7)

    assert core.state("planner", "plan") is State.INVALID
    assert not grant.alive
    assert core.write("reviewer", "plan", 2).version == 2


def test_registering_again_lets_go(core: CoherenceCore) -> None:
    core.hold("planner", "plan")

    core.register_agent("planner", now_tick=0)

    assert core.write("reviewer", "plan", 2).version == 1


def test_closing_a_client_gives_back_what_its_agents_held(open_core: OpenCore, engine: str) -> None:
    if engine == "local":
        pytest.skip("these artifacts have one client")
    here, there = open_core(), open_core()
    here.hold("planner", "plan")

    here.close()

    assert there.write("reviewer", "plan", 1).version == 1


def test_holding_works_in_asynchronous_code(core: CoherenceCore) -> None:
    async def use() -> None:
        async with await core.ahold("planner", "plan") as grant:
            assert (await grant.awrite(1)).version == 1
            with pytest.raises(ArtifactHeld):
                await core.ahold("reviewer", "plan", timeout=0)
            await core.aheartbeat("planner")
            waiting = asyncio.create_task(core.ahold("reviewer", "plan"))
            await asyncio.sleep(0)
        async with await waiting as second:
            assert (await second.awrite(2)).version == 2
        await core.arecover("planner")

    asyncio.run(use())


def test_a_cancelled_task_leaves_nothing_held(core: CoherenceCore) -> None:
    async def use() -> None:
        for _ in range(20):
            task = asyncio.create_task(core.ahold("planner", "plan"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with await core.ahold("reviewer", "plan", timeout=PATIENCE):
            pass

    asyncio.run(use())


# With the clock in hand, in memory.


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _two(clock: Clock, **options: Any) -> tuple[CoherenceCore, CoherenceCore]:
    store = MemoryStore(clock=clock)
    config = CrashRecoveryConfig(heartbeat_timeout_ticks=9)
    options = {"clock": clock, "bus": False, "crash_recovery": config, **options}
    here = CoherenceCore(store, **options)
    there = CoherenceCore(store.another(clock=clock), **options)
    for one in (here, there):
        one._grants._background = False
    return here, there


def test_a_holder_serves_its_copy_without_asking_until_its_time_is_over(clock: Clock) -> None:
    here, there = _two(clock)
    here.write("planner", "plan", 1)
    grant = here.hold("planner", "plan")
    there._authority.release(grant.lease)  # Gone, and the holder was not told.
    there.write("reviewer", "plan", 2)

    clock.advance(8.9)
    assert here.read("planner", "plan").value == 1
    clock.advance(0.2)

    assert here.read("planner", "plan").value == 2


def test_whoever_takes_over_has_waited_until_the_holder_stopped_to_serve(clock: Clock) -> None:
    here, there = _two(clock)
    here.write("planner", "plan", 1)
    here.hold("planner", "plan")
    while True:
        try:
            there.write("reviewer", "plan", 2)
            break
        except ArtifactHeld:
            assert here.read("planner", "plan").value == 1
        clock.advance(0.3)

    assert here.state("planner", "plan") is State.INVALID
    assert here.read("planner", "plan").value == 2


@pytest.mark.parametrize("there_before", [True, False])
@pytest.mark.parametrize("artifact", ["plan", "..", "x" * 600, "line\nbreak", "~tilde"])
def test_a_silent_holder_of_an_artifact_of_any_name_is_reclaimed(
    clock: Clock, artifact: str, there_before: bool
) -> None:
    here, there = _two(clock)
    if there_before:
        here.write("planner", artifact, 1)
    here.hold("planner", artifact)
    there.enforce_stable_grant_timeouts()
    clock.advance(10.0)

    (reclaim,) = there.enforce_stable_grant_timeouts()
    clock.advance(10.0)
    there._grants.step()

    assert (reclaim.agent, reclaim.trigger) == ("planner", "reclaim_heartbeat")
    if there_before:
        assert reclaim.artifact == artifact
    assert there.write("reviewer", artifact, 2).value == 2


@pytest.mark.parametrize("artifact", ["..", "x" * 600])
def test_who_wants_to_write_ends_the_grant_of_a_silent_holder_whatever_its_name(
    clock: Clock, artifact: str
) -> None:
    here, there = _two(clock)
    here.hold("planner", artifact)
    with pytest.raises(ArtifactHeld) as caught:
        there.write("reviewer", artifact, 1)
    clock.advance((caught.value.retry_after or 0) + 0.01)

    assert there.write("reviewer", artifact, 1).version == 1


@pytest.mark.parametrize("artifact", ["plan", "x" * 600])
def test_who_waits_for_the_grant_of_a_silent_holder_gets_it_at_once_and_tells(
    clock: Clock, artifact: str
) -> None:
    log: list[Any] = []
    here, there = _two(clock, state_log=log.append)
    here.hold("planner", artifact)
    with pytest.raises(ArtifactHeld) as caught:
        there.hold("reviewer", artifact, timeout=0)
    clock.advance((caught.value.retry_after or 0) + 0.01)

    grant = there.hold("reviewer", artifact, timeout=0)

    assert grant.write(1).version == 1
    there.flush()
    told = [one for one in log if one["trigger"] == "reclaim_heartbeat"]
    assert [one["agent_name"] for one in told] == ["planner"]


def test_a_hold_that_is_too_long_is_no_stale_read_either(clock: Clock) -> None:
    here, there = _two(clock)
    here.write("planner", "plan", 1)
    here.hold("planner", "plan")
    there.enforce_stable_grant_timeouts()
    clock.advance(5.0)
    here.heartbeat("planner")
    assert there.enforce_stable_grant_timeouts(max_hold_ticks=5)[0].trigger == "reclaim_max_hold"
    written = False
    for _ in range(50):
        try:
            there._grants.step()
            there.write("reviewer", "plan", 2)
            written = True
        except ArtifactHeld:
            pass
        assert here.read("planner", "plan").value == (2 if written else 1)
        clock.advance(0.3)

    assert written


def test_reclaims_are_in_the_log_of_both_sides(clock: Clock) -> None:
    logs: dict[str, list[Any]] = {"here": [], "there": []}
    store = MemoryStore(clock=clock)
    config = CrashRecoveryConfig(heartbeat_timeout_ticks=9)
    here, there = (
        CoherenceCore(
            store.another(clock=clock),
            clock=clock,
            bus=False,
            crash_recovery=config,
            state_log=logs[name].append,
            instance_id=name,
        )
        for name in logs
    )
    here._grants._background = there._grants._background = False
    grant = here.hold("planner", "plan")
    grant.write(1)
    there.enforce_stable_grant_timeouts()
    clock.advance(10.0)
    there.enforce_stable_grant_timeouts()
    here.heartbeat("planner")
    here.flush()
    there.flush()

    found = {
        name: [
            (one["agent_name"], one["from_state"], one["to_state"], one["token"])
            for one in records
            if one["trigger"] == "reclaim_heartbeat"
        ]
        for name, records in logs.items()
    }
    assert found == {
        "here": [("planner", "MODIFIED", "INVALID", grant.token)],
        "there": [("planner", "EXCLUSIVE", "INVALID", grant.token)],
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: CoherenceCore(crash_recovery={"enabled": True}),  # type: ignore[arg-type]
        lambda: CoherenceCore(
            strategy="lease",
            lease_ttl_ticks=300,
            crash_recovery=CrashRecoveryConfig(enabled=True, max_hold_ticks=300),
        ),
        lambda: CoherenceCore(
            strategy="lease",
            ttl_seconds=20,
            tick_seconds=0.1,
            crash_recovery=CrashRecoveryConfig(enabled=True, max_hold_ticks=200),
        ),
    ],
)
def test_a_recovery_that_cannot_work_is_refused_at_start(
    make: Callable[[], CoherenceCore],
) -> None:
    with pytest.raises(ValueError, match=r"max_hold_ticks|CrashRecoveryConfig"):
        make()


def test_what_is_refused_opens_no_store(tmp_path: Path) -> None:
    config = CrashRecoveryConfig(enabled=True, max_hold_ticks=200)
    with pytest.raises(ValueError, match="max_hold_ticks"):
        CoherenceCore(tmp_path / "store", strategy="lease", crash_recovery=config)

    assert not (tmp_path / "store").exists()


def test_a_recovery_that_can_work_is_accepted() -> None:
    config = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=10, max_hold_ticks=1000)

    for strategy in ("lazy", "eager", "lease", "access_count", "broadcast"):
        CoherenceCore(strategy=strategy, crash_recovery=config).close()


def test_what_is_held_is_named(core: CoherenceCore) -> None:
    with pytest.raises(InvalidInput):
        core.hold("", "plan")
    with pytest.raises(InvalidInput):
        core.hold("planner", "")
    with pytest.raises(InvalidInput):
        core.hold("planner", "plan", timeout="soon")  # type: ignore[arg-type]


def test_a_grant_says_what_it_is(core: CoherenceCore) -> None:
    with core.hold("planner", "plan") as grant:
        assert isinstance(grant, Grant)
        assert "planner" in repr(grant)
    assert "release" in repr(grant)


@pytest.mark.parametrize("where", ["_start", "_notify_waiting"])
def test_an_interrupt_while_a_grant_is_taken_leaves_none(
    core: CoherenceCore, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    core.write("other", "plan", 1)
    core.hold("other", "plan").release()

    def interrupt(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(core._grants, where, interrupt)
    with pytest.raises(KeyboardInterrupt):
        core.hold("planner", "plan").release()

    assert core._grants.held == {}
    assert core._authority.leases() == []
    assert core.write("other", "plan", 2).version == 2
