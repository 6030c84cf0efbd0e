"""Our sides, of what needs Ropewalk alone. Imported only where it is installed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from queue import SimpleQueue
from typing import Any

import ropewalk
from bench._clock import Stopwatch
from bench._model import Engine, Place
from bench.engines.conversations import Talk
from bench.engines.servers import Client
from bench.engines.states import VALUE, Checkpointed, Held, Lines
from bench.engines.timelines import Steps
from ropewalk import (
    AgentState,
    Externalized,
    Inline,
    Message,
    ThreadCheckpointer,
    Versioned,
    create_runtime,
)
from ropewalk.codec import default_codec
from ropewalk.coherence import Bus, CoherenceCore, State
from ropewalk.history import Branch, History
from ropewalk.store import FileStore, MemoryStore, Move, SqliteStore, Store, ref_name, space_name
from ropewalk.timeline import Timeline
from ropewalk.tree import Edited, Map, ObjectId, Reader, TreeWriter, load, put

_SPACE = space_name("bench", "value")
SHARED_SPACE = space_name("bench", "shared")
_REF = ref_name("branch", "main")


class Ropewalk(Engine):
    """Versions of one value in a memory store: each commit moves one ref."""

    def __init__(self) -> None:
        super().__init__()
        self._store = MemoryStore()
        self._writer = TreeWriter(default_codec)

    def commit(self, value: Any) -> None:
        written = self._writer.write(value)
        move = Move(_REF, self._writer.root, written.root)
        self._store.commit(_SPACE, written.objects, written.needs, [move])
        self._writer.accept(written)

    def read(self) -> Any:
        return load(self._root(), self._store.reader(_SPACE), default_codec)

    def stored_bytes(self) -> int:
        # All frames that were ever written, also those that another has replaced.
        return self._store.sizes.written_bytes

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._move(None, Map.empty())
        self._edit(pairs)

    def put(self, key: str, value: Any) -> None:
        self._edit({key: value})

    def get(self, key: str) -> Any:
        return Map(self._root(), self._store.reader(_SPACE), default_codec)[key]

    def _edit(self, changes: Mapping[str, Any]) -> None:
        # Opened from the store each time: nothing is remembered between commits.
        root = self._root()
        self._move(root, Map(root, self._store.reader(_SPACE), default_codec).edit(changes))

    def _move(self, before: ObjectId | None, edited: Edited) -> None:
        move = Move(_REF, before, edited.root)
        self._store.commit(_SPACE, edited.objects, edited.needs, [move])

    def _root(self) -> ObjectId:
        ref = self._store.ref(_SPACE, _REF)
        assert ref is not None, "nothing was committed"
        return ref.target


def sqlite_store(place: Place) -> Store:
    """The embedded store in the folder of a place."""
    return SqliteStore(place.folder, durability=place.durability)


def file_store(place: Place) -> Store:
    """The store of plain files in the folder of a place."""
    return FileStore(place.folder, durability=place.durability)


class RopewalkDisk(Engine):
    """A branch of a history in a store on disk. It is not told what changed."""

    def __init__(self, place: Place, open_store: Callable[[Place], Store]) -> None:
        super().__init__()
        self._history = History(open_store(place), _SPACE)
        self._name = place.branch

    @cached_property
    def _branch(self) -> Branch:
        """The handle of who writes, which goes on from the newest value."""
        branch = self._history.open(self._name)
        if branch.head is not None:
            branch.read()
        return branch

    def commit(self, value: Any) -> None:
        self._branch.commit(value)

    def read(self) -> Any:
        return self._history.value(self._name)

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._update(lambda root, read: Map.empty())
        self._update(lambda root, read: _map(root, read).edit(pairs))

    def put(self, key: str, value: Any) -> None:
        self._update(lambda root, read: _map(root, read).edit({key: value}))

    def get(self, key: str) -> Any:
        return self._history.map(self._name)[key]

    def close(self) -> None:
        self._history.store.close()

    def _update(self, edit: Callable[[ObjectId | None, Reader], Edited]) -> None:
        # The whole value is never read for this.
        self._editing.update(edit)

    @cached_property
    def _editing(self) -> Branch:
        return self._history.open(self._name)


class RopewalkTold(RopewalkDisk):
    """The same, told the path of what changed, as by a user who knows it."""

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._update(lambda root, read: put(_expected(root), path, new, read, default_codec))


def _map(root: ObjectId | None, read: Reader) -> Map:
    return Map(_expected(root), read, default_codec)


def _expected(root: ObjectId | None) -> ObjectId:
    assert root is not None, "nothing was committed"
    return root


class VersionedState(Held):
    """One handle on a state. It is never told what changed in place."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__()
        self._store = MemoryStore() if store is None else store
        self._handle = Versioned(self._store)

    def look(self, name: str) -> Any:
        return self._handle[name]

    def set(self, name: str, value: Any) -> None:
        self._handle[name] = value

    def save(self) -> None:
        self._handle.commit()

    def reopen(self) -> None:
        self._handle = Versioned(self._store)

    def commit(self, value: Any) -> None:
        self.put(VALUE, value)

    def read(self) -> Any:
        return self.get(VALUE)

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._handle.update(pairs)
        self._handle.commit()

    def put(self, key: str, value: Any) -> None:
        self._handle[key] = value
        self._handle.commit()

    def get(self, key: str) -> Any:
        return Versioned(self._store)[key]

    def stored_bytes(self) -> int:
        assert isinstance(self._store, MemoryStore), "a folder is measured by its files"
        # All frames that were ever written, also those that another has replaced.
        return self._store.sizes.written_bytes


