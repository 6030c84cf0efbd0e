"""Names: any text becomes a part of a name, in one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidName
from ropewalk.store import ref_name, space_name, split_name
from ropewalk.store.engine import MAX_NAME_BYTES, decode_part, encode_part

TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40
).filter(lambda text: text not in (".", ".."))  # fmt: skip


@given(TEXTS)
def test_a_text_comes_back_from_its_spelling(text: str) -> None:
    part = encode_part(text)

    assert decode_part(part) == text
    assert part.isascii()
    assert not set(part) & set("/\\*? \"'<>|:;&$#")


@given(TEXTS, TEXTS)
def test_two_texts_never_share_a_spelling(left: str, right: str) -> None:
    assert (encode_part(left) == encode_part(right)) == (left == right)


@given(st.text(st.sampled_from("aZ09._~-%/2Ff\x00é"), max_size=12))
def test_a_part_is_its_texts_only_spelling_or_refused(part: str) -> None:
    try:
        text = decode_part(part)
    except InvalidName:
        return

    assert encode_part(text) == part


def test_names_are_readable() -> None:
    assert space_name("acme", "research agent") == "acme/research%20agent"
    assert ref_name("branch", "feature/x") == "branch/feature%2Fx"
    assert split_name("branch/feature%2Fx") == ("branch", "feature/x")
    assert encode_part("grüße") == "gr%C3%BC%C3%9Fe"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (".", "folder"),
        ("..", "folder"),
        ("a\x00b", "control character"),
        ("a\x7f", "control character"),
        ("a\x85", "control character"),
        ("a\nb", "control character"),
        ("\ud800", "lone surrogate"),
        ("x" * 513, "longer"),
        (None, "must be a string"),
    ],
)
def test_a_hostile_text_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        encode_part(text)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("%41", "another spelling"),
        ("%2f", "not a percent-encoded part"),
        ("%C3", "UTF-8"),
        ("%00", "control character"),
        ("%2E", "folder"),
        ("%2E%2E", "folder"),
        ("a b", "not a percent-encoded part"),
        ("a%", "not a percent-encoded part"),
        (b"a", "not a percent-encoded part"),
    ],
)
def test_a_hostile_part_is_refused_with_its_reason(part: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        decode_part(part)


def test_a_name_fits_its_limit_when_encoded() -> None:
    with pytest.raises(InvalidName, match=str(MAX_NAME_BYTES)):
        space_name("tenant", "é" * 100)
