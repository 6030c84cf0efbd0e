"""Typed state in frameworks: detecting the framework, and the base of all adapters."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any, Final, TypedDict

from ropewalk.errors import (
    AmbiguousFrameworkError,
    InvalidInput,
    NoFrameworkDetectedError,
    UnknownField,
)
from ropewalk.state import AgentState, ContentRef, Framework, Runtime, StateField, get_config
from ropewalk.state.content_ref import checkpoint_form, is_checkpoint_form, read_place
from ropewalk.state.externalized import Change, Content, combine, renew, store_changes
from ropewalk.state.fields import Reduce
from ropewalk.state.runtime import framework_of, runtime_for, saying
from ropewalk.state.value_cache import ValueCache
from ropewalk.store import KVStore, Store
from ropewalk.store.forking import freed_after_fork


class Update(dict[str, Any]):
    """Values with references in place of externalized fields, ready for a checkpoint."""


class Hydrated(Mapping[str, Any]):
    """A read-only view of a framework's values that loads externalized ones lazily.

    Loaded values belong to this view. Changing one in place is not an update: nodes return
    updates.
    """

    def __init__(
        self,
        fields: Mapping[str, StateField],
        runtime: Runtime,
        values: Mapping[str, Any],
        cache: ValueCache,
    ) -> None:
        self.runtime = runtime
        self._values = dict(values)
        self._lock = freed_after_fork(threading.RLock())
        self._contents = {
            name: Content(runtime, read_place(name, value), cache)
            for name, value in values.items()
            if name in fields and fields[name].is_externalized and is_reference(value)
        }

    def __getitem__(self, name: str) -> Any:
        content = self._contents.get(name)
        if content is None:
            return self._values[name]
        with self._lock:
            return content.value()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"<Hydrated {', '.join(map(str, self._values))}>"

    def ref(self, name: str) -> ContentRef | None:
        """The reference of a field; None if its value was not one."""
        content = self._contents.get(name)
        return None if content is None else content.ref

    def content(self, name: str) -> Content | None:
        """The content that a later update of a field is based on."""
        with self._lock:
            content = self._contents.get(name)
            return None if content is None else content.next()


class StateAdapter:
    """Integrates a typed state into a framework: schema, reducers, updates and reads.

    `inline_threshold_bytes` applies to everything that goes through this adapter.
    """

    def __init__(
        self,
        state_cls: type[AgentState],
        *,
        backend: Store | KVStore | None = None,
        runtime: Runtime | None = None,
        inline_threshold_bytes: int | None = None,
        framework: Framework | str | None = None,
    ) -> None:
        if not isinstance(state_cls, type) or not issubclass(state_cls, AgentState):
            raise InvalidInput(f"an adapter is for a subclass of AgentState, not {state_cls!r:.80}")
        self.state_cls = state_cls
        self.runtime = runtime_for(runtime, backend, inline_threshold_bytes)
        self.framework = None if framework is None else detect_active_framework(framework)
        self._fields = state_cls.fields()
        self._cache = ValueCache(self.backend)

    @property
    def backend(self) -> Store:
        """The store of the values."""
        return self.runtime.backend

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.state_cls.__qualname__} on {self.backend!r}>"

    def schema(self) -> type:
        """The state as a `TypedDict`, with reducers as annotations."""
        reducers = self.reducers()
        hints = {
            name: Any if field.is_externalized else field.type
            for name, field in self._fields.items()
        }
        annotated = {
            name: Annotated[hint, reducers[name]] if name in reducers else hint
            for name, hint in hints.items()
        }
        made: type = TypedDict(self.state_cls.__name__, annotated, total=False)  # type: ignore[misc]
        return made

    def reducers(self) -> dict[str, Reduce]:
        """The reducers of the fields that declare one."""
        return {
            name: partial(self._reduced, field, field.reducer)
            for name, field in self._fields.items()
            if field.reducer is not None
        }

    def externalize(
        self, values: Mapping[str, Any] | AgentState, *, since: Hydrated | None = None
    ) -> Update:
        """An update for the framework, with externalized values stored and replaced by references.

        With `since`, the values that the update is based on, only the differences are stored.
        References pass through. Raises `UnknownField`, `InlineSizeExceeded` and `NotStorable`,
        with nothing stored.
        """
        if isinstance(values, Update):
            return values
        if isinstance(values, AgentState):
            values = {name: _given(values, name) for name in values}
        update, changes = Update(), dict[str, Change]()
        for name, value in values.items():
            field = self.field(name)
            if field.is_externalized:
                changes[name] = self._changed(name, value, since)
                update[name] = None  # Preserves the order.
            else:
                update[name] = self.runtime.inline_copy(name, value)
        store_changes(self.runtime, list(changes.values()))
        for name, change in changes.items():
            assert change.content.ref is not None
            update[name] = checkpoint_form(change.content.ref)
        return update

    def hydrate(self, values: Mapping[str, Any]) -> Hydrated:
        """A view of the framework's values that loads them lazily."""
        return Hydrated(self._fields, self.runtime, values, self._cache)

    def renew(self, values: Mapping[str, Any]) -> None:
        """Renew the references among a checkpoint's values, where they expire.

        A framework does not call `externalize` for a field that stays unchanged.
        """
        refs = [
            read_place(name, value)
            for name, value in values.items()
            if name in self._fields and self._fields[name].is_externalized and is_reference(value)
        ]
        renew(self.runtime, refs)

    def field(self, name: str) -> StateField:
        """A field of the state; raises `UnknownField`."""
        if name not in self._fields:
            raise UnknownField(
                f"{self.state_cls.__qualname__} has no field {name!r:.80}; it has "
                f"{', '.join(self._fields)}"
            )
        return self._fields[name]

    def _changed(self, name: str, value: Any, since: Hydrated | None) -> Change:
        if is_checkpoint_form(value):
            raise InvalidInput(
                f"{name!r} is a reference as checkpoints have it. Among the values of an update it "
                "could be anybody's text, so it is not followed: hand over a ContentRef, the "
                "state itself, or the value"
            )
        content = None if since is None else since.content(name)
        with saying(name):
            return (content or Content(self.runtime, cache=self._cache)).assigned(value)

    def _reduced(self, field: StateField, reduce: Reduce, left: Any, right: Any) -> Any:
        if not field.is_externalized:
            return self.runtime.inline_copy(field.name, reduce(left, right))
        sides = [
            read_place(field.name, side) if is_reference(side) else side for side in (left, right)
        ]
        return checkpoint_form(combine(self.runtime, reduce, *sides))


