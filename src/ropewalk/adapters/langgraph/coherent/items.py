"""Items as artifacts: reads, puts, searches and edits, compared with what agents saw."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph.coherent.item_index import ItemIndex, Prepared
from ropewalk.adapters.langgraph.coherent.lineage import Forgotten, Lineage
from ropewalk.adapters.langgraph.coherent.naming import Convention, Scope
from ropewalk.adapters.langgraph.store.items import StoreItem, StoreSearchItem, to_datetime
from ropewalk.adapters.langgraph.store.operations import (
    Search,
    known_prefix,
    matches,
    page_of_namespaces,
)
from ropewalk.coherence import Artifact, CoherenceCore
from ropewalk.coherence.protocol import Base, Version
from ropewalk.coherence.write_path import EDIT_SECONDS, Proposal
from ropewalk.errors import NotFound, VersionConflict
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import ABSENT

_STRIPES: Final = 64
_FIELDS: Final = ("value", "key", "namespace", "created_at", "updated_at", "version", "degraded")


class Asked(NamedTuple):
    """An item that an agent requests: its artifact, and the agent's name for it."""

    agent: str
    artifact: str
    namespace: Scope
    key: str


class Put(NamedTuple):
    """A requested put."""

    asked: Asked
    value: dict[str, Any] | None
    """None deletes the item."""
    if_version: int | None = None
    """Put only if this is the current version; 0 if there must be no item."""
    index: Any = None
    ttl: float | None = None


class _Lazy:
    """Decodes its value on first access: most values that are read are only passed on."""

    __slots__ = ()

    _artifact: Artifact | None
    _value: Any

    @property
    def value(self) -> Any:
        """The value; the caller may modify it."""
        if self._artifact is not None:
            self._value, self._artifact = self._artifact.value, None  # type: ignore[misc]
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value, self._artifact = value, None  # type: ignore[misc]

    def __getstate__(self) -> Any:
        names = (*_FIELDS, "score") if isinstance(self, StoreSearchItem) else _FIELDS
        return None, {name: getattr(self, name) for name in names}


class CoherentItem(_Lazy, StoreItem):
    """An item of a `CoherentStore`."""

    __slots__ = ("_artifact", "_value")


class CoherentSearchItem(_Lazy, StoreSearchItem):
    """An item found by a search in a `CoherentStore`."""

    __slots__ = ("_artifact", "_value")


_new = CoherentItem.__new__


