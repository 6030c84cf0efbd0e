"""Writes that were kept while the engine was away: landed, in order, when it answers again."""

from __future__ import annotations

import logging
import threading
import warnings
from collections import deque
from typing import TYPE_CHECKING, Final

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._beat import Beat
from ropewalk.coherence._forking import tell_after_fork
from ropewalk.coherence._outages._kept import (
    MOST_KEPT,
    CoherenceDegradedWarning,
    KeptWrite,
    Known,
    Reconciled,
)
from ropewalk.coherence._protocol import Base
from ropewalk.coherence._wishes import Attempt, Wanted
from ropewalk.errors import (
    Conflict,
    LeaseHeld,
    RopewalkError,
    StoreClosed,
    Unavailable,
    WritesRefused,
)
from ropewalk.store._haste import hasty

if TYPE_CHECKING:
    from ropewalk.coherence._authorities._authority import Sent
    from ropewalk.coherence._client import Client
    from ropewalk.coherence._writing import Writing

_log = logging.getLogger("ropewalk.coherence")

PATIENCE: Final = 1.0
"""Seconds for which a lost connection is tried again before an outage has begun."""
FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_REPORTS: Final = 1000


class Reconciling:
    """What one client knows of an outage, and the writes that it keeps meanwhile."""

    def __init__(self, client: Client, writing: Writing) -> None:
        self._authority, self._directory = client.authority, client.directory
        self._writing = writing
        self._known = Known()
        self._beat = Beat(self, "ropewalk-degraded")
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._landing = threading.Lock()
        self._outage: Unavailable | None = None
        self._pause = FIRST_PAUSE
        self._waiting: dict[int, KeptWrite] = {}
        """By number, in the order in which they were written."""
        self._by_artifact: dict[str, dict[int, KeptWrite]] = {}
        """Of each artifact those that wait."""
        self._refused: list[KeptWrite] = []
        self._reports: deque[Reconciled] = deque(maxlen=_REPORTS)
        self._numbers = 0

    def after_fork(self) -> None:
        """In a child: what was kept is the parent's to write."""
        self._beat.begin_anew()
        self._begin()

    def _add(
        self, agent: str, wanted: dict[str, Wanted], action: str, sent: Sent | None
    ) -> KeptWrite:
        with self._lock:
            if len(self._waiting) + len(self._refused) >= MOST_KEPT:
                raise WritesRefused(
                    f"{MOST_KEPT} writes are kept while the engine cannot be reached, and no more."
                )
            self._numbers += 1
            kept = KeptWrite(self._numbers, agent, action, wanted, sent)
            self._waiting[kept.number] = kept
            for name in kept.wanted:
                self._by_artifact.setdefault(name, {})[kept.number] = kept
            # Under the lock, so that it does not land before the agent has it as its base.
            for name, version in kept.versions.items():
                self._directory.note_unconfirmed(agent, name, Base(version, False))
        self._beat.start()
        return kept

    def _last_kept(self, artifact: str) -> KeptWrite | None:
        if not self._waiting:
            return None
        with self._lock:
            kept = self._by_artifact.get(artifact)
            return None if kept is None else next(reversed(kept.values()))

    def _done(self, kept: KeptWrite) -> None:
        """A write waits no more. Under the lock."""
        del self._waiting[kept.number]
        for name in kept.wanted:
            of_artifact = self._by_artifact[name]
            del of_artifact[kept.number]
            if not of_artifact:
                del self._by_artifact[name]

    def _saw(self, made: dict[str, Artifact | None]) -> dict[str, Artifact | None]:
        for artifact, one in made.items():
            if one is None:
                self._known.gone(artifact)
            elif not one.degraded:
                self._known.saw(artifact, one._version, one._content)
        return made

    def step(self) -> float | None:
        """Ask the engine; if it answers, land what was kept. Seconds until the next try."""
        if self._outage is None and not self._waiting:
            return None
        try:
            with hasty(PATIENCE):
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
            # It answers, and says what is wrong: that is to be heard by who asks it.
            self._outage, held = None, bool(self._waiting)
            self._pause = _LONGEST_PAUSE
        return self._pause if held else None

    def _land_all(self) -> bool:
        """Land what waits, in order; whether some of it waits for grants of others."""
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
                if not held.isdisjoint(kept.wanted) or not self._lands(kept):
                    held.update(kept.wanted)  # What was written after it waits for it.

    def _lands(self, kept: KeptWrite) -> bool:
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
                made = self._landed(kept)
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

    def _landed(self, kept: KeptWrite) -> dict[str, Artifact | None]:
        wanted = kept.rebased or {name: self._based(name, one) for name, one in kept.wanted.items()}

        def unsent(attempt: Attempt, error: Unavailable) -> dict[str, Artifact | None]:
            # Perhaps it was made. Merged once more with what it became, it would count twice.
            kept.rebased, kept.sent = attempt.wanted, attempt.sent._replace(again=True)
            raise error

        made = self._writing.committing.commit(kept.agent, wanted, kept.action, kept.sent, unsent)
        self._saw(made)
        for name, one in made.items():
            if one is None:
                newest = self._authority.newest(name)
                if newest is not None and newest.deleted:
                    kept.versions[name].landed = newest
            elif one._content is kept.wanted[name].content:
                kept.versions[name].landed = one._version
        return made

    def _based(self, artifact: str, wanted: Wanted) -> Wanted:
        """What a kept write was made from, as the engine knows it now."""
        if any(wanted.base in one.versions.values() for one in self._refused):
            raise Conflict(
                f"the write of {artifact!r:.80} was made from another that could not be written. "
                "Look at kept() for both."
            )
        return self._writing.rebasing.settled(artifact, wanted)

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
        self._beat.close()
        if self._waiting:
            self.step()
        if self._waiting:
            warnings.warn(
                f"{len(self._waiting)} kept write(s) were not written: the engine cannot be "
                "reached, and this process is done with it.",
                CoherenceDegradedWarning,
                stacklevel=3,
            )
