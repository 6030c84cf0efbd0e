"""Where a state is kept: what a caller may hand over for it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInput
from holdfast.store import MemoryStore, Store
from holdfast.store import open as open_store

if TYPE_CHECKING:
    from holdfast.store import KVStore


def store_of(given: Store | KVStore | str | PathLike[str] | None) -> tuple[Store, bool]:
    """The store for what was handed over, and whether whoever asks has to close it."""
    if given is None:
        return MemoryStore(), True
    if isinstance(given, Store):
        return given, False
    if isinstance(given, str | PathLike):
        return open_store(given), True
    from holdfast.store import KVStore

    if isinstance(given, KVStore):
        return given.as_store(), False
    raise InvalidInput(
        f"a state is kept in a Store, a KVStore, or at a path or URL, not in a "
        f"{type(given).__name__}"
    )
