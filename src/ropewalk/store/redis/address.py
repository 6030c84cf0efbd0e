"""The address of a Redis server from its URL, and its durability from its settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from ropewalk.errors import Corrupt, InvalidInput, NotAllowed, RopewalkError, StoreFull
from ropewalk.store.model import Durability

SCHEMES = ("redis", "rediss", "unix")
DEFAULT_NAME = "default"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHAPE = (
    "redis://user:password@host:port/number, rediss:// for TLS, or unix:///path/to/socket. "
    "Special characters in a user or password are written as %xx"
)


class Address(NamedTuple):
    """The location of a store."""

    options: dict[str, Any]
    """Connection parameters; they include the password."""
    name: str | None
    """The store the URL names."""
    durability: str | None
    """The durability the URL asks for."""
    shown: str
    """The URL without user and password."""


def read_address(url: str) -> Address:
    """Parse a URL; raises `InvalidInput`, without quoting it, if it is not a Redis URL."""
    if not isinstance(url, str):
        raise InvalidInput(f"a Redis server is named by a URL, not by {type(url).__name__}")
    try:
        parts = urlsplit(url)
        port = parts.port
        asked = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        # The offending part may belong to the password.
        raise InvalidInput(f"this is not the URL of a Redis server: {_SHAPE}") from None
    if parts.scheme not in SCHEMES or parts.fragment or "#" in url or not _is_whole(parts):
        raise InvalidInput(f"this is not the URL of a Redis server: {_SHAPE}")
    if "@" in parts.query or ("@" in parts.path and parts.scheme != "unix"):
        # An unescaped / or ? in a password ends the host here, and nothing after it may be shown.
        raise InvalidInput(f"this is not the URL of a Redis server: {_SHAPE}")
    name, durability = asked.pop("name", None), asked.pop("durability", None)
    for option in asked:
        if option != "db" and not (option.startswith("ssl_") and parts.scheme == "rediss"):
            raise InvalidInput(
                "the URL of a Redis server takes name=, durability= and db=, and for rediss:// "
                f"the ssl_ options of redis-py, not {option!r:.40}"
            )
    database = asked.get("db", parts.path.strip("/") if parts.scheme != "unix" else "") or "0"
    if not database.isdecimal():
        raise InvalidInput(f"a database of Redis is a number, not {database!r:.40}: {_SHAPE}")
    if parts.scheme == "unix":
        shown = f"unix://{unquote(parts.path)}?db={database}"
    else:
        shown = f"{parts.scheme}://{parts.hostname or 'localhost'}:{port or 6379}/{database}"
    place = url.partition("?")[0]
    rest = place + "?" + urlencode({**asked, "db": database})
    return Address(_options(rest), name, durability, shown)


def check_store_name(name: str) -> str:
    """Return the name of a store if it can be part of its keys."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"the name of a store is 1 to 64 letters, digits, dots, dashes or underscores, not "
            f"{name!r:.80}"
        )
    return name


def gone(where: str) -> RopewalkError:
    """The error for a store that is no longer on the server."""
    return Corrupt(
        f"the store at {where} is gone: the server was emptied, or lost its data when it was "
        "restarted. Restore it from a copy, or open a new one."
    )


def evicted(where: str) -> RopewalkError:
    """The error for a commit whose staged objects the server keeps evicting."""
    return StoreFull(
        f"the Redis server at {where} has no memory left: again and again it evicts what was sent "
        "ahead of a large commit. Nothing was written, and what is there can be read. Run gc, "
        "raise maxmemory, or set `maxmemory-policy noeviction`."
    )


def _is_whole(parts: SplitResult) -> bool:
    if parts.scheme == "unix":
        if parts.netloc and "@" not in parts.netloc:
            return False
        return parts.path.startswith("/") and len(parts.path) > 1
    return bool(parts.netloc) and not parts.netloc.endswith("@")


def _options(url: str) -> dict[str, Any]:
    from redis.connection import parse_url  # So that the class can be named without the import.

    parse: Callable[[str], dict[str, Any]] = parse_url
    try:
        return dict(parse(url))
    except ValueError:
        raise InvalidInput(f"this is not the URL of a Redis server: {_SHAPE}") from None


# The durability of a server by its settings, and whether it suffices.

Asked = Literal["full", "relaxed"]


class Settings(NamedTuple):
    """The settings that a server reports."""

    info: Mapping[str, str]
    """From INFO."""
    config: Mapping[str, str] | None
    """From CONFIG GET; None where that is not allowed."""

    @property
    def version(self) -> tuple[int, ...]:
        """The version of Redis that it is, or is compatible with."""
        parts = self.info.get("redis_version", "0").split(".")
        return tuple(int(part) for part in parts if part.isdecimal())

    def evicts(self) -> str:
        """The policy by which it evicts keys when its memory is full; '' for none."""
        known = self.info if self.config is None else self.config
        limit = known.get("maxmemory", "0")
        policy = known.get("maxmemory-policy", known.get("maxmemory_policy", "noeviction"))
        return "" if limit == "0" or policy == "noeviction" else policy


# What `full` requires of a server: setting, value, and reason.
_FULL = (
    ("appendonly", "yes", "every write is in its log"),
    ("appendfsync", "always", "the log is on the disk before a commit is acknowledged"),
    ("no-appendfsync-on-rewrite", "no", "also while the log is rewritten"),
)


def check_asked(durability: str) -> Asked:
    """Validate a durability level."""
    match durability:
        case "full" | "relaxed":
            return durability
    raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r:.40}")


def judge(where: str, settings: Settings, asked: Asked) -> Durability:
    """The durability of an acknowledged commit; `NotAllowed` if it is less than asked for.

    A server may evict only keys that expire, and no key of a store's history does.
    """
    if settings.version < (6,):
        raise NotAllowed(f"the Redis server at {where} is too old: Ropewalk needs Redis 6 or newer")
    policy = settings.evicts()
    if policy.startswith("allkeys"):
        raise NotAllowed(
            f"the Redis server at {where} evicts keys when its memory is full (maxmemory-policy "
            f"{policy}), and would remove live data. Set `maxmemory-policy noeviction` there, or "
            "use a server of its own for Ropewalk."
        )
    if asked == "full":
        _expect_full(where, settings, policy)
        return "full"
    config = settings.config
    keeps_nothing = config is not None and config.get("appendonly") == "no" and not config["save"]
    return "none" if keeps_nothing else "relaxed"


def _expect_full(where: str, settings: Settings, policy: str) -> None:
    instead = (
        'or ask for less with durability="relaxed" (?durability=relaxed in a URL), which may lose '
        "the last moments"
    )
    config = settings.config
    if config is None:
        raise NotAllowed(
            f"the Redis server at {where} does not say whether a commit survives the loss of "
            "power: it does not allow CONFIG GET. Allow that to its user, if it is set to "
            f"{_wanted()}, {instead}."
        )
    wrong = [
        f"{name} is {config.get(name, 'unknown')}, and must be {value} so that {why}"
        for name, value, why in _FULL
        if config.get(name) != value
    ]
    if policy:
        wrong.append(f"maxmemory-policy is {policy}, and must be noeviction")
    if wrong:
        raise NotAllowed(
            f"a commit on the Redis server at {where} may not survive the loss of power: "
            f"{'; '.join(wrong)}. Set {_wanted()} there, {instead}."
        )


def _wanted() -> str:
    parts = [f"`{name} {value}`" for name, value, _ in _FULL]
    return ", ".join([*parts, "`maxmemory-policy noeviction`"])
