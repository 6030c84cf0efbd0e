"""What a bus is, what it carries, and under which names.

A bus carries hints. It may lose, delay, repeat and reorder them, and nothing becomes wrong:
what is served is decided by versions and leases. A bus that does its work makes it fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import ormsgpack

from ropewalk.coherence._authorities._names import branch_of
from ropewalk.errors import FormatError
from ropewalk.store._names import encode_part

if TYPE_CHECKING:
    from ropewalk.store import Store

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A longer message is not read: content of that size is fetched."""

_FORMAT = 1
_FRONT = bytes([_FORMAT])
_TYPES = ([str, int, int, int, str, str, type(None)], [str, int, int, int, str, str, bytes])


class Subscription(Protocol):
    """The right to be called with the messages of a topic."""

    def close(self) -> None:
        """Receive no more: no call begins after this. Closing again does nothing."""


@runtime_checkable
class Bus(Protocol):
    """Carries messages to whoever subscribed to their topic, soon and perhaps.

    Safe to use from any thread. Beside these methods a bus may have `listeners(topic) -> int`,
    if it knows how many subscribed, wherever they are, and `message_limit: int`, if it cannot
    carry more bytes in one message. Then nothing is sent where nobody listens, and content
    that is too large is left out.
    """

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over. Waits neither for subscribers nor for a server, and may lose it.

        A server that is away is no error.
        """

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus, one at a time.

        `gap` is called when messages of this subscription may have been lost, for example
        because it was too slow. What is lost for everybody is told by `on_gap`. A subscription
        is in force when this returns, unless the server is away: then `on_gap` is told as soon
        as it is.
        """

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` whenever messages may have been lost; the way to stop that.

        A bus that lost its connection calls it then, and once it hears everything again.
        """

    def close(self) -> None:
        """Let go of everything; nobody is called any more. Closing again does nothing."""


class Invalidation(NamedTuple):
    """One message: an artifact is at `version` now."""

    artifact: str
    version: int
    since: int
    """The version up to which the sender told before: news of those between may be on its way."""
    sequence: int
    """The number of the space's operation that made the version."""
    issuer: str
    """The agent that wrote it."""
    instance: str
    """The client that sent this."""
    content: bytes | None = None
    """What was written, where the strategy sends it along."""

    def encode(self) -> bytes:
        """The one spelling of this message."""
        return _FRONT + ormsgpack.packb(list(self))

    @classmethod
    def decode(cls, data: bytes) -> Invalidation:
        """Read a message; `FormatError` if it is not one of ours."""
        if type(data) is not bytes or not data or len(data) > MAX_MESSAGE_BYTES:
            raise FormatError("this is no invalidation: it has no bytes, or too many")
        if data[0] != _FORMAT:
            raise FormatError(f"an invalidation of format {data[0]}: this version reads {_FORMAT}")
        try:
            record = ormsgpack.unpackb(data[1:])
        except ValueError as error:
            raise FormatError(f"an invalidation cannot be read: {error}") from None
        if type(record) is not list or [type(part) for part in record] not in _TYPES:
            raise FormatError("an invalidation's record is not Ropewalk's")
        found = cls(*record)
        if not 0 <= found.since < found.version or found.sequence < 0 or found.artifact == "":
            raise FormatError("an invalidation's numbers are not Ropewalk's")
        if found.encode() != data:
            raise FormatError("an invalidation is not in its one accepted form")
        return found

    def merged(self, other: Invalidation) -> Invalidation:
        """One message for two of the same artifact: the newer, since what the older knew."""
        newer = self if self.version >= other.version else other
        since = min(self.since, other.since)
        return newer if since == newer.since else newer._replace(since=since)


class Receiver:
    """Reads messages for a function that takes invalidations; what is not one, is dropped.

    So is what tells of another artifact than the one whose topic it came by.
    """

    __slots__ = ("_artifact", "_handle", "dropped")

    def __init__(self, handle: Callable[[Invalidation], None], artifact: str | None = None) -> None:
        self._handle, self._artifact = handle, artifact
        self.dropped = 0
        """How many messages were no invalidations."""

    def __call__(self, message: bytes) -> None:
        try:
            found = Invalidation.decode(message)
        except FormatError:
            self.dropped += 1
            return
        if self._artifact in (None, found.artifact):
            self._handle(found)
        else:
            self.dropped += 1


def place_of(store: Store, space: str) -> str:
    """A space of one store, as topics name it: stores that share a server do not meet there."""
    return f"{store.header.store_id.hex()}/{space}"


@lru_cache(maxsize=4096)
def topic_of(place: str, artifact: str) -> str:
    """The topic of one artifact of a place, which `place_of` names."""
    return f"{place}/{encode_part(branch_of(artifact))}"


def space_topic(place: str) -> str:
    """The topic of everything at a place."""
    return place
