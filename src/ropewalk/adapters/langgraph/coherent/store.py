"""`CoherentStore`: LangGraph's store for agents that share artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, TypeVar

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    IndexConfig,
    NotProvided,
    PutOp,
    TTLConfig,
)

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.coherent.item_index import ItemIndex
from ropewalk.adapters.langgraph.coherent.items import Asked, Items, Put, by_agent
from ropewalk.adapters.langgraph.coherent.naming import Place, Scope, convention, running_agent
from ropewalk.adapters.langgraph.store.items import StoreItem
from ropewalk.adapters.langgraph.store.operations import (
    as_value,
    check_labels,
    check_root,
    expected_version,
    planned,
)
from ropewalk.adapters.langgraph.store.store import Sweeps
from ropewalk.codec import Classes, Codec
from ropewalk.coherence import CoherenceCore, Grant
from ropewalk.coherence.outages import DegradedWrites, OnError
from ropewalk.coherence.strategies import strategy_for
from ropewalk.coherence.write_path import EDIT_SECONDS, OnConflict, edit_async, expect_change
from ropewalk.errors import InvalidInput
from ropewalk.store import MemoryStore, Store
from ropewalk.store.asynchronous import Closes, Threads, twin
from ropewalk.tree import ABSENT

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ropewalk.coherence import ArtifactChange
    from ropewalk.coherence.history import ArtifactTimeline
    from ropewalk.store import KVStore

_MOST_PLACES: Final = 1 << 16
_THREADS: Final = 8


S = TypeVar("S", bound="CoherentStore")
P = ParamSpec("P")
R = TypeVar("R")


def _twin(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The asynchronous twin of a method; without a thread if everything is in this process."""
    name, on_thread = method.__name__, twin(method)

    @wraps(on_thread)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._is_local:
            made: R = getattr(self, name)(*args, **kwargs)
            return made
        return await on_thread(self, *args, **kwargs)

    return run


class ItemChange(NamedTuple):
    """A new version of an item, as `watch` reports it."""

    namespace: Scope
    key: str
    version: int
    agent: str
    """The agent that put or deleted it."""
    sequence: int
    """Where to resume; items that were put together share it."""
    deleted: bool


