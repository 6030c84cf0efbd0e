"""Typed state for frameworks that keep their own checkpoints."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from ropewalk.errors import FieldNotSet, InvalidInput, MissingContent, UnknownField
from ropewalk.state.content_ref import ContentRef, checkpoint_form, read_place
from ropewalk.state.externalized import Change, Content, renew, store_changes
from ropewalk.state.fields import UNSET, Declared, StateField, declare
from ropewalk.state.runtime import Runtime, runtime_for, saying
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork

if TYPE_CHECKING:
    from ropewalk.store import KVStore, Store

S = TypeVar("S", bound="AgentState")

_SHOWN = 60  # How many characters of a value the repr of a state shows.


class AgentState:
    """A state with declared fields; checkpoints hold references to the `Externalized[T]` ones.

    Assigning an externalized field stores the value and keeps a reference; the first read loads
    it. Assigned values are copied. Values that are read belong to this state: they may be modified
    in place, and `save` and `to_checkpoint_dict` store the changes. `backend` is the store; the
    default is that of `runtime` or `get_config()`.

    Raises `UnknownField` for an undeclared name, `InlineSizeExceeded` for an inline value over the
    threshold, and `NotStorable`. Nothing is assigned then.
    """

    __slots__ = ("__weakref__", "_contents", "_inline", "_lock", "_runtime")

    _declared: ClassVar[Declared]
    _all_fields: ClassVar[dict[str, StateField]]
    _inline: dict[str, Any]
    _contents: dict[str, Content]
    _runtime: Runtime
    _lock: threading.RLock

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls._declared = declare(cls, _RESERVED)

    def __init__(
        self,
        /,
        *,
        backend: Store | KVStore | None = None,
        runtime: Runtime | None = None,
        **values: Any,
    ) -> None:
        self._begin(runtime_for(runtime, backend))
        self._check_names(values)
        self.assign(**self._defaults(values), **values)

    # Declared fields.

    @classmethod
    def fields(cls) -> dict[str, StateField]:
        """The fields by name, in declaration order, inherited ones first.

        Raises `InvalidInput` for a field whose annotation cannot be resolved.
        """
        if "_all_fields" not in vars(cls):
            found: dict[str, StateField] = {}
            for base in reversed(cls.__mro__):
                if "_declared" in vars(base):
                    found |= vars(base)["_declared"].fields()
            cls._all_fields = found
        return dict(cls._all_fields)

    @classmethod
    def inline_fields(cls) -> dict[str, StateField]:
        """The fields kept in checkpoints."""
        return {name: one for name, one in cls.fields().items() if not one.is_externalized}

    @classmethod
    def externalized_fields(cls) -> dict[str, StateField]:
        """The fields that checkpoints hold as references."""
        return {name: one for name, one in cls.fields().items() if one.is_externalized}

    @property
    def runtime(self) -> Runtime:
        """The store and limits of this state."""
        return self._runtime

    # Reading and assigning.

    def hydrate(self, name: str) -> Any:
        """The value of a field; the same as reading the attribute."""
        return self[name]

    def assign(self, /, **values: Any) -> None:
        """Assign several fields in one commit of the store: all of them, or none."""
        self._check_names(values)
        with self._lock:
            inline, contents = self._planned(values)
            store_changes(self._runtime, [change for _, change in contents.values()])
            self._inline.update(inline)
            self._contents.update({name: content for name, (content, _) in contents.items()})

    def ref(self, name: str) -> ContentRef:
        """The reference of an externalized field, after storing in-place changes."""
        self._check_names([name])
        if not self.fields()[name].is_externalized:
            raise InvalidInput(f"field {name!r} is inline: it has no reference")
        with self._lock:
            self._expect_set(name)
            self.save()
            found = self._contents[name].ref
        assert found is not None
        return found

    def save(self) -> list[str]:
        """Store externalized values modified in place; returns the names of their fields."""
        with self._lock:
            found: dict[str, Change | None] = {}
            for name, content in self._contents.items():
                with saying(name):
                    found[name] = content.changed()
            changes = {name: change for name, change in found.items() if change is not None}
            store_changes(self._runtime, list(changes.values()))
            return list(changes)

    def unload(self) -> None:
        """Save, then drop loaded values from memory; the next read loads them again."""
        with self._lock:
            self.save()
            for content in self._contents.values():
                content.forget()

    # Checkpoints.

    def to_checkpoint_dict(self) -> dict[str, Any]:
        """What a framework's checkpoint keeps: copies of inline values, and references.

        Saves first, so in-place changes are included. References are JSON-compatible dicts with at
        least half of their lifetime left. Raises `InlineSizeExceeded` if an inline value has grown
        too large in place.
        """
        with self._lock:
            inline = {
                name: self._runtime.inline_copy(name, value) for name, value in self._inline.items()
            }
            self.save()
            refs = {name: content.ref for name, content in self._contents.items() if content.ref}
            renew(self._runtime, refs.values())
            places = {name: checkpoint_form(ref) for name, ref in refs.items()}
            return {name: (inline | places)[name] for name in self}

    @classmethod
    def from_checkpoint_dict(
        cls: type[S],
        checkpoint: Mapping[str, Any],
        *,
        backend: Store | KVStore | None = None,
        runtime: Runtime | None = None,
    ) -> S:
        """Restore a state from a checkpoint. Externalized values are loaded on first read.

        Fields missing from the checkpoint get their defaults, if any.
        """
        if not isinstance(checkpoint, Mapping):
            raise InvalidInput(f"a checkpoint is a dict, not {checkpoint!r:.80}")
        state = cls.__new__(cls)
        state._begin(runtime_for(runtime, backend))
        state._check_names(checkpoint)
        for name, value in checkpoint.items():
            if cls._all_fields[name].is_externalized:
                state._contents[name] = Content(state._runtime, read_place(name, value))
            else:
                state._inline[name] = state._runtime.inline_copy(name, value)
        state.assign(**state._defaults(checkpoint))
        return state

    def to_hydrated_dict(self) -> dict[str, Any]:
        """Copies of the values of all assigned fields."""
        with self._lock:
            return {name: self._copy_of(name) for name in self}

    # As a mapping of the assigned fields.

    def keys(self) -> list[str]:
        """The names of all assigned fields, so that `dict(state)` and `{**state}` work."""
        return list(self)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field; the default if it is unset or undeclared."""
        with self._lock:
            if name not in self:
                return default
            return self[name]

    def __getitem__(self, name: str) -> Any:
        with self._lock:
            self._expect_set(name)
            content = self._contents.get(name)
            return self._inline[name] if content is None else content.value()

    def __setitem__(self, name: str, value: Any) -> None:
        self._check_names([name])
        self.assign(**{name: value})

    def __delitem__(self, name: str) -> None:
        with self._lock:
            self._expect_set(name)
            self._inline.pop(name, None)
            self._contents.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._inline or name in self._contents

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter([name for name in self.fields() if name in self])

    def __len__(self) -> int:
        return len(self._inline) + len(self._contents)

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:  # Hidden from type checkers, which would allow assigning any name.

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and name not in self._all_fields:
                found = inspect.getattr_static(type(self), name, None)
                if not isinstance(found, property):
                    self._check_names([name])
            object.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:
            # Reached for unset fields too, because their error is an AttributeError.
            if not name.startswith("_") and not hasattr(type(self), name):
                self._check_names([name])
            return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        with self._lock:
            mine = self._looks()
        with other._lock:
            return mine == other._looks()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        with self._lock:
            shown = [f"{name}={self._shown(name)}" for name in self]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __copy__(self: S) -> S:
        return type(self).from_checkpoint_dict(self.to_checkpoint_dict(), runtime=self._runtime)

    def __deepcopy__(self: S, memo: object) -> S:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a state cannot be pickled, because its store cannot: keep to_checkpoint_dict() "
            "and make it anew with from_checkpoint_dict()"
        )

    # Internals.

    @property
    def _threads(self) -> Threads:
        return self._runtime.backend._threads

    def _begin(self, runtime: Runtime) -> None:
        self.fields()  # Unresolvable annotations raise here at the latest.
        self._runtime, self._lock = runtime, freed_after_fork(threading.RLock())
        self._inline, self._contents = {}, {}

    def _defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: field.default
            for name, field in self._all_fields.items()
            if field.default is not UNSET and name not in given
        }

    def _check_names(self, names: Any) -> None:
        known = self._all_fields
        unknown = [name for name in names if name not in known]
        if unknown:
            shown = ", ".join(f"{name!r:.80}" for name in unknown)
            raise UnknownField(
                f"{type(self).__qualname__} has no field {shown}; it has {', '.join(known)}"
            )

    def _expect_set(self, name: str) -> None:
        if name in self:
            return
        self._check_names([name])
        raise FieldNotSet(f"field {name!r} of {type(self).__qualname__} has no value yet")

    def _planned(
        self, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, tuple[Content, Change]]]:
        """What an assignment would do: inline copies, and contents with their changes."""
        inline: dict[str, Any] = {}
        contents: dict[str, tuple[Content, Change]] = {}
        for name, value in values.items():
            if self._all_fields[name].is_externalized:
                content = self._contents.get(name) or Content(self._runtime)
                with saying(name):
                    contents[name] = content, content.assigned(value)
            elif value is not self._inline.get(name, UNSET):
                inline[name] = self._runtime.inline_copy(name, value)
            else:  # Assigning the state's own object, perhaps modified in place: keep its identity.
                self._runtime.inline_copy(name, value)
        return inline, contents

    def _copy_of(self, name: str) -> Any:
        content = self._contents.get(name)
        if content is not None:
            return content.copy()
        return self._runtime.inline_copy(name, self._inline[name])

    def _looks(self) -> dict[str, bytes]:
        """The encodings of fields, for comparison by value."""
        encode = self._runtime.encode
        inline = {name: encode(value) for name, value in self._inline.items()}
        return inline | {name: content.root() for name, content in self._contents.items()}

    def _shown(self, name: str) -> str:
        content = self._contents.get(name)
        if content is None:
            text = repr(self._inline[name])
            return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        assert content.ref is not None
        loaded = ", loaded" if content.is_hydrated else ""
        ref = content.ref
        return f"<{ref.type_name} of {ref.size_bytes} bytes, {ref.hash[:12]}{loaded}>"

    # The asynchronous interface.

    ahydrate = twin(hydrate)
    aassign = twin(assign)
    aref = twin(ref)
    asave = twin(save)
    aunload = twin(unload)
    ato_checkpoint_dict = twin(to_checkpoint_dict)
    ato_hydrated_dict = twin(to_hydrated_dict)


