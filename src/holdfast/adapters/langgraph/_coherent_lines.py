"""What each line of work has seen: a call, a task, a run, a conversation.

One agent may do several things at once: a node that `Send` starts many times, the tools of
one turn, conversations that a server holds side by side. Each of them makes what it puts from
what it got itself. What the agent last saw elsewhere is no base for it: compared with that, it
would take away what it has not seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from langchain_core.runnables.config import var_child_runnable_config

from holdfast.store._forking import freed_after_fork

T = TypeVar("T")

Line: TypeAlias = Hashable
Item: TypeAlias = tuple[str, str]
"""An agent and an artifact."""

_MOST: Final = 1 << 16
"""How much is remembered. Calls and tasks that ended long ago are forgotten first."""
_MOST_LOST: Final = 1 << 16
_TASK: Final = "__pregel_task_id"
_RUNTIME: Final = "__pregel_runtime"


class Forgotten(LookupError):
    """What a line of work saw is no longer known here, so nothing can be compared with it."""


def lines() -> tuple[Line, ...]:
    """The lines of work that this call belongs to, the narrowest first; none outside of a graph."""
    config = var_child_runnable_config.get()
    if not config:
        return ()
    configurable = config.get("configurable") or {}
    call = getattr(config.get("callbacks"), "parent_run_id", None)
    run: Any = getattr(configurable.get(_RUNTIME), "control", None)
    found = (call, configurable.get(_TASK), run, configurable.get("thread_id"))
    return tuple([one for one in found if one is not None])


class Lines(Generic[T]):
    """What lines of work have seen of items. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self._seen: OrderedDict[Line, dict[Item, T]] = OrderedDict()
        """The one that was used last stands last."""
        self._elsewhere: OrderedDict[Item, T] = OrderedDict()
        """Of agents that know less than what they wrote last, wherever they work."""
        self._size = 0
        self._lost: OrderedDict[Line | Item, None] = OrderedDict()
        """Of what something was forgotten."""

    def last(self, agent: str, artifact: str) -> T | None:
        """What this line of work last saw, or a wider one; None if none did.

        Raises `Forgotten` if one of them did, perhaps, and it is not known any more.
        """
        if not (self._seen or self._elsewhere or self._lost):
            return None
        item = agent, artifact
        with self._lock:
            for one in lines():
                seen = self._seen.get(one)
                if seen is not None and item in seen:
                    return seen[item]
                if one in self._lost:
                    raise Forgotten
            if item in self._lost:
                raise Forgotten
            return self._elsewhere.get(item)

    def note(self, agent: str, artifact: str, seen: T, *, everywhere: bool = False) -> None:
        """This line of work saw an item; `everywhere` if the agent knows no more elsewhere."""
        own = lines()
        if not (own or everywhere or self._elsewhere or self._lost):
            return
        item = agent, artifact
        with self._lock:
            for one in own:
                self._note(one, item, seen)
            self._elsewhere.pop(item, None)
            self._lost.pop(item, None)
            if everywhere:
                self._elsewhere[item] = seen
            self._forget_some()

    def drop(self, agent: str, artifact: str) -> None:
        """This line of work found that there is nothing, or made it so."""
        if not (self._seen or self._elsewhere or self._lost):
            return
        item = agent, artifact
        with self._lock:
            for one in lines():
                if self._seen.get(one, {}).pop(item, None) is not None:
                    self._size -= 1
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

    def _note(self, line: Line, item: Item, seen: T) -> None:
        known = self._seen.get(line)
        if known is None:
            known = self._seen[line] = {}
        else:
            self._seen.move_to_end(line)
        self._size += item not in known
        known[item] = seen

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