class VersionedOnDisk(VersionedState):
    """The same on a store in a folder, which is closed with it."""

    def __init__(self, place: Place) -> None:
        super().__init__(sqlite_store(place))

    def close(self) -> None:
        self._store.close()


class DocumentState(AgentState):
    """One field whose content is in the store, and one that is in the checkpoints."""

    value: Externalized[object]
    small: Inline[object]


class TypedState(Checkpointed):
    """Its content is in a store on disk, its checkpoints in a file; it looks itself for changes."""

    def __init__(self, place: Place) -> None:
        self._store = sqlite_store(place)
        self._lines = Lines(place)
        super().__init__(DocumentState, create_runtime(backend=self._store))

    def _keep(self, checkpoint: str) -> None:
        self._lines.add(checkpoint)

    def _newest(self) -> str:
        return self._lines.newest()

    def close(self) -> None:
        self._store.close()


_CONFIG = {"thread_id": "bench", "user_id": "somebody"}


class ThreadTalk(Talk):
    """One thread, in memory."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__()
        self._store = MemoryStore() if store is None else store
        self._chat: ThreadCheckpointer[Any] = ThreadCheckpointer(self._store)

    def message(self, item: dict[str, Any]) -> Any:
        return Message(item["role"], item["content"], id=item["id"])

    def append(self, message: Any) -> None:
        self._chat.put_messages(_CONFIG, [message])

    def page(self, count: int) -> list[Any]:
        found = self._chat.list_messages(_CONFIG, limit=count, newest_first=True)
        found.reverse()
        return found

    def text(self, message: Any) -> str:
        said: str = message.text
        return said

    def append_with(self, message: Any, state: Any) -> None:
        self._chat.put(_CONFIG, state, [message])

    def put_state(self, state: Any) -> None:
        self._chat.put_state(_CONFIG, state)

    def state(self) -> Any:
        return self._chat.get_state(_CONFIG)

    def settle(self) -> None:
        for one in threading.enumerate():
            if one.name == "ropewalk-index":
                one.join()

    def search(self, word: str, count: int) -> list[Any]:
        return self._chat.list_messages(_CONFIG, word, limit=count)

    def stored_bytes(self) -> int:
        assert isinstance(self._store, MemoryStore), "a folder is measured by its files"
        return self._store.sizes.written_bytes


class ThreadOnDisk(ThreadTalk):
    """The same in a folder."""

    def __init__(self, place: Place) -> None:
        super().__init__(sqlite_store(place))

    def close(self) -> None:
        self._store.close()


class AwaitedThread(ThreadOnDisk):
    """The same, appended to by a coroutine."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._runner = asyncio.Runner()

    def append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        self._runner.run(self._append_each(messages, watch))

    async def _append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        for message in messages:
            await watch.waits(partial(self._chat.aput_messages, _CONFIG, [message]))

    def close(self) -> None:
        self._runner.close()
        super().close()


__all__ = ["TimelineSteps", "file_store", "sqlite_store"]


