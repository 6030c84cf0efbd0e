"""Pruning, pinning, copying and deleting checkpoints; and the history of delta channels.

Dropping checkpoints writes a new chain of those that stay, with one commit of the store. What
they hold is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ropewalk.adapters.langgraph.saver.checkpoints import (
    CHECKPOINTS,
    EARLY,
    NAMESPACE,
    PUT,
    ROOT,
    Address,
    Draft,
    State,
    Step,
    Written,
    encode_record,
    events_of,
    key_of,
    make_steps,
    parts_in,
    space_of,
)
from ropewalk.adapters.langgraph.saver.log import Landing, Log, Place, Steps, listed
from ropewalk.adapters.langgraph.saver.values import History
from ropewalk.codec import default_codec, inspection_codec
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.store import Move, Store
from ropewalk.tree import Loader, Object, ObjectId, TreeWriter, links

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory


Change: TypeAlias = Callable[[Log], Landing | None]
"""What is done to a thread; None if there is nothing to do."""
COUNTERS: Final = "counters_since_delta_snapshot"
"""In the metadata of a checkpoint: its delta channels."""


def deleted(thread: str, log: Log) -> Landing | None:
    """Delete the ref of a thread."""
    if log.target is None:
        return None
    return Landing([], [], [], Move(CHECKPOINTS, log.target, None), {})


def kept_last(thread: str, number: int, whole: bool) -> Change:
    """Keep the newest `number` checkpoints of each namespace, and the pinned ones.

    Checkpoints that are `aside` do not count. If `whole`, a subgraph's checkpoints are dropped
    with the step of its graph in which they were made.
    """

    def change(log: Log) -> Landing | None:
        stays = set(log.pins().values())
        by_namespace: dict[str, list[Step]] = {}
        for one in listed(log):
            if not one.step.aside:
                by_namespace.setdefault(one.address.namespace, []).append(one.step)
        for several in by_namespace.values():
            stays.update(step.address for step in islice(several, number) if step.address)
        return _kept(thread, log, _with_their_steps(log, stays) if whole else stays)

    return change


def without_runs(thread: str, runs: Collection[str]) -> Change:
    """Drop the checkpoints of runs."""

    def change(log: Log) -> Landing | None:
        reader, stays = History(Loader(log.read, inspection_codec)), set()
        for one in listed(log):
            run = reader.record(one.step).metadata.get("run_id")
            if run is None or str(run) not in runs:
                stays.add(one.address)
        return _kept(thread, log, stays)

    return change


def pinned(thread: str, name: str, address: Address) -> Change:
    """Keep a checkpoint under a name."""
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a pin has a name, not {name!r:.80}")

    def change(log: Log) -> Landing | None:
        return _noting(thread, log, {**log.pins(), name: address})

    return change


def unpinned(thread: str, name: str) -> Change:
    """Remove a pin."""

    def change(log: Log) -> Landing | None:
        pins = log.pins()
        if name not in pins:
            raise NotFound(f"no checkpoint of the thread is pinned as {name!r:.80}")
        kept = {one: at for one, at in pins.items() if one != name}
        return _noting(thread, log, kept)

    return change


def copied(store: Store, source: str, target: str) -> Change:
    """Copy all checkpoints of another thread into this one."""

    def change(log: Log) -> Landing | None:
        read = store.reader(space_of(source))
        theirs = Log(store, space_of(source), read, Steps(read))
        if theirs.head is None:
            return None
        taken = [Draft.of(step) for step in reversed([*theirs.walk()]) if _holds(step)]
        replaced = {draft.address for draft in taken}
        objects = _absent(store, log.space, read, taken)
        own = _drafts(log, lambda address: address not in replaced, objects)
        pins = {**log.pins(), **theirs.pins()}
        return _rewritten(target, log, [*own, *taken], pins, objects)

    return change


def _noting(thread: str, log: Log, pins: Mapping[str, Address]) -> Landing:
    """A commit that says which checkpoints are pinned."""
    if log.head is None:
        raise NotFound(f"thread {thread!r:.80} was deleted meanwhile")
    draft = Draft(log.head.commit.root, description="pins")
    steps, objects, needs = make_steps(thread, [draft], log.state, log.head, pins=pins)
    return Landing(steps, objects, needs, Move(CHECKPOINTS, log.target, steps[-1].id), {})


def _rewritten(
    thread: str,
    log: Log,
    drafts: Sequence[Draft],
    pins: Mapping[str, Address],
    objects: Sequence[Object],
) -> Landing:
    """A new chain in the place of that of a log, with its index in the last commit."""
    if not drafts:
        return Landing([], [], [], Move(CHECKPOINTS, log.target, None), {})
    state = State(os.urandom(8), log.state.flags & EARLY)
    steps, made, needs = make_steps(thread, drafts, state, None)
    last = steps[-1]
    index = TreeWriter(default_codec).write(_index_of(steps))
    base = Draft(last.commit.root, metadata=index.root, description="kept")
    top, named, more = make_steps(thread, [base], last.state, last, pins=pins or None, is_base=True)
    steps += top
    sent = [*objects, *index.objects, *made, *named]
    needs += (*more, *index.needs)
    return Landing(steps, sent, needs, Move(CHECKPOINTS, log.target, steps[-1].id), {})


def _index_of(steps: Sequence[Step]) -> dict[bytes, list[ObjectId | None]]:
    """Of a chain: each checkpoint's commit and those of its writes; and the newest of each
    namespace."""
    index: dict[bytes, list[ObjectId | None]] = {}
    newest: dict[str, str] = {}
    for step in steps:
        address, id = step.address, step.commit.id
        if address is not None:
            index.setdefault(key_of(b"", PUT, *address), [None])[0] = id
            if not step.aside and address.id >= newest.get(address.namespace, ""):
                newest[address.namespace] = address.id
                index[key_of(b"", NAMESPACE, address.namespace)] = [id]
        for one in step.writes:
            entry = index.setdefault(key_of(b"", PUT, *one.address), [None])
            if id not in entry[1:]:
                entry.append(id)
    return index


def _holds(step: Step) -> bool:
    return step.address is not None or bool(step.writes)


def _absent(store: Store, space: str, read: Any, drafts: Iterable[Draft]) -> list[Object]:
    """What drafts reach and another space cannot need, children first."""
    found: dict[ObjectId, Object] = {}
    roots = [id for one in drafts for id in (one.root, one.metadata, one.events) if id is not None]
    pending = store.missing(dict.fromkeys(roots), space)
    while pending:
        read_now = read(pending)
        found.update((one.id, one) for one in read_now)
        below = dict.fromkeys(id for one in read_now for id in links(one))
        pending = store.missing([id for id in below if id not in found], space)
    return list(reversed(found.values()))


def _with_their_steps(log: Log, stays: set[Address]) -> set[Address]:
    """Without the checkpoints of subgraphs whose step of the graph is dropped."""
    reader = History(Loader(log.read, inspection_codec))

    def is_kept(address: Address) -> bool:
        put = log.find(address).put
        if address.namespace == ROOT or put is None:
            return True
        step = (reader.record(log.step(put)).metadata.get("parents") or {}).get(ROOT)
        return step is None or Address(ROOT, step) in stays

    return {address for address in stays if is_kept(address)}


def _kept(thread: str, log: Log, stays: Collection[Address]) -> Landing | None:
    """A chain of some checkpoints, whose delta channels stay what they are."""
    there = {address for step in log.walk() for address in _addresses(step)}
    gone = there.difference(stays)
    if not gone:
        return None
    reader = History(Loader(log.read, inspection_codec))
    objects: list[Object] = []
    drafts = _drafts(log, lambda address: address in stays, objects)
    for at, draft in enumerate(drafts):
        if draft.address is not None:
            drafts[at] = _with_deltas(log, reader, draft, gone, objects)
    return _rewritten(thread, log, drafts, log.pins(), objects)


def _addresses(step: Step) -> list[Address]:
    own = [] if step.address is None else [step.address]
    return [*own, *[one.address for one in step.writes]]


def _drafts(log: Log, stays: Callable[[Address], bool], objects: list[Object]) -> list[Draft]:
    """The commits of a chain without what does not stay, the oldest first.

    What they need and is new is put to the objects.
    """
    drafts: list[Draft] = []
    met: set[Address] = set()
    for step in log.walk():
        writes = [one for one in step.writes if stays(one.address)]
        draft = _with_writes(log, Draft.of(step), writes, objects)
        if step.address is not None and stays(step.address) and step.address not in met:
            met.add(step.address)
            drafts.append(draft)
        elif writes:
            # The values of what goes do not stay for the sake of these writes.
            (empty,) = TreeWriter(inspection_codec).write({}).objects
            objects.append(empty)
            drafts.append(
                Draft(
                    empty.id,
                    writes=draft.writes,
                    events=draft.events,
                    description="writes",
                    status=draft.status,
                    error=draft.error,
                    time=draft.time,
                )
            )
    return drafts[::-1]


def _with_writes(log: Log, draft: Draft, writes: Sequence[Written], objects: list[Object]) -> Draft:
    """A commit with some of its writes."""
    if len(writes) == len(draft.writes) or draft.events is None:
        return replace(draft, writes=writes)
    (events,) = log.read([draft.events])
    parts = parts_in(events)
    large = [one for one in writes if type(one.content) is int]
    kept = [parts[one.content] for one in large if type(one.content) is int]
    numbered = iter(range(len(kept)))
    renamed = [
        one._replace(content=next(numbered)) if type(one.content) is int else one for one in writes
    ]
    if not kept:
        return replace(draft, writes=renamed, events=None)
    made = events_of(kept)
    objects.append(made)
    return replace(draft, writes=renamed, events=made.id)


def _with_deltas(
    log: Log, reader: History, draft: Draft, gone: Collection[Address], objects: list[Object]
) -> Draft:
    """Note what delta channels are made of, if that is about to be dropped."""
    assert draft.address is not None
    put = log.find(draft.address).put
    assert put is not None
    record = reader.record(log.step(put))
    channels = [str(name) for name in record.metadata.get(COUNTERS) or ()]
    if not channels or draft.parent is None or (draft.address[0], draft.parent) not in gone:
        return draft
    before: dict[str, Any] = {}
    for channel, one in trail(log, reader, draft.address, channels).items():
        seed = [one["seed"]] if "seed" in one else []
        before[channel] = [[list(write) for write in one["writes"]], *seed]
    plain, about = encode_record(inspection_codec, record._replace(before=before), draft.address.id)
    objects += about
    return replace(draft, record=plain, metadata=about[-1].id if about else None)


# Delta channels: what a checkpoint's value is made of, found along its parents.


class Trail(dict[str, "DeltaChannelHistory"]):
    """What was found of delta channels, from the newest checkpoint back."""

    def __init__(self, channels: Sequence[str]) -> None:
        super().__init__({channel: {"writes": []} for channel in channels})
        self.open = set(channels)
        """Those of which the beginning was not found yet."""

    def pass_by(self, log: Log, reader: History, step: Step, place: Place, child: str) -> None:
        """Take what a checkpoint on the way says, whose writes led to the one after it."""
        assert step.address is not None
        writes = log.writes(place, step.address)
        for _, task, _, channel, value in reversed(reader.writes(writes, child)):
            if channel in self.open:
                self[channel]["writes"].append((task, channel, value))
        for channel, value in reader.some_values(step, self.open).items():
            self[channel]["seed"] = value
            self.open.discard(channel)

    def close(self, before: Mapping[str, list[Any]]) -> None:
        """Take what is kept of checkpoints that are gone."""
        for channel in self.open & before.keys():
            writes, *seed = before[channel]
            self[channel]["writes"] += [tuple(one) for one in reversed(writes)]
            if seed:
                self[channel]["seed"] = seed[0]
        self.open -= before.keys()

    def finish(self) -> Mapping[str, DeltaChannelHistory]:
        """The writes in the order in which they were made."""
        for found in self.values():
            found["writes"].reverse()
        return self


def trail(
    log: Log, reader: History, address: Address, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """What delta channels are made of at a checkpoint."""
    found, met = Trail(channels), {address.id}
    put = log.find(address).put
    while put is not None and found.open:
        step = log.step(put)
        found.close(reader.record(step).before or {})
        if step.parent is None or step.parent in met:
            break
        met.add(step.parent)
        place = log.find(Address(address.namespace, step.parent))
        put = place.put
        if put is not None:
            found.pass_by(log, reader, log.step(put), place, step.origin)
    return found.finish()
