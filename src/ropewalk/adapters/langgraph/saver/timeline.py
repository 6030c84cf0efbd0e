"""The timeline of a LangGraph thread: to look at, and to take it back.

The commits of a thread are one chain, of all its namespaces and forks. A timeline shows where
each checkpoint came from: its commits, branches and operations are made of the chain when
somebody looks (`ShownStore`). The newest checkpoint is the head of `main`; where a thread forked,
what was left has a branch of its own; what lost a race against another run is on a branch that
says so; pinned checkpoints have tags.

Needs no LangGraph, so that the command line does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from random import getrandbits
from typing import Any, Final, NamedTuple, NoReturn
from uuid import UUID, uuid1

from ropewalk.adapters.langgraph.saver.checkpoints import (
    CHECKPOINTS,
    ROOT,
    TENANT,
    Address,
    Draft,
    Record,
    Step,
    encode_record,
    record_of,
    space_of,
    thread_of,
)
from ropewalk.adapters.langgraph.saver.log import Log, Steps, listed
from ropewalk.codec import Codec, inspection_codec
from ropewalk.errors import InvalidInput, NotFound, RefMoved
from ropewalk.history import MAIN, History
from ropewalk.history.history import UNDOES, last_done
from ropewalk.store import Move, Operation, Ref, Store, View, ref_name, split_name
from ropewalk.store.model import Scalar
from ropewalk.store.record import Append
from ropewalk.store.wrappers import WrapperStore
from ropewalk.timeline import Checkpoint, Timeline
from ropewalk.timeline import search as finding
from ropewalk.timeline.search import Index, check_limit
from ropewalk.timeline.timeline import refuse
from ropewalk.tree import Commit, Loader, Object, ObjectId, Reader, TreeWriter, make_commit


class GraphTimeline(Timeline):
    """A timeline whose steps are the checkpoints that a `RopewalkSaver` put.

    Only a graph adds states to it. `rollback` and `undo` take it back, and neither removes a
    checkpoint: both put a copy of an earlier one at the head, as a fork of LangGraph does.
    Operations are those of the saver; tags are pinned checkpoints. A step is also found by
    its `checkpoint_id`.
    """

    def __init__(
        self, thread_id: str, store: Store, *, codec: Codec | None = None, branch: str | None = None
    ) -> None:
        space = space_of(thread_id)
        self._shown = ShownStore(store)
        self._done = History(store, space, codec=codec, agent=thread_id)
        super().__init__(
            split_name(space)[1], self._shown, codec=codec, tenant=TENANT, branch=branch
        )
        self.name = thread_id

    def _find(self, name: str) -> Commit:
        id = self._shown.commit_of(self._history.space, name) if isinstance(name, str) else None
        return super()._find(name) if id is None else self._history.resolve(id)

    # Taking back. The shown timeline has no operations of its own: those of the saver count.

    def rollback(self, steps: int = 1, to_checkpoint_id: str | None = None) -> Checkpoint:
        """Put a copy of an earlier checkpoint at the head of the thread; nothing is removed.

        Goes back by `steps`, or to any checkpoint of the thread. Where there are fewer steps it
        goes to the first and warns. The graph continues from the copy, and its tasks run anew.
        The checkpoints after it stay on a branch of their own. Raises `RefMoved` if the graph
        put a checkpoint meanwhile.
        """
        if to_checkpoint_id is not None and steps != 1:
            raise InvalidInput("a rollback goes back by steps or to a checkpoint: give one of them")
        if to_checkpoint_id is None and self.current_branch != MAIN:
            raise InvalidInput(
                f"{self.name!r:.80} is a thread of LangGraph, and a rollback moves its head, which "
                f"is that of {MAIN!r}. To go on from branch {self.current_branch!r:.80}, name a "
                "checkpoint of it."
            )
        with self._lock:
            head = self._find(MAIN)
            if to_checkpoint_id is None:
                target = finding.steps_back(self._history, head, steps, MAIN)
            else:
                target = self._find(to_checkpoint_id)
            if target.id == head.id:
                return self._seen(head)
            id, newest = (checkpoint_id_of(self._seen(one)) for one in (target, head))
            _, made = fork_at(self._done, self.name, str(id), newest, "rollback")
            self._invalidate()
            return self._seen(self._find(made))

    def undo(self, sequence: int | None = None) -> Operation:
        """Take back the last step of the graph, or what was done to the thread since.

        A step is taken back by a rollback to the one before; what a saver did, such as a
        `prune`, as anywhere, also by its number. Raises `NotFound` if there is nothing to undo.
        """
        with self._lock:
            last = last_done(filter(self._is_undoable, self._done.newest_operations()))
            chosen = last if sequence is None else self._operation(sequence)
            if chosen is None:
                raise NotFound(f"there is nothing to undo in thread {self.name!r:.80}")
            if chosen.metadata.get("action") != "put":
                done = self._done.undo(chosen.sequence)
            elif last is None or chosen.sequence != last.sequence:
                raise InvalidInput(
                    f"operation {chosen.sequence} of thread {self.name!r:.80} is not its last "
                    "step. Go back with rollback: it takes back that step and all that follow."
                )
            else:
                done = self._step_undone(chosen)
            self._invalidate()
            return done

    def _is_undoable(self, operation: Operation) -> bool:
        """Whether it is more than what tasks wrote, or subgraphs put, on the way to a step."""
        if operation.metadata.get("action") != "put":
            return True
        before, after = self._heads(operation)
        return before != after

    def _heads(self, operation: Operation) -> list[str | None]:
        """The newest checkpoint before an operation, and after it."""
        (move,) = operation.moves
        return [newest_at(self._done, head) for head in (move.expected, move.target)]

    def _step_undone(self, operation: Operation) -> Operation:
        before, _ = self._heads(operation)
        if before is None:
            raise NotFound(
                f"thread {self.name!r:.80} begins with operation {operation.sequence}, so there is "
                "no step before it. RopewalkSaver.delete_thread removes the thread."
            )
        head = checkpoint_id_of(self._seen(self._find(MAIN)))
        about = {UNDOES: operation.sequence}
        return fork_at(self._done, self.name, before, head, "undo", about)[0]

    def _operation(self, sequence: int) -> Operation:
        found = self._done.operations(sequence - 1, 1) if type(sequence) is int else []
        if not found or sequence < 1:
            raise NotFound(f"thread {self.name!r:.80} has no operation {sequence!r:.80}")
        return found[0]

    def redo(self) -> Operation:
        """Do again what the last `undo` took back, unless work went on since."""
        done = self._done.redo()
        self._invalidate()
        return done

    def _invalidate(self) -> None:
        self._index = Index(self._history)  # The shown operations have other numbers now.
        self._look_again()

    def operations(self, after: int = 0, limit: int = 1000) -> list[Operation]:
        """What savers did to the thread, oldest first."""
        return self._done.operations(after, limit)

    def last_operations(self, limit: int | None = 50) -> list[Operation]:
        """The last things that savers did to the thread, newest first."""
        check_limit(limit)
        return list(islice(self._done.newest_operations(), limit))

    def watch(self, timeout: float | None = None) -> Iterator[Operation]:
        """What savers do to the thread from now on."""
        return self._done.watch(timeout=timeout)

    def awatch(self, timeout: float | None = None) -> AsyncIterator[Operation]:
        """The asynchronous twin of `watch`."""
        return self._done.awatch(timeout=timeout)


def checkpoint_id_of(step: Checkpoint) -> str | None:
    """The id that LangGraph gave to a step."""
    found = step.commit.extension.get(CHECKPOINT)
    return found if isinstance(found, str) else None


def graph_threads(store: Store) -> Iterator[tuple[str, str]]:
    """The ids of the LangGraph threads in a store, with their spaces."""
    for space in store.spaces(f"{TENANT}/"):
        ref = store.ref(space, CHECKPOINTS)
        if ref is not None:
            # Of a long id the space has a hash; each commit names its thread.
            yield (
                thread_of(space) or Steps(store.reader(space)).step(ref.target).commit.agent,
                space,
            )


def graph_names(store: Store) -> list[str]:
    """The ids of the LangGraph threads in a store, sorted."""
    return sorted([name for name, _ in graph_threads(store)])


def log_of(store: Store, thread_id: str) -> Log:
    """The log of a LangGraph thread."""
    space = space_of(thread_id)
    read = store.reader(space)
    return Log(store, space, read, Steps(read))


def is_graph(store: Store, thread_id: str) -> bool:
    """Whether there is a LangGraph thread of an id."""
    return store.ref(space_of(thread_id), CHECKPOINTS) is not None


_STEP = "Run the graph, or add a checkpoint with its update_state."
_FORK = "A run or an update_state from an earlier checkpoint forks the thread."
_MERGE = "Read both states, and put what comes of them with the graph's update_state."
_PIN = "RopewalkSaver.pin names a checkpoint for good."
_COPY = "RopewalkSaver.copy_thread copies a thread, and shares all that it holds."
_GIVE = "`ropewalk export-langgraph` writes it for LangGraph, and `migrate` copies a whole store."

refuse(
    GraphTimeline,
    "{name} is a thread of LangGraph, and only a graph adds states to it",
    (
        ("checkpoint", "saving a state", _STEP),
        ("safe_execute", "running a function", _STEP),
        ("branch", "making a branch", _FORK),
        (
            "switch_branch",
            "switching branches",
            "Name a branch to look at with branch=, or --branch.",
        ),
        ("delete_branch", "removing a branch", "RopewalkSaver.prune drops old checkpoints."),
        ("merge", "merging", _MERGE),
        ("cherry_pick", "picking a step", _MERGE),
        ("revert", "reverting a step", _MERGE),
        ("fork", "forking", _COPY),
        ("tag", "tagging", _PIN),
        ("delete_tag", "removing a tag", "RopewalkSaver.unpin lets a pinned checkpoint go."),
        ("export_session", "writing a session", _GIVE),
    ),
)


# Rolling a thread back: an earlier checkpoint is copied to its head.
#
# That is what LangGraph itself does to fork a thread (`update_state` with `as_node="__copy__"`).
# The copy has the state and the parent of the original, but an id of its own. So the tasks that
# follow have new ids too: what they wrote after the original cannot be taken for theirs. Nothing
# is removed, and any checkpointer would take the copy for the newest checkpoint.


_KEPT: Final = ("counters_since_delta_snapshot", "ropewalk_memory")
"""What the metadata of a copy takes over from the original."""
_EMPTY: Final[dict[str, Any]] = {
    "v": 4,
    "channel_versions": {},
    "versions_seen": {},
    "updated_channels": None,
}
_NOT_BEGUN: Final = -2
"""The step number of a graph that has not run yet."""


def newest_at(history: History, head: ObjectId | None) -> str | None:
    """The id of a graph's newest checkpoint, as a head of its thread says it."""
    if head is None:
        return None
    steps = Steps(history.read)
    newest = steps.step(head).state.newest
    address = None if newest is None else steps.step(newest).address
    return None if address is None else address.id


