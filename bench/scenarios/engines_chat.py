"""A chat grows by one message for each commit, on each engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench._model import Engine, EngineInfo, Measured, Scenario, Target
from bench._text import Text
from bench._values import message, payload_bytes
from bench.scenarios import _clients as clients
from bench.scenarios._sides import ENGINES, EVERY_SERVED
from bench.scenarios._work import Step, Work

_READY = 200  # Messages that are there before the time runs; the others cost a tenth of a ms.


class Conversation(Work):
    """A state with a list of messages, which grows by one at each step."""

    def __init__(self, seed: int, history: int, ready: int = 0) -> None:
        self._text = Text(seed)
        self.value: dict[str, list[Any]] = {"messages": []}
        self._messages = self.value["messages"]
        self._messages += [message(self._text, number) for number in range(history)]
        self._ready = [message(self._text, history + number) for number in range(ready)]
        self._ready.reverse()

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    def steps(self) -> Iterator[Step]:
        while True:
            number = len(self._messages)
            new = self._ready.pop() if self._ready else message(self._text, number)
            self._messages.append(new)
            yield self._record

    def _record(self, engine: Engine) -> None:
        path = ("messages", len(self._messages) - 1)
        engine.change(self.value, path, self._messages[-1])

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the messages did not read back"

    def payload(self) -> int:
        return payload_bytes(self.value)


def client(size: Mapping[str, int], number: int) -> Work:
    """The work of one of several clients."""
    return Conversation(number + 2, size["history"], _READY)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """One client grows a chat from nothing; several go on with theirs."""
    return clients.run(info, size, Conversation(1, 0), client)


SCENARIO = Scenario(
    name="engines-chat",
    title="Messages of 1 KB: a chat grows from nothing by one client, and many go on with 500 each",
    run=run,
    engines=EVERY_SERVED,
    metrics=clients.metrics(last=(clients.AMPLIFICATION,)),
    size={
        "commits": 2000, "seconds": 30, "history": 500,
        "processes": 4, "threads": 4, "together_seconds": 6,
    },
    quick={
        "commits": 200, "seconds": 10, "history": 100,
        "processes": 2, "threads": 2, "together_seconds": 1,
    },
    targets=(
        *clients.beside_savers(5.0, "16 clients with 500 messages"),
        *(
            Target("amplification", 2.0, f"{name}: stored over raw payload", side=name)
            for name in ENGINES
        ),
        *clients.as_embedded("amplification"),
    ),
    notes=clients.NOTES,
    order=320,
    repeat=3,
)  # fmt: skip
