"""A store in a bucket of S3, or of a server that speaks its language. See design note 012."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ropewalk.errors import Corrupt, InvalidInput, NotFound, RopewalkError
from ropewalk.store._checks import expect, expect_seconds
from ropewalk.store._collecting import Collected, Progress
from ropewalk.store._contract import RECENT
from ropewalk.store._decide import Batch, Presence
from ropewalk.store._framing import DEFAULT_CACHE_BYTES, Framed
from ropewalk.store._key_value_calls import Cells
from ropewalk.store._key_value_cells import HEADER, ROOT, damaged, seal, unseal
from ropewalk.store._key_value_spaces import Spaces
from ropewalk.store._order import Below, below, lowest_first
from ropewalk.store._record_store import Moment, RecordStore
from ropewalk.store._records import (
    Capabilities,
    Durability,
    Header,
    Stored,
    decode_header,
    encode_header,
)
from ropewalk.store._s3_catalog import (
    CATALOG,
    Catalog,
    State,
    change_catalog,
    encode_catalog,
    read_catalog,
)
from ropewalk.store._s3_cells import PACKS, PROBES, BucketCells, probe
from ropewalk.store._s3_collection import PACK_BYTES, compact, doubt_of, settle
from ropewalk.store._s3_index import Copy, Index
from ropewalk.store._s3_packs import epoch_of, pack_name, rows_of
from ropewalk.store._s3_packs import seal as seal_pack
from ropewalk.store._s3_url import Place, parse_url
from ropewalk.tree.objects import Object, ObjectId

if TYPE_CHECKING:
    from ropewalk.store._s3_bucket import Bucket
    from ropewalk.store._s3_postgres import PostgresCells
    from ropewalk.store.postgres import PostgresStore

ELSEWHERE = "ropewalk/elsewhere"
"""Says that the spaces are not in the bucket: the id of the store that it belongs to."""

_WORTH_LOOKING = 256 * 1024  # For so many bytes it is asked first whether they are there.
_TRIES = 3
_LATE = 4  # Epochs for which deleted objects are remembered, for packs that come late.


class S3Store(RecordStore):
    """A store in a bucket, for as many processes as the bucket serves.

    `url` is `s3://bucket/prefix?endpoint=https://host:port&region=name`; without an endpoint
    it is AWS. The keys are given by name, or as `s3://key:secret@bucket`; without any, the
    driver looks for them as AWS's tools do. What a put acknowledges is durable by the word
    of the service. The server must keep conditional puts: this is tried out at each opening,
    and `NotAllowed` says which condition is ignored.

    With `refs`, the URL of a Postgres database or a `PostgresStore` whose connections are
    then shared, spaces are kept there, and only objects in the bucket, which need not keep
    conditions then.

    A small commit is two requests. Each request takes at most `timeout` seconds, and is
    tried again a few times until then. `poll_seconds` is how often `watch` asks for what
    others did.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    _waits: ClassVar[tuple[float, float]] = 0.0005, 0.1
    _recalls: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - each by name
        self,
        url: str,
        *,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        refs: str | PostgresStore | None = None,
        timeout: float = 20.0,
        poll_seconds: float = 0.5,
        backend_id: str = "s3",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        create: bool = True,
        default_ttl_seconds: float | None = None,
    ) -> None:
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
            cache_bytes=cache_bytes,
            default_ttl_seconds=default_ttl_seconds,
        )
        expect(isinstance(url, str), "a store in a bucket is opened by a URL", type(url))
        for name, given in (("timeout", timeout), ("poll_seconds", poll_seconds)):
            expect_seconds(given, name)
            expect(given > 0, f"{name} is more than 0", given)
        self.poll_seconds = poll_seconds  # type: ignore[misc]
        place = parse_url(url)
        if access_key_id or secret_access_key or session_token:
            place = replace(
                place,
                access_key_id=access_key_id,
                secret_access_key=secret_access_key,
                session_token=session_token,
            )
        self.url = str(place)
        self._bucket = self._connect(place, timeout)
        self._elsewhere: PostgresCells | None = None
        try:
            asked = place.refs if refs is None else refs
            if asked is not None:
                self._elsewhere = self._connect_refs(asked, timeout, threads)
                self._elsewhere.open(create)
            self._cells: Cells = self._elsewhere or BucketCells(self._bucket)
            self._log = Spaces(self._cells)
            self._index = Index(self._bucket, self._cells)
            self._header = self._open(create)
        except BaseException:
            self._close()
            raise

    def _connect(self, place: Place, timeout: float) -> Bucket:
        try:
            from ropewalk.store._s3_bucket import Bucket
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a store in a bucket needs the package {error.name!r}: pip install 'ropewalk[s3]'"
            ) from error
        return Bucket(place, timeout)

    def _connect_refs(
        self, refs: str | PostgresStore, timeout: float, threads: int
    ) -> PostgresCells:
        try:
            from ropewalk.store._s3_postgres import connect
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"refs in Postgres need the package {error.name!r}: "
                "pip install 'ropewalk[s3,postgres]'"
            ) from error
        return connect(refs, self.url, timeout, threads)

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives, by the word of the service."""
        return "full"

    # Opening and closing.

    def _open(self, create: bool) -> Header:
        data = self._cells.get(HEADER)
        if data is None and not create:
            raise NotFound(
                f"there is no store in {self.url}. Correct the URL, or open it with create=True."
            )
        if self._elsewhere is None:
            probe(self._bucket)
        for _ in range(_TRIES):
            if data is None:
                # A server may refuse two who create at once, both.
                self._create()
                data = self._cells.get(HEADER)
        if data is None:
            raise damaged(HEADER)
        header = decode_header(unseal(HEADER, data))
        if self._elsewhere is not None:
            self._expect_pair(header)
        return header

    def _expect_pair(self, header: Header) -> None:
        """Raise if the bucket belongs to another database."""
        found = self._bucket.get(ELSEWHERE)
        if found is None and not self._log.names(""):  # Whoever made it was killed on the way.
            self._bucket.put(ELSEWHERE, header.store_id)
            return
        if found is None or found.data != header.store_id:
            raise Corrupt(
                f"{self.url} and the refs in Postgres do not belong together: the bucket was made "
                "with another database, or was emptied. Correct refs=, or restore the bucket."
            )

    def _wrong_pair(self, keys: Collection[str]) -> RopewalkError:
        """What it means that a bucket holds a store of which the database knows nothing."""
        if HEADER in keys:
            return InvalidInput(
                f"the store in {self.url} keeps its spaces in the bucket itself: open it without "
                "refs=, or choose another prefix."
            )
        return Corrupt(
            f"{self.url} holds objects of a store, but the database that refs= names knows nothing "
            "of it. Nothing was changed: correct refs=, restore the database from a copy, or "
            "choose another prefix."
        )

    def _create(self) -> None:
        """Make an empty store; the header comes last."""
        others = {key for key, _ in self._bucket.listing(ROOT.rstrip("/"))} - {CATALOG}
        if ELSEWHERE in others and self._elsewhere is None:
            raise InvalidInput(
                f"the spaces of the store in {self.url} are kept in Postgres: open it with refs=, "
                "the URL of that database."
            )
        lost = sorted(key for key in others if not key.startswith(PROBES))
        if lost and self._elsewhere is not None and self._cells.get(HEADER) is None:
            raise self._wrong_pair(others)
        if lost and self._cells.get(HEADER) is None:
            raise Corrupt(
                f"{self.url} holds {lost[0]!r}, but {HEADER!r} is gone. Nothing was changed: "
                "restore it from a copy, or choose another prefix."
            )
        self._cells.swap(CATALOG, None, encode_catalog(Catalog(1)))
        self._cells.swap(HEADER, None, seal(HEADER, encode_header(Header(os.urandom(16)))))

    def _close(self) -> None:
        self._bucket.close()
        if self._elsewhere is not None:
            self._elsewhere.close()

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, bytes]:
        found: dict[ObjectId, bytes] = {}
        wanted = list(ids)
        gone: set[str] = set()
        while wanted:
            copies = self._located(wanted)
            read = self._index.read(copies.values())
            found.update({id: frame for id, frame in read.items() if frame is not None})
            # A collection may have moved frames since we learned of their pack: then a second
            # look leads elsewhere. If it leads to the same place, the pack is lost.
            lost = {copies[id].pack for id, frame in read.items() if frame is None}
            if lost <= gone:
                break
            gone |= lost
            wanted = [id for id in copies if id not in found]
            self._index.drop(lost)
        return found

    def _located(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Copy]:
        unknown = [id for id in ids if self._index.nearest(id) is None]
        if unknown:
            self._index.find(unknown)
        found = ((id, self._index.nearest(id)) for id in ids)
        return {id: copy for id, copy in found if copy is not None}

    def _presence(self, ids: Iterable[ObjectId]) -> Mapping[ObjectId, Presence]:
        asked = list(ids)
        self._index.look()
        self._index.find(asked)
        return self._index.known(asked)

    # Commits.

    def _epoch(self) -> int:
        return read_catalog(self._cells)[1].epoch

    def _to_write(self, space: str, names: Iterable[str] = (), recall: bool = False) -> Moment:
        # Who knows of later marks commits in their epoch: a collection may have been killed
        # before it raised this space's.
        moment = super()._to_write(space, names, recall)
        epoch = max(moment.record.epoch, self._index.catalog.epoch)
        return moment._replace(record=replace(moment.record, epoch=epoch))

    def _present(self, batch: Batch, epoch: int) -> Mapping[ObjectId, Presence]:
        index = self._index
        index.sync(epoch)
        # What is written and not known to be there is written again: to ask would take longer.
        index.find(batch.required(epoch))
        if sum(len(one.frame) for one in batch.frames) >= _WORTH_LOOKING:
            index.find(one.id for one in batch.frames)
        return index.known(batch.asks(epoch))

    def _arrange(self, batch: Batch, objects: Sequence[Object]) -> tuple[Batch, Sequence[Object]]:
        if sum(len(one.payload) for one in objects) <= PACK_BYTES:
            return batch, objects  # One pack: it is there as a whole, or not.
        return batch, lowest_first(objects, below(objects))

    def _keep(self, frames: Sequence[Framed], epoch: int, below: Below) -> None:
        # One after the other: what a pack points to is in it, or in one that is there.
        for some in _packed(frames):
            self._put_pack(epoch, some)
        self._index.write_file()

    def _put_pack(self, epoch: int, frames: Sequence[Framed]) -> None:
        name, rows = pack_name(epoch), rows_of(frames)
        data = seal_pack([one.frame for one in frames], rows)
        self._bucket.put(f"{PACKS}/{name}", data)
        self._index.keep(name, data)
        self._index.add(name, rows)

    # Collection.

    def gc(
        self,
        *,
        recent: int = RECENT,
        grace: float = 0.0,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Collected:
        """Delete the objects that no ref and no recent operation reaches.

        As for every store. Small packs are put together afterwards, also where nothing
        was deleted.
        """
        done = super().gc(recent=recent, grace=grace, dry_run=dry_run, progress=progress)
        if not dry_run:
            self._tidy()
        return done

    def _scan(self) -> Iterator[Stored]:
        self._index.refresh()
        for id in self._index.ids():
            best = self._index.best(id)
            if best is not None:
                (_, epoch, row), _ = best
                catalog = self._index.catalog
                # By its own mark: what a living object is stored against is then revived.
                condemned = catalog.mark(id).state(epoch) is State.CONDEMNED
                doubt = doubt_of(self._index, best[0], catalog.epoch)
                yield Stored(id, row.kind, row.size, row.length, row.base, condemned, doubt)

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        self._index.refresh()
        for name, message in sorted(self._index.unsound.items()):
            yield f"{PACKS}/{name}", f"{message}. Restore it from a copy."

    def _disk_bytes(self) -> int:
        return sum(size for _, size in self._bucket.listing(ROOT.rstrip("/")))

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        def condemn(catalog: Catalog) -> Catalog:
            self._index.refresh()
            there = [id for id in ids if self._index.best(id) is not None]
            packs = [(name, epoch_of(name) or 0) for name in self._index.packs()]
            return catalog.condemned(there, collection).knowing(packs) if there else catalog

        before = self._index.catalog.epoch
        changed = change_catalog(self._cells, condemn)
        if changed.epoch == before:
            return
        self._index.take(changed)
        # A mark holds for a space once its epoch is raised: who commits knows of it then.
        self._raise_every(changed.epoch)

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        if ids:
            self._index.take(change_catalog(self._cells, lambda one: one.revived(ids)))

    def _clear_doubt(self, found: Sequence[Stored]) -> None:
        settle(self._bucket, self._index, found)

    def _raise_epochs(self) -> int:
        raised = change_catalog(self._cells, Catalog.raised)
        self._index.take(raised)
        self._raise_every(raised.epoch)
        return raised.epoch

    def _raise_every(self, epoch: int) -> None:
        def raise_one(space: str) -> None:
            self._until_swapped(space, partial(self._raise_epoch, space, epoch))

        self._bucket.each(raise_one, self._log.names(""))

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        self._index.refresh()
        deleted: list[ObjectId] = []

        def delete(catalog: Catalog) -> Catalog:
            deleted.clear()
            marked = [
                id
                for id in ids
                if (mark := catalog.mark(id)).epoch and mark.collection == collection
            ]
            # What was written since is alive; only the older copies go.
            alive = {id for id in marked if self._written_since(id, catalog.mark(id).epoch)}
            deleted.extend(id for id in marked if id not in alive)
            return catalog.deleted(marked)

        self._index.take(change_catalog(self._cells, delete))
        compact(self._bucket, self._index)
        return deleted

    def _written_since(self, id: ObjectId, epoch: int) -> bool:
        return any(copy.epoch >= epoch for copy in self._index.copies(id))

    def _tidy(self) -> None:
        """Put small packs together, and forget what was deleted long ago."""
        self._index.refresh()
        compact(self._bucket, self._index)
        held = set(self._index.ids())
        epoch = self._index.catalog.epoch

        def forget(catalog: Catalog) -> Catalog:
            late = {
                id: mark._replace(dead=0)
                for id, mark in catalog.marks.items()
                if mark.dead and id not in held and mark.dead + _LATE <= epoch
            }
            return catalog.marked(late)

        self._index.take(change_catalog(self._cells, forget))


def _packed(frames: Sequence[Framed]) -> Iterator[list[Framed]]:
    """Frames in portions that are not too large."""
    some: list[Framed] = []
    held = 0
    for one in frames:
        if some and held + len(one.frame) > PACK_BYTES:
            yield some
            some, held = [], 0
        some.append(one)
        held += len(one.frame)
    if some:
        yield some
