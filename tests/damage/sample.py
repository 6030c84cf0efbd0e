"""A small store in which everything stands that people keep, and what reading it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from ropewalk import Timeline, Versioned
from ropewalk.store import Store
from ropewalk.store.sqlite import packs
from ropewalk.testing.helpers import noise
from ropewalk.threads import Message, ThreadCheckpointer

AGENT: Final = "researcher"
CONVERSATION: Final = {"thread_id": "talk", "user_id": "ann"}
USER: Final = {"user_id": "ann"}
MOST_BYTES: Final = 128 * 1024


def fill(store: Store) -> None:
    """Steps, a branch, a merge, a tag, a large value, a mapping and a conversation."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packs, "LARGE", 8 * 1024)  # So that a store this small has one.
        agent = Timeline(AGENT, store)
        state: dict[str, Any] = {"n": 0, "notes": [f"note {at} " * 20 for at in range(20)]}
        agent.checkpoint(state, description="Began")
        state["large"] = noise(40_000, seed=1)
        agent.checkpoint(state, description="Got a large value")
        agent.branch("idea")
        agent.checkpoint({**state, "idea": True}, description="Tried something else")
        agent.switch_branch("main")
        agent.checkpoint({**state, "n": 1}, description="Went on")
        agent.tag("v1")
        agent.merge("idea")
        agent.checkpoint({**state, "n": 2, "idea": True}, description="Ended")

        memory = Versioned(store, name="memory")
        memory["facts"] = {"capital": "Paris", "river": "Seine"}
        memory.commit("Learned")
        memory["facts"]["river"] = "Loire"
        memory.commit("Corrected")

        threads = ThreadCheckpointer(store, cache_seconds=None)
        threads.put_state(CONVERSATION, {"turn": 1})
        threads.put_messages(
            CONVERSATION,
            [Message("user", f"hello {at} " * 9, id=f"m{at}") for at in range(6)],
        )
        threads.put_state(CONVERSATION, {"turn": 2})


def _threads(store: Store) -> ThreadCheckpointer[Any]:
    return ThreadCheckpointer(store, cache_seconds=None)


QUESTIONS: Final[Mapping[str, Callable[[Store], object]]] = {
    "head": lambda store: Timeline(AGENT, store).get_state(),
    "history": lambda store: [
        (step.id, step.description, step.state) for step in Timeline(AGENT, store).history()
    ],
    "branch": lambda store: [step.state for step in Timeline(AGENT, store).history("idea")],
    "tag": lambda store: [
        Timeline(AGENT, store).get(id).state for id in Timeline(AGENT, store).tags().values()
    ],
    "tree": lambda store: Timeline(AGENT, store).visualize_tree(fold=None),
    "mapping": lambda store: dict(Versioned(store, name="memory")),
    "thread": lambda store: _threads(store).get_state(CONVERSATION),
    "messages": lambda store: list(_threads(store).list_messages(CONVERSATION)),
    "threads": lambda store: list(_threads(store).list_threads(USER)),
    "operations": lambda store: {space: store.operations(space) for space in store.spaces()},
}
"""What is asked of a store; a question that fails does not keep the others from being asked."""
