"""Forks at a bad moment: children of a process whose other threads hold every lock."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

PATIENCE = 60
"""Seconds after which a child has failed."""

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_OURS = ("ropewalk", "threading", "collections", "weakref")


def code_of_child(work: Callable[[], object]) -> int:
    """How a child ends that does something: 0, or 1 if that is not true, 2 if it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That threads do not survive it.
        child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001 - it is told by the child's code
            traceback.print_exc()
            sys.stderr.flush()
        finally:  # Nothing else may run in the child.
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def held(locks: Iterable[Any]) -> Iterator[None]:
    """Another thread holds all of these, if they are free for a moment."""
    ready, over = threading.Event(), threading.Event()

    def hold() -> None:
        taken = [one for one in locks if one.acquire(timeout=0.05)]
        ready.set()
        over.wait()
        for one in taken:
            one.release()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def locks_of(*roots: object) -> list[Any]:
    """Every lock that can be reached from some objects of ours."""
    found: dict[int, Any] = {}
    seen: dict[int, object] = {}
    waiting = deque(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | threading.Thread):
            continue
        seen[id(one)] = one
        if isinstance(one, _LOCKS):
            found[id(one)] = one
        else:
            waiting += _parts(one)
    return list(found.values())


def _parts(one: Any) -> list[object]:
    match one:
        case dict():
            return [*one.values(), *one]
        case list() | tuple() | set() | frozenset() | deque():
            return list(one)
        case types.MethodType():
            return [one.__self__, one.__func__]
        case types.FunctionType():
            return [cell.cell_contents for cell in one.__closure__ or ()]
        case partial():
            return [one.func, *one.args]
        case weakref.ref():
            return [one()]
    if not type(one).__module__.startswith(_OURS):
        return []
    names = [*getattr(one, "__dict__", ())]
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return [getattr(one, name) for name in names if hasattr(one, name)]
