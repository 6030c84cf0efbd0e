"""OpenAI-style dicts become messages and come back as they were."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from holdfast.codec import Codec
from holdfast.threads import (
    Message,
)
from tests.strategies import same
from tests.threads.openai_dicts import CHAT, ITEMS, Raw, dicts


def stored_and_read(message: Message) -> Message:
    """What a store would give back."""
    codec = Codec()
    return Message.from_stored(codec.decode(codec.encode(message.to_stored())))


def sorted_keys(value: Any) -> Any:
    """The order of keys is no part of what a dict says here."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("raw", [*CHAT, *ITEMS])
def test_a_dict_comes_back_as_it_was(raw: Raw) -> None:
    before = copy.deepcopy(raw)

    message = Message.from_openai(raw)

    assert same(sorted_keys(message.to_openai()), sorted_keys(before))
    assert same(sorted_keys(stored_and_read(message).to_openai()), sorted_keys(before))
    assert raw == before


@given(dicts)
def test_any_dict_comes_back_as_it_was(raw: Raw) -> None:
    message = Message.from_openai(raw)

    assert same(sorted_keys(message.to_openai()), sorted_keys(raw))
    assert same(sorted_keys(stored_and_read(message).to_openai()), sorted_keys(raw))
