"""Typed state in frameworks: which one is in use, and what every adapter does with a state."""

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
from ropewalk.store import KVStore, Store
from ropewalk.store.forking import freed_after_fork


class Update(dict[str, Any]):
    """Values with references in the places of externalized fields, ready for a checkpoint."""


class Hydrated(Mapping[str, Any]):
    """A read-only view of a framework's values that loads an externalized one when it is read.

    What is loaded is this view's own. A change in it is no update: a node returns those.
    """

    def __init__(
        self, fields: Mapping[str, StateField], runtime: Runtime, values: Mapping[str, Any]
    ) -> None:
        self.runtime = runtime
        self._values = dict(values)
        self._lock = freed_after_fork(threading.RLock())
        self._contents = {
            name: Content(runtime, read_place(name, value), passing=True)
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
        """The reference of a field; None if its value was no reference."""
        content = self._contents.get(name)
        return None if content is None else content.ref

    def content(self, name: str) -> Content | None:
        """What a later update of a field goes on from."""
        with self._lock:
            content = self._contents.get(name)
            return None if content is None else content.next()


class StateAdapter:
    """Brings a typed state into a framework: its schema, its reducers, updates and reads.

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

    @property
    def backend(self) -> Store:
        """The store that values go to."""
        return self.runtime.backend

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.state_cls.__qualname__} on {self.backend!r}>"

    def schema(self) -> type:
        """The state as a `TypedDict`, with reducers as annotations where there are any."""
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
        """How two updates of a field become one, for the fields that say so."""
        return {
            name: partial(self._reduced, field, field.reducer)
            for name, field in self._fields.items()
            if field.reducer is not None
        }

    def externalize(
        self, values: Mapping[str, Any] | AgentState, *, since: Hydrated | None = None
    ) -> Update:
        """An update for the framework: externalized values are stored, and references stand
        in their places.

        With `since`, what the values were made from, only what changed since is stored.
        What was externalized already stays as it is. Raises `UnknownField`,
        `InlineSizeExceeded` and `NotStorable`, with nothing stored.
        """
        if isinstance(values, Update):
            return values
        if isinstance(values, AgentState):
            values = {name: _given(values, name) for name in values}
        update, changes = Update(), dict[str, Change]()
        for name, value in values.items():
            field = self._field(name)
            if field.is_externalized:
                changes[name] = self._changed(name, value, since)
                update[name] = None  # Keeps the order.
            else:
                update[name] = self.runtime.inline_copy(name, value)
        store_changes(self.runtime, list(changes.values()))
        for name, change in changes.items():
            assert change.content.ref is not None
            update[name] = checkpoint_form(change.content.ref)
        return update

    def hydrate(self, values: Mapping[str, Any]) -> Hydrated:
        """A view of the framework's values that loads what is read, when it is read."""
        return Hydrated(self._fields, self.runtime, values)

    def renew(self, values: Mapping[str, Any]) -> None:
        """Give the references among a checkpoint's values more time, where a limit is set.

        A framework that keeps a field from step to step calls no `externalize` for it.
        """
        refs = [
            read_place(name, value)
            for name, value in values.items()
            if name in self._fields and self._fields[name].is_externalized and is_reference(value)
        ]
        renew(self.runtime, refs)

    def _field(self, name: str) -> StateField:
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
            return (content or Content(self.runtime, passing=True)).assigned(value)

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

    It is the framework's own where Ropewalk has one, and else `StateAdapter`.
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
    """Whether a value is a reference, as such or as it stands in a checkpoint."""
    return isinstance(value, ContentRef) or is_checkpoint_form(value)


def _given(state: AgentState, name: str) -> Any:
    return state.ref(name) if state.fields()[name].is_externalized else state[name]


# Which framework a program uses, seen without importing any.


_MODULES: Final[dict[Framework, tuple[str, ...]]] = {
    Framework.LANGGRAPH: ("langgraph",),
    Framework.LLAMAINDEX: ("llama_index",),
    Framework.AUTOGEN: ("autogen_agentchat", "autogen_core", "autogen"),
    Framework.CREWAI: ("crewai",),
    Framework.DEEPAGENTS: ("deepagents",),
    Framework.OPENAI_AGENTS: ("agents",),
}
"""What a program has imported that uses a framework."""

_MARKS: Final[dict[str, tuple[str, ...]]] = {"agents": ("Agent", "Runner")}
"""What modules must have to count, whose names others may use too."""

_BUILT_ON: Final = {Framework.DEEPAGENTS: Framework.LANGGRAPH}
"""A framework that is built on another wins over it."""


def detect_active_framework(explicit: Framework | str | None = None) -> Framework:
    """The framework in use: the one that is named, else configured, else imported.

    Imports nothing. Raises `NoFrameworkDetectedError`, `AmbiguousFrameworkError` if
    several are imported, and `InvalidInput` for a name that is not known.
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
