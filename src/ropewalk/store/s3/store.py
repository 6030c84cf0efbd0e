"""A store in a bucket of S3, or of a compatible server. See design note 012."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, Unpack
from urllib.parse import parse_qsl, unquote, urlsplit

from ropewalk.errors import Corrupt, InvalidInput, NotFound, RopewalkError
from ropewalk.store.contract import StoreOptions
from ropewalk.store.model import Capabilities, Durability, Header
from ropewalk.store.records.cells import HEADER, ROOT, damaged
from ropewalk.store.records.store import CellStore
from ropewalk.store.s3.cells import PROBES, BucketCells, BucketParts, probe
from ropewalk.store.validation import expect, expect_seconds

if TYPE_CHECKING:
    from ropewalk.store.postgres import PostgresStore
    from ropewalk.store.s3.bucket import Bucket
    from ropewalk.store.s3.postgres import PostgresCells


_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PREFIX = re.compile(r"[A-Za-z0-9._~=+/-]*")
_MOST_PREFIX = 256
_SETTINGS = ("endpoint", "region", "refs")


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket or a prefix of one. Its `str` and `repr` show no secret."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    refs: str | None = field(default=None, repr=False)
    """The URL of the database that holds the spaces; it may contain a password."""

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse_url(url: str) -> Place:
    """Parse a URL; `InvalidInput` names the wrong part, without its secret."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        raise _wrong("it is no URL") from None
    if parts.scheme != "s3":
        raise _wrong("it does not begin with s3://")
    if parts.fragment:
        raise _wrong("it has a #")
    if ":" in host or "@" in parts.path + parts.query:
        # An unescaped / or ? in a secret ends the host here, and nothing after it may be shown.
        raise _wrong("a / ? or # in one of the keys is spelled %2F %3F %23, and an @ in refs %40")
    if not _BUCKET.fullmatch(host):
        raise _wrong(f"{host!r:.80} is no name of a bucket")
    prefix = unquote(parts.path).strip("/")
    pieces = prefix.split("/") if prefix else []
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _MOST_PREFIX or {"", ".", ".."} & set(pieces):
        raise _wrong(f"the prefix {prefix!r:.80} is not made of letters, digits and . _ ~ = + - /")
    settings = _settings(parts.query)
    user, _, _ = parts.netloc.rpartition("@")
    key, _, secret = user.partition(":")
    if user and not (key and secret):
        raise _wrong("before the @ stand key:secret, both")
    return Place(
        host,
        prefix,
        _endpoint(settings.get("endpoint")),
        settings.get("region"),
        unquote(key) or None,
        unquote(secret) or None,
        refs=settings.get("refs"),
    )


