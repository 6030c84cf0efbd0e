"""One way to open a store, whatever its engine."""

from __future__ import annotations

from os import PathLike, fspath

from holdfast.errors import InvalidInput
from holdfast.store._contract import Store
from holdfast.store._memory import MemoryStore

DEFAULT_FOLDER = ".holdfast"


def open(url: str | PathLike[str] | None = None) -> Store:
    """Open a store, and make it if it is not there.

    A path is the folder of a `SqliteStore`; without one it is `.holdfast` in the current
    folder. `memory://` is a new `MemoryStore`. Raises `InvalidInput` for anything else.
    """
    given = DEFAULT_FOLDER if url is None else url
    place = fspath(given) if isinstance(given, str | PathLike) else None
    if not isinstance(place, str) or not place:
        raise InvalidInput(f"a store is opened by a path or a URL, not {url!r:.80}")
    if place == "memory://":
        return MemoryStore()
    scheme, separator, _ = place.partition("://")
    if separator and isinstance(url, str):
        raise InvalidInput(
            f"no engine opens {scheme}:// here. There are: a path, for a store in that folder, "
            "and memory://."
        )
    from holdfast.store._sqlite import SqliteStore

    return SqliteStore(place)
