"""A bus over gRPC: invalidations as frames of one stream between each process and a hub.

The hub hands every frame to every stream. There is no `.proto` file: a frame is the topic, a
zero byte and the message.

    hub = GrpcHub(50051)                          # in one process
    bus = GrpcBus("127.0.0.1:50051")              # in each process
    core = CoherenceCore(store, strategy="lease", bus=bus)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import grpc

from ropewalk.coherence import InProcessBus, Subscription

SERVICE, METHOD = "ropewalk.Bus", "Exchange"
CLIENTS = 64
"""How many processes one hub serves: each stream has a thread."""
WAITING = 10_000
"""How many frames wait for a stream that is slow; more are lost."""
PAUSE = 0.05
PATIENCE = 2.0
"""Seconds for which a new subscriber waits for the hub."""


class GrpcHub:
    """Hands what comes over one stream to all."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._streams: set[SimpleQueue[bytes | None]] = set()
        self._server = grpc.server(ThreadPoolExecutor(CLIENTS))
        handler = grpc.stream_stream_rpc_method_handler(self._exchange)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )
        self.port = self._server.add_insecure_port(f"{host}:{port}")
        self._server.start()

    def stop(self) -> None:
        """End all streams."""
        self._server.stop(None).wait()

    def _exchange(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        if not context.add_callback(lambda: outgoing.put(None)):
            return  # It has ended already.
        self._streams.add(outgoing)
        threading.Thread(target=self._spread, args=(frames,), daemon=True).start()
        yield b""  # From here on it gets everything.
        try:
            yield from iter(outgoing.get, None)
        finally:
            self._streams.discard(outgoing)

    def _spread(self, frames: Iterator[bytes]) -> None:
        with suppress(Exception):  # However a stream ends, gRPC raises.
            for frame in frames:
                for stream in list(self._streams):
                    if stream.qsize() < WAITING:
                        stream.put(frame)


class GrpcBus:
    """A stream to a hub, which is begun again when it breaks."""

    message_limit = 3_000_000
    """gRPC takes 4 MB; content that is larger is left out."""

    def __init__(self, target: str) -> None:
        self._local, self._target = InProcessBus(), target
        self._outgoing: SimpleQueue[bytes | None] | None = None
        self._connected, self._closed = threading.Event(), threading.Event()
        self._stream: Any = None
        threading.Thread(target=self._follow, name="grpc-bus", daemon=True).start()

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message to the stream. It is lost while there is none."""
        outgoing = self._outgoing
        if outgoing is None or outgoing.qsize() >= WAITING:
            return
        if len(message) <= self.message_limit:
            outgoing.put(topic.encode() + b"\0" + message)

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic."""
        subscription = self._local.subscribe(topic, receive, gap)
        if not self._closed.is_set():
            self._connected.wait(PATIENCE)
        return subscription

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._local.on_gap(doubt)

    def close(self) -> None:
        """End the stream."""
        self._closed.set()
        self._connected.set()
        if self._stream is not None:
            self._stream.cancel()
        self._local.close()

    def _follow(self) -> None:
        while not self._closed.is_set():
            # A channel of its own for each try: one that failed would wait longer each time.
            with grpc.insecure_channel(self._target, [("grpc.enable_http_proxy", 0)]) as channel:
                self._exchange(channel)
            self._local.doubt()  # What was sent meanwhile is missing.
            self._closed.wait(PAUSE)

    def _exchange(self, channel: grpc.Channel) -> None:
        outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._stream = channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter(outgoing.get, None))
        if self._closed.is_set():
            self._stream.cancel()
        try:
            for frame in self._stream:
                topic, mark, message = frame.partition(b"\0")
                if mark:
                    self._local.publish(topic.decode(), message)
                else:
                    self._outgoing = outgoing
                    self._local.doubt()  # And again, now that nothing is missing any more.
                    self._connected.set()
        except grpc.RpcError:
            pass
        finally:
            self._connected.clear()
            self._outgoing = None
            outgoing.put(None)
