"""`Log`: the chain of commits of a thread; finds checkpoints in it, and extends it.

It hides how a checkpoint is found without an index of the chain: from what was landed through this
object, by the keys of operations, or in the index of a rewritten part. `landing` makes the commits
that drafts become. See `checkpoints` for what a commit contains.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph.saver.checkpoints import (
    ALL,
    CHECKPOINTS,
    EARLY,
    KEY_SIZE,
    MIXED,
    NAMESPACE,
    PUT,
    ROOT,
    SEVERAL,
    UNSORTED,
    Address,
    Draft,
    State,
    Step,
    Written,
    key_of,
    make_steps,
    put_key,
    read_step,
    writes_key,
)
from ropewalk.codec import default_codec
from ropewalk.errors import MissingObjects, PathNotFound
from ropewalk.store import Move, Operation, Store, View
from ropewalk.store.model import Scalar
from ropewalk.tree import Kind, Object, ObjectId, Reader, get, load

_KEYS: Final = "keys"
_MOST_PLACES: Final = 128
_MOST_STEPS: Final = 64
_NEAR: Final = 8
_FIRST_PAGE, _LARGEST_PAGE = 8, 256


class Landing(NamedTuple):
    """Commits that are ready to be sent."""

    steps: list[Step]
    objects: list[Object]
    needs: list[ObjectId]
    move: Move
    metadata: dict[str, Scalar]


class Place(NamedTuple):
    """The commits in which a checkpoint and its pending writes are."""

    put: ObjectId | None
    """The commit that put it last; None if none did yet."""
    writers: tuple[ObjectId, ...]
    """The commits with its pending writes, in order."""


_NOWHERE: Final = Place(None, ())


class Listed(NamedTuple):
    """A checkpoint of a listing, with its pending writes."""

    step: Step
    writes: Sequence[tuple[Step, Written]]

    @property
    def address(self) -> Address:
        """Which one it is."""
        assert self.step.address is not None
        return self.step.address

    @property
    def roots(self) -> list[ObjectId]:
        """What is read with it."""
        commit = self.step.commit
        events = [step.commit.events for step, one in self.writes if type(one.content) is int]
        return [one for one in (commit.root, commit.metadata, *events) if one is not None]


class Log:
    """The chain of a thread from one head on, as far as it was read. Not thread-safe.

    `extend` keeps it current with what is landed through it. When others have moved the head, it
    is discarded and another one is made.
    """

    def __init__(
        self, store: Store, space: str, read: Reader, known: Steps, view: View | None = None
    ) -> None:
        self._store, self.space, self.read = store, space, read
        self._known = known
        view = store.view(space, CHECKPOINTS) if view is None else view
        self.sequence = view.sequence
        self.target = view.refs[0].target if view.refs else None
        """The commit that the ref of the thread leads to."""
        self.head = None if self.target is None else known.step(self.target)
        self.state = State() if self.head is None else self.head.state
        if self.head is None and self.sequence:
            self.state = State(era=os.urandom(8))  # Of a thread that was deleted.
        self._places: OrderedDict[Address, Place] = OrderedDict()
        self._newest: dict[str, ObjectId | None] = {}
        self._top: str | None = None
        self._last: Address | None = None
        """The graph's own checkpoint that was put last, if that is known."""
        self._several: dict[bytes, list[int]] | None = None
        """Operations with several keys, by each key; None until they were read."""
        self._is_whole = self.head is None
        """Whether the caches cover the whole chain: it began here, and nothing was evicted."""

    def is_at(self, view: View) -> bool:
        """Whether the chain is as a view of the space shows it."""
        return self.target == (view.refs[0].target if view.refs else None)

    def step(self, id: ObjectId) -> Step:
        """A commit of the chain."""
        return self._known.step(id)

    # Finding.

    def newest(self, namespace: str) -> Step | None:
        """The newest checkpoint of a namespace: the greatest id that is not `aside`."""
        if namespace == ROOT:
            return None if self.state.newest is None else self.step(self.state.newest)
        if namespace not in self._newest:
            known = None if self._is_whole else self._newest_below(namespace)
            self._set_newest(namespace, known)
        found = self._newest[namespace]
        return None if found is None else self.step(found)

    def find(self, address: Address) -> Place:
        """Where a checkpoint is; its put is None if it is not in the chain."""
        place = self._places.get(address)
        if place is None:
            if self._is_whole or (self.is_ahead(address) and not self.state.flags & EARLY):
                return _NOWHERE
            place = self._looked_up(address)
            self._note(address, place)
        return place

    def writes(self, place: Place, address: Address) -> list[tuple[Step, Written]]:
        """The pending writes of a checkpoint, in order."""
        steps = [self.step(id) for id in place.writers]
        return [(step, one) for step in steps for one in step.writes if one.address == address]

    def pins(self) -> dict[str, Address]:
        """The checkpoints that are pinned, by name."""
        if self.state.notes is None:
            return {}
        return {
            name: Address(*where)
            for name, where in (self.step(self.state.notes).pins or {}).items()
        }

    def children(self, address: Address) -> list[str]:
        """The checkpoints that follow one; of a copy, what it is a copy of."""
        found = []
        for step in self.walk():
            if step.address == address:
                break
            namespace = None if step.address is None else step.address.namespace
            if namespace == address.namespace and step.parent == address.id:
                found.append(step.origin)
        return found

    def is_ahead(self, address: Address) -> bool:
        """Whether an id is greater than all that are in the chain."""
        return not self.state.flags & MIXED and address.id > self.top

    def follows(self, address: Address) -> bool:
        """Whether a checkpoint is the last one of its namespace, so that nothing follows it."""
        if address == self._last:
            return True
        if self.state.flags & (UNSORTED | MIXED):
            return False
        newest = self.newest(address.namespace)
        return newest is not None and newest.address == address

    def _looked_up(self, address: Address) -> Place:
        era, steps = self.state.era, dict[ObjectId, Step]()
        for number in self._store.find(self.space, put_key(era, address)):
            self._gather(number, steps)
            if address.namespace == ROOT:
                self._gather_next(number, steps)
        if address.namespace == ROOT:
            for number in self._store.find(self.space, writes_key(era, address)):
                self._gather(number, steps)
        for number in self._with_several_keys(put_key(era, address), writes_key(era, address)):
            brought = self._gather(number, steps)
            if address.namespace == ROOT and any(one.address == address for one in brought):
                self._gather_next(number, steps)
        put, writers = self._in_base(address)
        for step in sorted(steps.values(), key=_generation):
            if step.address == address:
                put = step.commit.id
            if any(one.address == address for one in step.writes):
                writers.append(step.commit.id)
        return Place(put, tuple(dict.fromkeys(writers)))

    def _newest_below(self, namespace: str) -> ObjectId | None:
        key, steps = key_of(self.state.era, NAMESPACE, namespace), dict[ObjectId, Step]()
        for number in (*self._store.find(self.space, key), *self._with_several_keys(key)):
            self._gather(number, steps)
        base = self._index(key_of(b"", NAMESPACE, namespace))
        found = [*steps.values(), *[self.step(id) for id in base[:1] if id is not None]]
        of = [
            one
            for one in sorted(found, key=_generation)
            if one.address is not None and one.address.namespace == namespace and not one.aside
        ]
        # Of one that was put twice the last one counts.
        last = max(reversed(of), key=_checkpoint_id, default=None)
        return None if last is None else last.commit.id

    def _gather(self, number: int, steps: dict[ObjectId, Step]) -> list[Step]:
        """The commits that an operation brought."""
        (operation,) = self._store.operations(self.space, number - 1, 1)
        return self._gathered(operation, steps)

    def _gathered(self, operation: Operation, steps: dict[ObjectId, Step]) -> list[Step]:
        found = []
        for move in operation.moves:
            id = move.target
            while id is not None and id != move.expected:
                step = steps[id] = self.step(id)
                found.append(step)
                id = next(iter(step.commit.parents), None)
        return found

    def _gather_next(self, number: int, steps: dict[ObjectId, Step]) -> None:
        """The next put of the root graph, with which writes of the checkpoint before may be."""
        size = 1
        while page := self._store.operations(self.space, number, size):
            for operation in page:
                key = operation.metadata.get("key")
                if type(key) is bytes and key[:1] == PUT:
                    self._gathered(operation, steps)
                    return
            number, size = page[-1].sequence, min(4 * size, _LARGEST_PAGE)

    def _with_several_keys(self, *keys: bytes) -> list[int]:
        """The operations with several keys that have one of these, and were not undone."""
        if not self.state.flags & SEVERAL:
            return []
        if self._several is None:
            self._several = {}
            for number in self._store.find(self.space, key_of(self.state.era, ALL, ROOT)):
                (operation,) = self._store.operations(self.space, number - 1, 1)
                if not self._is_taken_back(operation):
                    self._note_keys(number, operation.metadata)
        found = [number for key in keys for number in self._several.get(key, ())]
        return sorted(set(found))

    def _note_keys(self, number: int, metadata: Mapping[str, Scalar]) -> None:
        listed = metadata.get(_KEYS)
        assert self._several is not None
        if type(listed) is bytes:
            for at in range(0, len(listed), KEY_SIZE):
                self._several.setdefault(listed[at : at + KEY_SIZE], []).append(number)

    def _is_taken_back(self, operation: Operation) -> bool:
        """Whether an operation was undone: its commits are in the log, but not in the chain."""
        if operation.metadata.get("action") == "put":
            return False  # A put is never undone: its checkpoint would be lost.
        heads = [(move.expected, move.target) for move in operation.moves]
        (before, now), number = heads[0], operation.sequence
        stack = [before, now]
        while page := self._store.operations(self.space, number, _FIRST_PAGE):
            for one in page:
                for move in one.moves:
                    if move.target in stack:
                        del stack[stack.index(move.target) + 1 :]
                    else:
                        stack.append(move.target)
                if one.metadata.get("action") == "put":
                    return now not in stack
            number = page[-1].sequence
        return now not in stack

    # The rewritten part of a chain.

    def _in_base(self, address: Address) -> tuple[ObjectId | None, list[ObjectId]]:
        found = self._index(key_of(b"", PUT, *address))
        return (found[0], list(found[1:])) if found else (None, [])

    def _index(self, key: bytes) -> list[Any]:
        if self.state.base is None:
            return []
        root = self.step(self.state.base).commit.metadata
        assert root is not None
        try:
            found: list[Any] = get(root, (key,), self.read)
        except PathNotFound:
            return []
        return found

    # Walking.

    def walk(self) -> Iterator[Step]:
        """The commits of the chain, the newest first; as it is now, whatever lands meanwhile."""
        return self._walked(self.target, self.state.base, self.sequence)

    def _walked(self, id: ObjectId | None, base: ObjectId | None, number: int) -> Iterator[Step]:
        size, ahead = 1, dict[ObjectId, Step]()
        while id is not None:
            step = ahead.pop(id, None) or self._known.held(id)
            if step is None and number > 0 and size:
                first = max(number - size, 0)
                page = self._store.operations(self.space, first, number - first)
                targets = [move.target for one in page for move in one.moves if move.target]
                ahead.update(self._known.fetch(targets))
                number, size = first, min(max(_FIRST_PAGE, 2 * size), _LARGEST_PAGE)
                continue
            step = step or self.step(id)
            if id == base:
                ahead, size = self._written_anew(step), 0
            yield step
            id = next(iter(step.commit.parents), None)

    def _written_anew(self, base: Step) -> dict[ObjectId, Step]:
        """Prefetch all commits that the index of a base lists."""
        assert base.commit.metadata is not None
        index = load(base.commit.metadata, self.read, default_codec)
        ids = dict.fromkeys([id for ids in index.values() for id in ids if id is not None])
        found: dict[ObjectId, Step] = {}
        listed = list(ids)
        for at in range(0, len(listed), _LARGEST_PAGE):
            found.update(self._known.fetch(listed[at : at + _LARGEST_PAGE]))
        return found

    # Going on.

    @property
    def top(self) -> str:
        """The greatest id of all checkpoints, as long as they ascend."""
        if self._top is None:
            self._top = ""
            for number, step in enumerate(self.walk()):
                if step.address is not None or number == _NEAR:
                    self._top = "\U0010ffff" if step.address is None else step.address.id
                    break
        return self._top

    def landing(
        self,
        thread: str,
        drafts: Sequence[Draft],
        objects: Sequence[Object] = (),
        needs: Sequence[ObjectId] = (),
        *,
        early: bool = False,
        several: bool = False,
    ) -> Landing:
        """Commits of drafts on top of the head, with their objects, needs and key.

        With `several` they are stored like an operation with several keys, of which a reader
        checks whether it was undone.
        """
        state, last = self.state, self._last or self._last_put()
        if early:
            state = state._replace(flags=state.flags | EARLY)
        era = state.era
        keys: dict[bytes, None] = {}
        regular: list[Address] = []  # Found by the key of the put that they came with.
        for draft in drafts:
            address = draft.address
            is_root = address is not None and address.namespace == ROOT
            for one in draft.writes:
                if one.address == address or (is_root and one.address == last):
                    regular.append(one.address)
                else:
                    keys[writes_key(era, one.address)] = None
            if address is not None:
                keys[put_key(era, address)] = None
                last = address if is_root else last
        metadata: dict[str, Scalar] = {}
        if len(keys) > 1 or several:
            state = state._replace(flags=state.flags | SEVERAL)
            keys.update([(writes_key(era, one), None) for one in regular])
            metadata = {"key": key_of(era, ALL, ROOT), _KEYS: b"".join(keys)}
        elif keys:
            metadata = {"key": next(iter(keys))}
        best = self.newest(ROOT)
        newest = "" if best is None or best.address is None else best.address.id
        steps, made, needed = make_steps(
            thread, drafts, state, self.head, newest=newest, top=self.top
        )
        move = Move(CHECKPOINTS, self.target, steps[-1].commit.id)
        return Landing(steps, [*objects, *made], [*needed, *needs], move, metadata)

    def _last_put(self) -> Address | None:
        """The graph's own checkpoint that was put last in this era; None if that is not sure."""
        if self._last is None and not self.state.flags & UNSORTED:
            newest = self.newest(ROOT)
            base = None if self.state.base is None else self.step(self.state.base)
            if newest is not None and (base is None or _generation(newest) > _generation(base)):
                self._last = newest.address
        return self._last

    def extend(self, landing: Landing, sequence: int) -> None:
        """Append commits that have landed, and update the caches."""
        self.sequence = sequence
        self._known.add(landing.steps)
        if self._several is not None:
            self._note_keys(sequence, landing.metadata)
        places, is_whole = self._places, self._is_whole
        for step in landing.steps:
            address, id = step.address, step.commit.id
            if address is not None:
                known = places.get(address)
                if known is not None:
                    places[address] = Place(id, known.writers)
                elif is_whole or not step.state.flags & EARLY:
                    places[address] = Place(id, ())  # Else it may have writes already.
                if address.namespace == ROOT:
                    self._last = address
                elif not step.aside:
                    self._advance(address, id)
                if self._top is not None and address.id > self._top:
                    self._top = address.id
            for one in step.writes:
                place = places.get(one.address, _NOWHERE if is_whole else None)
                if place is not None and id not in place.writers:
                    places[one.address] = Place(place.put, (*place.writers, id))
            self.head, self.state, self.target = step, step.state, id
        if len(places) > _MOST_PLACES:
            self._forget_places()

    def _advance(self, address: Address, id: ObjectId) -> None:
        """Take a put for the newest of a subgraph, where that is known."""
        if self._is_whole or address.namespace in self._newest:
            known = self._newest.get(address.namespace)
            before = None if known is None else self.step(known).address
            if before is None or address.id >= before.id:
                self._set_newest(address.namespace, id)

    def _set_newest(self, namespace: str, id: ObjectId | None) -> None:
        self._newest[namespace] = id
        while len(self._newest) > _MOST_PLACES:
            del self._newest[next(iter(self._newest))]
            self._is_whole = False

    def _note(self, address: Address, place: Place) -> None:
        self._places[address] = place
        if len(self._places) > _MOST_PLACES:
            self._forget_places()

    def _forget_places(self) -> None:
        while len(self._places) > _MOST_PLACES:
            self._places.popitem(last=False)
        self._is_whole = False


