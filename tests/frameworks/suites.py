"""What the checkpointer does for every framework of the family. A subclass names its kit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import ropewalk
from ropewalk import MemoryStore, Message, Store
from ropewalk.adapters.conversations import named_classes
from ropewalk.errors import InvalidInput, NotStorable, UndeclaredClass
from tests.frameworks.trip import Kit, Plan, Stage
from tests.frameworks.turn import take_turn, turn_in_another_process

CONFIG = {"thread_id": "trip"}


class Suite:
    kit: Kit

    @pytest.fixture(params=["memory", "folder"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
        if request.param == "memory":
            yield MemoryStore()
            return
        with ropewalk.open(tmp_path / "store") as store:
            yield store

    @pytest.fixture
    def checkpointer(self, store: Store) -> Any:
        return self.kit.RopewalkCheckpointer(store, types=[self.kit.TripState])

    @property
    def message(self) -> Any:
        return self.kit.RopewalkCheckpointer.models.message

    @property
    def classes(self) -> dict[str, Any]:
        """The framework's classes by their names."""
        state = self.kit.RopewalkCheckpointer.models.state
        return {cls.__name__: cls for cls in named_classes([state])}

    def said(self, text: str, **fields: Any) -> Any:
        return self.message(role="user", content=[self.classes["TextBlock"](text=text)], **fields)


class InterfaceSuite(Suite):
    def test_it_is_a_checkpointer_of_the_framework(self) -> None:
        made = self.kit.RopewalkCheckpointer()

        assert isinstance(made, self.kit.BaseCheckpointer)
        assert not getattr(type(made), "__abstractmethods__", ())

    def test_every_method_takes_what_the_framework_hands_over(self) -> None:
        asked = inspect.getmembers(self.kit.BaseCheckpointer, inspect.isfunction)
        public = [(name, method) for name, method in asked if not name.startswith("_")]

        assert len(public) >= 30
        for name, method in public:
            ours = inspect.signature(getattr(self.kit.RopewalkCheckpointer, name)).parameters
            theirs = inspect.signature(method).parameters
            assert list(ours)[: len(theirs)] == list(theirs), name

    def test_every_asynchronous_method_is_one(self) -> None:
        asked = inspect.getmembers(self.kit.BaseCheckpointer, inspect.iscoroutinefunction)

        assert len(asked) >= 15
        for name, _ in asked:
            assert inspect.iscoroutinefunction(getattr(self.kit.RopewalkCheckpointer, name)), name

    def test_it_closes_the_store_that_it_opened_and_no_other(self, tmp_path: Path) -> None:
        store = MemoryStore()
        self.kit.RopewalkCheckpointer(store).release()
        own = self.kit.RopewalkCheckpointer(tmp_path / "own")
        asyncio.run(own.arelease())

        assert list(store.spaces("threads")) == []
        with pytest.raises(ropewalk.errors.StoreClosed):
            own.get_state(CONFIG)


