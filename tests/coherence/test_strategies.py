"""The strategies: what each serves without asking, and how old that may be."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from ropewalk.coherence import STRATEGIES, Bound, CoherenceCore, Strategy, build_strategy
from ropewalk.coherence.protocol import Entry
from ropewalk.coherence.strategies import Lease
from ropewalk.errors import InvalidInput
from ropewalk.store import MemoryStore


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """A writer and a reader, two clients of one store that send each other nothing."""

    def __init__(self, strategy: str | Strategy, **parameters: Any) -> None:
        store, self.clock = MemoryStore(), Clock()
        self.writer = CoherenceCore(store.another(), bus=False)
        self.reader = CoherenceCore(
            store.another(), strategy=strategy, bus=False, clock=self.clock, **parameters
        )
        self.writer.write("writer", "plan", 0)
        self.number = 0

    def write(self) -> None:
        self.number += 1
        self.writer.write("writer", "plan", self.number)

    def read(self) -> Any:
        return self.reader.read("reader", "plan").value


def test_every_strategy_says_its_bound() -> None:
    bounds = {name: build_strategy(name, tick_seconds=0.5).bound for name in STRATEGIES}

    assert bounds == {
        "lazy": Bound(),
        "eager": Bound(),
        "lease": Bound(seconds=150),
        "access_count": Bound(reads=100),
        "broadcast": Bound(seconds=0.5),
    }
    assert [str(bound) for bound in bounds.values()] == [
        "fresh",
        "fresh",
        "150 seconds",
        "100 reads",
        "0.5 seconds",
    ]


@pytest.mark.parametrize(
    ("name", "parameters", "bound"),
    [
        ("lease", {"ttl_ticks": 10}, Bound(seconds=20)),
        ("lease", {"lease_ttl_ticks": 10}, Bound(seconds=20)),
        ("lease", {"ttl_seconds": 1.5}, Bound(seconds=1.5)),
        ("access_count", {"max_accesses": 3}, Bound(reads=3)),
        ("access_count", {"access_count_max_accesses": 3}, Bound(reads=3)),
    ],
)
def test_parameters_have_the_names_of_the_page(
    name: str, parameters: dict[str, Any], bound: Bound
) -> None:
    assert build_strategy(name, tick_seconds=2.0, **parameters).bound == bound


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lazy", {"ttl_ticks": 10}),
        ("lease", {"lease_ticks": 10}),
        ("access_count", {"threshold": 3}),
        ("lease", {"ttl_ticks": 0}),
        ("lease", {"ttl_ticks": 1.5}),
        ("lease", {"ttl_ticks": True}),
        ("lease", {"ttl_seconds": 0}),
        ("lease", {"ttl_seconds": float("nan")}),
        ("lease", {"ttl_seconds": 1, "ttl_ticks": 1}),
        ("lease", {"ttl_ticks": 1, "lease_ttl_ticks": 1}),
        ("access_count", {"max_accesses": -1}),
        ("blind", {}),
        ("lazy", {"tick_seconds": 0}),
    ],
)
def test_a_parameter_that_a_strategy_has_not_is_an_error(
    name: str, parameters: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        build_strategy(name, **parameters)
    with pytest.raises(InvalidInput):
        CoherenceCore(strategy=name, **parameters)


@pytest.mark.parametrize("strategy", ["lazy", "eager"])
def test_a_fresh_strategy_needs_no_message(strategy: str) -> None:
    pair = Pair(strategy)
    seen = []
    for _ in range(5):
        seen.append(pair.read())
        pair.write()

    assert seen == [0, 1, 2, 3, 4]


def test_a_lease_serves_its_copy_until_its_time_is_over() -> None:
    pair = Pair("lease", ttl_seconds=10)
    first = pair.read()
    pair.write()
    pair.clock.now += 9.9
    within = pair.read()
    pair.clock.now += 0.1

    assert (first, within, pair.read()) == (0, 0, 1)


def test_a_lease_is_not_renewed_by_reads() -> None:
    pair = Pair("lease", ttl_seconds=10)
    pair.read()
    pair.write()
    seen = []
    for _ in range(4):
        pair.clock.now += 3
        seen.append(pair.read())

    assert seen == [0, 0, 0, 1]


def test_a_lease_that_was_confirmed_begins_again() -> None:
    pair = Pair("lease", ttl_seconds=10)
    pair.read()
    pair.clock.now += 10
    pair.read()
    pair.write()
    pair.clock.now += 9

    assert pair.read() == 0


def test_accesses_are_counted_from_the_last_confirmation() -> None:
    pair = Pair("access_count", max_accesses=3)
    pair.read()
    pair.write()
    seen = [pair.read() for _ in range(5)]
    pair.write()

    assert seen == [0, 0, 0, 1, 1]
    assert [pair.read() for _ in range(3)] == [1, 1, 2]


def test_threads_of_one_agent_share_its_accesses() -> None:
    pair = Pair("access_count", max_accesses=20)
    pair.read()
    pair.write()
    begin = threading.Barrier(8)
    seen: list[int] = []

    def work() -> None:
        begin.wait()
        seen.extend(pair.read() for _ in range(12))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    sys.setswitchinterval(interval)

    assert seen.count(0) <= 20
    assert len(seen) == 96


def test_what_another_thread_confirmed_does_not_make_an_older_copy_good() -> None:
    class Interrupted(Lease):
        """Another thread confirms between the look at a copy and the question if it may serve."""

        def serves(self, entry: Entry, now: float, followed: float) -> bool:
            pair.reader._reading.confirm("reader", "plan")
            return super().serves(entry, now, followed)

    pair = Pair(Interrupted(10))
    pair.read()
    pair.write()
    pair.clock.now += 10

    assert pair.read() == 1


def test_agents_count_their_own_accesses() -> None:
    pair = Pair("access_count", max_accesses=2)
    pair.read()
    pair.write()
    other = [pair.reader.read("other", "plan").value for _ in range(3)]

    assert other == [1, 1, 1]
    assert [pair.read() for _ in range(3)] == [1, 1, 1]


def test_broadcast_asks_as_long_as_it_has_not_followed_the_log() -> None:
    pair = Pair("broadcast", tick_seconds=1000.0)
    pair.reader._client.follower.close()  # type: ignore[union-attr]
    pair.clock.now += 1000
    seen = []
    for _ in range(3):
        seen.append(pair.read())
        pair.write()

    assert seen == [0, 1, 2]


def test_a_writer_reads_its_own_writes_under_every_strategy() -> None:
    for strategy in STRATEGIES:
        core = CoherenceCore(MemoryStore(), strategy=strategy, bus=False)
        seen = []
        for number in range(3):
            core.write("planner", "plan", number)
            seen.append(core.read("planner", "plan").value)
        core.close()

        assert seen == [0, 1, 2], strategy


def test_agents_of_one_client_see_each_others_writes_under_every_strategy() -> None:
    for strategy in STRATEGIES:
        core = CoherenceCore(MemoryStore(), strategy=strategy, bus=False)
        core.write("planner", "plan", 0)
        core.read("reviewer", "plan")
        core.write("planner", "plan", 1)
        seen = core.read("reviewer", "plan").value
        core.close()

        assert seen == 1, strategy


def test_a_message_that_the_engine_denies_is_forgotten() -> None:
    pair = Pair("lease", ttl_seconds=10)
    pair.read()
    pair.reader._directory.invalidated("plan", 10**9, 10**9 - 1)
    confirmed = pair.reader.read("reader", "plan").source
    pair.write()
    served = pair.read()
    pair.reader._directory.invalidated("plan", 2, 1)

    assert (confirmed, served, pair.read()) == ("cache_hit", 0, 1)
