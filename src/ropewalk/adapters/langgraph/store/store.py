"""`RopewalkStore`: LangGraph's long-term memory, with a history, on every engine."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakMethod

from langgraph.store.base import NOT_PROVIDED, BaseStore, IndexConfig, NotProvided, PutOp, TTLConfig

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.store.items import ItemVersion, Name, to_datetime, to_name
from ropewalk.adapters.langgraph.store.operations import (
    Plan,
    Reading,
    add_put,
    check_labels,
    expected_version,
    planned,
)
from ropewalk.adapters.langgraph.store.snapshot import (
    HEAD,
    Expiry,
    Moment,
    Snapshot,
    check_ttl,
    key_history,
    moment_of,
)
from ropewalk.adapters.langgraph.store.vectors import Indexing, Partitions
from ropewalk.adapters.langgraph.store.writing import (
    Batch,
    Editor,
    Group,
    Job,
    Put,
    Unchanged,
    about,
)
from ropewalk.codec import Classes, Codec
from ropewalk.errors import InvalidInput, NotAllowed, RopewalkError, StoreClosed
from ropewalk.history import MAIN, Branch, History
from ropewalk.history.commits import SharedObjects
from ropewalk.store import Store, space_name
from ropewalk.store.asynchronous import Closes, Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of
from ropewalk.tree.map import MapWriter

if TYPE_CHECKING:
    from ropewalk.store import KVStore

TOGETHER: Final = 500
"""The maximum number of items one commit deletes."""

_log = logging.getLogger("ropewalk.langgraph")
TENANT: Final = "langgraph-store"
_OBJECT_BYTES: Final = 32 << 20
_SWEEP_MINUTES: Final = 5.0
_MOST_USES: Final = 1000
_starting: Final = freed_after_fork(threading.Lock())
"""Held while a sweeper is started or stopped."""


class Embedded(NamedTuple):
    """The vectors of a plan, as stored."""

    queries: Mapping[str, bytes]
    documents: Mapping[str, bytes]

    def puts(self, plan: Plan) -> list[Put]:
        """The puts of the plan, with their vectors."""
        made = []
        for name, put in plan.puts.items():
            texts = plan.texts.get(name, {})
            vectors = {path: self.documents[text] for path, text in texts.items()}
            made.append(replace(put, vectors=vectors))
        return made


class Face(BaseStore):
    """Plans a batch, computes embeddings, and executes it."""

    _indexing: Indexing | None

    @property
    @abstractmethod
    def _threads(self) -> Threads:
        """Where awaited calls run."""

    @abstractmethod
    def _execute(self, plan: Plan, embedded: Embedded) -> list[Any]:
        """Execute a plan; returns the results of the operations."""

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Execute several operations; returns their results in order.

        Reads see the state before the puts of the batch. Of several puts of one key, the last
        counts. All puts are one commit: all of them are made, or none.
        """
        return self._do(planned(ops, self._indexing))

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """The asynchronous twin of `batch`."""
        return await self._ado(planned(ops, self._indexing))

    def _do(self, plan: Plan) -> list[Any]:
        return self._execute(plan, self._embed(plan))

    async def _ado(self, plan: Plan) -> list[Any]:
        embedded = await self._aembed(plan)
        return await self._threads.run(partial(self._execute, plan, embedded))

    def _embed(self, plan: Plan) -> Embedded:
        indexing = self._indexing
        if indexing is None:
            return Embedded({}, {})
        embeddings, documents, queries = indexing.embeddings, plan.documents, plan.queries
        vectors = embeddings.embed_documents(documents) if documents else []
        asked = [embeddings.embed_query(query) for query in queries]
        return Embedded(indexing.rows(queries, asked), indexing.rows(documents, vectors))

    async def _aembed(self, plan: Plan) -> Embedded:
        indexing = self._indexing
        if indexing is None:
            return Embedded({}, {})
        embeddings, documents, queries = indexing.embeddings, plan.documents, plan.queries
        vectors = await embeddings.aembed_documents(documents) if documents else []
        asked = [await embeddings.aembed_query(query) for query in queries]
        return Embedded(indexing.rows(queries, asked), indexing.rows(documents, vectors))


def over(snapshot: Snapshot, expiry: Expiry, moment: int) -> Iterator[list[Name]]:
    """Batches of expired items; namespaces without expiring items are not read."""
    for namespace, counted in snapshot.namespaces(()):
        if counted.items == counted.lasting:
            continue
        entries = snapshot.within(namespace)
        while some := list(islice(entries, TOGETHER)):
            living = {key for key, _ in expiry.living(some, moment)}
            if names := [to_name(key) for key, _ in some if key not in living]:
                yield names