class CoherentStore(Sweeps, BaseStore, Closes):
    """A store that agents share, `builder.compile(store=CoherentStore(strategy="lazy"))`.

    The first label of a namespace is the agent, and the others are the scope: what the planner
    puts into `("planner", "shared")` the reviewer gets from `("reviewer", "shared")`. With
    `identity="config"` the agent comes from the run's config instead, and namespaces are used as
    they are.

    No agent reads anything staler than its strategy allows, and no update is lost: a put is
    compared with what the agent last saw, merged with concurrent changes, or refused with
    `VersionConflict`. Items have a `version`.

    `store` holds the artifacts: a Store, a path or URL, or None for memory. `index` enables search
    by similarity, and `ttl` sets how long items live.
    """

    def __init__(  # noqa: PLR0913 - one for each thing to choose
        self,
        strategy: str = "lazy",
        *,
        store: Store | KVStore | str | PathLike[str] | None = None,
        identity: Literal["namespace", "config"] = "namespace",
        on_metric: Any = None,
        telemetry: Any = None,
        on_error: OnError = "strict",
        degraded_writes: DegradedWrites = "keep",
        state_log: Any = None,
        content_audit_log: Any = None,
        crash_recovery: Any = None,
        tick_seconds: float = 1.0,
        bus: Any = None,
        mergers: Any = None,
        on_conflict: OnConflict = "merge",
        types: Iterable[type] = (),
        classes: Classes = "plain",
        name: str = "shared",
        instance_id: str | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        **strategy_parameters: Any,
    ) -> None:
        self._convention = convention(identity)
        if "base" in strategy_parameters:
            raise InvalidInput(
                "base= is gone: CoherentStore keeps the values itself, in store=, a path or URL. "
                "Copy what the other store holds once, as the changelog shows."
            )
        chosen = strategy_for(CoherentStore, strategy, tick_seconds, strategy_parameters)
        is_indexed = index is not None or ttl is not None
        self._is_local = store is None and not is_indexed
        self._own_threads = Threads(_THREADS)
        with ExitStack() as opened:  # If anything below raises, close what was opened.
            opened.callback(self._own_threads.close)
            self._core = CoherenceCore(
                MemoryStore() if store is None and is_indexed else store,
                name=name,
                strategy=chosen,
                tick_seconds=tick_seconds,
                bus=bus,
                mergers=mergers,
                on_conflict=on_conflict,
                crash_recovery=crash_recovery,
                on_error=on_error,
                degraded_writes=degraded_writes,
                state_log=state_log,
                content_audit_log=content_audit_log,
                on_metric=on_metric,
                telemetry=telemetry,
                codec=Codec(GraphTypes(types).registry, classes=classes),
                instance_id=instance_id,
                places=self._convention.named,
            )
            opened.callback(self._core.close)
            self._index: ItemIndex | None = None
            if is_indexed:
                self._index = ItemIndex(self._core, index, ttl)
                opened.callback(self._index.close)
            self._opened = opened.pop_all()
        self._items = Items(self._core, self._convention, self._index)
        self.supports_ttl = ttl is not None
        self.ttl_config = ttl
        self._default_ttl: float | None = (ttl or {}).get("default_ttl")
        self._places: dict[tuple[tuple[str, ...], str], Place] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<CoherentStore of {self._core!r}>"

    @property
    def core(self) -> CoherenceCore:
        """The core with the artifacts: for snapshots of several, for pending writes, and the like.

        The item `plan` of `("planner", "shared")` is its artifact `shared/plan`: see
        `artifact_name`.
        """
        return self._core

    def artifact_name(self, namespace: tuple[str, ...], key: str) -> str:
        """The name of an item in logs, on the command line and in `core`."""
        return self._asked(namespace, key).artifact

    # Lifecycle.

    def close(self) -> None:
        """Stop the background work, and close the store if it was opened here."""
        self._is_closed = True
        self.stop_ttl_sweeper()
        self._opened.close()

    # Items.

    def get(
        self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None
    ) -> StoreItem | None:
        """An item as the agent may see it now; None if there is none."""
        try:
            agent, artifact = self._places[namespace, key]
        except (KeyError, TypeError):
            check_labels(namespace)
            namespace, key = tuple(namespace), str(key)
            agent, artifact = self._place(namespace, key)
        if agent is None:
            agent = running_agent()
        return self._items.get(agent, artifact, namespace, key, refresh_ttl)

    async def aget(
        self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None
    ) -> StoreItem | None:
        """The asynchronous twin of `get`."""
        if self._is_local:
            return self.get(namespace, key, refresh_ttl=refresh_ttl)
        served = None if self._is_closed else self._items.cached(*self._asked(namespace, key))
        if served is not None:
            return served
        return await self._threads.run(partial(self.get, namespace, key, refresh_ttl=refresh_ttl))

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

        It is compared with what the agent last read or put here. If others have written since,
        both changes are merged; if that is impossible, `VersionConflict` is raised and nothing is
        changed. An agent that has not seen the item replaces it.

        With `if_version` it is stored only if that is the item's current version; 0 or None: only
        if there is no such item.
        """
        asked = self._asked(namespace, key)
        if value is not None:
            check_root(asked.namespace)
        minutes = self._default_ttl if ttl is NOT_PROVIDED else ttl
        self._items.put(Put(asked, as_value(value), _expected(if_version), index, minutes))

    aput = _twin(put)

    def delete(
        self,
        namespace: tuple[str, ...],
        key: str,
        *,
        if_version: int | None | NotProvided = NOT_PROVIDED,
    ) -> None:
        """Delete an item if it exists. Its versions continue: see `put`."""
        self._items.put(Put(self._asked(namespace, key), None, _expected(if_version)))

    adelete = _twin(delete)

    def edit(
        self,
        namespace: tuple[str, ...],
        key: str,
        change: Callable[[Any], Any],
        *,
        default: Any = ABSENT,
    ) -> StoreItem:
        """Change an item with a function of its value; returns the result.

        `change` gets the current value, and returns the new one. After a concurrent write, the
        change is merged, or `change` is called again with the new value. A missing item starts
        from `default`; without one, `NotFound` is raised.
        """
        asked = self._to_edit(namespace, key, change)
        return self._items.edit(asked, partial(_edited, change), default)

    async def aedit(
        self,
        namespace: tuple[str, ...],
        key: str,
        change: Callable[[Any], Any],
        *,
        default: Any = ABSENT,
    ) -> StoreItem:
        """The asynchronous twin of `edit`; no thread waits for the holder of the item."""
        asked, items = self._to_edit(namespace, key, change), self._items

        def once(change: Callable[[Any], Any]) -> StoreItem:
            return items.edit(asked, change, default, 0.0)

        return await edit_async(self._threads, once, partial(_edited, change), EDIT_SECONDS)

    def _to_edit(self, namespace: tuple[str, ...], key: str, change: Callable[[Any], Any]) -> Asked:
        expect_change(change)
        asked = self._asked(namespace, key)
        check_root(asked.namespace)
        return asked

    # Batches.

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Execute several operations; returns their results in order.

        Reads see the state before the puts of the batch. Of several puts of one item, the last
        counts. The puts of one agent are all made together, or none of them.
        """
        given = list(ops)
        plan = planned(given, None)  # Everything is validated before anything is done.
        results: list[Any] = [None] * plan.size
        self._get_all(plan.gets, results)
        for number, search in plan.searches.items():
            results[number] = self._items.search(tuple(search.op.namespace_prefix), search)
        for number, op in plan.lists.items():
            results[number] = self._items.namespaces(op)
        puts = [
            Put(self._asked(op.namespace, op.key), as_value(op.value), None, op.index, op.ttl)
            for op in given
            if isinstance(op, PutOp)
        ]
        for agent, own in by_agent(puts).items():
            self._items.put_all(agent, own)
        return results

    abatch = _twin(batch)

    def _get_all(self, gets: Mapping[int, GetOp], results: list[Any]) -> None:
        grouped: dict[tuple[str, bool], dict[int, Asked]] = {}
        for number, op in gets.items():
            asked = self._asked(op.namespace, op.key)
            grouped.setdefault((asked.agent, op.refresh_ttl), {})[number] = asked
        for (_, refresh), own in grouped.items():
            items = self._items.get_all(list(own.values()), refresh)
            for number, item in zip(own, items, strict=True):
                results[number] = item

    # Watching.

    def history(self, namespace: tuple[str, ...], key: str) -> ArtifactTimeline:
        """The versions of an item, as a read-only timeline; raises `NotFound`."""
        return self._core.history(self._asked(namespace, key).artifact)

    def watch(
        self,
        namespace_prefix: tuple[str, ...] = (),
        *,
        after: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[ItemChange]:
        """Yield each new version of the items below a prefix, from any agent.

        Starts now, or after the `sequence` of an earlier change. Ends after `timeout` seconds
        without a change; without a timeout, never.
        """
        asked, prefix = self._watched(namespace_prefix)
        changes = self._core.watch(prefix=prefix, after=after, timeout=timeout)
        return (self._shown(asked, one) for one in changes)

    async def awatch(
        self,
        namespace_prefix: tuple[str, ...] = (),
        *,
        after: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> AsyncIterator[ItemChange]:
        """The asynchronous twin of `watch`; no thread waits."""
        asked, prefix = self._watched(namespace_prefix)
        async for one in self._core.awatch(prefix=prefix, after=after, timeout=timeout):
            yield self._shown(asked, one)

    def _watched(self, namespace_prefix: tuple[str, ...]) -> tuple[Scope, str]:
        """A prefix, and the prefix of the names of artifacts below it."""
        check_labels(namespace_prefix)
        asked = tuple(namespace_prefix)
        return asked, self._convention.range(asked).prefix

    def _shown(self, asked: Scope, one: ArtifactChange) -> ItemChange:
        place = self._convention.shown(asked, one.artifact, one.agent)
        return ItemChange(*place, one.version, one.agent, one.sequence, one.deleted)

    ahistory = twin(history)

    # Agents.

    def hold(self, namespace: tuple[str, ...], key: str, *, timeout: float | None = None) -> Grant:
        """Let only this agent write an item: `with store.hold(...)`.

        Meanwhile, puts of others raise `ArtifactHeld`, and their edits wait.
        """
        asked = self._asked(namespace, key)
        return self._core.hold(asked.agent, asked.artifact, timeout=timeout)

    async def ahold(
        self,
        namespace: tuple[str, ...],
        key: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> Grant:
        """The asynchronous twin of `hold`; no thread waits for it."""
        asked = self._asked(namespace, key)
        return await self._core.ahold(asked.agent, asked.artifact, timeout=timeout)

    def heartbeat(self, agent_name: str, now_tick: int | None = None) -> None:
        """Signal that an agent is alive. Everything it does here does so too."""
        self._core.heartbeat(agent_name, now_tick)

    def recover(self, agent_name: str, now_tick: int | None = None) -> None:
        """Reset an agent after a restart: nothing it cached before is served again."""
        self._core.recover(agent_name, now_tick)
        self._items.forget(agent_name)

    @property
    def is_degraded(self) -> bool:
        """Whether the engine is unreachable as of the last attempt."""
        return self._core.is_degraded

    @property
    def degradation_count(self) -> int:
        """How many reads and writes were answered without the engine."""
        return self._core.degradation_count

    def record_to(self, folder: str | PathLike[str]) -> None:
        """From now on, record the run in a folder, for `ropewalk replay`."""
        self._core.record_to(folder)

    aheartbeat = twin(heartbeat)
    arecover = twin(recover)

    # Expiring items.

    def sweep_ttl(self) -> int:
        """Delete expired items; returns how many. Only with `ttl`."""
        self._expect_ttl()
        return self._items.sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """See `RopewalkStore.start_ttl_sweeper`. Only with `ttl`."""
        self._expect_ttl()
        return super().start_ttl_sweeper(sweep_interval_minutes)

    def _expect_ttl(self) -> None:
        if self.ttl_config is None:
            raise NotImplementedError("items of this store have no end. Open it with ttl=")

    # Internals.

    @property
    def _threads(self) -> Threads:
        return self._own_threads

    def _asked(self, namespace: tuple[str, ...], key: str) -> Asked:
        try:
            agent, artifact = self._places[namespace, key]
        except (KeyError, TypeError):
            check_labels(namespace)
            namespace, key = tuple(namespace), str(key)
            agent, artifact = self._place(namespace, key)
        return Asked(running_agent() if agent is None else agent, artifact, namespace, key)

    def _place(self, namespace: tuple[str, ...], key: str) -> Place:
        place = self._convention.place(namespace, key)
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[namespace, key] = place
        return place


def _edited(change: Callable[[Any], Any], value: Any) -> dict[str, Any]:
    """The result of a function of a value, which it may have modified in place instead."""
    changed = change(value)
    made = as_value(value if changed is None else changed)
    if made is None:
        raise InvalidInput("the value of an item is a dict, and an edit made nothing of it")
    return made


def _expected(if_version: int | None | NotProvided) -> int | None:
    return None if isinstance(if_version, NotProvided) else expected_version(if_version)
