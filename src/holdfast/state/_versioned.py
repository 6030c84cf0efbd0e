"""A mapping that remembers: every commit is a version, and only what changed is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from holdfast.codec import Codec
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    MissingObjects,
    NotStorable,
    Unavailable,
)
from holdfast.history import MAIN, At, Commit, History, StepFields
from holdfast.history._commits import new_write_id
from holdfast.history._merging import Merging, check_mergers, merge_late, reading_too
from holdfast.history._recent import RecentObjects
from holdfast.state._checkout import Checkout, recorded
from holdfast.state._namespace import Namespace, place_of
from holdfast.state._reconciling import reconcile
from holdfast.state._shelves import Place, Shelves, inside
from holdfast.state._state import Recorded, State
from holdfast.state._storing import store_of
from holdfast.store import REMEMBERED_WRITES, Store, space_name
from holdfast.store._asynchronous import Threads, twin
from holdfast.tree import ABSENT, Change, Mergers, ObjectId, diff
from holdfast.tree._map_writer import Draft, MapWriter, Slot

if TYPE_CHECKING:
    from holdfast.store import KVStore

V = TypeVar("V", bound="Versioned")

TENANT: Final = "states"
_RESENDS: Final = 3


class _Sent(NamedTuple):
    """A commit of which it is not known whether it was made."""

    write_id: str
    draft: Draft


class Versioned(State):
    """A mutable mapping of which every commit stays.

    Values are plain Python. What is changed in place is found at `commit`, however deep
    and however long the object has been held: one key gives one object until the next
    `reset`. Keys are read when they are asked for.

    A store holds many states, each found again by its `name`; without a store it is in
    memory. A handle is a view of one branch as it was when it last looked, with its own
    changes. `commit` merges them into what others did meanwhile, and shows that from then
    on; `refresh` shows it without a commit. `mergers` settle what both changed.

    `types` are classes that may be stored beside those that `holdfast.register` declared.
    With a `pickle_key`, any object that can be pickled is stored, signed with that key.

    Safe to share between threads. Methods that ask the store have asynchronous twins:
    `acommit` for `commit`, and so on.
    """

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        name: str = "default",
        branch: str = MAIN,
        mergers: Mergers | None = None,
        codec: Codec | None = None,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        agent: str = "",
    ) -> None:
        if codec is not None and (pickle_key is not None or tuple(types)):
            raise InvalidInput("a codec has its own types and pickle key: give those to it")
        known = Codec(types=types, pickle_key=pickle_key) if codec is None else codec
        check_mergers(mergers, known)
        space = space_name(TENANT, name)
        self.name = name
        self.store, self._owns_store = store_of(store)
        self._mergers = dict(mergers or {})
        self._lock = threading.RLock()
        self._transactions = 0
        try:
            self._begin(History(self.store, space, codec=known, agent=agent), branch)
        except BaseException:
            self.close()
            raise

    def _begin(self, history: History, branch: str) -> None:
        self._history = history
        self._branch = history.open(branch)
        self._stand_at(self._branch.head)
        self._noted: list[Mapping[str, Any]] = []
        self._sent: _Sent | None = None

    def _stand_at(self, commit: Commit | None) -> None:
        """Begin anew from a commit, with nothing held."""
        self._commit = commit
        self._recent = RecentObjects(self.store.read)
        self._writer = MapWriter(self._history.codec, self._recent.read)
        self._shelves = Shelves(self._writer, self._root)

    def __repr__(self) -> str:
        at = "nothing yet" if self._commit is None else self._commit.short
        return f"<Versioned {self.name!r} on {self._branch.name!r} at {at}>"

    @property
    def _root(self) -> ObjectId | None:
        return None if self._commit is None else self._commit.root

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
        return self._branch.name

    @property
    def dirty(self) -> bool:
        """Whether something changed since the last commit, also in place."""
        with self._lock:
            return self._is_changed(self._draft())

    # The mapping.

    def __getitem__(self, key: Any) -> Any:
        return self._get((), key)

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

    # The same, for namespaces too.

    def _get(self, place: Place, key: Any) -> Any:
        with self._lock:
            return self._shelves.get(place, key)

    def _set(self, place: Place, key: Any, value: Any) -> None:
        with self._lock:
            self._shelves.set(place, key, value)

    def _remove(self, place: Place, key: Any) -> None:
        with self._lock:
            self._shelves.remove(place, key)

    def _has(self, place: Place, key: object) -> bool:
        with self._lock:
            return self._shelves.has(place, key)

    def _keys(self, place: Place) -> Iterator[Any]:
        with self._lock:
            keys = self._shelves.keys(place)
        return (self._shelves.key_of(encoded) for encoded in keys)

    def _count(self, place: Place) -> int:
        with self._lock:
            return self._shelves.count(place)

    def _names(self, place: Place) -> list[str]:
        with self._lock:
            return self._shelves.names(place)

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
        merger settles it. The state stays as it is then, with its changes.
        """
        with self._lock:
            if self._transactions:
                raise InvalidInput("a transaction commits when its block ends: leave out commit()")
            about: StepFields = {
                "description": description,
                "logic_step": logic_step,
                "status": status,
                "error": error,
            }
            return self._land(about, metadata, mergers, write_id)

    def _land(
        self,
        about: StepFields,
        metadata: Any = None,
        mergers: Mergers | None = None,
        write_id: str | None = None,
    ) -> str | None:
        self._settle()
        draft = self._draft()
        if not (self._is_changed(draft) or self._noted or metadata is not None):
            return self.commit_hash
        rules = self._rules(mergers)
        for left in reversed(range(_RESENDS)):
            id = new_write_id() if write_id is None else write_id
            self._sent = _Sent(id, draft)
            noted = len(self._noted)
            try:
                commit = self._branch.publish(
                    self._root,
                    draft.edited,
                    metadata=metadata,
                    events=self._noted or None,
                    mergers=rules,
                    write_id=id,
                    **about,
                )
            except MissingObjects as error:
                self._sent = None
                self._resend(error, left)
                draft = self._draft()
            except Unavailable:
                raise  # It may have been made: the next commit finds out.
            except HoldfastError:
                self._sent = None
                raise
            else:
                self._sent = None
                del self._noted[:noted]
                self._accept(draft, commit)
                return commit.id.hex()
        raise AssertionError("the last attempt raises or returns")

    def _resend(self, error: MissingObjects, left: int) -> None:
        """Have everything sent again that was collected since it was read."""
        if not left or (self._commit is not None and self._commit.root in error.ids):
            raise Conflict(
                f"branch {self._branch.name!r} of {self.name!r} was moved back, and what this "
                "handle had seen was collected. Note what you changed, call reset(), and "
                "change it again."
            ) from error
        self._shelves.forget()

    def _settle(self) -> None:
        """Find out whether a commit that was interrupted, or got no answer, was made."""
        if self._sent is not None:
            made = self._branch._made(self._sent.write_id, REMEMBERED_WRITES)
            sent, self._sent = self._sent, None
            if made is not None:
                self._noted.clear()
                self._accept(sent.draft, self._branch._target(made))

    def _accept(self, draft: Draft, commit: Commit) -> None:
        self._recent.remember(draft.edited.objects)
        self._writer.accept(draft)
        self._commit = commit
        self._shelves.move_to(commit.root)
        if commit.root != draft.edited.root:
            self._catch_up()

    def _draft(self) -> Draft:
        try:
            return self._writer.write(
                self._root, self._shelves.top, threaded=threading.active_count() > 1
            )
        except NotStorable as error:
            raise inside(error) from error

    def _is_changed(self, draft: Draft) -> bool:
        if self._commit is None:
            return self._shelves.holds_something()
        return draft.edited.root != self._commit.root

    def _rules(self, mergers: Mergers | None) -> Mergers:
        return {**self._mergers, **(mergers or {})}

    def _catch_up(self) -> None:
        """Bring what is held to what is stored, in place."""
        for at in self._shelves.places():
            part = self._shelves.part_at(at)
            if part == at.slot.part:
                continue
            if part is None:
                self._shelves.drop(at)
            else:
                self._renew(at.slot, self._writer.load(at.slot.key, part))

    def _renew(self, slot: Slot, fresh: Slot) -> None:
        slot.value = reconcile(slot.value, fresh.value, self.codec)
        slot.part, slot.mirrors, slot.alive = fresh.part, fresh.mirrors, fresh.alive
        slot.given = slot.value

    # Others.

    def refresh(self, *, mergers: Mergers | None = None) -> str | None:
        """Show what others committed, and keep own changes; the commit's hash.

        Objects that are held are brought up to date in place. Raises `MergeConflict`,
        with nothing changed, if others changed what was changed here too.
        """
        with self._lock:
            self._settle()
            head = self._branch.refresh()
            if head is None or (self._commit is not None and head.id == self._commit.id):
                return self.commit_hash
            draft = self._draft()
            if self._is_changed(draft):
                self._rebase(draft, head, mergers)
            else:
                self._commit = head
                self._shelves.move_to(head.root)
                self._catch_up()
            return self.commit_hash

    def _rebase(self, draft: Draft, head: Commit, mergers: Mergers | None) -> None:
        """Bring own changes onto a newer commit without committing them."""
        read = reading_too(self._recent.read, draft.edited.objects)
        how = Merging(self._history._commits.find, read, self._rules(mergers), self.codec)
        merged = merge_late(self._root, draft.edited.root, head.root, how)
        both = reading_too(read, merged.objects)
        ours = {id(kept.slot): kept.part for kept in draft.changes}
        outcome = Shelves(MapWriter(self.codec, both), merged.root)
        self._commit = head
        self._shelves.move_to(head.root)
        for at in self._shelves.places():
            slot, wanted, stored = at.slot, outcome.part_at(at), self._shelves.part_at(at)
            mine = ours.get(id(slot), slot.part)
            if wanted is None:
                slot.value = ABSENT
            elif wanted != mine:
                fresh = self._writer.load(slot.key, wanted, both)
                slot.value = reconcile(slot.value, fresh.value, self.codec)
            if stored != slot.part:
                slot.part, slot.given = stored, ABSENT
                slot.mirrors.clear()

    def session(self) -> Versioned:
        """Another handle on the same branch, with changes and objects of its own."""
        return self._other(self._branch.name)

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

        Any commit of this state, by its hash, or a branch or tag that is at it.
        """
        return Checkout(self._history, self._history.resolve(commit_hash))

    def history(self, limit: int | None = None) -> list[Commit]:
        """The commits that led to where this handle stands, newest first."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"limit is a whole number or None, not {limit!r:.80}")
        return [] if self._commit is None else list(self._history.steps(self._commit, limit))

    def diff(self, old: At, new: At | None = None) -> list[Change]:
        """What changed from one commit to another, or to where this handle stands."""
        if new is None and self._commit is None:
            return []
        return self._history.diff(old, self._commit if new is None else new)  # type: ignore[arg-type]

    def changes(self) -> list[Change]:
        """What changed since the commit that this handle stands at, and is not committed."""
        with self._lock:
            draft = self._draft()
            read = reading_too(self._recent.read, draft.edited.objects)
            before = self._root
            if before is None:
                empty = self._writer.write(None, type(self._shelves.top)()).edited
                before, read = empty.root, reading_too(read, empty.objects)
            return list(diff(before, draft.edited.root, read, codec=self.codec))

    def reset(self, commit_hash: At | None = None) -> str | None:
        """Drop what was not committed; with a commit, put the branch back to it.

        Without one the handle stands at the newest commit of its branch then. Nothing is
        deleted: the commits that the branch leaves can still be checked out, and be
        returned to. Objects that were read before are no longer followed.
        """
        with self._lock:
            if commit_hash is not None:
                target = self._history.resolve(commit_hash)
                head = self._branch.refresh()
                if head is None or head.id != target.id:
                    self._history.move_branch(self._branch.name, target)
            self._noted, self._sent = [], None
            self._stand_at(self._branch.refresh())
            return self.commit_hash

    def branch(self, name: str, at: At | None = None) -> Versioned:
        """A handle on another branch, which begins here (or at a commit) if it is new.

        What is not committed stays with this handle.
        """
        start = self._commit if at is None else self._history.resolve(at)
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
        and `InvalidInput` if something here is not committed.
        """
        if isinstance(source, Versioned):
            source = source._required()
        with self._lock:
            if self.dirty:
                raise InvalidInput("there are changes here: commit() or reset() before a merge")
            self._settle()
            if self._branch.refresh() is None:
                self._history.create_branch(self._branch.name, source)
            else:
                self._history.merge(source, self._branch.name, mergers=self._rules(mergers))
            return self.refresh()

    def _required(self) -> Commit:
        if self._commit is None:
            raise InvalidInput(f"{self!r} has no commit to merge")
        return self._commit

    @contextmanager
    def transaction(self, description: str = "") -> Iterator[Versioned]:
        """A block that is committed as one version when it ends.

        If it raises, or the commit fails, the state is as it was before the block, and
        objects are read anew. Other threads wait. A transaction inside another one is
        committed with that.
        """
        with self._lock:
            before, noted = self._draft(), len(self._noted)
            self._transactions += 1
            try:
                try:
                    yield self
                finally:
                    self._transactions -= 1
                if not self._transactions:
                    self._land({"description": description})
            except BaseException:
                if self._sent is None:
                    self._restore(before)
                    del self._noted[noted:]
                raise

    def _restore(self, draft: Draft) -> None:
        """Hold again what was held when a draft was made."""
        read = reading_too(self._recent.read, draft.edited.objects)
        was = Shelves(MapWriter(self.codec, read), draft.edited.root)
        for at in self._shelves.places():
            slot, part = at.slot, was.part_at(at)
            if part == slot.part:
                self._shelves.drop(at)  # Read anew when it is asked for.
            elif part is None:
                slot.value = ABSENT
            else:
                slot.value, slot.given = self._writer.load(slot.key, part, read).value, ABSENT

    # Events.

    def note(self, event: Mapping[str, Any]) -> None:
        """Keep the record of an event, a plain dict; it is stored with the next commit."""
        try:
            self.codec.encode(event)
        except NotStorable as error:
            raise inside(error, "event") from error
        with self._lock:
            self._noted.append(event)

    def records(self, limit: int | None = None) -> Iterator[Recorded]:
        """The records of events, newest first: those not committed, then commit by commit."""
        with self._lock:
            noted, commit = list(self._noted), self._commit
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
