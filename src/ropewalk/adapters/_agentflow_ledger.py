"""Which calls of tools were done, and what they gave: one space for each thread.

Each record is a commit of its own, made before the run goes on. It stands beside the
thread and not in it, so that neither a state nor the history of one is moved by a tool.
"""

from __future__ import annotations

from typing import Any, Final

from ropewalk.codec import Codec
from ropewalk.history import MAIN, History
from ropewalk.store import Store, space_name
from ropewalk.threads.address import Address
from ropewalk.tree import Edited, Map, ObjectId, Reader
from ropewalk.tree.map import CachedMap, CacheEntry, MapWriter

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
