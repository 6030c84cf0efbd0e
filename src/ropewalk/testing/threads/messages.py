"""Messages: appended, edited, deleted, and found by id."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ropewalk.errors import MessageNotFound, NotStorable
from ropewalk.testing.threads.faces import (
    T1,
    T2,
    Base,
    Face,
    Faces,
    commits,
    everything,
    ids,
    numbered,
    said,
    texts,
)
from ropewalk.testing.threads.states import Unknown
from ropewalk.threads import AudioPart, ImagePart, Message, TextPart, ToolCall, ToolResult, Usage

ODD_IDS: list[Any] = [
    0, -1, 1, "1", 127, 128, 2**63, -(2**70), "0", "state", "marks", "ids", "thread", "a/b",
    "../x", "#1", " ", "\n", "K\u00e4se \U0001f9c0", "x" * 4096, "\0",
]  # fmt: skip
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PICTURE = "data:image/png;base64,aGVsbG8gd29ybGQ="


class MessageContract(Base):
    """put_messages, get_message, delete_message."""

    def test_messages_come_back_in_the_order_they_were_put(self, chat: Face, opened: Faces) -> None:
        assert chat.put_messages(T1, said("a", "b")) is True
        assert chat.put_messages(T1, said("c", first=2)) is True

        for one in (chat, opened()):
            assert texts(one.list_messages(T1)) == ["a", "b", "c"]
            assert all(type(found) is Message for found in one.list_messages(T1))

    def test_a_message_is_found_by_its_id(self, chat: Face) -> None:
        chat.put_messages(T1, said("a", "b", "c"))

        assert chat.get_message(T1, "m1").text == "b"
        assert chat.get_message(T1, message_id="m0").text == "a"

    def test_without_an_id_the_latest_is_given(self, chat: Face) -> None:
        for number in range(3):
            chat.put_messages(T1, numbered(1, number))
            assert chat.get_message(T1).id == f"m{number}"
            assert chat.get_message(T1, None).id == f"m{number}"

    def test_a_message_that_is_not_there_is_an_error_that_is_an_index_error_too(
        self, chat: Face
    ) -> None:
        chat.put_messages(T1, said("a"))
        for name in ("get_message", "delete_message"):
            with pytest.raises(MessageNotFound, match="absent") as caught:
                getattr(chat, name)(T1, "absent")
            assert isinstance(caught.value, IndexError)

        assert ids(chat.list_messages(T1)) == ["m0"]

    def test_an_empty_thread_has_no_latest_message(self, chat: Face) -> None:
        with pytest.raises(IndexError, match="t1"):
            chat.get_message(T1)
        chat.put_messages(T1, said("a"))
        chat.delete_message(T1, "m0")
        with pytest.raises(IndexError):
            chat.get_message(T1)

    def test_every_field_of_a_message_comes_back(self, chat: Face, opened: Faces) -> None:
        full = Message(
            "assistant",
            [
                TextPart("Look:"),
                ImagePart(PICTURE),
                AudioPart("aGVsbG8=", "wav"),
                ToolResult("c0", "done"),
            ],
            id="full",
            name="Ann",
            tool_calls=[ToolCall("c1", "look", '{"a": 1}')],
            tool_call_id="c0",
            usage=Usage(3, 5),
            created_at=datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
            metadata={"deep": {"list": [1, None, 2.5]}, "at": datetime(2026, 1, 1, tzinfo=UTC)},
            extra={"refusal": "No."},
        )
        chat.put_messages(T1, [full])

        assert opened().get_message(T1, "full") == full

    def test_all_are_stored_or_none(self, chat: Face) -> None:
        bad = {"role": "user", "content": "bad", "id": "bad", "metadata": {"x": Unknown()}}
        with pytest.raises(NotStorable):
            chat.put_messages(T1, [*said("a", "b"), bad, *said("c", first=2)])
        assert chat.list_messages(T1) == []

        with pytest.raises(NotStorable):
            chat.put_messages(T1, said("a"), {"x": Unknown()})
        assert chat.list_messages(T1) == []
        assert commits(chat) == 0

    def test_no_messages_are_no_commit(self, chat: Face) -> None:
        assert chat.put_messages(T1, []) is True

        assert commits(chat) == 0
        assert chat.get_thread(T1) is None

    # By id, once.

    def test_a_message_that_is_put_again_is_stored_once(self, chat: Face, opened: Faces) -> None:
        one = Message("user", "a", id="m0")
        for by in (chat, chat, opened()):
            by.put_messages(T1, [one, Message("user", "b", id="m1", created_at=one.created_at)])

        assert texts(chat.list_messages(T1)) == ["a", "b"]
        assert commits(chat) == 1

    def test_a_dict_that_says_no_time_is_stored_once(self, chat: Face) -> None:
        for _ in range(3):
            chat.put_messages(T1, said("a", "b"))

        assert texts(chat.list_messages(T1)) == ["a", "b"]
        assert commits(chat) == 1

    def test_an_edit_that_says_no_time_keeps_the_one_that_is_stored(self, chat: Face) -> None:
        chat.put_messages(T1, [Message("user", "a", id="m0", created_at=BEGIN)])
        chat.put_messages(T1, said("edited"))

        found = chat.get_message(T1, "m0")
        assert (found.text, found.created_at) == ("edited", BEGIN)

    def test_what_was_read_can_be_put_again_and_changes_nothing(self, chat: Face) -> None:
        chat.put_messages(T1, [Message("user", "a", metadata={"own": 1})], {"channel": "web"})
        chat.put_messages(T1, said("b"))
        chat.put_messages(T1, chat.list_messages(T1))

        assert texts(chat.list_messages(T1)) == ["a", "b"]
        assert commits(chat) == 2

    def test_one_id_in_two_threads_is_two_messages(self, chat: Face) -> None:
        chat.put_messages(T1, said("one"))
        chat.put_messages(T2, said("two"))
        chat.delete_message(T2, "m0")

        assert texts(chat.list_messages(T1)) == ["one"]
        assert chat.list_messages(T2) == []

    def test_old_and_new_messages_of_one_put_are_told_apart(self, chat: Face) -> None:
        chat.put_messages(T1, said("a", "b"))
        chat.put_messages(T1, said("a", "b", "c"))

        assert texts(chat.list_messages(T1)) == ["a", "b", "c"]

    def test_an_edited_message_keeps_its_place_and_the_one_before_stays_in_history(
        self, chat: Face
    ) -> None:
        chat.put_messages(T1, said("a", "b", "c"))
        chat.put_messages(T1, said("edited", first=1))

        assert texts(chat.list_messages(T1)) == ["a", "edited", "c"]
        assert chat.get_message(T1, "m1").text == "edited"
        assert chat.get_message(T1).text == "c"
        chat.timeline(T1).rollback()
        assert texts(chat.list_messages(T1)) == ["a", "b", "c"]

    def test_ids_of_every_kind_name_messages_of_their_own(self, chat: Face) -> None:
        made = [{"role": "user", "content": f"{id!r}", "id": id} for id in ODD_IDS]
        for _ in range(2):
            chat.put_messages(T1, made)

        assert ids(chat.list_messages(T1)) == ODD_IDS
        for id in ODD_IDS:
            found = chat.get_message(T1, id)
            assert (found.id, type(found.id), found.text) == (id, type(id), repr(id))
        for id in ODD_IDS[::2]:
            chat.delete_message(T1, id)
        assert ids(chat.list_messages(T1)) == ODD_IDS[1::2]

    # Metadata of a put.

    # Deleting.

    def test_a_deleted_message_is_gone_from_the_present_and_stays_in_history(
        self, chat: Face, opened: Faces
    ) -> None:
        chat.put_messages(T1, said("a", "b", "c"))

        assert chat.delete_message(T1, "m1") is True

        for one in (chat, opened()):
            assert texts(one.list_messages(T1)) == ["a", "c"]
            with pytest.raises(MessageNotFound):
                one.get_message(T1, "m1")
        with pytest.raises(MessageNotFound):
            chat.delete_message(T1, "m1")
        chat.timeline(T1).rollback()
        assert texts(chat.list_messages(T1)) == ["a", "b", "c"]

    def test_after_the_latest_is_deleted_the_one_before_is_the_latest(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(4))
        for number in (3, 2, 1):
            chat.delete_message(T1, f"m{number}")
            assert chat.get_message(T1).id == f"m{number - 1}"

    def test_a_deleted_message_that_is_put_again_is_the_latest(self, chat: Face) -> None:
        chat.put_messages(T1, said("a", "b", "c"))
        for id in ("m0", "m2"):
            chat.delete_message(T1, id)
        chat.put_messages(T1, said("a"))
        chat.put_messages(T1, said("c", first=2))

        assert texts(chat.list_messages(T1)) == ["b", "a", "c"]
        assert chat.get_message(T1, "m0").text == "a"
        assert chat.get_message(T1).text == "c"

    def test_a_message_that_another_checkpointer_put_can_be_deleted_and_edited(
        self, chat: Face, opened: Faces
    ) -> None:
        other = opened()
        chat.put_messages(T1, numbered(2))
        other.put_messages(T1, numbered(2, 2))
        chat.delete_message(T1, "m3")
        other.delete_message(T1, "m0")
        chat.put_messages(T1, said("edited", first=2))

        with pytest.raises(MessageNotFound):
            chat.delete_message(T1, "m0")
        assert texts(other.list_messages(T1)) == ["number 1", "edited"]

    # Many.

    @pytest.mark.parametrize("together", [1, 50, 500])
    def test_many_messages_are_found_edited_and_deleted_wherever_they_stand(
        self, chat: Face, opened: Faces, together: int
    ) -> None:
        count = 150 if together == 1 else 500
        for first in range(0, count, together):
            chat.put_messages(T1, numbered(min(together, count - first), first))
        other = opened()
        gone = [0, 1, 63, 127, 128, count - 2, count - 1]
        for number in gone:
            other.delete_message(T1, f"m{number}")
        chat.put_messages(T1, said("edited", first=64))
        chat.put_messages(T1, said("again", first=127))
        chat.put_messages(T1, numbered(count, 0)[2:60])

        left = [one for one in range(count) if one not in gone]
        assert ids(chat.list_messages(T1)) == [f"m{one}" for one in [*left, 127]]
        for number in (2, 60, 126, 129, count - 3):
            assert chat.get_message(T1, f"m{number}").text == f"number {number}"
        assert chat.get_message(T1, "m64").text == "edited"
        assert chat.get_message(T1).text == "again"
        with pytest.raises(MessageNotFound):
            chat.get_message(T1, "m128")

    def test_a_large_message_comes_back(self, chat: Face) -> None:
        text = "".join(chr(0x4E00 + number % 20_000) for number in range(300_000))
        chat.put_messages(T1, said(text, "after it"))

        assert chat.get_message(T1, "m0").text == text
        assert everything(chat)[2][1]["content"] == "after it"
