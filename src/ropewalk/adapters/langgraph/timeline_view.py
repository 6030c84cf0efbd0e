"""A store in which every LangGraph thread is shown as a timeline.

The commits of a thread are one chain, of all its namespaces and forks. A timeline shows where
each checkpoint came from: its commits, branches and operations are made of the chain when
somebody looks. The newest checkpoint is the head of `main`; where a thread forked, what was left
has a branch of its own; what lost a race against another run is on a branch that says so; pinned
checkpoints have tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, NoReturn

from ropewalk.adapters.langgraph.checkpoints import ROOT, Record, Step, record_of
from ropewalk.adapters.langgraph.log import Log, Steps, listed
from ropewalk.adapters.langgraph.names import CHECKPOINTS, TENANT
from ropewalk.codec import inspection_codec
from ropewalk.errors import InvalidInput
from ropewalk.history import MAIN
from ropewalk.store import Move, Operation, Ref, Store, View, ref_name
from ropewalk.store.record import Batch
from ropewalk.store.wrappers import WrapperStore
from ropewalk.tree import Commit, Loader, Object, ObjectId, Reader, make_commit

CHECKPOINT: Final = "checkpoint"
"""Under this name the extension of a shown commit has the id of its checkpoint."""

_HIDDEN: Final = ("__input__", "__start__", "__interrupt__")
_MAIN: Final = ref_name("branch", MAIN)


class Shown(NamedTuple):
    """A thread as a timeline."""

    head: ObjectId
    """Of the chain that it was made of."""
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
        if known is None or known.head != ref.target:
            known = self._shown[space] = self._made(space, ref.target)
            self._commits.update(known.commits)
        return known

    def _made(self, space: str, head: ObjectId) -> Shown:
        read = self.inner.reader(space)
        log = Log(self.inner, space, read, Steps(read))
        assert log.head is not None
        loader = Loader(read, inspection_codec)
        found = {
            one.address.id: (one.step, record_of(one.step, loader)) for one in listed(log, ROOT)
        }
        maker = _Maker(space, log.head.commit.agent, found)
        for id in reversed(found):
            maker.show(id)
        pins = {name: one.id for name, one in log.pins().items() if one.namespace == ROOT}
        return maker.shown(head, pins)


class _Maker:
    """Makes a timeline of checkpoints, parents before children."""

    def __init__(self, space: str, name: str, found: Mapping[str, tuple[Step, Record]]) -> None:
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
            id = self._found[id][0].parent or ""
        for one in reversed(line):
            self._add(one)

    def _add(self, id: str) -> None:
        step, record = self._found[id]
        parent = self._made.get(step.parent or "")
        before = None if parent is None else self._found[step.parent or ""][1].checkpoint
        nodes = nodes_between(before, record.checkpoint)
        commit, made = make_step(self._name, record, step.commit.root, parent, nodes)
        self._made[id], self._objects[commit.id] = commit, made
        follows = None if parent is None else parent.id
        if step.aside:
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

    def shown(self, head: ObjectId, pins: Mapping[str, str]) -> Shown:
        """The timeline that was made."""
        ids = {id: commit.id for id, commit in self._made.items()}
        tags = {ref_name("tag", pin): ids[id] for pin, id in pins.items() if id in ids}
        return Shown(head, self._objects, {**self._refs, **tags}, self._operations, ids)


def _branch(kind: str, commit: ObjectId) -> str:
    return ref_name("branch", f"{kind}-{commit.hex()[:12]}")


def _refuse(space: str) -> NoReturn:
    raise InvalidInput(
        f"{space!r:.80} is a thread of LangGraph: only a graph changes it. Run the graph from an "
        "earlier checkpoint, or use its update_state."
    )


def make_step(
    thread: str, record: Record, values: ObjectId, parent: Commit | None, nodes: str
) -> tuple[Commit, Object]:
    """The commit of a checkpoint."""
    metadata = record.metadata
    return make_commit(
        values,
        () if parent is None else (parent.id,),
        generation=1 if parent is None else parent.generation + 1,
        time=_microseconds(record.checkpoint.get("ts")),
        agent=thread,
        branch=MAIN,
        description=f"{metadata.get('source', 'put')} {metadata.get('step', '')}".strip(),
        logic_step=nodes,
        extension={CHECKPOINT: str(record.checkpoint["id"])},
    )


def nodes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """The names of the nodes that ran between two checkpoints."""
    seen = (before or {}).get("versions_seen") or {}
    now = after.get("versions_seen") or {}
    ran = [node for node in now if now[node] != seen.get(node) and node not in _HIDDEN]
    return ", ".join(map(str, ran))


def _microseconds(time: Any) -> int:
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1_000_000)
    except (TypeError, ValueError, OverflowError):
        return 0
