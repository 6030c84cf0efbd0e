"""Objects come back exactly, or with a clear error."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ropewalk.errors import Corrupt, DamagedObject, InvalidInput, MissingObjects
from ropewalk.store import Move, Store
from ropewalk.store.engine import MAX_PAYLOAD
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, growing, noise, read, value
from ropewalk.tree import Kind, Object, make_object, object_id

SIZES = [0, 1, 23, 24, 63, 64, 127, 128, 4096, 70_000, 1_000_000]


class ObjectContract(Base):
    """Reading and writing objects."""

    @pytest.mark.parametrize("size", SIZES)
    def test_an_object_of_any_size_comes_back(self, store: Store, size: int) -> None:
        plain, random = value(b"ab" * (size // 2)), value(noise(size))

        store.commit(SPACE, [plain, random])

        assert read(store, [plain.id, random.id]) == [plain, random]

    @pytest.mark.parametrize("kind", list(Kind))
    def test_an_object_of_any_kind_comes_back(self, store: Store, kind: Kind) -> None:
        one = make_object(kind, b"the same bytes")

        store.commit(SPACE, [one])

        assert read(store, [one.id]) == [one]

    def test_objects_come_in_the_order_asked_for(self, store: Store) -> None:
        first, second = value("first"), value("second")
        store.commit(SPACE, [first, second])

        assert read(store, []) == []
        assert read(store, [second.id, first.id, second.id]) == [second, first, second]

    def test_many_objects_travel_at_once(self, store: Store) -> None:
        many = [value(f"object {number}") for number in range(2500)]
        ids = [one.id for one in many]
        store.commit(SPACE, many)

        assert read(store, ids) == many
        assert store.missing(ids, SPACE) == []
        store.commit(SPACE, [value("points to all of them")], needs=ids)

    def test_all_missing_objects_are_named(self, store: Store) -> None:
        here, gone, lost = value("here"), value("gone"), value("lost")
        store.commit(SPACE, [here])

        with pytest.raises(MissingObjects) as caught:
            read(store, [gone.id, here.id, lost.id])

        assert set(caught.value.ids) == {gone.id, lost.id}
        assert store.missing([gone.id, here.id, lost.id], SPACE) == [gone.id, lost.id]

    def test_an_object_can_be_written_again(self, store: Store, second: Store) -> None:
        one = value("the same")
        store.commit(SPACE, [one])
        store.commit(SPACE, [one, one])
        second.commit(SPACE, [one])

        assert read(second, [one.id]) == [one]
        assert [stored.id for stored in store.scan()].count(one.id) == 1

    def test_an_object_under_a_wrong_name_is_never_read(self, store: Store) -> None:
        wrong = Object(object_id(Kind.VALUE, b"one"), Kind.VALUE, b"two")

        with suppress(InvalidInput):  # An engine may also detect it at once.
            store.commit(SPACE, [wrong])

        with pytest.raises((DamagedObject, MissingObjects)):
            store.reader(SPACE)([wrong.id])

    def test_a_shared_object_is_read_and_needed_in_any_space(self, store: Store) -> None:
        one = value("one")
        store.commit(SPACE, [one], share=True)

        assert store.read([one.id]) == [one]
        assert store.missing([one.id]) == []
        assert store.missing([one.id], OTHER_SPACE) == []
        assert store.reader(OTHER_SPACE)([one.id]) == [one]
        store.commit(OTHER_SPACE, [value("two")], [one.id], [Move(MAIN, None, one.id)])

    def test_a_shared_object_can_be_shared_again(self, store: Store, second: Store) -> None:
        one = value(noise(70_000))
        store.commit(SPACE, [one], share=True)
        second.commit(OTHER_SPACE, [one], share=True)

        assert store.read([one.id]) == second.read([one.id]) == [one]

    def test_what_a_space_has_can_be_shared_later(self, store: Store) -> None:
        one = value("one")
        store.commit(SPACE, [one])
        store.commit(OTHER_SPACE, [one], share=True)

        assert store.read([one.id]) == store.reader(SPACE)([one.id]) == [one]

    @pytest.mark.parametrize("space", ["", "one", "test", "test/a/b", None])
    def test_a_reader_is_for_a_space(self, store: Store, space: str) -> None:
        with pytest.raises(InvalidInput):
            store.reader(space)

    def test_an_object_that_is_too_large_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="too large"):
            store.commit(SPACE, [value(bytes(MAX_PAYLOAD + 1))])

    @pytest.mark.parametrize("wrong", [b"", b"short", b"x" * 33, "x" * 32, None])
    def test_what_is_no_id_is_refused(self, store: Store, wrong: bytes) -> None:
        with pytest.raises(InvalidInput):
            read(store, [wrong])
        with pytest.raises(InvalidInput):
            store.read([wrong])
        with pytest.raises(InvalidInput):
            store.commit(SPACE, needs=[wrong])

    def test_versions_that_resemble_each_other_come_back(self, store: Store) -> None:
        versions = growing(40)
        for version in versions:
            store.commit(SPACE, [version])

        assert read(store, [one.id for one in versions]) == versions
        assert read(store, [versions[20].id]) == [versions[20]]

    def test_versions_in_one_commit_come_back(self, store: Store) -> None:
        forwards, backwards = growing(12, seed=1), growing(12, seed=2)

        store.commit(SPACE, [*forwards, *reversed(backwards)])

        written = [*forwards, *backwards]
        assert read(store, [one.id for one in written]) == written

    def test_a_damaged_object_is_never_read_as_something_else(self, store: Store) -> None:
        bad, good = value(noise(300, 1)), value(noise(300, 2))
        store.commit(SPACE, [bad])
        store.commit(OTHER_SPACE, [good])
        if not self.damage(store, bad.id):
            pytest.skip("this suite has no way to damage stored bytes")

        with pytest.raises(Corrupt):
            read(store, [bad.id])

        assert read(store, [good.id], OTHER_SPACE) == [good]

    def test_a_damaged_shared_object_is_named_and_takes_no_other(self, store: Store) -> None:
        bad, good = value(noise(300, 1)), value(noise(300, 2))
        store.commit(SPACE, [bad, good], share=True)
        if not self.damage(store, bad.id):
            pytest.skip("this suite has no way to damage stored bytes")

        with pytest.raises(DamagedObject) as caught:
            store.read([bad.id])

        assert caught.value.id == bad.id
        assert store.read([good.id]) == [good]

    def test_scan_tells_what_is_stored(self, store: Store) -> None:
        versions = growing(3)
        store.commit(SPACE, versions)

        found = {one.id: one for one in store.scan()}

        for version in versions:
            stored = found[version.id]
            assert stored.kind == version.kind
            assert stored.length == len(version.payload)
            assert stored.stored > 0
