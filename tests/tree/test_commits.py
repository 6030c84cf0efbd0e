"""Commits: what they hold comes back, one commit has one spelling, and bytes are not believed."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import FormatError, InvalidInput
from ropewalk.tree import (
    Commit,
    Kind,
    check_commit,
    check_links,
    links,
    make_commit,
    make_object,
    read_commit,
)
from ropewalk.tree.objects import MAX_COMMIT_BYTES

ROOT, PARENT, OTHER = b"r" * 32, b"p" * 32, b"o" * 32

IDS = st.binary(min_size=32, max_size=32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
COMMITS = st.fixed_dictionaries(
    {"root": IDS, "parents": st.lists(IDS, max_size=3, unique=True).map(tuple)},
    optional={
        "generation": st.integers(1, 2**63 - 1),
        "time": st.integers(-(2**63), 2**64 - 1),
        **dict.fromkeys(("agent", "branch", "description", "logic_step"), TEXTS),
        **dict.fromkeys(("status", "error"), TEXTS),
        "metadata": st.none() | IDS,
        "events": st.none() | IDS,
        "extension": st.dictionaries(TEXTS, PLAIN, max_size=3),
    },
)


@given(COMMITS)
def test_a_commit_comes_back_as_it_was(fields: dict[str, Any]) -> None:
    commit, made = make_commit(**fields)

    assert read_commit(made) == check_commit(made) == commit
    assert all(getattr(commit, name) == value for name, value in fields.items())
    assert (commit.id, made.kind) == (made.id, Kind.COMMIT)


def test_the_bytes_of_a_commit_never_change() -> None:
    commit, made = make_commit(
        ROOT,
        (PARENT,),
        generation=2,
        time=1_700_000_000_000_000,
        agent="agent",
        branch="main",
        description="did",
        logic_step="step",
        status="done",
        error="",
        metadata=OTHER,
        extension={"b": 1, "a": [None, 2.5, b"x"]},
    )

    assert made.payload.hex() == (
        "9dc420" + "72" * 32 + "91c420" + "70" * 32 + "02cf00060a24181e4000"
        "a56167656e74a46d61696ea3646964a473746570a4646f6e65a0c420" + "6f" * 32
        + "c082a16193c0cb4004000000000000c40178a16201"
    )  # fmt: skip
    assert commit.short == "4b54608435f1"


def test_the_links_of_a_commit_stand_in_the_order_of_its_fields() -> None:
    _, made = make_commit(ROOT, (PARENT, OTHER), metadata=b"m" * 32, events=b"e" * 32)

    assert links(made) == [ROOT, PARENT, OTHER, b"m" * 32, b"e" * 32]


def test_what_is_put_into_an_extension_later_is_not_in_the_commit() -> None:
    extension: dict[str, Any] = {"a": 1}
    commit, _ = make_commit(ROOT, extension=extension)
    extension["b"] = 2

    assert commit.extension == {"a": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"root": b"short"},
        {"root": "r" * 32},
        {"parents": (b"short",)},
        {"parents": (PARENT, PARENT)},
        {"parents": tuple(bytes([n]) * 32 for n in range(65))},
        {"generation": 0},
        {"generation": True},
        {"generation": 1.0},
        {"time": 2**64},
        {"time": None},
        {"description": None},
        {"description": b"bytes"},
        {"description": "\ud800"},
        {"metadata": b"short"},
        {"events": "e" * 32},
        {"extension": {1: 2}},
        {"extension": {"a": object()}},
        {"extension": {"a": (1, 2)}},
        {"extension": {"a": 2**64}},
        {"extension": ["a"]},
        {"description": "x" * (MAX_COMMIT_BYTES + 1)},
    ],
)
def test_a_commit_that_cannot_be_stored_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        make_commit(**{"root": ROOT, **fields})


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_an_extension_that_is_nested_too_deeply_is_refused() -> None:
    make_commit(ROOT, extension={"a": _deep(30)})
    with pytest.raises(InvalidInput):
        make_commit(ROOT, extension={"a": _deep(40)})


SOUND = [ROOT, [PARENT], 2, 0, "", "", "", "", "", "", None, None, {}]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, b"short"),
        (0, None),
        (1, PARENT),
        (1, [PARENT, PARENT]),
        (1, [3]),
        (2, 0),
        (2, "2"),
        (3, None),
        (4, b"agent"),
        (10, b"short"),
        (12, []),
        (12, {"a": {1: 2}}),
        (12, None),
    ],
)
def test_bytes_that_are_no_commit_are_refused(place: int, value: Any) -> None:
    fields: list[Any] = [*SOUND]
    fields[place] = value
    payload = ormsgpack.packb(fields, option=ormsgpack.OPT_NON_STR_KEYS)

    with pytest.raises(FormatError):
        read_commit(make_object(Kind.COMMIT, payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        ormsgpack.packb(SOUND)[:-1],
        ormsgpack.packb(SOUND) + b"\x00",
        ormsgpack.packb(SOUND[:-1]),
        ormsgpack.packb([*SOUND, 1]),
        ormsgpack.packb({"root": ROOT}),
        ormsgpack.packb([*SOUND[:-1], {"b": 1, "a": 2}]),  # not sorted
        ormsgpack.packb(SOUND).replace(b"\x02\x00", b"\xcc\x02\x00"),  # 2 spelled longer
        ormsgpack.packb([*SOUND[:-1], {"x": b"y" * MAX_COMMIT_BYTES}]),
    ],
)
def test_a_commit_has_one_accepted_spelling(payload: bytes) -> None:
    with pytest.raises(FormatError):
        check_commit(make_object(Kind.COMMIT, payload))
    with pytest.raises(FormatError):
        check_links(make_object(Kind.COMMIT, payload))


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_a_commit_or_a_format_error(payload: bytes) -> None:
    made = make_object(Kind.COMMIT, payload)
    try:
        read = read_commit(made)
        assert all(len(id) == 32 for id in links(made))
    except FormatError:
        return
    assert isinstance(read, Commit)


def test_a_value_is_no_commit() -> None:
    with pytest.raises(FormatError, match="not a commit"):
        read_commit(make_object(Kind.VALUE, ormsgpack.packb(SOUND)))


def test_a_commit_shows_its_short_id_and_what_it_did() -> None:
    plain, _ = make_commit(ROOT)
    said, _ = make_commit(ROOT, description="Found one")

    assert repr(plain) == f"<Commit {plain.short}>"
    assert repr(said) == f"<Commit {said.short} 'Found one'>"
