"""When items end, and how reading them puts that off.

An item holds the moment when its time is over; a put sets it. A read that begins the time
again notes the new moment beside history, where it costs no commit. What is noted there may
be lost, so when half of an item's time is over, a read also writes the new moment into the
item. So an item never outlives its time, a read makes no commit but about twice in that time,
and if the notes are lost an item ends early, but not before half of its time after the last read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from math import inf, isfinite
from typing import Any, Final

from ropewalk.adapters.langgraph._store_records import Entry, Stored
from ropewalk.errors import InvalidInput
from ropewalk.store import Store

MINUTE: Final = 60_000_000
"""In microseconds."""

_LONGEST: Final = 100 * 366 * 24 * 60.0
"""In minutes. Every engine can count so far."""

_COARSE: Final = 100
"""A note is not renewed for less than this part of an item's time."""

_FEW: Final = 4
_TOGETHER: Final = 512
_NEVER: Final = inf


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def check_ttl(minutes: Any) -> float | None:
    """A time to live as it was given; raises `InvalidInput`."""
    if minutes is None:
        return None
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not is_number or not isfinite(minutes) or not 0 <= minutes <= _LONGEST:
        raise InvalidInput(
            f"a time to live is a number of minutes from 0 to {_LONGEST:.0f}, or None, not "
            f"{minutes!r:.80}"
        )
    return float(minutes)


def ending(moment: int, minutes: float | None) -> int | None:
    """When the time of an item is over that begins at a moment."""
    return None if minutes is None else moment + round(minutes * MINUTE)


class Expiry:
    """Knows what is over. Safe to share between threads.

    Items are handed over as they are stored: their keys, and the dicts beneath these.
    """

    def __init__(self, store: Store, space: str, clock: Callable[[], int] = now) -> None:
        self._scratch, self.clock = store.scratch(), clock
        self._prefix = f"expiry/{space}/"

    def living(self, found: Iterable[Entry], moment: int) -> Iterator[Entry]:
        """Those whose time is not over, in their order."""
        entries = iter(found)
        while some := list(islice(entries, _TOGETHER)):
            over = [one for one in some if one[1].get("expires_at", _NEVER) <= moment]
            if over:
                noted = self._noted(over)
                gone = {key for key, _ in over if noted.get(key, 0) <= moment}
                yield from (one for one in some if one[0] not in gone)
            else:
                yield from some

    def is_living(self, key: str, stored: Stored, moment: int) -> bool:
        """Whether the time of an item is not over."""
        return any(self.living([(key, stored)], moment))

    def renew(self, read: Iterable[Entry], moment: int) -> list[str]:
        """Begin the time of what was read again; the keys of those that must hold it themselves."""
        written: list[str] = []
        for key, stored in read:
            ttl, known = stored.get("ttl"), stored.get("expires_at")
            end = ending(moment, ttl)
            if ttl is None or known is None or end is None:
                continue
            if known - moment < ttl * MINUTE / 2:
                written.append(key)
            elif end - known > ttl * MINUTE / _COARSE:
                note = f"{stored['version']} {end}".encode()
                self._scratch.put(self._key(key), note, (end - moment) / 1_000_000 + 60)
        return written

    def _noted(self, found: list[Entry]) -> dict[str, int]:
        """When items end, as notes say; those without one are left out."""
        if len(found) > _FEW:
            known = set(self._scratch.keys(self._prefix))
            found = [one for one in found if self._key(one[0]) in known]
        noted: dict[str, int] = {}
        for key, stored in found:
            note = self._scratch.get(self._key(key))
            version, _, end = (note or b"").partition(b" ")
            # A note for another version says nothing about this one.
            if version == str(stored["version"]).encode() and end.isdigit():
                noted[key] = int(end)
        return noted

    def _key(self, key: str) -> str:
        return self._prefix + blake2b(key.encode(), digest_size=20).hexdigest()
