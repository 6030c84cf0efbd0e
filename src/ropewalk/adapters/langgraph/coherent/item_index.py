"""Expiry and embeddings of items: the index beside the artifacts of a `CoherentStore`.

The artifact alone defines an item. Its version records when the item expires, as of the last put,
and which fields are embedded. Data that changes without a new version, or can be rebuilt, is in a
separate `RopewalkStore`: expiry times renewed by reads, and vectors. Each entry names the version
it belongs to. A missing or stale entry is ignored, and rewritten at the next search or read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.embeddings import Embeddings
from langgraph.store.base import GetOp, IndexConfig, PutOp, TTLConfig

from ropewalk.adapters.langgraph.coherent.naming import (
    NOBODY,
    Scope,
    artifact_name,
    split_artifact,
)
from ropewalk.adapters.langgraph.store.snapshot import MINUTE, check_ttl, now
from ropewalk.adapters.langgraph.store.store import RopewalkStore
from ropewalk.adapters.langgraph.store.vectors import Indexing, distinct
from ropewalk.coherence import Artifact, CoherenceCore
from ropewalk.coherence.protocol import Note, Version
from ropewalk.errors import Unavailable

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.coherent.items import Put

_TTL: Final = "ttl"
"""In minutes."""
_ENDS: Final = "expires_at"
"""In microseconds since 1970."""
_FIELDS: Final = "index"
_OF: Final = "of"
_VECTORS: Final = "vectors"
_FIRST: Final = 32


class Prepared(NamedTuple):
    """The index data of a put."""

    note: Note
    vectors: Sequence[Sequence[float]] = ()


class ItemIndex:
    """Tracks expiry, and ranks items by similarity. Safe to share between threads."""

    sweeper = NOBODY

    def __init__(
        self, core: CoherenceCore, index: IndexConfig | None, ttl: TTLConfig | None
    ) -> None:
        self._core = core
        self._indexing = None if index is None else Indexing(index)
        self._ready: dict[str, Sequence[float]] = {}
        config: Any = None
        if self._indexing is not None:
            embed = _Ready(self._indexing.embeddings, self._ready)
            config = {"dims": self._indexing.dims, "embed": embed, "fields": [f"{_VECTORS}[*]"]}
        self._entries = RopewalkStore(core.store, index=config, ttl=ttl, name=f"{core.name}.index")
        self.ttl_config = ttl
        self.clock = now
        self._known: dict[str, bytes] = {}
        """Of each artifact the version whose entry is known to be there."""

    @property
    def has_vectors(self) -> bool:
        """Whether items are embedded."""
        return self._indexing is not None

    def close(self) -> None:
        """Let go."""
        self._entries.close()

    # Expiry.

    def refreshes(self, refresh: bool | None) -> bool:
        """Whether reads renew the expiry of items."""
        if self.ttl_config is None:
            return False
        return self.ttl_config.get("refresh_on_read", True) if refresh is None else refresh

    def is_living(self, artifact: str, version: Version) -> bool:
        """Whether an item has not expired; raises `Unavailable` if that cannot be determined."""
        end = (version.note or {}).get(_ENDS)
        if end is None or self.clock() < end:
            return True
        entry = self._entries.get(*_place(artifact), refresh_ttl=False)
        return entry is not None and entry.value[_OF] == version.id

    def refresh(self, versions: Mapping[str, Version]) -> None:
        """Renew the expiry of living items that have one."""
        ending = {name: one for name, one in versions.items() if _TTL in (one.note or {})}
        if not ending:
            return
        try:
            found = self._entries.batch([GetOp(*_place(name), True) for name in ending])
        except Unavailable:
            return  # The values read are correct all the same.
        moment = self.clock()
        for (name, version), entry in zip(ending.items(), found, strict=True):
            is_about = entry is not None and entry.value[_OF] == version.id
            if not is_about and moment < (version.note or {})[_ENDS]:
                self._known.pop(name, None)
                self._complete({name: version})

    def sweep(self) -> None:
        """Delete the entries of expired items."""
        self._entries.sweep_ttl()

    # Puts.

    def default_note(self) -> Note:
        """The index data of an item that an edit creates."""
        return self._note((self.ttl_config or {}).get("default_ttl"), None)

    def prepared(self, puts: Mapping[str, Put], note: Note | None = None) -> dict[str, Prepared]:
        """The index data of puts; embedding errors are raised before anything is put."""
        texts: dict[str, list[str]] = {}
        notes: dict[str, Note] = {}
        for name, put in puts.items():
            notes[name] = self._note(put.ttl, put.index) if note is None else note
            assert put.value is not None
            texts[name] = self._texts(put.value, notes[name])
        vectors = self._embedded(distinct(text for some in texts.values() for text in some))
        return {
            name: Prepared(notes[name], [vectors[text] for text in some])
            for name, some in texts.items()
        }

    def enter(self, made: Mapping[str, Artifact], ready: Mapping[str, Prepared]) -> None:
        """Index the results of puts. A merged item is embedded when it is searched."""
        self._enter(
            {name: one.origin for name, one in made.items() if not one.degraded and not one.merged},
            {name: one.vectors for name, one in ready.items()},
        )

    def _enter(
        self, versions: Mapping[str, Version], vectors: Mapping[str, Sequence[Sequence[float]]]
    ) -> None:
        ops = []
        for name, version in versions.items():
            minutes = (version.note or {}).get(_TTL)
            if self._indexing is None and minutes is None:
                continue
            tokens = []
            for number, vector in enumerate(vectors.get(name, ())):
                tokens.append(f"{version.id.hex()}/{number}")
                self._ready[tokens[-1]] = vector
            entry = {_OF: version.id, _VECTORS: tokens}
            index = None if tokens else False
            ops.append(PutOp(*_place(name), entry, index, minutes))
        try:
            self._entries.batch(ops)
        except Unavailable:
            return  # The items are stored. Their entries are created when they are needed.
        finally:
            for op in ops:
                for token in op.value[_VECTORS]:
                    self._ready.pop(token, None)
        self._known.update({name: one.id for name, one in versions.items()})

    def _note(self, minutes: float | None, fields: Any) -> Note:
        note: dict[str, Any] = {}
        checked = check_ttl(minutes)
        if checked is not None:
            note = {_TTL: checked, _ENDS: self.clock() + round(checked * MINUTE)}
        if self._indexing is not None and fields is not None:
            note[_FIELDS] = list(fields) if isinstance(fields, tuple) else fields
        return note

    def _texts(self, value: dict[str, Any], note: Note) -> list[str]:
        if self._indexing is None:
            return []
        return list(self._indexing.texts(value, note.get(_FIELDS)).values())

    def _embedded(self, texts: list[str]) -> dict[str, Sequence[float]]:
        if self._indexing is None or not texts:
            return {}
        vectors = self._indexing.embeddings.embed_documents(texts)
        self._indexing.rows(texts, vectors)  # Here, so that no item is stored that cannot be found.
        return dict(zip(texts, vectors, strict=True))

    # Searching by similarity.

    def ranked(
        self, scope: Scope, query: str, versions: Mapping[str, Version]
    ) -> Iterator[dict[str, float]]:
        """The living items with vectors among some artifacts, most similar first, with scores.

        Yields batches that double in size.
        """
        living = {name: one for name, one in versions.items() if self.is_living(name, one)}
        self._complete(living)
        offset, limit = 0, _FIRST
        while True:
            hits = self._entries.search(
                _home(scope), query=query, limit=limit, offset=offset, refresh_ttl=False
            )
            some = {}
            for hit in hits:
                name = artifact_name(hit.namespace[1:], hit.key)
                version = living.get(name)
                if hit.score is not None and version and hit.value[_OF] == version.id:
                    some[name] = hit.score
            if some:
                yield some
            if len(hits) < limit or hits[-1].score is None:
                return
            offset, limit = offset + limit, 2 * limit

    def _complete(self, versions: Mapping[str, Version]) -> None:
        """Create missing and stale entries."""
        unknown = [name for name, one in versions.items() if self._known.get(name) != one.id]
        if not unknown:
            return
        found = self._entries.batch([GetOp(*_place(name), False) for name in unknown])
        missing: dict[str, Version] = {}
        for name, entry in zip(unknown, found, strict=True):
            version = versions[name]
            if entry is not None and entry.value[_OF] == version.id:
                self._known[name] = version.id
            else:
                missing[name] = version
        if not missing:
            return
        if self._indexing is None:
            self._enter(missing, {})
            return
        texts: dict[str, list[str]] = {}
        for one in self._core.search(NOBODY, among=lambda name, _: name in missing):
            texts[one.name] = self._texts(one.value, one.origin.note or {})
            missing[one.name] = one.origin
        vectors = self._embedded(distinct(text for some in texts.values() for text in some))
        self._enter(
            {name: missing[name] for name in texts},
            {name: [vectors[text] for text in some] for name, some in texts.items()},
        )


class _Ready(Embeddings):
    """Returns vectors computed before, by the tokens that stand for them."""

    def __init__(self, embeddings: Embeddings, ready: Mapping[str, Sequence[float]]) -> None:
        self._embeddings, self._vectors = embeddings, ready

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(self._vectors[token]) for token in texts]

    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = self._embeddings.embed_query(text)
        return vector


def _home(scope: Scope) -> Scope:
    return ("items", *scope)  # A scope may be empty, but a namespace may not.


def _place(artifact: str) -> tuple[Scope, str]:
    scope, key = split_artifact(artifact)
    return _home(scope), key
