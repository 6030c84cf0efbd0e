"""Leases: one holder at a time, and fencing of slow ones."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, LeaseHeld, LeaseLost
from ropewalk.store import Fence, Lease, Move, Store, ref_name
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import MAIN, SPACE, Clock, Opener, in_threads, point, value

NAME = ref_name("lease", "x")
OTHER = ref_name("lease", "y")


class LeaseContract(Base):
    """Granting, renewing, losing and taking over."""

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock of the first store object."""
        return Clock()

    @pytest.fixture
    def holder(self, open_store: Opener, opened: list[Store], clock: Clock) -> Store:
        """A store object with a clock that is advanced by hand."""
        opened.append(open_store(clock))
        return opened[-1]

    @pytest.fixture
    def other_clock(self, clock: Clock) -> Clock:
        """The clock of another machine, which shows another time."""
        return Clock(now=5.0) if self.several_handles else clock

    @pytest.fixture
    def rival(
        self, open_store: Opener, opened: list[Store], holder: Store, other_clock: Clock
    ) -> Store:
        """A second store object on the same data with the other clock."""
        if not self.several_handles:
            return holder
        opened.append(open_store(other_clock))
        return opened[-1]

    def test_a_lease_is_counted_from_before_the_request(self, holder: Store, clock: Clock) -> None:
        lease = holder.acquire(SPACE, NAME, "me", 10.0)

        assert (lease.space, lease.name, lease.holder) == (SPACE, NAME, "me")
        assert lease.deadline == clock.now + 10.0
        assert holder.holds(lease)
        clock.advance(10.0)
        assert not holder.holds(lease)

    def test_a_held_lease_is_refused_to_others(self, holder: Store, rival: Store) -> None:
        holder.acquire(SPACE, NAME, "me", 10.0)

        with pytest.raises(LeaseHeld) as caught:
            rival.acquire(SPACE, NAME, "you", 10.0)

        assert "me" in str(caught.value)
        assert (caught.value.retry_after or 0) > 10.0
        rival.acquire(SPACE, OTHER, "you", 10.0)

    def test_a_silent_lease_is_taken_over_after_it_was_watched(
        self, holder: Store, rival: Store, other_clock: Clock
    ) -> None:
        old = holder.acquire(SPACE, NAME, "me", 10.0)
        other_clock.advance(1000.0)  # Time before the first look does not count.
        wait = _refused(rival)
        other_clock.advance(10.0)
        assert 0 < _refused(rival) < wait
        other_clock.advance(wait - 10.0 + 0.001)

        new = rival.acquire(SPACE, NAME, "you", 5.0)

        assert new.token > old.token
        with pytest.raises(LeaseLost):
            holder.renew(old)
        assert holder.release(old) is False
        assert [record.holder for record in holder.leases(SPACE)] == ["you"]

    def test_listing_leases_is_watching_them(
        self, holder: Store, rival: Store, other_clock: Clock
    ) -> None:
        holder.acquire(SPACE, NAME, "me", 10.0)
        rival.leases(SPACE)
        other_clock.advance(20.0)

        assert rival.acquire(SPACE, NAME, "you", 5.0).holder == "you"

    def test_a_renewed_lease_is_watched_anew(
        self, holder: Store, rival: Store, other_clock: Clock
    ) -> None:
        lease = holder.acquire(SPACE, NAME, "me", 10.0)
        _refused(rival)
        other_clock.advance(9.0)
        holder.renew(lease)
        other_clock.advance(9.0)
        assert _refused(rival) > 10.0
        other_clock.advance(9.0)
        assert _refused(rival) > 0.0

    def test_renewing_begins_the_time_again(self, holder: Store, clock: Clock) -> None:
        lease = holder.acquire(SPACE, NAME, "me", 10.0)
        clock.advance(8.0)

        renewed = holder.renew(lease)
        longer = holder.renew(lease, 100.0)  # The reply to the first renewal was lost.

        assert renewed.token == longer.token == lease.token
        assert renewed.deadline == clock.now + 10.0
        assert longer.deadline == clock.now + 100.0

    def test_a_lease_that_is_given_back_is_free(self, holder: Store, rival: Store) -> None:
        old = holder.acquire(SPACE, NAME, "me", 10.0)

        assert holder.release(old) is True

        assert holder.release(old) is False
        assert holder.leases(SPACE) == []
        assert rival.acquire(SPACE, NAME, "you", 10.0).token > old.token

    def test_a_holder_that_asks_again_gets_a_new_token(self, holder: Store, rival: Store) -> None:
        old = holder.acquire(SPACE, NAME, "me", 10.0)

        new = rival.acquire(SPACE, NAME, "me", 10.0)

        assert new.token > old.token
        with pytest.raises(LeaseLost):
            holder.renew(old)

    def test_tokens_only_grow(self, holder: Store, rival: Store) -> None:
        tokens: list[int] = []
        for turn in range(6):
            store = (holder, rival)[turn % 2]
            lease = store.acquire(SPACE, (NAME, OTHER)[turn % 3 % 2], f"holder {turn}", 10.0)
            tokens.append(lease.token)
            store.release(lease)

        assert tokens == sorted(set(tokens))

    def test_leases_are_listed_by_prefix(self, store: Store) -> None:
        for name in (ref_name("read", "b"), ref_name("read", "a"), ref_name("write", "a")):
            store.acquire(SPACE, name, "me", 10.0)

        listed = store.leases(SPACE, "read/")

        assert [record.name for record in listed] == ["read/a", "read/b"]
        assert len(store.leases(SPACE)) == 3
        assert {record.duration for record in listed} == {10.0}

    @pytest.mark.parametrize("duration", [0, -1, math.nan, math.inf, "1", None])
    def test_a_lease_lasts_a_positive_time(self, store: Store, duration: float) -> None:
        with pytest.raises(InvalidInput):
            store.acquire(SPACE, NAME, "me", duration)

    def test_a_lease_has_a_holder(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            store.acquire(SPACE, NAME, "", 1.0)

    def test_a_commit_under_a_lease_is_let_through(self, holder: Store, clock: Clock) -> None:
        one = value("one")
        lease = holder.acquire(SPACE, NAME, "me", 10.0)
        holder.renew(lease)
        clock.advance(1000.0)  # Expired, but not taken over.

        holder.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], fence=lease.fence)

        assert holder.view(SPACE).sequence == 1

    def test_a_commit_with_a_stale_token_changes_nothing(self, holder: Store, rival: Store) -> None:
        one = value("one")
        old = holder.acquire(SPACE, NAME, "me", 10.0)
        rival.acquire(SPACE, NAME, "me", 10.0)

        _assert_fenced(holder, old.fence)

        assert holder.missing([one.id], SPACE) == [one.id]

    def test_a_commit_after_giving_back_changes_nothing(self, store: Store) -> None:
        lease = store.acquire(SPACE, NAME, "me", 10.0)
        store.release(lease)

        _assert_fenced(store, lease.fence)

    def test_a_token_that_was_never_granted_changes_nothing(self, store: Store) -> None:
        _assert_fenced(store, Fence(NAME, 1))
        store.acquire(SPACE, NAME, "me", 10.0)
        _assert_fenced(store, Fence(NAME, 99))

    def test_every_fence_of_a_commit_is_checked(self, store: Store) -> None:
        first = store.acquire(SPACE, NAME, "me", 10.0)
        second = store.acquire(SPACE, OTHER, "me", 10.0)
        store.commit(SPACE, fence=[first.fence, second.fence])
        store.release(second)

        with pytest.raises(LeaseLost):
            store.commit(SPACE, fence=[first.fence, second.fence])

        assert store.view(SPACE).sequence == 1

    def test_who_holds_nothing_may_write_while_nobody_holds_the_lease(self, store: Store) -> None:
        one, two = value("one"), value("two")
        store.acquire(SPACE, OTHER, "me", 10.0)

        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], fence=Fence(NAME, 0))
        store.release(store.acquire(SPACE, NAME, "me", 10.0))
        store.commit(SPACE, [two], moves=[Move(MAIN, one.id, two.id)], fence=Fence(NAME, 0))

        assert store.view(SPACE).sequence == 2

    def test_who_holds_nothing_is_refused_while_somebody_holds_the_lease(
        self, holder: Store, rival: Store, clock: Clock, other_clock: Clock
    ) -> None:
        lease = holder.acquire(SPACE, NAME, "me", 10.0)
        _assert_held(rival)
        holder.renew(lease)
        _assert_held(rival)
        clock.advance(1000.0)
        other_clock.advance(1000.0)  # Expired, but not taken over.
        _assert_held(rival)

        assert rival.missing([value("one").id], SPACE) == [value("one").id]

    def test_a_fence_of_nobody_is_one_of_several(self, store: Store) -> None:
        mine = store.acquire(SPACE, NAME, "me", 10.0)

        store.commit(SPACE, fence=[mine.fence, Fence(OTHER, 0)])
        store.acquire(SPACE, OTHER, "you", 10.0)
        with pytest.raises(LeaseHeld):
            store.commit(SPACE, fence=[mine.fence, Fence(OTHER, 0)])
        with pytest.raises(LeaseLost):
            store.commit(SPACE, fence=[Fence(NAME, mine.token + 9), Fence(OTHER, 0)])

        assert store.view(SPACE).sequence == 1

    def test_a_write_that_was_made_is_recognised_although_somebody_holds_the_lease(
        self, store: Store
    ) -> None:
        first = store.commit(SPACE, fence=Fence(NAME, 0), write_id="w")
        store.acquire(SPACE, NAME, "me", 10.0)

        again = store.commit(SPACE, fence=Fence(NAME, 0), write_id="w")

        assert again == first

    def test_a_lease_and_a_write_of_who_holds_nothing_exclude_each_other(
        self, store: Store, second: Store
    ) -> None:
        """Each turn a holder counts what was written; that must not change while it holds."""
        changed: list[tuple[int, int]] = []
        writing = threading.Event()

        def write() -> None:
            try:
                for _ in range(30):
                    with suppress(LeaseHeld):
                        second.commit(SPACE, fence=Fence(NAME, 0))
            finally:
                writing.set()

        def hold() -> None:
            while not writing.is_set():
                lease = store.acquire(SPACE, NAME, "me", 60.0)
                before = store.view(SPACE).sequence
                after = store.commit(SPACE, fence=lease.fence).sequence
                if after != before + 1:
                    changed.append((before, after))
                store.release(lease)

        in_threads(2, lambda number: (write, hold)[number]())

        assert changed == []

    def test_a_living_lease_can_be_seized(self, holder: Store, rival: Store, clock: Clock) -> None:
        old = holder.acquire(SPACE, NAME, "me", 10.0)
        (record,) = rival.leases(SPACE)
        holder.renew(old)

        new = rival.seize(SPACE, record, "you", 5.0)

        assert new is not None
        assert (new.holder, new.duration) == ("you", 5.0)
        assert new.token > old.token
        assert [one.holder for one in holder.leases(SPACE)] == ["you"]
        with pytest.raises(LeaseLost):
            holder.renew(old)
        _assert_fenced(holder, old.fence)
        rival.commit(SPACE, fence=new.fence)

    def test_only_the_grant_that_was_seen_is_seized(self, holder: Store, rival: Store) -> None:
        lease = holder.acquire(SPACE, NAME, "me", 10.0)
        (record,) = rival.leases(SPACE)

        holder.release(lease)
        assert rival.seize(SPACE, record, "you", 5.0) is None
        again = holder.acquire(SPACE, NAME, "me", 10.0)
        assert rival.seize(SPACE, record, "you", 5.0) is None

        assert holder.renew(again).token == again.token

    def test_one_of_many_seizes_a_lease(self, store: Store, second: Store) -> None:
        store.acquire(SPACE, NAME, "me", 60.0)
        (record,) = store.leases(SPACE)
        seized: list[Lease] = []

        def work(number: int) -> None:
            lease = (store, second)[number % 2].seize(SPACE, record, f"holder {number}", 60.0)
            if lease is not None:
                seized.append(lease)

        in_threads(8, work)

        assert len(seized) == 1
        assert [one.token for one in store.leases(SPACE)] == [seized[0].token]

    @pytest.mark.parametrize("record", [None, NAME, (NAME, "me", 1, 0, 10.0)])
    def test_what_is_seized_is_a_record(self, store: Store, record: Any) -> None:
        with pytest.raises(InvalidInput):
            store.seize(SPACE, record, "you", 5.0)

    def test_leases_take_no_operation_number(self, store: Store) -> None:
        store.release(store.renew(store.acquire(SPACE, NAME, "me", 10.0)))

        assert point(store, value("one")).sequence == 1

    def test_one_of_many_gets_a_free_lease(self, store: Store, second: Store) -> None:
        granted: list[Lease] = []

        def work(number: int) -> None:
            try:
                lease = (store, second)[number % 2].acquire(SPACE, NAME, f"holder {number}", 60.0)
            except LeaseHeld:
                return
            granted.append(lease)

        in_threads(8, work)

        assert len(granted) == 1


def _refused(store: Store) -> float:
    with pytest.raises(LeaseHeld) as caught:
        store.acquire(SPACE, NAME, "you", 5.0)
    assert caught.value.retry_after is not None
    return caught.value.retry_after


def _assert_held(store: Store) -> None:
    one = value("one")
    with pytest.raises(LeaseHeld) as caught:
        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], fence=Fence(NAME, 0))
    assert NAME in str(caught.value)
    assert store.view(SPACE).sequence == 0


def _assert_fenced(store: Store, fence: Fence) -> None:
    one = value("one")
    with pytest.raises(LeaseLost):
        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], fence=fence)
    assert store.view(SPACE).sequence == 0
    assert store.ref(SPACE, MAIN) is None
