"""A key-value store that a user brings, and the store on it."""

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

    Subclass it, supply four methods, and hand it to whatever takes a store; `as_store()` gives
    the store that is built on it. What each method promises is what that store is built on, so run
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
"""A key, the value that is expected, and the value that it gets."""

_KEYS_AT_A_TIME = 256
_BYTES_AT_A_TIME = 4 * 1024 * 1024

# A mistake in a program is not a server that does not answer.
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
    """The methods of a `KVStore`, as the store on it calls them."""

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
        """The values of several keys, without those that are absent."""
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
                # None is not asked for here, but it is clear what is meant.
                if value is not None:
                    found[key] = self._expect_bytes("get_many", key, value)
        return found

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys, not too many at once."""
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
        """Pieces of a value, by offset and length; None if there is none."""
        value = self.get(key)
        if value is None:
            return None
        return [value[start : start + length] for start, length in places]

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys; those that are not there are passed over."""
        self.swap_many([(key, value, None) for key, value in self.get_many(keys).items()])

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, each once."""
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
        """Compare and set several keys, each on its own; whether each was set."""
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
        """Let go. What is under way in other threads may end with `StoreClosed`."""
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

    It keeps what the `KVStore` keeps, under keys that begin with `ropewalk/`, and survives
    what that one's `durability` says. Each change of a space is one compare-and-set. A
    commit that lost against others for 30 seconds is `Unavailable`. Closing it closes the
    `KVStore`. `KVStore.as_store()` makes one with the defaults, once for each.
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
        """What an acknowledged commit survives, by the word of the `KVStore`."""
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
