"""Errors travel between processes."""

from __future__ import annotations

import pickle

import pytest

from ropewalk.errors import (
    ArtifactHeld,
    GrantLost,
    LeaseHeld,
    MergeConflict,
    MissingObjects,
    NotFound,
    RefMoved,
    RopewalkError,
    VersionConflict,
)
from ropewalk.tree import PathConflict

ERRORS = [
    NotFound("there is no plan"),
    RefMoved("branch/main", b"1" * 32, None),
    MissingObjects([b"1" * 32]),
    VersionConflict(("shared",), "plan", 1, 2, [PathConflict(("a",), 1, 2, 3)]),
    LeaseHeld("it is held", 1.5),
    ArtifactHeld("plan", "editor", 2.5),
    GrantLost("plan", "editor", "reclaim_heartbeat"),
    MergeConflict([PathConflict(("a",), 1, 2, 3)]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_whole_from_another_process(error: RopewalkError) -> None:
    found = pickle.loads(pickle.dumps(error))

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.__dict__ == error.__dict__
