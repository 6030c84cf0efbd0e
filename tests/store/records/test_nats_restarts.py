"""A NATS server that is killed and started again while several write to it."""

from __future__ import annotations

import logging
import random
import tempfile
import threading
import time
from pathlib import Path

import pytest
from nats.errors import Error as NatsError

from examples.nats_store import NatsStore
from ropewalk.errors import Conflict, Unavailable
from ropewalk.store import KeyValueStore, Move, Store
from ropewalk.testing.helpers import SPACE, noise
from ropewalk.tree import Kind, make_object
from tests.conftest import SOAK
from tests.servers import Nats, _free_port, start_again
from tests.store.test_processes import check_log

RESTARTS = 30 if SOAK else 3
WRITERS = 4


class Client:
    """Commits version after version, and opens the store anew when its connection has ended."""

    def __init__(self, url: str, name: str) -> None:
        self.told: dict[int, bytes] = {}
        self.errors: list[BaseException] = []
        self.failed = 0
        """Commits that got no answer."""
        self._url, self._name = url, name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Finish the commit that is on its way."""
        self._stop.set()
        self._thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            self.errors.append(error)

    def _work(self) -> None:
        choose, ref = random.Random(self._name), f"branch/{self._name}"
        store, before, number = self._opened(), None, 0
        while not self._stop.is_set():
            number += 1
            size = choose.choice([30, 300, 3000, 12_000, 40_000])
            one = make_object(Kind.CHUNK, f"{self._name} {number} ".encode() + noise(size, number))
            while True:
                try:
                    done = store.commit(
                        SPACE, [one], moves=[Move(ref, before, one.id)],
                        write_id=f"{self._name} {number}", share=size > 30_000,
                    )  # fmt: skip
                except (Unavailable, Conflict):
                    self.failed += 1
                    store = self._opened()
                else:
                    break
            self.told[done.sequence] = before = one.id
        store.close()

    def _opened(self) -> Store:
        while True:
            try:
                return KeyValueStore(NatsStore(self._url, "restarted"))
            except (Unavailable, OSError, TimeoutError, NatsError):
                time.sleep(0.05)


@pytest.mark.filterwarnings("ignore")  # A client that is cut off leaves a task or a socket.
def test_nothing_acknowledged_is_lost_while_a_nats_server_is_killed_under_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    choose = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="ropewalk-nats-") as folder:
        server = Nats(_free_port())
        process = start_again(server, Path(folder))
        clients = [Client(server.url, f"client-{number}") for number in range(WRITERS)]
        try:
            for _ in range(RESTARTS):
                seen = sum(len(one.told) for one in clients)
                while sum(len(one.told) for one in clients) < seen + 20:
                    assert not any(one.errors for one in clients)
                    time.sleep(0.01)
                time.sleep(choose.random() * 0.05)
                process.kill()
                process.wait()
                process = start_again(server, Path(folder))
            for one in clients:
                one.end()
            told = {sequence: id for one in clients for sequence, id in one.told.items()}
            with KeyValueStore(NatsStore(server.url, "restarted")) as store:
                check_log(store, told)
                assert store.check(read_data=True).problems == ()
                store.gc(recent=10_000)
                assert store.check(read_data=True).problems == ()
                check_log(store, told)
            assert sum(one.failed for one in clients) > 0
            assert len(told) == sum(len(one.told) for one in clients) >= 20 * RESTARTS
        finally:
            for one in clients:
                one._stop.set()
            process.kill()
            process.wait()
