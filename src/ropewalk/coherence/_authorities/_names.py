"""What an artifact is called in a store and on a bus. It may have any name."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from ropewalk.errors import InvalidName
from ropewalk.store import ref_name

BRANCH: Final = "branch"
GRANT: Final = "grant"
NAME: Final = "artifact"
"""Where a commit keeps the name of an artifact whose branch has a digest for one."""

_LONGEST: Final = 300


class Names(NamedTuple):
    """What an artifact is called in its space."""

    branch: str
    """Its own name, or a digest where that is no name of a branch."""
    ref: str
    lease: str


@lru_cache(maxsize=65536)
def names_of(artifact: str) -> Names:
    """What an artifact is called; raises `InvalidName` for what is no text."""
    branch = branch_of(artifact)
    return Names(branch, ref_name(BRANCH, branch), ref_name(GRANT, branch))


def branch_of(artifact: str) -> str:
    """The name of an artifact's branch: its own, or a digest where that cannot be one."""
    try:
        if len(ref_name(BRANCH, artifact)) <= _LONGEST and not artifact.startswith("~"):
            return artifact
    except InvalidName:
        if not isinstance(artifact, str) or artifact == "":
            raise
    return "~" + sha256(artifact.encode("utf-8", "surrogatepass")).hexdigest()
