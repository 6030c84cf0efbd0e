"""Which threads a user has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from holdfast.errors import InvalidInput
from holdfast.store import Store, encode_part, split_name
from holdfast.threads._config import Address, Id, id_of, tenant_of
from holdfast.threads._contents import RECORD
from holdfast.threads._paging import Page, Window, make_cursor, read_cursor
from holdfast.threads._thread import Thread
from holdfast.threads._thread_info import ThreadInfo
from holdfast.threads._words import matches
from holdfast.tree import Commit


class _Listed(NamedTuple):
    """A thread in the order of a list: the latest changed first, then by name."""

    time: int
    name: str
    info: ThreadInfo

    @property
    def place(self) -> tuple[int, str]:
        return -self.time, self.name


class Directory:
    """The threads in a store."""

    def __init__(self, store: Store, open_thread: Callable[[str, str], Thread]) -> None:
        self._store, self._open = store, open_thread

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
            thread = self._open(space, name)
            commit = thread.look()
            info = info_of(Address(id_of(name), user, None), thread, commit)
            if commit is not None and info is not None:
                yield _Listed(commit.time, name, info)


def info_of(address: Address, thread: Thread, commit: Commit | None) -> ThreadInfo | None:
    """What is known about a thread at a commit; None if it is empty."""
    contents = thread.contents_at(commit)
    if commit is None or contents.is_empty:
        return None
    stored = contents.value(RECORD, {})
    stored.update(thread_id=address.thread_id)
    if address.user_id is not None:
        stored.update(user_id=address.user_id)
    stored.setdefault("updated_at", commit.time)
    return ThreadInfo.from_stored(stored)


def _is_wanted(info: ThreadInfo, search: str | None, metadata: Mapping[str, Any] | None) -> bool:
    known = info.metadata or {}
    if any(key not in known or known[key] != value for key, value in (metadata or {}).items()):
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
