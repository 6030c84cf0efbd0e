"""When items end, and how reading them puts that off.

An item holds the moment when its time is over; a put sets it. A read that begins the time
again notes the new moment beside history, where it costs no commit. What is noted there may
be lost, so when half of an item's time is over, a read also writes the new moment into the
item. So an item never outlives its time, a read makes no commit but about twice in that time,
and if the notes are lost an item ends early, but not before half of its time after the last read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import isfinite
from typing import Any, Final

from holdfast.adapters.langgraph._store_keys import ITEM, Name, to_key
from holdfast.adapters.langgraph._store_records import Record
from holdfast.errors import InvalidInput
from holdfast.store import Store

MINUTE: Final = 60_000_000
"""In microseconds."""

_LONGEST: Final = 100 * 366 * 24 * 60.0
"""In minutes. Every engine can count so far."""

_COARSE: Final = 100
"""A note is not renewed for less than this part of an item's time."""

_FEW: Final = 4


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
    """Knows what is over. Safe to share between threads."""

    def __init__(self, store: Store, space: str, clock: Callable[[], int] = now) -> None:
        self._scratch, self.clock = store.scratch(), clock
        self._prefix = f"expiry/{space}/"

    def living(
        self, found: Iterable[tuple[Name, Record]], moment: int
    ) -> list[tuple[Name, Record]]:
        """Those whose time is not over, in their order."""
        listed = list(found)
        over = [one for one in listed if _is_due(one[1], moment)]
        if not over:
            return listed
        noted = self._noted(over)
        gone = {name for name, record in over if noted.get(name, 0) <= moment}
        return [one for one in listed if one[0] not in gone]

    def is_living(self, name: Name, record: Record, moment: int) -> bool:
        """Whether the time of an item is not over."""
        return bool(self.living([(name, record)], moment))

    def renew(self, read: Iterable[tuple[Name, Record]], moment: int) -> list[Name]:
        """Begin the time of what was read again; those that must hold that themselves."""
        written: list[Name] = []
        for name, record in read:
            end = ending(moment, record.ttl)
            if end is None or record.expires_at is None or record.ttl is None:
                continue
            if record.expires_at - moment < record.ttl * MINUTE / 2:
                written.append(name)
            elif end - record.expires_at > record.ttl * MINUTE / _COARSE:
                self._note(name, record, end, moment)
        return written

    def _note(self, name: Name, record: Record, end: int, moment: int) -> None:
        seconds = (end - moment) / 1_000_000
        self._scratch.put(self._key(name), f"{record.version} {end}".encode(), seconds + 60)

    def _noted(self, found: list[tuple[Name, Record]]) -> dict[Name, int]:
        """When items end, as notes say; those without one are left out."""
        if len(found) > _FEW:
            known = set(self._scratch.keys(self._prefix))
            found = [one for one in found if self._key(one[0]) in known]
        noted: dict[Name, int] = {}
        for name, record in found:
            note = self._scratch.get(self._key(name))
            version, _, end = (note or b"").partition(b" ")
            # A note for another version says nothing about this one.
            if version == str(record.version).encode() and end.isdigit():
                noted[name] = int(end)
        return noted

    def _key(self, name: Name) -> str:
        return self._prefix + blake2b(to_key(ITEM, name).encode(), digest_size=20).hexdigest()


def _is_due(record: Record, moment: int) -> bool:
    return record.expires_at is not None and record.expires_at <= moment