class StateSuite(Suite):
    def state(self, **fields: Any) -> Any:
        return self.kit.TripState(context=[self.said("hello")], **fields)

    def test_a_state_comes_back_as_its_class_with_all_that_it_holds(
        self, checkpointer: Any
    ) -> None:
        state = self.state(plans={"Rome": Plan(place="Rome", days=3)}, stage=Stage.PLANNED)
        checkpointer.put_state(CONFIG, state)
        found = checkpointer.get_state(CONFIG)

        assert type(found) is self.kit.TripState
        assert found == state and found is not state
        assert type(found.plans["Rome"]) is Plan and found.stage is Stage.PLANNED

    def test_later_changes_of_a_state_reach_nobody(self, checkpointer: Any) -> None:
        state = self.state(visited=["plan"])
        checkpointer.put_state(CONFIG, state)
        checkpointer.put_state_cache(CONFIG, state)
        state.visited.append("changed")
        checkpointer.get_state(CONFIG).context.clear()
        checkpointer.get_state_cache(CONFIG).visited.clear()

        assert checkpointer.get_state(CONFIG).visited == ["plan"]
        assert checkpointer.get_state_cache(CONFIG).visited == ["plan"]
        assert len(checkpointer.get_state(CONFIG).context) == 1

    def test_a_state_of_an_undeclared_class_is_refused_when_it_is_put(self, store: Store) -> None:
        closed = self.kit.RopewalkCheckpointer(store, classes="declared")
        with pytest.raises(NotStorable, match="Undeclared"):
            closed.put_state(CONFIG, self.kit.Undeclared(secret="x"))

        assert closed.get_state(CONFIG) is None

    def test_a_state_of_a_plain_class_needs_no_declaration(
        self, checkpointer: Any, store: Store
    ) -> None:
        checkpointer.put_state(CONFIG, self.state())
        other = self.kit.RopewalkCheckpointer(store)

        assert type(other.get_state(CONFIG)) is self.kit.TripState

    def test_a_class_that_only_the_bytes_name_is_not_read(
        self, checkpointer: Any, store: Store
    ) -> None:
        checkpointer.put_state(CONFIG, self.state())
        stranger = self.kit.RopewalkCheckpointer(store, classes="declared")

        with pytest.raises(UndeclaredClass, match=r"types=\[MyState\]"):
            stranger.get_state(CONFIG)

    def test_the_class_may_be_named_in_brackets(self, checkpointer: Any, store: Store) -> None:
        checkpointer.put_state(CONFIG, self.state())
        bracketed = self.kit.RopewalkCheckpointer[self.kit.TripState](store)

        assert type(bracketed.get_state(CONFIG)) is self.kit.TripState

    def test_a_cached_state_hides_no_newer_one(self, checkpointer: Any) -> None:
        checkpointer.put_state_cache(CONFIG, self.state(visited=["cached"]))
        cached = checkpointer.get_state_cache(CONFIG)
        checkpointer.put_state(CONFIG, self.state(visited=["put"]))

        assert cached.visited == ["cached"]
        assert checkpointer.get_state_cache(CONFIG) is None

    def test_a_cleared_state_is_gone_from_the_cache_too(self, checkpointer: Any) -> None:
        checkpointer.put_state(CONFIG, self.state())
        checkpointer.put_state_cache(CONFIG, self.state())
        checkpointer.clear_state(CONFIG)

        assert checkpointer.get_state(CONFIG) is None
        assert checkpointer.get_state_cache(CONFIG) is None

    def test_both_faces_do_the_same(self, checkpointer: Any) -> None:
        async def both() -> tuple[Any, Any]:
            await checkpointer.asetup()
            await checkpointer.aput_state(CONFIG, self.state(visited=["plan"]))
            await checkpointer.aput_messages(CONFIG, [self.said("hello", message_id="m1")])
            message = await checkpointer.aget_message(CONFIG, "m1")
            return await checkpointer.aget_state(CONFIG), message

        state, message = asyncio.run(both())

        assert state == checkpointer.get_state(CONFIG) and state.visited == ["plan"]
        assert message == checkpointer.get_message(CONFIG)


