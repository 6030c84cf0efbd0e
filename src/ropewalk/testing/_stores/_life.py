"""Opening, closing and reopening."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ropewalk.errors import StoreClosed
from ropewalk.store import Move, Ref, Store, ref_name
from ropewalk.store.engine import FORMAT_VERSION, Capabilities
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import MAIN, SPACE, growing, read


class LifeContract(Base):
    """A store's metadata, and persistence."""

    def test_a_store_says_what_it_is(self, store: Store) -> None:
        assert store.backend_id
        assert store.answers_to(store.backend_id)
        assert not store.answers_to("somebody else")
        assert store.durability in ("full", "relaxed", "none")
        assert isinstance(store.capabilities, Capabilities)
        assert (store.header.format, store.header.algorithm) == (FORMAT_VERSION, "sha256")
        assert len(store.header.store_id) == 16
        assert store.backend_id in repr(store)

    def test_a_closed_store_says_so(self, store: Store) -> None:
        lease = store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0)
        (record,) = store.leases(SPACE)
        calls: list[Callable[[], object]] = [
            lambda: store.read([]),
            lambda: store.reader(SPACE),
            lambda: store.missing([]),
            lambda: store.find(SPACE, b"key"),
            lambda: store.commit(SPACE),
            lambda: store.ref(SPACE, MAIN),
            lambda: store.refs(SPACE),
            lambda: store.view(SPACE),
            store.spaces,
            lambda: store.operations(SPACE),
            lambda: store.watch(SPACE),
            lambda: store.acquire(SPACE, MAIN, "me", 10.0),
            lambda: store.seize(SPACE, record, "you", 10.0),
            lambda: store.renew(lease),
            lambda: store.release(lease),
            lambda: store.leases(SPACE),
            store.scan,
        ]

        store.close()
        store.close()

        for call in calls:
            with pytest.raises(StoreClosed):
                call()

    def test_a_store_closes_at_the_end_of_a_block(self, store: Store) -> None:
        with store as opened:
            opened.commit(SPACE)

        with pytest.raises(StoreClosed):
            store.commit(SPACE)

    def test_closing_one_store_object_leaves_the_others_open(
        self, store: Store, second: Store
    ) -> None:
        if not self.several_handles:
            pytest.skip("this engine has one store object at a time")
        store.commit(SPACE)

        store.close()

        assert second.commit(SPACE).sequence == 2

    def test_what_was_written_is_there_after_reopening(
        self, store: Store, opener: Callable[[], Store]
    ) -> None:
        if not store.capabilities.persists:
            pytest.skip("this engine keeps nothing")
        versions = growing(10)
        for version in versions[:9]:
            store.commit(SPACE, [version])
        head = versions[-1].id
        store.commit(SPACE, [versions[-1]], moves=[Move(MAIN, None, head)], write_id="last")
        epoch = store.view(SPACE).epoch
        token = store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0).token
        done, header = store.operations(SPACE), store.header
        store.close()

        again = opener()

        assert again.header == header
        assert again.view(SPACE) == (10, epoch, (Ref(MAIN, head, 10),))
        assert again.operations(SPACE) == done
        found = read(again, [one.id for one in versions])
        assert [one.payload for one in found] == [one.payload for one in versions]
        repeated = again.commit(
            SPACE, [versions[-1]], moves=[Move(MAIN, None, head)], write_id="last"
        )
        assert repeated == done[-1]
        assert again.acquire(SPACE, ref_name("lease", "x"), "me", 10.0).token > token
