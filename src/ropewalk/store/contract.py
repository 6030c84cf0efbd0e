"""`Store`: the public methods of all stores, and the abstract ones that an engine implements.

The public methods are written once, here: they check their arguments, apply the rules of leases,
and have asynchronous twins that run on threads. An engine implements the abstract methods, whose
names begin with an underscore.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypedDict, TypeVar

from ropewalk.errors import Corrupt, StoreClosed
from ropewalk.store.asynchronous import Threads, twin, twin_iterator
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.leases import LeaseKeeper
from ropewalk.store.model import (
    KEY,
    Capabilities,
    Durability,
    Fence,
    Header,
    Lease,
    LeaseRecord,
    Move,
    Operation,
    Ref,
    Scalar,
    Stored,
    View,
)
from ropewalk.store.names import check_name, check_prefix, check_space, known_name, known_space
from ropewalk.store.quota import Quota
from ropewalk.store.record import Append, check_key, check_objects, prepare
from ropewalk.store.reserved import OWN_SPACE, alias_ref
from ropewalk.store.scratch import Scratch
from ropewalk.store.search_index import TextIndex
from ropewalk.store.validation import (
    check_aliases,
    check_backend,
    check_ttl,
    expect,
    expect_clock,
    expect_seconds,
    expect_timeout,
    expect_whole,
)
from ropewalk.store.watch import Log, Patience, awatch, watch
from ropewalk.tree.objects import Commit, Object, ObjectId, Reader

if TYPE_CHECKING:
    from ropewalk.store.collection import Collected, Progress
    from ropewalk.store.reserved import Pruned
    from ropewalk.store.statistics import Stats
    from ropewalk.store.verification import Report

S = TypeVar("S", bound="Store")

RECENT = 1000
"""How many of a space's latest operations a collection keeps undoable."""

_PAGE = 256  # Operations that `watch` reads at a time.


class StoreOptions(TypedDict, total=False):
    """What a store of any engine can be made with."""

    backend_id: str
    """The name by which references find it; the engine's own unless another is given."""
    backend_aliases: Iterable[str]
    """Older names to which it answers too."""
    clock: Callable[[], float]
    """The clock for leases: a function that returns seconds."""
    threads: int
    """How many asynchronous calls may run at once."""
    size_limit: int | None
    """How many bytes it may take; None if only the disk says."""
    default_ttl_seconds: float | None
    """How long what a reference names is kept, where nobody says; None is for ever."""


