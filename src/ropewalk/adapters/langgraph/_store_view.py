"""`StoreView`: a memory as it was at a moment."""

from __future__ import annotations

from typing import Any

from ropewalk.adapters.langgraph._store_expiry import Expiry
from ropewalk.adapters.langgraph._store_face import Embedded, Face
from ropewalk.adapters.langgraph._store_history import Moment
from ropewalk.adapters.langgraph._store_ops import Plan
from ropewalk.adapters.langgraph._store_reading import Reading
from ropewalk.adapters.langgraph._store_records import to_datetime
from ropewalk.adapters.langgraph._store_snapshot import Snapshot
from ropewalk.adapters.langgraph._vectors import Indexing, Partitions
from ropewalk.errors import NotAllowed
from ropewalk.store.asynchronous import Threads


class StoreView(Face):
    """A memory as it was: `get`, `search` and `list_namespaces`, and their twins.

    Reading puts nothing off, and what would write raises `NotAllowed`.
    """

    supports_ttl = True

    def __init__(
        self,
        moment: Moment,
        snapshot: Snapshot,
        expiry: Expiry,
        indexing: Indexing | None,
        threads: Threads,
    ) -> None:
        self._moment, self._snapshot, self._expiry = moment, snapshot, expiry
        self._indexing, self._own_threads = indexing, threads
        self._partitions = Partitions()

    def __repr__(self) -> str:
        return f"<StoreView at {self.position[:12] or 'nothing yet'}>"

    @property
    def position(self) -> str:
        """The id of the commit, in hex; empty before the first."""
        commit = self._moment.commit
        return "" if commit is None else commit.id.hex()

    @property
    def time(self) -> Any:
        """The moment that is looked at."""
        return to_datetime(self._moment.time)

    @property
    def _threads(self) -> Threads:
        return self._own_threads

    def _execute(self, plan: Plan, embedded: Embedded) -> list[Any]:
        if plan.puts:
            raise NotAllowed(
                "this is a memory as it was, which is only read. Write to the RopewalkStore that "
                "it was taken from."
            )
        reading = Reading(self._snapshot, self._expiry, self._partitions, self._moment.time)
        return reading.results(plan, embedded.queries)