class TimelineSteps(Steps):
    """The checkpoints of one agent's timeline. It is not told what changed."""

    can_look_back = True

    def __init__(self, place: Place, open_store: Callable[[Place], Store]) -> None:
        super().__init__()
        self._timeline = Timeline("bench", open_store(place))

    def save(self, state: Any, description: str, logic_step: str) -> None:
        self._timeline.checkpoint(state, description=description, logic_step=logic_step)

    def read(self) -> Any:
        return self._timeline.get_state()

    def history(self, limit: int) -> int:
        return len(self._timeline.history(limit=limit))

    def tree(self) -> str:
        return self._timeline.visualize_tree()

    def close(self) -> None:
        self._timeline.store.close()


class RopewalkClient(Client):
    """A branch of a history. It is handed the whole value, and not told what changed.

    All clients of a process share one store, with its connections and its cache. Each has
    a space of its own, as each agent has.
    """

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self._store = store
        self._history = History(store, space_name("bench", name))

    @cached_property
    def _branch(self) -> Branch:
        """The handle of who writes, which goes on from the newest value."""
        branch = self._history.open("main")
        if branch.head is not None:
            branch.read()
        return branch

    def commit(self, value: Any) -> None:
        self._branch.commit(value)

    def read(self) -> Any:
        return self._history.value("main")

    def another(self, name: str) -> RopewalkClient:
        return RopewalkClient(self._store, name)

    def close(self) -> None:
        self._store.close()


def opened(place: Place) -> Client:
    """The first client of a process."""
    return RopewalkClient(ropewalk.open(place.url, durability=place.durability), place.branch)


ARTIFACT = "plan"
TOPIC = "bench"
_POLLS = 0.00005
_PATIENCE = 30.0

Wait = Callable[[], float]
"""Waits for what comes next; the moment at which it came."""


class Teller(Engine):
    """One client, which writes an artifact or holds it.

    Without a bus it has the one that goes with its store.
    """

    def __init__(
        self, store: Store, bus: Bus | None = None, *, driver: str = "", owns: bool = True
    ) -> None:
        super().__init__()
        self._store, self.bus, self._owns = store, bus, owns
        self.driver = driver
        """Where the bus's own driver can be asked to carry a message, if anywhere."""
        self.core = CoherenceCore(store, bus=bus)
        self._heard: SimpleQueue[float] = SimpleQueue()

    def another(self) -> Teller:
        """One more client in this process."""
        return Teller(self._store, self.bus, owns=False)

    def commit(self, value: Any) -> None:
        self.core.write("writer", ARTIFACT, value)

    def read(self) -> Any:
        return self.core.read("holder", ARTIFACT).value

    def invalidated(self) -> float:
        """Wait until the holder's copy may not be served any more."""
        until = time.monotonic() + _PATIENCE
        while self.core.state("holder", ARTIFACT) is not State.INVALID:
            assert time.monotonic() < until, "a holder was never told"
            time.sleep(_POLLS)
        return time.monotonic()

    def send(self) -> float:
        """Send something over the bus alone, or through the log if there is none; when."""
        if self.bus is not None:
            began = time.monotonic()
            self.bus.publish(TOPIC, b"told")
            return began
        self.commit({"step": -1})
        return time.monotonic()

    def hear(self) -> Wait:
        """Hear what is sent from now on."""
        if self.bus is not None:
            self.bus.subscribe(TOPIC, lambda _: self._heard.put(time.monotonic()))
            return lambda: self._heard.get(timeout=_PATIENCE)
        changes = self.core.watch(timeout=_PATIENCE)

        def wait() -> float:
            next(changes)
            return time.monotonic()

        return wait

    def close(self) -> None:
        self.core.close()
        if self._owns:
            if self.bus is not None:
                self.bus.close()
            self._store.close()


def in_process(place: Place) -> Teller:
    """Clients of one process, on one store."""
    from ropewalk.coherence import InProcessBus

    return Teller(ropewalk.open("memory://"), InProcessBus())


def over_postgres(place: Place) -> Teller:
    """Store and bus in one database."""
    from ropewalk.coherence import PostgresBus

    return Teller(ropewalk.open(place.url), PostgresBus(place.url), driver=place.url)


def over_redis(place: Place) -> Teller:
    """Store and bus on one server."""
    from ropewalk.coherence import RedisBus

    return Teller(ropewalk.open(place.url), RedisBus(place.url), driver=place.url)


def over_nats(place: Place) -> Teller:
    """An embedded store, with NATS as the bus."""
    from ropewalk.coherence import NatsBus

    return Teller(ropewalk.open(str(place.folder / "store")), NatsBus(place.url), driver=place.url)


def over_log(place: Place) -> Teller:
    """An embedded store, whose log is followed."""
    return Teller(ropewalk.open(place.url))
