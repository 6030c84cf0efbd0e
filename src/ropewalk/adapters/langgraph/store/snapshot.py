"""A memory at one commit: its entries, their expiry, and their history.

An item contains its expiry time, set by a put. A read that renews an item notes the new time
beside history, which costs no commit. Such a note may be lost, so once half of an item's lifetime
is over, a read also writes the new time into the item. An item therefore never outlives its time,
reads make at most about two commits per lifetime, and if notes are lost an item expires early, but
not before half of its lifetime after the last read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from itertools import islice, pairwise
from math import inf, isfinite
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph.store.items import (
    GONE,
    ITEM,
    NAMESPACE,
    SIZES,
    Counted,
    Entry,
    ItemVersion,
    Name,
    Record,
    Stored,
    Tombstone,
    beginning,
    bounds,
    exactly,
    to_datetime,
    to_key,
    to_microseconds,
    to_name,
)
from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput
from ropewalk.history import MAIN, Commit, History
from ropewalk.store import Operation, Store, ref_name
from ropewalk.tree import ID_SIZE, Map, ObjectId, Reader

_TOGETHER: Final = 512
"""How many entries are read at a time if the number needed is unknown."""

_FEW: Final = 4
"""Up to this many are looked up one by one, through cached nodes."""
_LOW: Final = "\0"
"""Sorts before every kind of key."""

MINUTE: Final = 60_000_000
"""In microseconds."""

_LONGEST: Final = 100 * 366 * 24 * 60.0
"""In minutes. The longest that every engine can represent."""

_COARSE: Final = 100
"""A note is renewed only after this fraction of an item's lifetime."""

_NEVER: Final = inf
POSITION_KEY: Final = "ropewalk_memory"
"""The key in a checkpoint's metadata with the memory's commit."""

HEAD: Final = ref_name("branch", MAIN)


class Snapshot:
    """The entries of a map with a root; None before the first commit. Thread-safe."""

    def __init__(self, root: ObjectId | None, read: Reader, codec: Codec) -> None:
        self.root, self._read, self._codec = root, read, codec
        self._map = None if root is None else Map(root, read, codec)

    def version(self, root: ObjectId | None) -> Snapshot:
        """Another version, with the same reader and codec."""
        made = Snapshot(root, self._read, self._codec)
        if self._map is not None and root is not None:
            made._map = self._map.version(root)
        return made

    def entries(self, keys: Iterable[str]) -> dict[str, Any]:
        """Those of the entries that exist."""
        found, asked = self._map, list(keys)
        if found is None:
            return {}
        if len(asked) > _FEW:
            return dict(found.pick(asked))
        return {key: found[key] for key in asked if key in found}

    def items(self, names: Iterable[Name]) -> dict[str, Stored]:
        """Those of the items that exist, expired or not."""
        return self.entries([to_key(ITEM, name) for name in names])

    def item(self, name: Name) -> Record | None:
        """One item."""
        return next(map(Record.from_stored, self.items([name]).values()), None)

    def tombstone(self, name: Name) -> Tombstone | None:
        """The tombstone of a deleted item."""
        found = self.entries([to_key(GONE, name)])
        return next((Tombstone(**stored) for stored in found.values()), None)

    def below(self, prefix: tuple[str, ...]) -> Iterator[Entry]:
        """All items of a namespace and of those below it."""
        return self.under(beginning(ITEM, prefix))

    def within(self, namespace: tuple[str, ...]) -> Iterator[Entry]:
        """All items of a namespace, without those below it."""
        return self.under(exactly(ITEM, namespace))

    def namespaces(self, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Counted]]:
        """The namespaces with a prefix, and the number of items in each."""
        for key, stored in self.under(beginning(NAMESPACE, prefix)):
            yield to_name(key).namespace, Counted(**stored)

    def under(self, text: str) -> Iterator[tuple[str, Any]]:
        """All entries whose keys have a prefix; no others are read."""
        if self._map is None:
            return
        for bound in bounds(text):
            if len(bound.start.encode()) not in self._sizes:
                continue
            places = self._map.places(bound.start, bound.stop)
            for low in range(places.start, places.stop, _TOGETHER):
                yield from self._map.slice(low, min(low + _TOGETHER, places.stop))

    def differing(self, other: Snapshot) -> list[str] | None:
        """The keys whose entries differ between two snapshots; None if one has no map."""
        if self._map is None or other._map is None:
            return None
        return self._map.differing(other._map)

    @cached_property
    def _sizes(self) -> set[int]:
        """The lengths of keys that occur, so that others need not be searched."""
        if self._map is None:
            return set()
        found: set[int] = set()
        begin, total = 0, len(self._map)
        for size, longer in pairwise((*SIZES, SIZES[-1] + 1)):
            if begin < total:
                end = len(self._map.places(None, _LOW * longer))
                found.update([size] * (end > begin))
                begin = end
        return found


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def check_ttl(minutes: Any) -> float | None:
    """Validate a time to live; raises `InvalidInput`."""
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
    """The expiry of an item whose lifetime begins at a moment."""
    return None if minutes is None else moment + round(minutes * MINUTE)


