"""What a caller may hand over where a store is wanted."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from ropewalk.errors import InvalidInput
from ropewalk.store.contract import Store

if TYPE_CHECKING:
    from ropewalk.store.records.key_value import KVStore


def store_of(given: Store | KVStore | str | PathLike[str] | None) -> tuple[Store, bool]:
    """The store for what was handed over, and whether whoever asks has to close it.

    None gives a new one in memory.
    """
    if given is None:
        from ropewalk.store.memory import MemoryStore

        return MemoryStore(), True
    if isinstance(given, Store):
        return given, False
    if isinstance(given, str | PathLike):
        from ropewalk.store._open import open as open_store

        return open_store(given), True
    from ropewalk.store.records.key_value import KVStore

    if isinstance(given, KVStore):
        return given.as_store(), False
    raise InvalidInput(
        "what is stored is kept in a Store, a KVStore, or at a path or URL, not in a "
        f"{type(given).__name__}"
    )
