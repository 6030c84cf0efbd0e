"""The old place of `ropewalk.store.asynchronous`, until the engines are rebuilt."""

from ropewalk.store.asynchronous import (
    Bell,
    Closes,
    HasThreads,
    Threads,
    twin,
    twin_iterator,
)

__all__ = ["Bell", "Closes", "HasThreads", "Threads", "twin", "twin_iterator"]
