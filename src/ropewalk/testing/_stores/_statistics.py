"""Statistics: the counts match the content."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ropewalk.errors import InvalidInput, MissingObjects
from ropewalk.store import KeyStats, Move, SpaceStats, Store
from ropewalk.testing._stores._base import Base
from ropewalk.testing._stores._care import drop, long, step
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, noise
from ropewalk.tree import Kind, Map, ObjectId, TreeWriter, links, make_commit, make_object

DOCUMENT = noise(60_000, 1)


def reach(store: Store, roots: Iterable[ObjectId], space: str = SPACE) -> set[ObjectId]:
    """Everything reachable from some objects, by reading one after the other."""
    found: set[ObjectId] = set()
    pending = list(roots)
    while pending:
        id = pending.pop()
        if id not in found:
            found.add(id)
            pending += links(store.reader(space)([id])[0])
    return found


def sizes(store: Store) -> dict[ObjectId, int]:
    return {one.id: one.stored for one in store.scan()}


def put(store: Store, state: object, space: str = SPACE, name: str = MAIN) -> ObjectId:
    """Make a ref point to a value directly."""
    written = TreeWriter().write(state)
    store.commit(space, written.objects, moves=[Move(name, None, written.root)])
    return written.root


def rows(space: SpaceStats) -> dict[tuple[str, str], int]:
    assert len({(row.kind, row.key) for row in space.keys}) == len(space.keys)
    assert sum(row.stored for row in space.keys) == space.stored
    return {(row.kind, row.key): row.stored for row in space.keys}


class StatisticsContract(Base):
    """`stats`."""

    def test_statistics_count_what_each_ref_and_space_reaches(self, store: Store) -> None:
        first = step(store, "main", {"text": DOCUMENT, "n": 1}, None)
        second = step(store, "main", {"text": DOCUMENT, "n": 2, "more": "x" * 9000}, first)
        store.commit(SPACE, moves=[Move("branch/other", None, first.id)])
        third = step(store, "other", long(2), first)
        root = put(store, {"text": DOCUMENT, "n": 3}, OTHER_SPACE)
        size = sizes(store)
        main, other = reach(store, [second.id]), reach(store, [third.id])
        beside = reach(store, [root], OTHER_SPACE)
        both = beside & (main | other)

        found = store.stats()

        def bytes_of(ids: set[ObjectId]) -> int:
            return sum(size[id] for id in ids)

        one, two = found.spaces
        assert (one.name, two.name) == (SPACE, OTHER_SPACE)
        assert [(ref.name, ref.stored, ref.alone, ref.commits) for ref in one.refs] == [
            (MAIN, bytes_of(main), bytes_of(main - other), 2),
            ("branch/other", bytes_of(other), bytes_of(other - main), 2),
        ]
        assert (one.stored, one.alone) == (bytes_of(main | other), bytes_of((main | other) - both))
        assert (two.stored, two.alone) == (bytes_of(beside), bytes_of(beside - both))
        assert (one.objects, one.commits, one.operations) == (len(main | other), 3, 4)
        assert found.reached == bytes_of(main | other | beside)
        assert found.shared == bytes_of(both) > 60_000
        assert (found.commits, found.operations) == (3, 5)

    def test_statistics_count_all_objects_and_what_a_collection_would_free(
        self, store: Store
    ) -> None:
        first = step(store, "main", long(1), None)
        step(store, "main", long(2), first)
        drop(store, "other", step(store, "other", long(3), None))
        every = list(store.scan())

        found = store.stats(recent=1)

        told = store.gc(recent=1, dry_run=True)
        assert (found.freed, found.freed_bytes) == (told.freed, told.freed_bytes)
        assert found.freed > 0 == store.stats().freed
        assert found.objects == len(every)
        assert found.stored == sum(one.stored for one in every)
        assert found.payload == sum(one.length for one in every)
        assert found.reached == found.stored - found.freed_bytes
        assert found.disk is None or found.disk >= found.stored

    def test_a_small_value_is_divided_by_the_length_of_its_parts(self, store: Store) -> None:
        put(store, {"a": "x" * 100, "b": "y" * 300})
        (stored,) = sizes(store).values()

        (space,) = store.stats().spaces

        # One byte of the key's head, one of the key, and one or three of the string's.
        a, b = 2 + 2 + 100, 2 + 3 + 300
        share = stored * a // (a + b)
        assert rows(space) == {("key", "a"): share, ("key", "b"): stored - share}

    def test_a_large_part_counts_for_its_key(self, store: Store) -> None:
        root = put(store, {"document": DOCUMENT, "count": 1})
        size = sizes(store)
        below = sum(size.values()) - size[root]

        (space,) = store.stats().spaces

        found = rows(space)
        assert found.keys() == {("key", "document"), ("key", "count")}
        assert below < found["key", "document"] < below + size[root]

    def test_all_versions_that_refs_reach_count(self, store: Store) -> None:
        first = step(store, "main", {"old": DOCUMENT}, None)
        step(store, "main", {"new": noise(50_000, 2)}, first)

        (space,) = store.stats().spaces

        found = rows(space)
        assert found["key", "old"] > 60_000 and found["key", "new"] > 50_000
        commits = [one for one in store.scan() if one.kind == Kind.COMMIT]
        assert found["commits", ""] == sum(one.stored for one in commits)

    def test_what_two_keys_share_is_counted_once(self, store: Store) -> None:
        root = put(store, {"one": [DOCUMENT], "two": [DOCUMENT, "more"]})
        size = sizes(store)

        (space,) = store.stats().spaces

        found = rows(space)
        assert found["several", ""] == sum(size.values()) - size[root]
        assert found["key", "one"] + found["key", "two"] == size[root]

    def test_metadata_and_events_have_rows_of_their_own(self, store: Store) -> None:
        parts = [TreeWriter().write(one) for one in ({"a": 1}, {"b": "m" * 99}, ["e"])]
        value, metadata, events = parts
        commit, made = make_commit(value.root, metadata=metadata.root, events=events.root)
        objects = [one for part in parts for one in part.objects]
        store.commit(SPACE, [*objects, made], moves=[Move(MAIN, None, commit.id)])
        size = sizes(store)

        (space,) = store.stats().spaces

        assert rows(space) == {
            ("key", "a"): size[value.root],
            ("metadata", ""): size[metadata.root],
            ("events", ""): size[events.root],
            ("commits", ""): size[commit.id],
        }

    def test_a_map_of_many_nodes_is_divided_by_key(self, store: Store) -> None:
        empty = Map.empty()
        store.commit(SPACE, empty.objects)
        state = {f"key {at:04}": noise(20, at).hex() for at in range(2000)}
        made = Map(empty.root, store.reader(SPACE)).edit({**state, "large": DOCUMENT, 7: "seven"})
        store.commit(SPACE, made.objects, made.needs, [Move(MAIN, None, made.root)])

        (space,) = store.stats().spaces

        found = rows(space)
        assert found.keys() == {("key", str(key)) for key in [*state, "large", 7]} | {
            ("structure", "")
        }
        assert found["key", "large"] > 60_000
        assert all(0 < found["key", key] < 200 for key in state)

    def test_a_value_without_keys_has_one_row(self, store: Store) -> None:
        put(store, [DOCUMENT, {"a": 1}])
        put(store, "text", OTHER_SPACE)
        chunk = make_object(Kind.CHUNK, b"bare")
        store.commit(OTHER_SPACE, [chunk], moves=[Move("tag/chunk", None, chunk.id)])

        for space in store.stats().spaces:
            assert space.keys == (KeyStats("value", "", space.stored),)

    def test_an_empty_store_has_nothing_to_count(self, store: Store) -> None:
        found = store.stats()

        assert (found.objects, found.stored, found.reached, found.spaces) == (0, 0, 0, ())

    def test_statistics_stop_where_they_cannot_see(self, store: Store) -> None:
        step(store, "main", {"text": DOCUMENT}, None)
        text = next(one.id for one in store.scan() if one.kind == Kind.CHUNK)
        if not self.lose(store, text):
            pytest.skip("this suite has no way to lose an object")

        with pytest.raises(MissingObjects):
            store.stats()

    def test_statistics_ask_about_at_least_one_operation(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="recent"):
            store.stats(recent=-1)