def fork_at(
    history: History,
    thread: str,
    id: str,
    head: str | None,
    action: str,
    about: Mapping[str, Scalar] | None = None,
) -> tuple[Operation, str]:
    """Copy a checkpoint to the head of its thread, and give back the id of the copy.

    Raises `RefMoved` if `head` is not the newest checkpoint any more.
    """
    while True:
        log = Log(history.store, history.space, history.read, Steps(history.read))
        newest = log.newest(ROOT)
        if (newest and newest.address and newest.address.id) != head:
            raise RefMoved(CHECKPOINTS, None, log.target)
        fork = _Fork(log)
        made = fork.copy(Address(ROOT, id), None)
        for namespace, steps in fork.steps.items():
            # The memory of subgraphs that have one. Others have the ids of tasks in theirs.
            if namespace != ROOT and ":" not in namespace:
                fork.take_back(namespace, steps, id, made)
        landing = log.landing(thread, fork.drafts, fork.objects, several=True)
        try:
            done = history.apply(
                action,
                [landing.move],
                {**landing.metadata, **(about or {}), "action": action},
                landing.objects,
                landing.needs,
                step=landing.steps[-1].commit,
            )
        except RefMoved:
            continue  # Others wrote to the thread. If it was a checkpoint, the next look raises.
        return done, made