class Steps:
    """A cache of the commits of a thread, by id."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._held: OrderedDict[ObjectId, Step] = OrderedDict()

    def held(self, id: ObjectId) -> Step | None:
        """A commit that is at hand."""
        return self._held.get(id)

    def step(self, id: ObjectId) -> Step:
        """A commit; raises MissingObjects and FormatError."""
        found = self._held.get(id)
        if found is None:
            (source,) = self._read([id])
            found = read_step(source)
            self.add([found])
        return found

    def fetch(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Step]:
        """Those of some commits that are there, and are of a thread."""
        try:
            found = self._read(ids)
        except MissingObjects as error:
            # What led nowhere was collected: a chain that was replaced, a step taken back.
            there = [id for id in ids if id not in set(error.ids)]
            if len(there) == len(ids):
                raise
            return self.fetch(there) if there else {}
        return {one.id: read_step(one) for one in found if one.kind == Kind.COMMIT}

    def add(self, steps: Iterable[Step]) -> None:
        """Keep commits at hand."""
        for step in steps:
            self._held[step.commit.id] = step
        while len(self._held) > _MOST_STEPS:
            self._held.popitem(last=False)


def _generation(step: Step) -> int:
    return step.commit.generation


def _checkpoint_id(step: Step) -> str:
    return "" if step.address is None else step.address.id


def listed(log: Log, namespace: str | None = None) -> Iterator[Listed]:
    """The checkpoints of a log by their ids, the greatest first; of one namespace, or of all."""
    found = _in_chain(log.walk(), namespace)
    odd = UNSORTED | MIXED | EARLY if namespace != ROOT else UNSORTED | EARLY
    if not log.state.flags & odd:
        return found
    return iter(sorted(found, key=lambda one: one.address.id, reverse=True))


def _in_chain(chain: Iterator[Step], namespace: str | None) -> Iterator[Listed]:
    """Checkpoints as the chain has them, the newest first, each with what came after it."""
    seen: dict[Address, list[tuple[Step, Written]]] = {}
    """Writes of checkpoints that are still to come, the newest first; later of those that were."""
    met: set[Address] = set()
    for step in chain:
        for one in reversed(step.writes):
            if namespace is None or one.address.namespace == namespace:
                seen.setdefault(one.address, []).append((step, one))
        address = step.address
        if address is None or address in met:
            continue
        if namespace is None or address.namespace == namespace:
            met.add(address)
            writes = seen.setdefault(address, [])
            yield Listed(step, _Reversed(writes))


class _Reversed(Sequence[tuple[Step, Written]]):
    """What was gathered from its end; also what is gathered later."""

    def __init__(self, held: list[tuple[Step, Written]]) -> None:
        self._held = held

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, at: Any) -> Any:
        return self._held[::-1][at]
