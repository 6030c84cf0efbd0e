"""The bus over Redis' publish and subscribe."""

from __future__ import annotations

from ropewalk.coherence.local_bus import QUEUE
from ropewalk.coherence.remote_bus import RemoteBus
from ropewalk.errors import InvalidInput
from ropewalk.store.pubsub import PATIENCE
from ropewalk.store.redis.address import read_address


class RedisBus(RemoteBus):
    """A `Bus` over a Redis or Valkey server; `url` is as for `RedisStore`.

    All channels begin with `prefix`: clients that share artifacts share it. Keeps the order of
    each sender. Needs the extra `redis`.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        patience: float = PATIENCE,
    ) -> None:
        try:
            address = read_address(url)
            from ropewalk.store.redis.listener import RedisPubSub
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a bus over Redis needs the package {error.name!r}: pip install 'ropewalk[redis]'"
            ) from error
        super().__init__(RedisPubSub(address, prefix, patience=patience), queue)