def _settings(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise _wrong("what follows the ? is not name=value") from None
    settings: dict[str, str] = {}
    for name, value in pairs:
        if name not in _SETTINGS:
            raise _wrong(f"there is no setting {name!r:.40}: there are {', '.join(_SETTINGS)}")
        if not value or name in settings:
            raise _wrong(f"{name} has no value, or two")
        settings[name] = value
    return settings


def _endpoint(given: str | None) -> str | None:
    if given is None:
        return None
    endpoint = given if "://" in given else f"https://{given}"
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError:
        raise _wrong("the endpoint is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise _wrong("the endpoint is not like https://host:port")
    return endpoint.rstrip("/")


def _wrong(reason: str) -> InvalidInput:
    return InvalidInput(
        f"this URL of a bucket cannot be used: {reason}. Write "
        "s3://bucket/prefix?endpoint=https://host:port&region=name, and give the keys as "
        "access_key_id= and secret_access_key=, or as s3://key:secret@bucket."
    )


ELSEWHERE: Final = "ropewalk/elsewhere"
"""Marks a bucket whose spaces are elsewhere; contains the id of its store."""

_TRIES: Final = 3


class S3Store(CellStore):
    """A store in a bucket, for as many processes as the bucket serves.

    `url` is `s3://bucket/prefix?endpoint=https://host:port&region=name`; without an endpoint it is
    AWS. Credentials are given by name, or as `s3://key:secret@bucket`; otherwise the driver looks
    for them as AWS's tools do. A put that is acknowledged is as durable as the service promises.
    The server must honour conditional puts: this is probed at each opening, and `NotAllowed` names
    the condition it ignores.

    With `refs`, the URL of a Postgres database or a `PostgresStore` whose connections are then
    shared, spaces are stored there and the bucket holds only objects; it then need not support
    conditions.

    A small commit is two requests. Each request takes at most `timeout` seconds, including a few
    retries. `poll_seconds` is how often `watch` checks for commits of others.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    _waits: ClassVar[tuple[float, float]] = 0.0005, 0.1

    def __init__(
        self,
        url: str,
        *,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        refs: str | PostgresStore | None = None,
        timeout: float = 20.0,
        poll_seconds: float = 0.5,
        create: bool = True,
        **options: Unpack[StoreOptions],
    ) -> None:
        if options.get("size_limit") is not None:
            raise InvalidInput("a store in a bucket has no size_limit: give the bucket a quota")
        options.setdefault("backend_id", "s3")
        super().__init__(**options)
        expect(isinstance(url, str), "a store in a bucket is opened by a URL", type(url))
        for name, given in (("timeout", timeout), ("poll_seconds", poll_seconds)):
            expect_seconds(given, name)
            expect(given > 0, f"{name} is more than 0", given)
        self.poll_seconds = poll_seconds  # type: ignore[misc]
        place = parse_url(url)
        if access_key_id or secret_access_key or session_token:
            place = replace(
                place,
                access_key_id=access_key_id,
                secret_access_key=secret_access_key,
                session_token=session_token,
            )
        self.url = str(place)
        self._bucket = self._connect(place, timeout)
        self._elsewhere: PostgresCells | None = None
        try:
            asked = place.refs if refs is None else refs
            if asked is not None:
                self._elsewhere = self._connect_refs(asked, timeout)
                self._elsewhere.open(create)
            self._use(self._elsewhere or BucketCells(self._bucket), BucketParts(self._bucket))
            self._header = self._open(create)
        except BaseException:
            self._disconnect()
            raise

    def _connect(self, place: Place, timeout: float) -> Bucket:
        try:
            from ropewalk.store.s3.bucket import Bucket
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a store in a bucket needs the package {error.name!r}: pip install 'ropewalk[s3]'"
            ) from error
        return Bucket(place, timeout)

    def _connect_refs(self, refs: str | PostgresStore, timeout: float) -> PostgresCells:
        try:
            from ropewalk.store.s3.postgres import connect
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"refs in Postgres need the package {error.name!r}: "
                "pip install 'ropewalk[s3,postgres]'"
            ) from error
        return connect(refs, self.url, timeout)

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives, as the service promises."""
        return "full"

    # Opening and closing.

    def _open(self, create: bool) -> Header:
        header = self._opened_header()
        if header is None and not create:
            raise NotFound(
                f"there is no store in {self.url}. Correct the URL, or open it with create=True."
            )
        if self._elsewhere is None:
            probe(self._bucket)
        for _ in range(_TRIES):
            if header is None:
                # A server may refuse both of two concurrent creators.
                self._create(self._others())
                header = self._opened_header()
        if header is None:
            raise damaged(HEADER)
        if self._elsewhere is not None:
            self._expect_pair(header)
        return header

    def _expect_pair(self, header: Header) -> None:
        """Raise if the bucket belongs to another database."""
        found = self._bucket.get(ELSEWHERE)
        if found is None and not self._log.names(""):  # Its creator was killed in between.
            self._bucket.put(ELSEWHERE, header.store_id)
            return
        if found is None or found.data != header.store_id:
            raise Corrupt(
                f"{self.url} and the refs in Postgres do not belong together: the bucket was made "
                "with another database, or was emptied. Correct refs=, or restore the bucket."
            )

    def _wrong_pair(self, keys: Collection[str]) -> RopewalkError:
        """The error for a bucket whose store is unknown to the database."""
        if HEADER in keys:
            return InvalidInput(
                f"the store in {self.url} keeps its spaces in the bucket itself: open it without "
                "refs=, or choose another prefix."
            )
        return Corrupt(
            f"{self.url} holds objects of a store, but the database that refs= names knows nothing "
            "of it. Nothing was changed: correct refs=, restore the database from a copy, or "
            "choose another prefix."
        )

    def _others(self) -> set[str]:
        """Existing keys in a bucket where a store is to be created."""
        others = {key for key, _ in self._bucket.listing(ROOT.rstrip("/"))}
        others = {key for key in others if not key.startswith(PROBES)}
        if ELSEWHERE in others and self._elsewhere is None:
            raise InvalidInput(
                f"the spaces of the store in {self.url} are kept in Postgres: open it with refs=, "
                "the URL of that database."
            )
        if others and self._elsewhere is not None and self._opened_header() is None:
            raise self._wrong_pair(others)
        return others

    def _shown(self) -> str:
        return self.url

    def _close(self) -> None:
        self._close_packer()
        self._disconnect()

    def _disconnect(self) -> None:
        self._bucket.close()
        if self._elsewhere is not None:
            self._elsewhere.close()

    def _disk_bytes(self) -> int:
        return sum(size for _, size in self._bucket.listing(ROOT.rstrip("/")))
