"""`CoherentStore` around other stores: items that somebody holds, or is just writing."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.coherence import CrashRecoveryConfig
from ropewalk.errors import ArtifactHeld, GrantLost
from ropewalk.store import MemoryStore

PLANNER = ("planner", "shared")
REVIEWER = ("reviewer", "shared")
HOME = ("shared", "shared")
SECONDS = 30


class Gated(InMemoryStore):
    """A store whose writes can be seen before they are answered, as those of a server."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: threading.Event | None = None
        self.written = threading.Event()

    def batch(self, ops: Any) -> list[Any]:
        given = list(ops)
        done: list[Any] = super().batch(given)
        gate = self.gate
        if gate is not None and any(isinstance(op, PutOp) for op in given):
            self.written.set()
            gate.wait(SECONDS)
        return done


def pair(found: Any) -> tuple[Any, int]:
    return found.value, found.version


def test_a_put_of_what_another_agent_holds_is_refused_at_once_and_delays_nobody() -> None:
    store = CoherentStore(base=InMemoryStore())
    store.put(PLANNER, "plan", {"n": 1})
    waited: list[float] = []
    store._contents._grants.rest = waited.append  # type: ignore[attr-defined]

    with store.hold(PLANNER, "plan"):
        with pytest.raises(ArtifactHeld):
            store.put(REVIEWER, "plan", {"n": 2})
        store.put(PLANNER, "plan", {"n": 3})

    assert waited == []
    assert pair(store.get(REVIEWER, "plan")) == ({"n": 3}, 2)


def test_a_put_waits_for_the_put_of_another_agent() -> None:
    base = Gated()
    versions = MemoryStore()
    one, other = (CoherentStore(base=base, store=versions) for _ in range(2))
    base.gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.put, PLANNER, "plan", {"n": 1})
        base.written.wait(SECONDS)
        second = pool.submit(other.put, REVIEWER, "plan", {"n": 2})
        base.gate.set()
        first.result(SECONDS)
        second.result(SECONDS)

    assert pair(one.get(PLANNER, "plan")) == ({"n": 2}, 2)


def test_a_read_does_not_wait_for_a_holder() -> None:
    base = InMemoryStore()
    base.put(HOME, "plan", {"n": 1})
    store = CoherentStore(base=base)
    waited: list[float] = []
    store._contents._grants.rest = waited.append  # type: ignore[attr-defined]

    with store.hold(PLANNER, "plan"):
        before = store.get(REVIEWER, "plan")
        (found,) = store.search(REVIEWER)
        own = store.get(PLANNER, "plan")

    assert waited == []
    assert pair(before) == pair(found) == ({"n": 1}, 0), "nobody can give it a version now"
    assert pair(own) == ({"n": 1}, 1), "its holder can"
    assert pair(store.get(REVIEWER, "plan")) == ({"n": 1}, 1)


def test_what_was_read_without_a_version_is_merged_with_what_the_holder_put() -> None:
    base = InMemoryStore()
    base.put(HOME, "plan", {"title": "A", "days": 1})
    store = CoherentStore(base=base)

    with store.hold(PLANNER, "plan"):
        store.get(REVIEWER, "plan")
        store.put(PLANNER, "plan", {"title": "B", "days": 1})
    store.put(REVIEWER, "plan", {"title": "A", "days": 2})

    assert pair(store.get(PLANNER, "plan")) == ({"title": "B", "days": 2}, 3)


@pytest.mark.parametrize("readers", ["here", "elsewhere"])
def test_a_value_never_has_the_version_of_another(readers: str) -> None:
    base, versions = Gated(), MemoryStore()
    store = CoherentStore(base=base, store=versions)
    reading = store if readers == "here" else CoherentStore(base=base, store=versions)
    store.put(PLANNER, "plan", {"n": 1})
    base.gate = threading.Event()
    with store.hold(PLANNER, "plan"), ThreadPoolExecutor(2) as pool:
        writing = pool.submit(store.put, PLANNER, "plan", {"n": 2})
        base.written.wait(SECONDS)
        seen = reading.get(REVIEWER, "plan")
        base.gate.set()
        writing.result(SECONDS)

    assert pair(seen) == ({"n": 2}, 0)
    assert pair(reading.get(REVIEWER, "plan")) == ({"n": 2}, 2)


