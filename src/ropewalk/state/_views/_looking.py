"""What a view looks at: a state in memory, or one in a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ropewalk.codec import Path
from ropewalk.errors import InvalidInput, NotStorable
from ropewalk.history.merging import reading_too
from ropewalk.state._live import Live
from ropewalk.state._versioned._checkout import Checkout
from ropewalk.state._versioned._namespace import Namespace
from ropewalk.state._versioned._versioned import Versioned
from ropewalk.state._views._nodes import Node, counted, look, mapping, plain_text, with_namespaces
from ropewalk.state._views._stored import Stored, Version, parent_version
from ropewalk.tree.read import nowhere

_NO_COMMITS: Final = "(it keeps no commits; focus='full' shows what it holds)"


class Source(Protocol):
    """A state that is looked at."""

    @property
    def title(self) -> str:
        """What it is, in a few words."""

    def full(self) -> Node:
        """All of it."""

    def recent(self) -> Node:
        """What the last commits changed."""

    def changes(self) -> Node:
        """What is not committed yet; of a checkout, what its commit changed."""

    def at(self, path: Path) -> Node:
        """A part of it; raises `PathNotFound`."""


def source_of(state: Any) -> Source:
    """How to look at a state; raises `InvalidInput`."""
    if isinstance(state, Versioned | Namespace):
        return _handle(state)
    if isinstance(state, Checkout):
        return _past(state)
    if isinstance(state, Mapping):
        return InMemory(state)
    raise InvalidInput(f"view() shows a state, a checkout or a mapping, not {type(state).__name__}")


def _handle(state: Versioned | Namespace) -> Source:
    whole, place = (state, ()) if isinstance(state, Versioned) else (state.state, state.place)
    with whole._lock:
        try:
            draft = whole._handle.draft()
        except NotStorable as error:
            # Something was changed into what cannot be stored; it can still be looked at.
            return InMemory(state, f"(there can be no commit now: {error})")
        read = reading_too(whole._handle._recent.read, draft.edited.objects)
        committed = whole._commit
    at = "nothing yet" if committed is None else committed.short
    title = f"{whole.name} on {whole.branch_name} at {at}"
    now = Version(draft.edited.root, read)
    before = None if committed is None else Version(committed.root, read)
    return Stored(title, whole._history, place, now, before, committed)


def _past(checkout: Checkout) -> Source:
    history, commit = checkout._history, checkout.commit
    read = history.read
    before = parent_version(history, commit)
    title = f"Checkout of {commit.short}"
    return Stored(title, history, checkout.place, Version(commit.root, read), before, commit)


class InMemory:
    """A `Live` state, or any mapping."""

    def __init__(self, state: Mapping[Any, Any], why: str = _NO_COMMITS) -> None:
        self._state, self._why = state, why

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        where = "/".join(self._state.place) if isinstance(self._state, Live) else ""
        kind = type(self._state).__name__ + (f" of {where!r:.80}" if where else "")
        return f"{kind} with {counted(len(self._state), 'key')}"

    def full(self) -> Node:
        """All of it, its namespaces last."""
        return with_namespaces(mapping(self._state, self.title), _namespaces(self._state))

    def recent(self) -> Node:
        """Nothing: there are no commits."""
        return self.changes()

    def changes(self) -> Node:
        """Nothing: there are no commits."""
        return plain_text(self._why)

    def at(self, path: Path) -> Node:
        """A part of it."""
        return look(value_at(self._state, path))


def value_at(value: Any, path: Path, done: int = 0) -> Any:
    """What is at a path of a value in memory; raises `PathNotFound`."""
    for depth in range(done, len(path)):
        step = path[depth]
        try:
            value = _inside(value, step)
        except (LookupError, TypeError, AttributeError) as error:
            raise nowhere(path, depth) from error
    return value


def _inside(value: Any, step: Any) -> Any:
    if isinstance(value, Mapping):
        return value[step]
    if isinstance(value, (set, frozenset)):
        if step in value:
            return step
        raise KeyError(step)
    if isinstance(step, str):
        # A field of an object, as a path in an error or a diff names it.
        if not hasattr(type(value), "__dict__") or str(step).startswith("_"):
            raise KeyError(step)
        return getattr(value, str(step))
    return value[step]


def _namespaces(state: Mapping[Any, Any]) -> list[tuple[str, Node]]:
    if not isinstance(state, Live):
        return []
    found = []
    for name in state.namespaces():
        inner = InMemory(state.namespace(name)).full()
        found.append((f"namespace {name!r:.60}", inner))
    return found
