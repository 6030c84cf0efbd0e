"""A store in a folder of one machine: what the embedded store and plain files share."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal, Unpack

from ropewalk.errors import InvalidInput
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._listeners import Listeners
from ropewalk.store.contract import StoreOptions
from ropewalk.store.log import LogStore
from ropewalk.store.model import Capabilities, Durability, Header
from ropewalk.store.usage import folder_bytes


class FolderStore(LogStore):
    """The base of stores in a folder, for several processes and threads at once."""

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.02

    # What tests of crashes put their own in the place of.
    _disk: ClassVar[Filesystem] = Filesystem()

    _header: Header

    def __init__(
        self,
        path: str | PathLike[str],
        durability: Literal["full", "relaxed"],
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        if durability not in ("full", "relaxed"):
            raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r}")
        self.path = Path(path).absolute()
        self._durability: Durability = durability
        self._listeners = Listeners()

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        return self._durability

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for what this store object commits; what others commit is looked for."""
        return self._listeners.add(space, wake)

    def _disk_bytes(self) -> int:
        return folder_bytes(self.path)
