"""Care: collection, migration, verification and statistics."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ropewalk.errors import Corrupt, InvalidInput, MissingObjects, RefMoved
from ropewalk.state.content_ref import keep
from ropewalk.store import KeyStats, MemoryStore, Move, Pruned, SpaceStats, Store, migrate, ref_name
from ropewalk.store.reserved import CONTENT_SPACE
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import (
    MAIN,
    OTHER_SPACE,
    SPACE,
    in_threads,
    load_value,
    noise,
    read,
    value,
)
from ropewalk.tree import (
    Commit,
    Kind,
    Map,
    ObjectId,
    TreeWriter,
    Written,
    links,
    make_commit,
    make_object,
)

WRITERS = 4
COMMITS = 25
PINS = 6


def step(
    store: Store,
    name: str,
    state: object,
    before: Commit | None,
    writer: TreeWriter | None = None,
) -> Commit:
    """Commit a state as the next version of a branch; with a writer, only its new objects."""
    writer = writer or TreeWriter()
    written = writer.write(state)
    parents = () if before is None else (before.id,)
    generation = 1 if before is None else before.generation + 1
    commit, made = make_commit(written.root, parents, generation=generation)
    expected = None if before is None else before.id
    move = Move(ref_name("branch", name), expected, commit.id)
    store.commit(SPACE, [*written.objects, made], [*written.needs, *parents], [move])
    writer.accept(written)
    return commit


def long(seed: int) -> dict[str, object]:
    """A state of several nodes."""
    choose = random.Random(seed)
    return {f"key {at}": choose.randbytes(3000).hex() for at in range(4)}


def all_ids(store: Store) -> set[ObjectId]:
    return {one.id for one in store.scan()}


def logged(store: Store) -> list[object]:
    """The operations, without fields specific to one store."""
    return [(one.sequence, one.write_id, one.moves, one.time) for one in store.operations(SPACE)]


def pin(store: Store, content: object, expires_at: int | None) -> Written:
    """Pin a content until a time, as a reference does."""
    written = TreeWriter().write(content)
    while True:
        with suppress(MissingObjects):  # Something was collected just now.
            keep(store, [written], expires_at)
            return written


def drop(store: Store, name: str, commit: Commit, operations: int = 1) -> None:
    """Delete a branch, and add this many operations."""
    store.commit(SPACE, moves=[Move(ref_name("branch", name), commit.id, None)])
    for _ in range(operations):
        store.commit(SPACE)


class CareContract(Base):
    """`gc`, `check` and `migrate`."""

    def test_collection_keeps_what_refs_reach_and_frees_the_rest(self, store: Store) -> None:
        first = step(store, "main", long(1), None)
        second = step(store, "main", long(2), first)
        kept = all_ids(store)
        other = step(store, "other", long(3), None)
        dropped = all_ids(store) - kept
        drop(store, "other", other)

        found = store.gc(recent=1)

        assert all_ids(store) == kept
        assert (found.kept, found.freed) == (len(kept), len(dropped))
        assert found.freed_bytes > 10_000
        assert read(store, [first.root, second.root])
        assert store.check(read_data=True).problems == ()

    def test_what_a_living_object_is_stored_against_stays_whole(self, store: Store) -> None:
        writer = TreeWriter()
        common = {f"key {at}": f"value {at}" for at in range(60)}
        old = writer.write({**common, "large": random.Random(1).randbytes(60_000)})
        before, made = make_commit(old.root)
        name = ref_name("branch", "other")
        store.commit(SPACE, [*old.objects, made], moves=[Move(name, None, before.id)])
        writer.accept(old)
        new = writer.write({**common, "large": b""})
        commit, made = make_commit(new.root)
        store.commit(SPACE, [*new.objects, made], new.needs, [Move(MAIN, None, commit.id)])
        writer.accept(new)
        drop(store, "other", before)

        store.gc(recent=1)

        # A reader of the old value may still need it, while it is there; no other reader is
        # affected.
        if not store.missing([old.root], SPACE):
            again, made = make_commit(old.root, (commit.id,), generation=2)
            move = Move(MAIN, commit.id, again.id)
            store.commit(SPACE, [made], [old.root, commit.id], [move])
        assert store.check(read_data=True).problems == ()

    def test_collection_keeps_what_recent_operations_can_bring_back(self, store: Store) -> None:
        other = step(store, "other", long(3), None)
        drop(store, "other", other, operations=3)

        assert store.gc(recent=4).freed == 0

        back = Move(ref_name("branch", "other"), None, other.id)
        store.commit(SPACE, moves=[back])
        assert store.check(read_data=True).problems == ()

    def test_a_dry_run_tells_and_deletes_nothing(self, store: Store) -> None:
        drop(store, "other", step(store, "other", long(3), None))
        before = all_ids(store)

        told = store.gc(recent=1, dry_run=True)

        assert all_ids(store) == before
        assert (told.freed, told.dry_run) == (len(before), True)
        done = store.gc(recent=1)
        assert done.freed == told.freed
        # Earlier parts are compressed together with more, so that each takes less.
        assert 0.9 * told.freed_bytes < done.freed_bytes < 1.1 * told.freed_bytes
        assert all_ids(store) == set()

    def test_collection_stops_where_it_cannot_see(self, store: Store) -> None:
        text = self._text_that_is_lost(store)
        drop(store, "other", step(store, "other", long(3), None))
        before = all_ids(store)

        with pytest.raises(MissingObjects) as caught:
            store.gc(recent=1)

        assert caught.value.ids == (text,)
        assert all_ids(store) == before

    def test_a_check_names_a_missing_object(self, store: Store) -> None:
        text = self._text_that_is_lost(store)

        (problem,) = store.check().problems
        thorough = store.check(read_data=True).problems

        assert (problem.code, problem.subject) == ("missing-object", text.hex())
        assert [(one.code, one.subject) for one in thorough] == [("missing-object", text.hex())]

    def test_what_a_ref_needs_is_missed_although_an_older_operation_led_there_too(
        self, store: Store
    ) -> None:
        text = self._text_that_is_lost(store)
        (main,) = store.refs(SPACE)
        store.commit(SPACE, moves=[Move("branch/other", None, main.target)])
        store.commit(SPACE, moves=[Move(MAIN, main.target, None)])

        (problem,) = store.check().problems

        assert (problem.code, problem.subject) == ("missing-object", text.hex())
        with pytest.raises(MissingObjects):
            store.gc()

    def _text_that_is_lost(self, store: Store) -> ObjectId:
        """Make a branch reference a large text that is missing."""
        before = all_ids(store)
        step(store, "main", {"text": noise(40_000)}, None)
        assert store.check().ok
        added = [one for one in store.scan() if one.id not in before and one.kind == Kind.CHUNK]
        if not self.lose(store, added[0].id):
            pytest.skip("this suite has no way to lose an object")
        return added[0].id

    def test_a_check_names_what_is_damaged_and_the_rest_can_be_read(self, store: Store) -> None:
        first = step(store, "main", long(1), None)
        other = value(noise(500, 7))
        store.commit(OTHER_SPACE, [other])
        if not self.damage(store, first.root):
            pytest.skip("this suite has no way to damage stored bytes")

        report = store.check(read_data=True)

        assert not report.ok
        assert read(store, [other.id], OTHER_SPACE) == [other]
        with pytest.raises(Corrupt):
            store.gc(recent=1)

    def test_a_check_names_a_damaged_text(self, store: Store) -> None:
        step(store, "main", {"text": noise(40_000)}, None)
        text = next(one.id for one in store.scan() if one.kind == Kind.CHUNK)
        if not self.damage(store, text):
            pytest.skip("this suite has no way to damage stored bytes")

        report = store.check(read_data=True)

        assert text.hex() in [one.subject for one in report.problems]

    def test_a_check_finds_damage_that_nothing_reaches_when_it_reads_all(
        self, store: Store
    ) -> None:
        step(store, "main", long(1), None)
        other = TreeWriter().write(long(2))
        store.commit(SPACE, other.objects, share=True)
        if not self.damage(store, other.root):
            pytest.skip("this suite has no way to damage stored bytes")

        assert store.check().ok
        assert [one.subject for one in store.check(read_data=True).problems] == [other.root.hex()]

    def test_a_check_finds_a_generation_that_is_wrong(self, store: Store) -> None:
        first = step(store, "main", long(1), None)
        wrong, made = make_commit(first.root, (first.id,), generation=7)
        store.commit(SPACE, [made], [first.root, first.id], [Move(MAIN, first.id, wrong.id)])

        (problem,) = store.check().problems

        assert (problem.code, problem.subject) == ("bad-commit", wrong.id.hex())

    def test_long_work_says_how_far_it_has_come(self, store: Store) -> None:
        drop(store, "other", step(store, "other", long(3), None))
        step(store, "main", long(1), None)
        told: list[tuple[str, int]] = []

        store.check(read_data=True, progress=lambda what, done: told.append((what, done)))
        store.gc(recent=1, progress=lambda what, done: told.append((what, done)))

        assert {what for what, _ in told} == {"checking", "reading", "marking", "deleting"}
        assert all(done > 0 for _, done in told)

    def test_an_empty_store_is_sound_and_has_nothing_to_collect(self, store: Store) -> None:
        assert store.check(read_data=True).ok
        assert store.gc().freed == 0

    def test_a_store_can_be_migrated_away_and_back(self, store: Store) -> None:
        away, back = MemoryStore(backend_id="away"), MemoryStore(backend_id="back")
        first = step(away, "main", long(1), None)
        second = step(away, "main", long(1) | {"more": 2}, first)

        migrate(away, store)
        migrate(store, back)

        assert store.refs(SPACE) == back.refs(SPACE) == away.refs(SPACE)
        assert logged(store) == logged(back) == logged(away)
        assert load_value(back, second.root) == load_value(store, second.root)
        assert store.answers_to("away") and back.answers_to(store.backend_id)
        assert store.check(read_data=True).problems == back.check(read_data=True).problems == ()

    def test_what_a_migration_had_to_leave_comes_when_the_source_is_whole_again(
        self, store: Store
    ) -> None:
        away = MemoryStore(backend_id="away")
        step(away, "main", {"text": noise(60_000)}, None)
        other = step(away, "other", long(2), None)
        shared = all_ids(away).difference(away.missing(all_ids(away)))
        lost = away.read(sorted(shared)[:1])
        away.discard([one.id for one in lost])

        with pytest.raises(MissingObjects):
            migrate(away, store)

        assert [ref.target for ref in store.refs(SPACE)] == [other.id]
        assert store.check(read_data=True).problems == ()
        store.gc(recent=1)
        away.commit(SPACE, lost, share=True)
        migrate(away, store)
        assert [(ref.name, ref.target) for ref in store.refs(SPACE)] == [
            (ref.name, ref.target) for ref in away.refs(SPACE)
        ]
        assert store.check(read_data=True).problems == ()

    def test_what_is_over_is_dropped_and_what_only_that_held_is_deleted(self, store: Store) -> None:
        lasting, without_end = pin(store, long(1), 11), pin(store, long(2), None)
        both = step(store, "main", long(3), None)
        shared, over = pin(store, long(3), 10), [pin(store, long(n), 10) for n in (4, 5)]
        rubbish = step(store, "other", long(6), None)
        drop(store, "other", rubbish)
        before = all_ids(store)

        done = store.prune_expired(now=10)

        gone = before - all_ids(store)
        # Shared with a branch, this would stay.
        held = not store.missing([both.root])
        assert (done.payloads, done.freed_bytes > 10_000) == (2 if held else 3, True)
        assert sorted(done.hashes) == sorted(one.root.hex() for one in [shared, *over])
        assert {one.root for one in over} < gone
        assert gone.isdisjoint([lasting.root, without_end.root, both.root, rubbish.root])
        assert load_value(store, both.root) == long(3)
        assert len(store.refs(CONTENT_SPACE)) == 2
        assert store.prune_expired(now=10) == Pruned(0, (), 0)
        assert store.check(read_data=True).problems == ()

    def test_of_what_is_over_a_limit_takes_what_is_over_for_longest(self, store: Store) -> None:
        over = {end: pin(store, long(end), end).root.hex() for end in (7, 5, 9, 3)}

        assert store.prune_expired(3, now=9).hashes == (over[3], over[5], over[7])
        assert store.prune_expired(3, now=8) == Pruned(0, (), 0)
        assert store.prune_expired(3, now=9).payloads == 1

    def test_the_twin_prunes_what_is_over_by_the_clock(self, store: Store) -> None:
        pin(store, long(1), 1)
        lasting = pin(store, long(2), 1 << 62)

        assert asyncio.run(store.aprune_expired()).payloads == 1
        assert load_value(store, lasting.root, CONTENT_SPACE) == long(2)

    @pytest.mark.parametrize("limit", [0, -1, True, 1.5])
    def test_a_limit_is_a_whole_number_from_1_on(self, store: Store, limit: int) -> None:
        with pytest.raises(InvalidInput, match="limit"):
            store.prune_expired(limit)

    def test_pruning_beside_writers_keeps_what_was_given_more_time(
        self, store: Store, second: Store
    ) -> None:
        ended = threading.Event()

        def write(number: int) -> None:
            for turn in range(PINS):
                # All writers use the same few contents: first expired, then renewed for longer.
                pin(store, long(turn % 5), 1)
                pin(store, long((turn + number) % 5) | {"turn": turn}, 1)
            pin(store, long(number), 1 << 62)

        def prune(through: Store) -> None:
            while not ended.is_set():
                through.prune_expired(now=10)

        with ThreadPoolExecutor(2) as pool:
            pruning = [pool.submit(prune, one) for one in (store, second)]
            try:
                in_threads(WRITERS, write)
            finally:
                ended.set()
        for one in pruning:
            one.result()
        store.prune_expired(now=10)

        assert len(store.refs(CONTENT_SPACE)) == WRITERS
        for number in range(WRITERS):
            root = TreeWriter().write(long(number)).root
            assert load_value(store, root, CONTENT_SPACE) == long(number)
        assert store.check(read_data=True).problems == ()

    @pytest.mark.parametrize("recent", [-1, True, 1.5])
    def test_a_collection_keeps_a_whole_number_of_operations(
        self, store: Store, recent: int
    ) -> None:
        with pytest.raises(InvalidInput, match="recent"):
            store.gc(recent=recent)

    def test_a_collection_takes_what_the_last_operation_removed_only_if_asked_to(
        self, store: Store
    ) -> None:
        step(store, "main", long(1), None)
        kept = all_ids(store)
        drop(store, "other", step(store, "other", long(3), None), operations=0)
        careful = store.gc(recent=1)
        final = store.gc(recent=0)

        assert careful.freed == 0 and final.freed > 0
        assert all_ids(store) == kept
        assert store.check(read_data=True).problems == ()

    def test_collection_beside_writers_takes_nothing_that_is_reached(
        self, store: Store, second: Store
    ) -> None:
        heads: list[Commit | None] = [None] * WRITERS
        ended = threading.Event()

        def write(number: int) -> None:
            for turn in range(COMMITS):
                state = long(turn % 5) | {"writer": number // 2, "turn": turn % 3}
                head = heads[number]
                if head is not None and turn % 4 == 3:
                    drop(store, f"writer {number}", head, 0)
                    head = None
                heads[number] = _resent(store, f"writer {number}", state, head)

        def collect() -> None:
            while not ended.is_set():
                second.gc(recent=1)

        collector = threading.Thread(target=collect)
        collector.start()
        try:
            in_threads(WRITERS, write)
        finally:
            ended.set()
            collector.join()

        assert store.check(read_data=True).problems == ()
        for number, head in enumerate(heads):
            ref = store.ref(SPACE, ref_name("branch", f"writer {number}"))
            assert head is not None and ref is not None and ref.target == head.id


def _resent(store: Store, name: str, state: object, before: Commit | None) -> Commit:
    """Commit, and retry with everything if something was collected just now."""
    while True:
        try:
            return step(store, name, state, before)
        except MissingObjects:
            continue
        except RefMoved as error:
            raise AssertionError("nobody else moves this ref") from error


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
