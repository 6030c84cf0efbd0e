"""Clients that are killed, of a bucket whose server answers twice, late or not at all."""

from __future__ import annotations

import os
import random
import time

from ropewalk.store import S3Store
from ropewalk.testing.helpers import SPACE
from tests.conftest import SOAK
from tests.s3_server import url_of
from tests.store.s3.unreliable import FAULTS, unreliable
from tests.store.test_processes import acknowledged, begin, check_log, lines_of, rest_of
from tests.store.test_s3_server import start

ROUNDS = 12 if SOAK else 2
OFTEN = 0.08


def test_nothing_acknowledged_is_lost_by_killed_clients_of_an_unreliable_server(
    s3_endpoint: str,
) -> None:
    choose = random.Random(2027)
    prefix = f"test-{os.urandom(6).hex()}"
    told: dict[int, bytes] = {}
    with unreliable(s3_endpoint, seed=11, often=OFTEN) as (endpoint, between):
        for round_number in range(ROUNDS):
            url = url_of(endpoint, prefix)
            writers = [start(url, "struggle", name, round_number) for name in ("a", "b", "c")]
            collector = start(url, "tidy")
            lines = dict.fromkeys(writers, "")
            for worker in (*writers, collector):
                begin(worker)
            for worker in writers:
                lines[worker] += "".join(lines_of(worker, choose.randrange(2, 16)))
            time.sleep(choose.random() * 0.05)  # Anywhere in a commit, not just after one.
            for worker in (*writers, collector):
                worker.kill()
            for worker in writers:
                told |= acknowledged(lines[worker] + rest_of(worker))
            rest_of(collector)

            with S3Store(url_of(s3_endpoint, prefix)) as store:
                check_log(store, told)
                assert store.check(read_data=True).problems == ()
        between.settle()
    assert all(between.done[fault] for fault in FAULTS)

    with S3Store(url_of(s3_endpoint, prefix)) as store:
        check_log(store, told)
        operations = store.operations(SPACE, limit=10**6)
        assert len({one.write_id for one in operations}) == len(operations)
        store.gc(recent=10_000)
        assert store.check(read_data=True).problems == ()
        check_log(store, told)
        named = store._log.ask(SPACE, lambda space: space.parts())
        assert set(store._parts.keys("ropewalk/part/")) == named  # And nobody's part is left.
    assert len(told) >= 6 * ROUNDS
