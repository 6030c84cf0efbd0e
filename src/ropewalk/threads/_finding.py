"""Finding the messages of a thread by what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ropewalk.threads._contents import Contents, Row
from ropewalk.threads._listing import Bounds, Finder
from ropewalk.threads._message import Message
from ropewalk.threads._search import Part, Searcher
from ropewalk.threads._thread import Thread
from ropewalk.threads._words import Query
from ropewalk.tree import ObjectId


def finder(thread: Thread) -> Finder:
    """What finds messages of a thread."""
    index = thread.history.store.text_index()

    def find(contents: Contents, search: str, bounds: Bounds, newest_first: bool) -> Iterator[Row]:
        if contents.root is None:
            return iter(())
        part = Part(bounds.first - 1 if bounds.first else None, bounds.stop, newest_first)
        searcher = Searcher(index, scope_of(thread), _Rows(contents, contents.root), _text)
        return (Row(*found) for found in searcher.find(Query.parse(search), part))

    return find


def scope_of(thread: Thread) -> str:
    """What names the messages of a thread in an index of words."""
    return f"{thread.history.space}/{thread.branch}"


class _Rows:
    """The messages of a thread, as they are searched."""

    def __init__(self, contents: Contents, root: ObjectId) -> None:
        self._contents, self.root = contents, root

    def __len__(self) -> int:
        return self._contents.message_count

    def range(
        self, start: int | None = None, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        rank_of = self._contents.rank_of
        first = 0 if start is None else rank_of(start)
        return self._contents.rows(
            first, None if stop is None else rank_of(stop), newest_first=reverse
        )

    def pick(self, keys: Iterable[int]) -> Iterator[Row]:
        return iter(self._contents.rows_at(keys))

    def version(self, root: ObjectId) -> _Rows:
        return _Rows(self._contents.version(root), root)

    def differing(self, other: _Rows) -> list[int]:
        return self._contents.differing(other.root)


def _text(stored: dict[str, object]) -> str:
    return Message.from_stored(stored).text
