"""What agents share: artifacts, their versions and content, and the states of copies. Pure."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from itertools import count
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import ormsgpack

from ropewalk.codec import Codec, check_canonical
from ropewalk.errors import NotStorable
from ropewalk.tree import ObjectId, TreeWriter


class State(StrEnum):
    """What an agent may do with its copy of an artifact."""

    MODIFIED = "MODIFIED"
    """It holds the grant and has written under it: nobody else may write."""
    EXCLUSIVE = "EXCLUSIVE"
    """It holds the grant: nobody else may write."""
    SHARED = "SHARED"
    """It has a copy, which may be served as its strategy says."""
    INVALID = "INVALID"
    """It has no copy that may be served."""


GRANTED: Final = (State.EXCLUSIVE, State.MODIFIED)


Note: TypeAlias = Mapping[str, Any]
"""What the writer of a version says of it beside its value: plain, and small."""


class Version:
    """One version of an artifact. Numbers begin at 1 and are never used again."""

    __slots__ = (
        "agent",
        "content",
        "created",
        "deleted",
        "id",
        "note",
        "number",
        "replaced",
        "time",
    )

    def __init__(
        self,
        number: int,
        id: bytes,
        agent: str,
        time: int,
        deleted: bool = False,
        content: Content | None = None,
        created: int | None = None,
        note: Note | None = None,
    ) -> None:
        self.number = number
        self.id = id
        """Tells versions apart, whatever their numbers; equal ids are one version."""
        self.agent, self.time = agent, time
        self.created = time if created is None else created
        """When the artifact came to be: at its first version, or the first after a deletion."""
        self.deleted = deleted
        self.content, self.note = content, note
        self.replaced = False
        """Whether it replaced what its writer had not read; only the local authority sets it."""

    def __repr__(self) -> str:
        gone = " deleted" if self.deleted else ""
        return f"<Version {self.number}{gone} by {self.agent!r}>"


class Entry:
    """What one agent has of one artifact."""

    __slots__ = (
        "confirmed",
        "deadline",
        "gaps",
        "lost",
        "put",
        "read",
        "reads",
        "state",
        "token",
        "version",
    )

    def __init__(self, version: Version) -> None:
        self.version = version
        """The newest version that was confirmed for it, which it may be served."""
        self.read: Version | None = None
        """What it read since it last put; None if nothing."""
        self.put: Version | None = None
        """What it last put."""
        self.state = State.INVALID
        self.confirmed = 0.0
        """From before the request that found this version to be the newest."""
        self.reads = count()
        """Numbers the reads since; two threads never get the same number."""
        self.gaps = -1
        self.token = 0
        """The fencing token of its grant; 0 without one."""
        self.deadline = 0.0
        """Until when its grant lasts, on this client's clock."""
        self.lost = False
        """Whether its grant was taken away, and the authority was not asked since."""

    def confirm(self, version: Version, now: float, gaps: int) -> None:
        """A version was the newest after `now`."""
        if version.id == self.version.id and now < self.confirmed:
            return  # Another thread asked later, and was answered sooner.
        self.version, self.confirmed, self.gaps = version, now, gaps
        self.reads = count()
        self.lost = False


class Base(NamedTuple):
    """What a value was made from."""

    version: Version | None
    """None if its writer has neither read nor put the artifact."""
    is_read: bool
    """Whether its writer read that version; else it only put it."""


class Transition(NamedTuple):
    """A change of state, for the log."""

    artifact: str
    agent: str
    before: State
    after: State
    trigger: str
    version: int
    token: int = 0
    """Of the grant that the agent has then; 0 without one."""
    home: str = ""
    """The client that the agent is in, if that is another one."""


class Fetched(NamedTuple):
    """What a confirmed version made of the directory."""

    was_known: bool
    """Whether it is the one that the agent had."""
    transitions: list[Transition]


class Invalidated(NamedTuple):
    """What a message made of the directory."""

    transitions: list[Transition]
    gap: bool
    """Whether messages before it were lost."""


NOTHING: Final = Version(0, b"", "", 0)
"""Stands for an artifact of which nothing was read yet."""

UNKNOWN: Final = Base(None, False)
"""The base of a value whose writer has neither read nor put the artifact."""


_ENTRY: Final = 200
"""About how many bytes an entry of a cache takes beside its content."""

_PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})


