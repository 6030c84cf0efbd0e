"""Commits in a store: found with few reads, and landed with one write."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from holdfast.errors import InvalidInput, MissingObjects, NotFound
from holdfast.history._attempts import sent
from holdfast.store import Move, Operation, Store
from holdfast.tree import Commit, Kind, Object, ObjectId, read_commit

if TYPE_CHECKING:
    from holdfast.store import Scalar

_REMEMBERED = 4096


class StepFields(TypedDict, total=False):
    """What a caller may say about a step: fields of its commit."""

    description: str
    logic_step: str
    status: str
    error: str
    agent: str
    branch: str
    extension: Mapping[str, Any]
    time: int


def check_fields(fields: StepFields) -> None:
    """Raise `InvalidInput` for a field that nobody knows."""
    unknown = fields.keys() - StepFields.__annotations__.keys()
    if unknown:
        known = ", ".join(StepFields.__annotations__)
        raise InvalidInput(f"a step has no {', '.join(sorted(unknown))}; it has {known}")


class Commits:
    """The commits of one space. Safe to share between threads."""

    def __init__(self, store: Store, space: str) -> None:
        self._store, self._space = store, space
        self._known: OrderedDict[ObjectId, Commit] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, id: ObjectId) -> Commit:
        """The commit with an id; raises `NotFound`."""
        with self._lock:
            found = self._known.get(id)
        if found is not None:
            return found
        try:
            (read,) = self._store.read([id])
        except MissingObjects:
            raise NotFound(f"there is no commit {id.hex()} in the store") from None
        if read.kind != Kind.COMMIT:
            raise NotFound(f"object {id.hex()} is not a commit")
        commit = read_commit(read)
        self.remember([commit])
        return commit

    def remember(self, commits: Iterable[Commit]) -> None:
        """Keep commits at hand."""
        with self._lock:
            for commit in commits:
                self._known[commit.id] = commit
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def land(
        self,
        objects: Sequence[Object],
        needs: Sequence[ObjectId],
        moves: Sequence[Move],
        metadata: Mapping[str, Scalar],
        *,
        write_id: str | None = None,
        epoch: int | None = None,
    ) -> Operation:
        """One write, sent again if no answer came."""
        id = new_write_id() if write_id is None else write_id
        return sent(
            lambda: self._store.commit(
                self._space,
                objects,
                needs,
                moves,
                operation=metadata,
                write_id=id,
                epoch=epoch,
            )
        )


def new_write_id() -> str:
    """A write id that nobody else has."""
    return os.urandom(16).hex()
