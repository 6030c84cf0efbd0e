"""Where a bucket is, and who asks: `s3://[key:secret@]bucket[/prefix][?endpoint=&region=&refs=]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from ropewalk.errors import InvalidInput

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PREFIX = re.compile(r"[A-Za-z0-9._~=+/-]*")
_MOST_PREFIX = 256
_SETTINGS = ("endpoint", "region", "refs")


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket or a part of it. Its text and its `repr` show no secret."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    refs: str | None = field(default=None, repr=False)
    """The URL of a database for the spaces; it may hold a password."""

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse_url(url: str) -> Place:
    """Read a URL; `InvalidInput` says which part of it is wrong, without its secret."""
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
        # A secret with a / or a ? in it ends here, and nothing of it may be shown.
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
