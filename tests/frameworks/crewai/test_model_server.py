"""The scripted model server, asked by OpenAI's own client, which comes with CrewAI."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from ropewalk.testing import Call, ModelServer, Turn

TURN = Turn(
    "A text that is streamed in pieces.",
    [Call("lookup", {"city": "Rome"}), Call("lookup", {"city": "Oslo", "days": 3})],
)


@pytest.fixture(autouse=True)
def _no_network() -> None:
    """The server is on this machine; the tests of CrewAI may not even ask for that."""


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    with (
        ModelServer([TURN]) as server,
        openai.OpenAI(base_url=server.openai_url, api_key="none", max_retries=0) as made,
    ):
        yield made


def test_chat_completions(client: openai.OpenAI) -> None:
    (choice,) = client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "Hello"}]
    ).choices
    with pytest.raises(openai.BadRequestError, match="1 turns"):
        client.chat.completions.create(model="scripted", messages=[])

    assert choice.message.content == TURN.text
    arguments = [json.loads(one.function.arguments) for one in choice.message.tool_calls or ()]
    assert arguments == [one.arguments for one in TURN.calls]


def test_streamed_chat_completions(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="scripted",
        messages=[{"role": "user", "content": "Hello"}],
        stream_options={"include_usage": True},
    ) as stream:
        whole = stream.get_final_completion()

    (choice,) = whole.choices
    assert choice.message.content == TURN.text and len(choice.message.tool_calls or ()) == 2
    assert whole.usage is not None and whole.usage.total_tokens > 0


def test_responses(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="scripted", input="Hello")

    assert whole.output_text == TURN.text
    assert [one.type for one in whole.output] == ["message", "function_call", "function_call"]


def test_streamed_responses(client: openai.OpenAI) -> None:
    with client.responses.stream(model="scripted", input="Hello") as stream:
        deltas = [one.delta for one in stream if one.type == "response.output_text.delta"]
        whole = stream.get_final_response()

    assert "".join(deltas) == whole.output_text == TURN.text and len(deltas) > 1
    assert len(whole.output) == 3
