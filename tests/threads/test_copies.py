"""What is put is copied, and so is what is given: nothing is shared with the caller."""

from __future__ import annotations

from typing import Any

from ropewalk.testing.threads.faces import (
    T1,
    Face,
    Faces,
)
from ropewalk.testing.threads.states import Work
from ropewalk.threads import Message, ThreadInfo
from tests.threads.test_arguments import OnMemory


def nested() -> dict[str, Any]:
    """A value with several levels that can be modified."""
    return {"list": [1, {"deep": [2]}], "set": {3}}


def change(value: Any) -> None:
    """Modify it at every level."""
    value["list"][1]["deep"].append("changed")
    value["list"].append("changed")
    value["set"].add("changed")
    value["new"] = "changed"


class TestCopies(OnMemory):
    """Isolation from the caller's objects."""

    def test_a_state_is_not_changed_by_later_changes_of_what_was_put(self, chat: Face) -> None:
        state = nested()
        change(chat.put_state(T1, state))

        assert chat.get_state(T1) == nested()
        assert state != nested()

    def test_a_state_is_not_changed_by_changes_of_what_was_got(self, chat: Face) -> None:
        chat.put_state(T1, nested())
        for _ in range(2):
            change(chat.get_state(T1))

        assert chat.get_state(T1) == nested()

    def test_a_state_that_is_changed_and_put_again_is_stored_as_it_is_then(
        self, chat: Face, opened: Faces
    ) -> None:
        state, other = nested(), opened()
        for step in range(5):
            state["list"][1]["deep"].append(step)
            state["list"].append(step)
            chat.put_state(T1, state)
            assert other.get_state(T1) == state
        chat.timeline(T1).rollback(2)

        assert chat.get_state(T1)["list"][1]["deep"] == [2, 0, 1, 2]
        assert state["list"][1]["deep"] == [2, 0, 1, 2, 3, 4]

    def test_objects_of_classes_are_copied_too(self, opened: Faces) -> None:
        chat, state = opened(types=[Work]), Work(1, ["a"])
        chat.put_state(T1, state)
        state.found.append("changed")
        state.step = 2
        chat.get_state(T1).found.append("changed")

        assert chat.get_state(T1) == Work(1, ["a"])
        chat.put_state(T1, state)
        assert chat.get_state(T1) == Work(2, ["a", "changed"])

    def test_one_object_in_two_places_and_two_threads_is_no_matter(self, chat: Face) -> None:
        inner = [1]
        chat.put_state(T1, {"a": inner, "b": inner})
        chat.put_state({"thread_id": "t2"}, {"a": inner})
        inner.append(2)

        assert chat.get_state(T1) == {"a": [1], "b": [1]}
        assert chat.get_state({"thread_id": "t2"}) == {"a": [1]}

    def test_a_cached_state_is_a_copy_on_both_sides(self, chat: Face) -> None:
        state = nested()
        change(chat.put_state_cache(T1, state))
        change(chat.get_state_cache(T1))

        assert chat.get_state_cache(T1) == nested()

    def test_messages_are_copies_on_both_sides(self, chat: Face) -> None:
        own = {
            "role": "user",
            "content": [{"type": "text", "text": "a"}],
            "id": "m0",
            "metadata": nested(),
        }
        made = Message("user", "b", id="m1", metadata=nested(), extra={"more": nested()})
        messages = [own, made]
        chat.put_messages(T1, messages)
        own["content"][0]["text"] = "changed"  # type: ignore[index]
        change(own["metadata"])
        change(made.metadata)
        change(made.extra["more"])
        messages.clear()
        for _ in range(2):
            for found in [*chat.list_messages(T1), chat.get_message(T1, "m0")]:
                assert found.metadata == nested()
                change(found.metadata)
                if found.extra:
                    change(found.extra["more"])

        assert [one.text for one in chat.list_messages(T1)] == ["a", "b"]
        assert [one.metadata for one in chat.list_messages(T1)] == [nested(), nested()]
        assert chat.get_message(T1).extra == {"more": nested()}

    def test_a_message_whose_metadata_changed_is_put_again_as_an_edit(self, chat: Face) -> None:
        made = Message("user", "a", id="m0", metadata=nested())
        chat.put_messages(T1, [made])
        change(made.metadata)
        chat.put_messages(T1, [made])

        (found,) = chat.list_messages(T1)
        assert found.metadata == made.metadata
        assert found.metadata != nested()

    def test_the_metadata_of_a_put_are_copies_on_both_sides(self, chat: Face) -> None:
        about = nested()
        chat.put_messages(T1, [{"role": "user", "content": "a"}, Message("user", "b")], about)
        change(about)
        first, second = chat.list_messages(T1)
        change(first.metadata)

        assert second.metadata == nested()
        assert [one.metadata for one in chat.list_messages(T1)] == [nested(), nested()]

    def test_records_are_copies_on_both_sides(self, chat: Face) -> None:
        metadata = nested()
        info = ThreadInfo("t1", metadata=metadata)
        chat.put_thread(T1, info)
        change(metadata)
        change(info.metadata)
        change(chat.get_thread(T1).metadata)
        change(chat.list_threads({})[0].metadata)

        assert chat.get_thread(T1).metadata == nested()
        assert chat.list_threads({})[0].metadata == nested()

    def test_what_is_put_at_once_is_copied_too(self, chat: Face) -> None:
        state, made, record = nested(), Message("user", metadata=nested()), {"metadata": nested()}
        chat.put(T1, state, [made], record)
        for one in (state, made.metadata, record["metadata"]):
            change(one)

        assert chat.get_state(T1) == nested()
        assert chat.get_message(T1).metadata == nested()
        assert chat.get_thread(T1).metadata == nested()

    def test_a_config_may_be_used_for_something_else_afterwards(self, chat: Face) -> None:
        config = {"thread_id": "t1"}
        chat.put_state(config, 1)
        config["thread_id"] = "t2"
        chat.put_state(config, 2)

        assert chat.get_state(T1) == 1
