"""The interface for a key-value store that a user brings."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import Durability

if TYPE_CHECKING:
    from ropewalk.store.records.key_value_store import KeyValueStore

_publishing = freed_after_fork(threading.Lock())


class KVStore(ABC):
    """A key-value store of yours, on which Ropewalk builds a store.

    Subclass it, supply four methods, and hand it to `Versioned`; `as_store()` gives the store
    for everything else. What each method promises is what that store is built on, so run
    `ropewalk.testing.KVStoreContract` on your class.

    Keys are made of letters, digits and `/-._~%`, begin with `ropewalk/`, and have at most
    600 characters; upper and lower case differ. Values are bytes, rarely more than 16 MiB.
    Every method may be called from several threads at once. Raise what your driver raises
    when a server does not answer: it becomes `Unavailable`. Raise `StoreFull` when there is
    no room. There is no `__init__` that a subclass would have to call.
    """

    durability: Durability = "relaxed"
    """What a write that returned survives: set it in your class.

    `"full"`: the loss of power. `"relaxed"`: that may take the last moments, but never a
    write without also all that came after it. `"none"`: it ends with the process.
    """

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value of a key, whole, as it was last set; None if there is none.

        It sees every write that returned before it was called, whoever made it.
        """

    @abstractmethod
    def set(self, key: str, value: bytes) -> None:
        """Give a key a value, in the place of the one before, if any.

        When it returns, everybody sees the value. Nobody ever sees a part of it.
        """

    @abstractmethod
    def keys(self, prefix: str) -> Iterable[str]:
        """The keys that begin so, in any order.

        A key that is there from the beginning of the call to the end of the iteration is
        among them. One that comes or goes meanwhile may be. A key may be named twice.
        """

    @abstractmethod
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Give a key a value if it has the expected one now; whether it had.

        None stands for a key that is not there: `expected=None` makes a new one, and
        `value=None` removes it. Looking and writing are one step: of all who expect the same
        value at the same time, one gets True. Empty bytes are a value.
        """

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """The values of several keys, without those that are not there.

        Each is as `get` gives it; they need not be of one moment. Override it if the server
        can be asked for many at once.
        """
        found = {key: self.get(key) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys, in their order or in one step. Each is as with `set`.

        If it raises or is cut off, some may have been set: the first ones, because what
        comes first is what the others point to. Override it if the server can be told many
        at once.
        """
        for key, value in values.items():
            self.set(key, value)

    def compare_and_set_many(
        self, changes: Sequence[tuple[str, bytes | None, bytes | None]]
    ) -> Sequence[bool]:
        """Do `compare_and_set` for several keys; what each one said, in the same order.

        Each is a step on its own, and none is twice among them. Override it if the server
        can be asked for many at once.
        """
        return [self.compare_and_set(*change) for change in changes]

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections; called when the store on it is closed."""

    def as_store(self) -> KeyValueStore:
        """The store on this key-value store: the same one each time, until it is closed."""
        from ropewalk.store.records.key_value_store import KeyValueStore

        store: KeyValueStore | None = getattr(self, "_ropewalk_store", None)
        if store is not None and not store._closed:
            return store
        made = KeyValueStore(self)  # Not under the lock: the server may be slow.
        with _publishing:
            other: KeyValueStore | None = getattr(self, "_ropewalk_store", None)
            if other is not None and not other._closed:
                return other
            object.__setattr__(self, "_ropewalk_store", made)
            return made