class _Fork:
    """Copies in the making."""

    def __init__(self, log: Log) -> None:
        self._log, self._loader = log, Loader(log.read, inspection_codec)
        self.drafts: list[Draft] = []
        self.objects: list[Object] = []
        self.steps: dict[str, list[Step]] = {}
        """The checkpoints by namespace, the newest first."""
        for one in listed(log):
            self.steps.setdefault(one.address.namespace, []).append(one.step)

    def take_back(self, namespace: str, steps: list[Step], id: str, fork: str) -> None:
        """Have a subgraph remember what it did when a checkpoint of its graph was put."""
        newest = next((one for one in steps if not one.aside), None)
        if newest is None or newest.address is None or newest.address.id < id:
            return
        found = self._then(steps, id)
        if found is not None and found.address is not None:
            self.copy(found.address, fork)
            return
        address = Address(namespace, self._next_id(namespace))
        checkpoint = {**_EMPTY, "id": address.id, "ts": _now()}
        about = {"source": "fork", "step": _NOT_BEGUN, "parents": {ROOT: fork}}
        empty = TreeWriter(inspection_codec).write({})
        self.objects += empty.objects
        self._put(Record(checkpoint, about), Draft(empty.root, address))

    def _then(self, steps: list[Step], id: str) -> Step | None:
        """Where a subgraph was when a checkpoint of its graph was put.

        If it ran next, that is where it had been given its input: a graph that goes on without
        a new one resumes it there.
        """
        begun: Step | None = None
        for step in steps:
            about = record_of(step, self._loader).metadata
            if not step.aside and step.address is not None and step.address.id < id:
                return begun or step
            if about.get("source") == "input" and (about.get("parents") or {}).get(ROOT) == id:
                begun = step
        return begun

    def copy(self, address: Address, fork: str | None) -> str:
        """Copy a checkpoint, of a subgraph for a `fork` of its graph; the id of the copy."""
        put = self._log.find(address).put
        if put is None:
            raise NotFound(f"the thread has no checkpoint {address.id!r:.80} any more")
        step = self._log.step(put)
        record = record_of(step, self._loader)
        made = self._next_id(address.namespace)
        known = record.metadata
        parents = known.get("parents") or {}
        number = known.get("step")
        about: dict[str, Any] = {
            "source": "fork",
            "step": number + 1 if isinstance(number, int) else number,
            "parents": parents if fork is None else {**parents, ROOT: fork},
            **{name: known[name] for name in _KEPT if name in known},
        }
        checkpoint = {**record.checkpoint, "id": made, "ts": _now(), "updated_channels": None}
        copied = Draft(
            step.commit.root,
            Address(address.namespace, made),
            step.parent,
            copy_of=step.origin,
            description=f"fork {about['step']}",
        )
        self._put(Record(checkpoint, about, record.before), copied)
        return made

    def _put(self, record: Record, draft: Draft) -> None:
        assert draft.address is not None
        plain, objects = encode_record(inspection_codec, record, draft.address.id)
        self.objects += objects
        root = objects[-1].id if objects else None
        draft.record, draft.metadata = plain, root
        self.drafts.append(draft)

    def _next_id(self, namespace: str) -> str:
        """An id that sorts after those that there are, as LangGraph makes them."""
        made = _uuid6()
        last = next((one.address.id for one in self.steps.get(namespace, ()) if one.address), "")
        if made > last:
            return made
        try:  # The clock was set back.
            return str(UUID(int=UUID(last).int + 1))
        except ValueError:
            return f"{last}0"


def _uuid6() -> str:
    time = uuid1(node=getrandbits(48))
    low, rest = time.time & 0xFFF, time.time >> 12
    return str(UUID(int=rest << 80 | 6 << 76 | low << 64 | time.int & (1 << 64) - 1))


def _now() -> str:
    return datetime.now(UTC).isoformat()


# The store behind it, in which every thread is shown as a timeline.


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

    def _land(self, append: Append) -> Operation:
        if self._look(append.space) is not None:
            _refuse(append.space)
        return super()._land(append)

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