class MessageSuite(Suite):
    def blocks(self) -> list[Any]:
        """A block of every kind, in several forms."""
        made = self.classes
        media, ref = made["MediaRef"], made["AnnotationRef"](url="https://e.org", page=3)
        data = {"kind": "data", "data_base64": "aGk=", "mime_type": "image/png"}
        found = [
            made["TextBlock"](text="plain"),
            made["TextBlock"](text="noted", annotations=[ref]),
            made["ImageBlock"](media=media(url="https://e.org/a.png")),
            made["ImageBlock"](media=media(**data)),
            made["ImageBlock"](media=media(url="data:image/png;base64,aGk=")),
            made["ImageBlock"](media=media(kind="file_id", file_id="f"), alt_text="a", bbox=[0.5]),
            made["AudioBlock"](media=media(**data), transcript="hm", sample_rate=8000),
            made["VideoBlock"](media=media(url="v"), thumbnail=media(url="t")),
            made["DocumentBlock"](media=media(url="d", filename="d.pdf"), pages=[1, 2]),
            made["DataBlock"](mime_type="text/csv", data_base64="aGk="),
            made["ToolCallBlock"](id="c1", name="search", args={"q": ["x", 1]}, tool_type="web"),
            made["ToolResultBlock"](call_id="c1", output="found it"),
            made["ToolResultBlock"](call_id="c1", output={"n": 1}, is_error=True, status="failed"),
            made["ToolResultBlock"](call_id="c1", output=[1, 1.0, True, None]),
            made["ReasoningBlock"](summary="because", details=["a", "b"]),
            made["AnnotationBlock"](kind="note", refs=[ref], spans=[(0, 3)]),
            made["ErrorBlock"](message="no", code="E1", data={"a": None}),
        ]
        if "RemoteToolCallBlock" in made:
            found.append(made["RemoteToolCallBlock"](id="r", name="far", args={}))
        return found

    def test_a_block_of_every_kind_comes_back(self, checkpointer: Any) -> None:
        messages = [
            self.message(role="assistant", content=[block], message_id=f"m{number}")
            for number, block in enumerate(self.blocks())
        ]
        checkpointer.put_messages(CONFIG, messages)
        found = checkpointer.list_messages(CONFIG)

        assert found == messages
        assert {type(one.content[0]) for one in found} >= {type(one) for one in self.blocks()}

    def test_a_message_with_every_field_comes_back(self, checkpointer: Any) -> None:
        usages = self.classes["TokenUsages"](
            completion_tokens=1, prompt_tokens=2, total_tokens=9, reasoning_tokens=3
        )
        function = {"name": "search", "arguments": '{"q": 1}'}
        message = self.message(
            message_id=7,
            role="assistant",
            content=self.blocks(),
            delta=True,
            tools_calls=[{"id": "c1", "type": "function", "function": function}],
            reasoning="it seemed right",
            metadata={"a": {"b": (1, 2)}},
            usages=usages,
            raw={"provider": {"n": 1.5}},
        )
        checkpointer.put_messages(CONFIG, [message])

        assert checkpointer.get_message(CONFIG, 7) == message

    @pytest.mark.parametrize(
        "fields",
        [
            {"timestamp": None},
            {"tools_calls": [{"strange": 1}]},
            {"tools_calls": []},
            {"metadata": {"message": "mine", "extra": 1}},
            {"content": []},
        ],
        ids=str,
    )
    def test_a_strange_message_comes_back(self, checkpointer: Any, fields: Any) -> None:
        given = {"role": "tool", "content": [], "message_id": "m", **fields}
        message = self.message(**given)
        checkpointer.put_messages(CONFIG, [message])
        checkpointer.put_messages(CONFIG, [message])

        assert checkpointer.list_messages(CONFIG) == [message]
        assert len(checkpointer.threads.timeline(CONFIG).history()) == 1

    def test_objects_in_the_result_of_a_tool_come_back_as_objects(self, checkpointer: Any) -> None:
        media = self.classes["MediaRef"](url="https://e.org/chart.png")
        block = self.classes["ToolResultBlock"](call_id="c1", output=[media, "and text"])
        message = self.message(role="tool", content=[block])
        checkpointer.put_messages(CONFIG, [message])
        (found,) = checkpointer.list_messages(CONFIG)

        assert found == message
        assert type(found.content[0].output[0]) is self.classes["MediaRef"]

    def test_search_finds_what_was_said_and_nothing_else(self, checkpointer: Any) -> None:
        made = self.classes
        result = made["ToolResultBlock"](call_id="c1", output="sunny in Lisbon")
        checkpointer.put_messages(
            CONFIG,
            [
                self.said("line1\nline2 \"both\" 'quotes'", message_id="a"),
                self.message(role="tool", content=[result], message_id="b"),
                self.said("ÉTÉ à Paris", message_id="c"),
            ],
        )

        def found(search: str) -> list[Any]:
            return [one.message_id for one in checkpointer.list_messages(CONFIG, search)]

        assert found("lisb") == ["b"] and found("été") == ["c"] and found('LINE2 "bo') == ["a"]
        assert found("annotations") == found("text") == found("type") == []

    def test_pages_and_the_latest(self, checkpointer: Any) -> None:
        checkpointer.put_messages(CONFIG, [self.said(f"m {n}", message_id=n) for n in range(5)])

        def ids(**window: Any) -> list[Any]:
            return [one.message_id for one in checkpointer.list_messages(CONFIG, **window)]

        assert ids(offset=1, limit=2) == [1, 2] and ids(limit=0) == []
        assert checkpointer.get_message(CONFIG).message_id == 4

    def test_a_message_is_put_once_and_can_be_deleted(self, checkpointer: Any) -> None:
        message = self.said("hello", message_id="m")
        checkpointer.put_messages(CONFIG, [message])
        checkpointer.put_messages(CONFIG, [message, self.said("other")])
        checkpointer.delete_message(CONFIG, "m")

        assert [one.text() for one in checkpointer.list_messages(CONFIG)] == ["other"]
        with pytest.raises(IndexError):
            checkpointer.delete_message(CONFIG, "m")
        with pytest.raises(IndexError):
            checkpointer.get_message(CONFIG, "m")

    def test_what_is_said_of_all_messages_is_in_the_metadata_of_each(
        self, checkpointer: Any
    ) -> None:
        message = self.said("hello", metadata={"own": 1})
        checkpointer.put_messages(CONFIG, [message], {"run": "r1"})
        checkpointer.put_messages(CONFIG, [message])

        assert checkpointer.get_message(CONFIG).metadata == {"run": "r1", "own": 1}
        assert message.metadata == {"own": 1}

    def test_another_class_of_message_is_refused(self, checkpointer: Any) -> None:
        with pytest.raises(InvalidInput, match="Message"):
            checkpointer.put_messages(CONFIG, [{"role": "user", "content": "hi"}])

    def test_what_others_wrote_is_read_as_messages_of_the_framework(
        self, checkpointer: Any
    ) -> None:
        call = {"name": "search", "arguments": '{"q": 1}'}
        checkpointer.threads.put_messages(
            CONFIG,
            [
                {"role": "developer", "content": "be kind"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "found"},
                {"role": "user", "content": [{"type": "hologram", "size": 3}]},
            ],
        )
        system, asked, answered, strange = checkpointer.list_messages(CONFIG)

        assert (system.role, system.text()) == ("system", "be kind")
        assert asked.tools_calls[0]["function"] == call
        assert answered.content[0].call_id == "c1" and answered.text() == "found"
        assert strange.content[0].type == "data"

    def test_a_message_whose_time_another_release_told_differently_is_read(
        self, checkpointer: Any
    ) -> None:
        made = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        stamps = [made.timestamp(), made.astimezone().replace(tzinfo=None)]
        checkpointer.threads.put_messages(
            CONFIG,
            [
                Message("user", "hello", created_at=made, extra={"timestamp": stamp})
                for stamp in stamps
            ],
        )
        first, second = checkpointer.list_messages(CONFIG)

        assert first.timestamp == second.timestamp
        assert first.timestamp in stamps


