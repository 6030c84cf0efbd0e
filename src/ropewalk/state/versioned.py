"""A mapping that remembers: every commit is a version, and only what changed is stored."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from itertools import chain, islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ropewalk.codec import Classes, Codec
from ropewalk.codec.codec import codec_of
from ropewalk.errors import (
    Conflict,
    InvalidInput,
    InvalidName,
    NotFound,
    NotStorable,
    PathNotFound,
    RopewalkError,
)
from ropewalk.history import MAIN, At, Commit, History, StepFields
from ropewalk.history.merge import check_mergers, removed
from ropewalk.state.entries import NAMESPACES, Place, inside
from ropewalk.state.live import LONGEST_NAME, Recorded, State
from ropewalk.state.working_copy import WorkingCopy
from ropewalk.store import Store, space_name, split_name
from ropewalk.store import open as open_store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of
from ropewalk.tree import Change, Map, Mergers

if TYPE_CHECKING:
    from ropewalk.store import KVStore

_entered: Final[ContextVar[frozenset[object]]] = ContextVar(
    "ropewalk_transactions", default=frozenset()
)

_OTHERS: Final = (
    "another task of this event loop is in a transaction of this state. Give each task a handle "
    "of its own: state.session()"
)
_BEGINNING: Final = re.compile(r"[0-9a-f]{6,63}")
V = TypeVar("V", bound="Versioned")
TENANT: Final = "states"


class Transactions:
    """The open transactions of one handle, nested in each other.

    A lock serializes threads. Tasks of one event loop share a thread, so membership in a
    transaction is tracked by context, which tasks and threads started inside inherit.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._mark: object | None = None

    @property
    def are_open(self) -> bool:
        """Whether any transaction is open."""
        return self._depth > 0

    def are_own(self) -> bool:
        """Whether the caller is inside of them."""
        return self._mark is not None and self._mark in _entered.get()

    def enter(self) -> None:
        """Begin one; raises `InvalidInput` while another task is in one."""
        if self._depth and not self.are_own():
            raise InvalidInput(f"a transaction cannot begin here: {_OTHERS}")
        if self._mark is None:
            self._mark = object()
            _entered.set(_entered.get() | {self._mark})
        self._depth += 1

    def leave(self) -> bool:
        """End one; returns whether it was the outermost."""
        self._depth -= 1
        if self._depth:
            return False
        _entered.set(_entered.get() - {self._mark})
        self._mark = None
        return True

    def refuse_own(self, verb: str) -> None:
        """Raise `InvalidInput` inside of them. Checked before taking the lock, which may block."""
        if self.are_own():
            raise InvalidInput(
                f"{verb}() has no place in a transaction, which is committed when its block ends"
            )

    def refuse_others(self, verb: str) -> None:
        """Raise `InvalidInput` if another task of this thread is in one."""
        if self._depth:
            raise InvalidInput(f"{verb}() cannot be done now: {_OTHERS}")


class Checkout(Mapping[Any, Any]):
    """A read-only view of one commit of a state.

    Each read returns a new object that the caller owns.
    """

    def __init__(self, history: History, commit: Commit, place: Place = ()) -> None:
        self._history = history
        self.commit = commit
        """The commit that is looked at."""
        self.place = place
        """The names of the namespaces from the top to here."""
        found: Map | None = Map(commit.root, history.read, history.codec)
        for key in (key for name in place for key in (NAMESPACES, name)):
            found = None if found is None else found.inner(key)
        self._map: Mapping[Any, Any] = {} if found is None else found

    def __repr__(self) -> str:
        at = f" {'/'.join(self.place)!r}" if self.place else ""
        return f"<Checkout{at} at {self.commit.short}>"

    @property
    def commit_hash(self) -> str:
        """The hash of the commit, in hex."""
        return self.commit.id.hex()

    @property
    def metadata(self) -> Any:
        """The value of `commit(metadata=...)`; None if there was none."""
        return self._history.metadata(self.commit)

    def __getitem__(self, key: Any) -> Any:
        if key == NAMESPACES:
            raise PathNotFound(f"the state has no key {key!r}")
        return self._map[key]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default if the key is absent."""
        return self[key] if key in self else default  # noqa: SIM401 - that is what this is

    def __contains__(self, key: object) -> bool:
        return key != NAMESPACES and key in self._map

    def __iter__(self) -> Iterator[Any]:
        return (key for key in self._map if key != NAMESPACES)

    def __len__(self) -> int:
        return len(self._map) - (NAMESPACES in self._map)

    def namespace(self, name: str) -> Checkout:
        """A namespace as of the commit; empty if there was none."""
        return Checkout(self._history, self.commit, place_of(self.place, name))

    def namespaces(self) -> list[str]:
        """The names of the namespaces that were not empty, sorted."""
        names = self._map.inner(NAMESPACES) if isinstance(self._map, Map) else None
        return sorted(name for name in names or () if self.namespace(name)._is_used())

    def _is_used(self) -> bool:
        return len(self) > 0 or bool(self.namespaces())

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events up to this commit, newest first."""
        return islice(recorded(self._history, self.commit), limit)


