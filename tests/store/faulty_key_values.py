"""Key-value stores with one fault each, to see that the contract suite finds it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tests.store.key_values import DictKV, KeptKV


class LooksAndThenWrites(DictKV):
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        if self.data.get(key) != expected:
            return False
        time.sleep(0.0002)
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value
        return True


class AlwaysSwaps(DictKV):
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        return super().compare_and_set(key, self.data.get(key), value)


class SwapsAndSaysNo(DictKV):
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        super().compare_and_set(key, expected, value)
        return False


class GivesATruthyAnswer(DictKV):
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> Any:
        return 1 if super().compare_and_set(key, expected, value) else 0


class TakesEmptyForAbsent(DictKV):
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        here = self.data.get(key) or None
        return (
            super().compare_and_set(key, self.data.get(key), value) if here == expected else False
        )


class NeverRemoves(DictKV):
    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        return super().compare_and_set(key, expected, value or b"")


class KeepsTheFirstValue(DictKV):
    def set(self, key: str, value: bytes) -> None:
        self.data.setdefault(key, value)


class TakesPrefixesForPatterns(DictKV):
    def keys(self, prefix: str) -> Iterator[str]:
        pattern = prefix.replace("_", "?").replace("%", "*") + "*"  # As SQL's LIKE does.
        return (key for key in list(self.data) if fnmatchcase(key, pattern))


class NamesTheFirstThousand(DictKV):
    def keys(self, prefix: str) -> Iterator[str]:
        return iter(list(super().keys(prefix))[:1000])


class NamesAllKeys(DictKV):
    def keys(self, prefix: str) -> Iterator[str]:
        return super().keys("")


class IgnoresCase(DictKV):
    def get(self, key: str) -> bytes | None:
        return super().get(key.lower())

    def set(self, key: str, value: bytes) -> None:
        super().set(key.lower(), value)


class CutsLongKeys(DictKV):
    def get(self, key: str) -> bytes | None:
        return super().get(key[:255])

    def set(self, key: str, value: bytes) -> None:
        super().set(key[:255], value)


class GivesText(DictKV):
    def get(self, key: str) -> Any:
        value = super().get(key)
        return None if value is None else value.decode("latin-1")


class StopsAtZero(DictKV):
    def set(self, key: str, value: bytes) -> None:
        super().set(key, value.partition(b"\0")[0])


class RemembersWhatItRead(DictKV):
    def __init__(self, data: dict[str, bytes] | None = None) -> None:
        super().__init__(data)
        self._seen: dict[str, bytes | None] = {}

    def get(self, key: str) -> bytes | None:
        return self._seen.setdefault(key, super().get(key))

    def set(self, key: str, value: bytes) -> None:
        self._seen.pop(key, None)
        super().set(key, value)


class WritesInTwoSteps(DictKV):
    def set(self, key: str, value: bytes) -> None:
        self.data[key] = value[: len(value) // 2]
        time.sleep(0.0002)
        self.data[key] = value


class GivesNoneForTheAbsent(DictKV):
    def get_many(self, keys: Iterable[str]) -> Any:
        return {key: self.get(key) for key in keys}


class SetsOnlyAFew(DictKV):
    def set_many(self, values: Mapping[str, bytes]) -> None:
        super().set_many(dict(list(values.items())[:1000]))


class SwapsAllOrNone(DictKV):
    def compare_and_set_many(
        self, changes: Sequence[tuple[str, bytes | None, bytes | None]]
    ) -> list[bool]:
        if any(self.data.get(key) != expected for key, expected, _ in changes):
            return [False] * len(changes)
        return [self.compare_and_set(*change) for change in changes]


class SaysOnlyWhatWasSet(DictKV):
    def compare_and_set_many(
        self, changes: Sequence[tuple[str, bytes | None, bytes | None]]
    ) -> list[bool]:
        return [True for change in changes if self.compare_and_set(*change)]


class KeepsNothing(KeptKV):
    def close(self) -> None:
        self.data.clear()


class SaysNothingOfDurability(DictKV):
    durability: Any = None


FAULTY: list[type[DictKV]] = [
    found
    for found in list(globals().values())
    if isinstance(found, type) and issubclass(found, DictKV) and found not in (DictKV, KeptKV)
]
