"""The asynchronous face, where it meets forked processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from ropewalk.store import MemoryStore, SqliteStore, Store
from ropewalk.testing.helpers import PATIENCE, SPACE, point, value
from tests.store.files.test_store import fork


async def look(store: Store, times: int) -> None:
    views = await asyncio.gather(*(store.aview(SPACE) for _ in range(times)))
    assert {view.sequence for view in views} == {1}


async def sleep_on_all_threads(store: Store) -> None:
    await asyncio.gather(*(store._threads.run(lambda: time.sleep(0.05)) for _ in range(16)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_a_child_goes_on_although_the_threads_are_its_parents(engine: str, tmp_path: Path) -> None:
    with MemoryStore() if engine == "memory" else SqliteStore(tmp_path / "store") as store:
        point(store, value("x"))
        asyncio.run(sleep_on_all_threads(store))
        child = fork()
        if child == 0:
            signal.alarm(int(PATIENCE))  # Ends it if it waits for threads that there are not.
            try:
                asyncio.run(look(store, 40))
                store.close()
                os._exit(0)
            finally:
                os._exit(1)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        asyncio.run(look(store, 40))
