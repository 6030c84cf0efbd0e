"""What each line of work has seen: a call, a task, a run, a conversation.

One agent may do several things at once: a node that `Send` starts many times, the tools of
one turn, conversations that a server holds side by side. Each of them makes what it puts from
what it got itself. What the agent last saw elsewhere is no base for it: compared with that, it
would take away what it has not seen.

And one piece of work may be done by several agents: a node gets an item, and another one puts
what became of it. What came to a node in the state of its run was made from what earlier
steps of the run saw, whoever they were. Of what is done beside it, in the same step, it knows
nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from langchain_core.runnables.config import var_child_runnable_config

from holdfast.store._forking import freed_after_fork

T = TypeVar("T")

Line: TypeAlias = Hashable
Item: TypeAlias = tuple[str | None, str]
"""An agent and an artifact; None for any agent."""

_MOST: Final = 1 << 16
"""How much is remembered. Calls and tasks that ended long ago are forgotten first."""
_MOST_LOST: Final = 1 << 16
_TASK: Final = "__pregel_task_id"
_RUNTIME: Final = "__pregel_runtime"


class Forgotten(LookupError):
    """What a line of work saw is no longer known here, so nothing can be compared with it."""


class Work(NamedTuple):
    """What a call is part of."""

    own: tuple[Line, ...] = ()
    """The call and its task, as far as there are any."""
    wide: tuple[Line, ...] = ()
    """The run and the conversation, whose steps come one after the other."""
    step: Hashable | None = None
    """The step of the run; None if that is not known."""


_NONE: Final = Work()


def work() -> Work:
    """What this call is part of; nothing outside of a graph."""
    config = var_child_runnable_config.get()
    if not config:
        return _NONE
    configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
    call = getattr(config.get("callbacks"), "parent_run_id", None)
    run: Any = getattr(configurable.get(_RUNTIME), "control", None)
    number = metadata.get("langgraph_step")
    # The last part of its namespace is the task itself.
    graph = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    return Work(
        tuple([one for one in (call, configurable.get(_TASK)) if one is not None]),
        tuple([one for one in (run, configurable.get("thread_id")) if one is not None]),
        None if number is None else (graph, number),
    )


class _Seen(NamedTuple, Generic[T]):
    """What a line of work has seen of an item."""

    step: Hashable | None
    last: T
    before: T | None
    """The last that was seen before that step."""

    def then(self, step: Hashable | None, seen: T) -> _Seen[T]:
        """The same after something else was seen."""
        return _Seen(step, seen, self.at(step))

    def at(self, step: Hashable | None) -> T | None:
        """What a step may know of."""
        return self.before if step is not None and step == self.step else self.last


class Lines(Generic[T]):
    """What lines of work have seen of items. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[Line, dict[Item, _Seen[T]]] = OrderedDict()
        """The one that was used last stands last."""
        self._elsewhere: OrderedDict[Item, T] = OrderedDict()
        """Of agents that know less than what they wrote last, wherever they work."""
        self._size = 0
        self._lost: OrderedDict[Line | Item, None] = OrderedDict()
        """Of what something was forgotten."""

    def last(self, agent: str, artifact: str) -> T | None:
        """What a value that is put now was made from, as far as lines of work know; else None.

        It is what this line of work last saw, or a wider one: in that the agent itself, or,
        if it saw nothing there, any other. Raises `Forgotten` if one of them did, perhaps, and
        it is not known any more.
        """
        if not (self._seen or self._elsewhere or self._lost):
            return None
        own, wide, step = work()
        item: Item = agent, artifact
        with self._lock:
            for line in own:
                if (found := self._look(line, item, None)) is not None:
                    return found
            for line in wide:
                if (found := self._look(line, item, step)) is not None:
                    return found
            for line in wide:
                if (found := self._look(line, (None, artifact), step)) is not None:
                    return found
            if item in self._lost:
                raise Forgotten
            return self._elsewhere.get(item)

    def note(self, agent: str, artifact: str, seen: T, *, everywhere: bool = False) -> None:
        """This line of work saw an item; `everywhere` if the agent knows no more elsewhere."""
        own, wide, step = work()
        if not (own or wide or everywhere or self._elsewhere or self._lost):
            return
        item: Item = agent, artifact
        with self._lock:
            for line in own:
                self._note(line, item, None, seen)
            for line in wide:
                self._note(line, item, step, seen)
                self._note(line, (None, artifact), step, seen)
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
            for line in (*own, *wide):
                seen = self._seen.get(line, {})
                for one in (item, (None, artifact)):
                    self._size -= seen.pop(one, None) is not None
            self._elsewhere.pop(item, None)
            self._lost.pop(item, None)

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

    def _look(self, line: Line, item: Item, step: Hashable | None) -> T | None:
        seen = self._seen.get(line, {}).get(item)
        if seen is None and line in self._lost:
            raise Forgotten
        return None if seen is None else seen.at(step)

    def _note(self, line: Line, item: Item, step: Hashable | None, seen: T) -> None:
        known = self._seen.get(line)
        if known is None:
            known = self._seen[line] = {}
        else:
            self._seen.move_to_end(line)
        before = known.get(item)
        self._size += before is None
        known[item] = _Seen(step, seen, None) if before is None else before.then(step, seen)

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
