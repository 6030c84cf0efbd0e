"""Items as both places have them: a record of the version here, and the value in another store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Final, NamedTuple

from langgraph.store.base import BaseStore, Item

from ropewalk.adapters.langgraph._coherent_digest import Digester, is_plain
from ropewalk.adapters.langgraph._coherent_identity import NOBODY, Convention
from ropewalk.adapters.langgraph._coherent_keeping import Seen
from ropewalk.adapters.langgraph._coherent_looking import Looked, Records
from ropewalk.adapters.langgraph._coherent_names import split_artifact
from ropewalk.adapters.langgraph._coherent_puts import PutGrants, Waits
from ropewalk.adapters.langgraph._coherent_recording import Adopting, Given, ValueRecorder
from ropewalk.codec import Codec
from ropewalk.coherence import Artifact, CoherenceCore
from ropewalk.coherence.artifact import Content
from ropewalk.coherence.leases import RECLAIM_HEARTBEAT
from ropewalk.coherence.write_path import Proposal, WritePath
from ropewalk.errors import Conflict, GrantLost, VersionConflict

_GLANCE: Final = 0.25
"""How many seconds a read waits for the put of a holder in another process."""


class Pair(NamedTuple):
    """An item as both places have it."""

    looked: Looked
    item: Item | None
    content: Content | None
    agrees: bool
    """Whether its record and its value belong together."""
    moment: float
    """Before it was read."""

    @property
    def version(self) -> int:
        """What its record says; 0 if there is none."""
        return 0 if self.looked.record is None else self.looked.record.version

    def seen(self) -> Seen | None:
        """As an agent sees it."""
        if self.item is None:
            return None
        times = self.item.created_at, self.item.updated_at
        version = self.version if self.agrees else 0
        return Seen(version, self.content, *times, self.moment)

    def given(self) -> Given:
        """As an agent is given it."""
        record, number = self.looked
        if record is None:
            return Given(self.seen(), since=number, writer=NOBODY)
        return Given(self.seen(), record.source, number, writer=record.agent)


class Pairs:
    """Looks at both places, and brings them together. Safe to share between threads."""

    def __init__(
        self,
        core: CoherenceCore,
        convention: Convention,
        base: BaseStore,
        codec: Codec,
        clock: Callable[[], float],
    ) -> None:
        self._convention, self._base, self._codec, self._clock = convention, base, codec, clock
        self._digester = Digester(codec)
        self.recorder = ValueRecorder(core._client.recorder)
        client = replace(core._client, recorder=self.recorder)
        self.records, self.grants = Records(client), PutGrants(core)
        self._writing = WritePath(client, self.records, self.grants, None, "raise")
        client = replace(client, recorder=Adopting(core._client.recorder))
        self._adopting = WritePath(client, self.records, self.grants, None, "raise")

    # Looking.

    def stored(self, artifact: str, refresh: bool | None) -> Item | None:
        """What the other store has."""
        scope, key = split_artifact(artifact)
        return self._base.get(self._convention.home(scope), key, refresh_ttl=refresh)

    def pair(self, agent: str, artifact: str, refresh: bool | None) -> Pair:
        """What both places have of an item now."""
        moment = self._clock()
        looked = self.records.look(agent, [artifact])[artifact]
        return self.of(looked, self.stored(artifact, refresh), moment)

    def of(self, looked: Looked, item: Item | None, moment: float) -> Pair:
        """A record and an item, compared."""
        # A copy, before anything is made of it: others may change the value in its place.
        content = None if item is None else Content.of(item.value, self._codec)
        value = None if content is None else content.fresh()
        return Pair(looked, item, content, self._digester.agree(looked.record, value), moment)

    def is_same(self, one: Content | None, other: Content | None) -> bool:
        """Whether two values have one digest."""
        if one is None or other is None:
            return False
        return self._digester.digest(one.fresh()) == self._digester.digest(other.fresh())

    def kept(self, artifact: str, content: Content) -> Content:
        """What the other store made of a value that it was given.

        Who logs hashes wants that of what readers will get, in whose dicts the keys may have
        another order.
        """
        if is_plain(content.fresh()) and not self.recorder.wants_hashes:
            return content
        back = self.stored(artifact, False)
        return content if back is None else Content.of(back.value, self._codec)

    # Bringing together.

    def waits(self) -> Waits:
        """How long a read waits for those who write what it finds."""
        return self.grants.waits(_GLANCE)

    def agreed(self, agent: str, artifact: str, pair: Pair, waits: Waits) -> Pair:
        """An item once its record and its value belong together.

        They may still not if somebody holds it. Then nobody can give its value a version.
        """
        while not pair.agrees:
            writer = agent if self.grants.is_held_by(agent, artifact) else NOBODY
            try:
                with self.grants.taken(writer, [artifact]):
                    return self.settled(writer, artifact)
            except Conflict:
                # Somebody writes just now, or holds it.
                pair = self.pair(agent, artifact, False)
                if not pair.agrees and not waits.pause(artifact):
                    break
        return pair

    def settled(self, agent: str, artifact: str) -> Pair:
        """Under a grant: what is there, with a version for what was written without us."""
        pair = self.pair(agent, artifact, False)
        if pair.agrees:
            return pair
        with self.grants.lent(agent, artifact):
            made = self._write(
                self._adopting, NOBODY, {artifact: pair.content}, {artifact: pair.version}
            )
        record = made[artifact]
        if record is None:
            return pair._replace(looked=Looked(None, pair.looked.number + 1), agrees=True)
        record.source = "fetch"  # Who asked for it has not written it.
        return pair._replace(looked=Looked(record, record.version), agrees=True)

    def write(
        self,
        agent: str,
        contents: Mapping[str, Content | None],
        versions: Mapping[str, int],
        replaced: Set[str],
    ) -> dict[str, Artifact | None]:
        """Make values the next versions, all at one moment; None is a deletion.

        Those in `replaced` take the place of what their agent has not read.
        """
        try:
            return self._write(self._writing, agent, contents, versions, replaced)
        except VersionConflict as conflict:
            # Under the grant nobody else can write. What was put may be a version by now, so
            # nobody may take this for a conflict, and put it again.
            raise GrantLost(conflict.key, agent, RECLAIM_HEARTBEAT) from conflict

    def _write(
        self,
        writing: WritePath,
        agent: str,
        contents: Mapping[str, Content | None],
        versions: Mapping[str, int],
        replaced: Set[str] = frozenset(),
    ) -> dict[str, Artifact | None]:
        records = {
            name: None if content is None else self._digester.record(content)
            for name, content in contents.items()
        }
        proposed = {
            name: Proposal(one, versions[name], replaces=name in replaced)
            for name, one in records.items()
        }
        try:
            return writing.write(agent, proposed, "publish")
        finally:
            for one in records.values():
                if one is not None:
                    one.stands_for = None  # Records are kept for long, values are not.
