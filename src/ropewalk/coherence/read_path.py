"""The read path: a cached copy is served if it cannot be stale, else confirmed at the authority.

A stale read is prevented in `ReadPath._cache_hit` and `_may_serve`. A copy is served if the
directory knows of no newer version and of no lost message (`Directory.is_current`), and either the
agent holds the grant, or the strategy allows it within its bound. Everything else goes to
`confirm`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.coherence.authority import Authority
from ropewalk.coherence.directory import Directory
from ropewalk.coherence.logs import Recorder
from ropewalk.coherence.protocol import (
    Artifact,
    Content,
    ContentCache,
    Entry,
    Source,
    State,
    Version,
)
from ropewalk.coherence.strategies import Strategy
from ropewalk.coherence.timers import Time, timestamp
from ropewalk.errors import MissingObjects, NotFound, RopewalkError, Unavailable

if TYPE_CHECKING:
    from ropewalk.coherence.invalidation import BusClient, LogFollower

_TRIES: Final = 8
_TOGETHER: Final = 64
_NEVER: Final = float("-inf")


@dataclass(slots=True)
class Client:
    """The parts of one `CoherenceCore`: the authority, and what this process knows of it.

    Shared by the read path, the write path, grants and degraded mode.
    """

    name: str
    """The name of the set of artifacts."""
    instance_id: str
    authority: Authority
    directory: Directory
    contents: ContentCache
    strategy: Strategy
    recorder: Recorder
    codec: Codec
    time: Time
    clock: Callable[[], float]
    """`time.clock`."""
    invalidations: BusClient | None = None
    """None where the authority is in memory, or there is no bus."""
    follower: LogFollower | None = None
    """For strategies that follow the log."""


class Found(NamedTuple):
    """A version with its content."""

    version: Version
    content: Content
    source: Source


class ReadPath:
    """How the agents of one client read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._authority, self._directory = client.authority, client.directory
        self._contents, self._strategy = client.contents, client.strategy
        self._recorder, self._clock = client.recorder, client.clock
        self._local = client.authority.is_local
        self.gone: Callable[[str], None] | None = None
        """Called with the names of artifacts that do not exist."""

    def read(self, agent: str, artifact: str) -> Artifact:
        """The newest version, or one within the strategy's bound; raises `NotFound`."""
        began = timestamp() if self._recorder.is_recording else 0
        entry = self._directory.entry(agent, artifact)
        if entry is not None and (entry.token or self._local or not self._strategy.always_asks):
            served = self._cache_hit(agent, artifact, entry, began)
            if served is not None:
                return served
        found = None
        if self._client.follower is not None:
            found = self._from_log(agent, artifact, entry)
        if found is None:
            found = self.confirm(agent, artifact, began)
        return self._deliver(agent, artifact, found, began)

    def cached(self, agent: str, artifact: str) -> Artifact | None:
        """An agent's copy, if it may be served without asking the authority."""
        entry = self._directory.entry(agent, artifact)
        began = timestamp() if self._recorder.is_recording else 0
        return None if entry is None else self._cache_hit(agent, artifact, entry, began)

    def snapshot(self, agent: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """The newest versions of several artifacts, all at one moment."""
        names = list(dict.fromkeys(artifacts))
        began = timestamp() if self._recorder.is_recording else 0
        for _ in range(_TRIES):
            self.subscribe(names)
            gaps, now = self._directory.gaps, self._clock()
            versions = self._authority.newest_of(names)
            try:
                found = {
                    name: self._accept(agent, name, versions[name], now, gaps, began)
                    for name in names
                }
            except MissingObjects as error:
                missing = error  # Superseded and collected meanwhile: ask again.
            else:
                break
        else:
            raise missing
        return {name: self._deliver(agent, name, hit, began) for name, hit in found.items()}

    def search(
        self,
        agent: str,
        prefix: str,
        where: Callable[[Any], bool] | None,
        limit: int | None,
        offset: int,
        among: Callable[[str, Version], bool] | None = None,
    ) -> list[Artifact]:
        """The artifacts below a prefix whose values pass, the latest written first."""
        stop = None if limit is None else offset + limit
        began = timestamp() if self._recorder.is_recording else 0
        for _ in range(_TRIES):
            gaps, now = self._directory.gaps, self._clock()
            named = sorted(self._authority.names(prefix).items(), key=_age)
            if among is not None:
                named = [(name, version) for name, version in named if among(name, version)]
            try:
                page = list(islice(self._matching(named, where), offset, stop))
                self._prefetch([version for _, version in page])
                self.subscribe([name for name, _ in page])
                hits = {
                    name: self._accept(agent, name, version, now, gaps) for name, version in page
                }
            except MissingObjects as error:
                missing = error  # Superseded and collected meanwhile: ask again.
            else:
                return [
                    self._deliver(agent, name, hit._replace(source="search"), began)
                    for name, hit in hits.items()
                ]
        raise missing

    def _matching(
        self, named: Iterable[tuple[str, Version]], where: Callable[[Any], bool] | None
    ) -> Iterator[tuple[str, Version]]:
        rest = iter(named)
        while batch := list(islice(rest, _TOGETHER)):
            if where is not None:
                self._prefetch([version for _, version in batch])
            for name, version in batch:
                if where is None or where(self.content(name, version).fresh()):
                    yield name, version

    def _prefetch(self, versions: Iterable[Version]) -> None:
        """Fetch the contents that a search needs in one request."""
        missing = [
            version
            for version in versions
            if version.content is None and self._contents.get(version.id) is None
        ]
        if len(missing) > 1 and not self._local:
            for version, content in zip(missing, self._authority.contents(missing), strict=True):
                self._contents.put(version.id, content)

    def confirm(self, agent: str, artifact: str, began: int = 0) -> Found:
        """The newest version, as the authority says; `began` is set for an agent's own read."""
        invalidations = self._client.invalidations
        for _ in range(_TRIES):
            if invalidations is not None and artifact not in invalidations.subscribed:
                invalidations.subscribe_all((artifact,))
            # Taken before the request: a message that comes during it may be newer than its answer.
            gaps, now = self._directory.gaps, self._clock()
            known = self._directory.newest(artifact)
            version = self._authority.newest(artifact)
            if known and version is not None and version.number < known:
                self._directory.disproved(artifact, known, version.number)
            try:
                return self._accept(agent, artifact, version, now, gaps, began)
            except MissingObjects as error:
                missing = error
        raise missing

    def subscribe(self, artifacts: Iterable[str]) -> None:
        """Receive the invalidations of artifacts, before their versions are asked for."""
        if self._client.invalidations is not None:
            self._client.invalidations.subscribe_all(artifacts)

    def content(self, artifact: str, version: Version) -> Content:
        """The content of a version, from the cache or the authority."""
        if version.content is not None:
            return version.content
        found = self._contents.get(version.id)
        if found is not None and found.unverified and not self._is_verified(version, found):
            found = None
        if found is None:
            found = self._authority.content(artifact, version)
            self._contents.put(version.id, found)
        return found

    # Inside.

    def _is_verified(self, version: Version, pushed: Content) -> bool:
        """Whether pushed content is that of a version, as the authority compares it."""
        try:
            pushed.unverified = not self._authority.is_content(version, pushed)
        except (MissingObjects, NotFound, Unavailable):
            raise
        except (RopewalkError, ValueError):
            return False  # It cannot even be decoded, so it is not what was written.
        return not pushed.unverified

    def _cache_hit(self, agent: str, artifact: str, entry: Entry, began: int) -> Artifact | None:
        """A cache hit: the agent's copy, if it may be served; else None.

        With an authority in memory asking is free, so a copy is served only if it is the newest.
        """
        version = entry.version
        if self._local:
            if self._authority.newest(artifact) is not version or version.deleted:
                return None
            if entry.state is State.INVALID or (entry.token and self._clock() >= entry.deadline):
                return None
            content = version.content
            if content is None:
                return None
        else:
            if not self._may_serve(artifact, entry) or entry.version is not version:
                return None  # Another thread has replaced the copy since it was judged.
            content = self._contents.get(version.id)
            if content is None or content.unverified:
                return None
        entry.read = version  # As `_deliver` does, without another lookup.
        served = Artifact(artifact, version, content, entry.state, "cache_hit")
        if self._recorder.is_recording:
            self._recorder.read(agent, served, began)
        return served

    def _may_serve(self, artifact: str, entry: Entry) -> bool:
        if not self._directory.is_current(artifact, entry):
            return False
        now = self._clock()
        if entry.token:
            # While the grant lasts nobody else can write; afterwards they may have.
            return now < entry.deadline
        follower = self._client.follower
        followed = _NEVER if follower is None else follower.followed
        return self._strategy.serves(entry, now, followed)

    def _from_log(self, agent: str, artifact: str, entry: Entry | None) -> Found | None:
        """The version that the log follower knows, if it has read the log within the bound."""
        follower = self._client.follower
        if follower is None or (entry is not None and (entry.token or entry.lost)):
            return None  # After a lost grant an agent asks: another one may have written since.
        follower.start()
        followed, gaps = follower.followed, self._directory.gaps
        version = follower.known.get(artifact)
        if version is None or version.deleted or version.number < self._directory.newest(artifact):
            return None
        if self._clock() >= followed + self._strategy.bound.seconds:
            return None
        try:
            return self._accept(agent, artifact, version, followed, gaps)
        except MissingObjects:
            return None

    def _accept(
        self,
        agent: str,
        artifact: str,
        version: Version | None,
        now: float,
        gaps: int,
        began: int = 0,
    ) -> Found:
        """Update the directory with the newest version, and return it with its content.

        Raises `NotFound` if there is none, or it is a tombstone.
        """
        directory, recorder = self._directory, self._recorder
        if version is None or version.deleted:
            number = 0 if version is None else version.number
            recorder.transitions(directory.emptied(agent, artifact, number))
            if self.gone is not None:
                self.gone(artifact)
            if self._client.invalidations is not None:
                self._client.invalidations.unsubscribe(artifact)
            if began:
                recorder.miss(agent, artifact, number, began)
            raise not_found(artifact)
        content, is_cached = version.content, False
        if content is None:
            held = content = self._contents.get(version.id)
            if content is None or content.unverified:
                content = self.content(artifact, version)
            is_cached = held is content
        was_known, changes = directory.fetched(agent, artifact, version, now, gaps)
        if changes:
            recorder.transitions(changes)
        source: Source = "fetch"
        if was_known:
            source = "cache_hit"
        elif is_cached and self._strategy.pushes:
            source = "broadcast"
        return Found(version, content, source)

    def _deliver(self, agent: str, artifact: str, found: Found, began: int) -> Artifact:
        """Return a version to an agent, and note it as the base of the agent's next write."""
        state = self._directory.read(agent, artifact, found.version)
        delivered = Artifact(artifact, found.version, found.content, state, found.source)
        if self._recorder.is_recording:
            self._recorder.read(agent, delivered, began)
        return delivered


def _age(named: tuple[str, Version]) -> tuple[int, str]:
    name, version = named
    return -version.time, name


def not_found(artifact: str) -> NotFound:
    """The error for an artifact that does not exist."""
    return NotFound(f"there is no artifact {artifact!r:.80}. Write it, or register it first.")
