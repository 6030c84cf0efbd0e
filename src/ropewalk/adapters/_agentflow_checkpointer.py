"""What the checkpointers for pyagenity and for its successor agentflow share.

The framework's objects on one side, `ThreadCheckpointer` on the other. Both frameworks call
the asynchronous methods; those are twins, so conversion too happens outside the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from ropewalk.adapters._agentflow_messages import Models
from ropewalk.adapters._agentflow_types import declare
from ropewalk.codec import Classes, Codec
from ropewalk.errors import UndeclaredClass
from ropewalk.store import Store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.threads import ThreadCheckpointer
from ropewalk.threads.checkpointer import DAY

if TYPE_CHECKING:
    from ropewalk.store import KVStore

Config = Mapping[str, Any]


@contextmanager
def _naming_the_state() -> Iterator[None]:
    """Say what to do where the class of a state was not named."""
    try:
        yield
    except UndeclaredClass as error:
        raise UndeclaredClass(
            error.name,
            f"{error}. If it belongs to the state of the graph, it is enough to name that: "
            "RopewalkCheckpointer(store, types=[MyState])",
        ) from None


class SharedCheckpointer:
    """All that the framework asks of a checkpointer, on a `ThreadCheckpointer`."""

    models: ClassVar[Models]

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        classes: Classes = "plain",
        cache_seconds: float | None = DAY,
    ) -> None:
        self._codec = Codec(pickle_key=pickle_key, classes=classes)
        self.models.declare(self._codec)
        declare(self._codec, types)
        self.threads: ThreadCheckpointer[Any] = ThreadCheckpointer(
            store, codec=self._codec, cache_seconds=cache_seconds
        )
        """The conversations themselves: filters, history, and `put` in one step."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.threads.store!r}>"

    @property
    def __orig_class__(self) -> Any:
        """The class as it was called, with the state that it is for, if that was said."""
        return self.__dict__.get("__orig_class__")

    @__orig_class__.setter
    def __orig_class__(self, called: Any) -> None:
        self.__dict__["__orig_class__"] = called
        declare(self._codec, [one for one in get_args(called) if isinstance(one, type)])

    @property
    def _threads(self) -> Threads:
        return self.threads.store._threads

    def _config(self, config: Config) -> dict[str, Any]:
        """Which thread is meant. Whom the framework puts in for nobody is nobody."""
        named = {
            name: config[name] for name in ("thread_id", "user_id", "branch") if name in config
        }
        if named.get("user_id") == self.models.nobody:
            del named["user_id"]
        return named

    # Life.

    def setup(self) -> None:
        """Make sure that the store answers. Nothing else has to be made."""
        self.threads.setup()

    def release(self) -> bool:
        """Close what this checkpointer opened: its store, unless that was handed over."""
        return self.threads.release()

    async def arelease(self) -> bool:
        """The asynchronous twin of `release`."""
        return await self.threads.arelease()

    # The state.

    def put_state(self, config: Config, state: Any) -> Any:
        """Make a state the newest of a thread; gives it back."""
        return self.threads.put_state(self._config(config), state)

    def get_state(self, config: Config) -> Any:
        """The newest state, the caller's own; None if there is none."""
        with _naming_the_state():
            return self.threads.get_state(self._config(config))

    def clear_state(self, config: Config) -> bool:
        """Take the state away, also from the cache."""
        return self.threads.clear_state(self._config(config))

    def put_state_cache(self, config: Config, state: Any) -> Any:
        """Keep a state at hand for a time; gives it back. It may be lost."""
        return self.threads.put_state_cache(self._config(config), state)

    def get_state_cache(self, config: Config) -> Any:
        """The state that was cached, unless its time is over or a newer one was put."""
        with _naming_the_state():
            return self.threads.get_state_cache(self._config(config))

    # Messages.

    def put_messages(
        self,
        config: Config,
        messages: Sequence[Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Append messages, all of them or none; one that is there already is not stored again."""
        ours = [self.models.to_ours(one) for one in messages]
        return self.threads.put_messages(self._config(config), ours, metadata)

    def get_message(self, config: Config, message_id: str | int | None = None) -> Any:
        """A message by its id, or the latest; raises `MessageNotFound`, an `IndexError`."""
        return self.models.to_theirs(self.threads.get_message(self._config(config), message_id))

    def list_messages(
        self,
        config: Config,
        search: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        """Messages in their order. `search` finds words that begin so, in what was said."""
        page = self.threads.list_messages(self._config(config), search, offset, limit)
        return [self.models.to_theirs(one) for one in page]

    def delete_message(self, config: Config, message_id: str | int) -> bool:
        """Take a message away; raises `MessageNotFound`, an `IndexError`."""
        return self.threads.delete_message(self._config(config), message_id)

    # The record of a thread.

    def put_thread(self, config: Config, thread_info: Any) -> bool:
        """Keep what is known about a thread."""
        named = self._config(config)
        return self.threads.put_thread(named, self.models.record_to_ours(thread_info, named))

    def get_thread(self, config: Config) -> Any:
        """What is known about a thread; None if there is no such thread."""
        found = self.threads.get_thread(self._config(config))
        return None if found is None else self.models.record_to_theirs(found)

    def list_threads(
        self,
        config: Config,
        search: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        """The threads of the user that the config names, the latest changed first."""
        page = self.threads.list_threads(self._config(config), search, offset, limit)
        return [self.models.record_to_theirs(one) for one in page]

    def clean_thread(self, config: Config) -> bool:
        """Empty a thread: state, cache, messages and record. False if there was nothing."""
        return self.threads.clean_thread(self._config(config))

    # The asynchronous face.

    asetup = twin(setup)
    aput_state = twin(put_state)
    aget_state = twin(get_state)
    aclear_state = twin(clear_state)
    aput_state_cache = twin(put_state_cache)
    aget_state_cache = twin(get_state_cache)
    aput_messages = twin(put_messages)
    aget_message = twin(get_message)
    alist_messages = twin(list_messages)
    adelete_message = twin(delete_message)
    aput_thread = twin(put_thread)
    aget_thread = twin(get_thread)
    alist_threads = twin(list_threads)
    aclean_thread = twin(clean_thread)