class ThreadSuite(Suite):
    def test_the_record_of_a_thread_comes_back(self, checkpointer: Any) -> None:
        info = self.kit.ThreadInfo(
            thread_id="trip",
            thread_name="A trip",
            metadata={"topic": "travel"},
            updated_at=datetime(2026, 1, 2, 3, 4, 5),
        )
        checkpointer.put_thread(CONFIG, info)

        assert checkpointer.get_thread(CONFIG) == info
        assert checkpointer.list_threads({}, search="travel") == [info]
        assert checkpointer.list_threads({}, search="elsewhere") == []

    def test_a_thread_without_a_record_is_known_too(self, checkpointer: Any) -> None:
        checkpointer.put_messages(CONFIG, [self.said("hello")])

        assert [one.thread_id for one in checkpointer.list_threads({})] == ["trip"]
        assert checkpointer.get_thread({"thread_id": "other"}) is None

    def test_a_cleaned_thread_is_empty(self, checkpointer: Any) -> None:
        checkpointer.put_state(CONFIG, self.kit.TripState())
        checkpointer.put_messages(CONFIG, [self.said("hello")])
        checkpointer.put_state_cache(CONFIG, self.kit.TripState())
        cleaned = [checkpointer.clean_thread(CONFIG), checkpointer.clean_thread(CONFIG)]

        assert cleaned == [True, False]
        assert checkpointer.get_state(CONFIG) is checkpointer.get_state_cache(CONFIG) is None
        assert checkpointer.list_messages(CONFIG) == checkpointer.list_threads({}) == []

    def test_one_user_sees_nothing_of_another(self, checkpointer: Any) -> None:
        alice, bob = ({**CONFIG, "user_id": user} for user in ("alice", "bob"))
        checkpointer.put_state(alice, self.kit.TripState(visited=["alice"]))
        checkpointer.put_state_cache(alice, self.kit.TripState(visited=["alice"]))
        checkpointer.put_messages(alice, [self.said("secret", message_id="m")])
        checkpointer.put_thread(alice, self.kit.ThreadInfo(thread_id="trip", user_id="alice"))

        assert [one.user_id for one in checkpointer.list_threads({"user_id": "alice"})] == ["alice"]
        for other in (bob, CONFIG):
            assert checkpointer.get_state(other) is None
            assert checkpointer.get_state_cache(other) is None
            assert checkpointer.list_messages(other) == []
            assert checkpointer.list_threads(other) == []
            assert checkpointer.get_thread(other) is None

    def test_whom_the_framework_puts_in_for_nobody_is_nobody(self, checkpointer: Any) -> None:
        nobody = self.kit.RopewalkCheckpointer.models.nobody
        checkpointer.put_messages({**CONFIG, "user_id": nobody}, [self.said("hello")])
        info = self.kit.ThreadInfo(thread_id="trip", user_id=nobody, thread_name="n")
        checkpointer.put_thread({**CONFIG, "user_id": nobody}, info)

        assert len(checkpointer.list_messages(CONFIG)) == 1
        assert checkpointer.get_thread(CONFIG).thread_name == "n"

    def test_a_number_and_its_text_are_two_threads(self, checkpointer: Any) -> None:
        checkpointer.put_messages({"thread_id": 1}, [self.said("number")])
        checkpointer.put_messages({"thread_id": "1"}, [self.said("text")])

        assert [m.text() for m in checkpointer.list_messages({"thread_id": 1})] == ["number"]
        assert {one.thread_id for one in checkpointer.list_threads({})} == {1, "1"}

    def test_a_config_that_names_no_thread_is_refused(self, checkpointer: Any) -> None:
        with pytest.raises(InvalidInput, match="thread_id"):
            checkpointer.get_state({})


