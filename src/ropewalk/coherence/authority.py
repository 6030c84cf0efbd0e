"""The authority: what knows the newest version of every artifact of a set.

It is the engine of a store (`store_authority`), or, without one, the memory of this process
(`LocalAuthority`). Nothing else decides what is newest: copies, messages and directories may
all be lost or wrong.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.coherence.protocol import Content, Note, Version
from ropewalk.coherence.timers import Time
from ropewalk.errors import (
    Conflict,
    InvalidName,
    LeaseHeld,
    LeaseLost,
    MissingObjects,
    NotFound,
    Rewound,
)
from ropewalk.store import Lease, LeaseRecord, ref_name
from ropewalk.store.asynchronous import Threads
from ropewalk.store.forking import whole_after_fork
from ropewalk.store.leases import LeaseKeeper
from ropewalk.store.validation import expect, expect_timeout, expect_whole
from ropewalk.store.watch import Patience, awatch, watch

if TYPE_CHECKING:
    from ropewalk.timeline import Timeline


BRANCH: Final = "branch"
GRANT: Final = "grant"
NAME: Final = "artifact"
"""Where a commit keeps the name of an artifact whose branch has a digest for one."""

_LONGEST: Final = 300


class Names(NamedTuple):
    """The names of an artifact's branch, ref and lease in its space."""

    branch: str
    """Its own name, or a digest where that is no name of a branch."""
    ref: str
    lease: str


@lru_cache(maxsize=65536)
def names_of(artifact: str) -> Names:
    """What an artifact is called; raises `InvalidName` for what is no text."""
    branch = branch_of(artifact)
    return Names(branch, ref_name(BRANCH, branch), ref_name(GRANT, branch))


def branch_of(artifact: str) -> str:
    """The name of an artifact's branch: its own, or a digest where that cannot be one."""
    try:
        if len(ref_name(BRANCH, artifact)) <= _LONGEST and not artifact.startswith("~"):
            return artifact
    except InvalidName:
        if not isinstance(artifact, str) or artifact == "":
            raise
    return "~" + sha256(artifact.encode("utf-8", "surrogatepass")).hexdigest()


class Change(NamedTuple):
    """A version to be committed."""

    artifact: str
    expected: Version | None
    """What must be the newest version now; None: there is none."""
    content: Content | None
    """None for a deletion."""
    token: int = 0
    """The fencing token of the writer's grant; 0: nobody may hold the grant."""
    replaced: bool = False
    """Whether it replaces a version that its writer had not read."""
    note: Note | None = None


class Sent(NamedTuple):
    """The identity of a commit: its idempotency key, and the time of its versions."""

    write_id: str
    moment: int
    """The time of its versions, in microseconds since 1970."""
    again: bool = False
    """Whether it was sent before, and may have landed then."""


class Committed(NamedTuple):
    """What a commit made."""

    versions: dict[str, Version]
    sequence: int
    """The number of the operation."""


class ArtifactsMoved(Conflict):
    """Artifacts are not at the versions that a change expects; `newest` has what they are at."""

    def __init__(self, newest: Mapping[str, Version | None]) -> None:
        super().__init__("artifacts have moved on")
        self.newest = newest


class ArtifactChange(NamedTuple):
    """A new version, as `watch` yields it."""

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
        Raises `ArtifactsMoved`; `LeaseHeld` if somebody else holds a grant; `LeaseLost` if a token
        is no longer good.
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

    @abstractmethod
    def prompt_key(self) -> bytes:
        """A key that is made once for a store: what prompts say of artifacts is checked with it."""

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
        """The artifact that a lease is the grant of; None if that is not known."""


class Watching:
    """Who watches the artifacts of one client."""

    def __init__(self, authority: Authority, check_open: Callable[[], None]) -> None:
        self._authority, self._check_open = authority, check_open
        self._wakes: set[Callable[[], None]] = set()

    def watch(
        self, artifacts: Iterable[str] | None, prefix: str, after: int, timeout: float | None
    ) -> Iterator[ArtifactChange]:
        """Yield what comes after an operation."""
        look = self._looking(artifacts, prefix, after, timeout)
        return watch(look, self._waking, self._patience(timeout))

    def awatch(
        self,
        artifacts: Iterable[str] | None,
        prefix: str,
        after: int,
        timeout: float | None,
        threads: Threads,
    ) -> AsyncIterator[ArtifactChange]:
        """The same for an event loop; no thread waits."""
        look = self._looking(artifacts, prefix, after, timeout)
        return awatch(partial(threads.run, look), self._waking, self._patience(timeout))

    def wake_all(self) -> None:
        """Let all look at once: the client was closed."""
        for wake in list(self._wakes):
            wake()

    def _patience(self, timeout: float | None) -> Patience:
        return Patience(timeout, self._authority.poll_seconds)

    def _looking(
        self, artifacts: Iterable[str] | None, prefix: str, after: int, timeout: float | None
    ) -> Callable[[], list[ArtifactChange]]:
        expect_whole(after, 0, "after")
        expect_timeout(timeout)
        # One name alone would be taken for its letters.
        expect(not isinstance(artifacts, str), "artifacts are a list of names", artifacts)
        expect(isinstance(prefix, str), "prefix is what names begin with", prefix)
        names = None if artifacts is None else frozenset(artifacts)

        def is_wanted(name: str) -> bool:
            return name.startswith(prefix) and (names is None or name in names)

        return _Look(self._authority.looking(after), self._check_open, is_wanted, after)

    @contextmanager
    def _waking(self, wake: Callable[[], None]) -> Iterator[None]:
        self._wakes.add(wake)
        try:
            with self._authority.waking(wake):
                yield
        finally:
            self._wakes.discard(wake)


