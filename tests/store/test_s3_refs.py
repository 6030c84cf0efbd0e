"""A store whose objects are in a bucket, and whose spaces are in Postgres."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest

import ropewalk
from ropewalk.errors import Corrupt, InvalidInput, NotAllowed, NotFound, Unavailable
from ropewalk.history import History
from ropewalk.store import PostgresStore, S3Store, Store
from ropewalk.testing.helpers import SPACE
from tests.postgres import Postgres
from tests.proxy import Proxy
from tests.store.records.contract import CellContract


class TestContract(CellContract):
    @pytest.fixture
    def open_store(self, s3_url: str, postgres_url: str) -> Callable[[Callable[[], float]], Store]:
        return lambda clock: S3Store(s3_url, refs=postgres_url, clock=clock, poll_seconds=0.05)


def test_spaces_are_in_the_database_and_objects_in_the_bucket(
    s3_url: str, postgres_url: str
) -> None:
    with S3Store(s3_url, refs=postgres_url) as store:
        branch = History(store, SPACE).open()
        for step in range(200):
            branch.commit({"step": step})
        keys = {key.split("/")[1] for key, _ in store._bucket.listing("ropewalk")}
    with S3Store(s3_url, refs=postgres_url, create=False) as again:
        assert History(again, SPACE).value() == {"step": 199}
        assert again.check(read_data=True).ok

    assert keys == {"part", "elsewhere"}


def test_spaces_share_the_connections_of_a_postgres_store(s3_url: str, postgres_url: str) -> None:
    with PostgresStore(postgres_url, max_connections=1) as beside:
        with S3Store(s3_url, refs=beside) as store:
            History(store, SPACE).open().commit({"step": 1})
        beside.commit(SPACE)  # Closing the one has not closed the other.

        with S3Store(s3_url, refs=postgres_url, create=False) as again:
            assert History(again, SPACE).value() == {"step": 1}
        assert len(beside.operations(SPACE)) == 1


def test_a_bucket_without_its_database_is_refused(
    s3_url: str, postgres_url: str, postgres: Postgres
) -> None:
    with S3Store(s3_url, refs=postgres_url) as store:
        store.commit(SPACE)

    with pytest.raises(InvalidInput, match="refs="):
        S3Store(s3_url)
    with pytest.raises(NotFound):
        S3Store(s3_url, refs=postgres.new_database(), create=False)
    with pytest.raises(Corrupt, match=r"knows nothing of it.*correct refs="):
        S3Store(s3_url, refs=postgres.new_database())


def test_refs_can_stand_in_the_url_and_are_not_shown(s3_url: str, postgres_url: str) -> None:
    url = f"{s3_url}{'&' if '?' in s3_url else '?'}refs={quote(postgres_url, safe='')}"
    with ropewalk.open(url) as store:
        store.commit("team/agent")
        told = f"{store!r} {store}"

    with S3Store(s3_url, refs=postgres_url, create=False) as again:
        assert again.spaces() == ["team/agent"]
    assert "postgresql" not in told


def test_refs_for_a_store_that_keeps_its_own_are_refused(s3_url: str, postgres_url: str) -> None:
    with S3Store(s3_url) as store:
        store.commit(SPACE)

    with pytest.raises(InvalidInput, match="without refs="):
        S3Store(s3_url, refs=postgres_url)


def test_a_database_without_its_bucket_is_refused(s3_url: str, postgres_url: str) -> None:
    with S3Store(s3_url, refs=postgres_url) as store:
        History(store, SPACE).open().commit({"a": 1})
        store._bucket.delete([key for key, _ in store._bucket.listing("ropewalk")])

    with pytest.raises(Corrupt, match="do not belong together"):
        S3Store(s3_url, refs=postgres_url)


@pytest.mark.parametrize("refs", ["mysql://host/db", "/a/path", ""])
def test_refs_that_are_not_in_postgres_are_refused(s3_url: str, refs: str) -> None:
    with pytest.raises(InvalidInput, match="Postgres"):
        S3Store(s3_url, refs=refs)


def test_a_wrong_password_is_not_allowed_and_not_shown(s3_url: str, postgres_url: str) -> None:
    wrong = postgres_url.replace("s3cret", "other-pass")

    with pytest.raises(NotAllowed) as caught:
        S3Store(s3_url, refs=wrong)

    assert "other-pass" not in f"{caught.value} {caught.value.__cause__}"


def test_a_lost_answer_of_the_database_is_recognised(s3_url: str, postgres: Postgres) -> None:
    url = postgres.new_database()
    with Proxy("127.0.0.1", postgres.port) as proxy:
        through = url.replace(f":{postgres.port}/", f":{proxy.port}/")
        with S3Store(s3_url, refs=through, timeout=10) as store:
            branch = History(store, SPACE).open()
            branch.commit({"step": 0})
            for step in range(1, 4):
                proxy.drop_replies(after=b"UPDATE", once=True)
                branch.commit({"step": step})
                assert proxy.lost.is_set()
            assert store.view(SPACE).sequence == 4
            proxy.refuse()
            with pytest.raises(Unavailable):
                S3Store(s3_url, refs=through, timeout=1)