class Content:
    """A value that nobody can change, as its one encoding.

    `fresh` gives a copy. A value that was decoded to be read here is given to the first who
    asks, so it is decoded once; a dict of plain leaves is copied instead of decoded.
    """

    __slots__ = ("_codec", "_decoded", "_flat", "_plain", "_root", "encoded", "unverified")

    def __init__(
        self, encoded: bytes, codec: Codec, flat: Any = None, *, unverified: bool = False
    ) -> None:
        self.encoded = encoded
        self.unverified = unverified
        """Whether it came with a message, and nobody has compared it with the store yet."""
        self._codec = codec
        self._flat = flat
        self._decoded: list[Any] | None = None
        self._plain = True
        """Whether it may be that msgpack alone says everything."""
        self._root: ObjectId | None = None

    @classmethod
    def of(cls, value: Any, codec: Codec) -> Content:
        """What a caller handed over; raises `NotStorable`."""
        if type(value) is dict:
            # The copy is what is encoded too: another thread may change the value meanwhile.
            flat = value.copy()
            if _PLAIN.issuperset(map(type, flat.values())) and _PLAIN.issuperset(map(type, flat)):
                return cls(codec.encode(flat), codec, flat)
        return cls(codec.encode(value), codec)

    def holding(self, value: Any) -> Content:
        """The same, which gives its value, that nobody else has, to the first who asks."""
        if self._flat is None:
            self._decoded = [value]
        return self

    def fresh(self) -> Any:
        """The value, which is the caller's own to change."""
        if self._flat is not None:
            return self._flat.copy()
        if self._decoded:
            try:
                return self._decoded.pop()
            except IndexError:
                pass  # Another thread was given it.
        if self._plain:
            try:
                return ormsgpack.unpackb(self.encoded)
            except ValueError:
                self._plain = False  # It holds what only the codec knows.
        return self._codec.decoder().decode(self.encoded)

    def holds(self, value: Any) -> bool:
        """Whether it is exactly this value."""
        try:
            return self._codec.encode(value) == self.encoded
        except NotStorable:
            return False

    def check(self) -> None:
        """Raise `FormatError` unless the bytes are the one encoding of a value."""
        check_canonical(self.encoded)

    def root(self) -> ObjectId:
        """The root of the value's tree: equal values have equal roots."""
        if self._root is None:
            self._root = TreeWriter(self._codec).write_encoded(self.encoded, self.fresh).root
        return self._root

    def __len__(self) -> int:
        return len(self.encoded)


class ContentCache:
    """Contents by the ids of their versions, up to so many bytes. Safe to share."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: OrderedDict[bytes, Content] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """In a child: the lock may be held by nobody."""
        self._lock = threading.Lock()

    def get(self, id: bytes) -> Content | None:
        """The content of a version, if it is here."""
        with self._lock:
            found = self._held.get(id)
            if found is not None:
                self._held.move_to_end(id)
            return found

    def put(self, id: bytes, content: Content) -> None:
        """Keep a content, and evict those that were not used for longest."""
        with self._lock:
            before = self._held.pop(id, None)
            if before is not None:
                self._bytes -= len(before.encoded) + _ENTRY
            self._held[id] = content
            self._bytes += len(content.encoded) + _ENTRY
            while self._bytes > self._most and len(self._held) > 1:
                _, evicted = self._held.popitem(last=False)
                self._bytes -= len(evicted.encoded) + _ENTRY

    def __len__(self) -> int:
        return len(self._held)


Source: TypeAlias = Literal["cache_hit", "fetch", "broadcast", "write", "search"]
"""Where what was read came from."""

_UNREAD: Final = object()


class Artifact:
    """A version of an artifact, as one agent got it.

    `value` is the caller's own: changing it changes nothing else.
    """

    __slots__ = (
        "_value",
        "content",
        "degraded",
        "merged",
        "name",
        "origin",
        "replaced",
        "source",
        "state",
    )

    def __init__(
        self,
        name: str,
        version: Version,
        content: Content,
        state: State,
        source: Source,
        degraded: bool = False,
        merged: bool = False,
        replaced: bool = False,
    ) -> None:
        self.name = name
        self._value: Any = _UNREAD
        self.state, self.source = state, source
        self.degraded = degraded
        """Whether the engine could not be asked: then this is the last value known."""
        self.merged = merged
        """Whether this write was merged with what others wrote, so that it holds more."""
        self.replaced = replaced
        """Whether this write took the place of what others wrote and its agent had not read."""
        self.origin = version
        """The version that it is, as what a later write is compared with."""
        self.content = content
        """What it holds, which nobody can change."""

    @property
    def value(self) -> Any:
        """What it holds. Made when first asked for: a writer rarely wants it back."""
        if self._value is _UNREAD:
            self._value = self.content.fresh()
        return self._value

    @property
    def version(self) -> int:
        """Its number: 1, 2, 3 and so on, never used again."""
        return self.origin.number

    @property
    def agent(self) -> str:
        """Who wrote it."""
        return self.origin.agent

    @property
    def time(self) -> int:
        """When it was written, in microseconds since 1970. Only for people."""
        return self.origin.time

    @property
    def created(self) -> int:
        """When the artifact came to be, or came back after it was deleted; as `time`."""
        return self.origin.created

    def again(self) -> Artifact:
        """The same, with a value of its own."""
        made = Artifact(self.name, self.origin, self.content, self.state, self.source)
        made.degraded, made.merged, made.replaced = self.degraded, self.merged, self.replaced
        return made

    def holds(self, value: Any) -> bool:
        """Whether its value is exactly this one, whatever became of the caller's copy."""
        return self.content.holds(value)

    @property
    def content_hash(self) -> str:
        """The root of the value's tree, in hex: equal values have equal hashes."""
        return self.content.root().hex()

    def __repr__(self) -> str:
        mark = " degraded" if self.degraded else ""
        about = f"{self.name!r} version {self.version} by {self.agent!r:.80}"
        return f"<Artifact {about}{mark}: {self.value!r:.80}>"
