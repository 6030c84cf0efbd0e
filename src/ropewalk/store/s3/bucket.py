"""A bucket, or a prefix of one: the few requests a store makes, and the mapping of errors.

Server messages are not passed on, because they may quote keys. The error names the code, for
example `SignatureDoesNotMatch`, and the setting to look at.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store as Driver

from ropewalk.errors import (
    InvalidInput,
    NotAllowed,
    NotFound,
    RopewalkError,
    StoreClosed,
    StoreFull,
    Unavailable,
)
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.s3.store import Place

if TYPE_CHECKING:
    from obstore.store import ObjectStore


_CODE = re.compile(r"<Code>(\w{1,80})</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_METADATA_SERVICE = "169.254.169.254"
_FULL = {"QuotaExceeded", "StorageFull", "InsufficientStorage", "XMinioStorageFull"}
_TOKEN = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_CLOCK = {"RequestTimeTooSkewed", "RequestExpired"}
_ELSEWHERE = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"}


@contextmanager
def translated(
    place: str, expected: tuple[type[Exception], ...] = (FileNotFoundError,)
) -> Iterator[None]:
    """Translate errors to Ropewalk's, naming the bucket.

    Expected outcomes pass through: a missing key, a failed condition.
    """
    try:
        yield
    except (BaseError, OSError) as error:
        if isinstance(error, expected) and "NoSuchBucket" not in str(error):
            raise
        # Not as the cause: a traceback would show what the server quoted.
        raise _from_server(place, error) from None


def forked(place: str) -> Unavailable:
    """The error in a forked child of a process that had opened a bucket."""
    return Unavailable(
        f"{place}: the driver does not work in a forked process. Start processes by spawning "
        'them (multiprocessing.set_start_method("spawn")), and open the store in each.'
    )


def _from_server(place: str, error: Exception) -> RopewalkError:
    text = str(error)
    code, status = _first(_CODE, text), _first(_STATUS, text)
    said = code or (f"status {status}" if status else _trouble(text))
    if code == "NoSuchBucket":
        return NotFound(
            f"{place}: there is no such bucket. Create it, or correct the bucket or the endpoint "
            "in the URL."
        )
    if _METADATA_SERVICE in text:
        return NotAllowed(
            f"{place}: no credentials were given, and this machine has none of its own. Give "
            "access_key_id and secret_access_key, or s3://key:secret@bucket/...",
        )
    if code in _ELSEWHERE or status == "301" or "redirect without location" in text.lower():
        return NotAllowed(
            f"{place}: the bucket is not there ({said}). Look at region and endpoint in the URL."
        )
    if code in _TOKEN:
        return NotAllowed(
            f"{place}: the server refuses ({said}). Look at session_token: it ends with the time "
            "that it was given for."
        )
    if code in _CLOCK:
        return NotAllowed(
            f"{place}: the server refuses ({said}). Look at the clock of this machine: it differs "
            "too much from that of the server."
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        return NotAllowed(
            f"{place}: the server refuses ({said}). Look at access_key_id and secret_access_key, "
            "and at what they may do: get, put, delete and list."
        )
    if code in _FULL or status == "507":
        return StoreFull(
            f"{place}: the server has no room ({said}). Nothing was written, and what is there "
            "can be read. Make room, or raise the quota."
        )
    return Unavailable(
        f"{place}: the server does not answer as it should ({said}). If this lasts, look at "
        "endpoint and region in the URL. If this was a commit, send it again with the same "
        "write id."
    )


def _trouble(text: str) -> str:
    lowered = text.lower()
    if "redirect without location" in lowered:
        return "it redirects"
    if "dns error" in lowered:
        return "its name is not known"
    if "kind: timeout" in lowered:
        return "no reply in time"
    if "kind: connect" in lowered:
        return "no connection"
    return "the connection failed"


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return "" if found is None else found.group(1)


_process = os.getpid()
"""The process that loaded the driver.