def recorded(history: History, start: Commit | None) -> Iterator[Recorded]:
    """The events of a commit and of all its ancestors, newest first."""
    for commit in () if start is None else history.ancestors(start):
        if commit.events is None:
            continue
        before = commit.parents[0].hex() if commit.parents else None
        for record in reversed(history.events(commit)):
            yield Recorded(record, before, commit.id.hex())


def resolve(history: History, at: At) -> Commit:
    """Resolve the name of a commit; a hash prefix matches the ancestors of branches."""
    try:
        return history.resolve(at)
    except NotFound:
        if not isinstance(at, str) or not _BEGINNING.fullmatch(at):
            raise
        heads = set(history.branches().values())
        known = {one.id: one for head in heads for one in history.ancestors(head)}
        found = [one for id, one in known.items() if id.hex().startswith(at)]
        if not found:
            raise
        if len(found) > 1:
            raise InvalidInput(
                f"{at!r} is the beginning of {len(found)} hashes: give more digits"
            ) from None
        return found[0]


class _Part(State):
    """The mapping at one place of a working copy: a state, or a namespace of it."""

    place: Place = ()
    """The names of the namespaces from the top to here."""
    _lock: threading.RLock
    _working_copy: WorkingCopy

    def __getitem__(self, key: Any) -> Any:
        with self._lock:
            return self._working_copy.cached.get(self.place, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._lock:
            self._working_copy.cached.set(self.place, key, value)

    def __delitem__(self, key: Any) -> None:
        with self._lock:
            self._working_copy.cached.remove(self.place, key)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return self._working_copy.cached.has(self.place, key)

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            cached = self._working_copy.cached
            keys = cached.keys(self.place)
        return (cached.key_of(encoded) for encoded in keys)

    def __len__(self) -> int:
        with self._lock:
            return self._working_copy.cached.count(self.place)

    def clear(self) -> None:
        with self._lock:
            self._working_copy.cached.clear(self.place)

    def namespaces(self) -> list[str]:
        with self._lock:
            return self._working_copy.cached.names(self.place)


class Namespace(_Part):
    """A mapping inside a `Versioned`, with the same commits.

    Its keys are separate from those of the state and of other namespaces.
    """

    def __init__(self, state: Versioned, place: Place, mergers: Mergers | None = None) -> None:
        self.state = state
        """The whole."""
        self.place = place
        self._lock = state._lock
        if mergers is not None:
            moved = {_moved(place, key): one for key, one in mergers.items()}
            check_mergers(moved, state.codec)
            with self._lock:
                state._mergers.update(moved)

    @property
    def _working_copy(self) -> WorkingCopy:  # type: ignore[override]
        return self.state._working_copy

    def __repr__(self) -> str:
        return f"<Namespace {'/'.join(self.place)!r} of {self.state!r}>"

    def namespace(self, name: str, *, mergers: Mergers | None = None) -> Namespace:
        """A namespace inside this one."""
        return Namespace(self.state, place_of(self.place, name), mergers)

    def commit(self, description: str = "", **options: Any) -> str | None:
        """Commit the whole state, with the arguments of `Versioned.commit`."""
        return self.state.commit(description, **options)

    def transaction(self, description: str = "") -> AbstractContextManager[Versioned]:
        """A transaction of the whole state: see `Versioned.transaction`."""
        return self.state.transaction(description)

    def note(self, event: Mapping[str, Any]) -> None:
        """Add the record of an event to the whole state."""
        self.state.note(event)

    def _moment(self, what: str) -> str | None:
        return self.state._moment(what)

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events of the whole state, newest first."""
        return self.state.records(limit)


def place_of(place: Place, name: str) -> Place:
    """The place of a namespace; raises `InvalidName`."""
    if type(name) is not str or not name or len(name) > LONGEST_NAME:
        raise InvalidName(
            f"a namespace has a name of 1 to {LONGEST_NAME} characters, not {name!r:.80}"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(f"the name {name!r:.80} is no valid text: {error.reason}") from error
    return (*place, name)


def _moved(place: Place, key: Any) -> Any:
    """Prefix the path of a merger, to make it relative to the whole state."""
    path = key if isinstance(key, tuple) else (key,)
    return (*(step for name in place for step in (NAMESPACES, name)), *path)


class Versioned(_Part):
    """A mutable mapping that keeps every commit.

    Values are plain Python. In-place changes are detected at `commit`, however deep they are and
    however long the object has been held: a key returns the same object until the next `reset`.
    Keys are loaded on first access.

    A store holds many states, each identified by its `name`; without a store the state is in
    memory. A handle shows one branch as of its last refresh, plus its own changes. `commit` merges
    these with concurrent commits and shows the result; `refresh` does so without committing.
    `mergers` resolve conflicting changes.

    `types` are classes that may be stored besides plain ones and those declared with
    `ropewalk.register`; with `classes="declared"`, only these. With a `pickle_key`, any picklable
    object is stored, signed with that key.

    Safe to share between threads. Methods that access the store have asynchronous twins: `acommit`
    for `commit`, and so on.
    """

    def __init__(  # noqa: PLR0913 - one for each thing to choose
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        name: str = "default",
        branch: str = MAIN,
        mergers: Mergers | None = None,
        codec: Codec | None = None,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        classes: Classes | None = None,
        agent: str = "",
    ) -> None:
        known = codec_of(codec, types, pickle_key, classes)
        check_mergers(mergers, known)
        space = space_name(TENANT, name)
        self.name = name
        self.store, self._owns_store = store_of(store)
        self._mergers = dict(mergers or {})
        self._lock = freed_after_fork(threading.RLock())
        self._transactions = Transactions()
        try:
            self._history = History(self.store, space, codec=known, agent=agent)
            self._working_copy = WorkingCopy(self._history, branch)
        except BaseException:
            self.close()
            raise

    @classmethod
    def names(cls, store: Store | KVStore | str | PathLike[str] | None = None) -> list[str]:
        """The names of the states in a store, sorted; nothing is created.

        The default store is `.ropewalk` in the current folder.
        """
        if isinstance(store, str | PathLike) or store is None:
            with open_store(store, create=False) as opened:
                return cls.names(opened)
        known, _ = store_of(store)
        return sorted(split_name(space)[1] for space in known.spaces(f"{TENANT}/"))

    def __repr__(self) -> str:
        at = "nothing yet" if self._commit is None else self._commit.short
        return f"<Versioned {self.name!r} on {self.branch_name!r} at {at}>"

    @property
    def _commit(self) -> Commit | None:
        return self._working_copy.commit

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    @property
    def codec(self) -> Codec:
        """The codec of the values."""
        return self._history.codec

    @property
    def commit_hash(self) -> str | None:
        """The hash of the commit this handle is at, in hex; None before the first."""
        return None if self._commit is None else self._commit.id.hex()

    @property
    def branch_name(self) -> str:
        """The branch that this handle commits to."""
        return self._working_copy.branch.name

    @property
    def dirty(self) -> bool:
        """Whether anything changed since the last commit, in-place changes included."""
        with self._lock:
            try:
                return self._working_copy.is_changed(self._working_copy.draft())
            except NotStorable:
                return True  # A value was changed into something that cannot be committed.

    # Values.

    async def aget(self, key: Any, default: Any = None) -> Any:
        """The value of a key, like `get`; a stored value is read on a worker thread."""
        return await self._threads.run(lambda: self.get(key, default))

    # Namespaces.

    def namespace(self, name: str, *, mergers: Mergers | None = None) -> Namespace:
        """The nested state of this name, for example of a sub-agent.

        It shares the commits of this state, and its keys are separate. `mergers` are for paths
        inside it.
        """
        return Namespace(self, place_of((), name), mergers)

    # Committing.

    def commit(
        self,
        description: str = "",
        *,
        metadata: Any = None,
        mergers: Mergers | None = None,
        write_id: str | None = None,
        exclusive: bool = False,
        logic_step: str = "",
        status: str = "",
        error: str = "",
    ) -> str | None:
        """Commit the changes, merged with concurrent commits; returns the hash.

        If nothing changed and no event was added, no commit is made and the current hash is
        returned (None before the first). `metadata` is an additional value about the step;
        `logic_step`, `status` and `error` are fields of `Commit`. `write_id` is an idempotency
        key: a commit that is sent twice is made once.

        Raises `NotStorable` with the path of a value that cannot be stored, and `MergeConflict` if
        others changed the same places and no merger resolves it. The state then keeps its changes.
        Identical concurrent changes count as one; for an `exclusive` commit they are a conflict
        too.
        """
        with self._apart("commit"):
            about: StepFields = {
                "description": description,
                "logic_step": logic_step,
                "status": status,
                "error": error,
            }
            rules = self._rules(mergers)
            self._working_copy.land(about, metadata, rules, write_id, exclusive=exclusive)
            return self.commit_hash

    @contextmanager
    def _apart(self, verb: str) -> Iterator[None]:
        """The lock, for operations that are not allowed in a transaction."""
        self._transactions.refuse_own(verb)
        with self._lock:
            self._transactions.refuse_others(verb)
            yield

    def _rules(self, mergers: Mergers | None) -> Mergers:
        if mergers is None:
            return self._mergers  # Validated when they were set.
        check_mergers(mergers, self.codec)
        return {**self._mergers, **mergers}

    # Concurrent changes.

    def refresh(self, *, mergers: Mergers | None = None) -> str | None:
        """Show what others committed, keeping own changes; returns the commit's hash.

        Held objects are updated in place. Raises `MergeConflict`, with nothing changed, if others
        changed the same places, and `Conflict` if the branch was deleted.
        """
        with self._apart("refresh"):
            self._working_copy.refresh(self._rules(mergers))
            return self.commit_hash

    def session(self) -> Versioned:
        """Another handle on the same branch, with changes and objects of its own."""
        made = self._other(self.branch_name)
        if made._commit is None and self._commit is not None:
            raise removed(self.branch_name, self._history.space)
        return made

    def _other(self, branch: str) -> Versioned:
        return type(self)(
            self.store,
            name=self.name,
            branch=branch,
            mergers=self._mergers,
            codec=self.codec,
            agent=self._history.agent,
        )

    # History.

    def checkout(self, commit_hash: At) -> Checkout:
        """A read-only view of the state as of a commit; this handle does not move.

        `commit` is a hash, or a branch or tag. A full hash may name any commit of the store, also
        of another state. A prefix of at least six digits names an ancestor of a branch of this
        state.
        """
        return Checkout(self._history, resolve(self._history, commit_hash))

    def history(self, limit: int | None = None) -> list[Commit]:
        """The commits that led to this handle's, newest first."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"limit is a whole number or None, not {limit!r:.80}")
        return [] if self._commit is None else list(self._history.steps(self._commit, limit))

    def diff(self, old: At, new: At | None = None) -> list[Change]:
        """The changes from one commit to another, or to this handle's."""
        if new is None and self._commit is None:
            return []
        after = self._required() if new is None else resolve(self._history, new)
        return self._history.diff(resolve(self._history, old), after)

    def changes(self) -> list[Change]:
        """The uncommitted changes."""
        with self._lock:
            return self._working_copy.changes()

    def reset(self, commit_hash: At | None = None) -> str | None:
        """Discard uncommitted changes; with a commit, move the branch back to it.

        Without one, the handle moves to the branch's head. Nothing is deleted: the abandoned
        commits can still be checked out and reset to. Objects read before are no longer tracked.
        Raises `Conflict`, and discards nothing, if the branch was deleted; `branch` recreates it.
        """
        with self._apart("reset"):
            if commit_hash is not None:
                target = resolve(self._history, commit_hash)
                head = self._working_copy.fetch_head()
                if head is None or head.id != target.id:
                    self._history.move_branch(self.branch_name, target)
            self._working_copy.stand_at(self._working_copy.fetch_head())
            return self.commit_hash

    def branch(self, name: str, at: At | None = None) -> Versioned:
        """A handle on another branch, which is created here (or at a commit) if it does not exist.

        Uncommitted changes stay with this handle.
        """
        start = self._commit if at is None else resolve(self._history, at)
        exists = name in self._history.branches()
        if exists and at is not None:
            raise Conflict(f"{self.name!r} has a branch {name!r} already: open it without at=")
        if not exists and start is not None:
            self._history.create_branch(name, start)
        return self._other(name)

    def branches(self) -> dict[str, str]:
        """The branches and the hashes of their heads, sorted by name."""
        return {name: id.hex() for name, id in self._history.branches().items()}

    def merge(self, source: Versioned | At, *, mergers: Mergers | None = None) -> str | None:
        """Merge another branch or commit into this branch; returns the new hash.

        A three-way merge from the merge base. Raises `MergeConflict` with nothing changed,
        `InvalidInput` if there are uncommitted changes, and `Conflict` if this branch was deleted.
        """
        if isinstance(source, Versioned):
            source = source._required()
        with self._apart("merge"):
            self._working_copy.settle(self._rules(mergers))
            head = self._working_copy.fetch_head()
            if self.dirty:
                raise InvalidInput("there are changes here: commit() or reset() before a merge")
            if head is None:
                self._history.create_branch(self.branch_name, source)
            else:
                self._history.merge(source, self.branch_name, mergers=self._rules(mergers))
            return self.refresh()

    def _required(self) -> Commit:
        if self._commit is None:
            raise InvalidInput(f"{self!r} has no commit yet")
        return self._commit

    @contextmanager
    def transaction(self, description: str = "") -> Iterator[Versioned]:
        """A block that is committed as one version when it ends.

        It starts from the head, unless there are uncommitted changes. Concurrent commits are
        merged, but a place that both sides changed is a `MergeConflict` even if they changed it
        alike, so no count is lost. Mergers resolve that.

        If the block raises, or the commit fails, the state is as before the block, and objects are
        loaded again. Only if the outcome of the commit is unknown do the changes stay, and the
        next commit settles it. A nested transaction is committed with the outer one. Other threads
        wait. Another task of the same event loop cannot begin one in between: give each task its
        own handle, with `session`.
        """
        with self._lock:
            self._working_copy.settle(self._mergers)
            if not self._transactions.are_open and not self.dirty:
                self._working_copy.refresh(self._mergers)
            before = self._working_copy.save()
            self._transactions.enter()
            try:
                try:
                    yield self
                finally:
                    last = self._transactions.leave()
                if last:
                    about: StepFields = {"description": description}
                    self._working_copy.land(about, None, self._mergers, None, exclusive=True)
            except BaseException as error:
                made = False
                with suppress(RopewalkError):  # The outcome stays unknown.
                    made = self._working_copy.settle(self._mergers)
                if made and isinstance(error, RopewalkError):
                    return
                if not made and not self._working_copy.is_unsure:
                    self._working_copy.restore(before)
                raise

    # Events.

    def note(self, event: Mapping[str, Any]) -> None:
        """Add the record of an event, a plain dict; it is stored with the next commit."""
        if not isinstance(event, Mapping):
            raise InvalidInput(f"the record of an event is a mapping, not {type(event).__name__}")
        try:
            encoded = self.codec.encode(dict(event))
        except NotStorable as error:
            raise inside(error, "event") from error
        with self._lock:
            # A copy: recorded events are immutable.
            self._working_copy.noted.append(self.codec.decode(encoded))

    def _moment(self, what: str) -> str | None:
        with self._lock, suppress(RopewalkError):
            return self._working_copy.moment(what).id.hex()
        return ""

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first: uncommitted ones, then commit by commit."""
        with self._lock:
            noted, commit = list(self._working_copy.noted), self._commit
        pending = [Recorded(record, self.commit_hash, None) for record in reversed(noted)]
        return islice(chain(pending, recorded(self._history, commit)), limit)

    # Lifecycle.

    def close(self) -> None:
        """Close the store if this state opened it. Uncommitted changes are lost."""
        if self._owns_store:
            self.store.close()

    def __enter__(self: V) -> V:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # The asynchronous interface.

    acommit = twin(commit)
    arefresh = twin(refresh)
    acheckout = twin(checkout)
    ahistory = twin(history)
    adiff = twin(diff)
    areset = twin(reset)
    abranch = twin(branch)
    abranches = twin(branches)
    amerge = twin(merge)
    asession = twin(session)

    async def aclose(self) -> None:
        """The asynchronous twin of `close`."""
        if self._owns_store:
            await self.store.aclose()
