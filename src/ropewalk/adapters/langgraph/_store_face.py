"""The two faces of a memory: calls, and calls that are awaited."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from langgraph.store.base import BaseStore

from ropewalk.adapters.langgraph._store_ops import Plan, planned
from ropewalk.adapters.langgraph._store_writing import Put
from ropewalk.adapters.langgraph._vectors import Indexing
from ropewalk.store.asynchronous import Threads


class Embedded(NamedTuple):
    """The vectors of a plan, as they are stored."""

    queries: Mapping[str, bytes]
    documents: Mapping[str, bytes]

    def puts(self, plan: Plan) -> list[Put]:
        """The puts of the plan, with their vectors."""
        made = []
        for name, put in plan.puts.items():
            texts = plan.texts.get(name, {})
            vectors = {path: self.documents[text] for path, text in texts.items()}
            made.append(replace(put, vectors=vectors))
        return made


class Face(BaseStore):
    """Plans a batch, embeds what it needs, and has it done."""

    _indexing: Indexing | None

    @property
    @abstractmethod
    def _threads(self) -> Threads:
        """Where awaited calls run."""

    @abstractmethod
    def _execute(self, plan: Plan, embedded: Embedded) -> list[Any]:
        """Do what a plan says; what each operation gives."""

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Do several operations at once; what each gives, in their order.

        Reads see what was there before the puts of the batch. Of several puts of one key,
        the last counts. All puts are one commit: all of them are made, or none.
        """
        return self._do(planned(ops, self._indexing))

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """The asynchronous twin of `batch`."""
        return await self._ado(planned(ops, self._indexing))

    def _do(self, plan: Plan) -> list[Any]:
        return self._execute(plan, self._embed(plan))

    async def _ado(self, plan: Plan) -> list[Any]:
        embedded = await self._aembed(plan)
        return await self._threads.run(partial(self._execute, plan, embedded))

    def _embed(self, plan: Plan) -> Embedded:
        indexing = self._indexing
        if indexing is None:
            return Embedded({}, {})
        embeddings, documents, queries = indexing.embeddings, plan.documents, plan.queries
        vectors = embeddings.embed_documents(documents) if documents else []
        asked = [embeddings.embed_query(query) for query in queries]
        return Embedded(indexing.rows(queries, asked), indexing.rows(documents, vectors))

    async def _aembed(self, plan: Plan) -> Embedded:
        indexing = self._indexing
        if indexing is None:
            return Embedded({}, {})
        embeddings, documents, queries = indexing.embeddings, plan.documents, plan.queries
        vectors = await embeddings.aembed_documents(documents) if documents else []
        asked = [await embeddings.aembed_query(query) for query in queries]
        return Embedded(indexing.rows(queries, asked), indexing.rows(documents, vectors))
