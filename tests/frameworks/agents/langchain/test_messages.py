"""Messages of LangChain to and fro, beside LangChain itself."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)

from ropewalk.adapters.langchain import from_langchain, to_langchain
from ropewalk.errors import InvalidInput, NotStorable
from ropewalk.threads import (
    ImagePart,
    Message,
    TextPart,
    ThreadCheckpointer,
    ToolCall,
    ToolResult,
    Usage,
)

CONFIG = {"thread_id": "trip"}
FIELDS_OF_CLASSES: dict[Any, dict[str, Any]] = {
    HumanMessage: {},
    HumanMessageChunk: {},
    AIMessage: {},
    AIMessageChunk: {},
    SystemMessage: {},
    SystemMessageChunk: {},
    ToolMessage: {"tool_call_id": "call-1"},
    ToolMessageChunk: {"tool_call_id": "call-1"},
    FunctionMessage: {"name": "weather"},
    FunctionMessageChunk: {"name": "weather"},
    ChatMessage: {"role": "critic"},
    ChatMessageChunk: {"role": "critic"},
}
CLASSES = pytest.mark.parametrize("cls", FIELDS_OF_CLASSES)
CALL = {"name": "weather", "args": {"city": "Rome", "days": [1, 2.5, None]}, "id": "call-1"}
BROKEN = {"name": "weather", "args": '{"city": ', "id": "call-2", "error": "not JSON"}
USAGE = {
    "input_tokens": 9,
    "output_tokens": 4,
    "total_tokens": 13,
    "input_token_details": {"cache_read": 3},
}
BLOCKS: list[Any] = [
    "bare",
    {"type": "text", "text": "said", "annotations": []},
    {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
    {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    {"type": "reasoning", "reasoning": "thought"},
    {"type": "tool_use", "id": "call-1", "name": "weather", "input": {"city": "Rome"}},
    {"type": "tool_result", "tool_use_id": "call-1", "content": [7]},
    {"cachePoint": {"type": "default"}},
]


def through_a_store(message: Any) -> Any:
    """A message that was put, and is read by another checkpointer on the same store."""
    first: ThreadCheckpointer[Any] = ThreadCheckpointer()
    first.put_messages(CONFIG, [from_langchain(message)])
    second: ThreadCheckpointer[Any] = ThreadCheckpointer(first.store)
    return to_langchain(second.get_message(CONFIG))


def assert_comes_back(message: Any) -> None:
    before = message.model_copy(deep=True)

    for found in (to_langchain(from_langchain(message)), through_a_store(message)):
        assert type(found) is type(message)
        assert found == message == before
        assert found.model_dump() == message.model_dump()


class TestThereAndBack:
    @CLASSES
    def test_every_class_comes_back_as_it_was(self, cls: Any) -> None:
        assert_comes_back(cls("Hello", **FIELDS_OF_CLASSES[cls]))

    @CLASSES
    def test_everything_that_all_classes_have_comes_back(self, cls: Any) -> None:
        fields = {"name": "Ada", **FIELDS_OF_CLASSES[cls]}
        kwargs = {"function_call": {"name": "f"}, "role": "odd", "langchain": 1, "refusal": None}

        assert_comes_back(
            cls(
                BLOCKS,
                id="m-1",
                additional_kwargs=kwargs,
                response_metadata={"model_name": "m", "logprobs": None},
                beside={"not": ["a field"]},
                **fields,
            )
        )

    @CLASSES
    @pytest.mark.parametrize("id", ["", "7", "run-1", None])
    @pytest.mark.parametrize("content", ["", []])
    def test_an_absent_or_empty_value_comes_back_as_that(
        self, cls: Any, id: str | None, content: Any
    ) -> None:
        assert_comes_back(cls(content, id=id, **FIELDS_OF_CLASSES[cls]))

    @pytest.mark.parametrize("cls", [AIMessage, AIMessageChunk])
    @pytest.mark.parametrize(
        "fields",
        [
            {"tool_calls": [CALL]},
            {"tool_calls": [{**CALL, "id": None}, {**CALL, "id": ""}]},
            {"invalid_tool_calls": [BROKEN]},
            {"invalid_tool_calls": [{**BROKEN, "args": '{"city": "Rome"}'}]},
            {"invalid_tool_calls": [{**BROKEN, "args": None, "name": None}]},
            {"tool_calls": [CALL], "invalid_tool_calls": [BROKEN], "usage_metadata": USAGE},
            {"usage_metadata": {**USAGE, "total_tokens": 99}},
            {"usage_metadata": {**USAGE, "input_tokens": -1}},
        ],
    )
    def test_calls_and_usage_come_back(self, cls: Any, fields: dict[str, Any]) -> None:
        assert_comes_back(cls("", **fields))

    def test_calls_that_openai_made_come_back(self) -> None:
        function = {"name": "weather", "arguments": '{"city": "Rome"}'}
        raw = [{"id": "call-1", "type": "function", "function": function}]

        assert_comes_back(AIMessage("", additional_kwargs={"tool_calls": raw}))

    def test_calls_that_were_taken_out_stay_out(self) -> None:
        message = AIMessage("", additional_kwargs={"tool_calls": [{"id": "1", "function": {}}]})
        message.tool_calls = message.invalid_tool_calls = []

        assert_comes_back(message)

    def test_a_chunk_of_a_call_comes_back(self) -> None:
        chunk = {"name": "weather", "args": '{"city": "Ro', "id": "call-1", "index": 0}

        assert_comes_back(AIMessageChunk("", tool_call_chunks=[chunk], chunk_position="last"))

    @pytest.mark.parametrize("artifact", [None, 0, "text", b"bytes", {"rows": [[1, 2.0], (3,)]}])
    @pytest.mark.parametrize("status", ["success", "error"])
    def test_status_and_artifact_of_a_result_come_back(self, status: Any, artifact: Any) -> None:
        assert_comes_back(
            ToolMessage("sunny", tool_call_id="call-1", status=status, artifact=artifact)
        )

    @pytest.mark.parametrize("role", ["user", "human", "ai", "developer", "tool", "critic", ""])
    def test_any_role_of_a_chat_message_comes_back(self, role: str) -> None:
        assert_comes_back(ChatMessage("Hello", role=role))

    def test_a_developers_message_comes_back(self) -> None:
        message = SystemMessage("Be kind", additional_kwargs={"__openai_role__": "developer"})

        assert_comes_back(message)
        assert from_langchain(message).role == "developer"


KEYS = st.sampled_from(["id", "text", "role", "langchain", "tool_calls", "refusal", "x"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
MAPS = st.dictionaries(KEYS, VALUES, max_size=3)
KINDS = st.sampled_from(
    "text refusal image_url input_image input_audio tool_use tool_result tool_call other".split()
)
PARTS = st.builds(
    lambda kind, rest, inner: {"type": kind, **rest, **inner},
    KINDS,
    MAPS,
    st.dictionaries(
        st.sampled_from("text image_url input_audio name input content tool_use_id".split()),
        VALUES | st.dictionaries(st.sampled_from(["url", "data", "format"]), VALUES),
    ),
)
CONTENTS = st.text(max_size=9) | st.lists(st.text(max_size=4) | PARTS | MAPS, max_size=4)
CALLS = st.builds(
    lambda name, args, id: {"name": name, "args": args, "id": id},
    st.text(max_size=4),
    MAPS,
    st.none() | st.text(max_size=4),
)


@given(
    cls=st.sampled_from(sorted(FIELDS_OF_CLASSES, key=lambda cls: cls.__name__)),
    content=CONTENTS,
    kwargs=MAPS,
    metadata=MAPS,
    id=st.none() | st.text(max_size=4),
    calls=st.lists(CALLS, max_size=2),
)
def test_any_message_comes_back_as_it_was(
    cls: Any, content: Any, kwargs: Any, metadata: Any, id: str | None, calls: Any
) -> None:
    fields = dict(FIELDS_OF_CLASSES[cls])
    if issubclass(cls, AIMessage):
        fields["tool_calls"] = calls
    message = cls(content, id=id, additional_kwargs=kwargs, response_metadata=metadata, **fields)

    assert_comes_back(message)


class TestWhatRopewalkSees:
    @pytest.mark.parametrize(
        ("cls", "role"),
        [
            (HumanMessage, "user"),
            (AIMessageChunk, "assistant"),
            (SystemMessage, "system"),
            (ToolMessage, "tool"),
            (FunctionMessage, "tool"),
            (ChatMessage, "user"),
        ],
    )
    def test_a_class_has_a_role(self, cls: Any, role: str) -> None:
        assert from_langchain(cls("Hello", **FIELDS_OF_CLASSES[cls])).role == role

    def test_the_text_is_what_was_said(self) -> None:
        assert from_langchain(AIMessage(BLOCKS)).text == "bare\nsaid"

    def test_a_refusal_is_said(self) -> None:
        message = AIMessage("", additional_kwargs={"refusal": "I will not"})

        assert from_langchain(message).text == "I will not"

    def test_a_search_finds_the_text_and_nothing_else(self) -> None:
        checkpointer: ThreadCheckpointer[Any] = ThreadCheckpointer()
        message = AIMessage(
            [{"type": "text", "text": "Enjoy Rome"}], response_metadata={"a": "Oslo"}
        )
        checkpointer.put_messages(CONFIG, [from_langchain(message)])

        assert len(checkpointer.list_messages(CONFIG, search="rom")) == 1
        assert len(checkpointer.list_messages(CONFIG, search="oslo")) == 0

    def test_calls_and_usage_have_their_fields(self) -> None:
        made = from_langchain(
            AIMessage("", tool_calls=[CALL], invalid_tool_calls=[BROKEN], usage_metadata=USAGE)
        )

        assert [call.id for call in made.tool_calls] == ["call-1", "call-2"]
        assert made.tool_calls[0].parsed() == CALL["args"]
        assert made.usage == Usage(9, 4, 13, {"input_token_details": {"cache_read": 3}})

    def test_nothing_is_noted_that_a_message_says_already(self) -> None:
        said = AIMessage("Hello", id="m-1", name="Ada", tool_calls=[CALL], usage_metadata=USAGE)

        assert from_langchain(said).extra == {}

    def test_a_message_that_is_put_again_is_the_same(self) -> None:
        checkpointer: ThreadCheckpointer[Any] = ThreadCheckpointer()
        message = HumanMessage("Hello", id="m-1")
        checkpointer.put_messages(CONFIG, [from_langchain(message)])
        before = checkpointer.timeline(CONFIG).history()
        checkpointer.put_messages(CONFIG, [from_langchain(message)])

        assert checkpointer.timeline(CONFIG).history() == before

    def test_a_time_that_is_known_is_kept(self) -> None:
        time = datetime(2026, 1, 2, tzinfo=UTC)

        assert from_langchain(HumanMessage("Hello"), created_at=time).created_at == time

    def test_neither_side_shares_what_it_holds(self) -> None:
        message = AIMessage("", additional_kwargs={"a": {"b": [1]}}, response_metadata={"c": [1]})
        before = message.model_copy(deep=True)
        made = from_langchain(message)
        first: Any = to_langchain(made)
        for one in (first, message):
            one.additional_kwargs["a"]["b"].append(2)
            one.response_metadata["c"].append(2)

        assert to_langchain(made) == before


class TestWhatWasChanged:
    def test_a_changed_content_is_the_one_that_comes_back(self) -> None:
        made = from_langchain(AIMessageChunk(["bare", "texts"])).replace(content="edited")

        assert to_langchain(made).content == "edited"

    def test_changed_calls_are_the_ones_that_come_back(self) -> None:
        made = from_langchain(AIMessage("", invalid_tool_calls=[BROKEN]))
        found: Any = to_langchain(made.replace(tool_calls=[ToolCall("c", "f", {"a": 1})]))

        assert [call["id"] for call in found.tool_calls] == ["c"]
        assert found.invalid_tool_calls == []

    def test_a_changed_role_is_the_one_that_comes_back(self) -> None:
        made = from_langchain(ChatMessage("Hello", role="critic")).replace(role="system")

        assert type(to_langchain(made)) is SystemMessage

    def test_a_changed_id_is_the_one_that_comes_back(self) -> None:
        assert to_langchain(from_langchain(HumanMessage("Hello")).replace(id="new")).id == "new"


class TestOurOwn:
    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            (Message("user", "Hi", id=7, name="Ada"), HumanMessage("Hi", id="7", name="Ada")),
            (Message("system", "Hi", id="1"), SystemMessage("Hi", id="1")),
            (
                Message("developer", "Hi", id="1"),
                SystemMessage("Hi", id="1", additional_kwargs={"__openai_role__": "developer"}),
            ),
            (
                Message("assistant", id="1", tool_calls=[ToolCall("c", "f", '{"a": 1}')]),
                AIMessage("", id="1", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
            ),
            (
                Message("assistant", [ToolCall("c", "f", "{")], id="1", usage=Usage(1, 2)),
                AIMessage(
                    [],
                    id="1",
                    invalid_tool_calls=[{"name": "f", "args": "{", "id": "c", "error": None}],
                    usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
                ),
            ),
            (
                Message("user", [TextPart("Look"), ImagePart("https://example.org/a")], id="1"),
                HumanMessage(
                    [
                        {"type": "text", "text": "Look"},
                        {"type": "image_url", "image_url": {"url": "https://example.org/a"}},
                    ],
                    id="1",
                ),
            ),
            (
                Message("tool", "sunny", id="1", tool_call_id="c"),
                ToolMessage("sunny", id="1", tool_call_id="c"),
            ),
            (
                Message("tool", [ToolResult("c", "no", is_error=True)], id="1"),
                ToolMessage("no", id="1", tool_call_id="c", status="error"),
            ),
            (
                Message("tool", "sunny", id="1", name="f"),
                FunctionMessage("sunny", id="1", name="f"),
            ),
            (
                Message("assistant", None, id="1", extra={"refusal": "No"}),
                AIMessage("", id="1", additional_kwargs={"refusal": "No"}),
            ),
        ],
    )
    def test_a_message_of_ours_becomes_what_fits_its_role(self, ours: Message, theirs: Any) -> None:
        found = to_langchain(ours)

        assert found == theirs
        assert type(found) is type(theirs)


class Own(HumanMessage):
    pass


class TestWhatIsRefused:
    def test_a_request_to_remove_is_no_message(self) -> None:
        with pytest.raises(InvalidInput, match=r"RemoveMessage.*'m-1'.*delete_message"):
            from_langchain(RemoveMessage(id="m-1"))

    @pytest.mark.parametrize("value", [Own("Hello"), {"role": "user"}, None])
    def test_a_class_that_could_not_come_back(self, value: Any) -> None:
        with pytest.raises(InvalidInput, match="LangChain's own classes"):
            from_langchain(value)

    def test_a_message_that_was_changed_to_what_langchain_does_not_take(self) -> None:
        message = HumanMessage("Hello")
        message.additional_kwargs = {"a": 1}
        message.response_metadata = 5

        with pytest.raises(InvalidInput):
            from_langchain(message)

    def test_only_a_message_of_ours_becomes_theirs(self) -> None:
        with pytest.raises(InvalidInput, match="as_message"):
            to_langchain({"role": "user"})  # type: ignore[arg-type]

    def test_an_artifact_that_is_no_plain_value_cannot_be_put(self) -> None:
        message = ToolMessage("sunny", tool_call_id="c", artifact=object())
        made = from_langchain(message)
        checkpointer: ThreadCheckpointer[Any] = ThreadCheckpointer()

        assert to_langchain(made) == message
        with pytest.raises(NotStorable):
            checkpointer.put_messages(CONFIG, [made])

    @pytest.mark.parametrize(
        "notes",
        [
            {"type": "os.system"},
            {"type": ["human"]},
            {"type": "chat"},
            {"calls": 5},
            {"calls": [[5], []]},
            {"id": 5},
            {"additional_kwargs": 5},
            {"more": 5},
            {"response_metadata": 5},
        ],
    )
    def test_notes_that_nobody_here_wrote(self, notes: dict[str, Any]) -> None:
        role: Any = "user" if "type" in notes else "assistant"

        with pytest.raises(InvalidInput):
            to_langchain(Message(role, "Hello", extra={"langchain": notes}))


def test_nothing_else_imports_langchain() -> None:
    program = "import sys, ropewalk.adapters; sys.exit('langchain_core' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_message_that_was_not_converted_is_refused_with_the_function_that_does_it() -> None:
    with pytest.raises(InvalidInput, match=r"ropewalk\.adapters\.langchain\.from_langchain"):
        ThreadCheckpointer().put_messages(CONFIG, [HumanMessage("hi")])
