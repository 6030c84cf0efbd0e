"""What graphs hold as bytes and back: exactly, and without encoding twice what did not change."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import ipaddress
import re
import subprocess
import sys
import textwrap
import threading
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, NamedTuple

import pydantic
import pydantic.v1
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
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
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

from ropewalk.adapters.langgraph.classes import GraphTypes, UnknownTypeWarning
from ropewalk.adapters.langgraph.saver.codec import GraphCodec
from ropewalk.codec import Codec
from ropewalk.errors import NotStorable, UndeclaredClass

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
CALL = {"name": "add", "args": {"a": [1, 2]}, "id": "c1", "type": "tool_call"}

MESSAGES: list[BaseMessage] = [
    HumanMessage("hello"),
    HumanMessage([{"type": "text", "text": "hi"}, "bare"], id="1", name="bob"),
    HumanMessage("with more", mood="good", seen=[1]),
    HumanMessageChunk(content="he"),
    AIMessage("", tool_calls=[CALL]),
    AIMessage(
        "x",
        id="2",
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m", "at": NOW},
        invalid_tool_calls=[
            {"name": "f", "args": "{", "id": None, "error": "bad", "type": "invalid_tool_call"}
        ],
    ),
    AIMessageChunk(content="a", chunk_position="last"),
    SystemMessage("be kind", additional_kwargs={"deep": {"er": [None, {"x": 1.5}]}}),
    SystemMessageChunk(content="be"),
    ToolMessage("42", tool_call_id="c1", artifact={"raw": b"\x00\xc4"}, status="error"),
    ToolMessageChunk(content="4", tool_call_id="c1"),
    FunctionMessage("1", name="f"),
    FunctionMessageChunk(content="1", name="f"),
    ChatMessage("x", role="critic"),
    ChatMessageChunk(content="x", role="critic"),
    RemoveMessage(id="gone"),
]
OTHERS: list[Any] = [
    Document("text", metadata={"page": 1}, id="d"),
    Send("node", {"x": [1, (2,)]}),
    Send("node", AIMessage("x"), timeout=TimeoutPolicy(run_timeout=1.0)),
    Interrupt(value={"ask": "?"}, id="i"),
    Command(update={"a": 1}, goto=[Send("n", 1)], resume={"i": 2}),
    Overwrite([1, 2]),
    TimeoutPolicy(idle_timeout=2.0),
    _DeltaSnapshot([AIMessage("x")]),
    collections.deque([1, "b"], maxlen=4),
    datetime.UTC,
    datetime.timezone(datetime.timedelta(hours=2), "here"),
    zoneinfo.ZoneInfo("Europe/Berlin"),
    re.compile("a+", re.IGNORECASE),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_interface("2001:db8::1/64"),
    pydantic.SecretStr("secret"),
    pydantic.SecretBytes(b"secret"),
    uuid.UUID(int=5),
    {"plain": [1, 2.5, None, True, b"b", "s", (1, {2}), frozenset({3}), {4: 5}]},
]


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclasses.dataclass
class Plan:
    title: str
    steps: list[Any] = dataclasses.field(default_factory=list)
    about: Any = None


class Report(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    title: str = ""
    parts: list[Any] = []
    _draft: int = pydantic.PrivateAttr(default=1)


class OldReport(pydantic.v1.BaseModel):
    title: str
    parts: list[Any] = []


OWN: list[Any] = [
    Color.RED,
    Point(1, 2),
    Plan("a", [Plan("b")], Color.RED),
    Report.model_validate({"title": "t", "parts": [Point(1)], "more": 1}),
    OldReport(title="t"),
]


def held(value: Any) -> Any:
    """All that a model holds."""
    if not isinstance(value, pydantic.BaseModel):
        return value
    return (
        type(value),
        value.__dict__,
        value.__pydantic_fields_set__,
        value.__pydantic_extra__,
        value.__pydantic_private__,
    )


def plainly(codec: GraphCodec, value: Any) -> bytes:
    """The encoding without any memo."""
    return Codec(codec.registry).encode(value)


@pytest.mark.parametrize("value", [*MESSAGES, *OTHERS, *OWN], ids=lambda one: type(one).__name__)
def test_every_built_in_type_and_every_class_that_was_stored_comes_back_as_it_was(
    value: Any,
) -> None:
    codec = GraphCodec(GraphTypes())

    found = codec.decode(codec.encode(value))

    assert type(found) is type(value)
    assert held(found) == held(value)


@pytest.mark.parametrize("value", [*MESSAGES, *OTHERS], ids=lambda one: type(one).__name__)
def test_built_in_types_are_read_by_a_program_that_never_stored_one(value: Any) -> None:
    data = GraphCodec(GraphTypes()).encode(value)

    found = GraphCodec(GraphTypes(strict=True)).decode(data)

    assert held(found) == held(value)


@pytest.mark.parametrize("cls", [Item, SearchItem])
def test_items_of_a_store_come_back_as_they_were(cls: Any) -> None:
    item = cls(value={"a": 1}, key="k", namespace=("n", "m"), created_at=NOW, updated_at=NOW)
    codec = GraphCodec(GraphTypes())

    found = codec.decode(codec.encode(item))

    assert type(found) is cls
    assert found.dict() == item.dict()
    assert found.namespace == ("n", "m")


@pytest.mark.parametrize("value", [*MESSAGES, *OTHERS, *OWN], ids=lambda one: type(one).__name__)
def test_remembered_decoded_and_copied_values_have_the_plain_encoding(value: Any) -> None:
    codec = GraphCodec(GraphTypes())
    values = [value, [value], {"a": value}, (value,)]
    first = codec.encode(values)
    plain = plainly(codec, values)
    found = codec.decoder().decode(plain)

    assert first == plain
    assert codec.encode(values) == plain
    assert codec.encode_again(values) in (plain, None)
    assert GraphCodec(codec.types).encode(values) == plain
    assert codec.encode(found) == plain
    assert codec.encode(codec.copy_of(found)) == plain
    assert held(codec.copy_of(value)) == held(value)
    kept = codec.keep(codec.decoder().decode(plain))
    for _ in range(2):
        assert codec.encode(codec.copies_of(kept)) == plain == plainly(codec, codec.copies_of(kept))


def test_exceptions_and_derived_built_ins_are_stored_as_langgraph_stores_them() -> None:
    class Name(str):
        pass

    class Table(dict[str, Any]):
        pass

    value = [ValueError("no"), Name("bob"), Table(k=[Name("x")])]
    codec = GraphCodec(GraphTypes())

    found = codec.decode(codec.encode(value))

    assert found == ["ValueError('no')", "bob", {"k": ["x"]}]
    assert [type(one) for one in found] == [str, str, dict]


@pytest.mark.parametrize("live", [threading.Lock(), lambda: 1, object(), sys])
def test_what_cannot_be_stored_is_refused_with_its_path(live: Any) -> None:
    codec: Codec = GraphCodec(GraphTypes())
    value = {"messages": [AIMessage("a"), AIMessage("b", additional_kwargs={"x": [live]})]}

    with pytest.raises(NotStorable, match=r'\["messages"\]\[1\].additional_kwargs\["x"\]\[0\]'):
        codec.encode(value)


# Changes in place.


def _set_field(message: Any) -> None:
    message.content = "other"


def _set_equal_of_another_type(message: Any) -> None:
    message.name = True


def _change_block(message: Any) -> None:
    message.content[0]["text"] = "other"


def _add_block(message: Any) -> None:
    message.content.append("more")


def _fill_kwargs(message: Any) -> None:
    message.additional_kwargs["k"] = 1


def _deep_metadata(message: Any) -> None:
    message.response_metadata["deep"]["list"].append(1)


def _change_call(message: Any) -> None:
    message.tool_calls[0]["args"]["a"] = 2


def _fill_empty_list(message: Any) -> None:
    message.invalid_tool_calls.append(dict(CALL, type="invalid_tool_call"))


def _replace_dict(message: Any) -> None:
    message.additional_kwargs = {"k": 1}


def _replace_then_fill(message: Any) -> None:
    message.additional_kwargs = {}
    message.additional_kwargs["k"] = 1


def _mark_field(message: Any) -> None:
    message.__pydantic_fields_set__.add("name")


def _unmark_field(message: Any) -> None:
    message.__pydantic_fields_set__.discard("id")


def _add_extra(message: Any) -> None:
    message.mood = "good"


def _replace_extra(message: Any) -> None:
    object.__setattr__(message, "__pydantic_extra__", {"mood": "good"})


def _replace_everything(message: Any) -> None:
    object.__setattr__(message, "__dict__", {**message.__dict__, "content": "x"})


CHANGES = [
    _set_field,
    _set_equal_of_another_type,
    _change_block,
    _add_block,
    _fill_kwargs,
    _deep_metadata,
    _change_call,
    _fill_empty_list,
    _replace_dict,
    _replace_then_fill,
    _mark_field,
    _unmark_field,
    _add_extra,
    _replace_extra,
    _replace_everything,
]


def _rich() -> AIMessage:
    message = AIMessage(
        [{"type": "text", "text": "hi"}],
        id="1",
        response_metadata={"deep": {"list": []}},
        tool_calls=[dict(CALL, args={"a": 1})],
    )
    message.__dict__["name"] = 1  # Equal to True, and another encoding.
    return message


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("source", ["encoded", "decoded", "copied", "kept"])
@pytest.mark.parametrize("count", [3, 9])
def test_a_change_in_place_is_found(change: Callable[[Any], None], source: str, count: int) -> None:
    codec = GraphCodec(GraphTypes())
    values = [_rich() for _ in range(count)]
    codec.encode(values)
    if source in ("decoded", "copied"):
        values = codec.decoder().decode(codec.encode(values))
    if source == "copied":
        values = codec.copy_of(values)
    if source == "kept":
        values = codec.copies_of(codec.keep(codec.decoder().decode(codec.encode(values))))
    before = codec.encode(values)
    assert codec.encode_again(values) == before
    assert (codec.memo.find_run(values) is not None) == (count == 9)

    change(values[1])

    after = plainly(codec, values)
    assert after != before
    assert codec.encode(values) == after
    assert codec.encode(values) == after
    assert codec.encode(values) == after


def test_a_field_that_moves_to_another_name_is_found() -> None:
    codec = GraphCodec(GraphTypes())
    plan = Plan("a")
    codec.encode([plan])

    plan.__dict__["other"] = plan.__dict__.pop("about")

    with pytest.raises(NotStorable):
        codec.encode([plan])


def test_a_change_deep_in_a_nested_record_is_found() -> None:
    codec = GraphCodec(GraphTypes())
    inner = Plan("inner", about={"x": [1]})
    values = [Plan("outer", [inner]), AIMessage("x")]
    before = codec.encode(values)

    inner.about["x"].append(2)

    assert codec.encode(values) == plainly(codec, values) != before
    assert codec.encode(values) == plainly(codec, values)


def test_a_run_of_messages_is_not_taken_for_another() -> None:
    codec = GraphCodec(GraphTypes())
    messages = [AIMessage(str(n), id=str(n)) for n in range(9)]
    codec.encode(messages)
    others = [
        messages[:8],
        messages[1:],
        [*messages[:8], messages[0]],
        [*messages, AIMessage("more")],
        [messages[1], messages[0], *messages[2:]],
        [*messages[:5], "text", *messages[6:]],
    ]

    for other in others:
        assert codec.encode(other) == plainly(codec, other)
        assert codec.encode_again(other) == plainly(codec, other)
        assert codec.encode(messages) == plainly(codec, messages)


def test_messages_with_what_needs_a_hook_are_compared_too() -> None:
    codec = GraphCodec(GraphTypes())
    messages = [AIMessage(str(n), additional_kwargs={"at": [NOW, n]}) for n in range(9)]
    codec.encode(messages)

    messages[4].additional_kwargs["at"].append((1,))

    assert codec.encode(messages) == plainly(codec, messages)
    assert codec.encode(messages) == plainly(codec, messages)


def test_a_field_of_one_message_that_gets_another_name_is_found() -> None:
    codec = GraphCodec(GraphTypes())
    messages = [AIMessage(str(n)) for n in range(9)]
    codec.encode(messages)

    messages[3].__dict__["other"] = messages[3].__dict__.pop("usage_metadata")

    with pytest.raises(NotStorable, match="other"):
        codec.encode(messages)


def test_what_is_done_to_a_copy_or_to_what_was_read_leaves_the_other_alone() -> None:
    codec = GraphCodec(GraphTypes())
    read = codec.decoder().decode(codec.encode([_rich(), {"a": [1]}, (Plan("x"),)]))
    before = codec.encode(read)

    copy = codec.copy_of(read)
    kept = codec.keep(codec.decoder().decode(before))
    for change in CHANGES:
        change(codec.copy_of(read)[0])
        change(codec.copies_of(kept)[0])
    copy[1]["a"].append(2)
    copy[2][0].steps.append(1)
    copy[0].response_metadata["deep"]["list"].append(1)

    assert codec.encode(read) == before == plainly(codec, read)
    assert codec.encode(codec.copies_of(kept)) == before


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    | st.builds(Plan, st.text(max_size=3), st.lists(inner, max_size=2), inner)
    | st.builds(lambda v: AIMessage("x", additional_kwargs={"v": v}), inner)
    | st.builds(lambda v: Report(parts=[v]), inner)
    | st.tuples(inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(values, max_size=6), st.data())
def test_encodings_with_and_without_memo_are_equal_whatever_is_changed(
    given: list[Any], data: st.DataObject
) -> None:
    codec = GraphCodec(GraphTypes([Plan, Report]))
    codec.encode(given)
    for _ in range(3):
        for one in given:
            if isinstance(one, Plan) and data.draw(st.booleans()):
                one.about = data.draw(values)
            if isinstance(one, AIMessage) and data.draw(st.booleans()):
                one.additional_kwargs["v"] = data.draw(values)
        plain = plainly(codec, given)

        assert codec.encode(given) == plain
        assert codec.encode(given) == plain
        found = codec.decoder().decode(plain)
        assert codec.encode(found) == plain
        assert codec.encode(codec.copy_of(found)) == plain
        assert codec.encode(codec.copies_of(codec.keep(found))) == plain


# The memo.


def test_what_is_not_used_any_more_is_forgotten() -> None:
    codec = GraphCodec(GraphTypes())
    for step in range(40):
        codec.encode([AIMessage("x" * 100_000, id=str((step, n))) for n in range(10)])
        codec.memo.turn()

    assert codec.memo.size < 20_000_000


def test_memory_is_bounded_within_one_checkpoint() -> None:
    codec = GraphCodec(GraphTypes(), memory=1 << 20)
    messages = [AIMessage("x" * 1000, id=str(n)) for n in range(3000)]

    data = codec.encode(messages)

    assert codec.memo.size < 1 << 20
    assert codec.encode(messages) == data == plainly(codec, messages)


def test_unchanged_records_stay_remembered_over_generations() -> None:
    codec = GraphCodec(GraphTypes())
    messages = [AIMessage("x" * 1000, id=str(n)) for n in range(1000)]
    for step in range(50):
        codec.encode(messages)
        codec.encode([AIMessage("y" * 100_000, id=str((step, n))) for n in range(10)])
        codec.memo.turn()
        codec.encode(messages)

    assert codec.memo.find_run(messages) is not None


# Unknown classes.


def _made_elsewhere(source: str) -> bytes:
    """The encoding of `value`, made by another program."""
    program = textwrap.dedent(
        f"""
        import sys, types
        module = types.ModuleType("elsewhere")
        sys.modules["elsewhere"] = module
        exec({textwrap.dedent(source)!r}, module.__dict__)
        from ropewalk.adapters.langgraph.saver.codec import GraphCodec
        sys.stdout.buffer.write(GraphCodec().encode(module.value))
        """
    )
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout


UNKNOWN = """
    import dataclasses, enum, pydantic
    from langchain_core.messages import AIMessage
    @dataclasses.dataclass
    class Place:
        name: str
        tags: list
    class Kind(enum.Enum):
        BIG = 1
    class Shop(pydantic.BaseModel):
        model_config = {"extra": "allow"}
        at: Place
        kind: Kind
    value = [AIMessage("x", additional_kwargs={"shop": Shop(at=Place("p", [1]), kind=Kind.BIG, open=True)})]