class Sweeper:
    """Sweeps periodically on a thread, until it is stopped or its memory is garbage collected."""

    def __init__(self, sweep: Callable[[], int], seconds: float) -> None:
        self._sweep, self._seconds = WeakMethod(sweep), seconds
        self._stopped = threading.Event()
        self.future: Future[None] = Future()
        self.future.add_done_callback(self._cancelled)
        self._thread = threading.Thread(target=self._run, name="ropewalk-sweeper", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it will sweep again."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop; False if it is still running after the timeout."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _cancelled(self, future: Future[None]) -> None:
        if future.cancelled():
            self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            sweep = self._sweep()
            if sweep is None:
                break
            try:
                sweep()
            except StoreClosed:
                break
            except RopewalkError as error:
                _log.warning("items could not be swept, and will be tried again: %s", error)
            del sweep  # No reference here keeps the memory alive during the wait.
        if not self.future.done():
            self.future.set_result(None)


class Sweeps(ABC):
    """A store that can sweep periodically."""

    ttl_config: TTLConfig | None
    _sweeper: Sweeper | None = None

    @abstractmethod
    def sweep_ttl(self) -> int:
        """Delete expired items; returns how many."""

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep periodically on a thread; cancelling the returned object stops it.

        The default interval is that of the store's `ttl`, or 5 minutes.
        """
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        minutes = check_ttl(sweep_interval_minutes or configured) or _SWEEP_MINUTES
        with _starting:
            if self._sweeper is None or not self._sweeper.is_running:
                self._sweeper = Sweeper(self.sweep_ttl, 60 * minutes)
            return self._sweeper.future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping; False if it is still running after the timeout."""
        with _starting:
            sweeper, self._sweeper = self._sweeper, None
        return sweeper is None or sweeper.stop(timeout)


class StoreView(Face):
    """A memory at an earlier moment: `get`, `search` and `list_namespaces`, and their twins.

    Reads renew nothing, and writes raise `NotAllowed`.
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
        """The moment of the view."""
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


class RopewalkStore(Sweeps, Face, Closes):
    """A memory for LangGraph, `builder.compile(store=RopewalkStore("agent.ropewalk"))`.

    Implements all of LangGraph's `BaseStore`, sync and async, on every engine: `store` is a Store,
    a path or URL, or None for one in memory. `name` distinguishes memories in one store. `types`
    are classes that values may contain, besides loaded plain ones and those declared with
    `ropewalk.register`; with `classes="declared"`, no undeclared plain ones.

    Every batch is one commit. Items therefore have versions, `put` and `delete` take `if_version`,
    `history` returns the versions of a key, and `at` the whole memory at an earlier moment.

    `index` enables search by similarity, and `ttl` sets how long items live. An expired item is
    never read, whether or not it has been swept.

    Safe to share between threads and event loops, and the data between processes.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        types: Iterable[type] = (),
        classes: Classes = "plain",
        name: str = "memory",
    ) -> None:
        super().__init__()
        self.ttl_config = _checked_ttl(ttl)
        self._indexing = None if index is None else Indexing(index)
        self.index_config = index
        self._codec = Codec(GraphTypes(types).registry, classes=classes)
        space = space_name(TENANT, name)
        self.store, self._owns_store = store_of(store)
        self._history = History(self.store, space, codec=self._codec, agent=name)
        self._objects = SharedObjects(self._history.read, _OBJECT_BYTES)
        self._latest = Snapshot(None, self._objects.read, self._codec)
        self._uses = 0
        self._expiry = Expiry(self.store, space)
        self._partitions = Partitions()
        self._lock = threading.Lock()
        self._opened: tuple[int, Group] | None = None

    def __repr__(self) -> str:
        return f"<RopewalkStore {self._history.agent!r} in {self.store!r}>"

    # Lifecycle.

    def close(self) -> None:
        """Stop sweeping, and close the store if it was opened here."""
        self.stop_ttl_sweeper()
        if self._owns_store:
            self.store.close()

    # Writing, beyond the interface.

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Any = None,
        *,
        ttl: float | None | NotProvided = NOT_PROVIDED,
        if_version: int | None | NotProvided = NOT_PROVIDED,
    ) -> None:
        """Store an item, replacing any previous value.

        With `if_version`, only if that is its current version; 0 or None: only if there is no such
        item. Otherwise `VersionConflict`, a `Conflict`, is raised and nothing is changed.
        """
        self._do(self._put_plan(namespace, key, value, index, ttl, if_version))

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Any = None,
        *,
        ttl: float | None | NotProvided = NOT_PROVIDED,
        if_version: int | None | NotProvided = NOT_PROVIDED,
    ) -> None:
        """The asynchronous twin of `put`."""
        await self._ado(self._put_plan(namespace, key, value, index, ttl, if_version))

    def delete(
        self,
        namespace: tuple[str, ...],
        key: str,
        *,
        if_version: int | None | NotProvided = NOT_PROVIDED,
    ) -> None:
        """Delete an item if it exists; it stays in the history. See `put`."""
        self._do(self._put_plan(namespace, key, None, None, None, if_version))

    async def adelete(
        self,
        namespace: tuple[str, ...],
        key: str,
        *,
        if_version: int | None | NotProvided = NOT_PROVIDED,
    ) -> None:
        """The asynchronous twin of `delete`."""
        await self._ado(self._put_plan(namespace, key, None, None, None, if_version))

    # History.

    def position(self) -> str:
        """The id of the newest commit, in hex; empty before the first. For `at`."""
        found = self.store.ref(self._history.space, HEAD)
        return "" if found is None else found.target.hex()

    def history(
        self, namespace: tuple[str, ...], key: str, *, limit: int | None = None
    ) -> list[ItemVersion]:
        """The versions of a key, newest first: values with their times, or deletions."""
        check_labels(namespace)
        name = Name(tuple(namespace), str(key))
        return list(islice(key_history(self._snapshot(), name), limit))

    def at(self, moment: Any, *, saver: Any = None) -> StoreView:
        """The memory at an earlier moment, read-only: `get`, `search` and `list_namespaces`.

        `moment` is the id of a commit, from `position`; a datetime; or a checkpoint: a
        `CheckpointTuple` or `StateSnapshot`, or a config that `saver` finds one for. The memory's
        position in a checkpoint takes precedence over the checkpoint's time.
        """
        found = moment_of(self._history, moment, saver)
        root = None if found.commit is None else found.commit.root
        snapshot = self._latest.version(root)
        return StoreView(found, snapshot, self._expiry, self._indexing, self._threads)

    # Expiring items.

    def sweep_ttl(self) -> int:
        """Delete expired items; returns how many."""
        moment, count = self._expiry.clock(), 0
        for names in over(self._snapshot(), self._expiry, moment):
            count += self._group.run(Batch(swept=names, moment=moment)).deleted
        return count

    # Internals.

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    @property
    def _group(self) -> Group:
        """The writers of this process; after a fork, the parent's may be locked for good."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                branch = self._history.open(MAIN)
                writer = MapWriter(self._codec, self._objects.read)
                group = Group(partial(self._commit, branch, writer))
                self._opened = os.getpid(), group
            return self._opened[1]

    def _snapshot(self) -> Snapshot:
        found = self.store.ref(self._history.space, HEAD)
        root = None if found is None else self._history.resolve(found.target).root
        latest, self._uses = self._latest, self._uses + 1
        if latest.root != root or self._uses > _MOST_USES:
            # It caches every node on the way to a key, so it is replaced now and then.
            latest, self._uses = latest.version(root), 0
            self._latest = latest
        return latest

    def _execute(self, plan: Plan, embedded: Embedded) -> list[Any]:
        moment = self._expiry.clock()
        results: list[Any] = [None] * plan.size
        renewed: list[Name] = []
        if plan.gets or plan.searches or plan.lists:
            reading = Reading(self._snapshot(), self._expiry, self._partitions, moment)
            results = reading.results(plan, embedded.queries)
            renewed = [to_name(key) for key in self._expiry.renew(reading.renewed.items(), moment)]
        puts = embedded.puts(plan)
        if puts:
            self._group.run(Batch(puts, renewed, moment=moment))
        elif renewed:
            self._renew(Batch(renewed=renewed, moment=moment))
        return results

    def _commit(self, branch: Branch, writer: MapWriter, jobs: Sequence[Job]) -> None:
        """Write batches in one commit, if anything changes. Serialized within a process."""
        editor = Editor(jobs, writer, self._codec, self._expiry.is_living)
        with suppress(Unchanged):
            branch.update(editor, **about([job.batch for job in jobs]))
            if editor.draft is not None:
                writer.accept(editor.draft)
                self._objects.remember(editor.draft.edited.objects)

    def _renew(self, batch: Batch) -> None:
        try:
            self._group.run(batch)
        except RopewalkError as error:
            # The values read are correct all the same.
            _log.warning("the time of %d items could not begin again: %s", len(batch.names), error)

    def _put_plan(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any] | None,
        index: Any,
        ttl: float | None | NotProvided,
        if_version: int | None | NotProvided,
    ) -> Plan:
        if value is None and index is not None:
            raise InvalidInput("an item without a value has nothing to embed")
        minutes = (self.ttl_config or {}).get("default_ttl") if ttl is NOT_PROVIDED else ttl
        op = PutOp(namespace, str(key), value, index=index, ttl=minutes)
        if isinstance(if_version, NotProvided):
            return planned([op], self._indexing)
        plan = planned([], self._indexing)
        plan.size = 1
        add_put(plan, op, self._indexing, expected_version(if_version))
        return plan

    # The asynchronous interface.

    aposition = twin(position)
    ahistory = twin(history)
    aat = twin(at)
    asweep_ttl = twin(sweep_ttl)


def _checked_ttl(ttl: TTLConfig | None) -> TTLConfig | None:
    if ttl is None:
        return None
    if not isinstance(ttl, Mapping):
        raise InvalidInput(f"ttl is a TTLConfig, a dict, not {ttl!r:.80}")
    known = {*TTLConfig.__annotations__, "omit_expired"}  # Missing in older releases.
    if unknown := set(ttl) - known:
        raise InvalidInput(
            f"a TTLConfig has no {', '.join(map(repr, sorted(unknown)))}; it has "
            f"{', '.join(sorted(known))}"
        )
    check_ttl(ttl.get("default_ttl"))
    check_ttl(ttl.get("sweep_interval_minutes"))
    return ttl
