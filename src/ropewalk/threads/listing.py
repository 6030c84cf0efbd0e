"""Lists of messages and of threads: filters, order, pages and their cursors."""

from __future__ import annotations

import base64
import binascii
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import ormsgpack

from ropewalk.codec import Codec
from ropewalk.errors import FormatError, InvalidInput
from ropewalk.history import Commit, History
from ropewalk.history.commits import SharedObjects
from ropewalk.store import Store, split_name
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.names import encode_part
from ropewalk.threads.address import Address, Id, ThreadInfo, id_of, tenant_of, user_of_tenant
from ropewalk.threads.contents import RECORD, Contents
from ropewalk.threads.message import ROLES, Message, message_of
from ropewalk.threads.search import Bounds, Finder, matches
from ropewalk.threads.thread import look
from ropewalk.tree import ObjectId, Reader, read_commit
from ropewalk.tree.read import Loader

T = TypeVar("T")

_MOST: Final = 1 << 62
"""The longest page; some engines cannot count further."""


class Page(list[T]):
    """A list with a cursor to the next page, which is None on the last one."""

    __slots__ = ("cursor",)

    def __init__(self, items: Iterable[T] = (), cursor: str | None = None) -> None:
        super().__init__(items)
        self.cursor = cursor


class Window(NamedTuple):
    """The requested limit and cursor of a list."""

    offset: int
    limit: int | None

    @classmethod
    def of(cls, offset: int | None, limit: int | None, cursor: str | None) -> Window:
        """Validate a caller's arguments; raises `InvalidInput`."""
        if cursor is not None and offset:
            raise InvalidInput("a cursor says where a page begins: give it or an offset, not both")
        return cls(_count(offset, "offset") or 0, _count(limit, "limit"))


def _count(number: int | None, what: str) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidInput(f"{what} is a whole number from 0 on, not {number!r:.80}")
    return min(number, _MOST)


def make_cursor(*parts: Any) -> str:
    """Encode a place in a list as a cursor."""
    return base64.urlsafe_b64encode(ormsgpack.packb(parts)).decode("ascii").rstrip("=")


def read_cursor(cursor: str, *kinds: type) -> list[Any]:
    """Decode a cursor; raises `InvalidInput` if it does not belong to this kind of list."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        parts = ormsgpack.unpackb(base64.b64decode(padded, b"-_", validate=True))
    except (AttributeError, UnicodeError, binascii.Error, ormsgpack.MsgpackDecodeError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) != len(kinds)
        or any(type(part) is not kind for part, kind in zip(parts, kinds, strict=True))
    ):
        raise InvalidInput(
            f"{cursor!r:.80} is no cursor of this list: take the one that the page before has"
        )
    return parts


# Messages of a thread.


_FURTHEST: Final = 1 << 62


@dataclass(slots=True, frozen=True)
class Filter:
    """The conditions of a message list, apart from its text search."""

    roles: Collection[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    metadata: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        role: str | Collection[str] | None,
        since: datetime | None,
        until: datetime | None,
        metadata: Mapping[str, Any] | None,
    ) -> Filter:
        """Validate a caller's arguments; raises `InvalidInput`."""
        roles = None if role is None else _roles([role] if isinstance(role, str) else role)
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
                raise InvalidInput(f"{name} is a datetime with a time zone, not {moment!r:.80}")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInput(f"metadata is a dict, not a {type(metadata).__name__}")
        return cls(roles, since, until, metadata)

    @property
    def is_open(self) -> bool:
        """Whether every message matches."""
        return self == Filter()

    def passes(self, message: Message) -> bool:
        """Whether a message matches."""
        if self.roles is not None and message.role not in self.roles:
            return False
        if self.since is not None and message.created_at < self.since:
            return False
        if self.until is not None and message.created_at >= self.until:
            return False
        return self.metadata is None or says(message.metadata, self.metadata)


