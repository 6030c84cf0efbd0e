"""What an adapter gives to the contract suite for sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ropewalk import Store
from ropewalk.threads import ThreadCheckpointer
from ropewalk.timeline import Timeline


class SessionKit:
    """How the sessions of one framework are opened and used.

    A subclass stands in a module, so that another process can import it. Its methods may be
    coroutine functions. A turn is what the framework does when a user says something: it stores
    the user's text and an answer that repeats it, through the adapter, without any network.
    """

    adapter: ClassVar[str] = ""
    """The module of the adapter."""
    entry: ClassVar[str] = ""
    """The name that a user imports from it."""
    framework: ClassVar[str] = ""
    """What the framework is imported as; empty if the adapter needs none."""
    extra: ClassVar[str] = ""
    """The extra of Ropewalk that installs it."""
    stores_whole_turns: ClassVar[bool] = True
    """Whether the framework stores a turn in one call, so that it is there whole or not at all."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Optional methods that the framework has nothing for, each with the reason."""

    def open(self, store: Store, id: str) -> Any:
        """The framework's session with an id; a new one, or one that is in the store."""
        raise NotImplementedError

    def say(self, session: Any, text: str) -> Any:
        """Take a turn in which the user says a text."""
        raise NotImplementedError

    def items(self, session: Any) -> Any:
        """All that the session holds, as values that can be compared."""
        raise NotImplementedError

    def close(self, session: Any) -> Any:
        """Close a session; the store stays open."""

    # Where it is stored.

    def config(self, id: str) -> dict[str, Any]:
        """The thread of a session, as for `ThreadCheckpointer`."""
        return {"thread_id": id}

    def texts(self, store: Store, id: str) -> list[str]:
        """What the user said in a session, in order, as the store has it."""
        threads: ThreadCheckpointer[Any] = ThreadCheckpointer(store)
        return [one.text for one in threads.list_messages(self.config(id), role="user")]

    def timeline(self, store: Store, id: str) -> Timeline:
        """The steps of a session."""
        threads: ThreadCheckpointer[Any] = ThreadCheckpointer(store)
        return threads.timeline(self.config(id))

    # Optional; a kit without one of them says in `lacks` why.

    def change(self, session: Any, old: str, new: str) -> Any:
        """Replace the user's text `old` in the framework's own history, in place, and store it."""
        raise NotImplementedError

    def fork(self, session: Any, turns: int, id: str) -> Any:
        """A new session with this id, that begins after so many turns of this one."""
        raise NotImplementedError
