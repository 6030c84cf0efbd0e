"""The checkpointer for agentflow (10xscale-agentflow), the successor of pyagenity."""

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
    """Stores the states and conversations of agentflow's graphs.

    Pass it to `compile(checkpointer=...)`, which tells it the class of the state and thus the
    classes of its fields. `types` are further classes that a state or a message may contain.
    Without a store it is in memory. `threads` is the underlying `ThreadCheckpointer`.

    `thread_id` in the config names the thread, and `user_id` its owner. Users never see each
    other's threads.
    """

    models = Models(AgentState, ThreadInfo, nobody=DEFAULT_ANONYMOUS_USER_ID, others=(Interrupt,))

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._ledger = Ledger(self.threads.store, self._codec)

    def bind_state_type(self, state_type: type[StateT]) -> None:
        """Register the class of a graph's state. Called by `compile`."""
        super().bind_state_type(state_type)
        declare(self._codec, [state_type])

    # State and messages in one commit.

    def put_checkpoint(
        self,
        config: Config,
        state: StateT,
        messages: Sequence[Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> StateT:
        """Store a state and messages: both or neither. Returns the state."""
        ours = [self.models.to_ours(one) for one in messages or ()]
        self.threads.put(self._config(config), state, ours, metadata=metadata)
        return state

    # A cache of small values, for example stop requests. Entries may be lost.

    def put_cache_value(
        self, namespace: str, key: str, value: Any, ttl_seconds: float | None = None
    ) -> Any:
        """Cache a value for a number of seconds; returns it."""
        scratch = self.threads.store.scratch()
        scratch.put(_key(namespace, key), self._codec.encode(value), ttl_seconds or None)
        return value

    def get_cache_value(self, namespace: str, key: str) -> Any:
        """The cached value; None if it was evicted or has expired."""
        found = self.threads.store.scratch().get(_key(namespace, key))
        return None if found is None else self._codec.decode(found)

    def clear_cache_value(self, namespace: str, key: str) -> None:
        """Remove a cached value."""
        self.threads.store.scratch().remove(_key(namespace, key))

    def list_cache_keys(self, namespace: str, prefix: str | None = None) -> list[str]:
        """The keys of a cache namespace with a prefix."""
        start = _key(namespace, "")
        found = self.threads.store.scratch().keys(start + (prefix or ""))
        return [key.removeprefix(start) for key in found]

    def _stop_request_key(self, config: Config) -> str:
        # Only one thread of one user has this name.
        return address_of(self._config(config)).space

    def clear_stop_request(self, config: Config) -> None:
        """Cancel a stop request, also where the engine copied it into the state.

        The engine calls this when a run begins. It then reads the state repeatedly, and would stop
        at once if the state still contained the request.
        """
        self.clear_cache_value(STOP_REQUEST_NAMESPACE, self._stop_request_key(config))
        state = self.get_state_cache(config) or self.get_state(config)
        if state is not None and state.is_stopped_requested():
            state.execution_meta.stop_current_execution = StopRequestStatus.NONE
            self.put_state_cache(config, state)

    # Tool results.

    def get_tool_result(self, config: Config, tool_call_id: str) -> Any:
        """The stored result of a tool call; None if the call is not known to be done."""
        return self._ledger.get(address_of(self._config(config)), tool_call_id)

    def put_tool_result(self, config: Config, tool_call_id: str, result: Any) -> bool:
        """Store the result of a tool call durably, like a state, so that it is not repeated."""
        self._ledger.put(address_of(self._config(config)), tool_call_id, result)
        return True

    def clean_thread(self, config: Config) -> bool:
        """Empty a thread: state, cache, messages, record and tool results."""
        self._ledger.clear(address_of(self._config(config)))
        return super().clean_thread(config)

    # Ownership of threads.

    def get_thread_owner(self, thread_id: str | int) -> str | int | None:
        """The user of the thread with this id; None if there is no such thread.

        Scans the names of all threads. Raises `NotImplementedError` if several users have a thread
        with this id, because it then has no single owner.
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
    # Namespaces contain no slash here, so the combined name is unambiguous.
    return f"values/{namespace.replace('%', '%25').replace('/', '%2F')}/{key}"


def _is_users(tenant: str) -> bool:
    return tenant == "threads" or tenant.startswith("threads:")


def _user(tenant: str, nobody: str) -> str | int:
    return id_of(tenant.removeprefix("threads:")) if ":" in tenant else nobody


# Results of finished tool calls: one space per thread.  Each record is a commit of its own, made
# before the run continues. It is stored beside the thread, so that a tool changes neither the
# state nor its history.


_TENANT: Final = "tools"


class Ledger:
    """Tool results in a store."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store, self._codec = store, codec

    def get(self, address: Address, call_id: str) -> Any:
        """The stored result of a call; None if the call is not known to be done."""
        found = self._results(address)
        return None if found is None else found.get(call_id)

    def put(self, address: Address, call_id: str, result: Any) -> None:
        """Store the result of a call."""

        def edit(root: ObjectId | None, read: Reader) -> Edited:
            if root is not None:
                return Map(root, read, self._codec).edit({call_id: result})
            shelf = CachedMap()
            shelf.entries[self._codec.encode(call_id)] = CacheEntry(call_id, result)
            return MapWriter(self._codec, read).write(None, shelf).edited

        branch = self._history(address).open(MAIN)
        branch.update(edit, logic_step="tool", description=f"the result of {call_id!r:.80}")

    def clear(self, address: Address) -> None:
        """Remove the results of a thread. They stay in the history."""
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
        # Users have separate tenants here, too: `tools:alice` beside `threads:alice`.
        _, mark, user = address.tenant.partition(":")
        space = space_name(f"{_TENANT}{mark}{user}", address.name)
        return History(self._store, space, codec=self._codec, agent=address.name)
