"""The states of a copy, and what moves it from one to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ropewalk.coherence.artifact import Content


class State(StrEnum):
    """What an agent may do with its copy of an artifact."""

    MODIFIED = "MODIFIED"
    """It holds the grant and has written under it: nobody else may write."""
    EXCLUSIVE = "EXCLUSIVE"
    """It holds the grant: nobody else may write."""
    SHARED = "SHARED"
    """It has a copy, which may be served as its strategy says."""
    INVALID = "INVALID"
    """It has no copy that may be served."""


GRANTED: Final = (State.EXCLUSIVE, State.MODIFIED)


Note: TypeAlias = Mapping[str, Any]
"""What the writer of a version says of it beside its value: plain, and small."""


class Version:
    """One version of an artifact. Numbers begin at 1 and are never used again."""

    __slots__ = (
        "agent",
        "content",
        "created",
        "deleted",
        "id",
        "note",
        "number",
        "replaced",
        "time",
    )

    def __init__(
        self,
        number: int,
        id: bytes,
        agent: str,
        time: int,
        deleted: bool = False,
        content: Content | None = None,
        created: int | None = None,
        note: Note | None = None,
    ) -> None:
        self.number = number
        self.id = id
        """Tells versions apart, whatever their numbers; equal ids are one version."""
        self.agent, self.time = agent, time
        self.created = time if created is None else created
        """When the artifact came to be: at its first version, or the first after a deletion."""
        self.deleted = deleted
        self.content, self.note = content, note
        self.replaced = False
        """Whether it replaced what its writer had not read; only the local authority sets it."""

    def __repr__(self) -> str:
        gone = " deleted" if self.deleted else ""
        return f"<Version {self.number}{gone} by {self.agent!r}>"


class Entry:
    """What one agent has of one artifact."""

    __slots__ = (
        "confirmed",
        "deadline",
        "gaps",
        "lost",
        "put",
        "read",
        "reads",
        "state",
        "token",
        "version",
    )

    def __init__(self, version: Version) -> None:
        self.version = version
        """The newest version that was confirmed for it, which it may be served."""
        self.read: Version | None = None
        """What it read since it last put; None if nothing."""
        self.put: Version | None = None
        """What it last put."""
        self.state = State.INVALID
        self.confirmed = 0.0
        """From before the request that found this version to be the newest."""
        self.reads = count()
        """Numbers the reads since; two threads never get the same number."""
        self.gaps = -1
        self.token = 0
        """The fencing token of its grant; 0 without one."""
        self.deadline = 0.0
        """Until when its grant lasts, on this client's clock."""
        self.lost = False
        """Whether its grant was taken away, and the authority was not asked since."""

    def confirm(self, version: Version, now: float, gaps: int) -> None:
        """A version was the newest after `now`."""
        if version.id == self.version.id and now < self.confirmed:
            return  # Another thread asked later, and was answered sooner.
        self.version, self.confirmed, self.gaps = version, now, gaps
        self.reads = count()
        self.lost = False


class Base(NamedTuple):
    """What a value was made from."""

    version: Version | None
    """None if its writer has neither read nor put the artifact."""
    is_read: bool
    """Whether its writer read that version; else it only put it."""


class Transition(NamedTuple):
    """A change of state, for the log."""

    artifact: str
    agent: str
    before: State
    after: State
    trigger: str
    version: int
    token: int = 0
    """Of the grant that the agent has then; 0 without one."""
    home: str = ""
    """The client that the agent is in, if that is another one."""


class Fetched(NamedTuple):
    """What a confirmed version made of the directory."""

    was_known: bool
    """Whether it is the one that the agent had."""
    transitions: list[Transition]


class Invalidated(NamedTuple):
    """What a message made of the directory."""

    transitions: list[Transition]
    gap: bool
    """Whether messages before it were lost."""


NOTHING: Final = Version(0, b"", "", 0)
"""Stands for an artifact of which nothing was read yet."""

UNKNOWN: Final = Base(None, False)
"""The base of a value whose writer has neither read nor put the artifact."""
