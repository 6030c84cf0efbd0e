"""Conversations in a store: their states, messages and records, by the id of a thread."""

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
from ropewalk.threads.listing import Directory, Filter, Page, Window, list_messages, message_of
from ropewalk.threads.message import Message, as_message
from ropewalk.threads.search import Indexing, finder, scope_of
from ropewalk.threads.thread import Changes, Incoming, Thread, ThreadTimeline, no_message
from ropewalk.timeline import Timeline

if TYPE_CHECKING:
    # With a default, so that a checkpointer of any state needs no annotation.
    from typing_extensions import TypeVar

    from ropewalk.store import KVStore

    StateT = TypeVar("StateT", default=Any)
else:
    from typing import TypeVar

    StateT = TypeVar("StateT")
C = TypeVar("C", bound="ThreadCheckpointer[Any]")

_KEPT: Final = 256
"""Of how many threads it is remembered where they were."""
_OBJECT_BYTES: Final = 32 << 20
_LONGEST_ID: Final = 4096  # It becomes a key of a map, and those have an end.
DAY: Final = 86_400.0


class ThreadCheckpointer(Generic[StateT]):
    """Keeps conversations: of each its state, its messages and its record.

    `config` says which thread a call is about: `{"thread_id": "t1"}`, and perhaps whose
    it is: `{"thread_id": "t1", "user_id": "alice"}`. Each user has threads of their own,
    which no other user sees; without a `user_id` they are nobody's in particular.
    `ThreadCheckpointer[MyState](store, types=[MyState])` says what the states are.

    A thread is a timeline: every change is a commit, so `timeline(config)` and the command
    line show its history and go back, branch and compare. What is put is copied: neither
    side sees later changes of the other. Without a store it is in memory.

    `types` are classes that a state may have, beside plain ones and those that
    `ropewalk.register` declared; with `classes="declared"` only these. `cache_seconds` is how
    long a cached state lives.

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
        self._lock = freed_after_fork(threading.Lock())
        self._known: OrderedDict[tuple[str, str | None], Thread] = OrderedDict()
        self._timelines: WeakKeyDictionary[Timeline, str] = WeakKeyDictionary()
        """Those in use that were opened here, with their spaces."""
        self._cache = StateCache(self.store, self._codec, cache_seconds)
        self._directory = Directory(self.store, self._codec, self._objects)
        self._indexing = Indexing()

    def __repr__(self) -> str:
        return f"<ThreadCheckpointer in {self.store!r}>"

    # Life.

    def setup(self) -> None:
        """Make sure that the store answers. Nothing else has to be made."""
        self.store.spaces("threads/")

    def release(self) -> bool:
        """Close what this checkpointer opened: its store, unless that was handed over."""
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
        # Not on a thread of the store: closing waits for those.
        return await self._threads.run_apart(self.release)

    # The state.

    def put_state(self, config: Mapping[str, Any], state: StateT) -> StateT:
        """Make a state the newest of a thread; gives it back. Only what changed is stored."""
        self._change(config, Changes(puts_state=True, state=state), "put_state", "a state")
        return state

    def get_state(self, config: Mapping[str, Any]) -> StateT | None:
        """The newest state, the caller's own; None if there is none."""
        found: StateT | None = self._contents(config).value(STATE)
        return found

    def clear_state(self, config: Mapping[str, Any]) -> bool:
        """Take the state away, also from the cache. It stays in the history."""
        address = address_of(config)
        thread = self._thread(address)
        if thread.contents().part(STATE) is not None:
            thread.change(
                Changes(clears_state=True), None, logic_step="clear_state", description="no state"
            )
        self._cache.remove(thread)
        return True

    def put_state_cache(self, config: Mapping[str, Any], state: StateT) -> StateT:
        """Keep a state at hand, for a time; gives it back. It may be lost at any moment."""
        self._cache.put(self._thread(address_of(config)), state)
        return state

    def get_state_cache(self, config: Mapping[str, Any]) -> StateT | None:
        """The state that was cached, unless its time is over or a newer one was put."""
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

        One that is there already, by its id, is not stored again; if it differs, it takes
        the place of the one that was there. `metadata` is said of all of them: it is found
        in the metadata of each, beneath its own.
        """
        changes = Changes(messages=_incoming(messages), about=_about(metadata))
        self._change(config, changes, "put_messages", _counted(len(changes.messages)), metadata)
        return True

    def get_message(self, config: Mapping[str, Any], message_id: Id | None = None) -> Message:
        """A message by its id, or the latest; raises `MessageNotFound`, an `IndexError`."""
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
        """A page of the messages, in their order.

        `search` finds what was said: messages whose text has it as a part; case, accents'
        spelling and width make no difference. `role`, `since`
        (inclusive), `until` (exclusive) and `metadata` narrow it down. A `limit` of 0 is
        an empty page. The page's `cursor`, handed over with the same arguments, gives the
        next one, whatever is put or deleted meanwhile.
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
        """Take a message away; raises `MessageNotFound`. It stays in the history."""
        changes = Changes(removes=[check_message_id(message_id)])
        self._change(config, changes, "delete_message", f"without {message_id!r:.80}")
        return True

    # The record of a thread.

    def put_thread(
        self, config: Mapping[str, Any], thread_info: ThreadInfo | Mapping[str, Any]
    ) -> bool:
        """Keep what is known about a thread: its name, metadata and times."""
        address = address_of(config)
        record = _record(address, thread_info)
        self._change(config, Changes(record=record), "put_thread", "the record")
        return True

    def get_thread(self, config: Mapping[str, Any]) -> ThreadInfo | None:
        """What is known about a thread; None if there is no such thread.

        A thread of which only a state or messages were put is known too.
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
        """A page of the threads of one user, the latest changed first.

        The config must name the user by `user_id`: without it, only threads that were put
        without one are listed. With `all_users`, those of every user are, whomever the config
        names. `search` looks for a part of ids, names and what the metadata say. No `thread_id`
        is needed.
        """
        window = Window.of(offset, limit, cursor)
        user = user_of(config or {})
        owners = self._directory.owners() if all_users else [user]
        return self._directory.list(owners, search, metadata, window, cursor)

    def clean_thread(self, config: Mapping[str, Any]) -> bool:
        """Empty a thread: state, cache, messages and record. False if there was nothing.

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

    # All at once, and the history.

    def put(
        self,
        config: Mapping[str, Any],
        state: StateT | None = None,
        messages: Sequence[Message | Mapping[str, Any]] = (),
        thread: ThreadInfo | Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Put a state, messages and a record in one step: all of them or none.

        What is None stays as it was. Gives the id of the checkpoint; None if nothing
        changed.
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
        """The history of a thread: to look at, go back in, branch, and compare.

        What its methods do is what the next call here finds.
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

    # Inside.

    def _watch(self, space: str, timeline: Timeline) -> None:
        """From now on, look before every change of a thread: somebody here may switch branches."""
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
                found = self._known[key] = Thread(history, self._objects, branch)
                if space in self._timelines.values():
                    found.watch()
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
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

    # The asynchronous face.

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
    """The id, unless it can name no message; raises `InvalidInput`."""
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


# The state cache: fast, for a time, and allowed to be lost.
#
# What is cached is kept beside the mark of the state that was stored then. A put makes a new
# mark, so a cached state never hides one that was put after it. Who puts a state also forgets
# what it cached: else that would be served again after a rollback to the mark before.


_MARK: Final = 8
_LONGEST: Final = 100 * 366 * 86_400.0
"""So many seconds every engine can count."""
_MOST_MET: Final = 10_000


class StateCache:
    """Cached states, by thread."""

    def __init__(self, store: Store, codec: Codec, seconds: float | None) -> None:
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise InvalidInput(f"cache_seconds is more than 0, or None, not {seconds!r:.80}")
        self._scratch = store.scratch()
        self._codec = codec
        self._seconds = None if seconds is None else min(seconds, _LONGEST)
        self._met: set[str] = set()
        """The keys of what was kept or found here."""

    def put(self, thread: Thread, state: Any) -> None:
        """Keep a state, as it is now."""
        mark = thread.contents().marks.saved.ljust(_MARK, b"\0")
        key = _key(thread)
        self._meet(key)
        self._scratch.put(key, mark + self._codec.encode(state), self._seconds)

    def get(self, thread: Thread) -> Any:
        """The state that was kept; None if there is none, or the stored one is newer."""
        mark = thread.contents().marks.saved.ljust(_MARK, b"\0")  # First: it finds the branch.
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
            return None  # Damaged, which is as good as lost.

    def _meet(self, key: str) -> None:
        if len(self._met) >= _MOST_MET:
            self._met.clear()  # Their marks still tell which of them are outdated.
        self._met.add(key)

    def remove(self, thread: Thread) -> None:
        """Forget what is kept of a thread."""
        key = _key(thread)
        self._met.discard(key)
        self._scratch.remove(key)

    def outdate(self, thread: Thread) -> None:
        """Forget what is kept of a thread, if that was met here: a state was put."""
        if _key(thread) in self._met:
            self.remove(thread)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(thread: Thread) -> str:
    return f"state/{thread.history.space}/{thread.branch}"
