"""A model server that answers from a script, asked by a plain client of HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest

from ropewalk.testing import Call, ModelRequest, ModelServer, Turn, by_turn

TURN = Turn("A text of several pieces, with an é.", [Call("lookup", {"city": "Rome", "days": 3})])
PATHS = ["/v1/messages", "/v1/chat/completions", "/v1/responses"]


def post(server: ModelServer, path: str, body: Any) -> tuple[int, bytes]:
    place = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    place.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
    answer = place.getresponse()
    data = answer.read()
    place.close()
    return answer.status, data


def ask(server: ModelServer, path: str, *said: dict[str, Any], **more: Any) -> tuple[int, Any]:
    key = "input" if path.endswith("responses") else "messages"
    status, data = post(server, path, {"model": "m", key: list(said), **more})
    return status, json.loads(data)


def events_of(data: bytes) -> list[Any]:
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


USER = {"role": "user", "content": "Hello"}


def test_it_answers_as_each_protocol_does() -> None:
    with ModelServer([TURN] * 3) as server:
        message, completion, response = (ask(server, path, USER)[1] for path in PATHS)

    assert [one["type"] for one in message["content"]] == ["text", "tool_use"]
    assert message["content"][1]["input"] == TURN.calls[0].arguments
    assert message["stop_reason"] == "tool_use"
    (choice,) = completion["choices"]
    assert choice["message"]["content"] == TURN.text and choice["finish_reason"] == "tool_calls"
    called = choice["message"]["tool_calls"][0]["function"]
    assert json.loads(called["arguments"]) == TURN.calls[0].arguments
    assert [one["type"] for one in response["output"]] == ["message", "function_call"]
    assert response["output"][0]["content"][0]["text"] == TURN.text


def test_a_streamed_answer_says_the_same() -> None:
    with ModelServer([TURN] * 6) as server:
        streams = []
        for path in PATHS:
            body = {"model": "m", "messages": [USER], "input": [USER], "stream": True}
            status, data = post(server, path, body)
            streams.append(events_of(data))
            assert status == 200
    messages, completions, responses = streams

    deltas = [one["delta"] for one in messages if one["type"] == "content_block_delta"]
    assert "".join(one.get("text", "") for one in deltas) == TURN.text
    arguments = "".join(one.get("partial_json", "") for one in deltas)
    assert json.loads(arguments) == TURN.calls[0].arguments
    said = [one["choices"][0]["delta"].get("content") or "" for one in completions]
    assert "".join(said) == TURN.text and len([piece for piece in said if piece]) > 1
    assert responses[-1]["response"]["output"][0]["content"][0]["text"] == TURN.text
    assert [one["sequence_number"] for one in responses] == list(range(len(responses)))


def test_it_keeps_the_exact_requests() -> None:
    raw = b'{"model": "m",  "messages": [{"role": "user", "content": "Hi"}]}'
    with ModelServer([Turn("Hello")]) as server:
        post(server, PATHS[0], raw)

    (request,) = server.requests
    assert request.raw == raw and request.path == PATHS[0]
    assert request.messages == [{"role": "user", "content": "Hi"}]
    assert request.headers["host"] == server.url.removeprefix("http://")


def test_a_function_decides_by_the_request() -> None:
    def script(request: ModelRequest) -> Turn:
        return Turn(f"turn {request.turn}: {request.messages[-1]['content']}")

    spoken = [USER, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}]
    with ModelServer(script) as server:
        first, later = (ask(server, PATHS[0], *said)[1] for said in ([USER], spoken))

    assert first["content"][0]["text"] == "turn 0: Hello"
    assert later["content"][0]["text"] == "turn 1: Bye"


def test_each_conversation_goes_through_a_script_by_turn() -> None:
    called = [
        USER,
        {"type": "function_call", "call_id": "1", "name": "lookup", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
    ]
    with ModelServer(by_turn([Turn("one"), Turn("two")])) as server:
        first = ask(server, PATHS[2], USER)[1]
        other = ask(server, PATHS[2], *called)[1]
        kept = ask(server, PATHS[2], USER, previous_response_id=first["id"])[1]
        status, over = ask(server, PATHS[2], *called, previous_response_id=first["id"])

    texts = [one["output"][0]["content"][0]["text"] for one in (first, other, kept)]
    assert texts == ["one", "two", "two"]
    assert status == 400 and "2 turns" in over["error"]["message"]


def test_equal_requests_get_equal_ids() -> None:
    with ModelServer([TURN] * 3) as server:
        one, same, other = (
            ask(server, PATHS[0], {"role": "user", "content": said})[1] for said in "aab"
        )

    assert one == same and one["id"] != other["id"]
    assert one["content"][1]["id"] != other["content"][1]["id"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null"])
def test_a_malformed_request_is_refused(body: bytes) -> None:
    with ModelServer([]) as server:
        assert post(server, PATHS[0], body)[0] == 400
        assert post(server, "/v1/elsewhere", b"{}")[0] == 404


def test_a_script_may_fail_and_may_end() -> None:
    with ModelServer([Turn("overloaded", status=529)]) as server:
        refused, ended = (ask(server, PATHS[0], USER) for _ in range(2))

    assert refused[0] == 529 and refused[1]["error"]["message"] == "overloaded"
    assert ended[0] == 400 and "1 turns" in ended[1]["error"]["message"]


@pytest.mark.parametrize("length", [None, "-1", "many"])
def test_a_request_without_a_length_is_refused_at_once(length: str | None) -> None:
    with ModelServer([TURN]) as server:
        place = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        place.putrequest("POST", PATHS[0])
        if length is not None:
            place.putheader("content-length", length)
        place.endheaders()
        answer = place.getresponse()
        assert answer.status == 400 and b"content-length" in answer.read()
        assert answer.isclosed()
        place.close()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("said", [None, Turn.calling("lookup", city={"a set"})])
def test_what_a_script_cannot_mean_is_refused_with_the_reason(said: Any, streamed: bool) -> None:
    with ModelServer(lambda request: said) as server:
        for path in PATHS:
            status, answer = ask(server, path, USER, stream=streamed)
            assert status == 400 and answer["error"]["message"]


def test_it_ends_with_connections_that_are_open() -> None:
    before = threading.active_count()
    server = ModelServer([Turn("one")])
    kept = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    kept.request("POST", PATHS[0], json.dumps({"messages": [USER]}))
    kept.getresponse().read()
    server.close()

    with pytest.raises(ConnectionError):
        post(server, PATHS[0], {"messages": [USER]})
    kept.close()
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(30)
    assert threading.active_count() == before
