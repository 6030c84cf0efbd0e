"""What `CoherentStore` asks of the core beyond reading one artifact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ropewalk.coherence import Artifact, CoherenceCore
from ropewalk.coherence.protocol import State, Version
from ropewalk.coherence.read_path import ReadPath
from ropewalk.errors import MissingObjects, NotFound

_TRIES: Final = 8


def present(core: CoherenceCore, agent: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
    """Those of several artifacts that are there, all at one moment."""
    names = list(dict.fromkeys(artifacts))
    while names:
        try:
            return core.snapshot(agent, names)
        except NotFound:
            if len(names) == 1:
                break
            found = core._authority.newest_of(names)
            names = [name for name, one in found.items() if one is not None and not one.deleted]
    return {}


def writers(core: CoherenceCore, prefix: str) -> dict[str, str]:
    """The artifacts that are there, and who wrote each last."""
    core._check_open()
    core._expect_engine("what there is")
    return {name: version.agent for name, version in core._authority.names(prefix).items()}


class Looked(NamedTuple):
    """What an artifact was when somebody looked."""

    record: Artifact | None
    """None if there is none."""
    number: int
    """Its version, or that of its deletion; 0 if there never was one."""


class Records(ReadPath):
    """Reads artifacts, also those that are not there."""

    def look(self, agent: str, artifacts: Sequence[str]) -> dict[str, Looked]:
        """The newest versions of several artifacts, all at one moment."""
        for _ in range(_TRIES):
            self.subscribe(artifacts)
            gaps, now = self._directory.gaps, self._clock()
            versions = self._authority.newest_of(artifacts)
            try:
                return {
                    name: self._looked(agent, name, version, now, gaps)
                    for name, version in versions.items()
                }
            except MissingObjects as error:
                missing = error  # Written anew and collected since: look again.
        raise missing

    def _looked(
        self, agent: str, name: str, version: Version | None, now: float, gaps: int
    ) -> Looked:
        try:
            found = self._taken(agent, name, version, now, gaps)
        except NotFound:
            return Looked(None, 0 if version is None else version.number)
        entry = self._directory.entry(agent, name)
        state = State.SHARED if entry is None else entry.state
        record = Artifact(name, found.version, found.content, state, found.source)
        return Looked(record, record.version)
