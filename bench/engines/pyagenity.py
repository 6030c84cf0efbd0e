"""pyagenity's InMemoryCheckpointer, with the deep copies that it leaves out."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo, Place
from bench.engines._talk import Talk

_CONFIG = {"thread_id": "bench", "user_id": "somebody"}


def _state_class(base: Any) -> Any:
    """The framework's own kind of state, with the values of an application."""
    return import_module("pydantic").create_model("State", __base__=base, values=(dict, ...))


class Copied(Talk):
    """What goes in and what comes out is copied: it stores and hands out the same objects."""

    def __init__(self) -> None:
        super().__init__()
        self._chat = import_module("pyagenity.checkpointer").InMemoryCheckpointer()
        self._message = import_module("pyagenity.utils").Message
        self._state_class = _state_class(import_module("pyagenity.state").AgentState)
        self._count = 0

    def message(self, item: dict[str, Any]) -> Any:
        return self._message.text_message(item["content"], role=item["role"], message_id=item["id"])

    def append(self, message: Any) -> None:
        self._chat.put_messages(_CONFIG, [deepcopy(message)])
        self._count += 1

    def page(self, count: int) -> list[Any]:
        # It lists from the beginning only, so the caller has to know how many there are.
        offset = max(0, self._count - count)
        return deepcopy(self._chat.list_messages(_CONFIG, offset=offset, limit=count))

    def text(self, message: Any) -> str:
        return "".join(block.text for block in message.content)

    def make_state(self, state: dict[str, Any]) -> Any:
        return self._state_class(values=state)

    def append_with(self, message: Any, state: Any) -> None:
        self.append(message)
        self.put_state(state)

    def put_state(self, state: Any) -> None:
        self._chat.put_state(_CONFIG, deepcopy(state))

    def state(self) -> Any:
        return deepcopy(self._chat.get_state(_CONFIG))

    def search(self, word: str, count: int) -> list[Any]:
        return deepcopy(self._chat.list_messages(_CONFIG, word, limit=count))


def _open(place: Place) -> Engine:
    return Copied()


ENGINE = EngineInfo(
    name="pyagenity",
    label="pyagenity InMemoryCheckpointer, with deep copies",
    open=_open,
    environment="python-3.12",
    package="pyagenity",
    imports="pyagenity.checkpointer",
    note="a deep copy of what goes in and of what comes out, which it leaves out; no history, no "
    "users, and a search that looks through the reprs of all messages",
)
