"""Looking back: the versions of one key, and the whole memory as it was at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph._store_keys import Name
from ropewalk.adapters.langgraph._store_records import (
    ItemVersion,
    to_datetime,
    to_microseconds,
)
from ropewalk.adapters.langgraph._store_snapshot import Snapshot
from ropewalk.errors import InvalidInput
from ropewalk.history import MAIN, Commit, History
from ropewalk.store import Operation, ref_name
from ropewalk.tree import ID_SIZE

POSITION_KEY: Final = "ropewalk_memory"
"""Where the metadata of a checkpoint say at which commit the memory was."""

HEAD: Final = ref_name("branch", MAIN)


def key_history(snapshot: Snapshot, name: Name) -> Iterator[ItemVersion]:
    """The versions of a key, the newest first. What other keys did in between is not read."""
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
    """A commit, None before the first, and when it is looked at."""

    commit: Commit | None
    time: int


def moment_of(history: History, given: Any, saver: Any = None) -> Moment:
    """The moment that somebody means; raises `InvalidInput` and `NotFound`."""
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
    """The commit that was the newest at a time: the log of operations is searched by halves."""
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
    """Where the branch was after an operation; None if there was none."""
    while number > 0:
        for move in _operation(history, number).moves:
            if move.name == HEAD:
                return move.target
        number -= 1
    return None


def _before_arrival(history: History, time: int) -> Commit | None:
    """What was there before the memory was moved to this store, which has no log of that."""
    first = next((one for one in history.operations(0, 16) if one.arrived), None)
    target = next((m.target for m in first.moves if m.name == HEAD), None) if first else None
    if target is None:
        return None
    return next((one for one in history.steps(target) if one.time <= time), None)
