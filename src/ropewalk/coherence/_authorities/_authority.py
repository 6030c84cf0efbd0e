"""The authority: what knows the newest version of every artifact of a set.

It is the engine of a store (`_stored`), or, without one, the memory of this process
(`_local`). Nothing else decides what is newest: copies, messages and directories may all be
lost or wrong.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.coherence._content import Content
from ropewalk.coherence._protocol import Version
from ropewalk.errors import Conflict
from ropewalk.history import new_write_id
from ropewalk.store import Lease, LeaseRecord

if TYPE_CHECKING:
    from ropewalk.timeline import Timeline


class Change(NamedTuple):
    """A new version that somebody wants."""

    artifact: str
    expected: Version | None
    """What must be the newest version now; None: there is none."""
    content: Content | None
    """None for a deletion."""
    token: int = 0
    """The fencing token of the writer's grant; 0: nobody may hold the grant."""
    replaced: bool = False
    """Whether it takes the place of what its writer had not read."""


class Sent(NamedTuple):
    """What tells a commit that is sent again from another one."""

    write_id: str
    moment: int
    """Microseconds since 1970, which its versions bear."""
    again: bool = False
    """Whether it was sent before, and was made then, perhaps."""

    @classmethod
    def now(cls) -> Sent:
        """A commit that was not sent before."""
        return cls(new_write_id(), time.time_ns() // 1000)


class Committed(NamedTuple):
    """What a commit made."""

    versions: dict[str, Version]
    sequence: int
    """The number of the operation."""


class Moved(Conflict):
    """Artifacts are not at the versions that a change expects; `newest` has what they are at."""

    def __init__(self, newest: Mapping[str, Version | None]) -> None:
        super().__init__("artifacts have moved on")
        self.newest = newest


class ArtifactChange(NamedTuple):
    """A version that came to be, as `watch` tells it."""

    artifact: str
    version: int
    agent: str
    sequence: int
    """The number of the operation; several artifacts of one `publish` share it."""
    deleted: bool


class Authority(ABC):
    """The one place that decides. Safe to share between threads."""

    is_local: bool = False
    """Whether asking costs a look into memory, and never waits."""

    @abstractmethod
    def after_fork(self) -> None:
        """In a child of this process: locks may be held by nobody."""

    @abstractmethod
    def newest(self, artifact: str) -> Version | None:
        """The newest version of an artifact; None if it never was. Perhaps a deletion."""

    @abstractmethod
    def newest_of(self, artifacts: Iterable[str]) -> dict[str, Version | None]:
        """The newest versions of several artifacts, all at one moment."""

    @abstractmethod
    def version(self, artifact: str, number: int) -> Version | None:
        """An older version; None if it is not kept."""

    @abstractmethod
    def content(self, artifact: str, version: Version) -> Content:
        """What a version holds; raises `MissingObjects` if it was collected."""

    def contents(self, versions: Sequence[Version]) -> list[Content]:
        """What several versions hold."""
        return [self.content("", version) for version in versions]

    @abstractmethod
    def is_content(self, version: Version, content: Content) -> bool:
        """Whether a version holds exactly this."""

    @abstractmethod
    def commit(
        self, changes: Sequence[Change], agent: str, action: str, sent: Sent | None = None
    ) -> Committed:
        """Make new versions: all or none.

        What was sent before, and perhaps made although nobody said so, is made once.
        Raises `Moved`; `LeaseHeld` if somebody else holds a grant; `LeaseLost` if a token is
        no longer good.
        """

    @abstractmethod
    def names(self, prefix: str = "") -> dict[str, Version]:
        """The newest versions of all artifacts that are there, by name, at one moment."""

    poll_seconds: float | None = None
    """How often to look for changes although nobody said that there are any."""

    @abstractmethod
    def looking(self, after: int) -> Callable[[], tuple[list[ArtifactChange], int]]:
        """What gives the next changes after an operation, each time that it is called.

        And the number up to which they reach. Raises `Rewound` if the engine no longer has
        the operation up to which it has looked.
        """

    @abstractmethod
    def waking(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """While entered, `wake` is called when there may be changes."""

    @abstractmethod
    def sequence(self) -> int:
        """The number of the last operation."""

    @abstractmethod
    def timeline(self, artifact: str) -> Timeline:
        """The history of an artifact, to look at."""

    # Grants: leases by the names of artifacts.

    @abstractmethod
    def acquire(self, artifact: str, holder: str, duration: float) -> Lease:
        """Take the grant of an artifact; raises `LeaseHeld`."""

    @abstractmethod
    def renew(self, lease: Lease) -> Lease:
        """Begin a grant's time again; raises `LeaseLost`."""

    @abstractmethod
    def release(self, lease: Lease) -> bool:
        """Give a grant back; False if it was lost."""

    @abstractmethod
    def seize(self, record: LeaseRecord, holder: str, duration: float) -> Lease | None:
        """Take a grant although its holder beats; None if it is another's by now."""

    @abstractmethod
    def leases(self) -> list[LeaseRecord]:
        """The grants that are held."""

    @abstractmethod
    def lease_name(self, artifact: str) -> str:
        """The name of the lease that is the grant of an artifact."""

    @abstractmethod
    def leased(self, record: LeaseRecord) -> str | None:
        """The artifact that a lease is the grant of; None if that cannot be told."""
