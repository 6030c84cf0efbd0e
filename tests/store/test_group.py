"""Threads that write at once: what each gets, whoever leads."""

from __future__ import annotations

import threading

from ropewalk.store.group import Member, SendingGroup
from ropewalk.testing.helpers import PATIENCE
from tests.patience import wait_until


class SlowToWake(SendingGroup[str, str]):
    """A group in which the thread of one member goes on late after it was woken."""

    slow: Member[str]

    def __init__(self) -> None:
        self.go = threading.Event()
        self.woken, self.awake = threading.Event(), threading.Event()
        super().__init__(self._sent, 1 << 20, patience=PATIENCE)

    def _sent(self, works: list[str]) -> list[str]:
        if "first" in works:
            assert self.go.wait(PATIENCE)
        return [work.upper() for work in works]

    def _wait(self, member: Member[str], wake: threading.Lock) -> None:
        super()._wait(member, wake)
        if member is self.slow:
            self.woken.set()
            assert self.awake.wait(PATIENCE)


def test_a_member_that_was_to_lead_does_its_work_though_another_one_leads_by_then() -> None:
    group = SlowToWake()
    first, slow, hasty = (Member(work) for work in ("first", "slow", "hasty"))
    first.alone = slow.alone = hasty.alone = True
    group.slow = slow
    answers: dict[str, str] = {}

    def run(member: Member[str]) -> None:
        answers[member.work] = group.run(member)

    threads = [threading.Thread(target=run, args=[one], daemon=True) for one in (first, slow)]
    threads[0].start()
    wait_until(lambda: group.leader is first)
    threads[1].start()
    wait_until(lambda: len(group.waiting) == 1)
    group.go.set()
    assert group.woken.wait(PATIENCE)

    group.seconds = 0.01  # The one that comes now does not wait for the slow one.
    run(hasty)
    group.awake.set()
    for thread in threads:
        thread.join(PATIENCE)

    assert answers == {"first": "FIRST", "slow": "SLOW", "hasty": "HASTY"}