def test_a_put_goes_on_when_the_writer_before_it_was_silent_for_too_long() -> None:
    base, versions = Gated(), MemoryStore()
    options: dict[str, Any] = {
        "base": base,
        "store": versions,
        "tick_seconds": 0.05,
        "crash_recovery": CrashRecoveryConfig(heartbeat_timeout_ticks=4),
    }
    silent, living = CoherentStore(**options), CoherentStore(**options)
    gate = base.gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(silent.put, PLANNER, "plan", {"n": 1})
        base.written.wait(SECONDS)
        silent._contents._grants._timer.close()  # type: ignore[attr-defined]
        base.gate = None
        living.put(REVIEWER, "plan", {"n": 2})
        found = living.get(PLANNER, "plan")
        gate.set()
        with pytest.raises(GrantLost):
            stopped.result(SECONDS)

    assert pair(found) == ({"n": 2}, 2), "what the silent one had written is version 1"


def test_who_waits_for_a_put_waits_longer_than_a_dead_one_keeps_its_grant() -> None:
    base, versions = Gated(), MemoryStore()
    recovery = CrashRecoveryConfig(heartbeat_timeout_ticks=3600)
    store, other = (
        CoherentStore(base=base, store=versions, crash_recovery=recovery) for _ in range(2)
    )
    base.gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.put, PLANNER, "plan", {"n": 1})
        base.written.wait(SECONDS)
        _, patience = other._contents._grants.seconds_for("shared/plan", 0.0)  # type: ignore[attr-defined]
        base.gate.set()
        writing.result(SECONDS)

    assert patience > 3600 * 1.05


class Relay:
    """The grants of the puts of two clients, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        versions = MemoryStore()
        recovery = CrashRecoveryConfig(heartbeat_timeout_ticks=10)
        stores = [
            CoherentStore(base=InMemoryStore(), store=versions, crash_recovery=recovery)
            for _ in range(2)
        ]
        self.waiting, self.others = (one._contents._grants for one in stores)  # type: ignore[attr-defined]
        for one in (self.waiting, self.others):
            one.clock = lambda: self.now
            one.rest = lambda seconds: None


def test_who_waits_for_the_puts_of_many_does_not_give_up_while_they_follow_each_other() -> None:
    relay = Relay()
    waits = relay.waiting.waits()
    went_on = []
    for number in range(5):
        grant = relay.others.try_acquire(f"agent-{number}", "shared/plan")
        went_on.append(waits.pause("shared/plan"))
        relay.now += 10.0  # Less than a put may be silent.
        went_on.append(waits.pause("shared/plan"))
        grant.release()

    assert went_on == [True] * 10


def test_who_was_stopped_while_it_waited_tries_once_more() -> None:
    relay = Relay()
    waits = relay.waiting.waits()
    relay.others.try_acquire("planner", "shared/plan")
    went_on = [waits.pause("shared/plan")]
    relay.now += 60.0
    went_on += [waits.pause("shared/plan"), waits.pause("shared/plan")]

    assert went_on == [True, True, False]


def test_an_edit_waits_for_a_holder() -> None:
    store = CoherentStore(base=InMemoryStore())
    store.put(PLANNER, "votes", {"yes": 0})
    tried = threading.Event()

    def vote(value: Any) -> Any:
        tried.set()
        return {"yes": value["yes"] + 1}

    with ThreadPoolExecutor(1) as pool:
        with store.hold(PLANNER, "votes"):
            editing = pool.submit(store.edit, REVIEWER, "votes", vote)
            tried.wait(SECONDS)
            store.put(PLANNER, "votes", {"yes": 10})
        made: Any = editing.result(SECONDS)

    assert pair(made) == ({"yes": 11}, 3)


def test_tasks_that_wait_with_an_edit_leave_the_holder_a_thread() -> None:
    async def work() -> Any:
        async with CoherentStore(base=InMemoryStore()) as store, asyncio.timeout(SECONDS):
            await store.aput(PLANNER, "votes", {"yes": 0})
            async with await store.ahold(PLANNER, "votes"):
                edits = [
                    asyncio.create_task(
                        store.aedit((f"agent-{one}", "shared"), "votes", lambda value: {**value})
                    )
                    for one in range(20)
                ]
                await asyncio.sleep(0.1)
                await store.aput(PLANNER, "votes", {"yes": 1})
            await asyncio.gather(*edits)
            return await store.aget(PLANNER, "votes")

    assert asyncio.run(work()).value == {"yes": 1}
