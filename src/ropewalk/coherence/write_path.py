"""The write path: compare-and-swap on what the agent saw, merged, or refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from ropewalk.codec import Codec
from ropewalk.coherence.artifact import Artifact, Content
from ropewalk.coherence.authority import Change, Committed, Moved, Sent
from ropewalk.coherence.logs import Wrote
from ropewalk.coherence.protocol import Base, Version
from ropewalk.coherence.timers import Patience, timestamp
from ropewalk.errors import (
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    MergeConflict,
    MissingObjects,
    NotFound,
    Unavailable,
    VersionConflict,
)
from ropewalk.history import Backoff
from ropewalk.history.merging import Merging, merge_late
from ropewalk.store._checks import expect, expect_timeout
from ropewalk.store._haste import hasty
from ropewalk.store.asynchronous import Threads
from ropewalk.tree import ABSENT, Commit, Mergers, Object, ObjectId, PathConflict, TreeWriter, load

if TYPE_CHECKING:
    from ropewalk.coherence.grants import Grants
    from ropewalk.coherence.read_path import Client, Reading

EDIT_SECONDS: Final = 60.0
"""For how long an edit waits for who holds the artifact, unless it is told."""

OnConflict: TypeAlias = Literal["merge", "raise", "overwrite"]
"""What becomes of a write whose base is no longer the newest version."""

ConflictPolicy: TypeAlias = OnConflict | Literal["replace"]
"""The same for one write: `replace` merges, and takes its own side where both changed a place."""


class Proposed(NamedTuple):
    """A value for an artifact, as an agent hands it over."""

    content: Content | None
    """None for a deletion."""
    if_version: int | None = None
    """The one version whose place it may take; 0 for none at all."""
    base: Base | None = None
    """What it was made from, if that is not what the agent itself read or put last."""
    replaces: bool = False
    """Whether it is known already to take the place of what its agent has not read."""


def expect_change(change: Any) -> None:
    """What changes a value is a plain function of it."""
    expect(callable(change), "the change is a function of the value", change)
    if iscoroutinefunction(change):
        raise InvalidInput(
            f"the change is a plain function, which may be called again: {change!r:.80} is a "
            "coroutine function. Await what it needs before the edit."
        )


@dataclass(frozen=True, slots=True)
class Edit:
    """A change by a function of the value."""

    change: Callable[[Any], Any]
    default: Any
    """What the function gets where there is no artifact; ABSENT if there must be one."""
    timeout: float | None

    @property
    def needs_artifact(self) -> bool:
        """Whether there is nothing to begin from but the artifact."""
        return self.default is ABSENT

    def first(self) -> Any:
        """The default, as a value that the function may change."""
        return deepcopy(self.default)

    def made_of(self, value: Any, codec: Codec) -> Content:
        """What the function makes of a value, which it may have changed instead."""
        with hasty(None):  # What else it may do is no part of the edit.
            changed = self.change(value)
        return Content.of(value if changed is None else changed, codec)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an agent wants an artifact to hold."""

    content: Content | None
    """None for a deletion."""
    base: Version | None
    """What it was made from; None if the agent knew of nothing."""
    expected: Version | None
    """What must be the newest version."""
    on_conflict: ConflictPolicy
    merged: bool = False
    replaced: bool = False
    """Whether it takes the place of what others wrote and its agent has not read."""

    @property
    def is_idle(self) -> bool:
        """Whether it would only take away what is not there."""
        return self.content is None and (self.expected is None or self.expected.deleted)


class Attempt(NamedTuple):
    """A commit that was sent."""

    agent: str
    wanted: dict[str, Wanted]
    action: str
    sent: Sent


Unsent: TypeAlias = "Callable[[Attempt, Unavailable], dict[str, Artifact | None]]"
"""What becomes of a commit of which it is not known whether it was made."""


