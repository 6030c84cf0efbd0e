"""What the tests of threads share: one interface to a checkpointer's sync and async methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import pytest

from ropewalk.threads import Message, ThreadCheckpointer

Opener: TypeAlias = Callable[..., ThreadCheckpointer[Any]]
"""Opens one more checkpointer, with these keyword arguments, on the running test's data."""

T1 = {"thread_id": "t1"}
T2 = {"thread_id": "t2"}


class Face:
    """An object, called by its methods, or by their twins on an event loop.

    Each test is written once, and means the same for both.
    """

    def __init__(self, target: Any, runner: asyncio.Runner | None) -> None:
        self.target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        if self._runner is None or not hasattr(self.target, f"a{name}"):
            return getattr(self.target, name)
        twin, run = getattr(self.target, f"a{name}"), self._runner.run

        def call(*arguments: Any, **options: Any) -> Any:
            return run(twin(*arguments, **options))

        return call


Faces: TypeAlias = Callable[..., Face]


class TwoFaces:
    """Runs every test twice."""

    @pytest.fixture(params=["sync", "async"])
    def runner(self, request: pytest.FixtureRequest) -> Iterator[asyncio.Runner | None]:
        """An event loop for the asynchronous methods; None for the others."""
        if request.param == "sync":
            yield None
            return
        with asyncio.Runner() as runner:
            yield runner


class Base(TwoFaces):
    """The fixture that a subclass implements, and those derived from it."""

    shares_cache: ClassVar[bool] = True
    """Whether other store objects on the same data see a cached state."""

    @pytest.fixture
    def open_checkpointer(self) -> Opener:
        """Implement this: a function that opens a checkpointer on the running test's data.

        It takes the keyword arguments of `ThreadCheckpointer` besides the store, and may be called
        several times in one test: each call opens another store object on the same data, which is
        empty at first.
        """
        raise NotImplementedError(
            "a subclass of ThreadContract gives the fixture open_checkpointer"
        )

    @pytest.fixture
    def opened(self, open_checkpointer: Opener, runner: asyncio.Runner | None) -> Iterator[Faces]:
        """Opens checkpointers, whose stores are closed at the end of the test."""
        faces: list[Face] = []

        def open_one(**options: Any) -> Face:
            faces.append(Face(open_checkpointer(**options), runner))
            return faces[-1]

        yield open_one
        for face in faces:
            face.target.store.close()

    @pytest.fixture
    def chat(self, opened: Faces) -> Face:
        """The checkpointer of the running test."""
        return opened()


@contextmanager
def each(case: Any) -> Iterator[None]:
    """Adds to an error which of many cases failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"with {case!r:.80}")
        raise


def said(*texts: str, role: str = "user", first: int = 0) -> list[dict[str, Any]]:
    """Messages with these texts; their ids are m0, m1 and so on."""
    return [
        {"role": role, "content": text, "id": f"m{number}"}
        for number, text in enumerate(texts, first)
    ]


def numbered(count: int, first: int = 0) -> list[dict[str, Any]]:
    """A number of messages that contain their numbers."""
    return said(*(f"number {one}" for one in range(first, first + count)), first=first)


def ids(messages: Iterable[Message]) -> list[Any]:
    """The ids of messages, in their order."""
    return [one.id for one in messages]


def texts(messages: Iterable[Message]) -> list[str]:
    """The texts of messages, in order."""
    return [one.text for one in messages]


def commits(chat: Face, config: dict[str, Any] = T1) -> int:
    """How many commits the thread has."""
    return len(chat.timeline(config).history(limit=None))


def everything(chat: Face, config: dict[str, Any] = T1) -> tuple[Any, ...]:
    """The whole content of a thread, to compare before with after."""
    info = chat.get_thread(config)
    about = None if info is None else (info.thread_name, info.metadata)
    messages = [one.to_stored() for one in chat.list_messages(config)]
    return chat.get_state(config), chat.get_state_cache(config), messages, about
