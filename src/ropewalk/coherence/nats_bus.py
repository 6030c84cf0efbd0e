"""The bus over NATS."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ropewalk.coherence.bus import MAX_MESSAGE_BYTES, QUEUE
from ropewalk.coherence.remote_bus import RemoteBus
from ropewalk.errors import InvalidInput, Unavailable
from ropewalk.store.pubsub import CLOSES, OUTBOX, Topics
from ropewalk.store.retry import pauses
from ropewalk.store.validation import expect

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

_PATIENCE = 2
_FLUSHES = 0.5
_RETRIES = 0.1


class NatsBus(RemoteBus):
    """A `Bus` over one or several NATS servers, `nats://user:password@host:port`.

    All subjects begin with `prefix`: clients that share artifacts share it. `options` are those
    of `nats.connect`, for example `user_credentials=` or `tls=`. Keeps the order of each sender.
    It has an event loop of its own, on a thread of its own. In a forked process it connects
    again; what the parent subscribed to is listened to there after the first call. Needs the
    extra `nats`.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "nats://127.0.0.1:4222",
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        **options: Any,
    ) -> None:
        try:
            import nats  # noqa: F401 - whether it is there is said now, not on a thread
        except ModuleNotFoundError as error:
            raise InvalidInput(
                "a bus over NATS needs the package 'nats-py': pip install 'ropewalk[nats]'"
            ) from error
        addresses = _addresses([servers] if isinstance(servers, str) else servers)
        super().__init__(_NatsTopics(addresses, prefix, options), queue)


class _NatsTopics(Topics):
    """The subjects of one prefix, over a client on a thread of its own."""

    def __init__(self, servers: list[str], prefix: str, options: dict[str, Any]) -> None:
        self._servers, self._prefix, self._options = servers, prefix, options
        self._left_behind: list[object] = []
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._outbox: deque[tuple[str, bytes]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None

    def __repr__(self) -> str:
        places = [urlsplit(one) for one in self._servers]
        shown = ", ".join(f"{one.hostname}:{one.port or 4222}" for one in places)
        return f"NATS at {shown}"

    @property
    def message_limit(self) -> int:
        """The most bytes that one message may have, as the server says."""
        client = self._client
        return MAX_MESSAGE_BYTES if client is None else client.max_payload

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over; while the server is away, the oldest are dropped."""
        if self._over.is_set():
            return
        self._outbox.append((topic, message))
        if self._thread is None:
            self.touch_all()  # In a forked process, the parent's subscriptions go on.
        self._rouse()
        if len(self._outbox) > OUTBOX:
            with suppress(IndexError):
                self._outbox.popleft()
                self.lost += 1

    def _close(self) -> None:
        thread = self._thread
        if thread is not None:
            self._ring()
            if thread is not threading.current_thread():
                thread.join(CLOSES)

    def after_fork(self) -> None:
        """In the child of a fork: drop the parent's connection without closing it."""
        self._left_behind += [self._loop, self._client, self._news]
        super().after_fork()

    # Other threads.

    def _rouse(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=lambda: asyncio.run(self._run()), name="ropewalk-bus", daemon=True
                    )
                    self._thread.start()
        self._ring()

    def _ring(self) -> None:
        loop, news = self._loop, self._news
        if loop is not None and news is not None and not news.is_set():
            with suppress(RuntimeError):  # The loop ended.
                loop.call_soon_threadsafe(news.set)

    # The thread of the loop.

    async def _run(self) -> None:
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        pause, first = pauses(), True
        while not self._over.is_set():
            try:
                self._client = await self._connect()
                self._connected()
                pause = pauses()
                await self._serve(self._client, doubted=first)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is tried again
                first = False
                self._failed(error)
            self._disconnected()
            await self._drop()
            if not self._over.is_set():
                await self._sleep(next(pause))

    async def _connect(self) -> Client:
        from nats.aio.client import Client

        async def ring(*_: Any) -> None:
            assert self._news is not None
            self._news.set()

        settings: dict[str, Any] = {
            "connect_timeout": _PATIENCE,
            "ping_interval": _PATIENCE,
            "max_outstanding_pings": 2,
            **self._options,
            # Lost messages must be reported, so connecting again is not left to the driver.
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": _RETRIES,
            "closed_cb": ring,
            "disconnected_cb": ring,
            "error_cb": ring,
        }
        client = Client()
        connecting = asyncio.ensure_future(client.connect(self._servers, **settings))
        try:
            while not connecting.done():
                await asyncio.wait({connecting}, timeout=_RETRIES)
                if self._over.is_set():
                    connecting.cancel()
            await connecting
        except BaseException:
            _let_go(client)
            raise
        return client

    async def _serve(self, client: Client, *, doubted: bool) -> None:
        """Send and listen until the connection fails or the bus is closed."""
        assert self._news is not None
        subscriptions: dict[str, NatsSubscription] = {}
        while not client.is_closed:
            self._news.clear()
            await self._change(client, subscriptions)
            if not doubted and self._follows_all():
                # Not before all is followed again: from now on everything is received.
                self._doubt()
                doubted = True
            await self._send(client)
            if self._over.is_set():
                return
            await self._news.wait()
        raise Unavailable("the connection ended")

    async def _change(self, client: Client, known: dict[str, NatsSubscription]) -> None:
        follow, leave = self._changes()
        for topic in leave:
            await known.pop(topic).unsubscribe()
        for topic in follow:
            known[topic] = await client.subscribe(self._subject(topic), cb=self._handler(topic))
        if follow:
            await client.flush(timeout=_PATIENCE)  # Now the server knows them.
            for topic in follow:
                self._confirm(topic)

    async def _send(self, client: Client) -> None:
        while self._outbox:
            topic, message = self._outbox[0]
            if len(message) > client.max_payload:
                self.lost += 1
            else:
                await client.publish(self._subject(topic), message)
            with suppress(IndexError):  # It may have been dropped meanwhile.
                if self._outbox[0] == (topic, message):
                    self._outbox.popleft()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        with suppress(Exception):
            if self._over.is_set() and not client.is_closed:
                await asyncio.wait_for(client.close(), _FLUSHES)
        _let_go(client)
        with suppress(Exception):
            await asyncio.wait_for(client.close(), _FLUSHES)

    async def _sleep(self, seconds: float) -> None:
        """Wait, unless the bus is closed."""
        until = asyncio.get_running_loop().time() + seconds
        while not self._over.is_set():
            assert self._news is not None
            self._news.clear()
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    def _handler(self, topic: str) -> Callable[[Msg], Awaitable[None]]:
        async def handle(message: Msg) -> None:
            self._deliver(topic, message.data)

        return handle

    def _subject(self, topic: str) -> str:
        """A topic as NATS spells it: parts with dots between."""
        return f"{self._prefix}.{topic.replace('.', '%2E').replace('/', '.')}"


def _let_go(client: Client) -> None:
    """End what a client leaves behind that could not connect, or whose server is silent."""
    for subscription in list(client._subs.values()):
        subscription._stop_processing()
    writer = getattr(client._transport, "_io_writer", None)
    if writer is not None:
        writer.transport.abort()


def _addresses(given: Iterable[str]) -> list[str]:
    """URLs of servers, checked; a host alone is one."""
    found = [one if "://" in str(one) else f"nats://{one}" for one in given]
    for one in found:
        expect(bool(urlsplit(one).hostname), "a server of NATS is nats://host:port", one)
    expect(bool(found), "a bus over NATS needs a server", found)
    return found
