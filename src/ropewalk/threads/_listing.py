"""Listing messages: filters, order and pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.errors import InvalidInput
from ropewalk.threads._contents import Contents, Row
from ropewalk.threads._message import ROLES, Message
from ropewalk.threads._paging import Page, Window, make_cursor, read_cursor

_FURTHEST: Final = 1 << 62


class Bounds(NamedTuple):
    """The positions [first, stop)."""

    first: int = 0
    stop: int | None = None


Finder: TypeAlias = Callable[[Contents, str, Bounds, bool], Iterator[Row]]
"""Finds messages that say something, in order or newest first."""


@dataclass(slots=True, frozen=True)
class Filter:
    """Which messages are wanted, beside what they say."""

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
        """What a caller asked for; raises `InvalidInput`."""
        roles = None if role is None else _roles([role] if isinstance(role, str) else role)
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
                raise InvalidInput(f"{name} is a datetime with a time zone, not {moment!r:.80}")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInput(f"metadata is a dict, not a {type(metadata).__name__}")
        return cls(roles, since, until, metadata)

    @property
    def is_open(self) -> bool:
        """Whether every message passes."""
        return self == Filter()

    def passes(self, message: Message) -> bool:
        """Whether a message is wanted."""
        if self.roles is not None and message.role not in self.roles:
            return False
        if self.since is not None and message.created_at < self.since:
            return False
        if self.until is not None and message.created_at >= self.until:
            return False
        return self.metadata is None or says(message.metadata, self.metadata)


def says(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether metadata hold what is wanted: equal values of equal types, so 1 is not True."""
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


def message_of(stored: dict[str, Any]) -> Message:
    """A stored message, with what was said of all that were put with it."""
    about = stored.pop("about", None)
    if about is not None:
        stored["metadata"] = {**about, **stored.get("metadata", {})}
    return Message.from_stored(stored)


def list_messages(
    contents: Contents,
    search: str | None,
    wanted: Filter,
    window: Window,
    cursor: str | None,
    newest_first: bool,
    find: Finder,
) -> Page[Message]:
    """A page of the messages that are wanted."""
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
    """A page of all messages: found by counting, without reading what is skipped."""
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
    """The cursor of a page that goes on from a message: before it, or after it."""
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
