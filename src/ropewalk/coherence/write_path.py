"""The write path: a write is checked against the version that its agent saw, then committed.

`WritePath.commit` is a compare-and-swap loop. If another agent committed first, `rebase` decides:
replace, merge, or raise `VersionConflict`.
"""

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
from ropewalk.coherence.authority import ArtifactsMoved, Change, Committed, Sent
from ropewalk.coherence.logs import WriteEvent
from ropewalk.coherence.protocol import Artifact, Base, Content, Note, Version
from ropewalk.coherence.timers import RetrySchedule, timestamp
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
from ropewalk.history import Backoff, new_write_id
from ropewalk.history.merge import Merging, merge_late
from ropewalk.store.asynchronous import Threads
from ropewalk.store.retry import limit_retries
from ropewalk.store.validation import expect, expect_timeout
from ropewalk.tree import ABSENT, Commit, Mergers, Object, ObjectId, PathConflict, TreeWriter, load

if TYPE_CHECKING:
    from ropewalk.coherence.grants import Grants
    from ropewalk.coherence.read_path import Client, ReadPath

EDIT_SECONDS: Final = 60.0
"""The default timeout of an edit that has to wait for the holder of an artifact."""

_EDITS: Final = 16
"""The least number of attempts of an edit, whatever its timeout."""

OnConflict: TypeAlias = Literal["merge", "raise", "overwrite"]
"""What to do with a write whose base is no longer the newest version."""

ConflictPolicy: TypeAlias = OnConflict | Literal["replace"]
"""The same for one write: `replace` merges, and ours wins where both changed the same path."""


