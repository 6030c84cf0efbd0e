"""How durable diskcache is, on which kvgit and agex keep what is on disk."""

from __future__ import annotations

from typing import Any

from bench._model import Durability

_SYNCHRONOUS = {"full": 2, "relaxed": 1}

NOTE = (
    "on diskcache, whose own setting is SQLite's synchronous=NORMAL, our relaxed; for full it is "
    "set to FULL. Values from 32 KB on are files, which diskcache never syncs, so even then a "
    "power loss may take them"
)

OWN_NOTE = (
    "on diskcache at its own setting, SQLite's synchronous=NORMAL, our relaxed; values from 32 KB "
    "on are files, which it never syncs"
)


def set_durability(cache: Any, durability: Durability) -> None:
    """Set what a commit survives; the setting is kept in the cache's folder."""
    wanted = _SYNCHRONOUS[durability]
    if cache.sqlite_synchronous != wanted:
        cache.reset("sqlite_synchronous", wanted)