class GraphSuite(Suite):
    def second_turn(self) -> dict[str, Any]:
        """What a caller hands over so that a second turn begins at the beginning."""
        return {}

    def test_two_turns_in_one_process(self, checkpointer: Any) -> None:
        first = take_turn(self.kit, checkpointer, CONFIG, "go to Rome")
        second = take_turn(self.kit, checkpointer, CONFIG, "go to Oslo", self.second_turn())

        assert first["ran"] == second["ran"] == ["plan", "answer"]
        assert second["plans"] == {"Rome": 1, "Oslo": 2}
        assert second["said"] == [
            "go to Rome",
            "A plan for Rome",
            "Enjoy Rome!",
            "go to Oslo",
            "A plan for Oslo",
            "Enjoy Rome, Oslo!",
        ]

    def test_two_turns_in_two_other_processes(self, tmp_path: Path) -> None:
        folder = tmp_path / "store"
        turn_in_another_process(self.kit, folder, config=CONFIG, say="go to Rome")
        told = turn_in_another_process(
            self.kit, folder, config=CONFIG, say="go to Oslo", given=self.second_turn()
        )
        with self.kit.RopewalkCheckpointer[self.kit.TripState](folder).threads as threads:
            found = threads.list_messages(CONFIG, search="enjoy")
            state = threads.get_state(CONFIG)

        assert told["class"] == "TripState" and told["ran"] == ["plan", "answer"]
        assert told["plans"] == {"Rome": 1, "Oslo": 2} and told["stage"] == "PLANNED"
        assert [one.text for one in found] == ["Enjoy Rome!", "Enjoy Rome, Oslo!"]
        assert type(state.plans["Oslo"]) is Plan

    def test_two_users_have_one_thread_each_of_the_same_id(self, checkpointer: Any) -> None:
        alice, bob = ({**CONFIG, "user_id": user} for user in ("alice", "bob"))
        take_turn(self.kit, checkpointer, alice, "go to Rome")
        told = take_turn(self.kit, checkpointer, bob, "go to Oslo")

        assert told["plans"] == {"Oslo": 1} and told["said"][0] == "go to Oslo"
        assert checkpointer.get_state(alice).plans.keys() == {"Rome"}

    def test_a_turn_that_is_streamed_is_kept_like_any_other(self, checkpointer: Any) -> None:
        app = self.kit.build(checkpointer)
        list(app.stream({"messages": [self.said("go to Rome")]}, dict(CONFIG)))

        assert checkpointer.get_state(CONFIG).visited == ["plan", "answer"]
        assert [one.text() for one in checkpointer.list_messages(CONFIG)] == [
            "go to Rome",
            "A plan for Rome",
            "Enjoy Rome!",
        ]

    def test_many_conversations_run_at_once(self, checkpointer: Any) -> None:
        app = self.kit.build(checkpointer)
        configs = [{"thread_id": f"t{number}", "user_id": "alice"} for number in range(8)]

        async def all_at_once() -> None:
            await asyncio.gather(
                *(
                    app.ainvoke({"messages": [self.said(f"go to {one['thread_id']}")]}, dict(one))
                    for one in configs
                )
            )

        asyncio.run(all_at_once())

        for one in configs:
            assert list(checkpointer.get_state(one).plans) == [one["thread_id"]]
            assert len(checkpointer.list_messages(one)) == 3
        assert len(checkpointer.list_threads({"user_id": "alice"})) == 8

    def test_closing_a_graph_leaves_a_store_open_that_was_handed_over(
        self, checkpointer: Any
    ) -> None:
        app = self.kit.build(checkpointer)
        app.invoke({"messages": [self.said("go to Rome")]}, dict(CONFIG))
        asyncio.run(app.aclose())

        assert len(checkpointer.list_messages(CONFIG)) == 3

    def test_a_conversation_goes_back_to_an_earlier_turn(self, checkpointer: Any) -> None:
        take_turn(self.kit, checkpointer, CONFIG, "go to Rome")
        timeline = checkpointer.threads.timeline(CONFIG)
        rome = timeline.head
        take_turn(self.kit, checkpointer, CONFIG, "go to Oslo", self.second_turn())
        timeline.rollback(to_checkpoint_id=rome.id)
        told = take_turn(self.kit, checkpointer, CONFIG, "go to Nice", self.second_turn())

        assert told["plans"] == {"Rome": 1, "Nice": 2}
        assert "go to Oslo" not in told["said"]
