"""What stands beside history on servers is shared, and gone without where it may not be used."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from ropewalk.errors import StoreClosed
from ropewalk.store import PostgresStore, RedisStore
from ropewalk.store.engine import TextIndex, Within
from ropewalk.store.postgres import scratch as small_values
from tests.postgres import Postgres, running_postgres
from tests.store.redis.servers import client

ALL = Within(1000)
_numbers = itertools.count(1)


@pytest.fixture
def schema() -> str:
    return f"beside_{next(_numbers)}"


@pytest.fixture
def store(postgres: Postgres, schema: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres.url(), schema=schema) as opened:
        yield opened


def works(index: TextIndex) -> bool:
    """Whether an index takes words and finds them, at the latest at the second try."""
    done = index.apply("new", None, b"1", [(7, {"word"})])
    done = done or index.apply("new", None, b"1", [(7, {"word"})])
    return done and index.find("new", b"1", ["wor"], ALL) == [7]


# Postgres.


def test_words_and_values_are_shared_by_all_who_use_the_database(
    postgres: Postgres, schema: str, store: PostgresStore
) -> None:
    store.text_index().apply("scope", None, b"1", [(0, {"alpha"}), (9, {"beta"})])
    store.scratch().put("key", b"value", 60)

    with PostgresStore(postgres.url(), schema=schema) as other:
        assert other.text_index().state("scope") == b"1"
        assert other.text_index().apply("scope", b"1", b"2", [(10, {"beta"})])
        assert other.scratch().get("key") == b"value"
    assert store.text_index().find("scope", b"2", ["be"], ALL) == [9, 10]
    assert postgres.run(f"SELECT count(*) FROM {schema}.words") == [(3,)]
    assert postgres.run(f"SELECT count(*) FROM {schema}.scratch") == [(1,)]


def test_a_position_that_changed_or_is_gone_is_not_found_any_more(store: PostgresStore) -> None:
    index = store.text_index()
    index.apply("scope", None, b"1", [(at, {"old", f"own{at}"}) for at in range(5)])
    index.apply("scope", b"1", b"2", [(1, {"new"}), (3, None)])

    assert index.find("scope", b"2", ["old"], ALL) == [0, 2, 4]
    assert index.find("scope", b"2", ["new"], ALL) == [1]


def test_a_dropped_scope_leaves_no_rows(
    postgres: Postgres, schema: str, store: PostgresStore
) -> None:
    index = store.text_index()
    index.apply("scope", None, b"1", [(at, {"word"}) for at in range(50)])
    index.apply("scope", None, b"2", [(at, {"word"}) for at in range(20)])
    assert postgres.run(f"SELECT count(*) FROM {schema}.words") == [(20,)]
    index.drop("scope")

    assert postgres.run(f"SELECT count(*) FROM {schema}.words") == [(0,)]
    assert postgres.run(f"SELECT count(*) FROM {schema}.indexed") == [(0,)]


def test_a_search_reads_the_index_and_not_all_rows(
    postgres: Postgres, schema: str, store: PostgresStore
) -> None:
    rows = [(at, {f"own{at}", "word"}) for at in range(6000)]
    store.text_index().apply("scope", None, b"1", rows)

    with psycopg.connect(postgres.url()) as connection:
        asked = f"SELECT {schema}.find_1('scope', '1', '{{own59}}', -1, 9999, false, 1000)"
        (found,) = connection.execute(asked.encode()).fetchone() or ([],)
        counted = connection.execute(
            "SELECT seq_tup_read FROM pg_stat_xact_user_tables "
            "WHERE schemaname = %s AND relname = 'words'",
            (schema,),
        ).fetchone()
    assert sorted(found) == [59, *range(590, 600), *range(5900, 6000)]
    assert counted == (0,)


def test_words_cannot_change_what_is_asked_for(store: PostgresStore) -> None:
    index = store.text_index()
    odd = ["it's", "a\\b", "'", "\\", "x':*|'y", "a&b", "ab:*", "''"]
    index.apply("scope", None, b"1", [(at, {word}) for at, word in enumerate(odd)])

    for at, word in enumerate(odd):
        assert at in (index.find("scope", b"1", [word], ALL) or [])
    assert index.find("scope", b"1", ["' | 'zzz"], ALL) == []


@pytest.mark.parametrize("missing", ["words", "indexed", "scratch"])
def test_tables_that_are_missing_are_gone_without(
    postgres: Postgres, schema: str, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresStore(postgres.url(), schema=schema) as opened:
        postgres.run(f"DROP TABLE {schema}.{missing}")

        assert works(opened.text_index())
        opened.scratch().put("key", b"value")
        opened.scratch().put("key", b"value")
        assert opened.scratch().get("key") == b"value"
    assert any(record.levelno == logging.WARNING for record in caplog.records)


def test_an_older_store_gets_what_stands_beside_history(postgres: Postgres, schema: str) -> None:
    PostgresStore(postgres.url(), schema=schema).close()
    for name in ("words", "indexed", "scratch"):
        postgres.run(f"DROP TABLE {schema}.{name}")
    postgres.run(f"DROP FUNCTION {schema}.find_1")

    with PostgresStore(postgres.url(), schema=schema) as opened:
        assert works(opened.text_index())
    assert postgres.run(f"SELECT count(*) FROM {schema}.words") == [(1,)]


def test_a_crash_of_the_server_empties_all_of_it_together() -> None:
    with running_postgres() as server, PostgresStore(server.url()) as opened:
        index = opened.text_index()
        index.apply("scope", None, b"1", [(0, {"word"})])
        server.kill()
        server.start()

        assert index.state("scope") is None
        assert works(index)


def test_a_database_that_cannot_spell_a_word_is_gone_without(postgres: Postgres) -> None:
    name = f"latin_{next(_numbers)}"
    postgres.run(
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    with PostgresStore(postgres.url(name)) as opened:
        index = opened.text_index()

        assert index.apply("scope", None, b"1", [(0, {"straße"})])
        assert index.find("scope", b"1", ["straß"], ALL) == [0]
        index.apply("scope", None, b"2", [(0, {"東"})])
        assert works(index)


def test_values_do_not_fill_the_database(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_values, "_SCRATCH_BYTES", 10_000)
    monkeypatch.setattr(small_values, "_TIDIED_EVERY", 1)
    scratch = store.scratch()
    for number in range(30):
        scratch.put(f"{number:02}", bytes(1000))

    assert scratch.keys() == [f"{number:02}" for number in range(20, 30)]


def test_a_user_who_may_not_use_the_tables_has_an_index_of_their_own(
    postgres: Postgres, schema: str
) -> None:
    PostgresStore(postgres.url(), schema=schema).close()
    user = f"user_{schema}"
    postgres.run(f"CREATE ROLE {user} LOGIN PASSWORD 'x'")
    postgres.run(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
    postgres.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}")
    postgres.run(f"REVOKE ALL ON {schema}.words, {schema}.indexed FROM {user}")
    url = psycopg.conninfo.make_conninfo(postgres.url(), user=user, password="x")

    with PostgresStore(url, schema=schema) as opened:
        assert works(opened.text_index())
        assert opened.text_index().state("new") == b"1"


# Redis.


def test_values_are_keys_that_the_server_forgets(redis_url: str) -> None:
    with RedisStore(redis_url, durability="relaxed", name="team") as one:
        one.scratch().put("key", b"value", 60)
        one.scratch().put("other", b"value")
        with RedisStore(redis_url, durability="relaxed", name="team") as other:
            assert other.scratch().get("key") == b"value"
        with RedisStore(redis_url, durability="relaxed", name="second") as second:
            assert second.scratch().get("key") is None
            assert second.scratch().keys() == []
        server = client(redis_url)

        assert 0 < server.pttl("{ropewalk:team}:scratch:key") <= 60_000
        assert server.pttl("{ropewalk:team}:scratch:other") > 0
        assert one.check(read_data=True).ok


def test_a_closed_store_on_redis_has_no_values(redis_url: str) -> None:
    store = RedisStore(redis_url, durability="relaxed")
    scratch = store.scratch()
    store.close()

    with pytest.raises(StoreClosed):
        scratch.get("key")


def test_values_that_may_not_be_on_the_server_are_in_the_process(redis_url: str) -> None:
    server: Any = client(redis_url)
    server.execute_command("ACL", "SETUSER", "small", "on", ">x", "~*", "&*", "+@all")
    try:
        url = redis_url.replace("redis://", "redis://small:x@")
        with RedisStore(url, durability="relaxed") as store:
            server.execute_command("ACL", "SETUSER", "small", "-set", "-get")
            scratch = store.scratch()
            scratch.put("key", b"value")
            scratch.put("key", b"value")

            assert scratch.get("key") == b"value"
    finally:
        server.execute_command("ACL", "DELUSER", "small")
