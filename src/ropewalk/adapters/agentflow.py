"""The checkpointer for agentflow (10xscale-agentflow), which was pyagenity before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from ropewalk.adapters.conversations import Config, Models, SharedCheckpointer, declare
from ropewalk.codec import Codec
from ropewalk.history import MAIN, History
from ropewalk.store import Store, space_name, split_name
from ropewalk.store.asynchronous import twin
from ropewalk.threads.address import Address, address_of, id_of, name_of
from ropewalk.tree import Edited, Map, ObjectId, Reader
from ropewalk.tree.map import CachedMap, CacheEntry, MapWriter

try:
    from agentflow.core.state import AgentState
    from agentflow.core.state.execution_state import StopRequestStatus
    from agentflow.storage.checkpointer.base_checkpointer import (
        STOP_REQUEST_NAMESPACE,
        BaseCheckpointer,
    )
    from agentflow.utils.constants import DEFAULT_ANONYMOUS_USER_ID
    from agentflow.utils.interrupt import Interrupt
    from agentflow.utils.thread_info import ThreadInfo
except (ImportError, SyntaxError) as error:
    raise ImportError(
        "ropewalk.adapters.agentflow needs 10xscale-agentflow 0.10 and Python 3.12 or newer: "
        "pip install 'ropewalk[agentflow]'"
    ) from error

__all__ = ["RopewalkCheckpointer"]

StateT = TypeVar("StateT", bound=AgentState)


class RopewalkCheckpointer(SharedCheckpointer, BaseCheckpointer[StateT]):
    """Keeps the states and conversations of agentflow's graphs in a store.

    Pass it to `compile(checkpointer=...)`: it learns the class of the state there, and what
    its fields name. `types` are further classes that a state or a message may hold. Without
    a store it is in memory. `threads` is the `ThreadCheckpointer` behind it.

    `thread_id` in the config names the thread and `user_id` whose it is. No user sees the
    threads of another.
    """

    models = Models(AgentState, ThreadInfo, nobody=DEFAULT_ANONYMOUS_USER_ID, others=(Interrupt,))

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._ledger = Ledger(self.threads.store, self._codec)

    def bind_state_type(self, state_type: type[StateT]) -> None:
        """Learn the class of a graph's state. `compile` calls this."""
        super().bind_state_type(state_type)
        declare(self._codec, [state_type])

    # State and messages in one step.

    def put_checkpoint(
        self,
        config: Config,
        state: StateT,
        messages: Sequence[Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> StateT:
        """Put a state and messages: both or neither. Gives the state back."""
        ours = [self.models.to_ours(one) for one in messages or ()]
        self.threads.put(self._config(config), state, ours, metadata=metadata)
        return state

    # Small values for a time, which may be lost. Requests to stop are among them.

    def put_cache_value(
        self, namespace: str, key: str, value: Any, ttl_seconds: float | None = None
    ) -> Any:
        """Keep a value at hand, for so many seconds; gives it back."""
        scratch = self.threads.store.scratch()
        scratch.put(_key(namespace, key), self._codec.encode(value), ttl_seconds or None)
        return value

    def get_cache_value(self, namespace: str, key: str) -> Any:
        """The value that was kept; None if it vanished or its time is over."""
        found = self.threads.store.scratch().get(_key(namespace, key))
        return None if found is None else self._codec.decode(found)

    def clear_cache_value(self, namespace: str, key: str) -> None:
        """Forget a value."""
        self.threads.store.scratch().remove(_key(namespace, key))

    def list_cache_keys(self, namespace: str, prefix: str | None = None) -> list[str]:
        """The keys of a namespace that begin so."""
        start = _key(namespace, "")
        found = self.threads.store.scratch().keys(start + (prefix or ""))
        return [key.removeprefix(start) for key in found]

    def _stop_request_key(self, config: Config) -> str:
        # Only one thread of one user has this name.
        return address_of(self._config(config)).space

    def clear_stop_request(self, config: Config) -> None:
        """Take a request to stop back, also where the engine wrote it into the state.

        The engine does this when a run begins. It then reads the state again and again, and
        would stop at once if that still asked for it.
        """
        self.clear_cache_value(STOP_REQUEST_NAMESPACE, self._stop_request_key(config))
        state = self.get_state_cache(config) or self.get_state(config)
        if state is not None and state.is_stopped_requested():
            state.execution_meta.stop_current_execution = StopRequestStatus.NONE
            self.put_state_cache(config, state)

    # What tools gave.

    def get_tool_result(self, config: Config, tool_call_id: str) -> Any:
        """What a call gave; None if it is not known to have been done."""
        return self._ledger.get(address_of(self._config(config)), tool_call_id)

    def put_tool_result(self, config: Config, tool_call_id: str, result: Any) -> bool:
        """Keep what a call gave, as durable as a state, so that it is not made again."""
        self._ledger.put(address_of(self._config(config)), tool_call_id, result)
        return True

    def clean_thread(self, config: Config) -> bool:
        """Empty a thread: state, cache, messages, record, and what tools gave in it."""
        self._ledger.clear(address_of(self._config(config)))
        return super().clean_thread(config)

    # Whose a thread is.

    def get_thread_owner(self, thread_id: str | int) -> str | int | None:
        """The user of the thread with this id; None if there is no such thread.

        Looks at the names of all threads. Raises `NotImplementedError` if several users
        have a thread with this id, because then it has no one owner.
        """
        name = name_of(thread_id)
        tenants = [split_name(space) for space in self.threads.store.spaces("threads")]
        owners = [tenant for tenant, thread in tenants if thread == name and _is_users(tenant)]
        owners = [one for one in owners if self._has_thread(one, thread_id)]
        if len(owners) > 1:
            raise NotImplementedError(
                f"{len(owners)} users have a thread {thread_id!r:.80}, each their own"
            )
        return _user(owners[0], self.models.nobody) if owners else None

    def _has_thread(self, tenant: str, thread_id: str | int) -> bool:
        user = _user(tenant, self.models.nobody)
        return self.get_thread({"thread_id": thread_id, "user_id": user}) is not None

    aput_checkpoint = twin(put_checkpoint)
    aput_cache_value = twin(put_cache_value)
    aget_cache_value = twin(get_cache_value)
    aclear_cache_value = twin(clear_cache_value)
    alist_cache_keys = twin(list_cache_keys)
    aclear_stop_request = twin(clear_stop_request)
    aget_tool_result = twin(get_tool_result)
    aput_tool_result = twin(put_tool_result)
    aget_thread_owner = twin(get_thread_owner)


def _key(namespace: str, key: str) -> str:
    # A namespace holds no slash here, so no two pairs have one name.
    return f"values/{namespace.replace('%', '%25').replace('/', '%2F')}/{key}"


def _is_users(tenant: str) -> bool:
    return tenant == "threads" or tenant.startswith("threads:")


def _user(tenant: str, nobody: str) -> str | int:
    return id_of(tenant.removeprefix("threads:")) if ":" in tenant else nobody


# Which calls of tools were done, and what they gave: one space for each thread.
#
# Each record is a commit of its own, made before the run goes on. It stands beside the
# thread and not in it, so that neither a state nor the history of one is moved by a tool.


_TENANT: Final = "tools"


class Ledger:
    """The results of tools in a store."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store, self._codec = store, codec

    def get(self, address: Address, call_id: str) -> Any:
        """What a call gave; None if it is not known to have been done."""
        found = self._results(address)
        return None if found is None else found.get(call_id)

    def put(self, address: Address, call_id: str, result: Any) -> None:
        """Keep what a call gave."""

        def edit(root: ObjectId | None, read: Reader) -> Edited:
            if root is not None:
                return Map(root, read, self._codec).edit({call_id: result})
            shelf = CachedMap()
            shelf.entries[self._codec.encode(call_id)] = CacheEntry(call_id, result)
            return MapWriter(self._codec, read).write(None, shelf).edited

        branch = self._history(address).open(MAIN)
        branch.update(edit, logic_step="tool", description=f"the result of {call_id!r:.80}")

    def clear(self, address: Address) -> None:
        """Forget what calls gave in a thread. It stays in the history."""
        found = self._results(address)
        if found:
            self._history(address).open(MAIN).update(
                lambda root, read: Map.empty(), logic_step="clean", description="no results"
            )

    def _results(self, address: Address) -> Map | None:
        history = self._history(address)
        head = history.open(MAIN).head
        return None if head is None else Map(head.root, history.read, self._codec)

    def _history(self, address: Address) -> History:
        # Users have tenants of their own here, too: `tools:alice` beside `threads:alice`.
        _, mark, user = address.tenant.partition(":")
        space = space_name(f"{_TENANT}{mark}{user}", address.name)
        return History(self._store, space, codec=self._codec, agent=address.name)
