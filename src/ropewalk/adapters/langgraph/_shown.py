"""A store in which every LangGraph thread is shown as a timeline.

The index of a thread has all that a timeline would say. So nothing is stored twice: commits,
branches and operations are made of it when somebody looks. The newest checkpoint is the head
of `main`; where a thread forked, what was left has a branch of its own; what lost a race
against another run is on a branch that says so; pinned checkpoints have tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from ropewalk.adapters.langgraph._entries import Entry, Record
from ropewalk.adapters.langgraph._index import PINS, ROOT, Index, noted_name
from ropewalk.adapters.langgraph._names import CHECKPOINTS, TENANT, thread_of
from ropewalk.adapters.langgraph._steps import make_step, nodes_between
from ropewalk.codec import default_codec, inspection_codec
from ropewalk.errors import InvalidInput
from ropewalk.history import MAIN
from ropewalk.store import Move, Operation, Ref, Store, View, ref_name
from ropewalk.store._decide import Batch
from ropewalk.store._wrapping import WrapperStore
from ropewalk.tree import Commit, Kind, Object, ObjectId, Reader, make_object
from ropewalk.tree._load import Loader
from ropewalk.tree._parts import linked

_MAIN: Final = ref_name("branch", MAIN)


class Shown(NamedTuple):
    """A thread as a timeline."""

    root: ObjectId
    """Of the index that it was made of."""
    commits: dict[ObjectId, Object]
    refs: dict[str, ObjectId]
    operations: list[Operation]
    ids: dict[str, ObjectId]
    """The commits by the ids of their checkpoints."""


class ShownStore(WrapperStore):
    """Shows LangGraph's threads as timelines, which nobody can change here."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._shown: dict[str, Shown] = {}
        self._commits: dict[ObjectId, Object] = {}

    def commit_of(self, space: str, checkpoint_id: str) -> ObjectId | None:
        """The commit that a checkpoint is shown as."""
        shown = self._look(space)
        return None if shown is None else shown.ids.get(checkpoint_id)

    def reader(self, space: str) -> Reader:
        """Reads objects of a space, also the commits that are only shown."""
        read_stored = super().reader(space)

        def read(ids: Sequence[ObjectId]) -> list[Object]:
            stored = [id for id in ids if id not in self._commits]
            found = dict(zip(stored, read_stored(stored), strict=True)) if stored else {}
            return [self._commits.get(id) or found[id] for id in ids]

        return read

    def _view(self, space: str, prefix: str) -> View:
        view, shown = super()._view(space, prefix), self._look(space)
        if shown is None:
            return view
        last = len(shown.operations)
        refs = [Ref(name, id, last) for name, id in sorted(shown.refs.items())]
        return View(last, view.epoch, tuple(ref for ref in refs if ref.name.startswith(prefix)))

    def _ref(self, space: str, name: str) -> Ref | None:
        shown = self._look(space)
        if shown is None:
            return super()._ref(space, name)
        target = shown.refs.get(name)
        return None if target is None else Ref(name, target, len(shown.operations))

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        shown = self._look(space)
        if shown is None:
            return super()._operations(space, after, limit)
        return shown.operations[after : after + limit]

    def _land(self, batch: Batch, objects: Sequence[Object]) -> Operation:
        if self._look(batch.space) is not None:
            _refuse(batch.space)
        return super()._land(batch, objects)

    def _look(self, space: str) -> Shown | None:
        """The thread in a space; None if it is something else."""
        if not space.startswith(f"{TENANT}/"):
            return None
        ref = super()._ref(space, CHECKPOINTS)
        if ref is None:
            return None
        known = self._shown.get(space)
        if known is None or known.root != ref.target:
            known = self._shown[space] = self._made(space, ref.target)
            self._commits.update(known.commits)
        return known

    def _made(self, space: str, root: ObjectId) -> Shown:
        read = self.inner.reader(space)
        index = Index(root, read)
        name = thread_of(space) or noted_name(root, read)
        loader = Loader(read, inspection_codec)
        found = {
            one.address.id: (one.entry, Record.read(one.entry, loader))
            for one in index.newest_first(ROOT)
        }
        maker = _Maker(space, name, found)
        for id in reversed(found):
            maker.show(id)
        pins = index.notes(default_codec).get(PINS, {})
        return maker.shown(root, {pin: id for pin, (where, id) in pins.items() if where == ROOT})


class _Maker:
    """Makes a timeline of checkpoints, parents before children."""

    def __init__(self, space: str, name: str, found: Mapping[str, tuple[Entry, Record]]) -> None:
        self._space, self._name, self._found = space, name, found
        self._made: dict[str, Commit] = {}
        self._objects: dict[ObjectId, Object] = {}
        self._refs: dict[str, ObjectId] = {}
        self._operations: list[Operation] = []

    def show(self, id: str) -> None:
        """Show a checkpoint, after those that it follows."""
        line: list[str] = []
        while id in self._found and id not in self._made and id not in line:
            line.append(id)
            id = self._found[id][1].parent or ""
        for one in reversed(line):
            self._add(one)

    def _add(self, id: str) -> None:
        entry, record = self._found[id]
        parent = self._made.get(record.parent or "")
        before = None if parent is None else self._found[record.parent or ""][1].checkpoint
        nodes = nodes_between(before, record.checkpoint)
        values = linked(entry.values)
        if values is None:
            whole = make_object(Kind.VALUE, entry.values)
            values, self._objects[whole.id] = whole.id, whole
        commit, made = make_step(self._name, record, values, parent, nodes)
        self._made[id], self._objects[commit.id] = commit, made
        follows = None if parent is None else parent.id
        if record.aside:
            self._move(self._branch_at(follows) or _branch("aside", commit.id), commit)
        else:
            self._advance(commit, follows)

    def _advance(self, commit: Commit, follows: ObjectId | None) -> None:
        head, beside = self._refs.get(_MAIN), []
        if head is not None and head != follows:
            fork = _branch("fork", head)
            self._refs[fork] = head
            beside.append(Move(fork, None, head))
            left = self._branch_at(follows)
            if left is not None:
                del self._refs[left]
                beside.append(Move(left, follows, None))
        self._move(_MAIN, commit, beside)

    def _branch_at(self, commit: ObjectId | None) -> str | None:
        names = (name for name, id in self._refs.items() if id == commit and name != _MAIN)
        return next(names, None)

    def _move(self, name: str, commit: Commit, beside: Sequence[Move] = ()) -> None:
        before = self._refs.get(name)
        self._refs[name] = commit.id
        action = "commit" if commit.parents == (() if before is None else (before,)) else "fork"
        number = len(self._operations) + 1
        moves = (*beside, Move(name, before, commit.id))
        about = {"action": action}
        self._operations.append(
            Operation(self._space, number, moves, f"{number:032x}", commit.time, 1, about)
        )

    def shown(self, root: ObjectId, pins: Mapping[str, str]) -> Shown:
        """The timeline that was made."""
        ids = {id: commit.id for id, commit in self._made.items()}
        tags = {ref_name("tag", pin): ids[id] for pin, id in pins.items() if id in ids}
        return Shown(root, self._objects, {**self._refs, **tags}, self._operations, ids)


def _branch(kind: str, commit: ObjectId) -> str:
    return ref_name("branch", f"{kind}-{commit.hex()[:12]}")


def _refuse(space: str) -> NoReturn:
    raise InvalidInput(
        f"{space!r:.80} is a thread of LangGraph: only a graph changes it. Run the graph from an "
        "earlier checkpoint, or use its update_state."
    )
