"""The timeline of a LangGraph thread: to look at, and to take back what was done to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from ropewalk.adapters.langgraph._index import noted_name
from ropewalk.adapters.langgraph._names import CHECKPOINTS, TENANT, space_of, thread_of
from ropewalk.adapters.langgraph._shown import ShownStore
from ropewalk.adapters.langgraph._steps import CHECKPOINT
from ropewalk.codec import Codec
from ropewalk.history import Commit, History
from ropewalk.store import Operation, Store, split_name
from ropewalk.timeline import Checkpoint, Timeline
from ropewalk.timeline._finding import check_limit
from ropewalk.timeline._index import Index
from ropewalk.timeline._refusing import refuse


class GraphTimeline(Timeline):
    """A timeline whose steps are the checkpoints that a `RopewalkSaver` put.

    Only a graph adds to it, so what would move branches is refused. Operations are those of
    the saver, and `undo` and `redo` take them back as anywhere. Tags are pinned checkpoints.
    A step is also found by its `checkpoint_id`.
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

    # What was done: the shown timeline has no operations of its own.

    def undo(self, sequence: int | None = None) -> Operation:
        """Take back the last thing that a saver did to the thread, or one by its number."""
        return self._looked_again(self._done.undo(sequence))

    def redo(self) -> Operation:
        """Take back the last undo, unless work went on since."""
        return self._looked_again(self._done.redo())

    def _looked_again(self, done: Operation) -> Operation:
        self._index = Index(self._history)  # The shown operations have other numbers now.
        self._look_again()
        return done

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


def graph_names(store: Store) -> list[str]:
    """The ids of the LangGraph threads in a store, sorted."""
    found = []
    for space in store.spaces(f"{TENANT}/"):
        ref = store.ref(space, CHECKPOINTS)
        if ref is not None:
            found.append(thread_of(space) or noted_name(ref.target, store.read))
    return sorted(found)


def is_graph(store: Store, thread_id: str) -> bool:
    """Whether there is a LangGraph thread of an id."""
    return store.ref(space_of(thread_id), CHECKPOINTS) is not None


_STEP = "Run the graph, or add a checkpoint with its update_state."
_BACK = (
    "Run the graph from an earlier checkpoint, by its checkpoint_id in the config, or take back "
    "the last operation with undo."
)
_FORK = "A run or an update_state from an earlier checkpoint forks the thread."
_MERGE = "Read both states, and put what comes of them with the graph's update_state."
_PIN = "RopewalkSaver.pin names a checkpoint for good."
_COPY = "RopewalkSaver.copy_thread copies a thread, and shares all that it holds."
_GIVE = "`ropewalk export-langgraph` writes it for LangGraph, and `migrate` copies a whole store."

refuse(
    GraphTimeline,
    "{name} is a thread of LangGraph, and only a graph adds to it",
    (
        ("checkpoint", "saving a state", _STEP),
        ("safe_execute", "running a function", _STEP),
        ("rollback", "rolling back", _BACK),
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
