"""`CoherenceCore`: many agents, shared artifacts, no stale reads, no lost updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from uuid import uuid4

from ropewalk.codec import Classes, Codec
from ropewalk.codec._given import codec_of
from ropewalk.coherence._authorities._authority import Authority
from ropewalk.coherence._authorities._local import LocalAuthority
from ropewalk.coherence._authorities._stored import StoredAuthority
from ropewalk.coherence._buses._bus import Bus
from ropewalk.coherence._client import Client
from ropewalk.coherence._content import Contents
from ropewalk.coherence._faces._degraded import Degraded
from ropewalk.coherence._faces._holders import Holders
from ropewalk.coherence._faces._onlookers import Onlookers
from ropewalk.coherence._faces._readers import Readers
from ropewalk.coherence._faces._writers import Writers
from ropewalk.coherence._forking import tell_after_fork
from ropewalk.coherence._grants._granting import Granting
from ropewalk.coherence._grants._recovery import CrashRecoveryConfig
from ropewalk.coherence._logs._logs import Logs
from ropewalk.coherence._news import News
from ropewalk.coherence._outages._degrading import DegradedWrites, Degrading, OnError
from ropewalk.coherence._outages._reconciling import PATIENCE
from ropewalk.coherence._protocol import Directory
from ropewalk.coherence._reading import Reading
from ropewalk.coherence._steady import steady
from ropewalk.coherence._strategies import Bound, Strategy, check_seconds, strategy_for
from ropewalk.coherence._telling import Places, Telling
from ropewalk.coherence._watching import Watching
from ropewalk.coherence._wishes import OnConflict
from ropewalk.coherence._writing import Writing
from ropewalk.errors import InvalidInput
from ropewalk.history.merging import check_mergers
from ropewalk.store import Store
from ropewalk.store._checks import expect
from ropewalk.store._given import store_of
from ropewalk.store._haste import hasty
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.tree import Mergers

if TYPE_CHECKING:
    from ropewalk.store import KVStore

_CONTENT_BYTES: Final = 64 << 20
_LOCAL_THREADS: Final = 16


class CoherenceCore(Readers, Writers, Holders, Onlookers, Degraded):
    """Artifacts that many agents share, each reading and writing under its own name.

    `store` is a Store, a path or URL; all who name the same store and the same `name` share
    their artifacts, in threads, processes and machines. Without a store they are in the memory
    of this process.

    What a read may give is said by the `strategy`: see `build_strategy` for its parameters,
    and `bound` for what it promises. A write is checked against the version that the agent
    saw. If others wrote since, both changes are merged, with `mergers` where both changed the
    same place; else it raises `VersionConflict` with nothing changed. `on_conflict` says
    otherwise.

    Safe to share between threads. Every method that asks the engine has an asynchronous twin:
    `aread` for `read`, and so on.
    """

    def __init__(  # noqa: PLR0913 - one for each thing to choose
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        name: str = "shared",
        strategy: str | Strategy = "lazy",
        tick_seconds: float = 1.0,
        bus: Bus | Literal[False] | None = None,
        mergers: Mergers | None = None,
        on_conflict: OnConflict = "merge",
        crash_recovery: CrashRecoveryConfig | None = None,
        on_error: OnError = "strict",
        degraded_writes: DegradedWrites = "keep",
        state_log: Any = None,
        content_audit_log: Any = None,
        on_metric: Any = None,
        telemetry: Any = None,
        types: Iterable[type] = (),
        classes: Classes | None = None,
        codec: Codec | None = None,
        instance_id: str | None = None,
        clock: Callable[[], float] = steady,
        places: Places | None = None,
        **strategy_parameters: Any,
    ) -> None:
        self.strategy = strategy_for(CoherenceCore, strategy, tick_seconds, strategy_parameters)
        self.tick_seconds = check_seconds(tick_seconds, "tick_seconds")
        _check_choice("on_conflict", on_conflict, OnConflict)
        _check_choice("on_error", on_error, OnError)
        _check_choice("degraded_writes", degraded_writes, DegradedWrites)
        _check_names(name, instance_id)
        recovery = _recovery_of(crash_recovery, self.strategy, self.tick_seconds)
        self._codec = codec_of(codec, types, classes=classes)
        check_mergers(mergers, self._codec)
        self.name, self.instance_id = name, instance_id or uuid4().hex
        self._closed = False
        self._agents = set()
        self._own_threads: Threads | None = None
        self._store: Store | None = None
        self._owns_store = False
        if store is not None:
            self._store, self._owns_store = store_of(store)
        self._authority = _authority_of(self._store, name, self._codec, clock)
        self._directory = Directory(follows=self.strategy.follows)
        logs = Logs(
            state_log,
            content_audit_log,
            on_metric,
            telemetry,
            self.instance_id,
            space=name,
            strategy=self.strategy.name,
            bound_seconds=self.bound.seconds,
            bound_reads=self.bound.reads,
            tick_seconds=self.tick_seconds,
        )
        self._client = Client(
            name,
            self.instance_id,
            self._authority,
            self._directory,
            Contents(_CONTENT_BYTES),
            self.strategy,
            Telling(logs, places),
            self._codec,
            clock,
        )
        self._reads = self._reading = Reading(self._client)
        self._begin_writing(mergers, on_conflict, recovery)
        self._degrading = None
        if on_error == "degrade" and not self._authority.is_local:
            self._degrade(on_conflict, degraded_writes)
        self._news = News(self._client, bus, self.tick_seconds)
        self._reading.hearing, self._reading.follower = self._news.hearing, self._news.follower
        self._watching = Watching(self._authority, self._check_open)
        tell_after_fork(self)

    def _begin_writing(
        self,
        mergers: Mergers | None,
        on_conflict: OnConflict,
        recovery: CrashRecoveryConfig,
    ) -> None:
        self._granting = Granting(
            self._client,
            self._reading,
            recovery,
            tick_seconds=self.tick_seconds,
            threads=self._threads,
            write=self.write,
        )
        self._grants = self._granting.grants
        self._writes = self._writing = Writing(
            self._client, self._reading, self._grants, mergers, on_conflict
        )

    def _degrade(self, on_conflict: OnConflict, writes: DegradedWrites) -> None:
        """Go on while the engine cannot be reached."""
        self._degrading = self._reads = self._writes = Degrading(
            self._client, self._reading, self._writing, on_conflict=on_conflict, writes=writes
        )

    def __repr__(self) -> str:
        where = "memory" if self._store is None else repr(self._store)
        return f"<CoherenceCore {self.name!r} {self.strategy.name!r} in {where}>"

    @property
    def store(self) -> Store | None:
        """The store that the artifacts are in; None if they are in memory only."""
        return self._store

    @property
    def bound(self) -> Bound:
        """How old what is read may be."""
        return self.strategy.bound

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what is to be told and logged is out; whether it was in time."""
        told = self._news.flush(timeout)
        return self._client.telling.logs.flush(timeout) and told

    aflush = twin(flush)

    def close(self) -> None:
        """Tell and log what waits, and let go of what was opened. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as last_first:  # All are let go, whatever one of them raises.
            if self._degrading is not None:
                last_first.enter_context(hasty(PATIENCE))
            if self._owns_store and self._store is not None:
                last_first.callback(self._store.close)
            if self._own_threads is not None:
                last_first.callback(self._own_threads.close)
            last_first.callback(self._client.telling.logs.close)
            last_first.callback(self._news.close)
            last_first.callback(self._grants.close)
            if self._degrading is not None:
                last_first.callback(self._degrading.close)
            last_first.callback(self._watching.wake_all)

    def after_fork(self) -> None:
        """In a child of this process: it is another client from now on."""
        parts = (self._directory, self._client.contents, self._authority, self._news)
        for part in parts:
            part.after_fork()

    @property
    def _threads(self) -> Threads:
        if self._store is not None:
            return self._store._threads
        if self._own_threads is None:
            self._own_threads = Threads(_LOCAL_THREADS)
        return self._own_threads


def _authority_of(
    store: Store | None, name: str, codec: Codec, clock: Callable[[], float]
) -> Authority:
    if store is None:
        return LocalAuthority(name, codec, clock)
    return StoredAuthority(store, name, codec)


def _recovery_of(given: Any, strategy: Strategy, tick_seconds: float) -> CrashRecoveryConfig:
    """What is to be done after crashes, checked."""
    config = CrashRecoveryConfig() if given is None else given
    if not isinstance(config, CrashRecoveryConfig):
        raise InvalidInput(f"crash_recovery is a CrashRecoveryConfig, not {config!r:.80}")
    lease = strategy.bound.seconds if strategy.name == "lease" else None
    config.validate(tick_seconds=tick_seconds, lease_seconds=lease)
    return config


def _check_choice(name: str, given: Any, known: Any) -> None:
    """One of the words of a `Literal`, checked."""
    if given not in get_args(known):
        words = ", ".join(map(repr, get_args(known)))
        raise InvalidInput(f"{name} is one of {words}, not {given!r:.80}")


def _check_names(name: Any, instance_id: Any) -> None:
    expect(isinstance(name, str) and name != "", "name is a text that is not empty", name)
    usable = instance_id is None or (isinstance(instance_id, str) and instance_id != "")
    expect(usable, "instance_id is a text that is not empty", instance_id)
