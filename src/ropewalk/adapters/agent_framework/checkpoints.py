"""`RopewalkCheckpointStorage`: the checkpoints of workflows, each workflow as a timeline.

A checkpoint is a commit whose parent is the checkpoint before it. `main` is at the newest one. The
last checkpoints of other runs, and of what a fork left behind, are on branches named `run-...`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from os import PathLike
from typing import Any, Final

from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

from ropewalk.adapters.agent_framework.values import declare
from ropewalk.codec import Classes, Codec
from ropewalk.errors import RopewalkError
from ropewalk.history import MAIN, Commit, History
from ropewalk.history.commits import commit_loop, looks_itself
from ropewalk.store import KVStore, Move, Ref, Store, ref_name, space_name, split_name
from ropewalk.store.asynchronous import Closes, Threads
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of
from ropewalk.timeline.timeline import TENANT
from ropewalk.tree import ObjectId, TreeWriter, Written, load, make_commit

_MAIN: Final = ref_name("branch", MAIN)
_RUNS: Final = ref_name("branch", "run-")
_SAVED, _DELETED = "save", "delete"
_ID: Final = "checkpoint"
"""The id of a checkpoint in the extension of its commit, and in the log."""
_VALUES: Final = ("state", "messages", "pending_request_info_events", "metadata")
_REST: Final = (
    "graph_signature_hash",
    "previous_checkpoint_id",
    "timestamp",
    "iteration_count",
    "version",
)
_MOST_WRITERS: Final = 16
_MOST_HELD: Final = 64 << 20
"""How many bytes the writers of all runs hold at most, beside the newest one's."""


