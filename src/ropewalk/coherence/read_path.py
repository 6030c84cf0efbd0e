"""The read path: a copy is served if it may be, else confirmed at the authority."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.coherence.artifact import Artifact, Content, Contents, Source
from ropewalk.coherence.authority import Authority
from ropewalk.coherence.directory import Directory
from ropewalk.coherence.logs import Telling
from ropewalk.coherence.protocol import Entry, State, Version
from ropewalk.coherence.strategies import Strategy
from ropewalk.coherence.timers import timestamp
from ropewalk.errors import MissingObjects, NotFound, RopewalkError, Unavailable

if TYPE_CHECKING:
    from ropewalk.coherence.invalidation import Follower, Hearing


@dataclass(frozen=True, slots=True)
class Client:
    """The authority, and what this process knows of it."""

    name: str
    """Of the set of artifacts."""
    instance_id: str
    authority: Authority
    directory: Directory
    contents: Contents
    strategy: Strategy
    telling: Telling
    codec: Codec
    clock: Callable[[], float]


_TRIES: Final = 8
_TOGETHER: Final = 64


class Found(NamedTuple):
    """A version and what it holds."""

    version: Version
    content: Content
    source: Source


class Reading:
    """How the agents of one client read."""

    def __init__(self, client: Client) -> None:
        self._authority, self._directory = client.authority, client.directory
        self._contents, self._strategy = client.contents, client.strategy
        self._telling, self._clock = client.telling, client.clock
        self._local = client.authority.is_local
        self.gone: Callable[[str], None] | None = None
        """Told of artifacts that the authority does not have."""
        self.hearing: Hearing | None = None
        self.follower: Follower | None = None

    def read(self, agent: str, artifact: str) -> Artifact:
        """The newest version, as far as the strategy's bound allows; raises `NotFound`."""
        began = timestamp() if self._telling.is_watched else 0
        entry = self._directory.entry(agent, artifact)
        if entry is not None:
            served = self._served(agent, artifact, entry, began)
            if served is not None:
                return served
        found = self._followed(agent, artifact) or self.confirmed(agent, artifact, began)
        state = self._state(agent, artifact)
        return self._given(
            agent, Artifact(artifact, found.version, found.content, state, found.source), began
        )

    def cached(self, agent: str, artifact: str) -> Artifact | None:
        """What an agent has, if it may be served without asking."""
        entry = self._directory.entry(agent, artifact)
        began = timestamp() if self._telling.is_watched else 0
        return None if entry is None else self._served(agent, artifact, entry, began)

    def snapshot(self, agent: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """The newest versions of several artifacts, all at one moment."""
        names = list(dict.fromkeys(artifacts))
        began = timestamp() if self._telling.is_watched else 0
        for _ in range(_TRIES):
            for name in names:
                self.listen(name)
            doubt, now = self._directory.doubts, self._clock()
            versions = self._authority.newest_of(names)
            try:
                found = {
                    name: self._taken(agent, name, versions[name], now, doubt, began)
                    for name in names
                }
            except MissingObjects as error:
                missing = error  # Written anew and collected since: look again.
            else:
                break
        else:
            raise missing
        return {
            name: self._given(
                agent,
                Artifact(name, one.version, one.content, self._state(agent, name), one.source),
                began,
            )
            for name, one in found.items()
        }

    def search(
        self,
        agent: str,
        prefix: str,
        where: Callable[[Any], bool] | None,
        limit: int | None,
        offset: int,
    ) -> list[Artifact]:
        """The artifacts below a prefix whose values pass, the latest written first."""
        stop = None if limit is None else offset + limit
        began = timestamp() if self._telling.is_watched else 0
        for _ in range(_TRIES):
            doubt, now = self._directory.doubts, self._clock()
            named = sorted(self._authority.names(prefix).items(), key=_age)
            try:
                page = list(islice(self._passing(named, where), offset, stop))
                self._bring([version for _, version in page])
                hits = [self._hit(agent, *one, now, doubt) for one in page]
                return [self._given(agent, one, began) for one in hits]
            except MissingObjects as error:
                missing = error  # Written anew and collected since: look again.
        raise missing

    def _passing(
        self, named: Iterable[tuple[str, Version]], where: Callable[[Any], bool] | None
    ) -> Iterator[tuple[str, Version]]:
        rest = iter(named)
        while some := list(islice(rest, _TOGETHER)):
            if where is not None:
                self._bring([version for _, version in some])
            for name, version in some:
                if where is None or where(self.content(name, version).fresh()):
                    yield name, version

    def _bring(self, versions: Iterable[Version]) -> None:
        """Fetch together what a search is about to look at."""
        missing = [
            one for one in versions if one.content is None and self._contents.get(one.id) is None
        ]
        if len(missing) > 1 and not self._local:
            for version, content in zip(missing, self._authority.contents(missing), strict=True):
                self._contents.put(version.id, content)

    def _hit(self, agent: str, name: str, version: Version, now: float, doubt: int) -> Artifact:
        self.listen(name)
        found = self._taken(agent, name, version, now, doubt)
        state = self._directory.state(agent, name, now)
        return Artifact(name, version, found.content, state, "search")

    def confirmed(self, agent: str, artifact: str, began: int = 0) -> Found:
        """The newest version, asked for at the authority; `began` if an agent reads it."""
        for _ in range(_TRIES):
            self.listen(artifact)
            # From before the request: what is known after it may be newer already.
            doubt, now = self._directory.doubts, self._clock()
            heard = self._directory.newest(artifact)
            version = self._authority.newest(artifact)
            if heard and version is not None and version.number < heard:
                self._directory.disproved(artifact, heard, version.number)
            try:
                return self._taken(agent, artifact, version, now, doubt, began)
            except MissingObjects as error:
                missing = error
        raise missing

    def listen(self, artifact: str) -> None:
        """Hear of an artifact, before its version is asked for."""
        if self.hearing is not None:
            self.hearing.listen(artifact)

    def content(self, artifact: str, version: Version) -> Content:
        """What a version holds, from here or from the authority."""
        if version.content is not None:
            return version.content
        found = self._contents.get(version.id)
        if found is not None and found.hearsay and not self._is_proven(version, found):
            found = None
        if found is None:
            found = self._authority.content(artifact, version)
            self._contents.put(version.id, found)
        return found

    # Inside.

    def _is_proven(self, version: Version, hearsay: Content) -> bool:
        """Whether content that came with a message is what a version holds."""
        try:
            hearsay.hearsay = not self._authority.is_content(version, hearsay)
        except (MissingObjects, NotFound, Unavailable):
            raise
        except (RopewalkError, ValueError):
            return False  # It cannot even be read, so it is somebody else's.
        return not hearsay.hearsay

    def _state(self, agent: str, artifact: str) -> State:
        """The state of an agent that has just been given an artifact."""
        entry = self._directory.entry(agent, artifact)
        return State.SHARED if entry is None else entry.state

    def _served(self, agent: str, artifact: str, entry: Entry, began: int) -> Artifact | None:
        """What an agent has, if it may be served without asking, or if asking is free."""
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
            now = self._clock()
            if not self._may_serve(artifact, entry, now) or entry.version is not version:
                return None  # If another thread got a newer one, that one may be served.
            found = self._contents.get(version.id)
            if found is None or found.hearsay:
                return None
            content = found
        entry.read = version  # As `_given` does, without looking for the entry again.
        served = Artifact(artifact, version, content, entry.state, "cache_hit")
        if self._telling.is_watched:
            self._telling.read(agent, served, began)
        return served

    def _may_serve(self, artifact: str, entry: Entry, now: float) -> bool:
        if not self._directory.is_current(artifact, entry):
            return False
        if entry.token:
            # While the grant lasts nobody else can write. When it is over, others may have.
            return now < entry.deadline
        follower = self.follower
        followed = float("-inf") if follower is None else follower.followed
        return self._strategy.serves(entry, now, followed)

    def _followed(self, agent: str, artifact: str) -> Found | None:
        """The version that the follower of the log knows, if it looked not long ago."""
        follower = self.follower
        if follower is None:
            return None
        entry = self._directory.entry(agent, artifact)
        if entry is not None and (entry.token or entry.lost):
            return None  # Whose grant is over, asks: others may have waited for just that.
        follower.begin()
        followed, doubt = follower.followed, self._directory.doubts
        version = follower.known.get(artifact)
        if version is None or version.deleted or version.number < self._directory.newest(artifact):
            return None
        if self._clock() >= followed + self._strategy.bound.seconds:
            return None
        try:
            return self._taken(agent, artifact, version, followed, doubt)
        except MissingObjects:
            return None

    def _taken(
        self,
        agent: str,
        artifact: str,
        version: Version | None,
        now: float,
        doubt: int,
        began: int = 0,
    ) -> Found:
        """A version that the authority named, given to an agent."""
        if version is None or version.deleted:
            number = 0 if version is None else version.number
            self._telling.note(self._directory.emptied(agent, artifact, number))
            if self.gone is not None:
                self.gone(artifact)
            if self.hearing is not None:
                self.hearing.ignore(artifact)
            if began:
                self._telling.read_nothing(agent, artifact, number, began)
            raise not_found(artifact)
        entry = self._directory.entry(agent, artifact)
        known = entry is not None and entry.version.id == version.id
        held = self._contents.get(version.id)
        content = self.content(artifact, version)
        source: Source = "fetch"
        if known:
            source = "cache_hit"
        elif held is content:
            source = "broadcast" if self._strategy.pushes else "fetch"
        self._telling.note(self._directory.fetched(agent, artifact, version, now, doubt))
        return Found(version, content, source)

    def _given(self, agent: str, artifact: Artifact, began: int) -> Artifact:
        self._directory.read(agent, artifact.name, artifact._version)
        if self._telling.is_watched:
            self._telling.read(agent, artifact, began)
        return artifact


def _age(one: tuple[str, Version]) -> tuple[int, str]:
    return -one[1].time, one[0]


def not_found(artifact: str) -> NotFound:
    """There is no such artifact."""
    return NotFound(f"there is no artifact {artifact!r:.80}. Write it, or register it first.")
