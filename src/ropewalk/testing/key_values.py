"""The contract suite for key-value stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, TypeAlias

import pytest

from ropewalk.store import KVStore
from ropewalk.testing.helpers import in_threads, noise

KVOpener: TypeAlias = Callable[[], KVStore]
"""Opens one more instance on the data of the running test."""

THREADS = 8
EACH = 25
KEY = "ropewalk/test/a"
OTHER = "ropewalk/test/b"
VALUES = [b"", b"\0", b"value", bytes(range(256)), b"\xff\xfe" * 10, b"None", noise(1_000_000)]
NAMES = [
    "ropewalk/header",
    "ropewalk/space/team/agent",
    "ropewalk/space/Team/agent",
    "ropewalk/space/K%C3%A4se%20%26%20Co/agent%2F1",
    "ropewalk/space/~a.b_c-d/-",
    "ropewalk/object/" + "0123456789abcdef" * 4,
    "ropewalk/" + "x" * 591,
]


class KVStoreContract:
    """What a `KVStore` promises, as tests.

    Subclass it in a test file and implement the fixture `open_kv`. When it passes, run
    `StoreContract` too, on `KeyValueStore(your_store, clock=clock)`.
    """

    several_handles: ClassVar[bool] = True
    """Whether two instances may be open on the same data at once."""

    @pytest.fixture
    def open_kv(self) -> KVOpener:
        """Implement this: a function that opens the running test's key-value store, empty at first.

        It may be called several times in one test: each call opens another instance on the same
        data.
        """
        raise NotImplementedError("a subclass of KVStoreContract gives the fixture open_kv")

    @pytest.fixture
    def opened(self, open_kv: KVOpener) -> Iterator[Callable[[], KVStore]]:
        """Opens instances, which are closed at the end of the test."""
        instances: list[KVStore] = []

        def open_one() -> KVStore:
            instances.append(open_kv())
            return instances[-1]

        yield open_one
        for instance in instances:
            instance.close()

    @pytest.fixture
    def kv(self, opened: Callable[[], KVStore]) -> KVStore:
        """The key-value store of the running test."""
        return opened()

    @pytest.fixture
    def second(self, kv: KVStore, opened: Callable[[], KVStore]) -> KVStore:
        """Another instance on the same data, where the engine allows two."""
        return opened() if self.several_handles else kv

    # Interface.

    def test_it_is_a_key_value_store_and_says_what_a_write_survives(self, kv: KVStore) -> None:
        assert isinstance(kv, KVStore)
        assert kv.durability in ("full", "relaxed", "none")

    # get and set.

    def test_a_key_that_was_never_set_has_no_value(self, kv: KVStore) -> None:
        assert kv.get(KEY) is None

    @pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{len(value)} bytes")
    def test_a_value_comes_back_as_the_same_bytes(self, kv: KVStore, value: bytes) -> None:
        kv.set(KEY, value)

        found = kv.get(KEY)

        assert type(found) is bytes
        assert found == value

    def test_a_value_takes_the_place_of_the_one_before(self, kv: KVStore) -> None:
        kv.set(KEY, b"a long first value")
        kv.set(KEY, b"short")
        kv.set(OTHER, b"other")

        assert (kv.get(KEY), kv.get(OTHER)) == (b"short", b"other")

    @pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:40])
    def test_a_key_of_any_allowed_spelling_is_a_key_of_its_own(
        self, kv: KVStore, name: str
    ) -> None:
        for number, key in enumerate(NAMES):
            kv.set(key, str(number).encode())

        assert kv.get(name) == str(NAMES.index(name)).encode()
        assert list(dict.fromkeys(kv.keys(name))) == [name]

    def test_another_instance_sees_a_write_at_once(self, kv: KVStore, second: KVStore) -> None:
        for number in range(20):
            kv.set(KEY, str(number).encode())
            assert second.get(KEY) == str(number).encode()
            assert second.compare_and_set(KEY, str(number).encode(), b"swapped")
            assert kv.get(KEY) == b"swapped"

    def test_nobody_sees_a_part_of_a_value(self, kv: KVStore, second: KVStore) -> None:
        values = [bytes([number]) * 50_000 for number in range(4)]
        kv.set(KEY, values[0])
        written: list[int] = []

        def work(number: int) -> None:
            if number < 2:
                for step in range(2 * EACH):
                    kv.set(KEY, values[(step + number) % 4])
                written.append(number)
            while len(written) < 2:
                assert second.get(KEY) in values

        in_threads(4, work)

    # keys.

    def test_keys_are_those_that_begin_so_and_no_others(self, kv: KVStore) -> None:
        for key in ("ropewalk/a/1", "ropewalk/a/2", "ropewalk/a", "ropewalk/ab/3", "ropewalk/b/1"):
            kv.set(key, b"")

        assert set(kv.keys("ropewalk/a/")) == {"ropewalk/a/1", "ropewalk/a/2"}
        assert set(kv.keys("ropewalk/c/")) == set()
        assert len(set(kv.keys("ropewalk/"))) == 5
        assert all(type(key) is str for key in kv.keys("ropewalk/"))

    def test_a_prefix_is_no_pattern(self, kv: KVStore) -> None:
        names = ["ropewalk/a.b/1", "ropewalk/axb/1", "ropewalk/a_b/1", "ropewalk/a%2Ab/1"]
        for key in names:
            kv.set(key, b"")

        for prefix in ("ropewalk/a.b/", "ropewalk/a_b/", "ropewalk/a%", "ropewalk/a%2Ab/"):
            assert set(kv.keys(prefix)) == {key for key in names if key.startswith(prefix)}

    def test_all_of_many_keys_are_named(self, kv: KVStore) -> None:
        names = {f"ropewalk/many/{number:05}" for number in range(3000)}
        kv.set_many(dict.fromkeys(names, b"x"))

        assert set(kv.keys("ropewalk/many/")) == names

    def test_keys_that_stay_are_named_while_others_come_and_go(
        self, kv: KVStore, second: KVStore
    ) -> None:
        staying = {f"ropewalk/stay/{number}" for number in range(300)}
        kv.set_many(dict.fromkeys(staying, b"x"))

        def work(number: int) -> None:
            for step in range(EACH):
                if number:
                    key = f"ropewalk/stay/{number} {step}".replace(" ", "-")
                    kv.set(key, b"y")
                    assert kv.compare_and_set(key, b"y", None)
                else:
                    assert staying <= set(second.keys("ropewalk/stay/"))

        in_threads(4, work)

    # compare_and_set.

    def test_a_key_is_made_only_if_it_is_not_there(self, kv: KVStore) -> None:
        assert kv.compare_and_set(KEY, None, b"first") is True
        assert kv.compare_and_set(KEY, None, b"second") is False

        assert kv.get(KEY) == b"first"

    def test_a_value_is_changed_only_if_it_is_the_expected_one(self, kv: KVStore) -> None:
        kv.set(KEY, b"before")

        assert kv.compare_and_set(KEY, b"other", b"after") is False
        assert kv.get(KEY) == b"before"
        assert kv.compare_and_set(KEY, b"before", b"after") is True
        assert kv.get(KEY) == b"after"
        assert kv.compare_and_set(OTHER, b"before", b"after") is False
        assert kv.get(OTHER) is None

    def test_a_key_is_removed_only_if_it_has_the_expected_value(self, kv: KVStore) -> None:
        kv.set(KEY, b"value")

        assert kv.compare_and_set(KEY, b"other", None) is False
        assert kv.get(KEY) == b"value"
        assert kv.compare_and_set(KEY, b"value", None) is True
        assert kv.get(KEY) is None
        assert list(kv.keys(KEY)) == []
        assert kv.compare_and_set(KEY, b"value", None) is False

    def test_empty_bytes_are_a_value_and_not_an_absent_key(self, kv: KVStore) -> None:
        assert kv.compare_and_set(KEY, b"", b"x") is False
        assert kv.compare_and_set(KEY, None, b"") is True
        assert kv.compare_and_set(KEY, None, b"x") is False
        assert kv.get(KEY) == b""
        assert kv.compare_and_set(KEY, b"", b"x") is True

    @pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{len(value)} bytes")
    def test_any_bytes_can_be_expected(self, kv: KVStore, value: bytes) -> None:
        kv.set(KEY, value)

        assert kv.compare_and_set(KEY, value + b"\0", b"wrong") is False
        assert kv.compare_and_set(KEY, value, value + b"!") is True
        assert kv.get(KEY) == value + b"!"

    def test_of_all_who_make_a_key_one_succeeds(self, kv: KVStore, second: KVStore) -> None:
        won: list[tuple[int, int]] = []

        def work(number: int) -> None:
            instance = (kv, second)[number % 2]
            for step in range(EACH):
                key, value = f"ropewalk/race/{step}", str(number).encode()
                if instance.compare_and_set(key, None, value):
                    won.append((step, number))

        in_threads(THREADS, work)

        assert sorted(step for step, _ in won) == list(range(EACH))
        for step, number in won:
            assert kv.get(f"ropewalk/race/{step}") == str(number).encode()

    def test_no_change_is_lost_among_many_threads(self, kv: KVStore, second: KVStore) -> None:
        kv.set(KEY, b"0")

        def work(number: int) -> None:
            instance = (kv, second)[number % 2]
            for _ in range(EACH):
                while True:
                    before = instance.get(KEY)
                    assert before is not None
                    if instance.compare_and_set(KEY, before, str(int(before) + 1).encode()):
                        break

        in_threads(THREADS, work)

        assert kv.get(KEY) == str(THREADS * EACH).encode()

    def test_a_set_between_looking_and_writing_is_never_overwritten(
        self, kv: KVStore, second: KVStore
    ) -> None:
        def work(number: int) -> None:
            for step in range(2 * EACH):
                key = f"ropewalk/between/{step}"
                if number:
                    second.set(key, b"set")
                else:
                    kv.compare_and_set(key, None, b"made")

        in_threads(2, work)

        # If the creation came first, the set followed it. If the set came first, there was no
        # creation.
        assert {kv.get(f"ropewalk/between/{step}") for step in range(2 * EACH)} == {b"set"}

    # Batches.

    def test_many_values_are_set_and_given_at_once(self, kv: KVStore, second: KVStore) -> None:
        values = {f"ropewalk/many/{number}": str(number).encode() for number in range(2500)}

        kv.set_many(values)

        asked = [*values, "ropewalk/absent"]
        assert dict(second.get_many(asked)) == values
        assert second.get("ropewalk/many/77") == b"77"

    def test_many_keys_are_compared_and_set_each_on_its_own(self, kv: KVStore) -> None:
        kv.set_many({f"ropewalk/many/{number}": b"before" for number in range(300)})
        expected = [b"before" if number % 3 else b"other" for number in range(300)]
        changes = [
            (f"ropewalk/many/{number}", expected[number], b"after" if number % 2 else None)
            for number in range(300)
        ]

        done = kv.compare_and_set_many([*changes, (KEY, None, b"made"), (OTHER, b"x", b"y")])

        assert list(done) == [*(bool(number % 3) for number in range(300)), True, False]
        assert (kv.get(KEY), kv.get(OTHER)) == (b"made", None)
        for number in range(300):
            after = b"after" if number % 2 else None
            assert kv.get(f"ropewalk/many/{number}") == (after if number % 3 else b"before")

    def test_nothing_is_asked_for_and_nothing_is_set(self, kv: KVStore) -> None:
        kv.set_many({})

        assert dict(kv.get_many([])) == {}
        assert list(kv.compare_and_set_many([])) == []

    # Lifecycle.

    def test_what_was_written_is_there_for_the_next_instance(
        self, kv: KVStore, opened: Callable[[], KVStore]
    ) -> None:
        if kv.durability == "none":
            pytest.skip("this key-value store keeps nothing")
        kv.set(KEY, b"kept")
        kv.close()

        assert opened().get(KEY) == b"kept"
