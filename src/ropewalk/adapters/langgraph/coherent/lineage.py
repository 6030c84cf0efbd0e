"""Which versions each line of work has read and put: a call, a task, a run, a conversation.

One agent may do several things at once: a node that `Send` starts many times, the tools of one
turn, conversations that a server runs concurrently. Each of them bases its puts on what it read
itself. What the agent saw elsewhere is not a valid merge base: compared with it, a put would
delete what its author has not seen.

And one piece of work may be done by several agents: a node reads an item, and another one puts the
result. What a node receives in the state of its run is based on what earlier steps of the run saw,
whichever agent they were. Concurrent work in the same step is unknown to it. A subgraph has steps
of its own: what it saw counts for the steps after it, and what runs concurrently with its node is
unknown inside, too.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from langchain_core.runnables.config import var_child_runnable_config

from ropewalk.adapters.langgraph.coherent.naming import named_agent
from ropewalk.store.forking import freed_after_fork

T = TypeVar("T")

Line: TypeAlias = Hashable
Item: TypeAlias = tuple[str | None, str]
"""An agent and an artifact; None for any agent."""

_MOST: Final = 1 << 16
"""The maximum number of entries. Calls and tasks that ended long ago are evicted first."""
_MOST_LOST: Final = 1 << 16
_MOST_TIMES: Final = 64
"""How many accesses of one item a task keeps with their times."""
_TASK: Final = "__pregel_task_id"
_RUNTIME: Final = "__pregel_runtime"


class Forgotten(LookupError):
    """What a line of work saw was evicted, or the item was deleted: there is no merge base."""


class Began(NamedTuple):
    """When something that runs inside of a task began."""

    moment: float | None = None
    """None for the task itself, or if unknown."""
    step: Hashable | None = None
    """The step of a graph; None if it is not in one."""


When: TypeAlias = Began | Hashable | None
"""The step of a graph, or the `Began` within a task; None if unknown."""


class Work(NamedTuple):
    """The lines of work that a call belongs to."""

    own: tuple[Line, ...] = ()
    """The call and its task, if any."""
    wide: tuple[tuple[Line, When], ...] = ()
    """The enclosing lines, innermost first, each with the position of the call in it.

    Graphs and the tasks that run them, the run, the conversation.
    """
    node: str | None = None
    """The node that runs, used as the agent if none is named."""


_NONE: Final = Work()
_ITSELF: Final = Began()


def work() -> Work:
    """The lines of work of this call; none outside of a graph."""
    config = var_child_runnable_config.get()
    if not config:
        return _NONE
    configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
    call = getattr(config.get("callbacks"), "parent_run_id", None)
    runtime: Any = configurable.get(_RUNTIME)
    # All tasks of one step of a graph begin with the same checkpoint, whether it is stored or not.
    steps: dict[str, Hashable] = configurable.get("checkpoint_map") or {}
    step = steps.get("", metadata.get("langgraph_step"))
    began = getattr(getattr(runtime, "execution_info", None), "node_first_attempt_time", None)
    wide: list[tuple[Line, When]] = []
    # The last part of its namespace is the task itself.
    graph = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    while graph:
        outer, _, task = graph.rpartition("|")
        inside = steps.get(graph)
        if inside == steps.get(outer):
            inside = None  # Tasks called by a function belong to the step of the function.
        else:
            wide.append((("graph", graph), inside))
        if ":" not in task:  # The counter of a graph that its task runs repeatedly.
            outer, _, task = outer.rpartition("|")
        wide.append((task.rpartition(":")[2], Began(began, inside)))
        graph = outer
    run, thread = getattr(runtime, "control", None), configurable.get("thread_id")
    wide += [(one, step) for one in (run, thread) if one is not None]
    own = [one for one in (call, configurable.get(_TASK)) if one is not None]
    node = None if named_agent(config) else metadata.get("langgraph_node")
    return Work(tuple(own), tuple(wide), node)


class Access(NamedTuple, Generic[T]):
    """The last version of an item that a line of work read or put, and its readers."""

    seen: T | None
    """None if there was no item, or it was deleted."""
    readers: frozenset[Line] = frozenset()
    """The calls that read the item, and have not been followed by a put based on that read."""

    @property
    def is_read(self) -> bool:
        """Whether it was read; otherwise it was only put."""
        return bool(self.readers)

    def with_readers_of(self, other: Access[T], ended: frozenset[Line]) -> Access[T]:
        """Merge with another access whose reads have not ended."""
        return Access(self.seen, self.readers | (other.readers - ended))


class _InSteps(NamedTuple, Generic[T]):
    """The accesses of an item in a line of work with sequential steps."""

    step: When
    last: Access[T]
    before: Access[T] | None
    """The last access before that step."""

    def then(self, step: When, access: Access[T], ended: frozenset[Line]) -> _InSteps[T]:
        """Add an access, which ends the reads of some calls."""
        if step is not None and step == self.step:
            access = access.with_readers_of(self.last, ended)
            return self if access == self.last else _InSteps(step, access, self.before)
        return _InSteps(step, access, self.last)

    def at(self, step: When) -> Access[T] | None:
        """What a step may know of."""
        return self.before if step is not None and step == self.step else self.last

    @property
    def has_read(self) -> bool:
        """Whether there is a read that must not be lost."""
        return self.last.is_read or (self.before is not None and self.before.is_read)


class _InTime(NamedTuple, Generic[T]):
    """The accesses of an item in a task and in what runs inside of it."""

    times: tuple[tuple[float, Hashable | None, Access[T]], ...]
    """When it was, in which step of a subgraph, and the access."""
    has_lost: bool = False
    """Whether a read was evicted."""

    @classmethod
    def first(cls, when: Began, access: Access[T]) -> _InTime[T]:
        """The first access."""
        return cls(((time.time(), when.step, access),))

    def then(self, when: When, access: Access[T], ended: frozenset[Line]) -> _InTime[T]:
        """Add an access, which ends the reads of some calls."""
        assert isinstance(when, Began)
        moment, step, last = self.times[-1]
        if not _is_known(moment, step, when):
            access = access.with_readers_of(last, ended)
        if access.seen is last.seen and access.is_read == last.is_read and step == when.step:
            # Most reads return the version read before.
            again = moment, step, access.with_readers_of(last, frozenset())
            return _InTime((*self.times[:-1], again), self.has_lost)
        times = (*self.times, *_InTime.first(when, access).times)
        lost = any(one.is_read for _, _, one in times[:-_MOST_TIMES])
        return _InTime(times[-_MOST_TIMES:], self.has_lost or lost)

    def at(self, when: When) -> Access[T] | None:
        """What something inside of the task may know of."""
        assert isinstance(when, Began)
        for moment, step, access in reversed(self.times):
            if _is_known(moment, step, when):
                return access
        if self.has_lost:
            raise Forgotten
        return None

    @property
    def has_read(self) -> bool:
        """Whether there is a read that must not be lost."""
        return self.has_lost or any(one.is_read for _, _, one in self.times)


def _is_known(moment: float, step: Hashable | None, when: Began) -> bool:
    """Whether something in a task may know of an access at a moment, in a step of a subgraph."""
    is_beside = step is not None and step == when.step
    return not is_beside and (when.moment is None or moment <= when.moment)


class Lineage(Generic[T]):
    """The accesses of all lines of work. Safe to share between threads."""

    def __init__(self, number: Callable[[T], int], *, nodes: bool = False) -> None:
        self._number = number
        """Of which version something was."""
        self._nodes = nodes
        """Whether a node is the agent where nobody says which one is."""
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[Line, dict[Item, _InSteps[T] | _InTime[T]]] = OrderedDict()
        """The one that was used last stands last."""
        self._size = 0
        self._lost: OrderedDict[Line, None] = OrderedDict()
        """Of which something that was got is forgotten."""

    def last(self, agent: str, artifact: str) -> Access[T] | None:
        """The merge base of a value that is put now, as far as lines of work know; else None.

        It is the last access of this line of work, or of an enclosing one: there, of the agent
        itself, or else of any agent. If the agent's access is in a wider line than another
        agent's, the older of both is taken. A node that counts as an agent only because none is
        named knows what its run knows. Raises `Forgotten` if a read may have been evicted, or if
        this line last found that there is no item.
        """
        if not (self._seen or self._lost):
            return None
        own, wide, node = work()
        item: Item = agent, artifact
        anyone: Item = None, artifact
        known = anyone if self._nodes and agent == node else item
        others: Access[T] | None = None
        with self._lock:
            for line in own:
                found = self._look(line, item, _ITSELF)
                if found is not None:
                    if found.seen is None and found.is_read:
                        raise Forgotten
                    return found
            for line, when in (*[(one, _ITSELF) for one in own], *wide):
                found = self._look(line, known, when)
                if found is not None and found.seen is not None:
                    return found if others is None else self._either(found, others)
                if others is None:
                    others = self._look(line, anyone, when)
                    if others is not None and others.seen is None:
                        others = None
            return others

    def got(self, agent: str, artifact: str, seen: T) -> None:
        """Record a read of an item."""
        self._note_all(agent, artifact, seen, is_read=True)

    def put(self, agent: str, artifact: str, seen: T) -> None:
        """Record a put of an item, which ends earlier reads."""
        self._note_all(agent, artifact, seen, is_read=False)

    def found_nothing(self, agent: str, artifact: str) -> None:
        """Record a read that found no item."""
        self._note_all(agent, artifact, None, is_read=True)

    def deleted(self, agent: str, artifact: str) -> None:
        """Record a deletion of an item."""
        self._note_all(agent, artifact, None, is_read=False)

    def forget(self, agent: str) -> None:
        """Discard the accesses of an agent."""
        with self._lock:
            for seen in self._seen.values():
                for item in [one for one in seen if one[0] == agent]:
                    del seen[item]
                    self._size -= 1

    # Internals.

    def _note_all(self, agent: str, artifact: str, seen: T | None, *, is_read: bool) -> None:
        own, wide, _ = work()
        if not (own or wide):
            return
        lines = (*[(one, _ITSELF) for one in own], *wide)
        call = frozenset([lines[0][0]])
        item, anyone = (agent, artifact), (None, artifact)
        with self._lock:
            if seen is None and not any(anyone in self._seen.get(line, {}) for line, _ in lines):
                return
            access = Access(seen, call if is_read else frozenset())
            ended = call if is_read else call | self._readers(anyone, wide)
            for line, when in lines:
                for one in (item, anyone):
                    # After a deletion, this line must not be compared with earlier accesses of a
                    # wider one. Concurrent lines do not know of the deletion.
                    if seen is not None or when is _ITSELF or one in self._seen.get(line, {}):
                        self._note(line, one, when, access, ended)
            self._forget_some()

    # Under the lock.

    def _readers(self, item: Item, lines: Iterable[tuple[Line, When]]) -> frozenset[Line]:
        """The calls whose reads a put may be based on."""
        found: frozenset[Line] = frozenset()
        for line, when in lines:
            with suppress(Forgotten):
                access = self._look(line, item, when)
                found |= access.readers if access is not None else frozenset()
        return found

    def _either(self, one: Access[T], other: Access[T]) -> Access[T]:
        """What an agent saw elsewhere may be older or newer than what reached it here.

        A value may be based on either.
        """
        assert one.seen is not None and other.seen is not None
        return Access(min(one.seen, other.seen, key=self._number), one.readers | other.readers)

    def _look(self, line: Line, item: Item, when: When) -> Access[T] | None:
        seen = self._seen.get(line, {}).get(item)
        if seen is None and line in self._lost:
            raise Forgotten
        return None if seen is None else seen.at(when)

    def _note(
        self, line: Line, item: Item, when: When, access: Access[T], ended: frozenset[Line]
    ) -> None:
        known = self._seen.get(line)
        if known is None:
            known = self._seen[line] = {}
        else:
            self._seen.move_to_end(line)
        before = known.get(item)
        self._size += before is None
        if before is not None:
            known[item] = before.then(when, access, ended)
        elif isinstance(when, Began):
            known[item] = _InTime.first(when, access)
        else:
            known[item] = _InSteps(when, access, None)

    def _forget_some(self) -> None:
        while self._size > _MOST:
            line, seen = self._seen.popitem(last=False)
            self._size -= len(seen)
            if any(one.has_read for one in seen.values()):
                self._lost[line] = None
                self._lost.move_to_end(line)
                if len(self._lost) > _MOST_LOST:
                    self._lost.popitem(last=False)