class _Look:
    """Looks for the next changes of some artifacts, and passes over all others once."""

    def __init__(
        self,
        look: Callable[[], tuple[list[ArtifactChange], int]],
        check_open: Callable[[], None],
        is_wanted: Callable[[str], bool],
        after: int,
    ) -> None:
        self._look, self._check_open = look, check_open
        self._is_wanted, self._position = is_wanted, after

    def __call__(self) -> list[ArtifactChange]:
        while True:
            self._check_open()
            before = self._position
            changes, self._position = self._look()
            found = [one for one in changes if self._is_wanted(one.artifact)]
            if found or self._position == before:
                return found


KEPT_VERSIONS: Final = 100
"""How many versions of each artifact are kept."""

_KEPT_CHANGES: Final = 10_000


class LocalAuthority(Authority):
    """Artifacts as encoded bytes in a dict, under a lock. Versions are kept as they came."""

    is_local = True

    def __init__(self, name: str, codec: Codec, time: Time) -> None:
        self._name, self._codec = name, codec
        self._lock = whole_after_fork(threading.RLock())
        self._wakes: set[Callable[[], None]] = set()
        self._newest: dict[str, Version] = {}
        self._kept: dict[str, deque[Version]] = {}
        self._changes: deque[ArtifactChange] = deque(maxlen=_KEPT_CHANGES)
        self._sequence = 0
        self._grants = _Grants()
        self._keeper = LeaseKeeper(self._grants, time.clock)
        self._nanoseconds = time.nanoseconds
        self._life = os.urandom(8)
        self._prompt_key = os.urandom(32)

    def after_fork(self) -> None:
        """In a child, whose artifacts are its own from now on: who held one, is not here."""
        self._wakes = set()
        self._grants.records.clear()

    def newest(self, artifact: str) -> Version | None:
        """The newest version of an artifact."""
        return self._newest.get(artifact)

    def newest_of(self, artifacts: Iterable[str]) -> dict[str, Version | None]:
        """The newest versions of several artifacts, all at one moment."""
        with self._lock:
            return {name: self._newest.get(name) for name in artifacts}

    def version(self, artifact: str, number: int) -> Version | None:
        """An older version, if it is kept."""
        with self._lock:
            newest = self._newest.get(artifact)
            if newest is not None and newest.number == number:
                return newest
            kept = self._kept.get(artifact, ())
            return next((one for one in kept if one.number == number), None)

    def content(self, artifact: str, version: Version) -> Content:
        """What a version holds."""
        if version.content is None:
            raise MissingObjects([version.id])  # Deleted meanwhile: there is a newer one.
        return version.content

    def is_content(self, version: Version, content: Content) -> bool:
        """Whether a version holds exactly this."""
        return version.content is not None and version.content.encoded == content.encoded

    def commit(
        self, changes: Sequence[Change], agent: str, action: str, sent: Sent | None = None
    ) -> Committed:
        """Make new versions: all or none."""
        moment = self._nanoseconds() // 1000
        with self._lock:
            self._check(changes)
            self._sequence += 1
            made: dict[str, Version] = {}
            for artifact, expected, content, _, replaced, note in changes:
                number = 1 if expected is None else expected.number + 1
                id = self._life + self._sequence.to_bytes(8, "big") + len(made).to_bytes(4, "big")
                created = moment
                if expected is not None and not expected.deleted:
                    created = expected.created
                made[artifact] = version = Version(
                    number, id, agent, moment, content is None, content, created, note
                )
                version.replaced = replaced
            # In one step: who is interrupted here, as by Ctrl-C, has written all or nothing.
            self._newest.update(made)
            for artifact, version in made.items():
                self._keep(artifact, version)
                self._changes.append(
                    ArtifactChange(artifact, version.number, agent, self._sequence, version.deleted)
                )
            for wake in tuple(self._wakes):
                wake()
            return Committed(made, self._sequence)

    def names(self, prefix: str = "") -> dict[str, Version]:
        """The newest versions of all artifacts that are there."""
        with self._lock:
            return {
                name: version
                for name, version in self._newest.items()
                if not version.deleted and name.startswith(prefix)
            }

    def looking(self, after: int) -> Callable[[], tuple[list[ArtifactChange], int]]:
        """Look at the last changes; raises `NotFound` if those that come next are not kept."""
        position = after

        def look() -> tuple[list[ArtifactChange], int]:
            nonlocal position
            with self._lock:
                self._expect_kept(position)
                found, position = self._since(position), self._sequence
            return found, position

        return look

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` after each commit."""
        with self._lock:
            self._wakes.add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakes.discard(wake)

    def _expect_kept(self, after: int) -> None:
        if after > self._sequence:
            raise Rewound(
                f"there is no operation {after}: without a store changes end with their process. "
                "Watch from now on, or give the artifacts a store."
            )
        kept = self._changes[0].sequence if len(self._changes) == _KEPT_CHANGES else 1
        if after + 1 < kept:
            raise NotFound(
                f"without a store only the last {_KEPT_CHANGES} changes are kept, and {after} is "
                "before them. Watch from now on, or give the artifacts a store."
            )

    def _since(self, after: int) -> list[ArtifactChange]:
        found = []
        for change in reversed(self._changes):
            if change.sequence <= after:
                break
            found.append(change)
        return found[::-1]

    def sequence(self) -> int:
        """The number of the last operation."""
        return self._sequence

    def timeline(self, artifact: str) -> Timeline:
        """The versions that are kept, as a timeline of their own; or a deletion alone."""
        from ropewalk.coherence.history import timeline_of_versions

        with self._lock:
            newest = self._newest.get(artifact)
            kept = self._kept.get(artifact) or ([] if newest is None else [newest])
            # Taken together: a deletion takes away what older versions hold.
            versions = [(one, one.content) for one in kept]
        return timeline_of_versions(self._name, artifact, versions, self._codec)

    def prompt_key(self) -> bytes:
        """A key that ends with this process."""
        return self._prompt_key

    # Grants.

    def acquire(self, artifact: str, holder: str, duration: float) -> Lease:
        """Take the grant of an artifact."""
        with self._lock:
            return self._keeper.acquire(self._name, artifact, holder, duration)

    def renew(self, lease: Lease) -> Lease:
        """Begin a grant's time again."""
        with self._lock:
            return self._keeper.renew(lease, None)

    def release(self, lease: Lease) -> bool:
        """Give a grant back."""
        with self._lock:
            return self._keeper.release(lease)

    def seize(self, record: LeaseRecord, holder: str, duration: float) -> Lease | None:
        """Take a grant although its holder beats."""
        with self._lock:
            return self._keeper.seize(self._name, record, holder, duration)

    def leases(self) -> list[LeaseRecord]:
        """The grants that are held."""
        with self._lock:
            found = list(self._grants.records.values())
            for record in found:
                self._keeper.saw(self._name, record)
            return found

    def lease_name(self, artifact: str) -> str:
        """Leases are named as their artifacts."""
        return artifact

    def leased(self, record: LeaseRecord) -> str | None:
        """The artifact that a lease is the grant of."""
        return record.name

    # Inside, under the lock.

    def _check(self, changes: Sequence[Change]) -> None:
        for artifact, _, _, token, _, _ in changes:
            held = self._grants.records.get(artifact) if self._grants.records else None
            actual = 0 if held is None else held.token
            if token and token != actual:
                raise LeaseLost(f"the grant of {artifact!r:.80} with token {token} is over")
            if token != actual:
                raise LeaseHeld(f"somebody holds the grant of artifact {artifact!r:.80}")
        for artifact, expected, _, _, _, _ in changes:
            if self._newest.get(artifact) is not expected:
                names = [change.artifact for change in changes]
                raise ArtifactsMoved({name: self._newest.get(name) for name in names})

    def _keep(self, artifact: str, version: Version) -> None:
        if version.deleted:
            # Agents that read it still know of the version, but what it held is gone.
            for one in self._kept.pop(artifact, ()):
                one.content = None
            return
        kept = self._kept.get(artifact)
        if kept is None:
            kept = self._kept[artifact] = deque(maxlen=KEPT_VERSIONS)
        kept.append(version)


class _Grants:
    """Leases in memory, for a `LeaseKeeper`. Under the authority's lock."""

    def __init__(self) -> None:
        self.records: dict[str, LeaseRecord] = {}
        self._tokens: defaultdict[str, int] = defaultdict(int)

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return self.records.get(name)

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        if self.records.get(name) != expected:
            return None
        self._tokens[name] += 1
        made = self.records[name] = LeaseRecord(name, holder, self._tokens[name], 1, duration)
        return made

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        if self.records.get(expected.name) != expected:
            return False
        if record is None:
            del self.records[expected.name]
        else:
            self.records[expected.name] = record
        return True
