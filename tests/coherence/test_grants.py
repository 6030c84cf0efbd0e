"""Grants with a clock that moves when told: who may write, who may count on what it read."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ropewalk.coherence.leases import RECLAIM_HEARTBEAT, RECLAIM_MAX_HOLD
from ropewalk.errors import ArtifactHeld, GrantLost, InvalidInput, StoreClosed, Unavailable
from ropewalk.store import MemoryStore
from ropewalk.testing import Fault, FaultStore
from ropewalk.testing.helpers import PATIENCE, Clock, in_threads
from tests.coherence.grant_clients import SPACE, TIMEOUT, Client

PAST = TIMEOUT * 1.05 + 0.06  # A lease's time and the margin.


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Iterator[MemoryStore]:
    with MemoryStore(clock=clock) as store:
        yield store


@pytest.fixture
def here(store: MemoryStore, clock: Clock) -> Client:
    return Client(store, clock)


@pytest.fixture
def there(store: MemoryStore, clock: Clock) -> Client:
    return Client(store.another(clock=clock), clock, "there")


def test_a_grant_is_one_agent_s_alone(here: Client, there: Client) -> None:
    grant = here.grants.acquire("a", "plan")

    assert (grant.agent, grant.artifact, grant.alive) == ("a", "plan", True)
    for client, agent in ((here, "b"), (there, "a")):
        with pytest.raises(ArtifactHeld) as caught:
            client.grants.acquire(agent, "plan", timeout=0)
        assert (caught.value.artifact, caught.value.agent) == ("plan", "a")
    there.grants.acquire("b", "notes", timeout=0)


def test_an_agent_cannot_hold_an_artifact_twice(here: Client) -> None:
    first = here.grants.acquire("a", "plan")

    with pytest.raises(ArtifactHeld):
        here.grants.acquire("a", "plan", timeout=0)

    assert first.write("x") == 1


def test_only_the_holder_writes(here: Client, there: Client) -> None:
    with here.grants.acquire("a", "plan") as grant:
        grant.write("one")
        here.write("a", "plan", "two")
        for client, agent in ((here, "b"), (there, "a")):
            with pytest.raises(ArtifactHeld):
                client.write(agent, "plan", "no")

    assert there.write("b", "plan", "three") == 3


def test_a_grant_that_is_given_back_writes_no_more(here: Client) -> None:
    grant = here.grants.acquire("a", "plan")

    assert grant.release() is True

    assert grant.release() is False
    assert not grant.alive
    with pytest.raises(GrantLost, match="release"):
        grant.write("late")
    assert here.write("a", "plan", "plain") == 1


def test_a_grant_that_is_not_renewed_ends(here: Client, clock: Clock) -> None:
    grant = here.grants.acquire("a", "plan")

    assert grant.alive
    clock.advance(TIMEOUT)
    assert not grant.alive


def test_the_beat_renews_what_is_due(here: Client, clock: Clock) -> None:
    grant = here.grants.acquire("a", "plan")
    for _ in range(5):
        clock.advance(TIMEOUT / 3)
        here.grants.step()

    assert grant.alive
    assert grant.deadline == clock.now + TIMEOUT


def test_a_heartbeat_renews_at_once(here: Client, clock: Clock) -> None:
    grant = here.grants.acquire("a", "plan")
    clock.advance(1.0)

    here.grants.heartbeat("a")

    assert grant.deadline == clock.now + TIMEOUT


def test_a_silent_holder_is_reclaimed_by_who_wants_to_write(
    here: Client, there: Client, clock: Clock
) -> None:
    grant = here.grants.acquire("a", "plan")
    with pytest.raises(ArtifactHeld) as caught:
        there.write("b", "plan", "too soon")
    assert caught.value.retry_after == pytest.approx(PAST, abs=0.1)
    clock.advance(PAST)

    assert there.write("b", "plan", "mine") == 1

    (reclaim,) = there.reclaimed
    assert (reclaim.agent, reclaim.home, reclaim.artifact) == ("a", "here", "plan")
    assert (reclaim.trigger, reclaim.token) == (RECLAIM_HEARTBEAT, grant.token)
    assert not grant.alive
    with pytest.raises(GrantLost, match=RECLAIM_HEARTBEAT):
        grant.write("zombie")


def test_a_lost_grant_is_told_once_and_stops_plain_writes_too(
    here: Client, there: Client, clock: Clock
) -> None:
    with here.grants.acquire("a", "plan"):
        there.grants.sweep()
        clock.advance(PAST)
        there.grants.sweep()
        here.grants.step()
        here.grants.step()
        with pytest.raises(GrantLost):
            here.write("a", "plan", "zombie")

    assert here.lost == [("a", "plan", RECLAIM_HEARTBEAT)]
    assert here.write("a", "plan", "afresh") == 1


def test_a_holder_that_woke_up_before_anybody_took_over_goes_on(
    here: Client, there: Client, clock: Clock
) -> None:
    grant = here.grants.acquire("a", "plan")
    there.grants.sweep()
    clock.advance(PAST)
    assert not grant.alive

    here.grants.step()
    assert there.grants.sweep() == []

    assert grant.alive
    assert grant.write("still mine") == 1


def test_a_living_holder_is_not_silent(here: Client, there: Client, clock: Clock) -> None:
    here.grants.acquire("a", "plan")
    for _ in range(10):
        clock.advance(TIMEOUT / 2)
        here.grants.step()
        assert there.grants.sweep() == []


def test_who_holds_too_long_is_ended_by_its_own_client(store: MemoryStore, clock: Clock) -> None:
    here = Client(store, clock, enabled=True, max_hold_ticks=20)
    grant = here.grants.acquire("a", "plan")
    for _ in range(6):
        clock.advance(3.0)
        here.grants.step()
    assert grant.deadline == grant.began + 20
    clock.advance(3.0)
    assert not grant.alive  # Before anything was done about it.

    here.grants.step()

    assert here.lost == [("a", "plan", RECLAIM_MAX_HOLD)]
    with pytest.raises(GrantLost, match=RECLAIM_MAX_HOLD):
        grant.write("late")
    assert here.write("b", "plan", "next") == 1


def test_who_holds_too_long_is_ended_by_others_although_it_beats(
    here: Client, store: MemoryStore, clock: Clock
) -> None:
    there = Client(store.another(clock=clock), clock, "there", enabled=True, max_hold_ticks=20)
    grant = here.grants.acquire("a", "plan")
    for _ in range(8):
        assert there.reclaimed == []
        there.grants.step()
        clock.advance(3.0)
        here.grants.step()

    there.grants.step()

    assert [(one.agent, one.trigger) for one in there.reclaimed] == [("a", RECLAIM_MAX_HOLD)]
    with pytest.raises(GrantLost):
        grant.write("late")


def test_nothing_is_written_while_a_seized_holder_still_counts_on_its_grant(
    here: Client, store: MemoryStore, clock: Clock
) -> None:
    there = Client(store.another(clock=clock), clock, "there", enabled=True, max_hold_ticks=20)
    grant = here.grants.acquire("a", "plan")
    there.grants.sweep()
    clock.advance(20.0)
    here.grants.heartbeat("a")
    there.grants.sweep()
    written: list[float] = []

    for _ in range(30):
        try:
            there.write("b", "plan", "next")
            written.append(clock.now)
            break
        except ArtifactHeld:
            pass
        clock.advance(0.5)
        there.grants.step()

    assert written
    assert written[0] > grant.deadline


def test_enforcing_by_ticks_ends_agents_of_this_client_that_gave_none_for_long(
    here: Client,
) -> None:
    here.grants.touch("a", 3)
    here.grants.acquire("a", "plan")
    here.grants.touch("b", 40)
    kept = here.grants.acquire("b", "notes")
    told: list[str] = []

    ended = here.grants.enforce(
        45, heartbeat_timeout_ticks=10, on_reclaim=lambda one: told.append(one.agent)
    )

    assert [(one.agent, one.trigger, one.seconds) for one in ended] == [
        ("a", RECLAIM_HEARTBEAT, 42.0)
    ]
    assert told == ["a"]
    assert kept.alive


def test_enforcing_by_ticks_ends_who_holds_for_too_long(here: Client) -> None:
    here.grants.touch("a", 1)
    here.grants.acquire("a", "plan")
    here.grants.touch("a", 50)

    ended = here.grants.enforce(51, max_hold_ticks=50)

    assert [(one.agent, one.trigger) for one in ended] == [("a", RECLAIM_MAX_HOLD)]


def test_a_tick_of_somebody_else_s_clock_makes_nobody_immortal(
    here: Client, there: Client, clock: Clock
) -> None:
    here.grants.acquire("a", "plan")
    here.grants.touch("a", 10**10)
    there.grants.enforce(7)
    clock.advance(PAST)

    assert [one.agent for one in there.grants.enforce(8)] == ["a"]


def test_recovering_lets_go_of_what_was_held(here: Client, there: Client) -> None:
    mine = here.grants.acquire("a", "plan")
    other = here.grants.acquire("b", "notes")

    here.grants.recover("a", now_tick=5)

    assert not mine.alive
    assert other.alive
    assert there.write("c", "plan", "free") == 1


def test_recovering_ends_what_the_same_agent_left_before_it_was_started_again(
    here: Client, store: MemoryStore, clock: Clock
) -> None:
    before = here.grants.acquire("a", "plan")
    again = Client(store.another(clock=clock), clock, "here")

    again.grants.recover("a")

    assert again.write("b", "plan", "free") == 1
    with pytest.raises(GrantLost):
        before.write("zombie")


def test_waiting_for_a_grant_ends_when_it_is_given_back(here: Client) -> None:
    grant = here.grants.acquire("a", "plan")
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(here.grants.acquire("b", "plan").token))
    waiting.start()

    grant.release()
    waiting.join(PATIENCE)

    assert got
    assert got[0] > grant.token


def test_one_of_many_holds_at_a_time(store: MemoryStore, clock: Clock) -> None:
    clients = [Client(store.another(clock=clock), clock, f"client {number}") for number in range(2)]
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(10):
            with clients[number % 2].grants.acquire(f"agent {number}", "plan") as grant:
                inside.append(number)
                most.append(len(inside))
                grant.write(number)
                inside.remove(number)

    in_threads(6, work)

    assert set(most) == {1}
    assert store.view(SPACE).sequence == 60


def test_grants_work_in_asynchronous_code(here: Client) -> None:
    async def use() -> int:
        async with await here.grants.aacquire("a", "plan") as grant:
            with pytest.raises(ArtifactHeld):
                await here.grants.aacquire("b", "plan", timeout=0)
            return int(await grant.awrite("x"))

    assert asyncio.run(use()) == 1
    assert here.write("b", "plan", "y") == 2


def test_closing_gives_everything_back(here: Client, there: Client) -> None:
    grant = here.grants.acquire("a", "plan")

    here.grants.close()
    here.grants.close()

    assert not grant.alive
    assert there.write("b", "plan", "x") == 1
    with pytest.raises(StoreClosed):
        here.grants.acquire("a", "plan")


def test_a_grant_that_could_not_be_given_back_is_given_back_later(
    store: MemoryStore, clock: Clock
) -> None:
    here = Client(
        FaultStore(store.another(clock=clock), [Fault.error(1, method="swap_lease")]), clock
    )
    grant = here.grants.acquire("a", "plan")

    assert grant.release() is False
    here.grants.step()

    assert store.leases(SPACE) == []


@pytest.mark.parametrize("call", range(2, 10))  # The first one opens the artifacts.
@pytest.mark.parametrize("kind", [Fault.error, Fault.lost_reply])
def test_whatever_call_fails_the_artifact_does_not_die(
    store: MemoryStore, clock: Clock, call: int, kind: Callable[[int], Fault]
) -> None:
    here = Client(FaultStore(store.another(clock=clock), [kind(call)]), clock)
    there = Client(store.another(clock=clock), clock, "there")
    try:
        with here.grants.acquire("a", "plan") as grant:
            here.grants.heartbeat("a")
            grant.write("x")
    except Unavailable:
        pass
    for _ in range(3):
        there.grants.sweep()
        clock.advance(PAST)

    assert there.write("b", "plan", "y")
    assert there.grants.acquire("c", "plan", timeout=0).alive


def test_a_grant_of_a_lost_reply_is_taken_again_at_once(store: MemoryStore, clock: Clock) -> None:
    here = Client(FaultStore(store.another(clock=clock), [Fault.lost_reply(3)]), clock)
    with pytest.raises(Unavailable):
        here.grants.acquire("a", "plan")

    assert here.write("b", "plan", "x") == 1
    assert here.grants.acquire("a", "plan", timeout=0).alive


def test_a_beat_that_finds_no_engine_lets_the_time_run_out_and_goes_on_after(
    store: MemoryStore, clock: Clock
) -> None:
    here = Client(FaultStore(store.another(clock=clock), [Fault.error(5)]), clock)
    grant = here.grants.acquire("a", "plan")
    clock.advance(TIMEOUT)
    here.grants.step()
    assert not grant.alive
    clock.advance(TIMEOUT / 3)

    here.grants.step()

    assert grant.alive


@pytest.mark.parametrize(
    "arguments", [{"heartbeat_timeout_ticks": 0}, {"max_hold_ticks": -1}, {"max_hold_ticks": 1.5}]
)
def test_what_is_enforced_is_checked(here: Client, arguments: Any) -> None:
    with pytest.raises(InvalidInput):
        here.grants.enforce(**arguments)


# With the thread.


def test_the_thread_renews_and_ends_with_the_last_grant() -> None:
    real = Client(MemoryStore(), _Real(), background=True, heartbeat_timeout_ticks=1)
    grant = real.grants.acquire("a", "plan")
    first = grant.deadline
    thread = _beating(real)
    for _ in range(1000):
        if grant.deadline > first:
            break
        thread.join(0.01)
    renewed = grant.deadline > first

    grant.release()
    thread.join(PATIENCE)

    assert renewed
    assert not thread.is_alive()


def test_a_client_that_nobody_closed_leaves_no_thread() -> None:
    client = Client(
        MemoryStore(), _Real(), background=True, enabled=True, heartbeat_timeout_ticks=1
    )
    thread = _beating(client)

    del client
    for _ in range(int(PATIENCE * 20)):  # It may be in the middle of a turn.
        gc.collect()
        thread.join(0.05)
        if not thread.is_alive():
            break

    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_none_of_its_parent_s_grants() -> None:
    clock = Clock()
    with MemoryStore(clock=clock) as store:
        client = Client(store, clock, background=True)
        grant = client.grants.acquire("a", "plan")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"no"
            try:
                lost = not grant.alive
                holder = client.grants._holder("a")
                said = b"yes" if lost and holder != "a@here" else b"no"
            finally:
                os.write(write, said)
                os._exit(0)
        os.waitpid(child, 0)

        assert os.read(read, 10) == b"yes"
        assert grant.alive
        client.grants.close()


class _Real(Clock):
    def __call__(self) -> float:
        return time.monotonic()


def _beating(client: Client) -> threading.Thread:
    thread = client.grants._timer._thread
    assert thread is not None and thread.is_alive()
    return thread


def test_who_ends_a_grant_and_cannot_give_it_back_is_kept_out_no_longer_than_others(
    here: Client, there: Client, clock: Clock
) -> None:
    here.grants.acquire("a", "plan")
    with pytest.raises(ArtifactHeld):
        there.write("b", "plan", "early")
    clock.advance(PAST)
    leases = there.grants._authority
    release = leases.release

    def fail(lease: Any) -> bool:
        leases.release = release  # type: ignore[method-assign]
        raise Unavailable("the reply was lost")

    leases.release = fail  # type: ignore[method-assign]
    with pytest.raises(ArtifactHeld):
        there.write("b", "plan", "too early")
    clock.advance(PAST)

    assert there.write("b", "plan", "late") == 1
    assert [one.agent for one in there.reclaimed] == ["a"]
