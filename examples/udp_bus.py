"""A bus of one's own: invalidations as UDP packets between processes of one machine.

Shows what a bus needs, and no more. What it hears it hands to an `InProcessBus`, which has
the queues and threads that subscribers need.

    bus = UdpBus([47001, 47002], port=47001)
    core = CoherenceCore(store, bus=bus)
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from ropewalk.coherence import InProcessBus, Subscription

BUFFER = 4 * 1024 * 1024


class UdpBus:
    """Sends each message to every peer, itself among them, and may lose it on the way."""

    message_limit = 60_000
    """A packet has room for no more; content that is larger is left out."""

    def __init__(self, peers: list[int], port: int = 0) -> None:
        """Listen on a port, or on any that is free. `peers` are all ports: its own is added."""
        self._local = InProcessBus()
        self._peers = peers
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self._socket.bind(("127.0.0.1", port))
        self._address = self._socket.getsockname()
        self._closed = False
        if self.port not in peers:
            peers.append(self.port)
        threading.Thread(target=self._hear, name="udp-bus", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._address[1]
        return port

    def publish(self, topic: str, message: bytes) -> None:
        """Send a message. Nobody waits for anybody: a packet goes, or is lost."""
        if self._closed or len(message) > self.message_limit:
            return
        for port in self._peers:
            with suppress(OSError):  # A packet that cannot go is lost like any other.
                self._socket.sendto(topic.encode() + b"\0" + message, ("127.0.0.1", port))

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic."""
        return self._local.subscribe(topic, receive, gap)

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._local.on_gap(doubt)

    def close(self) -> None:
        """Hear and tell no more."""
        if not self._closed:
            self._closed = True
            # Wakes the thread, which may have closed the bus's own socket by now.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
                waker.sendto(b"", self._address)
            self._local.close()

    def _hear(self) -> None:
        with self._socket:
            while not self._closed:
                topic, mark, message = self._socket.recvfrom(65_536)[0].partition(b"\0")
                if mark:
                    self._local.publish(topic.decode("utf-8", "replace"), message)
