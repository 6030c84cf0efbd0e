"""A server on loopback that speaks the protocols of models, and answers from a script.

    from ropewalk.testing import ModelServer, Turn

    with ModelServer([Turn.calling("lookup", city="Rome"), Turn("It is sunny.")]) as server:
        model = ChatAnthropic(model="scripted", base_url=server.url, api_key="none")
        ...
    assert server.requests[1].messages[-1]["role"] == "user"

So an agent runs with the real client of its framework, without a network and without a key. It
knows the messages of Anthropic (`server.url`), and chat completions and responses of OpenAI
(`server.openai_url`), streamed or not, with calls of tools. It uses the standard library only.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self, TypeAlias

from ropewalk.errors import InvalidInput

_PIECE: Final = 16
"""Characters of one event, when an answer is streamed."""


class Call(NamedTuple):
    """A tool that the model calls."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One answer of the model: a text, calls of tools, or both; or an error."""

    text: str = ""
    calls: Sequence[Call] = ()
    status: int = 200
    """Anything but 200, such as 429 or 529, is an error of the provider: the text says why."""

    @classmethod
    def calling(cls, tool: str, /, **arguments: Any) -> Self:
        """A turn that calls one tool."""
        return cls(calls=[Call(tool, arguments)])


@dataclass(frozen=True)
class ModelRequest:
    """A request as the client sent it."""

    path: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: Mapping[str, Any] = field(repr=False)
    raw: bytes = field(repr=False)
    """The body, byte by byte."""
    turn: int
    """How often the model has spoken in this conversation; 0 at its beginning."""

    @property
    def messages(self) -> list[Any]:
        """The conversation, as its protocol has it."""
        given = self.body.get("messages", self.body.get("input", []))
        return given if isinstance(given, list) else [{"role": "user", "content": given}]

    @property
    def id(self) -> str:
        """What the ids of the answer are made of: equal requests get equal ones."""
        return sha256(self.path.encode() + self.raw).hexdigest()[:24]


Script: TypeAlias = Sequence[Turn] | Callable[[ModelRequest], Turn]


def by_turn(turns: Sequence[Turn]) -> Callable[[ModelRequest], Turn]:
    """A script that each conversation goes through by itself, also after a crash."""

    def script(request: ModelRequest) -> Turn:
        if request.turn >= len(turns):
            raise InvalidInput(f"the script has {len(turns)} turns, and this one is the next")
        return turns[request.turn]

    return script


