"""`RopewalkSaver`, LangGraph's checkpointer: translates its calls into those of `GraphThread`s.

It also limits how far a synchronous graph may run ahead of what is stored (`Backlog`).
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.types import ERROR

from ropewalk.adapters.langgraph.classes import GraphTypes, calling_graphs, classes_of
from ropewalk.adapters.langgraph.saver import retention
from ropewalk.adapters.langgraph.saver.checkpoints import Address, make_version
from ropewalk.adapters.langgraph.saver.thread import GraphThread, OnConflict, Put, Writes
from ropewalk.adapters.langgraph.saver.timeline import GraphTimeline, graph_threads
from ropewalk.adapters.langgraph.saver.values import Found
from ropewalk.codec import Classes, inspection_codec
from ropewalk.errors import FormatError, InvalidInput, NotFound
from ropewalk.store import KVStore, Store
from ropewalk.store.asynchronous import Threads, twin, twin_iterator
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of

_ADDRESSED: Final = "__ropewalk_checkpoint"
"""In the config of a run: the checkpoint that its caller asked for by id."""
_MOST_THREADS: Final = 256
_MOST_HELD: Final = 128 << 20
"""About how many bytes are held of all threads that were asked for lately."""
_LOOK_EVERY: Final = 64
_FIRST_SLICE: Final = 8
_LARGEST_SLICE: Final = 256
_callers: ContextVar[tuple[Any, ...]] = ContextVar("callers", default=())
"""The graphs that wait for a call that was handed to another thread."""
R = TypeVar("R")
_CONTAINERS: Final = frozenset({dict, list, tuple})
_MODES: Final = ("fork", "raise", "branch")


class _Core:
    """What all copies of a saver share."""

    def __init__(
        self, store: Store, types: GraphTypes, on_conflict: OnConflict, backlog: int
    ) -> None:
        self.store, self.types, self.on_conflict = store, types, on_conflict
        self._most = backlog
        self._begin()
        freed_after_fork(self)

    def _begin(self) -> None:
        """Start with no threads, also in the child of a fork, where no writer is running."""
        self.backlog = Backlog(self._most)
        """The versions that were given out in this process."""
        self._lock = threading.Lock()
        self._threads: OrderedDict[str, GraphThread] = OrderedDict()
        self._sizes: dict[str, int] = {}
        """About how many bytes each thread held when it was last looked at."""
        self._used: set[str] = set()
        """The threads that were asked for since then."""
        self._asked = 0

    _at_fork_reinit = _begin

    def thread(self, name: str) -> GraphThread:
        """A thread by its name."""
        with self._lock:
            found = self._threads.get(name)
            if found is not None:
                self._threads.move_to_end(name)
            else:
                found = GraphThread(self.store, name, self.types, self.on_conflict)
                self._threads[name] = found
                if len(self._threads) > _MOST_THREADS:
                    self._drop(1)
            self._used.add(name)
            self._asked += 1
            if not self._asked % _LOOK_EVERY:
                self._measure()
                self._drop(sum(self._sizes.values()) - _MOST_HELD)
            return found

    def _measure(self) -> None:
        for name in self._used & self._threads.keys():
            self._sizes[name] = self._threads[name].held
        self._used.clear()

    def _drop(self, excess: int) -> None:
        """Evict the threads used longest ago, until `excess` bytes are freed."""
        for name, one in [*self._threads.items()][:-1] if excess > 0 else ():
            if one.is_idle:
                excess -= max(self._sizes.pop(name, 0), 1)
                del self._threads[name]
            if excess <= 0 and len(self._threads) <= _MOST_THREADS:
                return


class _Asked(NamedTuple):
    """What a config asks for."""

    thread: str
    namespace: str | None
    id: str | None


class RopewalkSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of LangGraph in a store; only what changed is stored.

    `store` is a `Store`, a URL or a path; without one it is in memory. One object serves
    synchronous and asynchronous graphs, from several threads, event loops and processes.

    `types` are classes that states may hold, beside plain ones that the program has loaded
    and those in the graph's schema; with `classes="declared"` no plain ones. Reading never
    imports or calls what stored bytes name. What is not known comes back as its raw value
    with a warning, or raises `UndeclaredClass` if `strict`. Exceptions and objects of classes
    derived from built-in ones, of which LangGraph's own savers make something else, are
    refused if `strict`.

    `on_conflict` says what becomes of a run that goes on from a checkpoint from which
    another run went on already: `"fork"`, as LangGraph's own checkpointers do it, where the
    newer one wins; `"raise"`, a `ThreadConflict`; or `"branch"`, where it is kept aside.

    With `memory`, a `RopewalkStore`, every checkpoint notes where that was. `backlog` is how
    many steps a synchronous graph may be ahead of what is stored.
    """

    def __init__(
        self,
        store: Store | KVStore | str | os.PathLike[str] | None = None,
        *,
        types: Iterable[type] = (),
        classes: Classes = "plain",
        strict: bool = False,
        on_conflict: OnConflict = "fork",
        memory: Any = None,
        backlog: int = 64,
    ) -> None:
        super().__init__()
        if on_conflict not in _MODES:
            raise InvalidInput(
                f"on_conflict is one of {', '.join(_MODES)}, not {on_conflict!r:.80}"
            )
        if type(backlog) is not int or backlog < 1:
            raise InvalidInput(f"backlog is a whole number from 1 on, not {backlog!r:.80}")
        if memory is not None and not callable(getattr(memory, "position", None)):
            raise InvalidInput(f"memory is a RopewalkStore, not a {type(memory).__name__}")
        known = GraphTypes(types, strict, classes)
        known.source = self._classes_of_callers
        self.store, self._owns_store = store_of(_no_file(store))
        self._core = _Core(self.store, known, on_conflict, backlog)
        self._memory = memory

    def __repr__(self) -> str:
        return f"<RopewalkSaver on {self.store!r}>"

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    @property
    def lag(self) -> int:
        """How many steps of synchronous graphs are not stored yet."""
        return len(self._core.backlog)

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._owns_store:
            self.store.close()

    async def aclose(self) -> None:
        """The asynchronous twin of `close`."""
        if self._owns_store:
            await self.store.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    # Versions and types.

    def get_next_version(self, current: str | None, channel: None = None) -> str:
        """The next version of a channel; waits while too many steps are not stored yet."""
        return self._core.backlog.next_version(current)

    def with_allowlist(self, extra_allowlist: Iterable[tuple[str, ...]]) -> Self:
        """A saver that also knows the classes of these modules and names."""
        self._core.types.allow(extra_allowlist)
        return copy.copy(self)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest one of its thread."""
        asked = _asked(config)
        found = self._thread(asked.thread).find(asked.namespace or "", asked.id)
        if found is None:
            return None
        made = _tuple(asked.thread, found)
        if self._core.on_conflict != "fork":
            made.config["configurable"][_ADDRESSED] = asked.id
        return made

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first; those of one moment, whatever is put meanwhile.

        What several of them hold is decoded once and shared by them.
        """
        if limit is not None and limit <= 0:
            return
        asked = None if config is None else _asked(config)
        bound = None if before is None else before.get("configurable", {}).get("checkpoint_id")
        names = self.threads() if asked is None else [asked.thread]
        runs = [self._listed(name, asked, bound, filter) for name in names]
        newest = (
            merge(*runs, key=_id_of, reverse=True) if len(runs) > 1 else runs[0] if runs else ()
        )
        yield from islice(newest, limit)

    def _listed(
        self, name: str, asked: _Asked | None, before: str | None, wanted: Mapping[str, Any] | None
    ) -> Iterator[CheckpointTuple]:
        thread = self._thread(name)
        reader = thread.reader()
        _, namespace, id = asked or (name, None, None)
        found = thread.history(namespace, id, before)
        if wanted:
            found = (one for one in found if _fits(reader.record(one.step).metadata, wanted))
        for one in reader.read(found):
            yield _tuple(name, one)

    def threads(self) -> Iterator[str]:
        """The threads that there are, by their ids."""
        for name, _ in graph_threads(self.store):
            yield name

    def timeline(self, thread_id: str) -> GraphTimeline:
        """A thread as a timeline: log, diff, blame, tree, and undo of what was done to it."""
        return GraphTimeline(str(thread_id), self.store, codec=inspection_codec)

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, with the writes that led to it."""
        asked = _asked(config)
        about: dict[str, Any] = get_checkpoint_metadata(config, metadata)
        if not _CONTAINERS.isdisjoint(map(type, filter(None, about.values()))):
            about = _plain(about)
        if self._memory is not None:
            about["ropewalk_memory"] = self._memory.position()
        address = Address(asked.namespace or "", str(checkpoint["id"]))
        addressed = config["configurable"].get(_ADDRESSED)
        put = Put(address, checkpoint, about, asked.id, addressed)
        core = self._core
        thread, backlog = core.thread(asked.thread), core.backlog
        version = backlog.begin(new_versions)
        try:
            thread.send(put)
        except BaseException:
            backlog.end(version, failed=True)
            raise
        backlog.end(version)
        made = _config(asked.thread, address)
        if addressed is not None:
            made["configurable"][_ADDRESSED] = addressed
        return made

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, before the checkpoint that follows."""
        asked = _asked(config)
        if asked.id is None:
            raise InvalidInput("writes belong to a checkpoint: the config names none")
        numbered: list[tuple[int, str, Any]] = []
        for at, (channel, value) in enumerate(writes):
            if channel == ERROR and isinstance(value, BaseException):
                value = repr(value)  # LangGraph notes why a task failed, and keeps the text.
            numbered.append((WRITES_IDX_MAP.get(channel, at), channel, value))
        if numbered:
            address = Address(asked.namespace or "", asked.id)
            wanted = Writes(address, str(task_id), task_path, numbered)
            self._core.thread(asked.thread).send(wanted)

    # Keeping and dropping.

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread: all its checkpoints and writes."""
        name = str(thread_id)
        self._thread(name).change(partial(retention.deleted, name), "delete")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs, in all threads."""
        wanted = set(_several("run_ids", run_ids))
        for name in self.threads() if wanted else ():
            self._thread(name).change(retention.without_runs(name, wanted), "delete")

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one; their contents are shared."""
        source, target = str(source_thread_id), str(target_thread_id)
        if source != target:
            self._thread(target).change(retention.copied(self.store, source, target), "copy")

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
    ) -> None:
        """Drop old checkpoints of threads.

        `"keep_latest"` keeps the newest one of each namespace, or with `keep_last` so many of
        the newest; `"delete"` keeps none. Pinned ones stay. Delta channels stay as they are.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"a strategy is keep_latest or delete, not {strategy!r:.80}")
        number = 1 if keep_last is None else keep_last
        if type(number) is not int or number < 1:
            raise InvalidInput(f"keep_last is a whole number from 1 on, not {keep_last!r:.80}")
        for name in _several("thread_ids", thread_ids):
            if strategy == "delete":
                self.delete_thread(name)
            else:
                kept = retention.kept_last(name, number, keep_last is not None)
                self._thread(name).change(kept, "prune")

    def pin(self, config: RunnableConfig, name: str) -> None:
        """Keep a checkpoint under a name, so that `prune` does not drop it."""
        asked = _asked(config)
        found = self.get_tuple(config)
        if found is None:
            raise NotFound(f"thread {asked.thread!r:.80} has no checkpoint like that")
        where = found.config["configurable"]
        address = Address(where["checkpoint_ns"], where["checkpoint_id"])
        self._thread(asked.thread).change(retention.pinned(asked.thread, name, address), "pin")

    def unpin(self, thread_id: str, name: str) -> None:
        """Let `prune` drop a checkpoint that was pinned; raises `NotFound`."""
        thread = str(thread_id)
        self._thread(thread).change(retention.unpinned(thread, name), "unpin")

    def pins(self, thread_id: str) -> dict[str, RunnableConfig]:
        """The pinned checkpoints of a thread, by name."""
        thread = str(thread_id)
        found = self._thread(thread).pins()
        return {name: _config(thread, address) for name, address in found.items()}

    # Delta channels.

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What delta channels are made of at a checkpoint: where to begin, and what was written."""
        asked = _asked(config)
        thread = self._thread(asked.thread)
        return thread.delta_history(asked.namespace or "", asked.id, channels)

    # Inside.

    def _calling(self) -> tuple[Any, ...]:
        """The graphs that wait for this saver."""
        return _callers.get() or tuple(calling_graphs(self))

    def _classes_of_callers(self) -> Iterable[type]:
        return {cls for graph in self._calling() for cls in classes_of(graph)}

    def _thread(self, name: str) -> GraphThread:
        return self._core.thread(name)

    # The asynchronous face.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The asynchronous twin of `get_tuple`."""
        get = partial(self.get_tuple, config)
        return await self._threads.run(partial(_called_by, self._calling(), get))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The asynchronous twin of `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        graphs = self._calling()
        size = _FIRST_SLICE
        while several := await self._threads.run(partial(_called_by, graphs, _take(found, size))):
            for one in several:
                yield one
            size = min(2 * size, _LARGEST_SLICE)

    # Written out, because checkers of types take that of the base for it, without `keep_last`.
    async def aprune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
    ) -> None:
        """The asynchronous twin of `prune`."""
        prune = partial(self.prune, thread_ids, strategy=strategy, keep_last=keep_last)
        await self._threads.run(prune)

    aput = twin(put)
    aput_writes = twin(put_writes)
    adelete_thread = twin(delete_thread)
    adelete_for_runs = twin(delete_for_runs)
    acopy_thread = twin(copy_thread)
    apin = twin(pin)
    aunpin = twin(unpin)
    apins = twin(pins)
    athreads = twin_iterator(threads)
    atimeline = twin(timeline)
    aget_delta_channel_history = twin(get_delta_channel_history)


def _called_by(graphs: tuple[Any, ...], call: Callable[[], R]) -> R:
    """Make a call on a thread of its own context, and know there who waits for it."""
    _callers.set(graphs)
    return call()


def _take(found: Iterator[R], number: int) -> Callable[[], Sequence[R]]:
    return lambda: [*islice(found, number)]


def _plain(value: Any) -> Any:
    """Metadata as LangGraph's own savers give it back: with lists in the place of tuples."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return [_plain(one) for one in value]
    return value


def _no_file(store: Any) -> Any:
    """What was given as store, unless that is the database of another saver."""
    if isinstance(store, str | os.PathLike) and os.path.isfile(store):
        raise FormatError(
            f"{store} is a file, and a store is a folder: choose another name. What LangGraph's "
            "own saver has in a file is taken over with `ropewalk import-langgraph`."
        )
    return store


def _several(name: str, ids: Sequence[str]) -> list[str]:
    """Ids as text. One alone is refused: its letters would be taken for ids."""
    if isinstance(ids, str | bytes):
        raise InvalidInput(f"{name} is a list of ids, not a single one: pass [{ids!r:.80}]")
    return [str(one) for one in ids]


def _asked(config: RunnableConfig) -> _Asked:
    where = config.get("configurable", {})
    thread = where.get("thread_id")
    if thread is None or thread == "":
        raise InvalidInput(
            "the config names no thread: pass {'configurable': {'thread_id': ...}} to the graph"
        )
    namespace, id = where.get("checkpoint_ns"), where.get("checkpoint_id")
    if namespace and "\0" in namespace:
        raise InvalidInput("a checkpoint namespace has no NUL character")
    return _Asked(str(thread), namespace, None if not id else str(id))


def _config(thread: str, address: Address) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": address.namespace,
            "checkpoint_id": address.id,
        }
    }


def _tuple(thread: str, found: Found) -> CheckpointTuple:
    record, address = found.record, found.address
    checkpoint: Any = {**record.checkpoint, "channel_values": found.values}
    metadata: Any = record.metadata
    parent = found.parent
    return CheckpointTuple(
        _config(thread, address),
        checkpoint,
        metadata,
        None if parent is None else _config(thread, Address(address.namespace, parent)),
        found.writes,
    )


def _fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in metadata and metadata[name] == value for name, value in wanted.items())


def _id_of(found: CheckpointTuple) -> str:
    return str(found.config["configurable"]["checkpoint_id"])


# How far a graph has run ahead of what is stored of it.
#
# With `durability="async"` LangGraph queues checkpoints without bound. The only thing that it
# asks a checkpointer for at every step, and waits for, is the next version of a channel. So
# there a graph is held up while too many of its steps are not stored yet.


_MOST_KNOWN: Final = 100_000
_MOST_ENDS: Final = 1024
_PATIENCE: Final = 5.0
"""A graph goes on if nothing at all was stored for so many seconds: nobody may be left to do it."""


class _Chain:
    """The versions that one run was given out, and that are not stored yet, the oldest first."""

    __slots__ = ("failed", "is_stored", "versions")

    def __init__(self) -> None:
        self.versions: deque[str] = deque()
        self.is_stored = False
        """Whether something of it was ever put before its end: with `exit` nothing is."""
        self.failed = False
        """Whether a put failed, after which LangGraph makes no further one."""


class Backlog:
    """The versions that were given out, and are not stored yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._chains: OrderedDict[str, _Chain] = OrderedDict()
        """The run of every version."""
        self._ends: OrderedDict[str, int] = OrderedDict()
        """The suffixes of versions that nobody went on from: the next one has the same suffix."""
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self._chains)

    def next_version(self, current: str | int | float | None) -> str:
        """A version that is greater, and that nobody else gives out."""
        try:
            number = 0 if current is None else int(str(current).partition(".")[0])
        except ValueError:
            raise InvalidInput(
                f"a version begins with a whole number, not {current!r:.80}"
            ) from None
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._ends.clear()  # A child and its parent would go on from the same ones.
            suffix = self._ends.pop(str(current), None)
            if suffix is None:
                suffix = random.getrandbits(32)
            version = make_version(number + 1, suffix)
            self._ends[version] = suffix
            if len(self._ends) > _MOST_ENDS:
                self._ends.popitem(last=False)
            chain = self._chains.get(str(current)) or _Chain()
            if len(chain.versions) >= self._most:
                self._waiting += 1
                self._wait_for(chain)
                self._waiting -= 1
            chain.versions.append(version)
            self._chains[version] = chain
            while len(self._chains) > _MOST_KNOWN:
                oldest, of = self._chains.popitem(last=False)
                of.versions.remove(oldest)
        return version

    def _wait_for(self, chain: _Chain) -> None:
        """Wait until a run is not too far ahead."""
        while chain.is_stored and not chain.failed and len(chain.versions) >= self._most:
            if _on_event_loop() or not self._changed.wait(_PATIENCE):
                return

    def begin(self, versions: Mapping[str, str | int | float]) -> str:
        """Say that a checkpoint with new versions is about to be stored; the last of them."""
        mine = max([one for one in versions.values() if isinstance(one, str)], default="")
        with self._lock:
            chain = self._chains.get(mine)
            if chain is not None:
                chain.is_stored = True
        return mine

    def end(self, version: str, failed: bool = False) -> None:
        """Let who waits go on, after a checkpoint was stored or was not."""
        with self._lock:
            chain = self._chains.get(version)
            if chain is None:
                return
            chain.failed |= failed
            # Puts of one run come in order, so all versions up to this one are stored.
            versions = chain.versions
            while versions and versions[0] <= version:
                del self._chains[versions.popleft()]
            if self._waiting:
                self._changed.notify_all()


def _on_event_loop() -> bool:
    """Whether waiting here would stop an event loop, and with it those who store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
