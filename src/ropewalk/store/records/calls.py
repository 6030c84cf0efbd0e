"""Calling a key-value store that somebody else wrote.

What it gives is checked, and what it raises becomes Ropewalk's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ropewalk.errors import InvalidInput, RopewalkError, StoreClosed, Unavailable
from ropewalk.store.records.key_value import KVStore

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
