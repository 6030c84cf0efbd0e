"""Going on while the engine cannot be reached: the last value known, with a mark on it.

Nothing is invented: what nobody here has seen raises the engine's error. Writes are kept with
the version that they were made from, and land by compare-and-swap on it when the engine
answers; or they are refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._content import Content
from ropewalk.coherence._logs._logs import now as moment
from ropewalk.coherence._outages._kept import CoherenceDegradedWarning
from ropewalk.coherence._outages._reconciling import FIRST_PAUSE, PATIENCE, Reconciling
from ropewalk.coherence._protocol import Base, State, Version
from ropewalk.coherence._reading import Reading, not_found
from ropewalk.coherence._wishes import (
    Attempt,
    Edit,
    OnConflict,
    Proposed,
    Wanted,
    number_of,
)
from ropewalk.errors import NotFound, StoreClosed, Unavailable, WritesRefused
from ropewalk.store._haste import hasty

if TYPE_CHECKING:
    from ropewalk.coherence._authorities._authority import Sent
    from ropewalk.coherence._client import Client
    from ropewalk.coherence._writing import Writing

OnError: TypeAlias = Literal["strict", "degrade"]
"""What reads do while the engine cannot be reached."""

DegradedWrites: TypeAlias = Literal["keep", "refuse"]
"""What becomes of writes while the engine cannot be reached."""


class Degrading(Reconciling):
    """Reads and writes of one client that go on while the engine is away."""

    def __init__(
        self,
        client: Client,
        reading: Reading,
        writing: Writing,
        *,
        on_conflict: OnConflict,
        writes: DegradedWrites,
    ) -> None:
        super().__init__(client, writing)
        self._telling, self._codec, self._reading = client.telling, client.codec, reading
        self._on_conflict, self._keeps = on_conflict, writes == "keep"
        self.count = 0
        """How many operations were answered without the engine."""
        writing.unsent, reading.gone = self._unsent, self._known.gone

    @property
    def is_active(self) -> bool:
        """Whether the engine cannot be reached, as far as this client knows."""
        return self._outage is not None

    # Reading.

    def read(self, agent: str, artifact: str) -> Artifact:
        """As `Reading.read`, or the last value known, marked."""
        if self._outage is None:
            try:
                with hasty(PATIENCE):
                    return self._seen(self._reading.read(agent, artifact))
            except Unavailable as error:
                self._lose_engine(error)
        if self._last_kept(artifact) is None:
            found = self._reading.cached(agent, artifact)
            if found is not None:
                return found  # Within its bound, as if nothing had happened.
        return self._last(agent, artifact)

    def snapshot(self, agent: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """As `Reading.snapshot`, or the last values known, perhaps of several moments."""
        names = list(dict.fromkeys(artifacts))
        if self._outage is None:
            try:
                with hasty(PATIENCE):
                    found = self._reading.snapshot(agent, names)
                return {name: self._seen(one) for name, one in found.items()}
            except Unavailable as error:
                self._lose_engine(error)
        return {name: self._last(agent, name) for name in names}

    def search(self, *args: Any) -> list[Artifact]:
        """As `Reading.search`: what there is, only the engine can say."""
        self.expect_engine("a search")
        return [self._seen(one) for one in self._reading.search(*args)]

    def _seen(self, found: Artifact) -> Artifact:
        self._known.saw(found.name, found._version, found._content)
        return found

    def _last(self, agent: str, artifact: str) -> Artifact:
        began = moment() if self._telling.is_watched else 0
        found = self._last_known(artifact)
        if found is None:
            raise self._error(artifact)
        version, content = found
        if version.deleted or content is None:
            raise not_found(artifact)
        self._telling.note(self._directory.note_unconfirmed(agent, artifact, Base(version, True)))
        given = Artifact(artifact, version, content, State.INVALID, "cache_hit", degraded=True)
        self._count(agent, artifact)
        if self._telling.is_watched:
            self._telling.read(agent, given, began)
        return given

    def _last_known(self, artifact: str) -> tuple[Version, Content | None] | None:
        kept = self._last_kept(artifact)
        if kept is not None:
            return kept.versions[artifact], kept.wanted[artifact].content
        return self._known.get(artifact)

    # Writing.

    def register(self, agent: str, artifact: str, content: Content) -> Artifact:
        """As `Writing.register`: whether it is there, only the engine can say."""
        if self._outage is not None:
            raise self._error(artifact)
        return self._writing.register(agent, artifact, content)

    def write(
        self, agent: str, proposed: Mapping[str, Proposed], action: str
    ) -> dict[str, Artifact | None]:
        """As `Writing.write`, or kept."""
        if self._outage is None:
            try:
                with hasty(PATIENCE):
                    return self._saw(self._writing.write(agent, proposed, action))
            except Unavailable as error:
                self._lose_writes(error)
        wanted = {name: self._wanted(agent, name, one) for name, one in proposed.items()}
        there = {name: one for name, one in wanted.items() if not one.is_idle}
        return self._keep(agent, there, action) if there else {}

    def delete(self, agent: str, artifact: str, if_version: int | None) -> bool:
        """As `Writing.delete`, or kept."""
        if self._outage is None:
            try:
                with hasty(PATIENCE):
                    deleted = self._writing.delete(agent, artifact, if_version)
            except Unavailable as error:
                self._lose_writes(error)
            else:
                self._known.gone(artifact)
                return deleted
        found = self._last_known(artifact)
        if found is None:
            raise self._error(artifact)
        if found[0].deleted:
            return False
        wanted = self._wanted(agent, artifact, Proposed(None, if_version))
        self._keep(agent, {artifact: wanted}, "delete")
        return True

    def edit(self, agent: str, artifact: str, edit: Edit) -> Artifact:
        """As `Writing.edit`, or what becomes of the last value known, kept."""
        if self._outage is None:
            try:
                with hasty(PATIENCE):
                    edited = self._writing.edit(agent, artifact, edit)
                self._saw({artifact: edited})
                return edited
            except Unavailable as error:
                self._lose_writes(error)
        self._expect_keeping()
        base: Version | None = None
        try:
            found = self._last(agent, artifact)
            base, value = found._version, found.value
        except NotFound:
            if edit.needs_artifact:
                raise
            value = edit.first()
        content = edit.made_of(value, self._codec)
        # Not what the agent saw last: another of its threads may have moved that meanwhile.
        from_base = None if base is None else Base(base, True)
        made = self.write(agent, {artifact: Proposed(content, base=from_base)}, "edit")[artifact]
        assert made is not None
        return made

    def _wanted(self, agent: str, artifact: str, proposed: Proposed) -> Wanted:
        """What a write is to be checked against, as far as it is known here."""
        content, if_version, given, _ = proposed
        base = self._base(agent, artifact) if given is None else given.version
        if if_version is not None:
            if if_version != number_of(base):
                raise self._error(artifact)
            return Wanted(content, base, base, "raise")
        how: OnConflict = self._on_conflict if content is not None else "raise"
        if base is None and how != "overwrite":
            how = "raise"  # What others wrote meanwhile was seen by nobody here.
        return Wanted(content, base, base, how)

    def _base(self, agent: str, artifact: str) -> Version | None:
        """What an agent saw last, or else anybody here."""
        base, _ = self._directory.base(agent, artifact)
        if base is not None:
            return base
        known = self._last_known(artifact)
        return None if known is None else known[0]

    def _unsent(self, attempt: Attempt, error: Unavailable) -> dict[str, Artifact | None]:
        """A commit was sent, and nobody knows whether it was made: it is sent again as it was."""
        self._lose_engine(error)
        if attempt.action == "register" or not self._keeps:
            raise error
        # It may land long after others wrote: it is merged, but replaces nothing that is newer.
        wanted = {
            name: replace(one, on_conflict="merge") if one.on_conflict == "replace" else one
            for name, one in attempt.wanted.items()
        }
        return self._keep(attempt.agent, wanted, attempt.action, attempt.sent)

    def _keep(
        self, agent: str, wanted: dict[str, Wanted], action: str, sent: Sent | None = None
    ) -> dict[str, Artifact | None]:
        self._expect_keeping()
        kept = self._add(agent, wanted, action, sent)
        made: dict[str, Artifact | None] = {}
        for name, version in kept.versions.items():
            content = wanted[name].content
            self._count(agent, name)
            made[name] = None
            if content is not None:
                state = State.INVALID
                made[name] = Artifact(name, version, content, state, "write", degraded=True)
        return made

    def _expect_keeping(self) -> None:
        if not self._keeps:
            raise WritesRefused(
                f"{self._outage} Nothing was written, because the engine is away; "
                "degraded_writes='keep' would keep it until the engine answers."
            ) from self._outage

    # The outage.

    def expect_engine(self, what: str) -> None:
        """Raise `Unavailable` at once, for what only an engine can answer that is known to be away.

        Without this each caller would wait until a request of its own has failed.
        """
        error = self._outage
        if error is not None:
            raise Unavailable(
                f"{what} cannot be answered for without the engine: {error}"
            ) from error

    def _lose_engine(self, error: Unavailable) -> None:
        """An outage begins, or goes on."""
        if isinstance(error, StoreClosed):
            raise error
        with self._lock:
            begins, self._outage = self._outage is None, error
        if begins:
            self._pause = FIRST_PAUSE
            warnings.warn(
                f"the engine of shared artifacts cannot be reached: {error} Until it answers, "
                "reads give the last values known, marked as degraded.",
                CoherenceDegradedWarning,
                stacklevel=_outside(),
            )
        self._beat.start()

    def _lose_writes(self, error: Unavailable) -> None:
        """As `_lose_engine`, for a write that was perhaps made."""
        self._lose_engine(error)
        if not self._keeps:
            raise error

    def _error(self, artifact: str) -> Unavailable:
        error = self._outage
        made = Unavailable(
            f"artifact {artifact!r:.80} cannot be answered for without the engine: {error}"
        )
        made.__cause__ = error
        return made

    def _count(self, agent: str, artifact: str) -> None:
        self.count += 1
        if self._telling.logs.wants_metrics:
            self._telling.metric("degraded", agent, artifact, False)


def _outside() -> int:
    """The level of the first caller that is no part of Ropewalk, as `warnings.warn` counts.

    Python shows a warning once for each place, so the place must be the user's.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("ropewalk."):
        level, frame = level + 1, frame.f_back
    return level
