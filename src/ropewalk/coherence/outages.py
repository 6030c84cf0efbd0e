"""Degraded mode: reads and writes while the engine cannot be reached.

Reads return the last known value, marked as degraded; of an artifact that was never seen here they
raise the engine's error. Writes are refused, or kept with the version that they were made from, and
land by compare-and-swap on it when the engine answers again.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ropewalk.coherence.authority import Sent
from ropewalk.coherence.protocol import Artifact, Base, Content, State, Version
from ropewalk.coherence.read_path import ReadPath, not_found
from ropewalk.coherence.timers import timestamp
from ropewalk.coherence.write_path import (
    Attempt,
    Edit,
    OnConflict,
    PendingVersion,
    Proposal,
    WriteRequest,
    number_of,
)
from ropewalk.errors import (
    Conflict,
    LeaseHeld,
    NotFound,
    RopewalkError,
    StoreClosed,
    Unavailable,
    WritesRefused,
)
from ropewalk.history import new_write_id
from ropewalk.store.forking import freed_after_fork, reset_after_fork
from ropewalk.store.retry import limit_retries

if TYPE_CHECKING:
    from ropewalk.coherence.read_path import Client
    from ropewalk.coherence.write_path import WritePath

MOST_KEPT: Final = 10_000
_MOST_BYTES: Final = 64 << 20


class CoherenceDegradedWarning(UserWarning):
    """The engine of shared artifacts cannot be reached, and reads give the last values known."""


class KeptWrite:
    """A write of an agent that is kept until the engine answers; see `CoherenceCore.kept`.

    `error` is None while it waits, and the error after a conflict; the write then stays kept
    until it is discarded.
    """

    __slots__ = (
        "action",
        "agent",
        "error",
        "number",
        "rebased",
        "requests",
        "sent",
        "time",
        "versions",
    )

    def __init__(
        self,
        number: int,
        agent: str,
        action: str,
        requests: dict[str, WriteRequest],
        sent: Sent,
        time: int,
    ) -> None:
        self.number, self.agent, self.action = number, agent, action
        self.requests = requests
        self.rebased: dict[str, WriteRequest] | None = None
        """What was last sent to the engine, perhaps merged with what others wrote."""
        self.sent, self.time = sent, time
        self.error: Exception | None = None
        self.versions = {
            name: PendingVersion.of(
                0 if one.base is None else one.base.number, agent, time, one.content, one.note
            )
            for name, one in requests.items()
        }

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The names of what it writes."""
        return tuple(self.requests)

    @property
    def values(self) -> dict[str, Any]:
        """The values that it writes, by artifact; None for a deletion."""
        contents = {name: one.content for name, one in self.requests.items()}
        return {name: None if one is None else one.fresh() for name, one in contents.items()}

    @property
    def based_on(self) -> dict[str, int]:
        """The versions that it was made from, by artifact; 0 for none."""
        return {name: one.number for name, one in self.versions.items()}

    def __repr__(self) -> str:
        met = "" if self.error is None else f": {type(self.error).__name__}"
        return f"<KeptWrite {self.number} of {list(self.requests)!r:.80} by {self.agent!r}{met}>"


class Reconciled(NamedTuple):
    """The outcome of a kept write."""

    write: KeptWrite
    artifacts: Mapping[str, Artifact]
    """The versions that it landed as."""
    error: Exception | None
    """Why it did not land; then it is still among the kept writes."""