_RESERVED = frozenset({"backend", "runtime", *(one for one in dir(AgentState) if one[0] != "_")})
"""Names no field can have: methods and keyword arguments of the constructor."""


def validate_state(state: AgentState, *, require_content: bool = False) -> None:
    """Raise unless the state can be checkpointed now, with its own threshold.

    With `require_content`, also raise if the content of a reference is gone. In-place changes are
    stored.
    """
    if not isinstance(state, AgentState):
        raise InvalidInput(f"validate_state takes an AgentState, not {state!r:.80}")
    checkpoint = state.to_checkpoint_dict()
    validate_checkpoint(
        type(state), checkpoint, runtime=state.runtime, require_content=require_content
    )


def validate_checkpoint(
    state_cls: type[AgentState],
    checkpoint: Mapping[str, Any],
    *,
    backend: Store | None = None,
    runtime: Runtime | None = None,
    inline_threshold_bytes: int | None = None,
    require_content: bool = False,
) -> None:
    """Raise unless a checkpoint fits this class: known names, small values, valid references.

    The threshold is that of the given runtime, or of `get_config()`. Raises `UnknownField`,
    `InlineSizeExceeded`, `InvalidInput`, `UnresolvedReferenceError`, and with `require_content`
    `MissingContent`.
    """
    limits = runtime_for(runtime, backend, inline_threshold_bytes)
    if not isinstance(checkpoint, Mapping):
        raise InvalidInput(f"a checkpoint is a dict, not {checkpoint!r:.80}")
    fields = state_cls.fields()
    for name, value in checkpoint.items():
        if name not in fields:
            raise UnknownField(
                f"{state_cls.__qualname__} has no field {name!r:.80}; it has {', '.join(fields)}"
            )
        if fields[name].is_externalized:
            _validate_reference(read_place(name, value), limits, require_content)
        else:
            limits.inline_copy(name, value)


def _validate_reference(ref: ContentRef, limits: Runtime, require_content: bool) -> None:
    ref.expect_answer(limits.backend)
    if require_content and limits.backend.missing([ref.id]):
        raise MissingContent(ref.hash, [ref.id])
