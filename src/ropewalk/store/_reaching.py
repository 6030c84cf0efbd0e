"""What is reached from where: the walk that collection, checks and statistics share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ropewalk.errors import Corrupt, DamagedObject, FormatError, MissingObjects
from ropewalk.store._frames import parse_header
from ropewalk.store._reading import Chains, FrameReader, fetch_chains
from ropewalk.tree import Kind, Object, ObjectId, links

BATCH = 256
"""How many objects are fetched together."""


class Visit(NamedTuple):
    """One object that a walk came to."""

    id: ObjectId
    source: ObjectId | None
    """The object that led here; None for one that the walk began with."""
    object: Object | None
    """None for chunks, which are not opened, and where there is a problem."""
    links: list[ObjectId]
    problem: Corrupt | MissingObjects | None
    """Why the object could not be read, if so."""


def walk(
    roots: Iterable[ObjectId],
    fetch: FrameReader,
    seen: set[ObjectId],
    *,
    verify_chunks: bool = False,
) -> Iterator[Visit]:
    """Visit everything that is reached from these ids and was not seen before.

    What is visited is added to `seen`. Objects are verified. Chunks lead nowhere, so
    their bytes are not looked at, unless `verify_chunks` asks for it: what damage made
    look like a chunk may have led somewhere. The order is none that could be relied on.
    """
    pending: list[tuple[ObjectId, ObjectId | None]] = []
    _add(pending, ((id, None) for id in roots), seen)
    while pending:
        batch = pending[-BATCH:]
        del pending[-BATCH:]
        for visit in _visit(batch, fetch, verify_chunks):
            _add(pending, ((id, visit.id) for id in visit.links), seen)
            yield visit


def _add(
    pending: list[tuple[ObjectId, ObjectId | None]],
    found: Iterable[tuple[ObjectId, ObjectId | None]],
    seen: set[ObjectId],
) -> None:
    for id, source in found:
        if id not in seen:
            seen.add(id)
            pending.append((id, source))


def _visit(
    batch: list[tuple[ObjectId, ObjectId | None]], fetch: FrameReader, verify_chunks: bool
) -> Iterator[Visit]:
    frames = fetch_chains([id for id, _ in batch], fetch)
    chains = Chains(frames)
    for id, source in batch:
        if id not in frames:
            yield Visit(id, source, None, [], MissingObjects([id]))
            continue
        try:
            opened = _open(id, chains, verify_chunks)
            yield Visit(id, source, opened, [] if opened is None else links(opened), None)
        except FormatError as error:
            # The bytes are what was written, but they are no object of ours.
            yield Visit(id, source, None, [], DamagedObject(id, str(error)))
        except Corrupt as error:
            yield Visit(id, source, None, [], error)


def _open(id: ObjectId, chains: Chains, verify_chunks: bool) -> Object | None:
    is_chunk = parse_header(chains.frames[id]).kind == Kind.CHUNK
    if is_chunk and not verify_chunks:
        return None
    kind, payload = chains.verified(id)
    return None if is_chunk else Object(id, kind, payload)
