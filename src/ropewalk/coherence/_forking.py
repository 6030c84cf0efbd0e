"""What has threads or connections begins anew in a forked process."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What is told, in the child, that a process was forked."""

    def after_fork(self) -> None:
        """Begin anew: threads are gone, locks may be held by nobody, connections are another's.

        Starts no thread: others are not told yet, and most children do nothing here. What is
        needed is started by who first needs it.
        """


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(one: Forkable) -> None:
    """Call its `after_fork` in every child of this process, as long as it lives."""
    _known.add(one)


def _forked() -> None:
    failed: list[Exception] = []
    for one in list(_known):
        try:
            one.after_fork()
        except Exception as error:  # noqa: BLE001 - the others must begin anew all the same
            failed.append(error)
    if failed:
        raise ExceptionGroup("what a child of a fork could not begin anew", failed)


os.register_at_fork(after_in_child=_forked)
