"""Typed state in the store of a workflow's context, whose large values are kept outside of it."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from ropewalk.adapters.typed_state import Hydrated, StateAdapter
from ropewalk.state import AgentState, Framework, Runtime
from ropewalk.state.fields import UNSET
from ropewalk.store import KVStore, Store

_MISSING: Final = object()
"""Marks a field that is not set."""


_locks: Final[WeakKeyDictionary[StateStore, asyncio.Lock]] = WeakKeyDictionary()
"""For who sets values in a `ctx.store`: storing one takes a while, and part of a value is set in
what was there before."""


class StateStore(Protocol):
    """What is used of `ctx.store`, whose default in `get` means that there is none."""

    async def get(self, path: str, default: Any = ...) -> Any:
        """The value at a path."""

    async def set(self, path: str, value: Any) -> None:
        """Set the value at a path."""


class LlamaIndexAdapter(StateAdapter):
    """Keeps the `Externalized` fields of a typed state out of `ctx.store`, and so of its dumps.

    A value is stored in `backend` when it is set, and `ctx.store` gets a reference to it. Only
    what changed since it was last read or set is stored. `inline_threshold_bytes` is the maximum
    size of an `Inline` field.
    """

    def __init__(
        self,
        state_cls: type[AgentState],
        *,
        backend: Store | KVStore | None = None,
        runtime: Runtime | None = None,
        inline_threshold_bytes: int | None = None,
        framework: Framework | str | None = Framework.LLAMAINDEX,
    ) -> None:
        super().__init__(
            state_cls,
            backend=backend,
            runtime=runtime,
            inline_threshold_bytes=inline_threshold_bytes,
            framework=framework,
        )

    def context_store(self, store: StateStore) -> ContextStore:
        """The fields of the state in `ctx.store` of a workflow, by their names."""
        return ContextStore(self, store)


class ContextStore:
    """A typed state in `ctx.store`: reading a field loads it, setting it stores it.

    Paths are those of `ctx.store`, as in `docs.0.title`, and begin with the name of a field. What
    `get` returns is the caller's own: changing it in place changes nothing until it is set.
    """

    def __init__(self, adapter: LlamaIndexAdapter, store: StateStore) -> None:
        self._adapter, self._store = adapter, store
        self._read: dict[str, Hydrated] = {}
        """What was read last of each field; the next value of it is compared with that."""

    async def get(self, path: str, default: Any = ...) -> Any:
        """The value at a path; raises `ValueError`, as `ctx.store`, if there is none."""
        name, _, rest = path.partition(".")
        value = await self._field(name)
        if value is _MISSING:
            return await self._store.get(name, default)
        if not rest:
            return value
        from workflows.context.state_store import get_by_path

        return get_by_path(value, rest, default)

    async def set(self, path: str, value: Any) -> None:
        """Set the value at a path.

        Raises `UnknownField`, `InlineSizeExceeded` and `NotStorable`, with nothing set.
        """
        adapter, (name, _, rest) = self._adapter, path.partition(".")
        async with _locks.setdefault(self._store, asyncio.Lock()):
            if rest:
                from workflows.context.state_store import set_by_path

                whole = await self._field(name)
                whole = {} if whole is _MISSING else whole
                set_by_path(whole, rest, value)
                value = whole
            since = self._read.get(name)
            update = await adapter.backend._threads.run(
                lambda: adapter.externalize({name: value}, since=since)
            )
            await self._store.set(name, update[name])

    async def to_checkpoint_dict(self) -> dict[str, Any]:
        """The fields that are set, with a reference in place of each externalized value.

        `from_checkpoint_dict` of the state's class reads it. Its references have at least half of
        their lifetime left.
        """
        adapter = self._adapter
        held = {name: await self._store.get(name, _MISSING) for name in adapter.state_cls.fields()}
        given = {name: value for name, value in held.items() if value is not _MISSING}
        await adapter.backend._threads.run(lambda: adapter.renew(given))
        return given

    async def _field(self, name: str) -> Any:
        """The value of a field, or its default."""
        field = self._adapter.field(name)
        held = await self._store.get(name, _MISSING)
        if held is _MISSING:
            if field.default is UNSET:
                return _MISSING
            return self._adapter.runtime.inline_copy(name, field.default)
        read = self._adapter.hydrate({name: held})
        self._read[name] = read
        if read.ref(name) is None:
            return deepcopy(held)
        return await self._adapter.backend._threads.run(lambda: read[name])
