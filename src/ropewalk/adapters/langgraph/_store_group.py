"""Batches that wait for each other go into one commit.

While one thread commits, others queue. Whoever comes next takes all that wait, so a commit
costs them one round trip and one path of nodes. Each batch is still all or nothing, and fails
alone. Two that are about one key never go together: each version has a commit to be found in.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakSet

from ropewalk.adapters.langgraph._store_keys import Name
from ropewalk.adapters.langgraph._store_writing import Batch, Job
from ropewalk.errors import NotStorable, Unavailable

_MOST: Final = 64
_MOST_ITEMS: Final = 2000


class Group:
    """Who wants to write, in one process."""

    def __init__(self, commit: Callable[[Sequence[Job]], None]) -> None:
        self._commit = commit
        self.begin()
        _groups.add(self)

    def begin(self) -> None:
        """Wait for nobody: a forked process has none of those who were writing."""
        self._turn = threading.Lock()
        self._queue = threading.Lock()
        self._waiting: list[Job] = []

    def run(self, batch: Batch) -> Job:
        """Write a batch, perhaps with others; raises what became of it."""
        job = Job(batch)
        with self._queue:
            self._waiting.append(job)
        with self._turn:
            while not job.is_done:
                self._write(self._chosen())
        if job.error is not None:
            raise job.error
        return job

    def _chosen(self) -> list[Job]:
        """Those that wait longest and are about different keys."""
        chosen: list[Job] = []
        left: list[Job] = []
        met: set[Name] = set()
        with self._queue:
            for job in self._waiting:
                names = set(job.batch.names)
                fits = len(chosen) < _MOST and len(met) + len(names) <= _MOST_ITEMS
                if met.isdisjoint(names) and (fits or not chosen):
                    chosen.append(job)
                else:
                    left.append(job)
                met |= names  # Who comes later does not overtake one that is about the same.
            self._waiting = left
        return chosen

    def _write(self, jobs: list[Job]) -> None:
        try:
            self._commit(jobs)
        except NotStorable as error:
            if len(jobs) == 1:
                jobs[0].error = error
            else:
                for job in jobs:
                    self._write([job])
        except Exception as error:  # noqa: BLE001 - each that waits is told
            for job in jobs:
                job.error = error
        except BaseException:
            for job in jobs:
                job.error = Unavailable(
                    "the thread that wrote this together with its own was interrupted. It may "
                    "have been stored: read it again."
                )
            raise
        finally:
            for job in jobs:
                job.is_done = True


_groups: WeakSet[Group] = WeakSet()


def _begin_anew() -> None:
    for group in list(_groups):
        group.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
