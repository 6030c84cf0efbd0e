"""The engine for Postgres: one schema of a database."""

from __future__ import annotations

from ropewalk.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
