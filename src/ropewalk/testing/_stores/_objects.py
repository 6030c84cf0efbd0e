"""Objects come back exactly or with a clear error, and names are told apart or refused."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ropewalk.errors import Corrupt, DamagedObject, InvalidInput, InvalidName, MissingObjects
from ropewalk.store import Move, Store, ref_name, space_name, split_name
from ropewalk.store.engine import MAX_NAME_BYTES, MAX_PAYLOAD
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


HOSTILE = [
    "", "/", "a", "a/", "/a", "//", "a//b", "a/b/c", "../a", "a/..", "./a", "a/.", "a/b\x00",
    "a/b\n", "a b/c", "a/b;drop", "a/é", "a/%", "a/%2", "a/%zz", "a/%2f", "a/%41", "a/%00",
    "a/%FF", "a/%ED%A0%80", "a/*", "a/\\", "C:/a", "a/" + "x" * MAX_NAME_BYTES, None, b"a/b",
]  # fmt: skip

ODD = [
    "a b", "%", "_", "*", "?", "..a", "a..", "con", "nul", "aux.txt", "-rf", "~", "'; drop --",
    '"', "grüße", "🌍", "e\u0301", "\u00e9", "A", "a", "a.", "a ", "\u202eright", "{tag}", ":",
    "feature/x", "../../etc/passwd", "x" * 400,
]  # fmt: skip


class NameContract(Base):
    """Spaces, refs and leases with unusual names."""

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_hostile_name_is_refused(self, store: Store, name: str) -> None:
        one = value("one")

        with pytest.raises(InvalidName):
            store.commit(name, [one])
        with pytest.raises(InvalidName):
            store.commit(SPACE, [one], moves=[Move(name, None, one.id)])
        with pytest.raises(InvalidName):
            store.acquire(SPACE, name, "me", 1.0)
        with pytest.raises(InvalidName):
            store.ref(SPACE, name)
        with pytest.raises(InvalidName):
            store.view(name)
        assert store.spaces() == []

    def test_odd_names_are_told_apart(self, store: Store) -> None:
        names = [ref_name("odd", text) for text in ODD]
        objects = [value(name) for name in names]
        moves = [Move(name, None, one.id) for name, one in zip(names, objects, strict=True)]

        store.commit(SPACE, objects, moves=moves)

        found = {ref.name: ref.target for ref in store.refs(SPACE)}
        assert found == {move.name: move.target for move in moves}
        assert sorted(split_name(name)[1] for name in found) == sorted(ODD)
        for move in moves:
            ref = store.ref(SPACE, move.name)
            assert ref is not None and ref.target == move.target

    def test_odd_spaces_are_told_apart(self, store: Store) -> None:
        spaces = [space_name("odd", text) for text in ODD]
        for number, space in enumerate(spaces):
            store.commit(space, operation={"number": number})

        assert store.spaces() == sorted(spaces)
        for number, space in enumerate(spaces):
            assert store.operations(space)[0].metadata == {"number": number}

    def test_the_longest_name_fits(self, store: Store) -> None:
        room = MAX_NAME_BYTES - len(SPACE) - len("/kind/")
        one, name = value("one"), "kind/" + "n" * room

        store.commit(SPACE, [one], moves=[Move(name, None, one.id)])

        assert [ref.name for ref in store.refs(SPACE)] == [name]
        with pytest.raises(InvalidName):
            store.ref(SPACE, name + "n")

    def test_a_prefix_is_meant_as_it_is_written(self, store: Store) -> None:
        one = value("one")
        texts = ["a_b", "axb", "a%b", "a%25b", "A_b", "a", "b"]
        moves = [Move(ref_name("tag", text), None, one.id) for text in texts]
        store.commit(SPACE, [one], moves=[*moves, Move(MAIN, None, one.id)])

        def below(prefix: str) -> list[str]:
            return [split_name(ref.name)[1] for ref in store.refs(SPACE, prefix)]

        assert below("tag/a_") == ["a_b"]
        assert below("tag/a%25") == ["a%25b", "a%b"]
        assert below("tag/A") == ["A_b"]
        assert below("branch/") == ["main"]
        assert below("t") == ["A_b", "a", "a%25b", "a%b", "a_b", "axb", "b"]
        assert below("tag/z") == []
        assert [ref.name for ref in store.refs(SPACE)] == sorted(
            [MAIN, *(move.name for move in moves)]
        )

    @pytest.mark.parametrize("prefix", ["*", "a b", "é", "\x00", None])
    def test_a_prefix_that_no_name_has_is_refused(self, store: Store, prefix: str) -> None:
        with pytest.raises(InvalidName):
            store.refs(SPACE, prefix)
        with pytest.raises(InvalidName):
            store.spaces(prefix)
