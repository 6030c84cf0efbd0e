"""What is told of items that another store keeps: of their values, not of their digests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.adapters.langgraph._coherent_digest import Record
from ropewalk.adapters.langgraph._coherent_keeping import Seen
from ropewalk.coherence import Artifact, State
from ropewalk.coherence.artifact import Content, Source
from ropewalk.coherence.logs import Recorder, WriteEvent
from ropewalk.coherence.protocol import Transition, Version


class Given(NamedTuple):
    """What an agent is given of an item."""

    seen: Seen | None
    """None if there is no such item."""
    source: Source = "fetch"
    since: int = 0
    """The version that took it away, if there is none."""
    degraded: bool = False
    writer: str = ""


class ValueRecorder(Recorder):
    """Tells of writes as they are made, and of reads only when the agent is given the value.

    Several reads of digests may be one read of an item.
    """

    def __init__(self, told: Recorder) -> None:
        self.logs, self._places = told.logs, told._places
        # Recording may begin at any time. Each method asks whether anybody wants to know.
        self.is_recording = True

    @property
    def wants_hashes(self) -> bool:
        """Whether hashes of what is written are logged."""
        return self.logs.wants_deliveries or self.logs.wants_transitions

    def transitions(
        self,
        transitions: Sequence[Transition],
        content: Content | None = None,
        read_version: int | None = None,
    ) -> None:
        """As `Recorder.transitions`."""
        super().transitions(transitions, _meant(content), read_version)

    def read(self, agent: str, artifact: Artifact, began: int) -> None:
        """Nothing: a digest was read."""

    def miss(self, agent: str, artifact: str, version: int, began: int) -> None:
        """Nothing, likewise."""

    def write(self, agent: str, artifact: str, wrote: WriteEvent) -> None:
        """As `Recorder.write`."""
        super().write(agent, artifact, wrote._replace(content=_meant(wrote.content)))

    def gave(self, agent: str, artifact: str, given: Given, began: int) -> None:
        """An agent was given an item, or was told that there is none."""
        seen = given.seen
        if seen is None or seen.content is None:
            super().miss(agent, artifact, given.since, began)
            return
        # For what has no version nobody can say whether it is the newest.
        doubtful = given.degraded or not seen.version
        version = Version(seen.version, b"", given.writer, 0)
        shown = Artifact(artifact, version, seen.content, State.SHARED, given.source, doubtful)
        super().read(agent, shown, began)


class Adopting(ValueRecorder):
    """Tells of values that somebody wrote without us: no agent did, and under no grant."""

    def write(self, agent: str, artifact: str, wrote: WriteEvent) -> None:
        """As `Recorder.write`."""
        super().write(agent, artifact, wrote._replace(token=0))

    def metric(self, operation: str, agent: str, artifact: str, hit: bool, began: int = 0) -> None:
        """Nothing: it is no operation of an agent."""


def _meant(content: Content | None) -> Content | None:
    return content.stands_for if isinstance(content, Record) else content
