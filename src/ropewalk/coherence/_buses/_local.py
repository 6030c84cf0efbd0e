"""The bus inside one process."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.coherence._buses._bus import Subscription
from ropewalk.coherence._buses._delivery import QUEUE
from ropewalk.coherence._buses._exchange import Exchange
from ropewalk.coherence._forking import tell_after_fork


class InProcessBus:
    """A `Bus` for the threads of one process.

    Keeps the order of each sender for each subscriber. `queue` is how many messages may wait
    for one subscriber: the oldest are dropped then, and its `gap` is called. A forked process
    has a bus of its own. It also does the last step of a bus that you write: see `doubt`.
    """

    def __init__(self, *, queue: int = QUEUE) -> None:
        self._exchange = Exchange(queue)
        tell_after_fork(self)

    def listeners(self, topic: str) -> int:
        """How many subscribed to a topic."""
        return self._exchange.listeners(topic)

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message to the queues of its subscribers."""
        self._exchange.deliver(topic, message)

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        return self._exchange.add(topic, receive, gap)

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._exchange.on_gap(doubt)

    def doubt(self) -> None:
        """Tell everybody who asked with `on_gap` that messages may have been lost.

        For a bus over a network that hands what it hears to this one, after it connected again.
        """
        self._exchange.doubt()

    def close(self) -> None:
        """Call nobody any more."""
        self._exchange.close()

    def after_fork(self) -> None:
        """Begin anew in a child."""
        self._exchange.after_fork()