class RopewalkCheckpointStorage(Closes):
    """A `CheckpointStorage` of Agent Framework on any store.

    Stores each checkpoint as one step of the timeline that bears the workflow's name, when the
    framework saves it: what changed since the checkpoint before it. `get_latest` is the head of
    `main`, so a `rollback` or `undo` of the timeline decides where a workflow goes on.

    `types` are classes that may be stored beside plain ones; `pickle_key` and `classes` are as for
    a `Timeline`. Without a key nothing is pickled, and nothing that is read runs code. Without a
    store, checkpoints live as long as this object.
    """

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        classes: Classes | None = None,
        tenant: str = TENANT,
    ) -> None:
        self._codec = Codec(types=types, pickle_key=pickle_key, classes=classes or "plain")
        declare(self._codec.registry)
        self._tenant = tenant
        self._workflows: dict[str, _Workflow] = {}
        self._writers = _Writers()
        self._lock = freed_after_fork(threading.Lock())
        self.store, self._owns_store = store_of(store)

    def __repr__(self) -> str:
        return f"<RopewalkCheckpointStorage in {self.store!r}>"

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    def close(self) -> None:
        """Close the store, if this object opened it."""
        if self._owns_store:
            self.store.close()

    # The interface of Agent Framework.

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint as it is now, and return its id.

        Raises `WorkflowCheckpointException` for a value that cannot be stored exactly.
        """
        with _as_theirs(f"checkpoint {checkpoint.checkpoint_id} cannot be saved"):
            workflow = self._workflow(checkpoint.workflow_name)
            draft = _Draft(checkpoint, self._writers.take(checkpoint, self._codec))
            await self._threads.run(lambda: self._land(workflow, draft))
        return str(checkpoint.checkpoint_id)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """The checkpoint of an id; raises `WorkflowCheckpointException` if there is none."""
        return await self._threads.run(lambda: self._load(checkpoint_id))

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, in the order in which they were saved."""

        def listed() -> list[WorkflowCheckpoint]:
            workflow = self._workflow(workflow_name)
            ids = list(workflow.saved().values())
            workflow.history.look_ahead(ids)
            return [workflow.checkpoint(workflow.history.resolve(id)) for id in ids]

        with _as_theirs(f"the checkpoints of {workflow_name!r:.80} cannot be listed"):
            return await self._threads.run(listed)

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none.

        What later checkpoints share with it stays, and so does the step in the timeline.
        """
        with _as_theirs(f"checkpoint {checkpoint_id!r:.80} cannot be deleted"):
            return await self._threads.run(
                lambda: any(one.delete(checkpoint_id) for one in self._all())
            )

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """The newest checkpoint of a workflow, or None: the head of its timeline."""

        def newest() -> WorkflowCheckpoint | None:
            workflow = self._workflow(workflow_name)
            head = workflow.head()
            return None if head is None else self._read(workflow, head)

        with _as_theirs(f"the newest checkpoint of {workflow_name!r:.80} cannot be loaded"):
            return await self._threads.run(newest)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """The ids of `list_checkpoints`, without their values being read."""
        with _as_theirs(f"the checkpoints of {workflow_name!r:.80} cannot be listed"):
            return await self._threads.run(lambda: list(self._workflow(workflow_name).saved()))

    # Inside.

    def _workflow(self, name: str) -> _Workflow:
        with self._lock:
            found = self._workflows.get(name)
            if found is None:
                found = self._workflows[name] = _Workflow(
                    History(
                        self.store, space_name(self._tenant, name), codec=self._codec, agent=name
                    )
                )
            return found

    def _all(self) -> Iterator[_Workflow]:
        """All workflows, those that were used here first: an id does not say whose it is."""
        with self._lock:
            known = list(self._workflows)
        yield from map(self._workflow, known)
        for space in self.store.spaces(space_name(self._tenant, "x")[:-1]):
            name = split_name(space)[1]
            if name not in known:
                yield self._workflow(name)

    def _land(self, workflow: _Workflow, draft: _Draft) -> None:
        commit_loop(
            lambda: workflow.land(draft), look=looks_itself, resend=lambda _: draft.write_whole()
        )
        self._writers.put(draft.checkpoint_id, draft.accepted())

    def _load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        with _as_theirs(f"checkpoint {checkpoint_id!r:.80} cannot be loaded"):
            for workflow in self._all():
                commit = workflow.find(checkpoint_id)
                if commit is not None:
                    return self._read(workflow, commit)
        raise WorkflowCheckpointException(f"there is no checkpoint {checkpoint_id!r:.80}")

    def _read(self, workflow: _Workflow, commit: Commit) -> WorkflowCheckpoint:
        """A checkpoint that a run may go on from: what that changes is compared with it."""
        id = commit.extension[_ID]
        if self._writers.has(id):
            return workflow.checkpoint(commit)
        writer = TreeWriter(self._codec)
        values = writer.resume(commit.root, workflow.history.read)
        self._writers.put(id, writer)
        return workflow.checkpoint(commit, values)


class _Workflow:
    """The timeline of one workflow."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._saved: dict[str, ObjectId] = {}
        self._followed = 0
        """How far the log was read for `saved`."""
        self._lock = freed_after_fork(threading.Lock())

    def head(self) -> Commit | None:
        """The newest checkpoint."""
        found = self.history.store.ref(self.history.space, _MAIN)
        return None if found is None else self.history.resolve(found.target)

    def find(self, id: str) -> Commit | None:
        """The commit of a checkpoint; None if it was deleted, or never saved here."""
        sequences = self.history.store.find(self.history.space, _key(id))
        if not sequences:
            return None
        (last,) = self.history.operations(sequences[-1] - 1, 1)
        said: Mapping[str, Any] = last.metadata
        return self.history.resolve(said["commit"]) if said["action"] == _SAVED else None

    def checkpoint(self, commit: Commit, values: Any = None) -> WorkflowCheckpoint:
        """The checkpoint that a commit is."""
        if values is None:
            values = load(commit.root, self.history.read, self.history.codec)
        rest = {name: commit.extension[name] for name in _REST}
        name, id = split_name(self.history.space)[1], commit.extension[_ID]
        return WorkflowCheckpoint(name, checkpoint_id=id, **rest, **values)

    def saved(self) -> dict[str, ObjectId]:
        """The commits of all checkpoints by id, as the log says; only what is new is read."""
        with self._lock:
            while page := self.history.operations(self._followed):
                for operation in page:
                    said: Mapping[str, Any] = operation.metadata
                    if said["action"] == _SAVED:
                        self._saved.pop(said[_ID], None)
                        self._saved[said[_ID]] = said["commit"]
                    elif said["action"] == _DELETED:
                        self._saved.pop(said[_ID], None)
                    elif self._followed == 0 or not self._saved:
                        self._adopt([move.target for move in operation.moves])
                    self._followed = operation.sequence
            return dict(self._saved)

    def _adopt(self, targets: Iterable[ObjectId | None]) -> None:
        """Take in the checkpoints that a fork began with."""
        for target in targets:
            line = [] if target is None else list(self.history.steps(target))
            for commit in reversed(line):
                self._saved[commit.extension[_ID]] = commit.id

    # Writing.

    def land(self, draft: _Draft) -> None:
        """Append a checkpoint to the one before it, and put `main` there."""
        head = self.head()
        parent = head
        if head is not None and head.extension[_ID] != draft.previous:
            parent = None if draft.previous is None else self.find(draft.previous)
        commit, made = make_commit(
            draft.written.root,
            () if parent is None else (parent.id,),
            generation=1 if parent is None else parent.generation + 1,
            time=draft.time,
            agent=self.history.agent,
            branch=MAIN,
            description=f"superstep {draft.extension['iteration_count']}",
            extension=draft.extension,
        )
        self.history.apply(
            _SAVED,
            self._moves(head, parent, commit),
            {"key": _key(draft.checkpoint_id), _ID: draft.checkpoint_id, "commit": commit.id},
            [*draft.written.objects, made],
            [*draft.written.needs, *commit.parents],
            step=commit,
        )
        self.history.commits.remember([commit])  # The next checkpoint looks at it.

    def _moves(self, head: Commit | None, parent: Commit | None, made: Commit) -> list[Move]:
        if head is None:
            return [Move(_MAIN, None, made.id)]
        again = head.extension[_ID] == made.extension[_ID]
        if again or (parent is not None and parent.id == head.id):
            return [Move(_MAIN, head.id, made.id)]
        continued = [one for one in self._runs() if parent and one.target == parent.id]
        if made.time < head.time:
            name = continued[0].name if continued else _run(made)
            return [Move(name, parent.id if continued and parent else None, made.id)]
        gone = [Move(one.name, one.target, None) for one in continued]
        return [Move(_MAIN, head.id, made.id), *self._kept(head), *gone]

    def delete(self, id: str) -> bool:
        """Take a checkpoint out of the log; branches that are at it go to the one before."""

        def attempt() -> bool:
            commit = self.find(id)
            if commit is None:
                return False
            self.history.apply(_DELETED, self._left(commit), {"key": _key(id), _ID: id})
            return True

        return commit_loop(attempt, look=looks_itself)

    def _left(self, deleted: Commit) -> list[Move]:
        """How the branches move that are at a checkpoint which is deleted."""
        steps = (one for one in self.history.steps(deleted) if one.id != deleted.id)
        before = next(filter(self._is_saved, steps), None)
        runs, head = self._runs(), self.head()
        others = [one for one in runs if one.target != deleted.id]
        moves = [one for one in runs if one.target == deleted.id]
        if head is not None and head.id == deleted.id:
            ends = [self.history.resolve(one.target) for one in others]
            newest = max([*ends, *filter(None, [before])], key=lambda one: one.time, default=None)
            main = Move(_MAIN, head.id, None if newest is None else newest.id)
            taken = [one for one in others if newest is not None and one.target == newest.id]
            kept = self._kept(before) if before and self._is_apart(before, newest) else []
            return [main, *kept, *[Move(one.name, one.target, None) for one in (*moves, *taken)]]
        stays = None if before is None or not self._is_apart(before, head) else before.id
        return [Move(one.name, one.target, stays) for one in moves]

    def _is_saved(self, commit: Commit) -> bool:
        """Whether a step is a checkpoint that was not deleted."""
        found = self.find(commit.extension[_ID])
        return found is not None and found.id == commit.id

    def _is_apart(self, commit: Commit, head: Commit | None) -> bool:
        return head is None or not self.history.is_ancestor(commit, head)

    def _runs(self) -> list[Ref]:
        return self.history.store.refs(self.history.space, _RUNS)

    def _kept(self, commit: Commit) -> list[Move]:
        """The move that gives a commit a branch of its own, unless it has one."""
        there = self.history.store.ref(self.history.space, _run(commit))
        return [] if there is not None else [Move(_run(commit), None, commit.id)]