class Store(ABC):
    """Objects and spaces on one engine.

    Safe to share between threads. Every method that asks the engine has an asynchronous
    twin: `aread` for `read`, and so on.
    """

    capabilities: ClassVar[Capabilities]
    poll_seconds: ClassVar[float | None] = 0.02
    """How often `watch` looks without being woken; None if wakes are never lost."""

    def __init__(
        self,
        *,
        backend_id: str,
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        size_limit: int | None = None,
        default_ttl_seconds: float | None = None,
    ) -> None:
        expect_whole(threads, 1, "threads")
        if size_limit is not None:
            expect_whole(size_limit, 1, "size_limit")
        self.backend_id = check_backend(backend_id)
        self.backend_aliases = check_aliases(backend_aliases)
        self._known_aliases = set(self.backend_aliases)
        self._clock = expect_clock(clock)
        self._lease_keeper = LeaseKeeper(self, clock)
        self._threads = Threads(threads)
        self._size_limit = size_limit
        self._default_ttl_seconds = check_ttl(default_ttl_seconds)
        self._quota = Quota(self)
        self._wakes: set[Callable[[], None]] = set()
        self._text_index: TextIndex | None = None
        self._scratch: Scratch | None = None
        self._state_lock = freed_after_fork(threading.Lock())
        self._closed = False

    # What the store is.

    @property
    def size_limit(self) -> int | None:
        """How many bytes the store may take; None if only the disk says."""
        return self._size_limit

    @property
    def default_ttl_seconds(self) -> float | None:
        """How long what a reference names is kept, where nobody says; None is for ever.

        It is the time of the pin that is made for a `ContentRef`. It ends nothing else:
        what a branch, a tag or another pin reaches stays.
        """
        return self._default_ttl_seconds

    def answers_to(self, backend_id: str) -> bool:
        """Whether a reference that names this backend is meant for this store.

        A store answers to its own id, to its aliases, and to those of every store that
        was migrated into it.
        """
        if backend_id == self.backend_id or backend_id in self._known_aliases:
            return True
        # Names are only ever added, so one that was found is not looked for again.
        found = self.ref(OWN_SPACE, alias_ref(backend_id)) is not None
        if found:
            self._known_aliases.add(backend_id)
        return found

    # Objects.

    @abstractmethod
    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The shared objects with these ids, in this order, each verified against its hash.

        What is not shared is found by the `reader` of its space.
        Raises `MissingObjects` with all that are absent, `DamagedObject` for the
        first that is not what its name says.
        """

    @abstractmethod
    def reader(self, space: str) -> Reader:
        """A function that reads objects of a space, and shared ones, as `read` does.

        What a space holds is found by going through that space; what was committed in
        another one is not promised to be found. Asks nobody before it is called.
        """

    @abstractmethod
    def missing(self, ids: Iterable[ObjectId], space: str | None = None) -> list[ObjectId]:
        """Those of the ids that a commit to a space could not have in its `needs`.

        Without a space: those that are not shared objects of the store.
        """

    def carry(self, space: str, ids: Iterable[ObjectId]) -> Iterator[list[Object]]:
        """What commits to another space must bring, so that it can lead to objects of this one.

        In portions, of which each leads only to itself, to earlier ones and to what every space
        can need; nothing where all objects are such.
        """
        self._check_open()
        check_space(space)
        return iter(())

    @abstractmethod
    def scan(self) -> Iterator[Stored]:
        """Every object, in no order; what is written meanwhile may be left out."""

    # Spaces: refs and operations.

    def commit(  # noqa: PLR0913 - what a write may say; most calls say little
        self,
        space: str,
        objects: Iterable[Object] = (),
        needs: Iterable[ObjectId] = (),
        moves: Iterable[Move] = (),
        *,
        fence: Fence | Sequence[Fence] | None = None,
        operation: Mapping[str, Scalar] | None = None,
        write_id: str | None = None,
        share: bool = False,
        step: Commit | None = None,
        fresh: bool = False,
    ) -> Operation:
        """Store objects and move refs of one space: all of it, or nothing.

        Objects are those of `make_object`: their names are trusted here, and a wrong one
        is found when it is read. They belong to the space; with `share` every space of the
        store can read and need them. `step` is the commit among them that this write
        brings, so that an engine can show it in plain columns.

        `needs` lists every object that the new ones link to and that is not among them:
        objects of the space, or shared ones. That they could be read does not mean that they
        are still there.

        `operation` is metadata for the log. Two of its keys mean something to the store:
        `key`, at most 16 bytes, is what `find` looks for, and `step` is the id of a commit
        among the objects that no ref moves to.

        The write id is an idempotency key: the same write, sent again, returns the operation
        that was recorded. Without one, a new id is generated. `fresh` says that the id was
        never sent before, so an engine need not look for it.

        Raises, with nothing changed: `WriteIdReused` if the id belongs to another write;
        `LeaseLost` if a fence's token is not the lease's, `LeaseHeld` if the token is 0
        (nobody may hold the lease) and somebody holds it; `RefMoved` if a ref is not where
        its move expects it; `MissingObjects` if a needed object or the target of a move is
        absent, or marked for deletion by a collection.
        """
        if self._closed:
            self._check_open()
        return self._land(
            prepare(
                space,
                check_objects(objects),
                needs,
                moves,
                fence,
                operation,
                write_id,
                share=share,
                step=step,
                fresh=fresh,
            )
        )

    def find(self, space: str, key: bytes) -> list[int]:
        """The sequence numbers of the operations that have a key, ascending.

        `key` is what `commit` was given as `operation["key"]`.
        """
        self._check_open()
        check_space(space)
        check_key(key)
        return self._find(space, key)

    def ref(self, space: str, name: str) -> Ref | None:
        """One ref, or None if the space has none of that name."""
        if self._closed:
            self._check_open()
        try:
            known_space(space)
            known_name(space, name)
        except TypeError:
            check_space(space)
            check_name(space, name)
        return self._ref(space, name)

    def refs(self, space: str, prefix: str = "") -> list[Ref]:
        """The refs whose names begin so, sorted by name, all at one moment."""
        return list(self.view(space, prefix).refs)

    def view(self, space: str, prefix: str = "") -> View:
        """A space's last sequence number, epoch and refs, all at one moment."""
        self._check_open()
        check_space(space)
        check_prefix(prefix)
        return self._view(space, prefix)

    def spaces(self, prefix: str = "") -> list[str]:
        """The spaces that have operations and whose names begin so, sorted."""
        self._check_open()
        check_prefix(prefix)
        return self._spaces(prefix)

    def operations(self, space: str, after: int = 0, limit: int = 1000) -> list[Operation]:
        """At most `limit` operations of a space, from number `after + 1` on.

        Raises `Corrupt` if one of them is missing or stands in another's place.
        """
        self._check_open()
        check_space(space)
        expect_whole(after, 0, "after")
        expect_whole(limit, 1, "limit")
        found = self._operations(space, after, limit)
        for expected, operation in enumerate(found, after + 1):
            if operation.sequence != expected:
                raise Corrupt(
                    f"the log of {space!r} is damaged: operation {operation.sequence} stands in "
                    f"the place of {expected}. Restore the store from a copy; other spaces are "
                    "not affected."
                )
        return found

    def watch(
        self, space: str, after: int = 0, timeout: float | None = None
    ) -> Iterator[Operation]:
        """Yield operations from number `after + 1` on, and wait for more.

        Ends when none came for `timeout` seconds; without a timeout, never. Raises
        `StoreClosed` when the store is closed meanwhile, and `Rewound` when the engine no
        longer has the operation after which to go on.
        """
        look = self._looking(space, after)
        expect_timeout(timeout)
        patience = Patience(timeout, self.poll_seconds)
        return watch(look, partial(self._waking, space), patience)

    def _looking(self, space: str, after: int) -> Callable[[], list[Operation]]:
        self._check_open()
        check_space(space)
        expect_whole(after, 0, "after")
        return self._log_of(space).looking(after)

    def _log_of(self, space: str) -> Log:
        return Log(space, lambda number: self.operations(space, number, _PAGE))

    # Leases.

    def acquire(self, space: str, name: str, holder: str, duration: float) -> Lease:
        """Take a lease for `duration` seconds, with a token larger than every one before.

        `holder` names who asks and must be unique; a holder that asks again gets a new
        token at once. Raises `LeaseHeld` while somebody else has it: until this store
        object has seen it unchanged for its whole time and a margin.
        """
        self._check_open()
        check_space(space)
        check_name(space, name)
        _expect_holder(holder)
        return self._lease_keeper.acquire(space, name, holder, duration)

    def seize(self, space: str, record: LeaseRecord, holder: str, duration: float) -> Lease | None:
        """Take a lease although its holder may be alive; None if that grant is over.

        `record` is what `leases` gave. It may have been renewed since, but not given back
        or granted anew. The holder learns of it by `LeaseLost`, from its next commit under
        the lease or when it renews; until its own time is over it believes that it holds.
        """
        self._check_open()
        check_space(space)
        expect(isinstance(record, LeaseRecord), "what is seized is what leases() gave", record)
        check_name(space, record.name)
        _expect_holder(holder)
        return self._lease_keeper.seize(space, record, holder, duration)

    def renew(self, lease: Lease, duration: float | None = None) -> Lease:
        """Begin the lease's time again; `LeaseLost` if it is no longer this holder's."""
        self._check_open()
        _expect_lease(lease)
        return self._lease_keeper.renew(lease, duration)

    def release(self, lease: Lease) -> bool:
        """Give a lease back; False if it had been lost."""
        self._check_open()
        _expect_lease(lease)
        return self._lease_keeper.release(lease)

    def holds(self, lease: Lease) -> bool:
        """Whether the lease's time is not over, on this store object's clock.

        Asks nobody. Under a lease that holds, nobody else has been granted it.
        """
        _expect_lease(lease)
        return self._clock() < lease.deadline

    def leases(self, space: str, prefix: str = "") -> list[LeaseRecord]:
        """The leases that were granted and not given back, sorted by name."""
        self._check_open()
        check_space(space)
        check_prefix(prefix)
        found = self._leases(space, prefix)
        for record in found:
            self._lease_keeper.saw(space, record)
        return found

    # Care.

    def gc(
        self,
        *,
        recent: int = RECENT,
        grace: float = 0.0,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Collected:
        """Delete the objects that no ref and no recent operation reaches.

        Others may write meanwhile. `recent` is how many of each space's operations can
        still be undone afterwards: with 0 what was removed is gone for good. `grace` is how
        many seconds to wait before deleting, for readers of what has just been dropped.
        `dry_run` only tells. Raises `MissingObjects` or `DamagedObject`, with nothing deleted,
        if what is reached cannot be seen: run `check` then.
        """
        self._check_open()
        expect_whole(recent, 0, "recent")
        expect_seconds(grace, "grace")
        return self._gc(recent, grace, dry_run, progress)

    def prune_expired(
        self, limit: int | None = None, *, now: int | None = None, grace: float = 0.0
    ) -> Pruned:
        """Drop expired references, and delete what only they held.

        At most `limit` of them, the oldest expiry first. Others may write meanwhile: a
        reference that is renewed stays, and so does content that is stored again or that a
        timeline also holds. `now` is in microseconds since 1970; `grace` is as for `gc`. Other
        garbage is left to `gc`.
        """
        self._check_open()
        if limit is not None:
            expect_whole(limit, 1, "limit")
        expect_seconds(grace, "grace")
        from ropewalk.store.reserved import prune

        return prune(self, RECENT, limit, now, grace)

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> Report:
        """Look for damage and say what was found; changes nothing.

        Looks at logs and refs, and at what they reach, but not at the bytes of large
        strings. With `read_data` every byte of every object is read and verified.
        """
        self._check_open()
        return self._check(read_data, progress)

    def stats(self, *, recent: int = RECENT, progress: Progress | None = None) -> Stats:
        """Say what takes the room: by space, ref and top-level key; changes nothing.

        `recent` is as for `gc`, which is asked what it would free. Every object that a
        ref reaches is read twice. Raises `MissingObjects` or `DamagedObject` if one
        cannot be: run `check` then.
        """
        self._check_open()
        expect_whole(recent, 0, "recent")
        return self._stats(recent, progress)

    # Beside history: what may be lost.

    def text_index(self) -> TextIndex:
        """An index of words beside history, which may be lost: see `TextIndex`."""
        self._check_open()
        with self._state_lock:
            if self._text_index is None:
                self._text_index = self._make_text_index()
            return self._text_index

    def scratch(self) -> Scratch:
        """Small values beside history, which may be lost: see `Scratch`."""
        self._check_open()
        with self._state_lock:
            if self._scratch is None:
                self._scratch = self._make_scratch()
            return self._scratch

    # Life.

    def close(self) -> None:
        """Finish running calls, wake waiting ones, and release resources. Idempotent."""
        with self._state_lock:
            if self._closed:
                return
            self._closed = True
            wakes = list(self._wakes)
        for wake in wakes:
            wake()
        self._threads.close()
        self._close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<{type(self).__name__} {self.backend_id!r}{state}>"

    # What an engine supplies: few steps, each atomic. Names and ids that arrive here are valid.

    @property
    @abstractmethod
    def header(self) -> Header:
        """The store's id, format and algorithm; `decode_header` refuses newer ones."""

    @property
    @abstractmethod
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""

    @abstractmethod
    def _ref(self, space: str, name: str) -> Ref | None:
        """One ref."""

    @abstractmethod
    def _view(self, space: str, prefix: str) -> View:
        """Sequence, epoch and the refs with a prefix, sorted by name, at one moment.

        A space that does not exist has sequence 0, and the epoch that it would begin with.
        """

    @abstractmethod
    def _spaces(self, prefix: str) -> list[str]:
        """The names of the spaces that have operations, sorted."""

    @abstractmethod
    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        """Operations from number `after + 1` on, in order, at most `limit`."""

    @abstractmethod
    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        """A lease that was granted and not given back."""

    @abstractmethod
    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        """All of them with a prefix, sorted by name."""

    @abstractmethod
    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        """Replace the record `expected` by a new one, or return None if it is not that.

        The token is the next of the space's counter, which only grows and outlives leases.
        """

    @abstractmethod
    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        """Replace (or remove) the record `expected`; False if it is not that."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of files, connections and threads."""

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        """What is wrong with the engine's own files or tables: each with what it is about.

        Objects, refs and logs are checked by who calls this.
        """
        return ()

    def _disk_bytes(self) -> int | None:
        """How many bytes the engine takes for everything; None if it cannot say."""
        return None

    def _make_text_index(self) -> TextIndex:
        """The index of words beside history; in this process, unless the engine has a better one.

        An engine that encrypts what it stores keeps this one: words are plain text.
        """
        from ropewalk.store.search_index import MemoryTextIndex

        return MemoryTextIndex()

    def _make_scratch(self) -> Scratch:
        """The small values beside history; in this process, unless the engine can share them."""
        from ropewalk.store.scratch import MemoryScratch

        return MemoryScratch(time.monotonic)

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, soon after an operation; the way to stop that.

        A hint: it may come too often, and an engine with `poll_seconds` may lose it.
        """
        return _nothing

    @abstractmethod
    def _gc(self, recent: int, grace: float, dry_run: bool, progress: Progress | None) -> Collected:
        """See `gc`."""

    @abstractmethod
    def _check(self, read_data: bool, progress: Progress | None) -> Report:
        """See `check`."""

    @abstractmethod
    def _stats(self, recent: int, progress: Progress | None) -> Stats:
        """See `stats`."""

    @abstractmethod
    def _free(self, dropped: Sequence[Ref], recent: int, grace: float) -> tuple[int, int]:
        """Delete what only dropped pins held: how many contents are gone, and their bytes."""

    @abstractmethod
    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Remove damaged shared objects, so that they can be stored again."""

    @abstractmethod
    def _land(self, append: Append) -> Operation:
        """Commit what has been checked."""

    def _find(self, space: str, key: bytes) -> list[int]:
        """Look through the log, for an engine that has no index of keys."""
        found: list[int] = []
        after = 0
        while page := self._operations(space, after, _PAGE):
            found += [one.sequence for one in page if one.metadata.get(KEY) == key]
            after = page[-1].sequence
        return found

    @contextmanager
    def _waking(self, space: str, wake: Callable[[], None]) -> Iterator[None]:
        with self._state_lock:
            self._wakes.add(wake)
        stop = self._subscribe(space, wake)
        try:
            yield
        finally:
            stop()
            with self._state_lock:
                self._wakes.discard(wake)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self.backend_id!r} was closed")

    # The asynchronous face.

    aanswers_to = twin(answers_to)
    aread = twin(read)
    amissing = twin(missing)
    acommit = twin(commit)
    afind = twin(find)
    aref = twin(ref)
    arefs = twin(refs)
    aview = twin(view)
    aspaces = twin(spaces)
    aoperations = twin(operations)
    aacquire = twin(acquire)
    aseize = twin(seize)
    arenew = twin(renew)
    arelease = twin(release)
    aleases = twin(leases)
    ascan = twin_iterator(scan)
    agc = twin(gc)
    aprune_expired = twin(prune_expired)
    acheck = twin(check)
    astats = twin(stats)

    def awatch(
        self, space: str, after: int = 0, timeout: float | None = None
    ) -> AsyncIterator[Operation]:
        """The asynchronous twin of `watch`; no thread waits for it."""
        look = partial(self._threads.run, self._looking(space, after))
        expect_timeout(timeout)
        return awatch(look, partial(self._waking, space), Patience(timeout, self.poll_seconds))

    async def aclose(self) -> None:
        """The asynchronous twin of `close`."""
        await self._threads.run_apart(self.close)

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


def _expect_holder(holder: str) -> None:
    expect(isinstance(holder, str) and holder != "", "a lease's holder is a name", holder)


def _expect_lease(given: Lease) -> None:
    expect(isinstance(given, Lease), "a lease is what acquire() gave", given)


def _nothing() -> None:
    pass
