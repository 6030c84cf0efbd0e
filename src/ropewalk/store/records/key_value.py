"""The interface of a user's key-value store, and the store built on it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeAlias, Unpack

from ropewalk.errors import InvalidInput, RopewalkError, StoreClosed, Unavailable
from ropewalk.store.contract import StoreOptions
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import Capabilities, Durability
from ropewalk.store.records.cells import HEADER, ROOT, damaged
from ropewalk.store.records.store import CellStore
from ropewalk.store.validation import expect

_publishing = freed_after_fork(threading.Lock())


class KVStore(ABC):
    """A key-value store of yours, on which Ropewalk builds a store.

    Subclass it, implement four methods, and pass it to whatever takes a store; `as_store()` returns
    the store built on it. That store relies on what each method promises, so run
    `ropewalk.testing.KVStoreContract` on your class.

    Keys consist of letters, digits and `/-._~%`, begin with `ropewalk/`, and have at most 600
    characters; they are case-sensitive. Values are bytes, rarely more than 16 MiB. Every method
    may be called from several threads at once. Raise your driver's errors when a server does not
    answer: they become `Unavailable`. Raise `StoreFull` when there is no room. There is no
    `__init__` that a subclass would have to call.
    """

    durability: Durability = "relaxed"
    """What a write that returned survives: set it in your class.

    `"full"`: a power loss. `"relaxed"`: a power loss may undo the last moments, but never a write
    without also all later ones. `"none"`: it ends with the process.
    """

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value of a key, whole, as last set; None if the key is absent.

        It sees every write that returned before it was called, from any client.
        """

    @abstractmethod
    def set(self, key: str, value: bytes) -> None:
        """Set the value of a key, replacing any previous one.

        When it returns, every client sees the value. No client ever sees a part of it.
        """

    @abstractmethod
    def keys(self, prefix: str) -> Iterable[str]:
        """The keys with a prefix, in any order.

        A key that exists from the beginning of the call to the end of the iteration is included.
        One that is added or removed in between may be. A key may be returned twice.
        """

    @abstractmethod
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Set a key if it has the expected value now; returns whether it had.

        None stands for an absent key: `expected=None` creates a key, and `value=None` removes it.
        Comparing and writing are one atomic step: of all callers that expect the same value at the
        same time, one gets True. Empty bytes are a value.
        """

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """The values of several keys, without missing ones.

        Each is as from `get`; they need not be one snapshot. Override it if the server supports
        batch reads.
        """
        found = {key: self.get(key) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys, in order or in one step. Each is as with `set`.

        If it raises or is interrupted, some may have been set: the first ones, because later ones
        refer to them. Override it if the server supports batch writes.
        """
        for key, value in values.items():
            self.set(key, value)

    def compare_and_set_many(
        self, changes: Sequence[tuple[str, bytes | None, bytes | None]]
    ) -> Sequence[bool]:
        """Call `compare_and_set` for several distinct keys; returns the results in the same order.

        Each is independent of the others. Override it if the server supports batches.
        """
        return [self.compare_and_set(*change) for change in changes]

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Release connections; called when the store on it is closed."""

    def as_store(self) -> KeyValueStore:
        """The store on this key-value store: the same one until it is closed."""
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


Swap: TypeAlias = tuple[str, bytes | None, bytes | None]
"""A key, the expected value, and the new value."""

_KEYS_AT_A_TIME = 256
_BYTES_AT_A_TIME = 4 * 1024 * 1024

# A bug in the class is not an unreachable server.
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)


class Calls:
    """How the store calls the methods of a `KVStore`."""

    def __init__(self, kv: KVStore) -> None:
        self._kv = kv
        self._name = type(kv).__name__
        self._closing = False

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        with self._answering("get"):
            value = self._kv.get(key)
        return None if value is None else self._expect_bytes("get", key, value)

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without missing ones."""
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), _KEYS_AT_A_TIME):
            some = dict.fromkeys(keys[start : start + _KEYS_AT_A_TIME])
            with self._answering("get_many"):
                values = self._kv.get_many(list(some))
            if not isinstance(values, Mapping):
                raise self._wrong("get_many", "a dict", values)
            for key, value in values.items():
                if key not in some:
                    raise self._wrong("get_many", "only what was asked for", key)
                # None is not allowed here, but its meaning is clear.
                if value is not None:
                    found[key] = self._expect_bytes("get_many", key, value)
        return found

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys, in batches of limited size."""
        some: dict[str, bytes] = {}
        held = 0
        for key, value in values.items():
            if some and (len(some) >= _KEYS_AT_A_TIME or held + len(value) > _BYTES_AT_A_TIME):
                self._set_some(some)
                some, held = {}, 0
            some[key] = value
            held += len(value)
        if some:
            self._set_some(some)

    def _set_some(self, values: dict[str, bytes]) -> None:
        with self._answering("set_many"):
            self._kv.set_many(values)

    def pieces(self, key: str, places: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Ranges of a value, by offset and length; None if it is absent."""
        value = self.get(key)
        if value is None:
            return None
        return [value[start : start + length] for start, length in places]

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys; missing ones are ignored."""
        self.swap_many([(key, value, None) for key, value in self.get_many(keys).items()])

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix, each once."""
        with self._answering("keys"):
            found = list(dict.fromkeys(self._kv.keys(prefix)))
        for key in found:
            if not isinstance(key, str) or not key.startswith(prefix):
                raise self._wrong("keys", f"texts that begin with {prefix!r}", key)
        return found

    def swap(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Compare and set."""
        with self._answering("compare_and_set"):
            done = self._kv.compare_and_set(key, expected, value)
        if not isinstance(done, bool):
            raise self._wrong("compare_and_set", "True or False", done)
        return done

    def swap_many(self, swaps: Sequence[Swap]) -> list[bool]:
        """Compare and set several keys independently; returns the results."""
        done: list[bool] = []
        for start in range(0, len(swaps), _KEYS_AT_A_TIME):
            some = swaps[start : start + _KEYS_AT_A_TIME]
            with self._answering("compare_and_set_many"):
                answers = list(self._kv.compare_and_set_many(some))
            if len(answers) != len(some) or not all(isinstance(one, bool) for one in answers):
                raise self._wrong("compare_and_set_many", "True or False for each", answers)
            done += answers
        return done

    def close(self) -> None:
        """Close the `KVStore`. Calls in progress in other threads may raise `StoreClosed`."""
        with self._answering("close"):
            self._closing = True
            self._kv.close()

    @contextmanager
    def _answering(self, method: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._closing and method != "close":
                raise StoreClosed(f"the store on {self._name} was closed") from error
            if isinstance(error, (RopewalkError, *_MISTAKES)):
                raise
            raise Unavailable(
                f"{self._name}.{method} failed: {type(error).__name__}: {error}. If this was a "
                "commit, it may have happened: send it again with the same write id."
            ) from error

    def _expect_bytes(self, method: str, key: str, value: object) -> bytes:
        if not isinstance(value, bytes):
            raise self._wrong(method, f"bytes for {key!r}", value)
        return value

    def _wrong(self, method: str, expected: str, given: object) -> InvalidInput:
        return InvalidInput(
            f"{self._name}.{method} must give {expected}, and gave {given!r:.80}. Correct the "
            "class, and run ropewalk.testing.KVStoreContract on it."
        )


class KeyValueStore(CellStore):
    """A store on a `KVStore`, for as many processes as that one serves.

    It keeps everything under keys that begin with `ropewalk/`, and is as durable as the
    `KVStore`'s `durability` says. Each change of a space is one compare-and-set. A commit that
    lost against other writers for 30 seconds raises `Unavailable`. Closing it closes the
    `KVStore`. `KVStore.as_store()` creates one with the defaults.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.05
    _pack_bytes: ClassVar[int] = 256 * 1024

    def __init__(self, kv: KVStore, **options: Unpack[StoreOptions]) -> None:
        expect(isinstance(kv, KVStore), "a KeyValueStore is made on a KVStore", kv)
        if options.get("size_limit") is not None:
            raise InvalidInput("a store on a KVStore has no size_limit: that one says StoreFull")
        options.setdefault("backend_id", "key-value")
        super().__init__(**options)
        self.kv = kv
        self._durability = _durability_of(kv)
        kept = self._durability != "none"
        self.capabilities = Capabilities(kept, kept, False)  # type: ignore[misc]
        self._calls = Calls(kv)
        self._use(self._calls, self._calls)
        header = self._opened_header()
        if header is None:
            self._create(self._calls.keys(ROOT))
            header = self._opened_header()
        if header is None:
            raise damaged(HEADER)
        self._header = header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives, as the `KVStore` declares."""
        return self._durability

    def _shown(self) -> str:
        return f"this {type(self.kv).__name__}"

    def _close(self) -> None:
        self._close_packer()
        self._calls.close()


def _durability_of(kv: KVStore) -> Durability:
    durability = kv.durability
    known = durability in ("full", "relaxed", "none")
    expect(known, f"{type(kv).__name__}.durability is 'full', 'relaxed' or 'none'", durability)
    return durability
