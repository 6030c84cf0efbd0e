"""The engines that are in the box, each opened again and again as other processes would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from ropewalk.store import FileStore, MemoryStore, SqliteStore, Store

Opener: TypeAlias = Callable[[], Store]

ENGINES: dict[str, type[FileStore | SqliteStore] | None] = {
    "memory": None,
    "sqlite": SqliteStore,
    "files": FileStore,
}


@contextmanager
def opening(engine: str, folder: Path) -> Iterator[Opener]:
    """A way to open one more store object on the same data; all are closed at the end."""
    memory = MemoryStore()
    opened: list[Store] = [memory]

    def open_one() -> Store:
        made = ENGINES[engine]
        store = made(folder / "store", durability="relaxed") if made else memory.another()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()