class LastKnown:
    """A bounded cache of the last version of each artifact that this client has seen."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self._held: OrderedDict[str, tuple[Version, Content]] = OrderedDict()
        self._bytes = 0

    def get(self, artifact: str) -> tuple[Version, Content] | None:
        """The last version, and what it held."""
        return self._held.get(artifact)

    def remember(self, artifact: str, version: Version, content: Content) -> None:
        """Cache a version that was read or written, unless a newer one is cached."""
        known = self._held.get(artifact)
        if known is not None and known[0].number >= version.number:
            return
        with self._lock:
            self._drop(artifact)
            self._held[artifact] = version, content
            self._bytes += len(content)
            while self._bytes > _MOST_BYTES and len(self._held) > 1:
                self._drop(next(iter(self._held)))

    def forget(self, artifact: str) -> None:
        """The artifact is not there."""
        if artifact in self._held:
            with self._lock:
                self._drop(artifact)

    def _drop(self, artifact: str) -> None:
        before = self._held.pop(artifact, None)
        if before is not None:
            self._bytes -= len(before[1])


_log = logging.getLogger("ropewalk.coherence")

PATIENCE: Final = 1.0
"""How many seconds a lost connection is retried before degraded mode begins."""
FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_REPORTS: Final = 1000


OnError: TypeAlias = Literal["strict", "degrade"]
"""What reads do while the engine cannot be reached."""

DegradedWrites: TypeAlias = Literal["keep", "refuse"]
"""What to do with writes while the engine cannot be reached."""


class DegradedMode:
    """In front of the read and write paths: handles `Unavailable`, and lands kept writes later."""

    def __init__(
        self,
        client: Client,
        reading: ReadPath,
        writing: WritePath,
        *,
        keeps: bool,
    ) -> None:
        self._client = client
        self._authority, self._directory = client.authority, client.directory
        self._recorder, self._codec = client.recorder, client.codec
        self._reading, self._writing = reading, writing
        self._keeps = keeps
        self.count = 0
        """How many operations were answered without the engine."""
        self._known = LastKnown()
        self._timer = client.time.timer(self, "ropewalk-degraded")
        self._begin()
        reset_after_fork(self)
        writing.on_unavailable, reading.gone = self._keep_attempt, self._known.forget

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._landing = threading.Lock()
        self._outage: Unavailable | None = None
        self._pause = FIRST_PAUSE
        self._waiting: dict[int, KeptWrite] = {}
        """By number, in the order in which they were written."""
        self._by_artifact: dict[str, dict[int, KeptWrite]] = {}
        """The waiting writes of each artifact."""
        self._refused: list[KeptWrite] = []
        self._reports: deque[Reconciled] = deque(maxlen=_REPORTS)
        self._numbers = 0

    def after_fork(self) -> None:
        """In a child: what was kept is the parent's to write."""
        self._timer.reset()
        self._begin()

    @property
    def is_active(self) -> bool:
        """Whether the engine cannot be reached, as far as this client knows."""
        return self._outage is not None

    # Reading.

    def read(self, agent: str, artifact: str) -> Artifact:
        """As `ReadPath.read`, or the last value known, marked."""
        if self._outage is None:
            try:
                with limit_retries(PATIENCE):
                    return self._remember(self._reading.read(agent, artifact))
            except Unavailable as error:
                self._lose_engine(error)
        if self._last_kept(artifact) is None:
            found = self._reading.cached(agent, artifact)
            if found is not None:
                return found  # Within its bound, as if nothing had happened.
        return self._read_degraded(agent, artifact)

    def snapshot(self, agent: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """As `ReadPath.snapshot`, or the last values known, perhaps of several moments."""
        names = list(dict.fromkeys(artifacts))
        if self._outage is None:
            try:
                with limit_retries(PATIENCE):
                    found = self._reading.snapshot(agent, names)
                return {name: self._remember(one) for name, one in found.items()}
            except Unavailable as error:
                self._lose_engine(error)
        return {name: self._read_degraded(agent, name) for name in names}

    def search(self, *args: Any) -> list[Artifact]:
        """As `ReadPath.search`: what there is, only the engine can say."""
        self.expect_engine("a search")
        return [self._remember(one) for one in self._reading.search(*args)]

    def _remember(self, found: Artifact) -> Artifact:
        self._known.remember(found.name, found.origin, found.content)
        return found

    def _read_degraded(self, agent: str, artifact: str) -> Artifact:
        began = timestamp() if self._recorder.is_recording else 0
        found = self._last_known(artifact)
        if found is None:
            raise self._unavailable(artifact)
        version, content = found
        if version.deleted or content is None:
            raise not_found(artifact)
        self._recorder.transitions(
            self._directory.note_unconfirmed(agent, artifact, Base(version, True))
        )
        given = Artifact(artifact, version, content, State.INVALID, "cache_hit", degraded=True)
        self._count(agent, artifact)
        if self._recorder.is_recording:
            self._recorder.read(agent, given, began)
        return given

    def _last_known(self, artifact: str) -> tuple[Version, Content | None] | None:
        kept = self._last_kept(artifact)
        if kept is not None:
            return kept.versions[artifact], kept.requests[artifact].content
        return self._known.get(artifact)

    # Writing.

    def register(self, agent: str, artifact: str, content: Content) -> Artifact:
        """As `WritePath.register`: whether it is there, only the engine can say."""
        if self._outage is not None:
            raise self._unavailable(artifact)
        return self._writing.register(agent, artifact, content)

    def write(
        self, agent: str, proposed: Mapping[str, Proposal], action: str
    ) -> dict[str, Artifact | None]:
        """As `WritePath.write`, or kept."""
        if self._outage is None:
            try:
                with limit_retries(PATIENCE):
                    return self._remember_all(self._writing.write(agent, proposed, action))
            except Unavailable as error:
                self._lose_writes(error)
        requests = {name: self._request(agent, name, one) for name, one in proposed.items()}
        changing = {name: one for name, one in requests.items() if not one.is_idle}
        return self._keep(agent, changing, action) if changing else {}

    def delete(self, agent: str, artifact: str, if_version: int | None) -> bool:
        """As `WritePath.delete`, or kept."""
        if self._outage is None:
            try:
                with limit_retries(PATIENCE):
                    deleted = self._writing.delete(agent, artifact, if_version)
            except Unavailable as error:
                self._lose_writes(error)
            else:
                self._known.forget(artifact)
                return deleted
        found = self._last_known(artifact)
        if found is None:
            raise self._unavailable(artifact)
        if found[0].deleted:
            return False
        request = self._request(agent, artifact, Proposal(None, if_version))
        self._keep(agent, {artifact: request}, "delete")
        return True

    def edit(self, agent: str, artifact: str, edit: Edit) -> Artifact:
        """As `WritePath.edit`, or what becomes of the last value known, kept."""
        if self._outage is None:
            try:
                with limit_retries(PATIENCE):
                    edited = self._writing.edit(agent, artifact, edit)
                self._remember_all({artifact: edited})
                return edited
            except Unavailable as error:
                self._lose_writes(error)
        self._expect_keeping()
        base: Version | None = None
        try:
            found = self._read_degraded(agent, artifact)
            base, value = found.origin, found.value
        except NotFound:
            if edit.needs_artifact:
                raise
            value = edit.initial()
        content = edit.apply(value, self._codec)
        # Not the agent's own base, which another of its threads may have changed meanwhile.
        from_base = None if base is None else Base(base, True)
        proposed = Proposal(content, base=from_base, note=edit.note)
        made = self.write(agent, {artifact: proposed}, "edit")[artifact]
        assert made is not None
        return made

    def _request(self, agent: str, artifact: str, proposed: Proposal) -> WriteRequest:
        """What a write is to be checked against, as far as it is known here."""
        content, if_version, given, note = proposed
        base = self._base(agent, artifact) if given is None else given.version
        if if_version is not None:
            if if_version != number_of(base):
                raise self._unavailable(artifact)
            return WriteRequest(content, base, base, "raise", note=note)
        how: OnConflict = self._writing.on_conflict if content is not None else "raise"
        if base is None and how != "overwrite":
            how = "raise"  # What others wrote meanwhile was seen by nobody here.
        return WriteRequest(content, base, base, how, note=note)

    def _base(self, agent: str, artifact: str) -> Version | None:
        """What an agent saw last, or else anybody here."""
        base, _ = self._directory.base(agent, artifact)
        if base is not None:
            return base
        known = self._last_known(artifact)
        return None if known is None else known[0]

    def _keep_attempt(self, attempt: Attempt, error: Unavailable) -> dict[str, Artifact | None]:
        """Keep a commit of unknown outcome, to resend it with the same write id."""
        self._lose_engine(error)
        if attempt.action == "register" or not self._keeps:
            raise error
        # It may land long after newer writes: it is merged with them, but never replaces them.
        requests = {
            name: replace(one, on_conflict="merge") if one.on_conflict == "replace" else one
            for name, one in attempt.requests.items()
        }
        return self._keep(attempt.agent, requests, attempt.action, attempt.sent)

    def _keep(
        self, agent: str, requests: dict[str, WriteRequest], action: str, sent: Sent | None = None
    ) -> dict[str, Artifact | None]:
        self._expect_keeping()
        kept = self._add(agent, requests, action, sent)
        made: dict[str, Artifact | None] = {}
        for name, version in kept.versions.items():
            content = requests[name].content
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
        """Fail fast: during an outage raise `Unavailable` for what only the engine can answer.

        Without this each caller would wait for a timeout of its own.
        """
        error = self._outage
        if error is not None:
            raise Unavailable(
                f"{what} cannot be answered for without the engine: {error}"
            ) from error

    def _lose_engine(self, error: Unavailable) -> None:
        """Enter degraded mode, or stay in it."""
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
        self._timer.start()

    def _lose_writes(self, error: Unavailable) -> None:
        """As `_lose_engine`, for a write of unknown outcome."""
        self._lose_engine(error)
        if not self._keeps:
            raise error

    def _unavailable(self, artifact: str) -> Unavailable:
        error = self._outage
        made = Unavailable(
            f"artifact {artifact!r:.80} cannot be answered for without the engine: {error}"
        )
        made.__cause__ = error
        return made

    def _count(self, agent: str, artifact: str) -> None:
        self.count += 1
        if self._recorder.logs.wants_metrics:
            self._recorder.metric("degraded", agent, artifact, False)

    # Kept writes.

    def _add(
        self, agent: str, requests: dict[str, WriteRequest], action: str, sent: Sent | None
    ) -> KeptWrite:
        with self._lock:
            if len(self._waiting) + len(self._refused) >= MOST_KEPT:
                raise WritesRefused(
                    f"{MOST_KEPT} writes are kept while the engine cannot be reached, and no more."
                )
            self._numbers += 1
            now = self._client.time.nanoseconds() // 1000
            sent = Sent(new_write_id(), now) if sent is None else sent._replace(again=True)
            kept = KeptWrite(self._numbers, agent, action, requests, sent, now)
            self._waiting[kept.number] = kept
            for name in kept.requests:
                self._by_artifact.setdefault(name, {})[kept.number] = kept
            # Under the lock, so that it does not land before the agent has it as its base.
            for name, version in kept.versions.items():
                self._directory.note_unconfirmed(agent, name, Base(version, False))
        self._timer.start()
        return kept

    def _last_kept(self, artifact: str) -> KeptWrite | None:
        if not self._waiting:
            return None
        with self._lock:
            kept = self._by_artifact.get(artifact)
            return None if kept is None else next(reversed(kept.values()))

    def _done(self, kept: KeptWrite) -> None:
        """Remove a write from the waiting ones. Called under the lock."""
        del self._waiting[kept.number]
        for name in kept.requests:
            of_artifact = self._by_artifact[name]
            del of_artifact[kept.number]
            if not of_artifact:
                del self._by_artifact[name]

    def _remember_all(self, made: dict[str, Artifact | None]) -> dict[str, Artifact | None]:
        for artifact, one in made.items():
            if one is None:
                self._known.forget(artifact)
            elif not one.degraded:
                self._known.remember(artifact, one.origin, one.content)
        return made

    def step(self) -> float | None:
        """Ask the engine; if it answers, land what was kept. Seconds until the next try."""
        if self._outage is None and not self._waiting:
            return None
        try:
            with limit_retries(PATIENCE):
                self._authority.sequence()
                held = self._land_all()
        except StoreClosed:
            return None
        except Unavailable as error:
            with self._lock:
                if self._outage is not None:
                    self._outage = error
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return self._pause
        except RopewalkError:
            # It answers, if with an error; callers get such errors themselves.
            self._outage, held = None, bool(self._waiting)
            self._pause = _LONGEST_PAUSE
        return self._pause if held else None

    def _land_all(self) -> bool:
        """Land waiting writes in order; whether some still wait, because others hold a grant."""
        held: set[str] = set()
        tried = 0
        while True:
            with self._lock:
                due = [one for one in self._waiting.values() if one.number > tried]
                if not due:
                    self._outage = None
                    return bool(self._waiting)
            for kept in due:
                tried = kept.number
                if not held.isdisjoint(kept.requests) or not self._try_to_land(kept):
                    held.update(kept.requests)  # Later writes to these artifacts wait for it.

    def _try_to_land(self, kept: KeptWrite) -> bool:
        try:
            self._land(kept)
        except LeaseHeld:
            return False
        return True

    def _land(self, kept: KeptWrite) -> None:
        with self._landing:
            if kept.number not in self._waiting:
                return
            error: Exception | None = None
            made: dict[str, Artifact | None] = {}
            try:
                made = self._commit(kept)
            except (LeaseHeld, Unavailable):
                raise
            except Exception as refused:  # noqa: BLE001 - a merger may raise anything
                error = kept.error = refused
            with self._lock:
                self._done(kept)
                if error is not None:
                    self._refused.append(kept)
                fresh = {name: one for name, one in made.items() if one is not None}
                self._reports.append(Reconciled(kept, fresh, error))
        if error is not None:
            self._report(kept, error)

    def _commit(self, kept: KeptWrite) -> dict[str, Artifact | None]:
        requests = kept.rebased or {
            name: self._on_base(name, one) for name, one in kept.requests.items()
        }

        def keep_attempt(attempt: Attempt, error: Unavailable) -> dict[str, Artifact | None]:
            # It may have landed. Merged again with the version it became, it would count twice.
            kept.rebased, kept.sent = attempt.requests, attempt.sent._replace(again=True)
            raise error

        made = self._writing.commit(kept.agent, requests, kept.action, kept.sent, keep_attempt)
        self._remember_all(made)
        for name, one in made.items():
            if one is None:
                newest = self._authority.newest(name)
                if newest is not None and newest.deleted:
                    kept.versions[name].landed = newest
            elif one.content is kept.requests[name].content:
                kept.versions[name].landed = one.origin
        return made

    def _on_base(self, artifact: str, request: WriteRequest) -> WriteRequest:
        """A kept write on its base as it is in the engine now; raises `Conflict` if that is not."""
        if any(request.base in one.versions.values() for one in self._refused):
            raise Conflict(
                f"the write of {artifact!r:.80} was made from another that could not be written. "
                "Look at kept() for both."
            )
        return self._writing.resolve_base(artifact, request)

    def _report(self, kept: KeptWrite, error: Exception) -> None:
        text = (
            f"a write of {', '.join(kept.artifacts)} by agent {kept.agent!r}, kept while the "
            f"engine could not be reached, was not written: {error} It is among kept()."
        )
        _log.warning("%s", text)
        warnings.warn(text, CoherenceDegradedWarning, stacklevel=2)

    # Looking, and life.

    def kept(self) -> list[KeptWrite]:
        """The writes that are not written: those that wait, and those that met a conflict."""
        with self._lock:
            return sorted([*self._waiting.values(), *self._refused], key=lambda one: one.number)

    def reconciled(self) -> list[Reconciled]:
        """What became of the last kept writes."""
        with self._lock:
            return list(self._reports)

    def discard(self, kept: KeptWrite) -> bool:
        """Forget a kept write; False if it was written or forgotten before."""
        with self._landing, self._lock:
            if self._waiting.get(kept.number) is kept:
                self._done(kept)
                return True
            if kept in self._refused:
                self._refused.remove(kept)
                return True
        return False

    def close(self) -> None:
        """Try a last time, and say what is lost."""
        self._timer.close()
        if self._waiting:
            self.step()
        if self._waiting:
            warnings.warn(
                f"{len(self._waiting)} kept write(s) were not written: the engine cannot be "
                "reached, and this process is done with it.",
                CoherenceDegradedWarning,
                stacklevel=3,
            )


def _outside() -> int:
    """The level of the first caller that is no part of Ropewalk, as `warnings.warn` counts.

    Python shows a warning once for each place, so the place must be the user's.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("ropewalk."):
        level, frame = level + 1, frame.f_back
    return level