class Items:
    """Reads and writes items as artifacts. Safe to share between threads."""

    def __init__(
        self, core: CoherenceCore, convention: Convention, index: ItemIndex | None
    ) -> None:
        self._core, self._convention, self._index = core, convention, index
        self._read = core.read
        self._lineage: Lineage[Version] = Lineage(
            attrgetter("number"), nodes=convention.names_nodes
        )
        # An agent that writes an item from two threads is not in conflict with itself.
        self._turns = [freed_after_fork(threading.Lock()) for _ in range(_STRIPES)]

    # Reading.

    def get(
        self, agent: str, artifact: str, namespace: Scope, key: str, refresh: bool | None = None
    ) -> StoreItem | None:
        """An item as the agent's strategy allows it; None if there is none."""
        try:
            found = self._read(agent, artifact)
        except NotFound:
            self._lineage.found_nothing(agent, artifact)
            return None
        if found.origin.note is not None and self._is_over(found, refresh):
            self._lineage.found_nothing(agent, artifact)
            return None
        self._lineage.got(agent, artifact, found.origin)
        return _item(found, namespace, key)

    def cached(self, agent: str, artifact: str, namespace: Scope, key: str) -> StoreItem | None:
        """An item that can be served from the cache; None if it must be fetched."""
        found = self._core.cached(agent, artifact)
        if found is None or found.origin.note is not None:
            return None
        self._lineage.got(agent, artifact, found.origin)
        return _item(found, namespace, key)

    def get_all(self, asked: Sequence[Asked], refresh: bool | None) -> list[StoreItem | None]:
        """Several items for one agent, as one snapshot."""
        if len(asked) == 1:
            return [self.get(*asked[0], refresh)]
        found = self._present(asked[0].agent, [one.artifact for one in asked])
        for name, one in list(found.items()):
            if one.origin.note is not None and self._is_over(one, refresh):
                del found[name]
        items: list[StoreItem | None] = []
        for agent, name, namespace, key in asked:
            artifact = found.get(name)
            if artifact is None:
                self._lineage.found_nothing(agent, name)
                items.append(None)
            else:
                self._lineage.got(agent, name, artifact.origin)
                # Each gets a value of its own, even if one is requested twice.
                items.append(_item(artifact.again(), namespace, key))
        return items

    def _present(self, agent: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """Those of several artifacts that exist, as one snapshot."""
        names = list(dict.fromkeys(artifacts))
        while names:
            try:
                return self._core.snapshot(agent, names)
            except NotFound:
                if len(names) == 1:
                    break
                names = list(self._core.newest(names))
        return {}

    def search(self, asked: Scope, search: Search) -> list[StoreSearchItem]:
        """The items below a prefix that match, most recently put first, or most similar first."""
        op, index = search.op, self._index
        agent, prefix = self._convention.range(asked)
        where = search.test if op.filter else None
        scores: dict[str, float] = {}
        if index is None:
            found = self._core.search(agent, prefix, where=where, limit=op.limit, offset=op.offset)
        elif not op.query or op.limit == 0 or not index.has_vectors:
            found = self._core.search(
                agent, prefix, where=where, limit=op.limit, offset=op.offset, among=index.is_living
            )
        else:
            found = self._similar(agent, asked, search, scores)
        for one in found:
            self._lineage.got(agent, one.name, one.origin)
        if index is not None and index.refreshes(op.refresh_ttl):
            index.refresh({one.name: one.origin for one in found})
        return [
            _hit(one, *self._convention.shown(asked, one.name, one.agent), scores.get(one.name))
            for one in found
        ]

    def _similar(
        self, agent: str, asked: Scope, search: Search, scores: dict[str, float]
    ) -> list[Artifact]:
        """The matching items, most similar first, followed by those without vectors."""
        op, core, index = search.op, self._core, self._index
        assert index is not None
        _, prefix = self._convention.range(asked)
        versions = core.versions(prefix)
        ranking = index.ranked(self._convention.scope(asked), op.query, versions)
        wanted, found = op.offset + op.limit, []
        for some in ranking:
            hits = core.search(
                agent,
                prefix,
                where=search.test,
                among=lambda name, _: name in some,  # noqa: B023
            )
            scores.update(some)
            order = {name: place for place, name in enumerate(some)}
            found += sorted(hits, key=lambda one: order[one.name])
            if len(found) >= wanted:
                return found[op.offset : wanted]
        page = found[op.offset :]
        page += core.search(
            agent,
            prefix,
            where=search.test,
            limit=op.limit - len(page),
            offset=max(op.offset - len(found), 0),
            among=lambda name, version: name not in scores and index.is_living(name, version),
        )
        return page

    def namespaces(self, op: Any) -> list[Scope]:
        """The namespaces."""
        conditions = op.match_conditions or ()
        asked = known_prefix(conditions)
        _, prefix = self._convention.range(asked)
        listed = {
            self._convention.shown(asked, name, version.agent)[0]
            for name, version in self._core.versions(prefix).items()
            if self._index is None or self._index.is_living(name, version)
        }
        matching = (one for one in listed if all(matches(each, one) for each in conditions))
        return page_of_namespaces(matching, op)

    def _is_over(self, found: Artifact, refresh: bool | None) -> bool:
        """Whether an item has expired; if not, a read may renew it."""
        index = self._index
        if index is None:
            return False
        if index.refreshes(refresh) and not found.degraded:
            index.refresh({found.name: found.origin})
        return not index.is_living(found.name, found.origin)

    # Writing.

    def put(self, put: Put) -> None:
        """Write or delete one item."""
        if put.value is None or self._index is not None:
            self.put_all(put.asked.agent, [put])
            return
        agent, artifact, _, _ = put.asked
        self._expect_no_end([put])
        try:
            with self._turns[hash(artifact) % _STRIPES]:
                base, if_version = None, put.if_version
                if if_version is None:
                    base, if_version = self._base(agent, artifact)
                if base is None:
                    made = self._core.write(agent, artifact, put.value, if_version=if_version)
                else:
                    proposal = Proposal(put.value, base=base)
                    made = self._core.propose(agent, {artifact: proposal})[artifact]
                self._made(agent, made, put.value)
        except VersionConflict as conflict:
            raise _of_item(conflict, put.asked) from conflict

    def put_all(self, agent: str, puts: Sequence[Put]) -> None:
        """Write and delete several items of one agent, all or nothing."""
        self._expect_no_end(puts)
        by_name = {one.asked.artifact: one for one in puts}
        ready: Mapping[str, Prepared] = {}
        if self._index is not None:
            ready = self._index.prepared(
                {name: one for name, one in by_name.items() if one.value is not None}
            )
        try:
            with ExitStack() as stack:
                for stripe in sorted({hash(one) % _STRIPES for one in by_name}):
                    stack.enter_context(self._turns[stripe])
                self._clear(agent, by_name)
                made = self._written(agent, by_name, ready)
                for artifact, put in by_name.items():
                    if put.value is None:
                        self._lineage.deleted(agent, artifact)
                    else:
                        self._made(agent, made[artifact], put.value)
        except VersionConflict as conflict:
            raise _of_item(conflict, by_name[conflict.key].asked) from conflict
        if self._index is not None:
            self._index.enter({name: made[name] for name in made}, ready)

    def _written(
        self, agent: str, puts: Mapping[str, Put], ready: Mapping[str, Prepared]
    ) -> dict[str, Artifact]:
        if len(puts) == 1:
            ((artifact, put),) = puts.items()
            if put.value is None:
                self._core.delete(agent, artifact, if_version=put.if_version)
                return {}
        return self._core.propose(
            agent,
            {name: self._proposal(agent, name, put, ready.get(name)) for name, put in puts.items()},
        )

    def _proposal(self, agent: str, artifact: str, put: Put, ready: Prepared | None) -> Proposal:
        if put.value is None:
            return Proposal(ABSENT, put.if_version)  # A deletion has no merge base.
        base, if_version = None, put.if_version
        if if_version is None:
            base, if_version = self._base(agent, artifact)
        note = None if ready is None else ready.note
        return Proposal(put.value, if_version, base, note=note)

    def edit(
        self,
        asked: Asked,
        change: Callable[[Any], Any],
        default: Any,
        timeout: float = EDIT_SECONDS,
    ) -> StoreItem:
        """Change an item with a function of its value, without losing concurrent changes."""
        agent, artifact, namespace, key = asked
        note = None if self._index is None else self._index.default_note()
        self._clear(agent, [artifact])
        try:
            made = self._core.edit(
                agent, artifact, change, default=default, timeout=timeout, note=note
            )
        except VersionConflict as conflict:
            raise _of_item(conflict, asked) from conflict
        self._lineage.got(agent, artifact, made.origin)
        if self._index is not None:
            put = Put(asked, made.content.fresh())
            ready = self._index.prepared({artifact: put}, note)
            self._index.enter({artifact: made}, ready)
        return _item(made, namespace, key)

    def sweep(self) -> int:
        """Delete expired items; returns how many."""
        index = self._index
        assert index is not None
        over = [
            (name, version)
            for name, version in self._core.versions().items()
            if not index.is_living(name, version)
        ]
        deleted = 0
        for name, version in over:
            with suppress(VersionConflict):  # It was put again.
                deleted += self._core.delete(index.sweeper, name, if_version=version.number)
        index.sweep()
        return deleted

    def forget(self, agent: str) -> None:
        """Discard the merge bases of an agent."""
        self._lineage.forget(agent)

    def _expect_no_end(self, puts: Sequence[Put]) -> None:
        ends = self._index is not None and self._index.ttl_config is not None
        if not ends and any(one.ttl is not None for one in puts):
            # The error that LangGraph's own stores raise.
            raise NotImplementedError("items of this store have no end. Open it with ttl=")

    def _clear(self, agent: str, artifacts: Iterable[str]) -> None:
        """Delete expired items, so that puts are not compared with them."""
        index = self._index
        if index is None or index.ttl_config is None or self._core.is_degraded:
            return
        for name, version in self._core.newest(artifacts).items():
            if not index.is_living(name, version):
                with suppress(VersionConflict):
                    self._core.delete(agent, name, if_version=version.number)
                    self._lineage.deleted(agent, name)

    # Lineage.

    def _base(self, agent: str, artifact: str) -> tuple[Base | None, int | None]:
        """The merge base of a put, or else the version it must find."""
        try:
            last = self._lineage.last(agent, artifact)
        except Forgotten:
            return None, 0  # An item can be created without another read only if there is none.
        return None if last is None else Base(last.seen, last.is_read), None

    def _made(self, agent: str, made: Artifact, value: Any) -> None:
        """Record that an agent's put became a version.

        A put returns nothing, so its agent does not know a merged result, and bases its next put
        on this one.
        """
        version = self._core.not_seen(agent, made, value) if made.merged else made.origin
        self._lineage.put(agent, made.name, version)


def by_agent(puts: Iterable[Put]) -> dict[str, list[Put]]:
    """Group puts by agent; of several puts of one artifact, the last counts."""
    last: dict[str, Put] = {}
    for put in puts:
        last.pop(put.asked.artifact, None)
        last[put.asked.artifact] = put
    grouped: dict[str, list[Put]] = {}
    for put in last.values():
        grouped.setdefault(put.asked.agent, []).append(put)
    return grouped


def _of_item(conflict: VersionConflict, asked: Asked) -> VersionConflict:
    """Convert a conflict about an artifact to one about its item."""
    return VersionConflict(
        asked.namespace, asked.key, conflict.expected, conflict.actual, conflict.conflicts
    )


def _item(found: Artifact, namespace: Scope, key: str) -> CoherentItem:
    # Every read goes through here, so the slow constructor is bypassed.
    item = _new(CoherentItem)
    item._artifact, item.version, item.degraded = found, found.version, found.degraded
    item.namespace, item.key = namespace, key
    item.created_at = item.updated_at = to_datetime(found.time)
    if found.created != found.time:
        item.created_at = to_datetime(found.created)
    return item


def _hit(found: Artifact, namespace: Scope, key: str, score: float | None) -> CoherentSearchItem:
    made = CoherentSearchItem(
        value=None,
        version=found.version,
        degraded=found.degraded,
        namespace=namespace,
        key=key,
        created_at=to_datetime(found.created),
        updated_at=to_datetime(found.time),
        score=score,
    )
    made._artifact = found
    return made