class Expiry:
    """Tracks which items have expired. Safe to share between threads.

    Items are passed in stored form: their keys, and the dicts beneath these.
    """

    def __init__(self, store: Store, space: str, clock: Callable[[], int] = now) -> None:
        self._scratch, self.clock = store.scratch(), clock
        self._prefix = f"expiry/{space}/"

    def living(self, found: Iterable[Entry], moment: int) -> Iterator[Entry]:
        """Those that have not expired, in order."""
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
        """Whether an item has not expired."""
        return any(self.living([(key, stored)], moment))

    def renew(self, read: Iterable[Entry], moment: int) -> list[str]:
        """Renew items that were read; returns the keys of those whose entries must be rewritten."""
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
        """The expiry times in notes; items without a note are left out."""
        if len(found) > _FEW:
            known = set(self._scratch.keys(self._prefix))
            found = [one for one in found if self._key(one[0]) in known]
        noted: dict[str, int] = {}
        for key, stored in found:
            note = self._scratch.get(self._key(key))
            version, _, end = (note or b"").partition(b" ")
            # A note for another version is stale.
            if version == str(stored["version"]).encode() and end.isdigit():
                noted[key] = int(end)
        return noted

    def _key(self, key: str) -> str:
        return self._prefix + blake2b(key.encode(), digest_size=20).hexdigest()


def key_history(snapshot: Snapshot, name: Name) -> Iterator[ItemVersion]:
    """The versions of a key, newest first. Changes of other keys are not read."""
    while snapshot.root is not None:
        record = snapshot.item(name)
        if record is not None:
            time = to_datetime(record.updated_at)
            yield ItemVersion(record.version, record.value, time, False)
            before = record.before
        else:
            gone = snapshot.tombstone(name)
            if gone is None:
                return
            yield ItemVersion(gone.version, None, to_datetime(gone.deleted_at), True)
            before = gone.before
        snapshot = snapshot.version(before or None)


class Moment(NamedTuple):
    """A commit, None before the first, and the time of the view."""

    commit: Commit | None
    time: int


def moment_of(history: History, given: Any, saver: Any = None) -> Moment:
    """Resolve a moment; raises `InvalidInput` and `NotFound`."""
    if isinstance(given, Mapping) and "configurable" in given:
        given = _checkpoint_of(given, saver)
    meant = _meant(given)
    if isinstance(meant, datetime):
        return _at_time(history, to_microseconds(meant))
    if not meant:
        return Moment(None, 0)
    commit = history.resolve(meant)
    return Moment(commit, commit.time)


def _checkpoint_of(config: Mapping[str, Any], saver: Any) -> Any:
    if saver is None:
        raise InvalidInput(
            "a config names a checkpoint, and a checkpointer has to find it: at(config, "
            "saver=checkpointer)"
        )
    found = saver.get_tuple(config)
    if found is None:
        raise InvalidInput(f"the checkpointer has no checkpoint for {config!r:.200}")
    return found


def _meant(given: Any) -> bytes | str | datetime:
    """The id of a commit, empty before the first, or a time."""
    if isinstance(given, Commit):
        return given.id
    if isinstance(given, bytes) and len(given) == ID_SIZE:
        return given
    if isinstance(given, datetime):
        return given
    if isinstance(given, str):
        return given if given == "" or len(given) == 2 * ID_SIZE else _time(given)
    metadata = getattr(given, "metadata", None)
    if isinstance(metadata, Mapping) and isinstance(metadata.get(POSITION_KEY), str):
        return str(metadata[POSITION_KEY])
    checkpoint = getattr(given, "checkpoint", given)
    made = checkpoint.get("ts") if isinstance(checkpoint, Mapping) else None
    return _time(made if made is not None else getattr(given, "created_at", None))


def _time(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidInput(
            "a moment is the id of a commit, as position() gives it, a datetime, or a checkpoint, "
            f"not {text!r:.80}"
        ) from None


def _at_time(history: History, time: int) -> Moment:
    """The newest commit at a time, by binary search in the log of operations."""
    low, high = 0, history.store.view(history.space).sequence
    while low < high:
        middle = (low + high + 1) // 2
        if _operation(history, middle).time <= time:
            low = middle
        else:
            high = middle - 1
    target = _target_at(history, low)
    if target is not None:
        return Moment(history.resolve(target), time)
    return Moment(_before_arrival(history, time), time)


def _operation(history: History, number: int) -> Operation:
    return history.operations(number - 1, 1)[0]


def _target_at(history: History, number: int) -> bytes | None:
    """The head of the branch after an operation; None if there was none."""
    while number > 0:
        for move in _operation(history, number).moves:
            if move.name == HEAD:
                return move.target
        number -= 1
    return None


def _before_arrival(history: History, time: int) -> Commit | None:
    """The commit before a migration of the memory to this store, whose log begins there."""
    first = next((one for one in history.operations(0, 16) if one.arrived), None)
    target = next((m.target for m in first.moves if m.name == HEAD), None) if first else None
    if target is None:
        return None
    return next((one for one in history.steps(target) if one.time <= time), None)
