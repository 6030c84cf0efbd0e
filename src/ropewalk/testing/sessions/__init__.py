"""The contract suite for the sessions of frameworks.

    from ropewalk.testing import SessionContract, SessionKit

    class Kit(SessionKit):
        adapter, entry, framework, extra = "my.adapter", "MySession", "theirs", "theirs"

        def open(self, store, id): return MySession(id, store)
        async def say(self, session, text): await session.add_items([...])
        async def items(self, session): return await session.get_items()
        ...

    class TestSessions(SessionContract):
        kit = Kit

Every test runs on each of `engines`. A subclass may add servers there, each with the name of a
fixture that gives the URL of an empty one.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

import ropewalk
from ropewalk import MemoryStore, Store
from ropewalk.testing.helpers import lines_until_killed
from ropewalk.testing.sessions.__main__ import conflict_in, settled
from ropewalk.testing.sessions.kit import SessionKit
from ropewalk.timeline import Timeline

__all__ = ["SessionContract", "SessionKit"]

Opener: TypeAlias = Callable[[], Store]

_PATIENCE = 120.0


class SessionContract:
    """What an adapter promises about its framework's sessions, as tests."""

    kit: ClassVar[type[SessionKit]]
    """How the framework's sessions are opened and used."""
    engines: ClassVar[Mapping[str, str]] = {"memory": "", "sqlite": "", "files": ""}
    """The engines to test on; for those with a server, a fixture that gives a URL."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test on every engine, and those of several processes where that can be."""
        if "shared_place" in metafunc.fixturenames:
            metafunc.parametrize("engine", [one for one in self.engines if one != "memory"])
        elif "engine" in metafunc.fixturenames:
            metafunc.parametrize("engine", self.engines)

    # What the tests stand on.

    @pytest.fixture
    def place(self, engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        """Where the running test stores."""
        if self.engines[engine]:
            url: str = request.getfixturevalue(self.engines[engine])
            return url
        if engine == "memory":
            return "memory://"
        return f"file://{tmp_path}/store" if engine == "files" else str(tmp_path / "store")

    @pytest.fixture
    def shared_place(self, place: str) -> str:
        """The same, for tests that start other processes."""
        return place

    @pytest.fixture
    def open_store(self, place: str) -> Iterator[Opener]:
        """Opens one more store object on the test's data, as another process would."""
        memory = MemoryStore() if place == "memory://" else None
        opened: list[Store] = []

        def open_one() -> Store:
            durable = ropewalk.open(place, durability="relaxed") if memory is None else None
            opened.append(durable or memory.another())  # type: ignore[union-attr]
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, open_store: Opener) -> Store:
        """A store for the running test."""
        return open_store()

    @pytest.fixture
    def runner(self) -> Iterator[asyncio.Runner]:
        """An event loop."""
        with asyncio.Runner() as runner:
            yield runner

    @pytest.fixture
    def do(self, runner: asyncio.Runner) -> Callable[..., Any]:
        """Calls a method of the kit, by its name, on the event loop if it is a coroutine."""
        kit = self.kit()

        def call(name: str, *arguments: Any) -> Any:
            if name in kit.lacks:
                pytest.skip(f"no {name}: {kit.lacks[name]}")
            method = getattr(kit, name)
            if inspect.iscoroutinefunction(method):
                return runner.run(method(*arguments))
            return method(*arguments)

        return call

    def _texts(self, store: Store, id: str) -> list[str]:
        return self.kit().texts(store, id)

    def _timeline(self, store: Store, id: str) -> Timeline:
        return self.kit().timeline(store, id)

    # Storing and reading.

    def test_a_new_session_is_empty(self, store: Store, do: Callable[..., Any]) -> None:
        session = do("open", store, "chat")

        assert not do("items", session)
        assert self._texts(store, "chat") == []

    def test_what_was_said_is_there_when_it_is_opened_again(
        self, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        session = do("open", open_store(), "chat")
        do("say", session, "Hello.")
        do("say", session, "How are you?")
        found = do("items", session)
        do("close", session)
        again = do("open", open_store(), "chat")

        assert do("items", again) == found
        assert len(found) >= 2
        assert self._texts(open_store(), "chat") == ["Hello.", "How are you?"]
        do("say", again, "Goodbye.")
        assert self._texts(open_store(), "chat") == ["Hello.", "How are you?", "Goodbye."]

    def test_what_is_read_belongs_to_the_reader(self, store: Store, do: Callable[..., Any]) -> None:
        session = do("open", store, "chat")
        do("say", session, "Hello.")
        found = do("items", session)
        if isinstance(found, list):
            found.clear()

        assert do("items", do("open", store, "chat"))

    def test_sessions_are_apart(self, store: Store, do: Callable[..., Any]) -> None:
        one, other = do("open", store, "one"), do("open", store, "other")
        do("say", one, "First.")
        do("say", other, "Second.")

        assert self._texts(store, "one") == ["First."]
        assert self._texts(store, "other") == ["Second."]

    def test_several_sessions_at_once(self, store: Store, runner: asyncio.Runner) -> None:
        kit = self.kit()

        async def talk(name: str) -> None:
            session = await settled(kit.open(store, name))
            for turn in range(5):
                await settled(kit.say(session, f"{name} {turn}"))

        names = [f"chat-{number}" for number in range(6)]
        if inspect.iscoroutinefunction(kit.say):

            async def together() -> None:
                await asyncio.gather(*map(talk, names))

            runner.run(together())
        else:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda name: asyncio.run(talk(name)), names))

        for name in names:
            assert self._texts(store, name) == [f"{name} {turn}" for turn in range(5)]

    # What it costs, although the framework hands over everything again.

    def test_a_turn_costs_what_it_added(self, open_store: Opener, do: Callable[..., Any]) -> None:
        store = open_store()
        session = do("open", store, "chat")
        words = random.Random(7)
        sizes = [0]
        for _ in range(2):
            for _ in range(30):
                do("say", session, words.randbytes(600).hex())
            sizes.append(store.stats().payload)

        # With the whole history in each turn, the second half would cost three times the first.
        assert sizes[2] - sizes[1] < 2 * sizes[1]
        assert sizes[2] < 60 * 30_000

    def test_a_change_in_place_is_noticed(self, open_store: Opener, do: Callable[..., Any]) -> None:
        session = do("open", open_store(), "chat")
        for turn in range(4):
            do("say", session, f"Number {turn}.")
        do("change", session, "Number 1.", "Number one.")
        wanted = ["Number 0.", "Number one.", "Number 2.", "Number 3."]

        assert self._texts(open_store(), "chat") == wanted
        do("say", session, "More.")
        assert self._texts(open_store(), "chat") == [*wanted, "More."]

    # Two writers, and tasks that are cancelled.

    def test_two_writers_lose_nothing_and_a_conflict_is_typed(
        self, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        do("say", do("open", open_store(), "chat"), "Hello.")
        one, other = (do("open", open_store(), "chat") for _ in range(2))
        assert do("items", one) == do("items", other)
        said = ["Hello."]
        for session, text in ((one, "From one."), (other, "From the other."), (one, "Again.")):
            try:
                do("say", session, text)
            except Exception as error:
                if conflict_in(error) is None:
                    raise
            else:
                said.append(text)

        assert said[:2] == ["Hello.", "From one."]
        assert self._texts(open_store(), "chat") == said

    def test_two_processes_on_one_session_lose_nothing(
        self, shared_place: str, open_store: Opener
    ) -> None:
        labels = ["here", "there"]
        workers = [self._process(shared_place, "chat", label, "8") for label in labels]
        for worker in workers:
            _, errors = worker.communicate(timeout=_PATIENCE)
            assert worker.returncode == 0, errors

        store = open_store()
        found = self._texts(store, "chat")
        if not self.kit.stores_whole_turns:
            # A turn that met a conflict after its first call was said again.
            found = list(dict.fromkeys(found))
        for label in labels:
            said = [text for text in found if text.startswith(label)]
            assert said == [f"{label} {number}." for number in range(8)]
        assert len(found) == 16
        assert store.check(read_data=True).ok

    def test_a_cancelled_turn_is_stored_whole_or_not_at_all(
        self, open_store: Opener, runner: asyncio.Runner, do: Callable[..., Any]
    ) -> None:
        kit = self.kit()
        if not inspect.iscoroutinefunction(kit.say):
            pytest.skip("the framework has no tasks to cancel")
        for steps in range(12):
            store, id = open_store(), f"chat-{steps}"

            async def cancelled(store: Store = store, id: str = id, steps: int = steps) -> int:
                session = await settled(kit.open(store, id))
                await settled(kit.say(session, "Hello."))
                size = len(await settled(kit.items(session)))
                task = asyncio.ensure_future(kit.say(session, "Cancelled."))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                return size

            size = runner.run(cancelled())
            session = do("open", store, id)
            try:
                do("say", session, "Goodbye.")
            except Exception as error:
                # The cancelled write may land after the session was read.
                if conflict_in(error) is None:
                    raise
                session = do("open", store, id)
                do("say", session, "Goodbye.")
            store.close()  # When the cancelled write has landed.
            store = open_store()
            found = self._texts(store, id)
            assert [text for text in found if text != "Cancelled."] == ["Hello.", "Goodbye."]
            assert found.count("Cancelled.") <= 1
            if kit.stores_whole_turns:
                assert len(do("items", do("open", store, id))) == size * len(found)

    # Going back, and forks.

    def test_a_session_goes_on_from_where_it_was_rolled_back_to(
        self, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        session = do("open", open_store(), "chat")
        do("say", session, "One.")
        do("say", session, "Two.")
        before, items = self._head(open_store(), "chat"), do("items", session)
        do("say", session, "Three.")
        do("close", session)
        self._timeline(open_store(), "chat").rollback(to_checkpoint_id=before)
        again = do("open", open_store(), "chat")

        assert do("items", again) == items
        do("say", again, "Four.")
        assert self._texts(open_store(), "chat") == ["One.", "Two.", "Four."]

    def test_a_fork_of_the_timeline_is_a_session(
        self, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        store = open_store()
        session = do("open", store, "chat")
        do("say", session, random.Random(3).randbytes(200_000).hex())
        early, items = self._head(store, "chat"), do("items", session)
        do("say", session, "Two.")
        before = store.stats().stored
        self._timeline(store, "chat").fork("second", early)
        grown = store.stats().stored - before
        fork = do("open", open_store(), "second")

        assert do("items", fork) == items
        assert grown < 100_000  # The text of 400 KB is shared.
        do("say", fork, "Otherwise.")
        assert self._texts(open_store(), "second")[1:] == ["Otherwise."]
        assert self._texts(open_store(), "chat")[1:] == ["Two."]

    def test_the_framework_gets_a_fork_from_an_earlier_turn(
        self, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        store = open_store()
        session = do("open", store, "chat")
        for text in ("One.", "Two.", "Three."):
            do("say", session, text)
        fork = do("fork", session, 2, "second")
        do("say", fork, "Otherwise.")

        assert self._texts(open_store(), "second") == ["One.", "Two.", "Otherwise."]
        assert self._texts(open_store(), "chat") == ["One.", "Two.", "Three."]

    def _head(self, store: Store, id: str) -> str:
        head = self._timeline(store, id).head
        assert head is not None
        return head.id

    # The command line.

    def test_the_command_line_shows_and_moves_it(
        self, shared_place: str, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        store = open_store()
        session = do("open", store, "chat")
        do("say", session, "What is the weather?")
        first = self._head(store, "chat")
        do("say", session, "And tomorrow?")
        do("close", session)
        run = partial(_command, shared_place, self.kit().config("chat"))

        assert "chat" in run("threads", thread=False)
        assert "What is the weather?" in run("messages")
        assert "And tomorrow?" in run("messages", "--role", "user", "--newest-first")
        assert first[:8] in run("log")
        assert first[:8] in run("tree")
        assert "And tomorrow?" in run("diff", first)
        if self.kit.stores_whole_turns:
            assert first[:8] in run("blame", "messages[0]")
        run("fork", "copy", "--at", first)
        assert self._texts(open_store(), "copy") == ["What is the weather?"]
        run("rollback", "--to", first)
        assert self._texts(open_store(), "chat") == ["What is the weather?"]
        run("check", thread=False)

    # Processes that are killed.

    def test_a_killed_process_loses_nothing_that_was_acknowledged(
        self, shared_place: str, open_store: Opener, do: Callable[..., Any]
    ) -> None:
        with self._process(shared_place, "chat", "turn", "") as worker:
            acknowledged = lines_until_killed(worker, 4)
            assert worker.stderr is not None
            errors = worker.stderr.read()
        assert len(acknowledged) >= 4, errors

        store = open_store()
        session = do("open", store, "chat")
        found = self._texts(store, "chat")
        assert found[: len(acknowledged)] == acknowledged
        unacknowledged = found[len(acknowledged) :]
        assert len(unacknowledged) <= 1  # One may be stored that the process did not print yet.
        assert found == [f"turn {number}." for number in range(len(found))]
        do("say", session, "Again.")
        assert self._texts(store, "chat") == [*found, "Again."]
        assert store.check(read_data=True).ok

    # The framework is missing.

    def test_without_the_framework_the_error_names_the_extra(self) -> None:
        kit = self.kit
        if not kit.framework:
            pytest.skip("the adapter needs no framework")
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT, kit.framework, kit.adapter, kit.entry],
            capture_output=True,
            check=False,
            text=True,
            timeout=_PATIENCE,
            env=_environment(),
        )

        assert done.returncode == 0, done.stderr
        assert f"ropewalk[{kit.extra}]" in done.stdout

    def _process(self, place: str, *arguments: str) -> subprocess.Popen[str]:
        spec = f"{self.kit.__module__}:{self.kit.__qualname__}"
        command = [sys.executable, "-m", "ropewalk.testing.sessions", spec, place, *arguments]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )


_WITHOUT = """
import sys
from importlib import import_module

framework, adapter, entry = sys.argv[1:]
for name in [one for one in sys.modules if one.partition(".")[0] == framework]:
    del sys.modules[name]
sys.modules[framework] = None
try:
    getattr(import_module(adapter), entry)()
except ImportError as error:
    print(error)
"""


def _environment() -> dict[str, str]:
    """The environment of a process that imports what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _command(
    place: str, config: Mapping[str, Any], verb: str, *arguments: str, thread: bool = True
) -> str:
    """What a command of the command line prints."""
    from typer.testing import CliRunner

    from ropewalk.cli.app import app

    named = ["--thread", str(config["thread_id"])] if thread else []
    if thread and "user_id" in config:
        named += ["--user", str(config["user_id"])]
    done = CliRunner().invoke(app, [verb, *arguments, "--store", place, *named])
    assert done.exit_code == 0, (verb, done.output, done.exception)
    return done.output
