"""A mapping that remembers: every commit is a version, and only what changed is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ropewalk.codec import Classes, Codec
from ropewalk.codec.codec import codec_of
from ropewalk.errors import (
    Conflict,
    InvalidInput,
    NotStorable,
    RopewalkError,
)
from ropewalk.history import MAIN, At, Commit, History, StepFields
from ropewalk.history.merging import check_mergers, removed
from ropewalk.state._state import Recorded, State
from ropewalk.state._versioned._blocks import Blocks
from ropewalk.state._versioned._checkout import Checkout, recorded, resolve
from ropewalk.state._versioned._handle import Handle
from ropewalk.state._versioned._namespace import Namespace, place_of
from ropewalk.state._versioned._shelves import Place, inside
from ropewalk.store import Store, space_name, split_name
from ropewalk.store import open as open_store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of
from ropewalk.tree import Change, Mergers

if TYPE_CHECKING:
    from ropewalk.store import KVStore

V = TypeVar("V", bound="Versioned")

TENANT: Final = "states"
_RESENDS: Final = 3


class Versioned(State):
    """A mutable mapping of which every commit stays.

    Values are plain Python. What is changed in place is found at `commit`, however deep
    and however long the object has been held: one key gives one object until the next
    `reset`. Keys are read when they are asked for.

    A store holds many states, each found again by its `name`; without a store it is in
    memory. A handle is a view of one branch as it was when it last looked, with its own
    changes. `commit` merges them into what others did meanwhile, and shows that from then
    on; `refresh` shows it without a commit. `mergers` settle what both changed.

    `types` are classes that may be stored beside plain ones and those that `ropewalk.register`
    declared; with `classes="declared"` only these.
    With a `pickle_key`, any object that can be pickled is stored, signed with that key.

    Safe to share between threads. Methods that ask the store have asynchronous twins:
    `acommit` for `commit`, and so on.
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
        self._blocks = Blocks()
        try:
            self._history = History(self.store, space, codec=known, agent=agent)
            self._handle = Handle(self._history, branch)
        except BaseException:
            self.close()
            raise

    @classmethod
    def names(cls, store: Store | KVStore | str | PathLike[str] | None = None) -> list[str]:
        """The names of the states in a store, sorted; nothing is made.

        Without a store it is `.ropewalk`, in the current folder.
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
        return self._handle.commit

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    @property
    def codec(self) -> Codec:
        """What values are stored with."""
        return self._history.codec

    @property
    def commit_hash(self) -> str | None:
        """The commit that this handle stands at, in hex; None before the first."""
        return None if self._commit is None else self._commit.id.hex()

    @property
    def branch_name(self) -> str:
        """The branch that this handle commits to."""
        return self._handle.branch.name

    @property
    def dirty(self) -> bool:
        """Whether something changed since the last commit, also in place."""
        with self._lock:
            try:
                return self._handle.is_changed(self._handle.draft())
            except NotStorable:
                return True  # It changed into something that no commit can have.

    # The mapping.

    def __getitem__(self, key: Any) -> Any:
        return self._get((), key)

    async def aget(self, key: Any, default: Any = None) -> Any:
        """What is under a key, like `get`; a value that must be read is read on a thread."""
        return await self._threads.run(lambda: self.get(key, default))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set((), key, value)

    def __delitem__(self, key: Any) -> None:
        self._remove((), key)

    def __contains__(self, key: object) -> bool:
        return self._has((), key)

    def __iter__(self) -> Iterator[Any]:
        return self._keys(())

    def __len__(self) -> int:
        return self._count(())

    def clear(self) -> None:
        """Remove every key. Namespaces stay."""
        self._clear(())

    # The same, for namespaces too.

    def _get(self, place: Place, key: Any) -> Any:
        with self._lock:
            return self._handle.shelves.get(place, key)

    def _set(self, place: Place, key: Any, value: Any) -> None:
        with self._lock:
            self._handle.shelves.set(place, key, value)

    def _remove(self, place: Place, key: Any) -> None:
        with self._lock:
            self._handle.shelves.remove(place, key)

    def _clear(self, place: Place) -> None:
        with self._lock:
            self._handle.shelves.clear(place)

    def _has(self, place: Place, key: object) -> bool:
        with self._lock:
            return self._handle.shelves.has(place, key)

    def _keys(self, place: Place) -> Iterator[Any]:
        with self._lock:
            keys = self._handle.shelves.keys(place)
        return (self._handle.shelves.key_of(encoded) for encoded in keys)

    def _count(self, place: Place) -> int:
        with self._lock:
            return self._handle.shelves.count(place)

    def _names(self, place: Place) -> list[str]:
        with self._lock:
            return self._handle.shelves.names(place)

    # Namespaces.

    def namespace(self, name: str, *, mergers: Mergers | None = None) -> Namespace:
        """The part of the state that belongs to somebody of this name, such as a sub-agent.

        It is a state of its own with the same commits. Its keys are not among those of
        the whole. `mergers` are for paths inside it.
        """
        return Namespace(self, place_of((), name), mergers)

    def namespaces(self) -> list[str]:
        """The names of the namespaces that hold something, sorted."""
        return self._names(())

    def _add_mergers(self, mergers: Mergers) -> None:
        check_mergers(mergers, self.codec)
        with self._lock:
            self._mergers.update(mergers)

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
        """Store what changed as the next version, merged with what others did; its hash.

        If nothing changed, and no event was noted, there is no new version, and the hash
        is that of the last one (None if there is none yet). `metadata` is a further value
        about the step; `logic_step`, `status` and `error` are fields of `Commit`. With a
        `write_id`, a commit that is sent twice is made once.

        Raises `NotStorable` with the path if an object was changed into something that
        cannot be stored, and `MergeConflict` if others changed the same places and no
        merger settles it. The state stays as it is then, with its changes. If others made
        the same change, it counts once; if the commit is `exclusive`, that is a conflict too.
        """
        with self._apart("commit"):
            about: StepFields = {
                "description": description,
                "logic_step": logic_step,
                "status": status,
                "error": error,
            }
            rules = self._rules(mergers)
            self._handle.land(about, metadata, rules, write_id, exclusive=exclusive)
            return self.commit_hash

    @contextmanager
    def _apart(self, verb: str) -> Iterator[None]:
        """The lock, for what has no place in a transaction."""
        self._blocks.refuse_own(verb)
        with self._lock:
            self._blocks.refuse_others(verb)
            yield

    def _rules(self, mergers: Mergers | None) -> Mergers:
        if mergers is None:
            return self._mergers  # They were checked when they were given.
        check_mergers(mergers, self.codec)
        return {**self._mergers, **mergers}

    # Others.

    def refresh(self, *, mergers: Mergers | None = None) -> str | None:
        """Show what others committed, and keep own changes; the commit's hash.

        Objects that are held are brought up to date in place. Raises `MergeConflict`,
        with nothing changed, if others changed what was changed here too, and `Conflict` if
        somebody removed the branch.
        """
        with self._apart("refresh"):
            self._handle.refresh(self._rules(mergers))
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

    # Time.

    def checkout(self, commit_hash: At) -> Checkout:
        """The state as a commit left it, read-only; nothing moves.

        A commit is named by its hash, or by a branch or tag that is at it. A whole hash names
        any commit of the store: also one of another state. The first digits of one, at least
        six, name a commit that a branch of this state comes from.
        """
        return Checkout(self._history, self._resolve(commit_hash))

    def _resolve(self, at: At) -> Commit:
        return resolve(self._history, at)

    def history(self, limit: int | None = None) -> list[Commit]:
        """The commits that led to where this handle stands, newest first."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"limit is a whole number or None, not {limit!r:.80}")
        return [] if self._commit is None else list(self._history.steps(self._commit, limit))

    def diff(self, old: At, new: At | None = None) -> list[Change]:
        """What changed from one commit to another, or to where this handle stands."""
        if new is None and self._commit is None:
            return []
        after = self._required() if new is None else self._resolve(new)
        return self._history.diff(self._resolve(old), after)

    def changes(self) -> list[Change]:
        """What changed since the commit that this handle stands at, and is not committed."""
        with self._lock:
            return self._handle.changes()

    def reset(self, commit_hash: At | None = None) -> str | None:
        """Drop what was not committed; with a commit, put the branch back to it.

        Without one the handle stands at the newest commit of its branch then. Nothing is
        deleted: the commits that the branch leaves can still be checked out, and be
        returned to. Objects that were read before are no longer followed. Raises `Conflict`,
        and drops nothing, if somebody removed the branch: `branch` begins it anew.
        """
        with self._apart("reset"):
            if commit_hash is not None:
                target = self._resolve(commit_hash)
                head = self._handle.fetch_head()
                if head is None or head.id != target.id:
                    self._history.move_branch(self.branch_name, target)
            self._handle.stand_at(self._handle.fetch_head())
            return self.commit_hash

    def branch(self, name: str, at: At | None = None) -> Versioned:
        """A handle on another branch, which begins here (or at a commit) if it is new.

        What is not committed stays with this handle.
        """
        start = self._commit if at is None else self._resolve(at)
        exists = name in self._history.branches()
        if exists and at is not None:
            raise Conflict(f"{self.name!r} has a branch {name!r} already: open it without at=")
        if not exists and start is not None:
            self._history.create_branch(name, start)
        return self._other(name)

    def branches(self) -> dict[str, str]:
        """The branches and the hashes of the commits they are at, sorted by name."""
        return {name: id.hex() for name, id in self._history.branches().items()}

    def merge(self, source: Versioned | At, *, mergers: Mergers | None = None) -> str | None:
        """Bring the changes of another branch or commit into this branch; the new hash.

        Three-way, from where the two parted. Raises `MergeConflict` with nothing changed,
        `InvalidInput` if something here is not committed, and `Conflict` if somebody removed
        this branch.
        """
        if isinstance(source, Versioned):
            source = source._required()
        with self._apart("merge"):
            self._handle.settle(self._rules(mergers))
            head = self._handle.fetch_head()
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

        It begins at the newest version, unless something here is not committed yet. What
        others commit meanwhile is merged, but what both changed is a `MergeConflict`, even
        if both changed it alike: so no count is lost. Mergers settle that.

        If it raises, or the commit fails, the state is as it was before the block, and
        objects are read anew. Only if it is not known whether the commit was made, the
        changes stay, and the next commit finds out. A transaction inside another one is
        committed with that. Other threads wait. Another task of the same event loop
        cannot begin one meanwhile: give each task a handle of its own, with `session`.
        """
        with self._lock:
            self._handle.settle(self._mergers)
            if not self._blocks.are_open and not self.dirty:
                self._handle.refresh(self._mergers)
            before = self._handle.save()
            self._blocks.enter()
            try:
                try:
                    yield self
                finally:
                    last = self._blocks.leave()
                if last:
                    about: StepFields = {"description": description}
                    self._handle.land(about, None, self._mergers, None, exclusive=True)
            except BaseException as error:
                made = self._was_made()
                if made and isinstance(error, RopewalkError):
                    return
                if not made and not self._handle.is_unsure:
                    self._handle.restore(before)
                raise

    def _was_made(self) -> bool:
        """Whether a commit was made although no answer came; unsure if that cannot be asked."""
        with suppress(RopewalkError):
            return self._handle.settle(self._mergers)
        return False

    # Events.

    def note(self, event: Mapping[str, Any]) -> None:
        """Keep the record of an event, a plain dict; it is stored with the next commit."""
        if not isinstance(event, Mapping):
            raise InvalidInput(f"the record of an event is a mapping, not {type(event).__name__}")
        try:
            encoded = self.codec.encode(dict(event))
        except NotStorable as error:
            raise inside(error, "event") from error
        with self._lock:
            # A copy: what happened does not change any more.
            self._handle.noted.append(self.codec.decode(encoded))

    def _moment(self, what: str) -> str | None:
        with self._lock, suppress(RopewalkError):
            return self._handle.moment(what).id.hex()
        return ""

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first: those not committed, then commit by commit."""
        with self._lock:
            noted, commit = list(self._handle.noted), self._commit
        pending = [Recorded(record, self.commit_hash, None) for record in reversed(noted)]
        return islice(chain(pending, recorded(self._history, commit)), limit)

    # Life.

    def close(self) -> None:
        """Close the store, if this state opened it. What was not committed is lost."""
        if self._owns_store:
            self.store.close()

    def __enter__(self: V) -> V:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # The asynchronous face.

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
