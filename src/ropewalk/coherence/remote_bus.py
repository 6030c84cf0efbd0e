"""Buses over a server: the subscribers of this process, and what carries messages to others."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.coherence.bus import MAX_MESSAGE_BYTES, Subscription
from ropewalk.coherence.local_bus import Exchange
from ropewalk.store.forking import reset_after_fork
from ropewalk.store.pubsub import Topics


class RemoteBus:
    """A `Bus` over a server. Connects when it is first used, and again after each failure.

    In a forked process it connects anew; what the parent subscribed to is listened to there
    after the first call.
    """

    def __init__(self, pubsub: Topics, queue: int) -> None:
        self._pubsub = pubsub
        self._exchange = Exchange(queue)
        pubsub.attach(self._exchange)
        self._closed = False
        reset_after_fork(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._pubsub!r}>"

    @property
    def message_limit(self) -> int:
        """The most bytes that one message may have."""
        return min(self._pubsub.message_limit, MAX_MESSAGE_BYTES)

    @property
    def failures(self) -> int:
        """How often a connection failed."""
        return self._pubsub.failures

    @property
    def lost(self) -> int:
        """How many messages were dropped because the server was away."""
        return self._pubsub.lost

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over; while the server is away, the oldest are dropped."""
        if not self._closed:
            self._pubsub.publish(topic, message)

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        entry = self._exchange.add(topic, receive, gap, self._pubsub.touch)
        self._pubsub.follow(topic)
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._exchange.on_gap(doubt)

    def close(self) -> None:
        """Send what is left if that is quick, and let go of the connections."""
        if not self._closed:
            self._closed = True
            self._pubsub.detach(self._exchange)
            self._pubsub.close()
            self._exchange.close()

    def after_fork(self) -> None:
        """In the child of a fork: reset."""
        self._exchange.after_fork()
