"""The checkpointer for pyagenity: a graph's states and conversations in a store."""

from __future__ import annotations

from typing import TypeVar

from ropewalk.adapters.conversations import Models, SharedCheckpointer

try:
    from pyagenity.checkpointer import BaseCheckpointer
    from pyagenity.state import AgentState
    from pyagenity.utils.thread_info import ThreadInfo
except (ImportError, SyntaxError) as error:
    raise ImportError(
        "ropewalk.adapters.pyagenity needs pyagenity 0.3, from 0.3.3 on, and Python 3.12 or newer: "
        "pip install 'ropewalk[pyagenity]'"
    ) from error

__all__ = ["RopewalkCheckpointer"]

StateT = TypeVar("StateT", bound=AgentState)


class RopewalkCheckpointer(SharedCheckpointer, BaseCheckpointer[StateT]):
    """Stores the states and conversations of pyagenity's graphs.

    Pass it to `compile(checkpointer=...)`. `types` are the classes of your states; the classes of
    their fields are included. `RopewalkCheckpointer[MyState](store)` means the same. Without a
    store it is in memory. `threads` is the underlying `ThreadCheckpointer`.

    `thread_id` in the config names the thread, and `user_id` its owner. Users never see each
    other's threads.
    """

    models = Models(AgentState, ThreadInfo, nobody="test-user-id")