class Unwritten(Version):
    """A value that an agent wrote, and that is not in the engine yet."""

    __slots__ = ("landed",)

    landed: Version | None
    """What it has become, if it has become exactly that."""

    @classmethod
    def of(
        cls, number: int, agent: str, time: int, content: Content | None, *, deleted: bool = False
    ) -> Unwritten:
        """What an agent wanted to write, made from version `number`."""
        made = cls(number, os.urandom(32), agent, time, deleted, content)
        made.landed = None
        return made


def is_there(version: Version | None) -> bool:
    """Whether there is an artifact, if this is its newest version."""
    return version is not None and not version.deleted


def number_of(version: Version | None) -> int:
    """The number of a version as callers know it: 0 where there is nothing."""
    return 0 if version is None or version.deleted else version.number


_TRIES: Final = 3
"""Taking one side at some places may bring up conflicts at others."""


def merge_contents(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> Content:
    """What both made of a base; raises `MergeConflict`.

    A place that both sides changed needs a merger, also where they agree.
    """
    objects: dict[ObjectId, Object] = {}

    def root(content: Content) -> ObjectId:
        written = TreeWriter(codec).write(content.fresh())
        objects.update((one.id, one) for one in written.objects)
        return written.root

    def read(ids: Sequence[ObjectId]) -> list[Object]:
        return [objects[id] for id in ids]

    def find(id: ObjectId) -> Commit:
        raise AssertionError("values have no ancestors")

    how = Merging(find, read, mergers, codec, exclusive=True)
    merged = merge_late(root(base), root(ours), root(theirs), how)
    objects.update((one.id, one) for one in merged.objects)
    return Content.of(load(merged.root, read, codec), codec)


def merge_put(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> tuple[Content, bool]:
    """What was put without a read, merged: ours where both changed the same place.

    And whether theirs lost anything by it. What says again what was put last changes nothing
    that could be merged, so it is all ours.
    """
    if ours.encoded == base.encoded:
        return ours, ours.encoded != theirs.encoded
    return merge_over(base, ours, theirs, mergers, codec)


def merge_over(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> tuple[Content, bool]:
    """The same, also where nothing of ours is new."""
    rules, is_lost = dict(mergers or {}), False
    for _ in range(_TRIES):
        try:
            return merge_contents(base, ours, theirs, rules, codec), is_lost
        except MergeConflict as conflict:
            for one in conflict.conflicts:
                rules[one.path] = "ours"
                is_lost = is_lost or _differs(one, codec)
    return ours, True


def _differs(conflict: PathConflict, codec: Codec) -> bool:
    ours, theirs = conflict.ours, conflict.theirs
    if ours is ABSENT or theirs is ABSENT:
        return ours is not theirs
    return codec.encode(ours) != codec.encode(theirs)


class Rebasing:
    """What becomes of the wishes of one client when others were faster."""

    def __init__(self, client: Client, reading: Reading, mergers: Mergers | None) -> None:
        self._name, self._authority, self._codec = client.name, client.authority, client.codec
        self._reading, self._mergers = reading, mergers

    def settled(self, artifact: str, wanted: Wanted) -> Wanted:
        """A wish that was made from what was not written when it was read."""
        base = wanted.expected
        if not isinstance(base, Unwritten):
            return wanted
        if base.landed is not None:
            return replace(wanted, base=base.landed, expected=base.landed)
        return self.rebased(artifact, wanted, self._authority.newest(artifact))

    def rebased(self, artifact: str, wanted: Wanted, newest: Version | None) -> Wanted:
        """The same wish, on what is newest now; raises `VersionConflict`."""
        if newest is wanted.expected or _same(newest, wanted.expected):
            return replace(wanted, expected=newest)
        if wanted.on_conflict == "overwrite":
            # A deletion is made from whatever there is.
            if wanted.content is None:
                return replace(wanted, base=newest, expected=newest)
            return replace(wanted, expected=newest, replaced=is_there(newest))
        if wanted.on_conflict == "replace":
            return self._over(artifact, wanted, newest)
        if wanted.on_conflict == "merge":
            merged = self._merged(artifact, wanted, newest)
            if merged is not None:
                return Wanted(merged, newest, newest, wanted.on_conflict, merged=True)
        raise self._conflict(artifact, wanted, newest)

    def differs(
        self, artifact: str, expected: int, actual: int, conflicts: Sequence[PathConflict] = ()
    ) -> VersionConflict:
        """An artifact is not at the version that somebody expects."""
        return VersionConflict(
            (self._name,), artifact, expected, actual, conflicts, kind="artifact"
        )

    def _merged(self, artifact: str, wanted: Wanted, newest: Version | None) -> Content | None:
        sides = self._sides(artifact, wanted, newest)
        if sides is None:
            return None
        try:
            return merge_contents(*sides, self._mergers, self._codec)
        except MergeConflict as conflict:
            raise self._conflict(artifact, wanted, newest, conflict.conflicts) from conflict

    def _over(self, artifact: str, wanted: Wanted, newest: Version | None) -> Wanted:
        """A value put without a read: merged, and it wins where both changed the same place."""
        sides = self._sides(artifact, wanted, newest)
        if sides is None:
            return replace(wanted, base=newest, expected=newest, replaced=is_there(newest))
        # What was merged already has nothing new where others changed the same place again.
        merge = merge_over if wanted.merged else merge_put
        made, replaced = merge(*sides, self._mergers, self._codec)
        merged = wanted.merged or made.encoded != sides[1].encoded
        replaced = wanted.replaced or replaced
        return Wanted(made, newest, newest, "replace", merged=merged, replaced=replaced)

    def _sides(
        self, artifact: str, wanted: Wanted, newest: Version | None
    ) -> tuple[Content, Content, Content] | None:
        """Base, ours and theirs of the three-way merge; None if one of them is gone."""
        base, ours = wanted.base, wanted.content
        if base is None or base.deleted or newest is None or newest.deleted or ours is None:
            return None
        try:
            before = self._reading.content(artifact, base)
            return before, ours, self._reading.content(artifact, newest)
        except (MissingObjects, NotFound):
            return None  # Nobody knows any more what it was made from.

    def _conflict(
        self,
        artifact: str,
        wanted: Wanted,
        newest: Version | None,
        conflicts: Sequence[PathConflict] = (),
    ) -> VersionConflict:
        return self.differs(artifact, number_of(wanted.expected), number_of(newest), conflicts)


def _same(one: Version | None, other: Version | None) -> bool:
    return one is not None and other is not None and one.id == other.id


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
        began = timestamp() if self._telling.is_watched else 0
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
            telling.note(transitions, one.content, _recorded_number(one.base))
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
            wrote = Wrote(number, one.content, _recorded_number(one.base), *how, token, began)
            self._telling.wrote(agent, artifact, wrote)


def _recorded_number(version: Version | None) -> int:
    return 0 if version is None else version.number


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


R = TypeVar("R")


async def edited(
    threads: Threads,
    edit: Callable[[Callable[[Any], Any]], R],
    change: Callable[[Any], Any],
    timeout: float | None,  # noqa: ASYNC109 - as of the edit
) -> R:
    """Do an edit that waits for nobody, again and again, until nobody else is in its way.

    No thread waits meanwhile: many edits of what one agent holds would else take all threads,
    and the holder could not write.
    """
    import asyncio

    expect_timeout(timeout)
    patience, raised = Patience(timeout, time.monotonic), []

    def call(value: Any) -> Any:
        try:
            return change(value)
        except BaseException as error:
            raised.append(error)
            raise

    while True:
        try:
            return await threads.run(partial(edit, call))
        except (LeaseHeld, VersionConflict) as error:
            own = error in raised or error.__cause__ in raised
            pause = None if own else patience.pause()
            if pause is None:
                raise
        await asyncio.sleep(pause)