class Proposal(NamedTuple):
    """A value that an agent wants to write to an artifact, before it is checked."""

    content: Any
    """A value, or its `Content`; `ABSENT` or None for a deletion."""
    if_version: int | None = None
    """The only version that it may replace; 0 if there must be none."""
    base: Base | None = None
    """What it was made from; None for what the agent itself read or put last."""
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write, its merge base, and the version it is compared with."""

    content: Content | None
    """None for a deletion."""
    base: Version | None
    """The merge base: what the value was made from; None if the agent knew of no version."""
    expected: Version | None
    """The version that must be the newest for the write to land."""
    on_conflict: ConflictPolicy
    merged: bool = False
    replaced: bool = False
    """Whether it replaces a version of another agent that its agent has not read."""
    note: Note | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it is a deletion of an artifact that does not exist."""
        return self.content is None and not exists(self.expected)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change by a function of the value."""

    change: Callable[[Any], Any]
    default: Any
    """The value to edit if there is no artifact; ABSENT if there must be one."""
    timeout: float | None
    note: Note | None = None

    @property
    def needs_artifact(self) -> bool:
        """Whether it fails if there is no artifact."""
        return self.default is ABSENT

    def initial(self) -> Any:
        """The default, as a value that the function may change."""
        return deepcopy(self.default)

    def apply(self, value: Any, codec: Codec) -> Content:
        """Call the function on a value, which it may change in place instead of returning one."""
        with limit_retries(None):  # Store calls in the caller's function keep their own timeouts.
            changed = self.change(value)
        return Content.of(value if changed is None else changed, codec)


def expect_change(change: Any) -> None:
    """Check the function of an edit: a plain one, not a coroutine function."""
    expect(callable(change), "the change is a function of the value", change)
    if iscoroutinefunction(change):
        raise InvalidInput(
            f"the change is a plain function, which may be called again: {change!r:.80} is a "
            "coroutine function. Await what it needs before the edit."
        )


class Attempt(NamedTuple):
    """A commit that was sent, and whose outcome is unknown."""

    agent: str
    requests: dict[str, WriteRequest]
    action: str
    sent: Sent


OnUnavailable: TypeAlias = "Callable[[Attempt, Unavailable], dict[str, Artifact | None]]"
"""Handles a commit whose outcome is unknown."""


class PendingVersion(Version):
    """A version that is kept during an outage and is not in the engine yet."""

    __slots__ = ("landed",)

    landed: Version | None
    """The version that it landed as, if it landed unchanged."""

    @classmethod
    def of(
        cls,
        number: int,
        agent: str,
        time: int,
        content: Content | None,
        note: Note | None = None,
    ) -> PendingVersion:
        """A write that was kept, made from version `number`."""
        made = cls(number, os.urandom(32), agent, time, content is None, content, note=note)
        made.landed = None
        return made


def exists(version: Version | None) -> bool:
    """Whether there is an artifact, if this is its newest version."""
    return version is not None and not version.deleted


def number_of(version: Version | None) -> int:
    """The number of a version as callers know it: 0 where there is nothing."""
    return 0 if version is None or version.deleted else version.number


class WritePath:
    """How the agents of one client write.

    A proposal becomes a request: content, merge base, and the version that must be the newest.
    If another agent committed first, the request is rebased on the newest version, or refused.
    Then it is committed, and rebased again whenever it loses the race.
    """

    def __init__(
        self,
        client: Client,
        reads: ReadPath,
        grants: Grants,
        mergers: Mergers | None,
        on_conflict: OnConflict,
    ) -> None:
        self._client, self._reads, self._grants = client, reads, grants
        self._authority, self._directory = client.authority, client.directory
        self._mergers, self.on_conflict = mergers, on_conflict
        self.on_unavailable: OnUnavailable | None = None
        """Called with a commit whose outcome is unknown; without it, `Unavailable` is raised."""

    # What agents do.

    def write(
        self, agent: str, proposals: Mapping[str, Proposal], action: str
    ) -> dict[str, Artifact | None]:
        """New versions of artifacts: all or none."""
        requests = {}
        for name, proposal in proposals.items():
            request = self._request(agent, name, proposal)
            if request.content is not None or not request.is_idle:
                requests[name] = request
        return self.commit(agent, requests, action) if requests else {}

    def register(self, agent: str, artifact: str, content: Content) -> Artifact:
        """The first version of an artifact; `VersionConflict` if it is there."""
        made = self.write(agent, {artifact: Proposal(content, 0)}, "register")[artifact]
        assert made is not None
        return made

    def delete(self, agent: str, artifact: str, if_version: int | None) -> bool:
        """Write a tombstone; False if there is no artifact."""
        if if_version is not None:
            expected = self._expected(agent, artifact, if_version)
            how: OnConflict = "raise"
        else:
            expected, how = self._authority.newest(artifact), "overwrite"
        if not exists(expected):
            return False
        self.commit(agent, {artifact: WriteRequest(None, expected, expected, how)}, "delete")
        return True

    def edit(self, agent: str, artifact: str, edit: Edit) -> Artifact:
        """Read, change, compare-and-swap; retried from the newest version until it lands."""
        clock = self._client.time.monotonic
        until = None if edit.timeout is None else clock() + edit.timeout
        backoff = Backoff(self._client.time.sleep)
        # If it cannot be merged, the function is called again with the newest value.
        how: OnConflict = "merge" if self.on_conflict == "merge" else "raise"
        for attempt in count(1):
            # Outside the try: an error of the function goes to the caller.
            base, value = self._edit_base(agent, artifact, edit)
            content = edit.apply(value, self._client.codec)
            try:
                request = WriteRequest(content, base, base, how, note=edit.note)
                made = self.commit(agent, {artifact: request}, "edit")[artifact]
                assert made is not None
                return made
            except (VersionConflict, LeaseHeld) as error:
                # Another agent changed the same paths first, or holds the artifact. The timeout
                # counts here too: a function that itself writes the artifact conflicts each time.
                tried = attempt >= _EDITS or isinstance(error, LeaseHeld)
                if tried and until is not None and clock() >= until:
                    raise
            backoff.wait()
        raise AssertionError("an edit is made or raises")

    def _edit_base(self, agent: str, artifact: str, edit: Edit) -> tuple[Version | None, Any]:
        while True:
            try:
                found = self._reads.confirm(agent, artifact)
            except NotFound:
                if edit.needs_artifact:
                    raise
                base = self._authority.newest(artifact)
                if not exists(base):
                    return base, edit.initial()
            else:
                return found.version, found.content.fresh()

    # What a write is checked against.

    def _request(self, agent: str, artifact: str, proposal: Proposal) -> WriteRequest:
        content, if_version, given, note = proposal
        if if_version is not None:
            expected = self._expected(agent, artifact, if_version)
            return WriteRequest(content, expected, expected, "raise", note=note)
        if content is None and (given is None or given.version is None):
            newest = self._authority.newest(artifact)
            return WriteRequest(None, newest, newest, "overwrite")
        base, is_read = self._directory.base(agent, artifact) if given is None else given
        if base is None:
            # The agent has seen no version, so it replaces whatever there is.
            newest = self._authority.newest(artifact)
            return WriteRequest(content, None, newest, "overwrite", False, exists(newest), note)
        # After a read the changes of others must not be lost. An agent that only puts, without a
        # read, replaces, as in any key-value store.
        how: ConflictPolicy = self.on_conflict
        if how == "merge" and not is_read:
            how = "replace"
        request = WriteRequest(content, base, base, how, note=note)
        return self.resolve_base(artifact, request) if isinstance(base, PendingVersion) else request

    def _expected(self, agent: str, artifact: str, number: int) -> Version | None:
        entry = self._directory.entry(agent, artifact)
        if entry is not None and number and entry.version.number == number:
            return entry.version
        newest = self._authority.newest(artifact)
        actual = number_of(newest)
        if actual != number:
            raise self._version_conflict(artifact, number, actual)
        return newest

    def resolve_base(self, artifact: str, request: WriteRequest) -> WriteRequest:
        """A request with its pending base resolved: landed, or rebased on the newest version."""
        base = request.expected
        if not isinstance(base, PendingVersion):
            return request
        if base.landed is not None:
            return replace(request, base=base.landed, expected=base.landed)
        return self.rebase(artifact, request, self._authority.newest(artifact))

    # When others committed first.

    def rebase(self, artifact: str, request: WriteRequest, newest: Version | None) -> WriteRequest:
        """Rebase a request on the newest version, by its policy; raises `VersionConflict`."""
        before = request.expected
        if newest is before or (newest and before and newest.id == before.id):
            return replace(request, expected=newest)
        if request.on_conflict == "overwrite":
            # A deletion has the version that it deletes as base.
            if request.content is None:
                return replace(request, base=newest, expected=newest)
            return replace(request, expected=newest, replaced=exists(newest))
        conflicts: Sequence[PathConflict] = ()
        if request.on_conflict in ("replace", "merge"):
            sides = self._sides(artifact, request, newest)
            if request.on_conflict == "replace":
                return self._rebase_put(request, newest, sides)
            if sides is not None:
                try:
                    content = merge_contents(*sides, self._mergers, self._client.codec)
                    return WriteRequest(content, newest, newest, "merge", True, note=request.note)
                except MergeConflict as conflict:
                    expected, actual = number_of(before), number_of(newest)
                    conflicts = conflict.conflicts
                    raise self._version_conflict(
                        artifact, expected, actual, conflicts
                    ) from conflict
        raise self._version_conflict(artifact, number_of(before), number_of(newest))

    def _rebase_put(
        self,
        request: WriteRequest,
        newest: Version | None,
        sides: tuple[Content, Content, Content] | None,
    ) -> WriteRequest:
        """Rebase a blind put: merged, and ours wins where both changed the same path."""
        if sides is None:
            return replace(request, base=newest, expected=newest, replaced=exists(newest))
        # Once merged, content equal to its base is no longer a sign of a repeated put.
        merge = merge_over if request.merged else merge_put
        made, replaced = merge(*sides, self._mergers, self._client.codec)
        merged = request.merged or made.encoded != sides[1].encoded
        replaced = request.replaced or replaced
        return WriteRequest(made, newest, newest, "replace", merged, replaced, request.note)

    def _sides(
        self, artifact: str, request: WriteRequest, newest: Version | None
    ) -> tuple[Content, Content, Content] | None:
        """Base, ours and theirs of the three-way merge; None if one of them is gone."""
        base, ours = request.base, request.content
        if base is None or base.deleted or newest is None or newest.deleted or ours is None:
            return None
        try:
            before = self._reads.content(artifact, base)
            return before, ours, self._reads.content(artifact, newest)
        except (MissingObjects, NotFound):
            return None  # The base was collected.

    def _version_conflict(
        self, artifact: str, expected: int, actual: int, conflicts: Sequence[PathConflict] = ()
    ) -> VersionConflict:
        scope = (self._client.name,)
        return VersionConflict(scope, artifact, expected, actual, conflicts, kind="artifact")

    # Committing.

    def _new_attempt(self) -> Sent:
        return Sent(new_write_id(), self._client.time.nanoseconds() // 1000)

    def commit(  # noqa: C901, PLR0912 - one story, from the fences to the artifacts
        self,
        agent: str,
        requests: dict[str, WriteRequest],
        action: str,
        sent: Sent | None = None,
        on_unavailable: OnUnavailable | None = None,
    ) -> dict[str, Artifact | None]:
        """Commit requests as the next versions, all or none, in a compare-and-swap loop.

        Each round asks for the fencing tokens, so that a lost grant is noticed, and sends the
        changes. `ArtifactsMoved` means that another agent committed first: the requests are
        rebased, and sent again. `on_unavailable` is called if the outcome is unknown. `sent`
        identifies an earlier attempt at the same commit, which may have landed.
        """
        client, directory, grants = self._client, self._directory, self._grants
        recorder, bus = client.recorder, client.invalidations
        if sent is None and self.on_unavailable is not None:
            requests = {name: self.resolve_base(name, one) for name, one in requests.items()}
            sent, on_unavailable = self._new_attempt(), self.on_unavailable
        if bus is not None:
            for name in requests:
                if name not in bus.subscribed:
                    bus.subscribe_all((name,))
        began = timestamp() if recorder.is_recording else 0
        if sent is not None:
            began = min(began, sent.moment)  # The first attempt may have landed.
        while True:
            gaps, now = directory.gaps, client.clock()
            tokens, changes = {}, []
            for name, one in requests.items():
                token = tokens[name] = grants.fence_token(agent, name)
                changes.append(
                    Change(name, one.expected, one.content, token, one.replaced, one.note)
                )
            try:
                made = self._authority.commit(changes, agent, action, sent)
                break
            except Unavailable as error:
                recorder.write_of_unknown_outcome(agent, requests, began)
                if on_unavailable is None or sent is None:
                    raise
                return on_unavailable(Attempt(agent, requests, action, sent), error)
            except (LeaseHeld, LeaseLost) as error:
                refused = grants.refused(agent, tokens, error)
                if refused is not None:
                    raise refused from error
            except ArtifactsMoved as moved:
                sent = None if sent is None else self._new_attempt()
                requests = {
                    name: self.rebase(name, one, moved.newest[name])
                    for name, one in requests.items()
                }
        found: dict[str, Artifact | None] = {}
        for name, one in requests.items():
            found[name] = self._publish(agent, name, one, made, now, gaps)
        if recorder.is_recording:
            for name, one in requests.items():
                base = 0 if one.base is None else one.base.number
                how = one.merged, one.replaced, tokens[name], began
                number = made.versions[name].number
                recorder.write(agent, name, WriteEvent(number, one.content, base, *how))
        return found

    def _publish(
        self,
        agent: str,
        artifact: str,
        request: WriteRequest,
        made: Committed,
        now: float,
        gaps: int,
    ) -> Artifact | None:
        """Update the cache and directory after a commit, and publish the invalidation."""
        client, directory = self._client, self._directory
        content, version = request.content, made.versions[artifact]
        if content is not None and version.content is None:
            client.contents.put(version.id, content)
        transitions = directory.committed(agent, artifact, version, now, gaps)
        state = transitions[0].after
        if content is None:
            transitions += directory.emptied(agent, artifact, version.number)
        if client.invalidations is not None:
            client.invalidations.publish(artifact, version, made.sequence, content)
        if client.recorder.is_recording:
            base = 0 if request.base is None else request.base.number
            client.recorder.transitions(transitions, content, base)
            client.recorder.transitions(directory.superseded(artifact))
        if content is None:
            return None
        marks = {"merged": request.merged, "replaced": request.replaced}
        return Artifact(artifact, version, content, state, "write", **marks)


_TRIES: Final = 3
"""How often to merge: resolving some conflicts may bring up others."""


def merge_contents(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> Content:
    """Three-way merge of contents; raises `MergeConflict`.

    A path that both sides changed needs a merger, even if both changed it in the same way.
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
    """Merge a blind put: ours wins where both changed the same path.

    Returns also whether any change of theirs was lost. A put that repeats the value of its base
    has no changes to merge, so it replaces theirs as a whole.
    """
    if ours.encoded == base.encoded:
        return ours, ours.encoded != theirs.encoded
    return merge_over(base, ours, theirs, mergers, codec)


