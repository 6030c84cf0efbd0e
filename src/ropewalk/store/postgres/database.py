"""A database as a store sees it: where it is, who is connected, and who listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ropewalk.errors import InvalidInput
from ropewalk.store.model import Durability
from ropewalk.store.postgres.arrays import spelled
from ropewalk.store.postgres.listener import Notifier, PostgresPubSub, Watches
from ropewalk.store.postgres.opening import open_schema
from ropewalk.store.postgres.pool import Pool, Row, Settings, read_dsn, split_dsn
from ropewalk.store.postgres.schema import check_schema, quoted
from ropewalk.store.watch import WAKE, Watchers

_DEFAULT_SCHEMA = "ropewalk"


class Asked(NamedTuple):
    """What somebody who opens a store asks for; None where the URL may say it."""

    schema: str | None
    durability: Durability | None
    create: bool
    listen_dsn: str | None


class Database:
    """One schema of a database, and everything that is open for it."""

    def __init__(self, dsn: str, asked: Asked, settings: Settings) -> None:
        conninfo, own = split_dsn(dsn)
        durability = asked.durability or own.get("durability") or "full"
        if durability not in ("full", "relaxed"):
            raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r:.80}")
        self.durability: Durability = "full" if durability == "full" else "relaxed"
        self.schema = check_schema(asked.schema or own.get("schema") or _DEFAULT_SCHEMA)
        self.name = quoted(self.schema)
        self.pool = Pool(read_dsn(conninfo, self.schema), settings)
        self._statements: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._begin = (self.durability == "full", str(max(int(1000 * settings.timeout), 1)))
        full = self.durability == "full"
        self.header, server = open_schema(self.pool, self.schema, asked.create, full)
        # What is sent is UTF-8. Other databases than these two may have no place for all of it.
        self.encoding = "utf-8" if server in ("UTF8", "SQL_ASCII") else "ascii"
        listen = asked.listen_dsn and read_dsn(asked.listen_dsn, self.schema).conninfo
        self._watchers = Watchers()
        self._watches = Watches(self._watchers, self.name)
        prefix = self.header.store_id.hex()
        self.pubsub = PostgresPubSub(
            self.pool, prefix, conninfo=listen or None, watches=self._watches
        )
        """What listens, for who watches and for the buses of this store."""
        self.pubsub.attach(self._watchers)
        self._notifier = Notifier(self.pool, prefix)

    @property
    def shown(self) -> str:
        """Where it is, without secrets."""
        return self.pool.place.shown

    def rows(self, statement: str, *parameters: Any) -> list[Row]:
        """What a statement gives that changes nothing; `{s}` in it stands for the schema."""
        return self.pool.rows(statement.replace("{s}", self.name), parameters)

    def change(self, statement: str, *parameters: Any) -> list[Row]:
        """What a statement gives that is not to be done twice."""
        return self.pool.rows(statement.replace("{s}", self.name), parameters, repeatable=False)

    def ask(self, function: str, types: str, *parameters: Any) -> list[Row]:
        """What a function gives that changes nothing; `types` are those of its parameters."""
        return self._called(function, types, lambda: parameters)

    def call(
        self,
        function: str,
        types: str,
        parameters: Sequence[Any] | Callable[[], Sequence[Any]],
        *,
        repeatable: bool = True,
        durable: bool = True,
        patience: int | None = None,
    ) -> Row:
        """What a function gives that changes something.

        It waits at most `patience` milliseconds for what others hold. What is not `durable` is
        so with the next thing that is. A function gives the parameters for each time that it is
        sent.
        """
        synced, longest = self._begin
        before = (synced and durable, longest if patience is None else str(patience))

        def given() -> Sequence[Any]:
            return (*before, *(parameters() if callable(parameters) else parameters))

        return self._called(function, f"boolean text {types}", given, repeatable=repeatable)[0]

    def _called(
        self,
        function: str,
        types: str,
        given: Callable[[], Sequence[Any]],
        *,
        repeatable: bool = True,
    ) -> list[Row]:
        known = self._statements.get(function)
        if known is None:
            kinds = tuple(types.split())
            places = ", ".join(f"${at}::{kind}" for at, kind in enumerate(kinds, 1))
            statement = f"SELECT * FROM {self.name}.{function}({places})"
            known = self._statements[function] = statement.encode(), kinds
        asked, kinds = known
        return self.pool.call(
            asked, lambda: list(map(spelled, kinds, given())), repeatable=repeatable
        )

    # News.

    def changed(self, space: str, watched: bool) -> None:
        """Wake who waits for a space: here at once, and elsewhere if somebody listens."""
        self._watchers.wake(space)
        if watched:
            self._notifier.tell(space)

    def listen(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when there may be news of a space; the way to stop that."""
        remove = self._watchers.add(space, wake)
        self._watches.changed = True
        self.pubsub.touch(WAKE)

        def stop() -> None:
            remove()
            self.pubsub.touch(WAKE)

        return stop

    def close(self) -> None:
        """Let go of threads and connections."""
        self.pubsub.detach(self._watchers)
        self.pubsub.close()
        self._notifier.close()
        self.pool.close()