A forked child lacks the driver's threads, and would wait for them forever.
"""

A = TypeVar("A")
R = TypeVar("R")

_ABSENT = (FileNotFoundError,)
_REFUSED = (FileNotFoundError, AlreadyExistsError, PreconditionError)
_RETRIES = 7  # Backoff up to a second: a server that asks to slow down is given time.
_AT_ONCE = 16
_CONNECT_SECONDS = 5.0
_COALESCED = 64 * 1024  # Ranges closer than this are read in one request.
_DELETED_AT_A_TIME = 1000


class Got(NamedTuple):
    """The bytes of a key, and their tag."""

    data: bytes
    e_tag: str


class Bucket:
    """Requests to one bucket. Safe to share between threads."""

    def __init__(self, place: Place, timeout: float) -> None:
        self.name = str(place)
        self._driver: ObjectStore
        # A conditional put is sent once: a hidden retry would be refused because of its own
        # success.
        self._driver = _driver(place, timeout, retries=_RETRIES)
        self._once: ObjectStore = _driver(place, timeout, retries=0)
        self._inside = threading.local()
        self._lock = freed_after_fork(threading.Lock())
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def get(self, key: str, known: str | None = None) -> Got | None:
        """The value of a key; None if absent. If its tag is known, the bytes may be left out."""
        try:
            with self._answering((*_ABSENT, NotModifiedError)):
                options: Any = None if known is None else {"if_none_match": known}
                found = obstore.get(self._driver, key, options=options)
                return Got(found.bytes().to_bytes(), found.meta["e_tag"] or "")
        except FileNotFoundError:
            return None
        except NotModifiedError:
            return Got(b"", known or "")

    def ranges(self, key: str, pieces: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Ranges of a value, by offset and length; None if the key is absent."""
        try:
            with self._answering(_ABSENT):
                found = obstore.get_ranges(
                    self._driver,
                    key,
                    starts=[start for start, _ in pieces],
                    lengths=[length for _, length in pieces],
                    coalesce=_COALESCED,
                )
                return [one.to_bytes() for one in found]
        except FileNotFoundError:
            return None

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key unconditionally."""
        with self._answering():
            obstore.put(self._driver, key, data, use_multipart=False)

    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        """Replace the bytes with a tag, or create the key; returns the new tag.

        None if the condition failed: then nothing was written.
        """
        mode: Any = "create" if e_tag is None else {"e_tag": e_tag}
        try:
            with self._answering(_REFUSED):
                done = obstore.put(self._once, key, data, mode=mode, use_multipart=False)
        except _REFUSED:
            return None
        return done["e_tag"] or ""

    def listing(self, folder: str) -> list[tuple[str, int]]:
        """The keys with a prefix, and their sizes."""
        with self._answering():
            found = obstore.list(self._driver, folder).collect()
        return [(one["path"], one["size"]) for one in found]

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; missing ones are ignored."""
        for start in range(0, len(keys), _DELETED_AT_A_TIME):
            try:
                with self._answering(_ABSENT):
                    obstore.delete(self._driver, list(keys[start : start + _DELETED_AT_A_TIME]))
            except FileNotFoundError:
                continue

    def each(self, work: Callable[[A], R], items: Iterable[A]) -> list[R]:
        """Process many items, several at a time; raises the first error."""
        listed = list(items)
        # On one of our own threads, waiting for the others could deadlock.
        if len(listed) < 2 or getattr(self._inside, "busy", False):
            return [work(one) for one in listed]
        with self._lock:
            if self._closed:
                raise StoreClosed(f"the store in {self.name} was closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    _AT_ONCE, "ropewalk-s3", lambda: setattr(self._inside, "busy", True)
                )
            pool = self._pool
        return list(pool.map(work, listed))

    def close(self) -> None:
        """Stop the threads."""
        with self._lock:
            self._closed, pool = True, self._pool
        if pool is not None:
            pool.shutdown(wait=True)

    def _answering(
        self, expected: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        if _process != os.getpid():
            raise forked(self.name)
        return translated(self.name, expected)


class _Given:
    """Fixed credentials."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __call__(self) -> dict[str, str | None]:
        """The driver's credential callback."""
        place = self._place
        return {
            "access_key_id": place.access_key_id,
            "secret_access_key": place.secret_access_key,
            "token": place.session_token,
            "expires_at": None,
        }


def _driver(place: Place, timeout: float, retries: int) -> Driver:
    config: dict[str, Any] = {
        "endpoint": place.endpoint,
        "region": place.region,
    }
    given: Any = None
    if place.access_key_id:
        # Exactly as given: the driver would mix them with a token from the environment.
        given = _Given(place)
    try:
        return Driver(
            place.bucket,
            prefix=place.prefix or None,
            config={name: value for name, value in config.items() if value},  # type: ignore[arg-type]
            credential_provider=given,
            client_options={
                "allow_http": (place.endpoint or "").startswith("http://"),
                "connect_timeout": timedelta(seconds=min(timeout, _CONNECT_SECONDS)),
                "timeout": timedelta(seconds=timeout),
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=timeout),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=50),
                    "max_backoff": timedelta(seconds=1),
                    "base": 2,
                },
            },
        )
    except RopewalkError:
        raise
    except Exception:  # noqa: BLE001 - whatever the driver does not take, it may quote
        raise InvalidInput(
            f"{place}: the settings of the bucket are not accepted. Look at endpoint and region."
        ) from None
