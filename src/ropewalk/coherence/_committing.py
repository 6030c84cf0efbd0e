"""Committing: wishes become versions, all or none; again, from what is newest, if need be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._authorities._authority import Change, Committed, Moved, Sent
from ropewalk.coherence._logs._logs import now as moment
from ropewalk.coherence._telling import Wrote
from ropewalk.coherence._wishes import Attempt, Unsent, Wanted
from ropewalk.errors import LeaseHeld, LeaseLost, Unavailable

if TYPE_CHECKING:
    from ropewalk.coherence._client import Client
    from ropewalk.coherence._grants._grants import Grants
    from ropewalk.coherence._protocol import Version
    from ropewalk.coherence._reading import Reading
    from ropewalk.coherence._rebasing import Rebasing


class Committing:
    """How the wishes of one client reach the authority, and what follows from it here."""

    def __init__(
        self, client: Client, reading: Reading, grants: Grants, rebasing: Rebasing
    ) -> None:
        self._authority, self._directory = client.authority, client.directory
        self._contents, self._telling = client.contents, client.telling
        self._clock = client.clock
        self._reading, self._grants, self._rebasing = reading, grants, rebasing

    def commit(
        self,
        agent: str,
        wanted: dict[str, Wanted],
        action: str,
        sent: Sent | None = None,
        unsent: Unsent | None = None,
    ) -> dict[str, Artifact | None]:
        """Make new versions. `unsent` is told if it cannot be known whether they were made."""
        for artifact in wanted:
            self._reading.listen(artifact)
        began = moment() if self._telling.is_watched else 0
        if sent is not None:
            began = min(began, sent.moment)  # It may have been made when it was first sent.
        while True:
            doubt, now = self._directory.doubts, self._clock()
            tokens = {name: self._grants.fence_token(agent, name) for name in wanted}
            changes = [
                Change(artifact, one.expected, one.content, tokens[artifact], one.replaced)
                for artifact, one in wanted.items()
            ]
            try:
                made = self._authority.commit(changes, agent, action, sent)
            except Unavailable as error:
                self._telling.wrote_perhaps(agent, wanted, began)
                if unsent is None or sent is None:
                    raise
                return unsent(Attempt(agent, wanted, action, sent), error)
            except (LeaseHeld, LeaseLost) as error:
                refused = self._grants.refused(agent, tokens, error)
                if refused is not None:
                    raise refused from error
            except Moved as moved:
                sent = None if sent is None else Sent.now()
                wanted = {
                    artifact: self._rebasing.rebased(artifact, one, moved.newest[artifact])
                    for artifact, one in wanted.items()
                }
            else:
                found = {
                    artifact: self._landed(agent, artifact, one, made, now, doubt)
                    for artifact, one in wanted.items()
                }
                if self._telling.is_watched:
                    self._tell(agent, wanted, made, began, tokens)
                return found

    def _landed(
        self, agent: str, artifact: str, one: Wanted, made: Committed, now: float, doubt: int
    ) -> Artifact | None:
        version, telling = made.versions[artifact], self._telling
        if one.content is None:
            transitions = self._directory.committed(agent, artifact, version, now, doubt)
            transitions += self._directory.emptied(agent, artifact, version.number)
        else:
            if version.content is None:
                self._contents.put(version.id, one.content)
            transitions = self._directory.committed(agent, artifact, version, now, doubt)
        if self._reading.hearing is not None:
            self._reading.hearing.tell(artifact, version, made.sequence, one.content)
        if telling.is_watched:
            telling.note(transitions, one.content, _number(one.base))
            telling.note(self._directory.overtaken(artifact))
        if one.content is None:
            return None
        entry = self._directory.entry(agent, artifact)
        state = self._directory.state(agent, artifact, now) if entry is None else entry.state
        marks = {"merged": one.merged, "replaced": one.replaced}
        return Artifact(artifact, version, one.content, state, "write", **marks)

    def _tell(
        self,
        agent: str,
        wanted: Mapping[str, Wanted],
        made: Committed,
        began: int,
        tokens: Mapping[str, int],
    ) -> None:
        for artifact, one in wanted.items():
            number, token = made.versions[artifact].number, tokens[artifact]
            how = one.merged, one.replaced
            wrote = Wrote(number, one.content, _number(one.base), *how, token, began)
            self._telling.wrote(agent, artifact, wrote)


def _number(version: Version | None) -> int:
    return 0 if version is None else version.number
