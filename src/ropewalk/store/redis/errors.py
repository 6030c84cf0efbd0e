"""Maps the errors of Redis to Ropewalk's, here and nowhere else.

Messages of the driver and the server name addresses and commands, never a password.
"""

from __future__ import annotations

import re

import redis

from ropewalk.errors import (
    Corrupt,
    InvalidInput,
    NotAllowed,
    RopewalkError,
    StoreFull,
    Unavailable,
)
from ropewalk.store.redis.address import gone
from ropewalk.store.redis.layout import damaged_space

_CODE = re.compile(r"(?:^|[\s-])([A-Z]{3,}[A-Z_]*)\b")
"""The first word of a server error; before Redis 7 it is inside the text if a script failed."""

_MEANINGS = {
    "READONLY": "it is a replica, which takes no writes: the address must be that of the primary",
    "MASTERDOWN": "it is a replica that has lost its primary",
    "CLUSTERDOWN": "its cluster does not serve all slots now",
    "TRYAGAIN": "its cluster is moving the slot of this store",
    "LOADING": "it has been started and is still reading its data",
    "BUSY": "it is busy with another client's script",
    "MISCONF": "it cannot write to its disk and takes no writes: look at its log",
    "NOREPLICAS": "it has fewer replicas than its min-replicas-to-write asks for",
}


def is_passing(error: Exception) -> bool:
    """Whether a retry on another connection may succeed."""
    if isinstance(error, redis.AuthenticationError | redis.exceptions.AuthorizationError):
        return False
    return isinstance(error, redis.ConnectionError)


def from_redis(where: str, error: Exception) -> RopewalkError:
    """The Ropewalk error for an error of the driver or the server."""
    code, text = code_of(error), str(error).rstrip(".")
    if code == "GONE":
        return gone(where)
    if code == "DAMAGED":
        return damaged_space(text.partition("<")[2].partition(">")[0])
    if code in _MEANINGS:
        return Unavailable(f"the Redis server at {where} cannot do this now: {_MEANINGS[code]}")
    if code == "OOM":
        return StoreFull(
            f"the Redis server at {where} has no memory left: its maxmemory is reached. Nothing "
            "was written, and what is there can be read. Run gc, remove what is no longer needed, "
            "or raise maxmemory."
        )
    if code in ("NOAUTH", "WRONGPASS"):
        return NotAllowed(
            f"the Redis server at {where} refused the credentials: {text}. Look at the user and "
            "the password in the URL, redis://user:password@host, in which special characters are "
            "written as %xx."
        )
    if code == "NOPERM":
        return NotAllowed(
            f"the Redis server at {where} does not allow this to its user: {text}. Ropewalk needs "
            "the commands on its keys, EVAL and EVALSHA, INFO, and PUBLISH and SUBSCRIBE on its "
            "channel: look at ACL SETUSER."
        )
    if code == "MOVED":
        return Unavailable(
            f"the Redis server at {where} is part of a cluster, and the store is on another node: "
            f"{text}. Open it at that node's address."
        )
    return _from_connection(where, error, text)


def _from_connection(where: str, error: Exception, text: str) -> RopewalkError:
    if "DB index is out of range" in text or "SELECT is not allowed" in text:
        return InvalidInput(
            f"the Redis server at {where} has no database of that number: look at the end of the "
            "URL, redis://host:port/number"
        )
    if "WRONGTYPE" in text:
        return Corrupt(
            f"a key of the store at {where} holds something else: another program has written to "
            "it. Restore the store from a copy, or choose another name."
        )
    if isinstance(error, redis.TimeoutError):
        secured = where.startswith("rediss:")
        also = " If it does not speak TLS, the URL begins with redis://." if secured else ""
        return Unavailable(
            f"the Redis server at {where} did not answer in time. If this was a commit, send it "
            f"again with the same write id. If it is only slow, raise `timeout`.{also}"
        )
    if "No connection available" in text:
        return Unavailable(
            f"all connections to the Redis server at {where} are in use; raise `connections`"
        )
    if isinstance(error, redis.ConnectionError | OSError):
        secured = where.startswith("rediss:")
        look = "host, port and ssl_ options" if secured else "host and port"
        also = "" if secured else " (it begins with rediss:// if the server speaks TLS)"
        return Unavailable(
            f"the Redis server at {where} cannot be reached: {text}. Look at {look} in the URL"
            f"{also}, and whether the server runs. If this was a commit, send it again with the "
            "same write id."
        )
    return Unavailable(f"the Redis server at {where} answered with an error: {text}")


def code_of(error: Exception) -> str:
    """The code of a server error, or of the driver's class for it; '' if it has none."""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    if "The user executing the script" in str(error):
        return "NOPERM"
    if "AUTH <password> called without any password" in str(error):
        return "WRONGPASS"
    known = {*_MEANINGS, "GONE", "DAMAGED", "OOM", "NOPERM", "NOAUTH", "WRONGPASS", "MOVED"}
    return next((found for found in _CODE.findall(str(error)) if found in known), "")


# The driver has classes for some, and strips the code from their text.
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (redis.AuthenticationError, "WRONGPASS"),
    (redis.exceptions.AuthorizationError, "NOPERM"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.MovedError, "MOVED"),
)
