"""Items whose values are artifacts, kept by the coherence layer itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from operator import attrgetter
from typing import Any, Final

from ropewalk.adapters.langgraph._coherent_contents import Asked, Put
from ropewalk.adapters.langgraph._coherent_identity import Convention
from ropewalk.adapters.langgraph._coherent_lines import Forgotten, Lines
from ropewalk.adapters.langgraph._coherent_looking import present, writers
from ropewalk.adapters.langgraph._coherent_names import Scope
from ropewalk.adapters.langgraph.store.items import StoreItem, StoreSearchItem, to_datetime
from ropewalk.adapters.langgraph.store.operations import Search, matches, page_of_namespaces
from ropewalk.coherence import Artifact, CoherenceCore
from ropewalk.coherence.artifact import Content
from ropewalk.coherence.protocol import Base, Version
from ropewalk.coherence.write_path import EDIT_SECONDS, PendingVersion
from ropewalk.errors import NotFound, VersionConflict
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import ABSENT

_STRIPES: Final = 64
_new = StoreItem.__new__


class Direct:
    """Reads and writes items as artifacts. Safe to share between threads."""

    def __init__(self, core: CoherenceCore, convention: Convention, is_local: bool) -> None:
        self._core, self._convention, self.is_local = core, convention, is_local
        self._read, self._write = core.read, core.write
        self._lines: Lines[Version] = Lines(attrgetter("number"), nodes=convention.names_nodes)
        # An agent that writes an item from two threads is not in conflict with itself.
        self._turns = [freed_after_fork(threading.Lock()) for _ in range(_STRIPES)]

    def get(
        self, agent: str, artifact: str, namespace: Scope, key: str, refresh: bool | None = None
    ) -> StoreItem | None:
        """An item as an agent may see it; None if there is none."""
        try:
            found = self._read(agent, artifact)
        except NotFound:
            self._lines.found_nothing(agent, artifact)
            return None
        self._lines.got(agent, artifact, found._version)
        return _item(found, namespace, key)

    def cached(self, agent: str, artifact: str, namespace: Scope, key: str) -> StoreItem | None:
        """An item that may be served without asking anybody; None if one has to ask."""
        if self._core.is_degraded:
            return None
        found = self._core._reading.cached(agent, artifact)
        if found is None:
            return None
        grants = self._core._grants
        if grants.held:
            grants.touch(agent)
        self._lines.got(agent, artifact, found._version)
        return _item(found, namespace, key)

    def get_all(self, asked: Sequence[Asked], refresh: bool | None) -> list[StoreItem | None]:
        """Several items of one agent, all as they were at one moment."""
        if len(asked) == 1:
            return [self.get(*asked[0])]
        found = present(self._core, asked[0].agent, [one.artifact for one in asked])
        given: set[str] = set()
        items: list[StoreItem | None] = []
        for one in asked:
            artifact = found.get(one.artifact)
            self._saw(one.agent, one.artifact, artifact)
            item = None if artifact is None else StoreItem(**_fields(artifact, *one[2:]))
            if item is not None and one.artifact in given:
                item.value = deepcopy(item.value)  # Each has a value of their own.
            given.add(one.artifact)
            items.append(item)
        return items

    def put(self, put: Put) -> None:
        """Write or delete one item."""
        agent, artifact, _, _ = put.asked
        if put.ttl is not None:
            raise _no_end()
        try:
            with self._turns[hash(artifact) % _STRIPES]:
                if put.value is None:
                    self._core.delete(agent, artifact, if_version=put.if_version)
                    self._lines.deleted(agent, artifact)
                else:
                    self._put(agent, artifact, put.value, put.if_version)
        except VersionConflict as conflict:
            raise _told(conflict, put.asked) from conflict

    def _put(self, agent: str, artifact: str, value: Any, if_version: int | None) -> None:
        base = None
        if if_version is None:
            base, if_version = self._base(agent, artifact)
        if base is None:
            made = self._write(agent, artifact, value, if_version=if_version)
        else:
            made = self._core._publish(agent, {artifact: value}, {}, {artifact: base})[artifact]
        self._made(agent, made, value)

    def put_all(self, agent: str, puts: Sequence[Put]) -> None:
        """Write and delete several items of one agent, all or none."""
        if any(one.ttl is not None for one in puts):
            raise _no_end()
        asked = {one.asked.artifact: one.asked for one in puts}
        values = {one.asked.artifact: ABSENT if one.value is None else one.value for one in puts}
        try:
            with ExitStack() as stack:
                for stripe in sorted({hash(one) % _STRIPES for one in asked}):
                    stack.enter_context(self._turns[stripe])
                made = self._core._publish(agent, values, *self._bases(agent, values))
                for artifact, value in values.items():
                    if value is ABSENT:
                        self._lines.deleted(agent, artifact)
                    else:
                        self._made(agent, made[artifact], value)
        except VersionConflict as conflict:
            raise _told(conflict, asked[conflict.key]) from conflict

    def search(self, asked: Scope, search: Search) -> list[StoreSearchItem]:
        """The items below a prefix that pass, the latest put first."""
        op = search.op
        agent, prefix = self._convention.range(asked)
        where = search.test if op.filter else None
        found = self._core.search(agent, prefix, where=where, limit=op.limit, offset=op.offset)
        for one in found:
            self._lines.got(agent, one.name, one._version)
        return [
            StoreSearchItem(
                **_fields(one, *self._convention.shown(asked, one.name, one.agent)), score=None
            )
            for one in found
        ]

    def namespaces(self, op: Any) -> list[Scope]:
        """Which namespaces there are."""
        conditions = op.match_conditions or ()
        asked = self._convention.asked(conditions)
        _, prefix = self._convention.range(asked)
        listed = {
            self._convention.shown(asked, name, writer)[0]
            for name, writer in writers(self._core, prefix).items()
        }
        matching = (one for one in listed if all(matches(each, one) for each in conditions))
        return page_of_namespaces(matching, op)

    def forget(self, agent: str) -> None:
        """Compare nothing with what an agent has seen so far."""
        self._lines.forget(agent)

    def edit(
        self,
        asked: Asked,
        change: Callable[[Any], Any],
        default: Any,
        timeout: float = EDIT_SECONDS,
    ) -> StoreItem:
        """Change an item by a function of its value, without losing what others do."""
        try:
            made = self._core.edit(
                asked.agent, asked.artifact, change, default=default, timeout=timeout
            )
        except VersionConflict as conflict:
            raise _told(conflict, asked) from conflict
        self._lines.got(asked.agent, asked.artifact, made._version)
        return StoreItem(**_fields(made, asked.namespace, asked.key))

    # What lines of work have seen.

    def _saw(self, agent: str, artifact: str, found: Artifact | None) -> None:
        if found is None:
            self._lines.found_nothing(agent, artifact)
        else:
            self._lines.got(agent, artifact, found._version)

    def _base(self, agent: str, artifact: str) -> tuple[Base | None, int | None]:
        """What a value is compared with, or else the version that it must find."""
        try:
            last = self._lines.last(agent, artifact)
        except Forgotten:
            return None, 0  # Only what is not there can be put without another look.
        return None if last is None else Base(last.seen, last.is_read), None

    def _bases(
        self, agent: str, values: Mapping[str, Any]
    ) -> tuple[dict[str, int], dict[str, Base]]:
        """The versions that values must find, and what they are compared with.

        A deletion is compared with nothing.
        """
        written = [name for name, value in values.items() if value is not ABSENT]
        found = {name: self._base(agent, name) for name in written}
        return (
            {name: number for name, (_, number) in found.items() if number is not None},
            {name: base for name, (base, _) in found.items() if base is not None},
        )

    def _made(self, agent: str, made: Artifact, value: Any) -> None:
        """An agent's put became a version.

        A put gives nothing back. So of what was merged in its agent knows nothing, and what it
        puts next is made from what it put now.
        """
        version = made._version
        if made.merged:
            content = Content.of(value, self._core._codec)
            version = PendingVersion.of(made.version, made.agent, made.time, content)
            self._core._directory.put_blindly(agent, made.name, made._version, version)
        self._lines.put(agent, made.name, version)


def _told(conflict: VersionConflict, asked: Asked) -> VersionConflict:
    """A conflict about an artifact, as one about the item that it is."""
    return VersionConflict(
        asked.namespace, asked.key, conflict.expected, conflict.actual, conflict.conflicts
    )


def _no_end() -> NotImplementedError:
    # The error that LangGraph's own stores raise.
    return NotImplementedError(
        "items of this store have no end. Open it with ttl=, or wrap a store whose items may "
        "end with base=."
    )


def _item(found: Artifact, namespace: Scope, key: str) -> StoreItem:
    # Every microsecond here is one of each read, so the constructor is passed over.
    item = _new(StoreItem)
    item.value, item.version, item.degraded = found.value, found.version, found.degraded
    item.namespace, item.key = namespace, key
    item.created_at = item.updated_at = to_datetime(found.time)
    if found.created != found.time:
        item.created_at = to_datetime(found.created)
    return item


def _fields(found: Artifact, namespace: Scope, key: str) -> dict[str, Any]:
    return {
        "value": found.value,
        "version": found.version,
        "degraded": found.degraded,
        "namespace": namespace,
        "key": key,
        "created_at": to_datetime(found.created),
        "updated_at": to_datetime(found.time),
    }
