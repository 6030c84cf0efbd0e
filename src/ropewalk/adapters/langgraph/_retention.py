"""What is kept of a thread, and what is dropped. Entries change; what they point to does not."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, Final, TypeAlias

from ropewalk.adapters.langgraph._delta import trail
from ropewalk.adapters.langgraph._entries import Address, Entry
from ropewalk.adapters.langgraph._index import PINS, ROOT, Index
from ropewalk.adapters.langgraph._reading import History
from ropewalk.adapters.langgraph._writing import Seen, Work
from ropewalk.codec import default_codec
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.tree._parts import links_in

Change: TypeAlias = Callable[[Work, Seen], None]
COUNTERS: Final = "counters_since_delta_snapshot"
"""In the metadata of a checkpoint: its delta channels."""


def kept_last(number: int, whole: bool) -> Change:
    """Keep so many of the newest checkpoints of each namespace, and those that are pinned.

    What lost a race is not among the newest. If it is `whole`, a subgraph's checkpoints go with
    the step in which they were made.
    """

    def change(work: Work, seen: Seen) -> None:
        def is_aside(entry: Entry) -> bool:
            return work.record(entry).aside

        index, pins = seen.checkpoints, _pins(seen.checkpoints)
        stays = {Address(*where) for where in pins.values()}
        for namespace in index.namespaces():
            newest = (one for one in index.newest_first(namespace) if not is_aside(one.entry))
            stays.update(one.address for one in islice(newest, number))
        if whole:
            stays = _with_their_steps(work, index, stays)
        _keep(work, seen, stays)

    return change


def without_runs(runs: Collection[str]) -> Change:
    """Drop the checkpoints of runs."""

    def change(work: Work, seen: Seen) -> None:
        def is_kept(entry: Entry) -> bool:
            run = work.record(entry).metadata.get("run_id")
            return run is None or str(run) not in runs

        found = seen.checkpoints.newest_first()
        _keep(work, seen, {one.address for one in found if is_kept(one.entry)})

    return change


def pinned(name: str, address: Address) -> Change:
    """Keep a checkpoint under a name."""
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a pin has a name, not {name!r:.80}")

    def change(work: Work, seen: Seen) -> None:
        work.notes = _noted(seen, {**_pins(seen.checkpoints), name: list(address)})

    return change


def unpinned(name: str) -> Change:
    """Let a pinned checkpoint go."""

    def change(work: Work, seen: Seen) -> None:
        pins = _pins(seen.checkpoints)
        if name not in pins:
            raise NotFound(f"no checkpoint of the thread is pinned as {name!r:.80}")
        work.notes = _noted(seen, {one: at for one, at in pins.items() if one != name})

    return change


def copied(source: Seen) -> Change:
    """Take over all checkpoints of another thread."""

    def change(work: Work, seen: Seen) -> None:
        for address, entry, writes in source.checkpoints.newest_first():
            work.set(address, entry)
            if writes is not None:
                work.set_writes(address, writes)
            work.need([*links_in(entry.values), *links_in(writes or b"")])
            work.need([] if entry.before is None else [entry.before])
        pins = _pins(source.checkpoints)
        if pins:
            work.notes = _noted(seen, {**_pins(seen.checkpoints), **pins})

    return change


def _pins(index: Index) -> dict[str, list[str]]:
    found: dict[str, list[str]] = index.notes(default_codec).get(PINS, {})
    return found


def _noted(seen: Seen, pins: dict[str, list[str]]) -> dict[str, Any]:
    return {**seen.checkpoints.notes(default_codec), PINS: pins}


def _with_their_steps(work: Work, index: Index, stays: set[Address]) -> set[Address]:
    """Without the checkpoints of subgraphs whose step of the graph is dropped."""

    def is_kept(address: Address) -> bool:
        entry = index.get(address)
        if address.namespace == ROOT or entry is None:
            return True
        step = (work.record(entry).metadata.get("parents") or {}).get(ROOT)
        return step is None or Address(ROOT, step) in stays

    return {address for address in stays if is_kept(address)}


def _keep(work: Work, seen: Seen, stays: Collection[Address]) -> None:
    """Drop all checkpoints but some, whose delta channels stay what they are."""
    index = seen.checkpoints
    dropped = dict.fromkeys(a for a in map(Address.of, index.keys()) if a not in stays)
    if not dropped:
        return
    gone = set(dropped)
    reader = History(work.keeping_loader())
    for address in stays:
        entry = index.get(address)
        if entry is not None:
            _keep_deltas(work, index, reader, address, entry, gone)
    for address in dropped:
        work.drop(address)


def _keep_deltas(
    work: Work,
    index: Index,
    reader: History,
    address: Address,
    entry: Entry,
    gone: Collection[Address],
) -> None:
    """Note what the delta channels of a checkpoint are made of, if that is about to be dropped."""
    record = work.record(entry)
    channels = [str(name) for name in record.metadata.get(COUNTERS) or ()]
    if not channels or record.parent is None or Address(address[0], record.parent) not in gone:
        return
    found = trail(index, reader, address, channels)
    before: dict[str, Any] = {}
    for channel, one in found.items():
        seed = [one["seed"]] if "seed" in one else []
        before[channel] = [[list(write) for write in one["writes"]], *seed]
    work.set(address, entry._replace(before=work.map_of(before)))
