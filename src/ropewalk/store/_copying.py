"""Objects from one store into another: frames as they are, a page at a time.

Whatever the size of the stores, this holds a page of frames and no more. Every object is
verified against its hash, and that what it points to is in the source too. So when no
object is lost, everything is whole that the source's refs reach, without a walk that
would have to remember where it was.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import Corrupt, DamagedObject, FormatError, MissingObjects, RefMoved, StoreFull
from ropewalk.store._checking import Problem
from ropewalk.store._decide import Batch, Reframe, digest_of
from ropewalk.store._frames import encode_whole, parse_header
from ropewalk.store._framing import Framed
from ropewalk.store._own import OWN_SPACE, arriving_ref, manifest
from ropewalk.store._reaching import BATCH, walk
from ropewalk.store._reading import Chains, fetch_chains
from ropewalk.store._records import MIGRATE, Move, Scalar, Stored
from ropewalk.tree import Kind, Object, ObjectId, check_links, links

if TYPE_CHECKING:
    from ropewalk.store._collecting import Progress
    from ropewalk.store._contract import Store

PAGE_BYTES = 4 * 1024 * 1024
"""How many bytes of payload are dealt with together."""
PAGE_OBJECTS = 1024
BATCH_BYTES = 4 * 1024 * 1024
"""How many bytes of frames one commit takes to the target."""

_FEWEST = 16
_MUCH = 4 * PAGE_BYTES  # What a page may take with all that its objects are stored against.


class Lost(NamedTuple):
    """An object that cannot be brought, in words and as what to raise."""

    problem: Problem
    error: DamagedObject | MissingObjects


class Copier:
    """Brings the objects of a source into a target, and notes what cannot be brought."""

    def __init__(self, source: Store, target: Store, tell: Progress) -> None:
        self.copied = self.copied_bytes = self.present = 0
        self.lost: dict[ObjectId, Lost] = {}
        """What neither store has whole: damaged, or missing and pointed to."""
        self._source, self._target, self._tell = source, target, tell
        self._most = PAGE_OBJECTS // 4
        self.only_there: set[ObjectId] = set()
        """What the source points to and has lost, and the target has."""

    def copy(self) -> None:
        """Bring everything that the target has not, or has condemned.

        Afterwards each object that the source had when this began was seen alive in the
        target at some moment since, but for those in `lost`.
        """
        self.lost.clear()
        self.only_there.clear()
        self.present = 0
        for page in self._pages(self._source.scan()):
            self._copy_page(page)
            self._tell("copying", self.copied + self.present)
        self._look_there()

    def require(self, ids: Iterable[ObjectId]) -> None:
        """Note those of these that are nowhere: refs point to them."""
        self._note_links(dict.fromkeys(ids, "a ref"))
        self._look_there()

    # Pages.

    def _pages(self, scan: Iterator[Stored]) -> Iterator[list[Stored]]:
        page: list[Stored] = []
        held = 0
        for one in scan:
            page.append(one)
            held += one.length
            if len(page) >= self._most or held >= PAGE_BYTES:
                yield page
                page, held = [], 0
        if page:
            yield page

    def _copy_page(self, page: Sequence[Stored]) -> None:
        ids = [one.id for one in page]
        alive = self._alive(ids)
        self.present += len(alive)
        frames = fetch_chains([id for id in ids if id not in alive], self._source._frames)
        chains = Chains(frames)
        self._adapt(chains)
        absent = set(ids).difference(alive)
        absent |= frames.keys() - absent - self._alive(sorted(frames.keys() - absent))
        pointed: dict[ObjectId, str] = {}
        sound = self._open(sorted(absent & frames.keys()), chains, pointed)
        seen = [one.id for one in page if one.id in alive and one.kind != Kind.CHUNK]
        known = fetch_chains(seen, self._target._frames)
        self._open([id for id in seen if id in known], Chains(known), pointed)
        self._note_links(pointed)
        self._land(sound, chains)

    def _adapt(self, chains: Chains) -> None:
        """Take fewer objects next time if these brought much that they are stored against."""
        held = 0
        for frame in chains.frames.values():
            try:
                held += len(frame) + parse_header(frame).length
            except FormatError:
                continue
        if held > _MUCH:
            self._most = max(self._most // 2, _FEWEST)
        elif 4 * held < _MUCH:
            self._most = min(self._most * 2, PAGE_OBJECTS)

    def _open(
        self, ids: Iterable[ObjectId], chains: Chains, pointed: dict[ObjectId, str]
    ) -> list[ObjectId]:
        """Verify objects and add what they point to, each with who does; the sound ones."""
        sound: list[ObjectId] = []
        for id in ids:
            try:
                kind, payload = chains.verified(id)
                sound.append(id)
                if kind != Kind.CHUNK:
                    pointed.update(dict.fromkeys(check_links(Object(id, kind, payload)), id.hex()))
            except Corrupt as error:
                # Where its bytes are as they were written, nobody can say where they lead.
                self._lose(id, error)
        return sound

    def _note_links(self, pointed: Mapping[ObjectId, str]) -> None:
        ids = list(pointed)
        here = self._source._presence(ids)
        elsewhere = [id for id in ids if id not in here]
        there = self._alive(elsewhere)
        self.only_there.update(there)
        for id in elsewhere:
            if id not in there:
                self._lose(id, MissingObjects([id]), f"; {pointed[id]} points to it")

    def _look_there(self) -> None:
        """What the source has lost and the target has must be whole there."""
        visits = list(walk(self.only_there, self._target._frames, set()))
        whole = all(visit.problem is None for visit in visits)
        for start in range(0, len(visits), BATCH):
            some = [visit.id for visit in visits[start : start + BATCH]]
            whole = whole and len(self._alive(some)) == len(some)
        if not whole:
            for id in self.only_there:
                self._lose(id, MissingObjects([id]))

    def _lose(self, id: ObjectId, error: Corrupt | MissingObjects, where: str = "") -> None:
        if isinstance(error, MissingObjects):
            problem = Problem("missing-object", id.hex(), f"it is missing{where}")
        else:
            problem = Problem("damaged-object", id.hex(), str(error))
            error = error if isinstance(error, DamagedObject) else DamagedObject(id, str(error))
        self.lost.setdefault(id, Lost(problem, error))

    def _alive(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        found = self._target._presence(ids)
        return {id for id, one in found.items() if not one.condemned}

    # What is lost.

    def broken(self) -> dict[ObjectId, ObjectId]:
        """Every object that leads to a lost one, with the lost one.

        Looks at all objects once more and remembers who points to whom, which takes
        memory by object. It is needed only where something is lost.
        """
        if not self.lost:
            return {}
        pointing: defaultdict[ObjectId, list[ObjectId]] = defaultdict(list)
        for page in self._pages(self._source.scan()):
            for id, targets in self._structure([one.id for one in page if one.kind != Kind.CHUNK]):
                for target in targets:
                    pointing[target].append(id)
        causes = {id: id for id in self.lost}
        pending = list(causes)
        while pending:
            id = pending.pop()
            for source in pointing[id]:
                if source not in causes:
                    causes[source] = causes[id]
                    pending.append(source)
        return causes

    def _structure(self, ids: Sequence[ObjectId]) -> Iterator[tuple[ObjectId, list[ObjectId]]]:
        here = fetch_chains(ids, self._source._frames)
        there = fetch_chains(sorted(self._alive(ids)), self._target._frames)
        for frames in (there, here):
            chains = Chains(frames)
            for id in ids:
                try:
                    if id in frames:
                        yield id, links(Object(id, *chains.verified(id)))
                except Corrupt:
                    continue  # The other store may have it, or it was noted.

    # Into the target.

    def _land(self, ids: Iterable[ObjectId], chains: Chains) -> None:
        """Store frames, what others are stored against first, a few megabytes at a time."""
        batch: list[Framed] = []
        held = 0
        for id in sorted(ids, key=lambda id: chains.header(id).depth):
            header, frame = chains.header(id), chains.frames[id]
            batch.append(Framed(id, frame, header.base, header.depth))
            held += len(frame)
            if held >= BATCH_BYTES:
                self._commit(batch, chains)
                batch, held = [], 0
        if batch:
            self._commit(batch, chains)

    def _commit(self, frames: list[Framed], chains: Chains) -> None:
        while True:
            try:
                self._target._commit(_batch(frames))
                break
            except Reframe as again:
                frames = [_whole(one, chains) if one.id in again.ids else one for one in frames]
            except StoreFull:
                if not self._target._room.make():
                    raise
        self._keep([one.id for one in frames])
        self.copied += len(frames)
        self.copied_bytes += sum(len(one.frame) for one in frames)

    def _keep(self, ids: Sequence[ObjectId]) -> None:
        """Let a ref lead to these until the refs that need them have moved.

        In a commit of its own, so that its object is in no pack that stays.
        """
        name = arriving_ref(self._source.header.store_id)
        while True:
            ref = self._target.ref(OWN_SPACE, name)
            before = None if ref is None else ref.target
            listed = manifest(ids, before)
            move = Move(name, before, listed.id)
            try:
                self._target.commit(OWN_SPACE, [listed], moves=[move], operation={MIGRATE: "kept"})
                self._target._frame_writer.forget([listed.id])  # Nothing will resemble it.
                return
            except RefMoved:
                continue  # Another migration from the same source is under way.


def _batch(frames: Sequence[Framed]) -> Batch:
    metadata: dict[str, Scalar] = {MIGRATE: "objects"}
    return Batch(
        space=OWN_SPACE,
        frames=frames,
        needs=frozenset(),
        targets=frozenset(),
        moves=(),
        fences=(),
        write_id=os.urandom(16).hex(),
        digest=digest_of(OWN_SPACE, [one.id for one in frames], (), metadata),
        time=time.time_ns() // 1000,
        metadata=metadata,
        epoch=None,
    )


def _whole(one: Framed, chains: Chains) -> Framed:
    return Framed(one.id, encode_whole(*chains.verified(one.id)), None, 0)