def says(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether metadata contain the wanted values, equal in type too: 1 is not True."""
    return all(
        key in metadata and type(metadata[key]) is type(value) and metadata[key] == value
        for key, value in wanted.items()
    )


def _roles(given: Any) -> frozenset[str]:
    if not isinstance(given, Collection):
        raise InvalidInput(f"role is a role or a list of roles, not {given!r:.80}")
    for one in given:
        if one not in ROLES:
            raise InvalidInput(f"a role is one of {', '.join(ROLES)}, not {one!r:.80}")
    return frozenset(given)


def list_messages(
    contents: Contents,
    search: str | None,
    wanted: Filter,
    window: Window,
    cursor: str | None,
    newest_first: bool,
    find: Finder,
) -> Page[Message]:
    """Return a page of the matching messages."""
    if window.limit == 0:
        return Page()
    bounds = _bounds(cursor, newest_first)
    if search is not None:
        rows = find(contents, search, bounds, newest_first)
    else:
        start = contents.rank_of(bounds.first)
        stop = contents.message_count if bounds.stop is None else contents.rank_of(bounds.stop)
        if wanted.is_open:
            return _slice(contents, start, stop, window, newest_first)
        rows = contents.rows(start, stop, newest_first=newest_first)
    chosen = ((row.position, made) for row in rows if wanted.passes(made := message_of(row.stored)))
    return _page(islice(chosen, window.offset, None), window.limit, newest_first)


def _slice(
    contents: Contents, start: int, stop: int, window: Window, newest_first: bool
) -> Page[Message]:
    """A page of an unfiltered list, found by rank without reading the messages skipped."""
    size = stop - start if window.limit is None else window.limit
    if newest_first:
        stop = max(start, stop - window.offset)
        first, last = max(start, stop - size), stop
    else:
        first = min(stop, start + window.offset)
        last = min(stop, first + size)
    rows = contents.row_list(first, last)
    if newest_first:
        rows.reverse()
    more = first > start if newest_first else last < stop
    cursor = _after(rows[-1].position, newest_first) if more and rows else None
    return Page([message_of(row.stored) for row in rows], cursor)


def _page(
    chosen: Iterator[tuple[int, Message]], limit: int | None, newest_first: bool
) -> Page[Message]:
    found = list(chosen if limit is None else islice(chosen, limit + 1))
    if limit is None or len(found) <= limit:
        return Page([message for _, message in found])
    del found[limit:]
    return Page([message for _, message in found], _after(found[-1][0], newest_first))


def _after(position: int, newest_first: bool) -> str:
    """The cursor that continues after a message, or before it in descending order."""
    return make_cursor(position if newest_first else position + 1, newest_first)


def _bounds(cursor: str | None, newest_first: bool) -> Bounds:
    if cursor is None:
        return Bounds()
    position, reverse = read_cursor(cursor, int, bool)
    if not 0 <= position < _FURTHEST:
        raise InvalidInput(f"{cursor!r:.80} is no cursor of this list: it leads nowhere")
    if reverse is not newest_first:
        raise InvalidInput("the cursor is of a list in the other order: keep newest_first")
    return Bounds(stop=position) if newest_first else Bounds(first=position)


# Threads of a user.


_REMEMBERED: Final = 10_000


class _Seen(NamedTuple):
    """What a list of threads caches about a thread at a commit."""

    is_empty: bool
    record: bytes | None
    """Kept encoded, so that each caller decodes a copy of its own."""


class _Listed(NamedTuple):
    """The sort key of a thread: most recently changed first, then by name."""

    time: int
    space: str
    info: ThreadInfo

    @property
    def place(self) -> tuple[int, str]:
        return -self.time, self.space


class Directory:
    """The threads in a store, cached by commit; commits are immutable."""

    def __init__(self, store: Store, codec: Codec, objects: SharedObjects) -> None:
        self._store, self._codec, self._objects = store, codec, objects
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[ObjectId, _Seen] = OrderedDict()

    def list(
        self,
        users: Iterable[Id | None],
        search: str | None,
        metadata: Mapping[str, Any] | None,
        window: Window,
        cursor: str | None,
    ) -> Page[ThreadInfo]:
        """Return a page of the threads of some users."""
        if search is not None and not isinstance(search, str):
            raise InvalidInput(f"search is text, not a {type(search).__name__}")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInput(f"metadata is a dict, not a {type(metadata).__name__}")
        if window.limit == 0:
            return Page()
        begin = None
        if cursor is not None:
            time, space = read_cursor(cursor, int, str)
            begin = (-time, space)
        listed = [one for user in users for one in self._listed(user)]
        listed.sort(key=lambda one: one.place)
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
            None if last is None else make_cursor(last.time, last.space),
        )

    def owners(self) -> Sequence[Id | None]:
        """All users who have threads."""
        tenants = {split_name(space)[0] for space in self._store.spaces(tenant_of(None))}
        found = []
        for tenant in sorted(tenants):
            # Other applications may use tenants with the same prefix.
            with suppress(ValueError):
                found.append(user_of_tenant(tenant))
        return found

    def _listed(self, user: Id | None) -> Iterator[_Listed]:
        for space in self._store.spaces(f"{encode_part(tenant_of(user))}/"):
            name = split_name(space)[1]
            history = History(self._store, space, codec=self._codec, agent=name)
            commit = look(history, self._reader(history), None).commit
            try:
                info = self.info(Address(id_of(name), user, None), history, commit)
            except (FormatError, ValueError):
                continue  # Not a timeline of a thread: its contents or its name show that.
            if commit is not None and info is not None:
                yield _Listed(commit.time, space, info)

    def info(self, address: Address, history: History, commit: Commit | None) -> ThreadInfo | None:
        """The record of a thread at one of its commits; None if the thread is empty."""
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
        # A time set by the caller holds until the next change.
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
    return matches("\n".join([str(info.thread_id), info.thread_name or "", *_said(known)]), search)


def _said(value: Any) -> Iterator[str]:
    """The strings in metadata."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _said(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _said(inner)
