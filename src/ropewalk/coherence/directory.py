"""The directory: which agents of this client hold which version of which artifact.

A state machine without I/O: it is called with versions and times, and returns transitions.
Safety never depends on a message. An entry may be served only if no newer version is known, no
message may have been lost since it was confirmed, and its strategy or its grant allows it;
otherwise its version is confirmed at the authority first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from ropewalk.coherence.protocol import (
    GRANTED,
    NOTHING,
    UNKNOWN,
    Base,
    Entry,
    Fetched,
    Invalidated,
    State,
    Transition,
    Version,
)

_MOST_DELETIONS: Final = 1024


class Directory:
    """The entries of all agents of one client. Safe to share between threads.

    With `follows`, what is newest is remembered also of artifacts that nobody here holds.
    An agent that is about to hold one may have asked before the message came, which comes once.
    """

    def __init__(self, *, follows: bool = False) -> None:
        self._lock = threading.Lock()
        self._follows = follows
        self._holders: dict[str, dict[str, Entry]] = {}
        self._newest: dict[str, int] = {}
        self._announced: dict[str, int] = {}
        self._deletions: OrderedDict[tuple[str, str], int] = OrderedDict()
        """Which versions were deletions by agents of this client. Only the last ones: they
        matter as long as reads last that began before them."""
        self.gaps = 0
        """How often messages may have been lost. An entry from before is confirmed again first."""

    def after_fork(self) -> None:
        """In a child: the lock may be held by nobody, and messages may have been lost."""
        self._lock = threading.Lock()
        self.gaps += 1
        for holders in self._holders.values():
            for entry in holders.values():
                if entry.token:  # The grant is the parent's.
                    entry.token, entry.deadline, entry.state = 0, 0.0, State.INVALID

    # Looking.

    def entry(self, agent: str, artifact: str) -> Entry | None:
        """What an agent has of an artifact, if anything."""
        holders = self._holders.get(artifact)
        return None if holders is None else holders.get(agent)

    def base(self, agent: str, artifact: str) -> Base:
        """The base of an agent's next write: what it read since its last put, else that put.

        A slow read may end after a newer put of the same agent; then the put counts.
        """
        holders = self._holders.get(artifact)
        entry = None if holders is None else holders.get(agent)
        if entry is None:
            return UNKNOWN
        read, put = entry.read, entry.put
        if read is None or (put is not None and read.number < put.number):
            return Base(put, False)
        return Base(read, True)

    def is_current(self, artifact: str, entry: Entry) -> bool:
        """Whether a copy is current as far as this client knows."""
        return (
            entry.state is not State.INVALID
            and entry.gaps == self.gaps
            and entry.version.number >= self._newest.get(artifact, 0)
        )

    def newest(self, artifact: str) -> int:
        """The newest version that this client knows of; 0 if it knows none."""
        return self._newest.get(artifact, 0)

    def state(self, agent: str, artifact: str, now: float) -> State:
        """The state of an agent at an artifact."""
        entry = self.entry(agent, artifact)
        if entry is None or not self.is_current(artifact, entry):
            return State.INVALID
        if entry.state in GRANTED and now >= entry.deadline:
            return State.INVALID
        return entry.state

    def holders(self, artifact: str) -> list[str]:
        """The agents that have something of an artifact."""
        with self._lock:
            return list(self._holders.get(artifact, ()))

    def held_by(self, agent: str) -> list[str]:
        """The artifacts of which an agent has something."""
        with self._lock:
            return [name for name, holders in self._holders.items() if agent in holders]

    def agents(self) -> list[str]:
        """The agents that have something."""
        with self._lock:
            return sorted({agent for holders in self._holders.values() for agent in holders})

    def __len__(self) -> int:
        return sum(len(holders) for holders in self._holders.values())

    # Events. Each gives the transitions that it made.

    def fetched(
        self, agent: str, artifact: str, version: Version, now: float, gaps: int
    ) -> Fetched:
        """An agent fetched the newest version; `now` and `gaps` are from before the request."""
        with self._lock:
            holders = self._holders.get(artifact)
            entry = None if holders is None else holders.get(agent)
            was_known = entry is not None and entry.version.id == version.id
            if entry is None:
                entry = self._enter(agent, artifact, version)
            entry.confirm(version, now, gaps)
            if version.number > self._newest.get(artifact, 0):
                self._newest[artifact] = version.number
            after = entry.state if entry.state in GRANTED else State.SHARED
            if entry.state is after:
                return Fetched(was_known, [])
            return Fetched(was_known, self._change(artifact, agent, entry, after, "fetch"))

    def committed(
        self, agent: str, artifact: str, version: Version, now: float, gaps: int
    ) -> list[Transition]:
        """An agent's write became a version. Others find out when they look: see `superseded`."""
        with self._lock:
            holders = self._holders.get(artifact)
            entry = None if holders is None else holders.get(agent)
            if entry is None:
                entry = self._enter(agent, artifact, version)
            entry.confirm(version, now, gaps)
            entry.read, entry.put = None, version
            if version.number > self._newest.get(artifact, 0):
                self._newest[artifact] = version.number
            if version.deleted:
                self._note_deletion(agent, artifact, version.number)
            token, before = entry.token, entry.state
            entry.state = after = State.MODIFIED if token else State.SHARED
            trigger = "commit" if token else "commit_cas"
            return [Transition(artifact, agent, before, after, trigger, version.number, token)]

    def read(self, agent: str, artifact: str, version: Version) -> State:
        """An agent was served a version; returns its state. No base if it deleted it since."""
        holders = self._holders.get(artifact)
        entry = None if holders is None else holders.get(agent)
        if entry is None:
            return State.SHARED
        if version.number > self._deletions.get((agent, artifact), 0):
            entry.read = version
        return entry.state

    def put_blindly(self, agent: str, artifact: str, made: Version, own: Version) -> None:
        """After a put that was merged into `made` unseen, make the agent's own value its base."""
        with self._lock:
            entry = self.entry(agent, artifact)
            if entry is not None and entry.put is made:
                entry.put = own

    def superseded(self, artifact: str, trigger: str = "invalidate") -> list[Transition]:
        """Mark the copies that are older than what is known; only the log needs it."""
        with self._lock:
            return list(self._superseded(artifact, trigger))

    def invalidated(self, artifact: str, version: int, since: int) -> Invalidated:
        """A message came: the artifact is at `version`, and the sender announced `since` before.

        It may come late, twice or not at all. If messages between the two are missing, some
        were lost, and perhaps others too: every copy is confirmed before it is served again.
        """
        with self._lock:
            announced = self._announced.get(artifact)
            gap = announced is not None and since > announced
            if gap:
                self.gaps += 1
            if announced is None or version > announced:
                self._announced[artifact] = version
            if not self._learn(artifact, version):
                return Invalidated([], gap)
            return Invalidated(list(self._superseded(artifact, "invalidate")), gap)

    def deleted(self, artifact: str, version: int) -> None:
        """The log says that an artifact was deleted: nothing of it need be remembered.

        An agent that asked before is about to hold what is gone, so every copy is confirmed again.
        """
        with self._lock:
            if artifact not in self._holders and self._newest.get(artifact, 0) <= version:
                self._newest.pop(artifact, None)
                self._announced.pop(artifact, None)
                self.gaps += 1

    def disproved(self, artifact: str, announced: int, version: int) -> None:
        """A message announced a version, but the authority, asked afterwards, is at `version`.

        So the message was wrong, and copies may be served again.
        """
        with self._lock:
            if version < announced == self._newest.get(artifact):
                self._newest[artifact] = version
                self._announced.pop(artifact, None)

    def note_gap(self) -> None:
        """Messages may have been lost: every copy is confirmed before it is served again."""
        with self._lock:
            self.gaps += 1

    def granted(
        self, agent: str, artifact: str, version: Version | None, token: int, deadline: float
    ) -> list[Transition]:
        """An agent got the grant of an artifact; what it has of it was confirmed since."""
        with self._lock:
            entry = self._entry(agent, artifact, version or NOTHING)
            again = entry.token == token
            entry.token, entry.deadline = token, deadline
            if again:
                return []
            return self._change(artifact, agent, entry, State.EXCLUSIVE, "grant")

    def renewed(self, agent: str, artifact: str, token: int, deadline: float) -> None:
        """The time of a grant has begun again."""
        entry = self.entry(agent, artifact)
        if entry is not None and entry.token == token:
            entry.deadline = deadline

    def note_unconfirmed(self, agent: str, artifact: str, base: Base) -> list[Transition]:
        """An agent read or put something that nobody could confirm."""
        version = base.version
        assert version is not None
        with self._lock:
            entry = self._entry(agent, artifact, version)
            entry.version = version
            if base.is_read:
                entry.read = version
            else:
                entry.read, entry.put = None, version
            if entry.state is State.INVALID or entry.token:
                return []
            return self._change(artifact, agent, entry, State.INVALID, "degrade")

    def released(self, agent: str, artifact: str) -> list[Transition]:
        """An agent gave its grant back; its copy stays."""
        return self._ungrant(agent, artifact, State.SHARED, "release")

    def reclaimed(self, agent: str, artifact: str, trigger: str) -> list[Transition]:
        """A grant was taken from an agent, and with it the right to serve its copy."""
        return self._ungrant(agent, artifact, State.INVALID, trigger)

    def recovered(self, agent: str) -> list[Transition]:
        """An agent begins afresh: what it had is not served, nor the base of a write."""
        made: list[Transition] = []
        for artifact in self.held_by(agent):
            made += self.forgotten(agent, artifact, "recover")
        return made

    def emptied(self, agent: str, artifact: str, version: int) -> list[Transition]:
        """An agent found an artifact deleted, or deleted it: it has nothing; a grant stays."""
        with self._lock:
            if version:
                self._learn(artifact, version)
            entry = self._holders.get(artifact, {}).get(agent)
            if entry is not None and entry.token:
                entry.version, entry.read, entry.put = NOTHING, None, None
                return []
        return self.forgotten(agent, artifact, "delete")

    def forgotten(self, agent: str, artifact: str, trigger: str) -> list[Transition]:
        """What an agent had of an artifact is gone."""
        with self._lock:
            entry = self._drop(agent, artifact)
            if entry is None:
                return []
            return self._change(artifact, agent, entry, State.INVALID, trigger)

    # Inside, under the lock.

    def _note_deletion(self, agent: str, artifact: str, version: int) -> None:
        self._deletions[agent, artifact] = version
        self._deletions.move_to_end((agent, artifact))
        if len(self._deletions) > _MOST_DELETIONS:
            self._deletions.popitem(last=False)

    def _drop(self, agent: str, artifact: str) -> Entry | None:
        """Remember nothing of an artifact that nobody here holds, if it is not followed."""
        holders = self._holders.get(artifact, {})
        entry = holders.pop(agent, None)
        if not holders:
            self._holders.pop(artifact, None)
            self._announced.pop(artifact, None)
            if not self._follows:
                self._newest.pop(artifact, None)
        return entry

    def _entry(self, agent: str, artifact: str, version: Version) -> Entry:
        found = self._holders.get(artifact, {}).get(agent)
        return self._enter(agent, artifact, version) if found is None else found

    def _enter(self, agent: str, artifact: str, version: Version) -> Entry:
        made = self._holders.setdefault(artifact, {})[agent] = Entry(version)
        return made

    def _learn(self, artifact: str, version: int) -> bool:
        if version <= self._newest.get(artifact, 0):
            return False
        self._newest[artifact] = version
        return True

    def _superseded(self, artifact: str, trigger: str) -> Iterator[Transition]:
        newest = self._newest.get(artifact, 0)
        for agent, entry in self._holders.get(artifact, {}).items():
            if entry.version.number < newest and entry.state is State.SHARED:
                yield from self._change(artifact, agent, entry, State.INVALID, trigger)

    def _ungrant(self, agent: str, artifact: str, after: State, trigger: str) -> list[Transition]:
        with self._lock:
            entry = self._holders.get(artifact, {}).get(agent)
            if entry is None or not entry.token:
                return []
            token, entry.token, entry.deadline = entry.token, 0, 0.0
            entry.lost = after is State.INVALID
            if entry.version is NOTHING:
                after = State.INVALID
                self._drop(agent, artifact)
            made = self._change(artifact, agent, entry, after, trigger)
            # Of a grant that was taken away, the log says which it was.
            return [one._replace(token=token) for one in made] if entry.lost else made

    def _change(
        self, artifact: str, agent: str, entry: Entry, after: State, trigger: str
    ) -> list[Transition]:
        before, entry.state = entry.state, after
        if before is after and trigger == "fetch":
            return []
        version, token = entry.version.number, entry.token
        return [Transition(artifact, agent, before, after, trigger, version, token)]