class ModelServer:
    """A model server that answers from a script, and keeps the requests it got.

    The script is a list of turns, in the order in which requests come; or a function from the
    `ModelRequest` to the `Turn`, which may be called by several threads at once. A request that
    the script has no turn for, or that is malformed, gets status 400, which clients do not retry.

    It listens on a free port of 127.0.0.1 from the beginning, and ends with its block.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._responses: dict[str, int] = {}
        self.requests: list[ModelRequest] = []
        """Every request, in the order in which they came."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.daemon = True
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL for clients of Anthropic."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    def close(self) -> None:
        """Stop listening, and end the connections that are open."""
        self._server.shutdown()
        self._server.server_close()
        self._server.end_connections()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _turn(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[ModelRequest, Turn]:
        """Note a request, and look up what the model says to it."""
        body = json.loads(raw)
        if not isinstance(body, dict):
            raise InvalidInput("the body of a request is a JSON object")
        before = self._responses.get(str(body.get("previous_response_id")), 0)
        request = ModelRequest(path, headers, body, raw, before + _turns(body))
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if callable(self._script):
            turn = self._script(request)
        elif number > len(self._script):
            raise InvalidInput(
                f"the script has {len(self._script)} turns, and this is request {number}"
            )
        else:
            turn = self._script[number - 1]
        self._responses[f"resp_{request.id}"] = request.turn + 1
        return request, turn


def _turns(body: Mapping[str, Any]) -> int:
    """How often the model has spoken: a run of what it said, or called, counts once."""
    given = body.get("messages", body.get("input"))
    if not isinstance(given, list):
        return 0
    spoken = [
        one.get("role") == "assistant" or one.get("type") in ("function_call", "reasoning")
        for one in given
        if isinstance(one, dict)
    ]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


# HTTP.


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    model: ModelServer

    def __init__(self, *arguments: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of ours."""

    def end_connections(self) -> None:
        """Wake the threads that wait for a next request on a connection that is kept open."""
        for one in list(self._open):
            self.shutdown_request(one)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """The models that there are."""
        if self.path.partition("?")[0] != "/v1/models":
            return self._send(404, {"error": {"message": f"nothing is at {self.path}"}})
        models = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "ropewalk"}]
        return self._send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        """A request to the model."""
        path = self.path.partition("?")[0]
        size = self.headers.get("content-length", "")
        if not (size.isascii() and size.isdecimal()):
            self.close_connection = True  # Nobody knows where the next request begins.
            return self._send(400, _error("invalid_request_error", "content-length is missing"))
        raw = self.rfile.read(int(size))
        protocol = _PROTOCOLS.get(path)
        if protocol is None:
            return self._send(404, {"error": {"message": f"nothing is at {self.path}"}})
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            request, turn = self.server.model._turn(path, headers, raw)
            if turn.status != 200:
                return self._send(turn.status, _error("api_error", turn.text))
            whole = protocol.whole(request, turn)
            json.dumps(whole)  # A script may give a tool any arguments.
        except Exception as error:  # noqa: BLE001 - whatever a script raises, the test shall see it
            return self._send(400, _error("invalid_request_error", f"{error}"))
        if not request.body.get("stream"):
            return self._send(200, whole)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, event in protocol.events(request, turn):
            head = f"event: {name}\n" if name else ""
            said = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{head}data: {said}\n\n".encode())
        return None

    def _send(self, status: int, said: Mapping[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is printed."""


def _error(kind: str, message: str) -> dict[str, Any]:
    """An error, as both providers' clients read it."""
    return {"type": "error", "error": {"type": kind, "message": message, "code": None}}


# The protocols: an answer as a whole, and as events with their names.

Events: TypeAlias = Iterator[tuple[str, Any]]


class _Protocol(NamedTuple):
    whole: Callable[[ModelRequest, Turn], dict[str, Any]]
    events: Callable[[ModelRequest, Turn], Events]


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def _arguments(one: Call) -> str:
    return json.dumps(dict(one.arguments), ensure_ascii=False)


def _tokens(request: ModelRequest, turn: Turn) -> tuple[int, int]:
    """How much was read and said, at four characters a token."""
    said = len(turn.text) + sum(len(_arguments(one)) for one in turn.calls)
    return len(request.raw) // 4 + 1, said // 4 + 1


def _message(request: ModelRequest, turn: Turn) -> dict[str, Any]:
    """A message of Anthropic."""
    read, said = _tokens(request, turn)
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    content += [
        {
            "type": "tool_use",
            "id": f"toolu_{request.id}_{at}",
            "name": one.tool,
            "input": dict(one.arguments),
        }
        for at, one in enumerate(turn.calls)
    ]
    return {
        "id": f"msg_{request.id}",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model", "scripted"),
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": said},
    }


def _message_events(request: ModelRequest, turn: Turn) -> Events:
    whole = _message(request, turn)
    usage = {**whole["usage"], "output_tokens": 0}
    begun = {**whole, "content": [], "stop_reason": None, "usage": usage}
    yield "message_start", {"type": "message_start", "message": begun}
    for at, block in enumerate(whole["content"]):
        text = block["type"] == "text"
        empty = {**block, "text": ""} if text else {**block, "input": {}}
        start = {"type": "content_block_start", "index": at, "content_block": empty}
        yield "content_block_start", start
        for piece in _pieces(block["text"] if text else json.dumps(block["input"])):
            delta = (
                {"type": "text_delta", "text": piece}
                if text
                else {"type": "input_json_delta", "partial_json": piece}
            )
            moved = {"type": "content_block_delta", "index": at, "delta": delta}
            yield "content_block_delta", moved
        yield "content_block_stop", {"type": "content_block_stop", "index": at}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    said = {"output_tokens": whole["usage"]["output_tokens"]}
    yield "message_delta", {"type": "message_delta", "delta": stop, "usage": said}
    yield "message_stop", {"type": "message_stop"}


def _completion(request: ModelRequest, turn: Turn) -> dict[str, Any]:
    """A chat completion of OpenAI."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{request.id}_{at}",
                "type": "function",
                "function": {"name": one.tool, "arguments": _arguments(one)},
            }
            for at, one in enumerate(turn.calls)
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if turn.calls else "stop",
        "logprobs": None,
    }
    return {
        "id": f"chatcmpl-{request.id}",
        "object": "chat.completion",
        "created": 0,
        "model": request.body.get("model", "scripted"),
        "choices": [choice],
        "usage": _completion_usage(request, turn),
    }


def _completion_usage(request: ModelRequest, turn: Turn) -> dict[str, int]:
    read, said = _tokens(request, turn)
    return {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}


def _completion_events(request: ModelRequest, turn: Turn) -> Events:
    whole = _completion(request, turn)
    (choice,) = whole["choices"]
    frame = {**whole, "object": "chat.completion.chunk"}
    del frame["usage"]

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> tuple[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]
        return "", {**frame, "choices": choices}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(turn.text):
        yield chunk({"content": piece})
    for at, one in enumerate(choice["message"].get("tool_calls", ())):
        begun = {**one, "index": at, "function": {**one["function"], "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        for piece in _pieces(one["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if (request.body.get("stream_options") or {}).get("include_usage"):
        yield "", {**frame, "choices": [], "usage": whole["usage"]}
    yield "", "[DONE]"


def _response(request: ModelRequest, turn: Turn) -> dict[str, Any]:
    """A response of OpenAI."""
    read, said = _tokens(request, turn)
    output: list[dict[str, Any]] = []
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        output.append(
            {
                "type": "message",
                "id": f"msg_{request.id}",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{request.id}_{at}",
            "call_id": f"call_{request.id}_{at}",
            "name": one.tool,
            "arguments": _arguments(one),
            "status": "completed",
        }
        for at, one in enumerate(turn.calls)
    ]
    asked = request.body
    return {
        "id": f"resp_{request.id}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "metadata": asked.get("metadata") or {},
        "model": asked.get("model", "scripted"),
        "output": output,
        "parallel_tool_calls": asked.get("parallel_tool_calls", True),
        "previous_response_id": asked.get("previous_response_id"),
        "temperature": asked.get("temperature"),
        "tool_choice": asked.get("tool_choice", "auto"),
        "tools": asked.get("tools", []),
        "top_p": asked.get("top_p"),
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + said,
        },
    }


def _response_events(request: ModelRequest, turn: Turn) -> Events:
    for number, event in enumerate(_response_steps(_response(request, turn))):
        yield event["type"], {**event, "sequence_number": number}


def _response_steps(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        text = item["type"] == "message"
        empty = {
            **item,
            "status": "in_progress",
            **({"content": []} if text else {"arguments": ""}),
        }
        yield {"type": "response.output_item.added", "output_index": at, "item": empty}
        if text:
            (part,) = item["content"]
            place["content_index"] = 0
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
            for piece in _pieces(part["text"]):
                delta = {"delta": piece, "logprobs": []}
                yield {"type": "response.output_text.delta", **place, **delta}
            done = {"text": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **place, **done}
            yield {"type": "response.content_part.done", **place, "part": part}
        else:
            for piece in _pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, **done}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    yield {"type": "response.completed", "response": whole}


_PROTOCOLS: Final = {
    "/v1/messages": _Protocol(_message, _message_events),
    "/v1/chat/completions": _Protocol(_completion, _completion_events),
    "/v1/responses": _Protocol(_response, _response_events),
}