"""  # noqa: E501


def test_an_unknown_class_comes_back_raw_with_one_warning_each_and_imports_nothing() -> None:
    data = _made_elsewhere(UNKNOWN)
    codec = GraphCodec(GraphTypes())
    before = set(sys.modules)

    with pytest.warns(UnknownTypeWarning) as caught:
        (message,), _ = codec.decode(data), codec.decode(data)

    assert message.additional_kwargs == {
        "shop": {"at": {"name": "p", "tags": [1]}, "kind": "BIG", "open": True}
    }
    assert set(sys.modules) == before
    texts = [str(one.message) for one in caught]
    assert len(texts) == 3
    assert any("types=[Shop]" in text for text in texts)
    assert codec.encode([message]) == plainly(codec, [message])


def test_in_strict_mode_an_unknown_class_is_an_error() -> None:
    data = _made_elsewhere(UNKNOWN)

    with pytest.raises(UndeclaredClass, match="elsewhere"):
        GraphCodec(GraphTypes(strict=True)).decode(data)


def test_a_class_that_changed_comes_back_raw_with_a_warning() -> None:
    stored = Codec()
    old = dataclasses.make_dataclass("Place", ["name", "gone"])
    stored.registry.register(old, name="places.Place")
    data = stored.encode(old("p", 1))
    types = GraphTypes()
    types.registry.register(dataclasses.make_dataclass("Place", ["name"]), name="places.Place")

    with pytest.warns(UnknownTypeWarning, match="gone"):
        found = GraphCodec(types).decode(data)

    assert found == {"name": "p", "gone": 1}


def test_declared_and_allowed_classes_are_read() -> None:
    data = GraphCodec(GraphTypes()).encode([Plan("a"), Color.RED, Point(1)])
    declared = GraphTypes([Plan, Color, Point], strict=True)
    allowed = GraphTypes(strict=True)
    allowed.allow([(__name__, "Plan"), (__name__, "Color"), (__name__, "Point"), ("no", "such")])

    for types in (declared, allowed):
        assert GraphCodec(types).decode(data) == [Plan("a"), Color.RED, Point(1)]


def test_whoever_knows_classes_is_asked_only_for_unknown_ones() -> None:
    data = GraphCodec(GraphTypes()).encode([Plan("a"), Plan("b")])
    types, asked = GraphTypes(strict=True, classes="declared"), []

    def source() -> list[type]:
        asked.append(1)
        return [Plan]

    types.source = source
    codec = GraphCodec(types)
    codec.decode(codec.encode([AIMessage("x")]))
    assert not asked

    assert codec.decode(data) == [Plan("a"), Plan("b")]
    assert asked == [1]


# Threads.

STRESS = """
import random, sys, threading
from langchain_core.messages import AIMessage, HumanMessage
from ropewalk.adapters.langgraph.saver.codec import GraphCodec
from ropewalk.codec import Codec

