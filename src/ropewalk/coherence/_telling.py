"""What a client tells whoever looks on: transitions, deliveries and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import NamedTuple

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._content import Content
from ropewalk.coherence._logs._logs import Logs, now, record_to
from ropewalk.coherence._protocol import Transition

Places = Callable[[str, str], tuple[Sequence[str], str]]
"""The namespace and key of an agent's artifact, for metrics."""

_COMMITS = ("commit", "commit_cas")


class Wrote(NamedTuple):
    """A write that became a version; its content is None for a deletion."""

    version: int
    content: Content | None
    read_version: int
    """What it was made from, or merged with; 0 if the agent knew of nothing."""
    merged: bool
    replaced: bool
    """Whether it took the place of what others wrote and its agent had not read."""
    token: int
    began: int


class Telling:
    """The logs, as reads and writes use them. Nothing is done if nobody looks on."""

    def __init__(self, logs: Logs, places: Places | None = None) -> None:
        self.logs = logs
        self._places = places or _place
        self.is_watched = logs.enabled

    def record_to(self, folder: str | PathLike[str]) -> None:
        """Record from now on."""
        self.logs.begin(**record_to(folder))
        self.is_watched = True

    def note(
        self,
        transitions: Sequence[Transition],
        content: Content | None = None,
        read_version: int | None = None,
    ) -> None:
        """States changed; if by a write, to this content, which was made from that version."""
        if not transitions or not self.logs.wants_transitions:
            return
        for one in transitions:
            artifact, agent, before, after, trigger, version, token, home = one
            commits = trigger in _COMMITS
            self.logs.transition(
                artifact,
                agent,
                before.value,
                after.value,
                trigger,
                version,
                _hash(content) if commits else None,
                read_version=read_version if commits else None,
                token=token or None,
                home=home or None,
            )

    def read(self, agent: str, artifact: Artifact, began: int) -> None:
        """An agent was given an artifact that it began to ask for at a moment (`_logs.now`)."""
        if self.logs.wants_deliveries:
            self.logs.delivered(
                agent,
                artifact.name,
                artifact.version,
                _hash(artifact._content),
                artifact.source,
                "content",
                began=began,
                degraded=artifact.degraded,
            )
        if self.logs.wants_metrics and not artifact.degraded:  # That counts as `degraded`.
            operation = "search.hit" if artifact.source == "search" else "get"
            self.metric(operation, agent, artifact.name, artifact.source == "cache_hit", began)

    def read_nothing(self, agent: str, artifact: str, version: int, began: int) -> None:
        """An agent found that there is no artifact: since a version, or there never was (0)."""
        if self.logs.wants_deliveries:
            self.logs.delivered(agent, artifact, version, None, "fetch", "empty", began=began)

    def wrote(self, agent: str, artifact: str, wrote: Wrote) -> None:
        """An agent's write became a version."""
        deleted = wrote.content is None
        if self.logs.wants_deliveries:
            self.logs.delivered(
                agent,
                artifact,
                wrote.version,
                _hash(wrote.content),
                "write",
                "empty" if deleted else "content",
                wrote.read_version,
                began=wrote.began,
                merged=wrote.merged,
                replaced=wrote.replaced,
                token=wrote.token or None,
            )
        if self.logs.wants_metrics:
            self.metric("delete" if deleted else "put", agent, artifact, False, wrote.began)
            if wrote.replaced:
                self.metric("replaced", agent, artifact, False)

    def wrote_perhaps(self, agent: str, artifacts: Iterable[str], began: int) -> None:
        """It is not known whether an agent's write became a version."""
        if self.logs.wants_deliveries:
            for artifact in artifacts:
                self.logs.delivered(agent, artifact, 0, None, "write", "error", began=began)

    def metric(self, operation: str, agent: str, artifact: str, hit: bool, began: int = 0) -> None:
        """An operation was done; `began` at a moment, if that is known."""
        namespace, key = self._places(agent, artifact)
        seconds = max(now() - began, 0) / 1_000_000 if began else None
        self.logs.metric(operation, namespace, key, agent, hit, seconds=seconds)


def _hash(content: Content | None) -> Callable[[], str] | None:
    # For the thread that writes the log to compute. The queue holds no value of a caller.
    return None if content is None else lambda: content.root().hex()


def _place(agent: str, artifact: str) -> tuple[Sequence[str], str]:
    return (agent,), artifact
