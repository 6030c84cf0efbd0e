"""Writing: compare-and-swap on what the agent saw, merged with what others did, or refused."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._authorities._authority import Sent
from ropewalk.coherence._committing import Committing
from ropewalk.coherence._rebasing import Rebasing
from ropewalk.coherence._wishes import (
    ConflictPolicy,
    Edit,
    OnConflict,
    Proposed,
    Unsent,
    Wanted,
    is_there,
    number_of,
)
from ropewalk.errors import LeaseHeld, NotFound, VersionConflict
from ropewalk.history import Backoff

if TYPE_CHECKING:
    from ropewalk.coherence._client import Client
    from ropewalk.coherence._content import Content
    from ropewalk.coherence._grants._grants import Grants
    from ropewalk.coherence._protocol import Version
    from ropewalk.coherence._reading import Reading
    from ropewalk.tree import Mergers

_EDITS: Final = 16
"""How often an edit is tried at least, whatever its timeout."""


class Writing:
    """How the agents of one client write."""

    def __init__(
        self,
        client: Client,
        reading: Reading,
        grants: Grants,
        mergers: Mergers | None,
        on_conflict: OnConflict,
    ) -> None:
        self._authority, self._directory = client.authority, client.directory
        self._codec, self._reading, self._on_conflict = client.codec, reading, on_conflict
        self.rebasing = Rebasing(client, reading, mergers)
        self.committing = Committing(client, reading, grants, self.rebasing)
        self.unsent: Unsent | None = None
        """Told of a commit that was perhaps made; without it, whoever writes is."""

    # What agents do.

    def write(
        self, agent: str, proposed: Mapping[str, Proposed], action: str
    ) -> dict[str, Artifact | None]:
        """New versions of artifacts: all or none."""
        wanted = {name: self._wanted(agent, name, one) for name, one in proposed.items()}
        there = {name: one for name, one in wanted.items() if not one.is_idle}
        return self._commit(agent, there, action) if there else {}

    def register(self, agent: str, artifact: str, content: Content) -> Artifact:
        """The first version of an artifact; `VersionConflict` if it is there."""
        made = self.write(agent, {artifact: Proposed(content, 0)}, "register")[artifact]
        assert made is not None
        return made

    def delete(self, agent: str, artifact: str, if_version: int | None) -> bool:
        """A version that says that there is nothing; False if there was nothing before."""
        if if_version is not None:
            expected = self._exactly(agent, artifact, if_version)
            how: OnConflict = "raise"
        else:
            expected, how = self._authority.newest(artifact), "overwrite"
        if expected is None or expected.deleted:
            return False
        self._commit(agent, {artifact: Wanted(None, expected, expected, how)}, "delete")
        return True

    def edit(self, agent: str, artifact: str, edit: Edit) -> Artifact:
        """Read, change, compare-and-swap; again, from what is newest, until it is done."""
        until = None if edit.timeout is None else time.monotonic() + edit.timeout
        backoff = Backoff()
        for attempt in count(1):
            # Outside the try: what the function raises is its caller's.
            wanted = self._edited(agent, artifact, edit)
            try:
                made = self._commit(agent, {artifact: wanted}, "edit")[artifact]
                assert made is not None
                return made
            except (VersionConflict, LeaseHeld) as error:
                # Others were faster, at the same places, or hold it. A function that
                # writes the artifact itself is in its own way, each time.
                tried = attempt >= _EDITS or isinstance(error, LeaseHeld)
                if tried and until is not None and time.monotonic() >= until:
                    raise
            backoff.wait()
        raise AssertionError("an edit is made or raises")

    def _edited(self, agent: str, artifact: str, edit: Edit) -> Wanted:
        """What a function makes of what is newest."""
        base, value = self._to_edit(agent, artifact, edit)
        content = edit.made_of(value, self._codec)
        # If it is not merged, the function is called again with what is newest.
        how: OnConflict = "merge" if self._on_conflict == "merge" else "raise"
        return Wanted(content, base, base, how)

    def _to_edit(self, agent: str, artifact: str, edit: Edit) -> tuple[Version | None, Any]:
        while True:
            try:
                found = self._reading.confirmed(agent, artifact)
            except NotFound:
                if edit.needs_artifact:
                    raise
                base = self._authority.newest(artifact)
                if base is None or base.deleted:
                    return base, edit.first()
            else:
                return found.version, found.content.fresh()

    # Inside.

    def _wanted(self, agent: str, artifact: str, proposed: Proposed) -> Wanted:
        """What a write is to be checked against."""
        content, if_version, given, replaces = proposed
        if if_version is not None:
            expected = self._exactly(agent, artifact, if_version)
            return Wanted(content, expected, expected, "raise", replaced=replaces)
        if content is None and (given is None or given.version is None):
            newest = self._authority.newest(artifact)
            return Wanted(None, newest, newest, "overwrite")
        base, is_read = self._directory.base(agent, artifact) if given is None else given
        if base is None:
            # Its agent knows of nothing, so it takes the place of whatever there is.
            newest = self._authority.newest(artifact)
            return Wanted(content, None, newest, "overwrite", replaced=is_there(newest))
        wanted = Wanted(content, base, base, self._policy(is_read))
        return self.rebasing.settled(artifact, wanted)

    def _policy(self, is_read: bool) -> ConflictPolicy:
        """What to do with a write when others wrote first.

        Changes to what its agent read must not be lost. An agent that only put replaces, as in
        any key-value store.
        """
        return "replace" if self._on_conflict == "merge" and not is_read else self._on_conflict

    def _exactly(self, agent: str, artifact: str, number: int) -> Version | None:
        entry = self._directory.entry(agent, artifact)
        if entry is not None and number and entry.version.number == number:
            return entry.version
        newest = self._authority.newest(artifact)
        actual = number_of(newest)
        if actual != number:
            raise self.rebasing.differs(artifact, number, actual)
        return newest

    def _commit(
        self, agent: str, wanted: dict[str, Wanted], action: str
    ) -> dict[str, Artifact | None]:
        if self.unsent is None:
            return self.committing.commit(agent, wanted, action)
        wanted = {name: self.rebasing.settled(name, one) for name, one in wanted.items()}
        return self.committing.commit(agent, wanted, action, Sent.now(), self.unsent)
