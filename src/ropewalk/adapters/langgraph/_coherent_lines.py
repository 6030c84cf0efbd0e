"""What each line of work has seen: a call, a task, a run, a conversation.

One agent may do several things at once: a node that `Send` starts many times, the tools of
one turn, conversations that a server holds side by side. Each of them makes what it puts from
what it got itself. What the agent last saw elsewhere is no base for it: compared with that, it
would take away what it has not seen.

And one piece of work may be done by several agents: a node gets an item, and another one puts
what became of it. What came to a node in the state of its run was made from what earlier
steps of the run saw, whoever they were. Of what is done beside it, in the same step, it knows
nothing. A graph inside of a node has steps of its own: what it saw counts for those that come
after it, and what is done beside that node is as unknown in there.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from langchain_core.runnables.config import var_child_runnable_config

from ropewalk.adapters.langgraph._coherent_identity import named_agent
from ropewalk.store._forking import freed_after_fork

T = TypeVar("T")

Line: TypeAlias = Hashable
Item: TypeAlias = tuple[str | None, str]
"""An agent and an artifact; None for any agent."""

_MOST: Final = 1 << 16
"""How much is remembered. Calls and tasks that ended long ago are forgotten first."""
_MOST_LOST: Final = 1 << 16
_MOST_TIMES: Final = 64
"""How many sights of one item a task remembers with their times."""
_TASK: Final = "__pregel_task_id"
_RUNTIME: Final = "__pregel_runtime"


class Forgotten(LookupError):
    """What a line of work saw is no longer known here, or not there: nothing to compare with."""


class Began(NamedTuple):
    """When something began that runs inside of a task."""

    moment: float | None = None
    """None if it is the task itself, or if that is not known."""
    step: Hashable | None = None
    """The step of a graph that it is; None if it is none."""


When: TypeAlias = Began | Hashable | None
"""The step of a graph, or what `Began` in a task; None if that is not known."""


class Work(NamedTuple):
    """What a call is part of."""

    own: tuple[Line, ...] = ()
    """The call and its task, as far as there are any."""
    wide: tuple[tuple[Line, When], ...] = ()
    """What these are part of, the narrowest first: graphs and the tasks that run them, the run,
    the conversation. Each with when in it that is."""
    node: str | None = None
    """The node that runs, if nobody says which agent does."""


_NONE: Final = Work()
_ITSELF: Final = Began()


def work() -> Work:
    """What this call is part of; nothing outside of a graph."""
    config = var_child_runnable_config.get()
    if not config:
        return _NONE
    configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
    call = getattr(config.get("callbacks"), "parent_run_id", None)
    runtime: Any = configurable.get(_RUNTIME)
    # All tasks of one step of a graph begin with the same checkpoint, whether it is kept or not.
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
            inside = None  # What a function calls as tasks is in the step of the function.
        else:
            wide.append((("graph", graph), inside))
        if ":" not in task:  # It is the number of a graph that its task has run after others.
            outer, _, task = outer.rpartition("|")
        wide.append((task.rpartition(":")[2], Began(began, inside)))
        graph = outer
    run, thread = getattr(runtime, "control", None), configurable.get("thread_id")
    wide += [(one, step) for one in (run, thread) if one is not None]
    own = [one for one in (call, configurable.get(_TASK)) if one is not None]
    node = None if named_agent(config) else metadata.get("langgraph_node")
    return Work(tuple(own), tuple(wide), node)


class _InSteps(NamedTuple, Generic[T]):
    """What a line of work whose steps come one after the other has seen of an item."""

    step: When
    last: T | None
    """None if there was nothing."""
    before: T | None
    """The last that was seen before that step."""

    def then(self, step: When, seen: T | None) -> _InSteps[T]:
        """The same after something else was seen."""
        if seen is self.last and step == self.step:
            return self
        return _InSteps(step, seen, self.at(step))

    def at(self, step: When) -> T | None:
        """What a step may know of."""
        return self.before if step is not None and step == self.step else self.last


class _InTime(NamedTuple, Generic[T]):
    """What a task, and what it runs inside of it, has seen of an item."""

    times: tuple[tuple[float, Hashable | None, T | None], ...]
    """When it was, in which step of a graph inside, and what; None if there was nothing."""

    @classmethod
    def first(cls, when: Began, seen: T | None) -> _InTime[T]:
        """It was seen now."""
        return cls(((time.time(), when.step, seen),))

    def then(self, when: When, seen: T | None) -> _InTime[T]:
        """The same after something else was seen."""
        assert isinstance(when, Began)
        _, step, last = self.times[-1]
        if seen is last and step == when.step:
            return self
        return _InTime((*self.times[1 - _MOST_TIMES :], *_InTime.first(when, seen).times))

    def at(self, when: When) -> T | None:
        """What something inside of the task may know of."""
        assert isinstance(when, Began)
        for moment, step, seen in reversed(self.times):
            beside = step is not None and step == when.step
            if not beside and (when.moment is None or moment <= when.moment):
                return seen
        if len(self.times) == _MOST_TIMES:  # There may have been one that is not remembered.
            raise Forgotten
        return None


class Lines(Generic[T]):
    """What lines of work have seen of items. Safe to share between threads."""

    def __init__(self, number: Callable[[T], int], *, nodes: bool = False) -> None:
        self._number = number
        """Of which version something was."""
        self._nodes = nodes
        """Whether a node is the agent where nobody says which one is."""
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[Line, dict[Item, _InSteps[T] | _InTime[T]]] = OrderedDict()
        """The one that was used last stands last."""
        self._elsewhere: OrderedDict[Item, T] = OrderedDict()
        """Of agents that know less than what they wrote last, wherever they work."""
        self._size = 0
        self._lost: OrderedDict[Line | Item, None] = OrderedDict()
        """Of what something was forgotten."""

    def last(self, agent: str, artifact: str) -> T | None:
        """What a value that is put now was made from, as far as lines of work know; else None.

        It is what this line of work last saw, or a wider one: in that the agent itself, or,
        if it saw nothing there, any other. If the agent saw something only in a wider one, and
        another in a narrower, it is the older of both. A node that is an agent only because
        nobody has named one knows what its run knows. Raises `Forgotten` if one of them did,
        perhaps, and it is not known any more, or if this one last saw that there is nothing.
        """
        if not (self._seen or self._elsewhere or self._lost):
            return None
        own, wide, node = work()
        item: Item = agent, artifact
        anyone: Item = None, artifact
        known = anyone if self._nodes and agent == node else item
        others: T | None = None
        with self._lock:
            for line in own:
                if (found := self._look(line, item, _ITSELF)) is not None:
                    return found
                if item in self._seen.get(line, {}):
                    raise Forgotten
            for line, when in (*[(one, _ITSELF) for one in own], *wide):
                if (found := self._look(line, known, when)) is not None:
                    # What the agent saw elsewhere may be older than what came to it here, or
                    # newer. It may have been made from either.
                    return found if others is None else min(found, others, key=self._number)
                if others is None:
                    others = self._look(line, anyone, when)
            if others is not None:
                return others
            if item in self._lost:
                raise Forgotten
            return self._elsewhere.get(item)

    def note(self, agent: str, artifact: str, seen: T, *, everywhere: bool = False) -> None:
        """This line of work saw an item; `everywhere` if the agent knows no more elsewhere."""
        own, wide, _ = work()
        if not (own or wide or everywhere or self._elsewhere or self._lost):
            return
        item: Item = agent, artifact
        with self._lock:
            for line, when in (*[(one, _ITSELF) for one in own], *wide):
                for one in (item, (None, artifact)):
                    self._note(line, one, when, seen)
            self._elsewhere.pop(item, None)
            self._lost.pop(item, None)
            if everywhere:
                self._elsewhere[item] = seen
            self._forget_some()

    def drop(self, agent: str, artifact: str) -> None:
        """This line of work found that there is nothing, or made it so."""
        if not (self._seen or self._elsewhere or self._lost):
            return
        own, wide, _ = work()
        item: Item = agent, artifact
        with self._lock:
            lines = (*[(one, _ITSELF) for one in own], *wide)
            is_known = any((None, artifact) in self._seen.get(line, {}) for line, _ in lines)
            for line, when in lines if is_known else ():
                for one in (item, (None, artifact)):
                    # This one must not be compared with what a wider one saw before. Who works
                    # beside it does not know of it.
                    if when is _ITSELF or one in self._seen.get(line, {}):
                        self._note(line, one, when, None)
            self._elsewhere.pop(item, None)
            self._lost.pop(item, None)
            self._forget_some()

    def forget(self, agent: str) -> None:
        """Begin an agent afresh."""
        with self._lock:
            for seen in self._seen.values():
                for item in [one for one in seen if one[0] == agent]:
                    del seen[item]
                    self._size -= 1
            for item in [one for one in self._elsewhere if one[0] == agent]:
                del self._elsewhere[item]

    # Inside, under the lock.

    def _look(self, line: Line, item: Item, when: When) -> T | None:
        seen = self._seen.get(line, {}).get(item)
        if seen is None and line in self._lost:
            raise Forgotten
        return None if seen is None else seen.at(when)

    def _note(self, line: Line, item: Item, when: When, seen: T | None) -> None:
        known = self._seen.get(line)
        if known is None:
            known = self._seen[line] = {}
        else:
            self._seen.move_to_end(line)
        before = known.get(item)
        self._size += before is None
        if before is not None:
            known[item] = before.then(when, seen)
        elif isinstance(when, Began):
            known[item] = _InTime.first(when, seen)
        else:
            known[item] = _InSteps(when, seen, None)

    def _forget_some(self) -> None:
        while self._size > _MOST:
            line, seen = self._seen.popitem(last=False)
            self._size -= len(seen)
            self._lose(line)
        while len(self._elsewhere) > _MOST:
            self._lose(self._elsewhere.popitem(last=False)[0])

    def _lose(self, what: Line | Item) -> None:
        self._lost[what] = None
        self._lost.move_to_end(what)
        while len(self._lost) > _MOST_LOST:
            self._lost.popitem(last=False)
