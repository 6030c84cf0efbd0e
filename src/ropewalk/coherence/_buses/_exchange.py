"""Who subscribed to what in this process. Every bus of ours hands what it hears to one of these."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.coherence._buses._delivery import QUEUE, Crew, Mailbox


class Exchange:
    """Topics, and the subscribers of each. Safe to share."""

    def __init__(self, queue: int = QUEUE) -> None:
        self._queue = queue
        self._topics: dict[str, dict[Mailbox, None]] = {}
        self._doubters: dict[Mailbox, None] = {}
        self._gaps: dict[Mailbox, None] = {}
        self._crew = Crew()

    @property
    def failures(self) -> int:
        """How often a subscriber raised."""
        return self._crew.failures

    def listeners(self, topic: str) -> int:
        """How many subscribed to a topic."""
        boxes = self._topics.get(topic)
        return 0 if boxes is None else len(boxes)

    def topics(self) -> list[str]:
        """What somebody subscribed to."""
        with self._crew.lock:
            return list(self._topics)

    def deliver(self, topic: str, message: bytes) -> None:
        """Let the subscribers of a topic be called."""
        if topic not in self._topics:
            return
        with self._crew.lock:
            self._crew.put(self._topics.get(topic, ()), message)

    def doubt(self) -> None:
        """Let everybody know that messages may have been lost."""
        with self._crew.lock:
            self._crew.put(self._doubters, b"")

    def add(
        self,
        topic: str,
        receive: Callable[[bytes], None],
        gap: Callable[[], None] | None,
        last: Callable[[str], None] = lambda _: None,
    ) -> Entry:
        """Subscribe; `last` is called with the topic when nobody listens to it any more."""
        box = Mailbox(receive, self.doubt, limit=self._queue, name=topic)
        entry = Entry(self, topic, box, gap, last)
        if gap is not None:
            box.overflow = entry.overflowed
        with self._crew.lock:
            self._topics.setdefault(topic, {})[box] = None
            self._crew.put((), b"")  # In a child: whoever is to be told of the fork, is now.
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` whenever messages may have been lost; the way to stop that."""
        box = gap_box(doubt, "the bus")
        with self._crew.lock:
            self._doubters[box] = None

        def stop() -> None:
            box.closed = True
            with self._crew.lock:
                self._doubters.pop(box, None)

        return stop

    def remove(self, topic: str, box: Mailbox, gap_box: Mailbox | None) -> bool:
        """Forget a subscriber; whether it was the last of its topic."""
        with self._crew.lock:
            if gap_box is not None:
                self._gaps.pop(gap_box, None)
            boxes = self._topics.get(topic)
            if boxes is None or box not in boxes:
                return False
            del boxes[box]
            box.waiting.clear()
            if boxes:
                return False
            del self._topics[topic]
            return True

    def close(self) -> None:
        """Call nobody any more."""
        self._crew.close()
        with self._crew.lock:
            self._topics.clear()
            self._doubters.clear()

    def after_fork(self) -> list[str]:
        """Begin anew in a child: what was under way is lost. What was subscribed to."""
        self._crew.begin()
        for boxes in (self._doubters, self._gaps, *self._topics.values()):
            for box in boxes:
                box.empty()
        self._crew.put_later(self._doubters, b"")
        return list(self._topics)

    def tell_gap(self, box: Mailbox) -> None:
        """Let one be called that is told of its own gaps."""
        self._gaps[box] = None
        self._crew.put((box,), b"")


def gap_box(gap: Callable[[], None], name: str) -> Mailbox:
    """What waits for somebody who is told of gaps: one of them says it all."""
    return Mailbox(lambda _: gap(), None, limit=1, name=f"gaps of {name}")


class Entry:
    """One subscription."""

    __slots__ = ("_box", "_exchange", "_gap", "_gap_box", "_last", "_topic")

    def __init__(
        self,
        exchange: Exchange,
        topic: str,
        box: Mailbox,
        gap: Callable[[], None] | None,
        last: Callable[[str], None],
    ) -> None:
        self._exchange, self._topic, self._box = exchange, topic, box
        self._gap, self._last = gap, last
        self._gap_box: Mailbox | None = None

    @property
    def lost(self) -> int:
        """How many messages were dropped because this subscriber was too slow."""
        return self._box.lost

    def overflowed(self) -> None:
        """Something was dropped: the subscriber is told. Called under the lock."""
        if self._gap_box is None:
            assert self._gap is not None
            self._gap_box = gap_box(self._gap, self._topic)
        self._exchange.tell_gap(self._gap_box)

    def close(self) -> None:
        """Receive no more."""
        self._box.closed = True
        if self._gap_box is not None:
            self._gap_box.closed = True
        if self._exchange.remove(self._topic, self._box, self._gap_box):
            self._last(self._topic)
