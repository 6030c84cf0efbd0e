"""What no store could use is refused with an error of ours, before anything happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, InvalidName
from ropewalk.store import Fence, FileStore, MemoryStore, Move, SqliteStore, Store
from ropewalk.testing.helpers import MAIN, SPACE, value
from ropewalk.tree import make_object


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.mark.parametrize("token", [None, -1, True, "1", 1.0, []])
def test_a_fence_needs_a_token_that_could_have_been_granted(store: Store, token: Any) -> None:
    with pytest.raises(InvalidInput, match="token of a fence"):
        store.commit(SPACE, fence=Fence(MAIN, token))
    with pytest.raises(InvalidInput, match="token of a fence"):
        store.commit(SPACE, fence=[Fence(MAIN, token)])


@pytest.mark.parametrize("fence", ["x", b"x", 5, [5], [None], (MAIN, 1)])
def test_what_is_no_fence_is_refused(store: Store, fence: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a Fence"):
        store.commit(SPACE, fence=fence)


@pytest.mark.parametrize("operation", ["x", "", 0, False, [], [("a", 1)], b""])
def test_metadata_that_is_no_mapping_is_refused(store: Store, operation: Any) -> None:
    with pytest.raises(InvalidInput, match="metadata is a dict"):
        store.commit(SPACE, operation=operation)


@pytest.mark.parametrize("name", [[], {}, bytearray(b"a/b"), 5, None])
def test_a_name_that_is_no_text_is_refused(store: Store, name: Any) -> None:
    one = value("one")
    attempts: list[Callable[[], object]] = [
        lambda: store.commit(name),
        lambda: store.commit(SPACE, [one], moves=[Move(name, None, one.id)]),
        lambda: store.commit(SPACE, fence=Fence(name, 1)),
        lambda: store.ref(SPACE, name),
        lambda: store.ref(name, MAIN),
        lambda: store.view(name),
        lambda: store.acquire(SPACE, name, "me", 1.0),
        lambda: store.watch(name),
    ]

    for attempt in attempts:
        with pytest.raises(InvalidName):
            attempt()


@pytest.mark.parametrize("after", [None, -1, "x", 1.0, True])
def test_what_is_no_number_of_an_operation_is_refused(store: Store, after: Any) -> None:
    for attempt in (store.operations, store.watch, store.awatch):
        with pytest.raises(InvalidInput, match="after"):
            attempt(SPACE, after)
    with pytest.raises(InvalidInput, match="limit"):
        store.operations(SPACE, limit=after)


@pytest.mark.parametrize("timeout", ["x", float("nan"), float("inf"), 1e300, True, []])
def test_what_nobody_could_wait_for_is_refused(store: Store, timeout: Any) -> None:
    for attempt in (store.watch, store.awatch):
        with pytest.raises(InvalidInput, match="timeout"):
            attempt(SPACE, 0, timeout)


@pytest.mark.parametrize("lease", [None, "x", 5, Fence(MAIN, 1)])
def test_what_is_no_lease_is_refused(store: Store, lease: Any) -> None:
    for attempt in (store.renew, store.release, store.holds):
        with pytest.raises(InvalidInput, match="a lease is"):
            attempt(lease)


@pytest.mark.parametrize("duration", ["x", [], float("nan"), 0, -1])
def test_a_lease_is_renewed_for_a_positive_time(store: Store, duration: Any) -> None:
    lease = store.acquire(SPACE, MAIN, "me", 1.0)

    with pytest.raises(InvalidInput, match="lasts"):
        store.renew(lease, duration)


@pytest.mark.parametrize(
    "options",
    [
        {"clock": 1},
        {"clock": None},
        {"backend_aliases": "x"},
        {"backend_aliases": 5},
        {"backend_aliases": [5]},
        {"backend_id": ""},
        {"default_ttl_seconds": 0},
        {"default_ttl_seconds": -1},
        {"default_ttl_seconds": True},
        {"default_ttl_seconds": "60"},
        {"default_ttl_seconds": float("nan")},
        {"default_ttl_seconds": float("inf")},
    ],
)
def test_a_store_is_not_opened_with_what_it_cannot_use(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        MemoryStore(**options)


def test_every_store_takes_the_options_of_references(tmp_path: Path) -> None:
    for opened in (
        MemoryStore(backend_id="new", backend_aliases=["old"], default_ttl_seconds=60),
        FileStore(
            tmp_path / "files", backend_id="new", backend_aliases=["old"], default_ttl_seconds=60
        ),
        SqliteStore(
            tmp_path / "embedded", backend_id="new", backend_aliases=["old"], default_ttl_seconds=60
        ),
    ):
        with opened as store:
            assert (store.backend_id, store.backend_aliases) == ("new", ("old",))
            assert store.default_ttl_seconds == 60.0


def test_what_a_reference_names_is_kept_for_ever_unless_the_store_says_how_long(
    store: Store,
) -> None:
    assert store.default_ttl_seconds is None
    with pytest.raises(AttributeError):
        store.default_ttl_seconds = 60.0  # type: ignore[misc]


@pytest.mark.parametrize("kind", [1, 99, -1, None, "VALUE"])
def test_an_object_has_a_kind(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="kind of object"):
        make_object(kind, b"x")
