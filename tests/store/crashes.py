"""Work on a store that notes what it was told, and what must be there after a power loss."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ropewalk.store import Move, Operation, Ref, Store, ref_name
from ropewalk.testing import CrashState
from ropewalk.testing.helpers import OTHER_SPACE, SPACE, noise
from ropewalk.tree import Kind, Object, ObjectId, make_object
from tests.store.manifests import manifest

Note: TypeAlias = Callable[[str, object], None]

SPACES = (SPACE, OTHER_SPACE)
NAMES = tuple(ref_name("branch", name) for name in ("a", "b", "c"))
LEASE = ref_name("lease", "work")
HOLDER = "worker"


@dataclass(frozen=True)
class Write:
    """One commit, as it can be sent again."""

    space: str
    objects: tuple[Object, ...]
    moves: tuple[Move, ...]
    write_id: str

    def send(self, store: Store) -> Operation:
        return store.commit(self.space, self.objects, moves=self.moves, write_id=self.write_id)


class Work:
    """Commits, ref moves, collections and reopenings, chosen by a seed.

    Notes `try` before and `ack` after each commit, and what else must survive. A ref points to a
    manifest, which keeps some of the objects that came with it.
    """

    def __init__(self, open_store: Callable[[], Store], note: Note, seed: int) -> None:
        self._open_store, self._note = open_store, note
        self._random = random.Random(seed)
        self._refs: dict[tuple[str, str], ObjectId] = {}
        self._keeps: dict[ObjectId, tuple[ObjectId, ...]] = {}
        self._garbage: list[Object] = []
        self._writes = 0

    def run(self, steps: int) -> None:
        self._store = self._open_store()
        actions = [self._small] * 8 + [self._move] * 3 + [self._remove] * 2
        actions += [self._large, self._collect, self._reopen, self._lease]
        # Each is part of every run; what follows is up to the seed.
        chosen = [self._small, self._large, self._small, self._collect, self._reopen, self._lease]
        chosen += [self._random.choice(actions) for _ in range(steps - len(chosen))]
        for action in chosen:
            action()
        self._store.close()

    def check(self, store: Store, state: CrashState) -> None:
        """Everything that must hold of a store that was opened after a power loss."""
        memory = Memory(state)
        landed = {space: memory.check_operations(store, space) for space in SPACES}
        for space in SPACES:
            memory.check_refs(store, space, landed[space])
        memory.check_objects(store, landed)
        if store.durability == "full":
            assert store.view(SPACE).epoch >= memory.last("epoch")
            assert store.acquire(SPACE, LEASE, HOLDER, 60.0).token > memory.last("token")
        memory.check_unfinished(store, landed)
        assert store.check(read_data=True).problems == ()
        check_usable(store)

    def _small(self) -> None:
        sizes = [self._random.randrange(1, 3000) for _ in range(self._random.randrange(1, 4))]
        self._write(sizes)

    def _large(self) -> None:
        self._write([270_000, 280_000])

    def _write(self, sizes: Iterable[int]) -> None:
        place, before = self._choose_ref()
        base = self._keeps[before][0] if before else None
        payload = self._store.reader(place[0])([base])[0].payload[:2000] if base else b""
        made = [make_object(Kind.CHUNK, payload + self._bytes(size)) for size in sizes]
        first, *others = made
        keeps = (first.id, *[one.id for one in others if self._random.random() < 0.5])
        self._garbage += [one for one in others if one.id not in keeps]
        if self._garbage and self._random.random() < 0.2:
            made.append(self._random.choice(self._garbage))  # Perhaps it was condemned, or is gone.
        target = manifest(keeps)
        self._keeps[target.id] = keeps
        self._commit(place, before, target.id, [*made, target])

    def _move(self) -> None:
        place, before = self._choose_ref()
        targets = sorted(
            {id for (space, _), id in self._refs.items() if space == place[0] and id != before}
        )
        if targets:
            self._commit(place, before, self._random.choice(targets), [])

    def _remove(self) -> None:
        place, before = self._choose_ref()
        if before is not None:
            self._commit(place, before, None, [])

    def _commit(
        self,
        place: tuple[str, str],
        before: ObjectId | None,
        target: ObjectId | None,
        objects: Iterable[Object],
    ) -> None:
        space, name = place
        self._writes += 1
        move = Move(name, before, target)
        write = Write(space, tuple(objects), (move,), f"write {self._writes}")
        self._note("try", (write, self._keeps.get(target or b"", ())))
        self._note("ack", write.send(self._store))
        if target is None:
            del self._refs[place]
        else:
            self._refs[place] = target

    def _collect(self) -> None:
        """Collect all that no ref reaches."""
        for space in SPACES:
            refs = [id for (place, _), id in self._refs.items() if place == space]
            alive = {id for target in refs for id in (target, *self._keeps[target])}
            self._note("collect", (space, alive))
        self._store.gc(recent=0)
        self._note("epoch", self._store.view(SPACE).epoch)

    def _reopen(self) -> None:
        self._store.close()
        self._store = self._open_store()

    def _lease(self) -> None:
        self._note("token", self._store.acquire(SPACE, LEASE, HOLDER, 60.0).token)

    def _choose_ref(self) -> tuple[tuple[str, str], ObjectId | None]:
        place = self._random.choice(SPACES), self._random.choice(NAMES)
        return place, self._refs.get(place)

    def _bytes(self, size: int) -> bytes:
        return noise(size, self._random.randrange(2**32))


class Memory:
    """What the program knew when the power failed, against what a store holds now."""

    def __init__(self, state: CrashState) -> None:
        self.tried: dict[str, list[Write]] = defaultdict(list)
        self.told: dict[str, list[Operation]] = defaultdict(list)
        self.keeps: dict[ObjectId, tuple[ObjectId, ...]] = {}
        self.notes: list[tuple[str, Any]] = [(mark.name, mark.value) for mark in state.marks]
        for name, noted in self.notes:
            if name == "try":
                write, keeps = noted
                self.tried[write.space].append(write)
                self.keeps[write.moves[0].target or b""] = keeps
            elif name == "ack":
                self.told[noted.space].append(noted)

    def last(self, name: str) -> int:
        """The greatest number that was noted."""
        return max((noted for noted_name, noted in self.notes if noted_name == name), default=0)

    def check_operations(self, store: Store, space: str) -> int:
        """Operations are a beginning of what was done, without a gap; how many there are."""
        tried, told = self.tried[space], self.told[space]
        found = store.operations(space)
        assert [one.sequence for one in found] == list(range(1, len(found) + 1))
        assert len(found) <= len(tried)
        if store.durability == "full":
            assert len(found) >= len(told), "an acknowledged commit is gone"
        assert found[: len(told)] == told[: len(found)]
        assert [(one.write_id, one.moves) for one in found] == [
            (one.write_id, one.moves) for one in tried[: len(found)]
        ]
        return len(found)

    def check_refs(self, store: Store, space: str, landed: int) -> None:
        """Refs are where the operations put them, and everything that they keep is there."""
        refs: dict[str, Ref] = {}
        for sequence, write in enumerate(self.tried[space][:landed], 1):
            for name, _, target in write.moves:
                refs.pop(name, None)
                if target is not None:
                    refs[name] = Ref(name, target, sequence)
        found = store.view(space)
        assert found.refs == tuple(sorted(refs.values()))
        assert found.sequence == landed
        alive = [id for ref in found.refs for id in (ref.target, *self.keeps[ref.target])]
        store.reader(space)(alive)
        assert store.missing(alive, space) == []

    def check_objects(self, store: Store, landed: dict[str, int]) -> None:
        """What operations wrote and no collection was to delete is there."""
        expected: dict[str, set[ObjectId]] = {space: set() for space in landed}
        seen = dict.fromkeys(landed, 0)
        for name, noted in self.notes:
            if name == "collect":
                space, alive = noted
                expected[space] &= alive
            elif name == "try":
                write = noted[0]
                seen[write.space] += 1
                if seen[write.space] <= landed[write.space]:
                    expected[write.space] |= {one.id for one in write.objects}
        for space, ids in expected.items():
            store.reader(space)(sorted(ids))

    def check_unfinished(self, store: Store, landed: dict[str, int]) -> None:
        """A commit without an answer is sent again, and happened once then."""
        if any(landed[space] < len(told) for space, told in self.told.items()):
            return  # It may build on what is gone, as `relaxed` allows.
        for space, tried in self.tried.items():
            if len(self.told[space]) < len(tried):
                assert tried[-1].send(store).sequence == len(tried)
                assert len(store.operations(space)) == len(tried)


def check_usable(store: Store) -> None:
    """A store takes a new commit, and gives it back."""
    before = store.ref(SPACE, NAMES[0])
    new = make_object(Kind.CHUNK, noise(1000, seed=1))
    move = Move(NAMES[0], before and before.target, new.id)
    done = store.commit(SPACE, [new], moves=[move])
    assert store.ref(SPACE, NAMES[0]) == Ref(NAMES[0], new.id, done.sequence)
    assert store.reader(SPACE)([new.id])[0].payload == new.payload
