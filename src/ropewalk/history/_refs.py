"""The kinds of refs that a history has, and their names."""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.store import Ref, ref_name, split_name
from ropewalk.store._own import EXPIRES_AT
from ropewalk.tree import Commit, ObjectId

BRANCH = "branch"
TAG = "tag"
PIN = "pin"


class Pin(NamedTuple):
    """A value that is kept although no branch needs it, perhaps only until a time."""

    name: str
    root: ObjectId
    expires_at: int | None
    """Microseconds since 1970; None keeps it until it is unpinned."""

    def is_over(self, moment: int) -> bool:
        """Whether its time is over at a moment."""
        return self.expires_at is not None and self.expires_at <= moment


def prefix(kind: str) -> str:
    """What the names of all refs of a kind begin with."""
    return f"{kind}/"


def full_name(kind: str, name: str) -> str:
    """The name of a ref; raises `InvalidName`."""
    return ref_name(kind, name)


def short_name(ref: Ref) -> str:
    """The name of a ref within its kind."""
    return split_name(ref.name)[1]


def pin_of(ref: Ref, commit: Commit) -> Pin:
    """A pin, from its ref and the commit that it points to."""
    expires_at = commit.extension.get(EXPIRES_AT)
    return Pin(short_name(ref), commit.root, expires_at if isinstance(expires_at, int) else None)
