"""The timeline of a LangGraph thread: to look at, and to take it back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from ropewalk.adapters.langgraph.log import Log, Steps
from ropewalk.adapters.langgraph.names import CHECKPOINTS, TENANT, space_of, thread_of
from ropewalk.adapters.langgraph.rollback import fork_at, newest_at
from ropewalk.adapters.langgraph.timeline_view import CHECKPOINT, ShownStore
from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.history import MAIN, Commit, History
from ropewalk.history import undo as undoing
from ropewalk.store import Operation, Store, split_name
from ropewalk.timeline import Checkpoint, Timeline
from ropewalk.timeline import search as finding
from ropewalk.timeline.search import Index, check_limit
from ropewalk.timeline.timeline import refuse


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
            last = undoing.last_done(filter(self._is_undoable, self._done.newest_operations()))
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
        about = {undoing.UNDOES: operation.sequence}
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
