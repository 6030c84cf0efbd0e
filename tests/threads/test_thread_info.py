"""Records of threads."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import pytest

from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput
from ropewalk.threads import ThreadInfo, as_thread_info

AT = datetime(2025, 1, 31, 12, tzinfo=UTC)
FULL = ThreadInfo("t", "A trip", 7, {"tags": ["a"]}, AT, AT)


@pytest.mark.parametrize("info", [FULL, ThreadInfo(0), ThreadInfo("t", user_id="ada")])
def test_a_record_comes_back_from_a_store_as_it_was(info: ThreadInfo) -> None:
    codec = Codec()

    back = ThreadInfo.from_stored(codec.decode(codec.encode(info.to_stored())))

    assert back == info
    assert back.to_stored() == info.to_stored()


def test_what_is_absent_takes_no_room_in_a_store() -> None:
    assert ThreadInfo("t").to_stored() == {"thread_id": "t"}


def test_a_dict_is_taken_too() -> None:
    raw = {
        "thread_id": "t",
        "thread_name": "A trip",
        "user_id": 7,
        "metadata": {"tags": ["a"]},
        "created_at": "2025-01-31T13:00:00+01:00",
        "updated_at": 1738324800,
    }

    assert as_thread_info(raw) == FULL
    assert as_thread_info({"thread_id": "t", "metadata": None, "created_at": None}) == ThreadInfo(
        "t"
    )


def test_a_record_is_taken_as_it_is() -> None:
    assert as_thread_info(FULL) is FULL


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({}, "thread_id"),
        ({"thread_id": None}, "thread_id"),
        ({"thread_id": ""}, "thread_id"),
        ({"thread_id": True}, "thread_id"),
        ({"thread_id": 1.5}, "thread_id"),
        ({"thread_id": "t", "thread_name": 5}, "thread_name"),
        ({"thread_id": "t", "user_id": ""}, "user_id"),
        ({"thread_id": "t", "metadata": "x"}, "metadata"),
        ({"thread_id": "t", "created_at": "2025-01-31"}, "created_at"),
        ({"thread_id": "t", "updated_at": datetime(2025, 1, 1)}, "updated_at"),
        ({"thread_id": "t", "title": "x"}, "title"),
        ("t", "thread"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(raw: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=rf"\b{named}\b"):
        as_thread_info(raw)


def test_a_field_cannot_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError):
        FULL.thread_name = "x"  # type: ignore[misc]


def test_the_callers_later_changes_do_not_reach_the_record() -> None:
    metadata = {"deep": [1]}
    info = ThreadInfo("t", metadata=metadata)

    metadata["deep"].append(2)

    assert info.metadata == {"deep": [1]}


def test_replace_checks_what_it_is_given() -> None:
    assert FULL.replace(thread_name="B") == ThreadInfo("t", "B", 7, {"tags": ["a"]}, AT, AT)
    with pytest.raises(InvalidInput, match="thread_name"):
        FULL.replace(thread_name=5)


def test_a_record_can_be_copied_pickled_and_a_key() -> None:
    again = pickle.loads(pickle.dumps(FULL))

    assert copy.deepcopy(FULL) == again == FULL
    assert len({again, FULL, ThreadInfo("t")}) == 2