sys.setswitchinterval(1e-6)
codec = GraphCodec()
state = {"messages": [AIMessage("x", id=str(n)) for n in range(50)], "files": {}}
stop = threading.Event()
counts = [0, 0]

def change(dice):
    messages = state["messages"]
    act = dice.randrange(7)
    if act == 0:
        messages.append(HumanMessage("y" * dice.randrange(50)))
    elif act == 1:
        del messages[dice.randrange(20, 60) :]
    elif act == 2:
        messages[0].additional_kwargs[str(dice.randrange(9))] = [1, {"a": AIMessage("z")}]
    elif act == 3:
        messages[0].additional_kwargs.clear()
    elif act == 4:
        state["files"][str(dice.randrange(50))] = [AIMessage("f")]
    elif act == 5:
        state["files"].clear()
    else:
        messages[:] = [AIMessage(str(dice.random())) for _ in range(30)]

def churn(seed):
    dice = random.Random(seed)
    while not stop.is_set():
        change(dice)
        counts[seed] += 1

threads = [threading.Thread(target=churn, args=(seed,)) for seed in (0, 1)]
for thread in threads:
    thread.start()
for _ in range(int(sys.argv[1])):
    try:
        data = codec.encode(state)
        codec.decoder().decode(data)
    except RuntimeError:
        pass  # It changed its size; whoever asks tries again.
stop.set()
for thread in threads:
    thread.join()
assert min(counts) > 10, counts
assert codec.encode(state) == Codec(codec.registry).encode(state)
print("sound")
"""


def test_values_that_two_threads_change_are_encoded_without_a_crash() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", STRESS, "300"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "sound\n"
