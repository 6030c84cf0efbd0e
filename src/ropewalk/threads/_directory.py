"""Which threads a user has."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.errors import FormatError, InvalidInput
from ropewalk.history import Commit, History
from ropewalk.history.object_cache import SharedObjects
from ropewalk.store import Store, encode_part, split_name
from ropewalk.store.forking import freed_after_fork
from ropewalk.threads._config import Address, Id, id_of, tenant_of
from ropewalk.threads._contents import RECORD, Contents
from ropewalk.threads._listing import says
from ropewalk.threads._paging import Page, Window, make_cursor, read_cursor
from ropewalk.threads._thread import look
from ropewalk.threads._thread_info import ThreadInfo
from ropewalk.threads._words import matches
from ropewalk.tree import ObjectId, Reader, read_commit
from ropewalk.tree.read import Loader

_REMEMBERED: Final = 10_000


class _Seen(NamedTuple):
    """What a list of threads needs to know of one, at a commit."""

    is_empty: bool
    record: bytes | None
    """As it is stored, so that each caller gets one of their own."""


class _Listed(NamedTuple):
    """A thread in the order of a list: the latest changed first, then by name."""

    time: int
    name: str
    info: ThreadInfo

    @property
    def place(self) -> tuple[int, str]:
        return -self.time, self.name


class Directory:
    """The threads in a store. What was seen of a commit is remembered: it never changes."""

    def __init__(self, store: Store, codec: Codec, objects: SharedObjects) -> None:
        self._store, self._codec, self._objects = store, codec, objects
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[ObjectId, _Seen] = OrderedDict()

    def list(
        self,
        user: Id | None,
        search: str | None,
        metadata: Mapping[str, Any] | None,
        window: Window,
        cursor: str | None,
    ) -> Page[ThreadInfo]:
        """A page of the threads of a user."""
        if search is not None and not isinstance(search, str):
            raise InvalidInput(f"search is text, not a {type(search).__name__}")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInput(f"metadata is a dict, not a {type(metadata).__name__}")
        if window.limit == 0:
            return Page()
        begin = None
        if cursor is not None:
            time, name = read_cursor(cursor, int, str)
            begin = (-time, name)
        listed = sorted(self._listed(user), key=lambda one: one.place)
        found = (
            one
            for one in listed
            if (begin is None or one.place > begin) and _is_wanted(one.info, search, metadata)
        )
        shown = islice(found, window.offset, None)
        if window.limit is None:
            return Page([one.info for one in shown])
        page = list(islice(shown, window.limit + 1))
        more = len(page) > window.limit
        del page[window.limit :]
        last = page[-1] if more else None
        return Page(
            [one.info for one in page],
            None if last is None else make_cursor(last.time, last.name),
        )

    def _listed(self, user: Id | None) -> Iterator[_Listed]:
        for space in self._store.spaces(f"{encode_part(tenant_of(user))}/"):
            name = split_name(space)[1]
            history = History(self._store, space, codec=self._codec, agent=name)
            commit = look(history, self._reader(history), None).commit
            try:
                info = self.info(Address(id_of(name), user, None), history, commit)
            except (FormatError, ValueError):
                continue  # A timeline of somebody else's: what it holds, or its name, says so.
            if commit is not None and info is not None:
                yield _Listed(commit.time, name, info)

    def info(self, address: Address, history: History, commit: Commit | None) -> ThreadInfo | None:
        """What is known about a thread at a commit of its history; None if it is empty."""
        if commit is None:
            return None
        read = self._reader(history)
        seen = self._see(commit, read)
        if seen.is_empty:
            return None
        stored = {} if seen.record is None else Loader(read, self._codec).part(seen.record)
        stored["thread_id"] = address.thread_id
        if address.user_id is not None:
            stored["user_id"] = address.user_id
        # A time that somebody gave holds until the next change.
        if "updated_at" not in stored or self._record_before(commit, read) == seen.record:
            stored["updated_at"] = commit.time
        return ThreadInfo.from_stored(stored)

    def _reader(self, history: History) -> Reader:
        return partial(self._objects.read_through, history.read)

    def _record_before(self, commit: Commit, read: Reader) -> bytes | None:
        if not commit.parents:
            return None
        (found,) = read(commit.parents[:1])
        return self._see(read_commit(found), read).record

    def _see(self, commit: Commit, read: Reader) -> _Seen:
        with self._lock:
            found = self._seen.get(commit.id)
        if found is None:
            contents = Contents.at(commit.root, read, self._codec)
            found = _Seen(contents.is_empty, contents.part(RECORD))
            with self._lock:
                self._seen[commit.id] = found
                while len(self._seen) > _REMEMBERED:
                    self._seen.popitem(last=False)
        return found


def _is_wanted(info: ThreadInfo, search: str | None, metadata: Mapping[str, Any] | None) -> bool:
    known = info.metadata or {}
    if metadata is not None and not says(known, metadata):
        return False
    if search is None:
        return True
    return matches(" ".join([str(info.thread_id), info.thread_name or "", *_said(known)]), search)


def _said(value: Any) -> Iterator[str]:
    """The texts in metadata."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _said(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _said(inner)
