"""The bus over Postgres' LISTEN and NOTIFY."""

from __future__ import annotations

from ropewalk.coherence.local_bus import QUEUE
from ropewalk.coherence.remote_bus import RemoteBus
from ropewalk.errors import InvalidInput
from ropewalk.store.pubsub import PATIENCE


class PostgresBus(RemoteBus):
    """A `Bus` over a Postgres database; `dsn` is as for `PostgresStore`.

    Clients that share artifacts share the database and `prefix`. Content of more than about
    6,000 bytes is left out, and fetched by who needs it. `dsn` must lead to the server itself:
    a pooler in transaction mode keeps no LISTEN. Keeps the order of each sender. Needs the
    extra `postgres`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        patience: float = PATIENCE,
    ) -> None:
        try:
            from ropewalk.store.postgres.listener import PostgresPubSub
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a bus over Postgres needs the package {error.name!r}: "
                "pip install 'ropewalk[postgres]'"
            ) from error
        super().__init__(PostgresPubSub.at(dsn, prefix, patience), queue)
