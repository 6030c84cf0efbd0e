"""One way to open a store, whatever its engine, and what may be handed over in place of one."""

from __future__ import annotations

import os
import re
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, TypedDict

from ropewalk.errors import InvalidInput
from ropewalk.store.contract import Store
from ropewalk.store.memory import MemoryStore

if TYPE_CHECKING:
    from ropewalk.store.records.key_value import KVStore


DEFAULT_FOLDER = ".ropewalk"

_MEANT_AS_URL = re.compile(
    r"\s*(?:postgres|postgresql|redis|rediss|unix|s3|file|memory)(?::|//)"
    r"|\s*(?:host|hostaddr|port|dbname|user|password|service)\s*=",
    re.IGNORECASE,
)
"""What begins like an address of ours, or is one of Postgres' other kind."""


class _Options(TypedDict):
    """What a store is opened with."""

    create: bool
    durability: Literal["full", "relaxed"] | None
    size_limit: int | None


class _Embedded(TypedDict):
    """The same for a store in a folder, whose URL says nothing of durability."""

    create: bool
    durability: Literal["full", "relaxed"]
    size_limit: int | None


def _embedded(options: _Options) -> _Embedded:
    return _Embedded(
        create=options["create"],
        durability=options["durability"] or "full",
        size_limit=options["size_limit"],
    )


def open(
    url: str | PathLike[str] | None = None,
    *,
    create: bool = True,
    durability: Literal["full", "relaxed"] | None = None,
    size_limit: int | None = None,
) -> Store:
    """Open a store, and make it if it is not there.

    A path is the folder of a store: of the engine that made it, or of a new
    `SqliteStore`; without one it is `.ropewalk` in the current folder. `file:///path` and
    `file://name` are folders of a `FileStore`, `memory://` is a new `MemoryStore`.
    `redis://host:port/number` is a `RedisStore`, as are `rediss://` and `unix://`;
    `postgresql://user:password@host/database` is a `PostgresStore`, and
    `s3://bucket/prefix` an `S3Store`. Raises `InvalidInput` for anything else. With
    `create=False` nothing is made: raises `NotFound` if there is no store. `durability` and
    `size_limit` are those of the engine: `full`, unless another is asked for here or in the
    URL. A store in memory survives nothing, whatever is asked for.
    """
    options = _Options(create=create, durability=durability, size_limit=size_limit)
    given = DEFAULT_FOLDER if url is None else url
    place = fspath(given) if isinstance(given, str | PathLike) else None
    if not isinstance(place, str) or place in ("", ":memory:"):
        raise InvalidInput(
            f"a store is opened by a path or a URL, not {url!r:.80}; one in memory is memory://"
        )
    if place == "memory://":
        return MemoryStore(size_limit=size_limit)
    scheme, separator, rest = place.partition("://")
    if separator and isinstance(url, str):
        if scheme == "file":
            return _open_files(place, rest, options)
        if scheme == "memory":
            raise InvalidInput(f"{place!r:.200} has a name: a store in memory is just memory://")
        if scheme in ("redis", "rediss", "unix"):
            return _open_redis(place, options)
        if scheme in ("postgresql", "postgres"):
            return _open_postgres(place, options)
        if scheme == "s3":
            return _open_bucket(place, options)
        raise InvalidInput(
            f"no engine opens {scheme}:// here. There are: a path, for a store in that folder, "
            "file://, for one of plain files, postgresql://, redis://, s3://, and memory://."
        )
    if isinstance(url, str) and _MEANT_AS_URL.match(place):
        # Not quoted, because it may hold a password; nor made into the name of a folder.
        raise InvalidInput(
            "this begins like a URL, but is none: write postgresql://, redis://, s3://, file:// or "
            "memory://, with a colon and two slashes. For a folder of that name, write ./ in front."
        )
    if "\0" in place:
        raise InvalidInput(f"{place!r:.200} names no folder")
    if os.path.isfile(os.path.join(place, "ropewalk.json")):
        from ropewalk.store.files import FileStore

        return FileStore(place, **_embedded(options))
    from ropewalk.store.sqlite import SqliteStore

    return SqliteStore(place, **_embedded(options))


def _open_redis(url: str, options: _Options) -> Store:
    from ropewalk.store.redis import RedisStore

    return RedisStore(url, **options)


def _open_postgres(url: str, options: _Options) -> Store:
    from ropewalk.store.postgres import PostgresStore

    if options["size_limit"] is not None:
        raise InvalidInput(
            "a store in Postgres has no size_limit: give its database a disk or a tablespace of "
            "its own"
        )
    return PostgresStore(url, create=options["create"], durability=options["durability"])


def _open_bucket(url: str, options: _Options) -> Store:
    from ropewalk.store.s3 import S3Store

    return S3Store(url, create=options["create"], size_limit=options["size_limit"])


def _open_files(url: str, rest: str, options: _Options) -> Store:
    from urllib.parse import unquote

    from ropewalk.store.files import FileStore

    host, slash, _ = rest.partition("/")
    if "?" in rest or "#" in rest:
        raise InvalidInput(f"{url!r:.200} has a ? or #: spell them %3F and %23 in a file:// URL")
    if slash and host not in ("", "localhost", ".", ".."):
        raise InvalidInput(
            f"{url!r:.200} names the host {host!r:.80}; a store of plain files is on this machine. "
            f"Write file:///path, or file://./{host}/... for a folder below the current one."
        )
    path = unquote(rest.removeprefix("localhost") if slash else rest)
    if not path or "\0" in path:
        raise InvalidInput(f"{url!r:.200} names no folder: write file:///path or file://name")
    return FileStore(path, **_embedded(options))


def store_of(given: Store | KVStore | str | PathLike[str] | None) -> tuple[Store, bool]:
    """The store for what was handed over, and whether whoever asks has to close it.

    None gives a new one in memory.
    """
    if given is None:
        from ropewalk.store.memory import MemoryStore

        return MemoryStore(), True
    if isinstance(given, Store):
        return given, False
    if isinstance(given, str | PathLike):
        from ropewalk.store.opening import open as open_store

        return open_store(given), True
    from ropewalk.store.records.key_value import KVStore

    if isinstance(given, KVStore):
        return given.as_store(), False
    raise InvalidInput(
        "what is stored is kept in a Store, a KVStore, or at a path or URL, not in a "
        f"{type(given).__name__}"
    )