def auto_adapt(
    state_cls: type[AgentState],
    explicit: Framework | str | None = None,
    *,
    backend: Store | KVStore | None = None,
    runtime: Runtime | None = None,
    inline_threshold_bytes: int | None = None,
) -> StateAdapter:
    """The adapter of a state for the framework in use; see `detect_active_framework`.

    It is the framework's own adapter if Ropewalk has one, and `StateAdapter` otherwise.
    """
    framework = detect_active_framework(explicit)
    return _adapter_class(framework)(
        state_cls,
        backend=backend,
        runtime=runtime,
        inline_threshold_bytes=inline_threshold_bytes,
        framework=framework,
    )


def _adapter_class(framework: Framework) -> type[StateAdapter]:
    """`Adapter` of the framework's module, if there is such a module."""
    name = f"ropewalk.adapters.{framework.value.replace('-', '_')}"
    if find_spec(name) is None:
        return StateAdapter
    found: type[StateAdapter] = import_module(name).Adapter
    return found


def is_reference(value: object) -> bool:
    """Whether a value is a reference, as an object or in its checkpoint form."""
    return isinstance(value, ContentRef) or is_checkpoint_form(value)


def _given(state: AgentState, name: str) -> Any:
    return state.ref(name) if state.fields()[name].is_externalized else state[name]


# Detecting the framework without importing any.


_MODULES: Final[dict[Framework, tuple[str, ...]]] = {
    Framework.LANGGRAPH: ("langgraph",),
    Framework.LLAMAINDEX: ("llama_index",),
    Framework.AUTOGEN: ("autogen_agentchat", "autogen_core", "autogen"),
    Framework.CREWAI: ("crewai",),
    Framework.DEEPAGENTS: ("deepagents",),
    Framework.OPENAI_AGENTS: ("agents",),
}
"""Modules that a program using the framework has imported."""

_MARKS: Final[dict[str, tuple[str, ...]]] = {"agents": ("Agent", "Runner")}
"""Attributes that these modules must have, where others use the same module names."""

_BUILT_ON: Final = {Framework.DEEPAGENTS: Framework.LANGGRAPH}
"""A framework wins over the one it is built on."""


def detect_active_framework(explicit: Framework | str | None = None) -> Framework:
    """The framework in use: named explicitly, configured, or imported, in this order.

    Imports nothing. Raises `NoFrameworkDetectedError`, `AmbiguousFrameworkError` if several are
    imported, and `InvalidInput` for an unknown name.
    """
    chosen = get_config().framework if explicit is None else explicit
    if chosen is not None:
        return framework_of(chosen)
    found = [one for one in Framework if any(map(_is_imported, _MODULES[one]))]
    below = {_BUILT_ON[one] for one in found if one in _BUILT_ON}
    found = [one for one in found if one not in below]
    if not found:
        raise NoFrameworkDetectedError(
            "no framework is imported. Import one first, or name it: "
            f"explicit={Framework.LANGGRAPH.value!r}, or configure(framework=...). Known are "
            f"{', '.join(Framework)}."
        )
    if len(found) > 1:
        raise AmbiguousFrameworkError(
            f"several frameworks are imported: {', '.join(found)}. Say which is meant: "
            f"explicit={found[0].value!r}, or configure(framework={found[0].value!r})."
        )
    return found[0]


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType):
        return False
    return all(mark in vars(module) for mark in _MARKS.get(name, ()))
