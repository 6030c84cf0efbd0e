"""The engine of plain files."""

from ropewalk.store.files.store import FileStore

__all__ = ["FileStore"]
