"""Items whose values another store keeps, while the coherence layer keeps their versions.

The artifact of such an item holds no value, only a digest of it. A put takes the artifact's
grant, writes the other store, and then commits the digest as the new version: so of two
writers one comes after the other, in both places. A reader that finds a value whose digest is
not the committed one looks again until the put is over. What differs then was written by
somebody who does not know of us, or by one who died before the commit: it becomes a version of
its own, which nobody in particular wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, TypeVar

from langgraph.store.base import BaseStore, Item, PutOp

from ropewalk.adapters.langgraph._coherent_contents import Asked, Put
from ropewalk.adapters.langgraph._coherent_identity import NOBODY, Convention
from ropewalk.adapters.langgraph._coherent_keeping import Keeping, Seen
from ropewalk.adapters.langgraph._coherent_looking import Looked, writers
from ropewalk.adapters.langgraph._coherent_names import Scope, artifact_name, split_artifact
from ropewalk.adapters.langgraph._coherent_pairs import Pair, Pairs
from ropewalk.adapters.langgraph._coherent_recording import Given
from ropewalk.adapters.langgraph.store.items import StoreItem, StoreSearchItem, to_datetime
from ropewalk.adapters.langgraph.store.operations import Search, matches, page_of_namespaces
from ropewalk.adapters.langgraph.store.store import RopewalkStore
from ropewalk.codec import Codec
from ropewalk.coherence import CoherenceCore
from ropewalk.coherence.artifact import Content
from ropewalk.coherence.outages import PATIENCE
from ropewalk.coherence.timers import timestamp
from ropewalk.coherence.write_path import EDIT_SECONDS, merge_contents, merge_put
from ropewalk.errors import (
    ArtifactHeld,
    MergeConflict,
    NotFound,
    Unavailable,
    VersionConflict,
)
from ropewalk.history.commits import Backoff
from ropewalk.store.retry import hasty
from ropewalk.tree import ABSENT

T = TypeVar("T")

_HELD: Final = 0.05
"""How many seconds an edit waits before it tries again what others hold."""
_ALL: Final = (1 << 31) - 1


class Resolving:
    """What becomes of a put whose item others have written since."""

    def __init__(self, on_conflict: str, mergers: Any, codec: Codec) -> None:
        self._on_conflict, self._mergers, self._codec = on_conflict, mergers, codec

    def resolved(
        self, seen: Seen, ours: Content, theirs: Content, conflict: VersionConflict
    ) -> tuple[Content, bool]:
        """What is to be put instead, and whether that replaces what others wrote; or raises."""
        base, is_blind = seen.content, self._on_conflict == "merge" and not seen.is_read
        if self._on_conflict == "overwrite" or (is_blind and base is None):
            return ours, True
        if self._on_conflict != "merge" or base is None:
            raise conflict
        if is_blind:
            return merge_put(base, ours, theirs, self._mergers, self._codec)
        try:
            return merge_contents(base, ours, theirs, self._mergers, self._codec), False
        except MergeConflict as error:
            where, key = conflict.namespace, conflict.key
            versions = conflict.expected, conflict.actual
            raise VersionConflict(where, key, *versions, error.conflicts) from error


class OnBase:
    """Reads and writes items of another store. Safe to share between threads."""

    is_local = False

    def __init__(
        self,
        core: CoherenceCore,
        convention: Convention,
        base: BaseStore,
        codec: Codec,
        resolving: Resolving,
    ) -> None:
        self._core, self._convention, self._base, self._codec = core, convention, base, codec
        self._resolving = resolving
        self._keeping = Keeping(core.bound, nodes=convention.names_nodes)
        self._pairs = Pairs(core, convention, base, codec, self._keeping.clock)
        self._grants, self._recorder = self._pairs.grants, self._pairs.recorder
        ends = base.ttl_config if base.supports_ttl else None
        self._default_ttl: float | None = (ends or {}).get("default_ttl")
        # A base on the engine of the versions is away when that is.
        self._is_apart = not (isinstance(base, RopewalkStore) and base.store is core.store)

    def close(self) -> None:
        """Give back what puts have taken."""
        self._grants.close()

    # Reading.

    def get(
        self, agent: str, artifact: str, namespace: Scope, key: str, refresh: bool | None = None
    ) -> StoreItem | None:
        """An item as an agent may see it; None if there is none."""
        self._core._expect_agent(agent)
        began = timestamp()
        given = self._found(agent, artifact, refresh)
        self._recorder.gave(agent, artifact, given, began)
        return _item(given, namespace, key)

    def cached(self, agent: str, artifact: str, namespace: Scope, key: str) -> StoreItem | None:
        """Always None: the other store may have to be asked."""
        return None

    def get_all(self, asked: Sequence[Asked], refresh: bool | None) -> list[StoreItem | None]:
        """Several items of one agent, one after the other."""
        return [self.get(*one, refresh) for one in asked]

    def search(self, asked: Scope, search: Search) -> list[StoreSearchItem]:
        """What the other store finds, with versions."""
        agent, _ = self._convention.range(asked)
        self._core._expect_agent(agent)
        began, moment = timestamp(), self._keeping.clock()
        home = self._convention.home(self._convention.scope(asked))
        (found,) = self._base.batch([search.op._replace(namespace_prefix=home)])
        items = {
            artifact_name(self._convention.scope(one.namespace), one.key): one for one in found
        }
        hits: list[StoreSearchItem] = []
        for artifact, given in self._all_found(agent, items, moment).items():
            self._recorder.gave(agent, artifact, given._replace(source="search"), began)
            place = self._convention.shown(asked, artifact, given.writer)
            hits.append(_hit(given, *place, items[artifact].score))
        return hits

    def namespaces(self, op: Any) -> list[Scope]:
        """The namespaces of the other store, as agents call them."""
        self._core._check_open()
        conditions = op.match_conditions or ()
        asked = self._convention.asked(conditions)
        prefix = self._convention.home(self._convention.scope(asked))
        homes = self._base.list_namespaces(prefix=prefix or None, limit=_ALL)
        listed = self._shown(asked, [self._convention.scope(one) for one in homes])
        matching = (one for one in listed if all(matches(each, one) for each in conditions))
        return page_of_namespaces(matching, op)

    def _shown(self, asked: Scope, scopes: Sequence[Scope]) -> set[Scope]:
        """Scopes as namespaces; what nobody wrote through us is nobody's."""
        wrote: dict[Scope, set[str]] = {one: set() for one in scopes}
        if self._convention.needs_writer(asked):
            for name, writer in writers(self._core, "").items():
                wrote.get(split_artifact(name)[0], set()).add(writer)
        return {
            self._convention.shown(asked, artifact_name(scope, "k"), writer)[0]
            for scope, agents in wrote.items()
            for writer in agents or {NOBODY}
        }

    def _found(self, agent: str, artifact: str, refresh: bool | None) -> Given:
        """An item for an agent, which has then seen it."""
        served = self._with_engine(lambda: self._served(agent, artifact))
        if served is not None:
            return served
        found = self._with_engine(lambda: self._agreed(agent, artifact, refresh))
        given = self._last_known(agent, artifact, refresh) if found is None else found
        self._note(agent, artifact, given.seen)
        return given

    def _all_found(self, agent: str, items: Mapping[str, Item], moment: float) -> dict[str, Given]:
        """Items for an agent, which has then seen them; without what is gone by now."""
        given = self._with_engine(lambda: self._all_agreed(agent, items, moment))
        if given is None:
            given = {name: self._unconfirmed(agent, name, one) for name, one in items.items()}
        for artifact, one in given.items():
            self._note(agent, artifact, one.seen)
        return {artifact: one for artifact, one in given.items() if one.seen is not None}

    def _agreed(self, agent: str, artifact: str, refresh: bool | None) -> Given:
        pair = self._pairs.pair(agent, artifact, refresh)
        return self._pairs.agreed(agent, artifact, pair, self._pairs.waits()).given()

    def _all_agreed(self, agent: str, items: Mapping[str, Item], moment: float) -> dict[str, Given]:
        looked = self._pairs.records.look(agent, list(items)) if items else {}
        waits, given = self._pairs.waits(), {}
        for artifact, item in items.items():
            pair = self._pairs.of(looked[artifact], item, moment)
            given[artifact] = self._pairs.agreed(agent, artifact, pair, waits).given()
        return given

    def _served(self, agent: str, artifact: str) -> Given | None:
        """What the agent has, if its strategy lets it have that once more."""
        seen = self._keeping.serve(agent, artifact)
        if seen is None:
            return None
        try:
            record = self._pairs.records.read(agent, artifact)
        except NotFound:
            return None
        return Given(seen, "cache_hit") if record.version == seen.version else None

    def _note(self, agent: str, artifact: str, seen: Seen | None) -> None:
        if seen is None:
            self._keeping.gone(agent, artifact, put=False)
        else:
            self._keeping.note(agent, artifact, seen)

    # While the engine is away.

    def _with_engine(self, ask: Callable[[], T]) -> T | None:
        """What the engine answers; None if it is away, and one may go on without it."""
        degrading = self._core._degrading
        if degrading is None:
            return ask()
        if degrading.is_active:
            return None
        try:
            with hasty(PATIENCE):
                return ask()
        except Unavailable as error:
            degrading._lose_engine(error)
            return None

    def _last_known(self, agent: str, artifact: str, refresh: bool | None) -> Given:
        """What the other store has, or else what was seen here last; raises `Unavailable`."""
        if self._is_apart:
            try:
                with hasty(0):
                    item = self._pairs.stored(artifact, refresh)
            except Unavailable:
                pass
            else:
                return self._unconfirmed(agent, artifact, item)
        degrading, known = self._core._degrading, self._keeping.known(artifact)
        assert degrading is not None
        if known is None:
            raise degrading._error(artifact)
        degrading._count(agent, artifact)
        return Given(known, degraded=True)

    def _unconfirmed(self, agent: str, artifact: str, item: Item | None) -> Given:
        """What the other store has, with the version that it had when it was last seen so."""
        assert self._core._degrading is not None
        self._core._degrading._count(agent, artifact)
        seen = self._pairs.of(Looked(None, 0), item, self._keeping.clock()).seen()
        known = self._keeping.known(artifact)
        if seen and known and self._pairs.is_same(seen.content, known.content):
            seen = replace(seen, version=known.version)
        return Given(seen, degraded=True, writer=NOBODY)

    # Writing.

    def put(self, put: Put) -> None:
        """Write or delete one item."""
        self._put_all(put.asked.agent, [put])

    def put_all(self, agent: str, puts: Sequence[Put]) -> None:
        """Write and delete several items of one agent, all or none if the other store can."""
        self._put_all(agent, puts)

    def _put_all(self, agent: str, puts: Sequence[Put]) -> dict[str, Seen]:
        """What became of those that were not deleted."""
        self._core._expect_agent(agent)
        self._core._expect_engine("a put")
        self._check_ends(puts)
        with self._grants.granted(agent, [one.asked.artifact for one in puts]):
            there, wanted, merged, replaced = {}, {}, {}, set()
            for one in puts:
                name = one.asked.artifact
                there[name] = self._pairs.settled(agent, name)
                own = None if one.value is None else Content.of(one.value, self._codec)
                wanted[name], replaces = self._checked(agent, one, own, there[name])
                if replaces:
                    replaced.add(name)
                if own is not None and wanted[name] is not own:
                    merged[name] = own
            moment = self._keeping.clock()
            self._base.batch([self._op(one, wanted[one.asked.artifact]) for one in puts])
            made = self._commit(agent, wanted, there, replaced, moment)
            for name, own in merged.items():
                # A put gives nothing back: of what was merged in its agent knows nothing.
                known = replace(made[name], version=there[name].version, content=own)
                self._keeping.note(agent, name, known)
            return made

    def edit(
        self,
        asked: Asked,
        change: Callable[[Any], Any],
        default: Any,
        timeout: float = EDIT_SECONDS,
    ) -> StoreItem:
        """Change an item by a function of its value, without losing what others do."""
        agent, artifact, namespace, key = asked
        self._core._expect_agent(agent)
        until, backoff = time.monotonic() + timeout, Backoff()
        while True:
            item = _item(self._found(agent, artifact, None), namespace, key)
            if item is None and default is ABSENT:
                raise NotFound(f"there is no item {key!r:.80} in {namespace!r:.200}")
            value = change(deepcopy(default) if item is None else item.value)
            version = 0 if item is None else item.version
            try:
                made = self._put_all(agent, [Put(asked, value, version, None, self._default_ttl)])
                return self._edited(made[artifact], asked)
            except (VersionConflict, ArtifactHeld) as error:
                # Others were faster, or hold it. A function that writes the item itself is in
                # its own way, each time.
                if time.monotonic() >= until:
                    raise
                if isinstance(error, ArtifactHeld):
                    time.sleep(_HELD)
            backoff.wait()

    def _edited(self, made: Seen, asked: Asked) -> StoreItem:
        """What an edit made, with the times that the other store gave it; its agent has it now."""
        item = self._pairs.stored(asked.artifact, False)
        there = self._pairs.of(Looked(None, 0), item, made.moment)
        if item is not None and self._pairs.is_same(there.content, made.content):
            times = item.created_at, item.updated_at
            made = replace(made, created_at=times[0], updated_at=times[1], is_read=True)
            self._keeping.note(asked.agent, asked.artifact, made)
        found = _item(Given(made), asked.namespace, asked.key)
        assert found is not None
        return found

    def forget(self, agent: str) -> None:
        """Serve nothing to an agent that it has seen so far, and end the puts that it left."""
        self._keeping.forget(agent)
        self._grants.recover(agent)

    def _check_ends(self, puts: Sequence[Put]) -> None:
        if not self._base.supports_ttl and any(one.ttl is not None for one in puts):
            # The error that LangGraph's own stores raise.
            raise NotImplementedError(
                f"items of the base, which is of {type(self._base).__name__}, have no end. Put "
                "them without a ttl, or wrap a store that supports it."
            )

    def _op(self, put: Put, content: Content | None) -> PutOp:
        scope, key = split_artifact(put.asked.artifact)
        value = None if content is None else content.fresh()
        return PutOp(self._convention.home(scope), key, value, index=put.index, ttl=put.ttl)

    def _checked(
        self, agent: str, put: Put, own: Content | None, there: Pair
    ) -> tuple[Content | None, bool]:
        """What is to be written, now that one knows what is there; and whether it replaces that."""
        if put.if_version is not None:
            if put.if_version != there.version:
                where, key = put.asked.namespace, put.asked.key
                raise VersionConflict(where, key, put.if_version, there.version)
            return own, False
        seen = self._keeping.last(agent, put.asked.artifact)
        if own is None or there.content is None:
            return own, False
        if seen is None or seen.version == there.version:
            return own, seen is None
        versions = seen.version, there.version
        conflict = VersionConflict(put.asked.namespace, put.asked.key, *versions)
        return self._resolving.resolved(seen, own, there.content, conflict)

    def _commit(
        self,
        agent: str,
        wanted: Mapping[str, Content | None],
        there: Mapping[str, Pair],
        replaced: Set[str],
        moment: float,
    ) -> dict[str, Seen]:
        """Make what was written the newest versions, all at one moment; those that hold values."""
        contents: dict[str, Content | None] = {
            name: None if one is None else self._pairs.kept(name, one)
            for name, one in wanted.items()
            if one is not None or there[name].version
        }
        versions = {name: there[name].version for name in contents}
        written = self._pairs.write(agent, contents, versions, replaced)
        made: dict[str, Seen] = {}
        for name in wanted:
            record = written.get(name)
            if record is None:
                self._keeping.gone(agent, name, put=True)
                continue
            times = to_datetime(record.created), to_datetime(record.time)
            made[name] = Seen(record.version, contents[name], *times, moment, is_read=False)
            self._keeping.note(agent, name, made[name])
        return made


def _item(given: Given, namespace: Scope, key: str) -> StoreItem | None:
    seen = given.seen
    return None if seen is None else StoreItem(**_fields(seen, given, namespace, key))


def _hit(given: Given, namespace: Scope, key: str, score: float | None) -> StoreSearchItem:
    assert given.seen is not None
    return StoreSearchItem(**_fields(given.seen, given, namespace, key), score=score)


def _fields(seen: Seen, given: Given, namespace: Scope, key: str) -> dict[str, Any]:
    assert seen.content is not None
    return {
        "version": seen.version,
        "value": seen.content.fresh(),
        "degraded": given.degraded,
        "namespace": namespace,
        "key": key,
        "created_at": seen.created_at,
        "updated_at": seen.updated_at,
    }
