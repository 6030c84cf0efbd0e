"""The embedded engine: one folder with an SQLite database."""

from __future__ import annotations

from ropewalk.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
