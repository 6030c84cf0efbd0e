"""Conversations in a store: states, messages and records, addressed by thread id."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Generic
from weakref import WeakKeyDictionary

from ropewalk.codec import Classes, Codec
from ropewalk.codec.codec import codec_of
from ropewalk.errors import FormatError, InvalidInput, MessageNotFound
from ropewalk.history import History
from ropewalk.history.commits import SharedObjects
from ropewalk.store import Store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of
from ropewalk.threads.address import (
    Address,
    Id,
    ThreadInfo,
    address_of,
    as_thread_info,
    check_id,
    user_of,
)
from ropewalk.threads.contents import STATE, Contents
from ropewalk.threads.fields import plain
from ropewalk.threads.items import CacheBudget
from ropewalk.threads.listing import Directory, Filter, Page, Window, list_messages
from ropewalk.threads.message import Message, as_message, message_of
from ropewalk.threads.search import Indexing, finder, scope_of
from ropewalk.threads.thread import Changes, Incoming, Thread, ThreadTimeline, no_message
from ropewalk.timeline import Timeline

if TYPE_CHECKING:
    # The default lets a checkpointer of any state go without an annotation.
    from typing_extensions import TypeVar

    from ropewalk.store import KVStore

    StateT = TypeVar("StateT", default=Any)
else:
    from typing import TypeVar

    StateT = TypeVar("StateT")
C = TypeVar("C", bound="ThreadCheckpointer[Any]")

_KEPT: Final = 256
"""How many threads have their last position cached."""
_OBJECT_BYTES: Final = 32 << 20
_LONGEST_ID: Final = 4096  # Cached states are entries of a map, and map keys have a size limit.
DAY: Final = 86_400.0


class ThreadCheckpointer(Generic[StateT]):
    """Stores conversations: the state, the messages and the record of each thread.

    `config` addresses a thread: `{"thread_id": "t1"}`, or with its owner `{"thread_id": "t1",
    "user_id": "alice"}`. Users never see each other's threads; threads without a `user_id` belong
    to one anonymous user.
    `ThreadCheckpointer[MyState](store, types=[MyState])` declares the type of the states.

    A thread is a timeline: every change is a commit, so `timeline(config)` and the command line
    can show its history, roll back, branch and compare. Values are copied on the way in and out.
    Without a store, conversations are kept in memory.

    `types` are the classes a state may contain besides plain ones and those declared with
    `ropewalk.register`; with `classes="declared"`, only these. `cache_seconds` is the lifetime of
    a cached state.

    Safe to share between threads and event loops. Every method has an asynchronous twin:
    `aput_state` for `put_state`, and so on.
    """

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        codec: Codec | None = None,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        classes: Classes | None = None,
        cache_seconds: float | None = DAY,
    ) -> None:
        self._codec = codec_of(codec, types, pickle_key, classes)
        self.store, self._owns_store = store_of(store)
        self._objects = SharedObjects(self.store.read, _OBJECT_BYTES)
        self._budget = CacheBudget()
        self._lock = freed_after_fork(threading.Lock())
        self._known: OrderedDict[tuple[str, str | None], Thread] = OrderedDict()
        self._timelines: WeakKeyDictionary[Timeline, str] = WeakKeyDictionary()
        """Those in use that were opened here, with their spaces."""
        self._cache = StateCache(self.store, self._codec, cache_seconds)
        self._directory = Directory(self.store, self._codec, self._objects)
        self._indexing = Indexing()

    def __repr__(self) -> str:
        return f"<ThreadCheckpointer in {self.store!r}>"

    # Lifecycle.

    def setup(self) -> None:
        """Check that the store answers. No other setup is needed."""
        self.store.spaces("threads/")

    def release(self) -> bool:
        """Close the store if this checkpointer opened it."""
        if self._owns_store:
            self.store.close()
        return True

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.arelease()

    async def arelease(self) -> bool:
        """The asynchronous twin of `release`."""
        # Not on a worker thread of the store: closing waits for those to finish.
        return await self._threads.run_apart(self.release)

    # State.

    def put_state(self, config: Mapping[str, Any], state: StateT) -> StateT:
        """Store a state as the thread's newest, and return it. Only what changed is written."""
        self._change(config, Changes(puts_state=True, state=state), "put_state", "a state")
        return state

    def get_state(self, config: Mapping[str, Any]) -> StateT | None:
        """Return a copy of the newest state, or None."""
        found: StateT | None = self._contents(config).value(STATE)
        return found

    def clear_state(self, config: Mapping[str, Any]) -> bool:
        """Remove the state from the thread and the cache. It stays in the history."""
        address = address_of(config)
        thread = self._thread(address)
        if thread.contents().part(STATE) is not None:
            thread.change(
                Changes(clears_state=True), None, logic_step="clear_state", description="no state"
            )
        self._cache.remove(thread)
        return True

    def put_state_cache(self, config: Mapping[str, Any], state: StateT) -> StateT:
        """Cache a state for `cache_seconds`, and return it. It may be evicted at any time."""
        self._cache.put(self._thread(address_of(config)), state)
        return state

    def get_state_cache(self, config: Mapping[str, Any]) -> StateT | None:
        """Return the cached state, or None if it has expired or a newer state was stored."""
        found: StateT | None = self._cache.get(self._thread(address_of(config)))
        return found

    # Messages.

    def put_messages(
        self,
        config: Mapping[str, Any],
        messages: Sequence[Message | Mapping[str, Any]],
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Append messages, all of them or none.

        A message whose id is already stored is not stored again; if its content differs, it
        replaces the stored one. `metadata` applies to all of them: each message has it as defaults
        beneath its own metadata.
        """
        changes = Changes(messages=_incoming(messages), about=_about(metadata))
        self._change(config, changes, "put_messages", _counted(len(changes.messages)), metadata)
        return True

    def get_message(self, config: Mapping[str, Any], message_id: Id | None = None) -> Message:
        """Return a message by its id, or the latest; raises `MessageNotFound`, an `IndexError`."""
        contents = self._contents(config)
        if message_id is None:
            position = contents.last_position
        else:
            position = contents.position_of(check_message_id(message_id))
        if position is None and message_id is None:
            raise MessageNotFound(f"thread {config['thread_id']!r:.80} has no messages")
        if position is None:
            raise no_message(message_id)
        (found,) = contents.rows_at([position])
        return message_of(found.stored)

    def list_messages(  # noqa: PLR0913 - each by name
        self,
        config: Mapping[str, Any],
        search: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
        *,
        role: str | Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        newest_first: bool = False,
        cursor: str | None = None,
    ) -> Page[Message]:
        """Return a page of the messages, in order.

        `search` selects messages whose text contains it, ignoring case, character width and the
        encoding of accents. `role`, `since` (inclusive), `until` (exclusive) and `metadata` filter
        further. A `limit` of 0 returns an empty page. Pass the page's `cursor` with the same
        arguments to get the next page; it stays valid when messages are added or deleted in
        between.
        """
        if search is not None and not isinstance(search, str):
            raise InvalidInput(f"search is text, not a {type(search).__name__}")
        window = Window.of(offset, limit, cursor)
        wanted = Filter.of(role, since, until, metadata)
        thread = self._thread(address_of(config))
        contents = thread.contents()
        found = finder(thread, self._indexing)
        return list_messages(contents, search, wanted, window, cursor, newest_first, found)

    def delete_message(self, config: Mapping[str, Any], message_id: Id) -> bool:
        """Delete a message; raises `MessageNotFound`. It stays in the history."""
        changes = Changes(removes=[check_message_id(message_id)])
        self._change(config, changes, "delete_message", f"without {message_id!r:.80}")
        return True

    # The record of a thread.

    def put_thread(
        self, config: Mapping[str, Any], thread_info: ThreadInfo | Mapping[str, Any]
    ) -> bool:
        """Store the record of a thread: its name, metadata and times."""
        address = address_of(config)
        record = _record(address, thread_info)
        self._change(config, Changes(record=record), "put_thread", "the record")
        return True

    def get_thread(self, config: Mapping[str, Any]) -> ThreadInfo | None:
        """Return the record of a thread, or None if the thread does not exist.

        A thread that has only a state or messages has a record too.
        """
        address = address_of(config)
        thread = self._thread(address)
        return self._directory.info(address, thread.history, thread.look())

    def list_threads(
        self,
        config: Mapping[str, Any] | None = None,
        search: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        cursor: str | None = None,
        all_users: bool = False,
    ) -> Page[ThreadInfo]:
        """Return a page of one user's threads, most recently changed first.

        The config names the user by `user_id`; without it, only threads stored without one are
        listed. `all_users` lists the threads of every user, whatever the config says. `search`
        matches parts of ids, names and metadata. No `thread_id` is needed.
        """
        window = Window.of(offset, limit, cursor)
        user = user_of(config or {})
        owners = self._directory.owners() if all_users else [user]
        return self._directory.list(owners, search, metadata, window, cursor)

    def clean_thread(self, config: Mapping[str, Any]) -> bool:
        """Empty a thread: state, cache, messages and record. Returns False if it was empty.

        The history stays, so this can be undone.
        """
        thread = self._thread(address_of(config))
        found = not thread.contents().is_empty
        if found:
            thread.change(
                Changes(cleans=True), None, logic_step="clean_thread", description="nothing"
            )
        self._cache.remove(thread)
        self.store.text_index().drop(scope_of(thread))
        return found

    # Combined writes, and the history.

    def put(
        self,
        config: Mapping[str, Any],
        state: StateT | None = None,
        messages: Sequence[Message | Mapping[str, Any]] = (),
        thread: ThreadInfo | Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Store a state, messages and a record in one commit, all of them or none.

        Arguments that are None leave their part unchanged. Returns the id of the checkpoint, or
        None if nothing changed.
        """
        changes = Changes(
            puts_state=state is not None,
            state=state,
            messages=_incoming(messages),
            about=_about(metadata),
            record=None if thread is None else _record(address_of(config), thread),
        )
        parts = ["a state"] * changes.puts_state
        parts += [_counted(len(changes.messages))] * bool(changes.messages)
        parts += ["the record"] * (changes.record is not None)
        return self._change(config, changes, "put", ", ".join(parts), metadata)

    def timeline(self, config: Mapping[str, Any]) -> Timeline:
        """Return the history of a thread: to inspect, roll back, branch and compare.

        Later calls on this checkpointer see the effects of its methods.
        """
        address = address_of(config)
        thread = self._thread(address)
        made = ThreadTimeline(
            address.name,
            self.store,
            codec=self._codec,
            tenant=address.tenant,
            branch=address.branch,
        )
        self._watch(thread.history.space, made)
        return made

    # Internals.

    def _watch(self, space: str, timeline: Timeline) -> None:
        """From now on, read the current branch before every change: this process may switch it."""
        with self._lock:
            self._timelines[timeline] = space
            for (known, _), thread in self._known.items():
                if known == space:
                    thread.watch()

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    def _contents(self, config: Mapping[str, Any]) -> Contents:
        return self._thread(address_of(config)).contents()

    def _thread(self, address: Address) -> Thread:
        space, branch = address.space, address.branch
        key = (space, branch)
        with self._lock:
            found = self._known.get(key)
            if found is None:
                history = History(self.store, space, codec=self._codec, agent=address.name)
                found = self._known[key] = Thread(history, self._objects, branch, self._budget)
                if space in self._timelines.values():
                    found.watch()
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._budget.forget(self._known.popitem(last=False)[1].items)
            return found

    def _change(
        self,
        config: Mapping[str, Any],
        changes: Changes,
        step: str,
        description: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> str | None:
        thread = self._thread(address_of(config))
        commit = thread.change(changes, metadata, logic_step=step, description=description)
        if changes.puts_state:
            self._cache.outdate(thread)
        return None if commit is None else commit.id.hex()

    # The asynchronous interface.

    asetup = twin(setup)
    aput_state = twin(put_state)
    aget_state = twin(get_state)
    aclear_state = twin(clear_state)
    aput_state_cache = twin(put_state_cache)
    aget_state_cache = twin(get_state_cache)
    aput_messages = twin(put_messages)
    aget_message = twin(get_message)
    alist_messages = twin(list_messages)
    adelete_message = twin(delete_message)
    aput_thread = twin(put_thread)
    aget_thread = twin(get_thread)
    alist_threads = twin(list_threads)
    aclean_thread = twin(clean_thread)
    aput = twin(put)
    atimeline = twin(timeline)


def check_message_id(id: Any) -> Id:
    """Return the id if a message can have it; raises `InvalidInput`."""
    if not isinstance(id, str):
        return check_id(id, "message_id")
    if not id:
        raise InvalidInput("message_id is empty: it is text of at least one character, or a number")
    if len(id) > _LONGEST_ID:
        raise InvalidInput(f"message_id has {len(id)} characters; the most is {_LONGEST_ID}")
    return plain(id)


def _incoming(messages: Sequence[Message | Mapping[str, Any]]) -> list[Incoming]:
    if type(messages) is not list and (
        isinstance(messages, Message | Mapping | str) or not isinstance(messages, Iterable)
    ):
        raise InvalidInput("messages is a list of messages, also for one")
    found = []
    for one in messages:
        made = as_message(one)
        timeless = is_new = False
        if not isinstance(one, Message):
            timeless, is_new = one.get("created_at") is None, one.get("id") is None
        found.append(Incoming(check_message_id(made.id), made.to_stored(), timeless, is_new))
    return found


def _about(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata is a dict, not a {type(metadata).__name__}")
    return dict(metadata)


def _record(address: Address, given: ThreadInfo | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        given = {"thread_id": address.thread_id, **given}
    info = as_thread_info(given)
    if (info.thread_id, type(info.thread_id)) != (address.thread_id, type(address.thread_id)):
        raise InvalidInput(
            f"the record is of thread {info.thread_id!r:.80}, and config names "
            f"{address.thread_id!r:.80}"
        )
    if info.user_id not in (None, address.user_id):
        raise InvalidInput(
            f"the record is of user {info.user_id!r:.80}, and config names {address.user_id!r:.80}"
        )
    return info.to_stored()


def _counted(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


# The state cache: fast, expiring and allowed to lose entries.  A cached state is stored with the
# mark of the state that was stored at that time. Each put makes a new mark, so a cached state
# never hides one that was put after it. A put also removes the thread's cached state; otherwise a
# rollback to the earlier mark would serve it again.


_MARK: Final = 8
_LONGEST: Final = 100 * 366 * 86_400.0
"""The longest lifetime, in seconds, that every engine supports."""
_MOST_MET: Final = 10_000


def threads_of(
    given: ThreadCheckpointer[Any] | Store | KVStore | str | PathLike[str] | None,
) -> tuple[ThreadCheckpointer[Any], bool]:
    """The conversations in what was handed over, and whether whoever asks has to release them."""
    if isinstance(given, ThreadCheckpointer):
        return given, False
    return ThreadCheckpointer(given), True


class StateCache:
    """Cached states by thread."""

    def __init__(self, store: Store, codec: Codec, seconds: float | None) -> None:
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise InvalidInput(f"cache_seconds is more than 0, or None, not {seconds!r:.80}")
        self._scratch = store.scratch()
        self._codec = codec
        self._seconds = None if seconds is None else min(seconds, _LONGEST)
        self._met: set[str] = set()
        """The keys of what was kept or found here."""

    def put(self, thread: Thread, state: Any) -> None:
        """Cache a copy of a state."""
        mark = thread.contents().marks.saved.ljust(_MARK, b"\0")
        key = _key(thread)
        self._meet(key)
        self._scratch.put(key, mark + self._codec.encode(state), self._seconds)

    def get(self, thread: Thread) -> Any:
        """Return the cached state, or None if it is missing or stale."""
        mark = thread.contents().marks.saved.ljust(_MARK, b"\0")  # First: this resolves the branch.
        key = _key(thread)
        found = self._scratch.get(key)
        if found is None:
            return None
        self._meet(key)
        if found[:_MARK] != mark:
            return None
        try:
            return self._codec.decode(found[_MARK:])
        except FormatError:
            return None  # A damaged entry is a cache miss.

    def _meet(self, key: str) -> None:
        if len(self._met) >= _MOST_MET:
            self._met.clear()  # Their marks still tell which of them are stale.
        self._met.add(key)

    def remove(self, thread: Thread) -> None:
        """Remove the thread's cached state."""
        key = _key(thread)
        self._met.discard(key)
        self._scratch.remove(key)

    def outdate(self, thread: Thread) -> None:
        """Remove the thread's cached state, if this process has seen one, after a put."""
        if _key(thread) in self._met:
            self.remove(thread)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(thread: Thread) -> str:
    return f"state/{thread.history.space}/{thread.branch}"
