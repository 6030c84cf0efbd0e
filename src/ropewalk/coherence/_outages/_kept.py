"""Writes that were made while the engine could not be reached, and what became of them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._authorities._authority import Sent
from ropewalk.coherence._content import Content
from ropewalk.coherence._protocol import Version
from ropewalk.coherence._wishes import Unwritten, Wanted
from ropewalk.store.forking import freed_after_fork

MOST_KEPT: Final = 10_000
_MOST_BYTES: Final = 64 << 20


class CoherenceDegradedWarning(UserWarning):
    """The engine of shared artifacts cannot be reached, and reads give the last values known."""


class KeptWrite:
    """A write of an agent that is kept until the engine answers; see `CoherenceCore.kept`.

    `error` is None while it waits. After a conflict it says what it met; the write stays
    here until it is discarded.
    """

    __slots__ = (
        "action",
        "agent",
        "error",
        "number",
        "rebased",
        "sent",
        "time",
        "versions",
        "wanted",
    )

    def __init__(
        self, number: int, agent: str, action: str, wanted: dict[str, Wanted], sent: Sent | None
    ) -> None:
        self.number, self.agent, self.action = number, agent, action
        self.wanted = wanted
        self.rebased: dict[str, Wanted] | None = None
        """What was last sent to the engine, perhaps merged with what others wrote."""
        self.sent = Sent.now() if sent is None else sent._replace(again=True)
        self.time = time.time_ns() // 1000
        self.error: Exception | None = None
        self.versions = {name: self._version(one.content, one.base) for name, one in wanted.items()}

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The names of what it writes."""
        return tuple(self.wanted)

    @property
    def values(self) -> dict[str, Any]:
        """What it writes, by artifact; None where it takes one away."""
        contents = {name: one.content for name, one in self.wanted.items()}
        return {name: None if one is None else one.fresh() for name, one in contents.items()}

    @property
    def based_on(self) -> dict[str, int]:
        """The versions that it was made from, by artifact; 0 for none."""
        return {name: one.number for name, one in self.versions.items()}

    def __repr__(self) -> str:
        met = "" if self.error is None else f": {type(self.error).__name__}"
        return f"<KeptWrite {self.number} of {list(self.wanted)!r:.80} by {self.agent!r}{met}>"

    def _version(self, content: Content | None, base: Version | None) -> Unwritten:
        number = 0 if base is None else base.number
        return Unwritten.of(number, self.agent, self.time, content, deleted=content is None)


class Reconciled(NamedTuple):
    """What became of a kept write."""

    write: KeptWrite
    artifacts: Mapping[str, Artifact]
    """The versions that it became."""
    error: Exception | None
    """What it met instead: then it is still among the kept ones."""


class Known:
    """The last version of each artifact that anybody in this process saw, up to some bytes."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self._held: OrderedDict[str, tuple[Version, Content]] = OrderedDict()
        self._bytes = 0

    def get(self, artifact: str) -> tuple[Version, Content] | None:
        """The last version, and what it held."""
        return self._held.get(artifact)

    def saw(self, artifact: str, version: Version, content: Content) -> None:
        """Somebody got a version from the engine."""
        known = self._held.get(artifact)
        if known is not None and known[0].number >= version.number:
            return
        with self._lock:
            self._forget(artifact)
            self._held[artifact] = version, content
            self._bytes += len(content)
            while self._bytes > _MOST_BYTES and len(self._held) > 1:
                self._forget(next(iter(self._held)))

    def gone(self, artifact: str) -> None:
        """The artifact is not there."""
        if artifact in self._held:
            with self._lock:
                self._forget(artifact)

    def _forget(self, artifact: str) -> None:
        before = self._held.pop(artifact, None)
        if before is not None:
            self._bytes -= len(before[1])