class _Draft:
    """A checkpoint that was taken as it was, on its way into the store."""

    def __init__(self, checkpoint: WorkflowCheckpoint, writer: TreeWriter) -> None:
        self._writer = writer
        self._values = {name: getattr(checkpoint, name) for name in _VALUES}
        self.checkpoint_id = checkpoint.checkpoint_id
        self.previous = checkpoint.previous_checkpoint_id
        self.time = int(datetime.fromisoformat(checkpoint.timestamp).timestamp() * 1e6)
        self.extension = {_ID: self.checkpoint_id}
        self.extension |= {name: getattr(checkpoint, name) for name in _REST}
        self.written: Written = writer.write(self._values)

    def write_whole(self) -> None:
        """Write it anew, because something that it shares with the one before was collected."""
        self._writer.forget()
        self.written = self._writer.write(self._values)

    def accepted(self) -> TreeWriter:
        """The writer for the checkpoint that follows, once this one is stored."""
        self._writer.accept(self.written)
        return self._writer


class _Writers:
    """What the last checkpoints of the runs looked like, so that only changes are written."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, TreeWriter] = OrderedDict()
        self._lock = freed_after_fork(threading.Lock())

    def take(self, checkpoint: WorkflowCheckpoint, codec: Codec) -> TreeWriter:
        """The writer at the checkpoint before this one, which nobody else uses then."""
        with self._lock:
            found = self._by_id.pop(checkpoint.previous_checkpoint_id or "", None)
        return TreeWriter(codec) if found is None else found

    def has(self, id: str) -> bool:
        """Whether there is a writer at a checkpoint."""
        with self._lock:
            return id in self._by_id

    def put(self, id: str, writer: TreeWriter) -> None:
        """Keep a writer, in the place of those that were used longest ago."""
        with self._lock:
            self._by_id[id] = writer
            held = sum(one.held for one in self._by_id.values())
            while len(self._by_id) > 1 and (len(self._by_id) > _MOST_WRITERS or held > _MOST_HELD):
                held -= self._by_id.popitem(last=False)[1].held


def _run(commit: Commit) -> str:
    return ref_name("branch", f"run-{commit.short}")


def _key(id: str) -> bytes:
    return sha256(id.encode()).digest()[:16]


@contextmanager
def _as_theirs(what: str) -> Iterator[None]:
    """Raise errors of Ropewalk as the framework's."""
    try:
        yield
    except RopewalkError as error:
        raise WorkflowCheckpointException(f"{what}: {error}") from error
