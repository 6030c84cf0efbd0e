"""The one place where errors of a bucket become Ropewalk's.

What a server says is not passed on: it may quote keys. Its code is, for example
`SignatureDoesNotMatch`, and what setting to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from ropewalk.errors import NotAllowed, NotFound, RopewalkError, StoreFull, Unavailable

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
    """Raise what goes wrong inside, with the bucket of this name, as Ropewalk's errors.

    What is expected is let through: a missing key, a condition that does not hold.
    """
    try:
        yield
    except (BaseError, OSError) as error:
        if isinstance(error, expected) and "NoSuchBucket" not in str(error):
            raise
        # Not as the cause: a traceback would show what the server quoted.
        raise _from_server(place, error) from None


def forked(place: str) -> Unavailable:
    """What is said in a child of a process that had opened a bucket."""
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
