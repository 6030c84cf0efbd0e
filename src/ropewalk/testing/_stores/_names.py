"""Names: invalid ones are refused, all others are distinct."""

from __future__ import annotations

import pytest

from ropewalk.errors import InvalidName
from ropewalk.store import Move, Store, ref_name, space_name, split_name
from ropewalk.store.engine import MAX_NAME_BYTES
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import MAIN, SPACE, value

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