def merge_over(
    base: Content, ours: Content, theirs: Content, mergers: Mergers | None, codec: Codec
) -> tuple[Content, bool]:
    """The same, but a put that repeats its base is merged too."""
    rules, is_lost = dict(mergers or {}), False
    for _ in range(_TRIES):
        try:
            return merge_contents(base, ours, theirs, rules, codec), is_lost
        except MergeConflict as conflict:
            for one in conflict.conflicts:
                rules[one.path] = "ours"
                is_lost = is_lost or _values_differ(one, codec)
    return ours, True


def _values_differ(conflict: PathConflict, codec: Codec) -> bool:
    ours, theirs = conflict.ours, conflict.theirs
    if ours is ABSENT or theirs is ABSENT:
        return ours is not theirs
    return codec.encode(ours) != codec.encode(theirs)


R = TypeVar("R")


async def edit_async(
    threads: Threads,
    edit: Callable[[Callable[[Any], Any]], R],
    change: Callable[[Any], Any],
    timeout: float | None,  # noqa: ASYNC109 - as of the edit
) -> R:
    """Retry an edit that does not block, until no other agent is in its way or it times out.

    The pauses are on the event loop. If edits of one artifact waited on threads for its holder,
    they could take all threads of the pool, and the holder could not write.
    """
    import asyncio

    expect_timeout(timeout)
    schedule, raised = RetrySchedule(timeout, time.monotonic), []

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
            pause = None if own else schedule.pause()
            if pause is None:
                raise
        await asyncio.sleep(pause)
