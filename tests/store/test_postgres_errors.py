"""What somebody is told who opens a store in Postgres in a wrong way; and where it may be."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator

import psycopg
import pytest

import ropewalk
from ropewalk.errors import (
    FormatError,
    InvalidInput,
    NewerFormat,
    NotAllowed,
    NotFound,
    RopewalkError,
    Unavailable,
)
from ropewalk.store import Move, PostgresStore
from ropewalk.testing.helpers import SPACE, point, read, value
from ropewalk.tree import make_commit
from tests.postgres import PASSWORD, Postgres, running_postgres
from tests.servers import _free_port

SECRET = "Gehe1m%40Wort"


@pytest.fixture
def database(postgres_url: str) -> str:
    return postgres_url.rpartition("/")[2]


def refused(dsn: str, **options: object) -> RopewalkError:
    with pytest.raises(RopewalkError) as caught:
        PostgresStore(dsn, connect_timeout=2.0, **options)  # type: ignore[arg-type]
    return caught.value


def test_a_wrong_password_names_user_and_password(postgres: Postgres) -> None:
    error = refused(f"postgresql://ropewalk:{SECRET}@127.0.0.1:{postgres.port}/postgres")

    assert isinstance(error, NotAllowed)
    assert "Check the user and the password" in str(error)


def test_a_missing_database_names_the_end_of_the_url(postgres: Postgres) -> None:
    error = refused(postgres.url("nosuch"))

    assert isinstance(error, NotFound)
    assert "end of the URL" in str(error)


def test_a_wrong_port_names_host_and_port() -> None:
    error = refused(f"postgresql://u:{SECRET}@127.0.0.1:{_free_port()}/app")

    assert isinstance(error, Unavailable)
    assert "Check host and port" in str(error)


def test_an_unknown_host_names_host_and_port() -> None:
    error = refused(f"postgresql://u:{SECRET}@no-such-host.invalid/app")

    assert isinstance(error, Unavailable)
    assert "Check host and port" in str(error)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:{SECRET}@host:port/app",
        f"postgresql://u:{SECRET}%zz@host/app",
        f"postgresql://u:{SECRET}@host/app?nosuch=1",
        f"postgresql://u:{SECRET}@[::1/app",
        f"host=localhost password {SECRET}",
        f"user=u password={SECRET} nosuch=1",
        f"postgresql://u:{SECRET}/12@host/app",
        f"postgresql://u:12/{SECRET}@host/app",
        f"postgresql://u:12@{SECRET}@host/app",
        "host='",
        "\0",
    ],
)
def test_a_dsn_with_a_typo_is_refused_without_being_quoted(dsn: str) -> None:
    error = refused(dsn)

    assert isinstance(error, InvalidInput)
    assert "postgresql://user:password@host" in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


def test_an_unknown_option_of_a_url_is_named() -> None:
    error = refused(f"postgresql://u:{SECRET}@host/app?sslmode=disable&shema=agents")

    assert "no option 'shema'" in str(error)


def test_what_may_be_a_part_of_a_password_is_no_option() -> None:
    error = refused(f"postgresql://u:12?{SECRET}=1@host/app?sslmode=disable")

    assert "no option" not in str(error)


@pytest.mark.parametrize("path", ["password", "database", "port", "typo"])
def test_no_secret_is_ever_shown(
    postgres: Postgres, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dsn = {
        "password": f"postgresql://ropewalk:{SECRET}@127.0.0.1:{postgres.port}/postgres",
        "database": f"postgresql://ropewalk:{SECRET}@127.0.0.1:{postgres.port}/nosuch",
        "port": f"postgresql://ropewalk:{SECRET}@127.0.0.1:{_free_port()}/postgres",
        "typo": f"postgresql://ropewalk:{SECRET}@127.0.0.1:{postgres.port}/postgres?x",
    }[path]
    error = refused(dsn)

    shown = "".join(traceback.format_exception(error)) + caplog.text + repr(error)
    assert SECRET not in shown
    assert SECRET.replace("%40", "@") not in shown


def test_a_store_shows_where_it_is_without_the_password(postgres: Postgres) -> None:
    with PostgresStore(postgres.url(), schema="shown") as store:
        assert "127.0.0.1" in repr(store) and "schema shown" in repr(store)
        assert PASSWORD not in repr(store)
        assert PASSWORD not in repr(store._database.pool)


# Schemas.


def test_two_schemas_hold_two_stores(postgres_url: str) -> None:
    with (
        PostgresStore(postgres_url, schema="one") as one,
        PostgresStore(postgres_url, schema="two") as two,
    ):
        point(one, value("only here"))

        assert one.header.store_id != two.header.store_id
        assert two.spaces() == [] and two.missing([value("only here").id], SPACE) != []


def test_a_url_may_name_the_schema_and_the_durability(postgres_url: str) -> None:
    with ropewalk.open(f"{postgres_url}?schema=team-a&connect_timeout=5") as store:
        assert isinstance(store, PostgresStore)
        assert (store.schema, store.durability) == ("team-a", "full")
        point(store, value("x"))
    with ropewalk.open(
        f"{postgres_url}?durability=relaxed&schema=team-a".replace("postgresql:", "postgres:")
    ) as again:
        assert (again.durability, again.spaces()) == ("relaxed", [SPACE])


@pytest.mark.parametrize("schema", ["pg_x", "1a", 'a"b', "a b", "a;drop", "x" * 49, "ä"])
def test_a_name_that_no_schema_has_is_refused(schema: str) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        PostgresStore("postgresql://localhost/app", schema=schema)


def test_nothing_is_made_unless_that_is_wanted(postgres_url: str) -> None:
    with pytest.raises(NotFound, match="ropewalk init"):
        PostgresStore(postgres_url, create=False)

    with psycopg.connect(postgres_url) as look:
        found = look.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'ropewalk'").fetchall()
        assert found == []


def test_tables_of_somebody_else_are_left_alone(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("CREATE TABLE public.facts (fact text)")
        other.execute("CREATE TABLE public.invoices (id integer)")

    with pytest.raises(FormatError, match=r"something else \(facts, invoices\).*schema="):
        PostgresStore(postgres_url, schema="public")


def test_tables_with_our_names_that_are_not_ours_are_left_alone(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        for name in ("facts", "objects", "spaces"):
            other.execute(f"CREATE TABLE public.{name} (id integer)".encode())

    with pytest.raises(FormatError, match="something else"):
        PostgresStore(postgres_url, schema="public")


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE public.facts (layout text, header text);"
        "CREATE TABLE public.objects (); CREATE TABLE public.spaces ();"
        "INSERT INTO public.facts VALUES ('1', 'x')",
        "CREATE TABLE public.facts (layout integer, header bytea);"
        "CREATE TABLE public.objects (); CREATE TABLE public.spaces ();"
        "INSERT INTO public.facts VALUES (1, NULL)",
        "CREATE SEQUENCE public.facts",
        "CREATE TYPE public.spaces AS (id integer)",
    ],
)
def test_whatever_has_our_names_is_left_alone(postgres_url: str, made: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute(made.encode())

    with pytest.raises(FormatError, match="something else"):
        PostgresStore(postgres_url, schema="public")


def test_a_newer_layout_is_refused(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        store._ask("UPDATE {s}.facts SET layout = 4")

    with pytest.raises(NewerFormat, match="Install a newer Ropewalk"):
        PostgresStore(postgres_url)


def test_a_layout_from_before_the_first_release_is_refused(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        store._ask("UPDATE {s}.facts SET layout = 2")

    with pytest.raises(NotAllowed, match="choose another schema"):
        PostgresStore(postgres_url)


def test_tables_that_vanish_are_named_with_what_to_do(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, psycopg.connect(postgres_url) as other:
        point(store, value("x"))
        other.execute("DROP TABLE ropewalk.refs CASCADE")
        other.commit()

        with pytest.raises(FormatError, match="ropewalk init"):
            store.ref(SPACE, "branch/main")


def test_functions_that_are_missing_are_made_again(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, psycopg.connect(postgres_url) as other:
        point(store, value("before"))
        other.execute("DROP FUNCTION ropewalk.commit_3, ropewalk.view_1")
        other.commit()
    with (
        PostgresStore(postgres_url, create=False) as store,
        pytest.raises(FormatError, match="ropewalk init"),
    ):
        store.ref(SPACE, "branch/main")

    with PostgresStore(postgres_url) as store:
        point(store, value("after"), expected=value("before").id)
        assert read(store, [value("before").id, value("after").id])


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_the_encoding_of_a_database_does_not_matter(postgres: Postgres, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    postgres.run(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")

    with PostgresStore(postgres.url(name)) as store:
        step, made = make_commit(value("x").id, description="für 猫", agent="\0")
        moves = [Move("branch/main", None, step.id)]
        store.commit(SPACE, [value("x"), made], moves=moves, step=step)
        assert store.spaces() == [SPACE]
        assert store.check().ok


# Rights.


@pytest.fixture
def limited(postgres: Postgres, database: str) -> Iterator[str]:
    """The address of a user who may only connect."""
    postgres.run("CREATE ROLE limited LOGIN PASSWORD 'pw'", database)
    yield f"postgresql://limited:pw@127.0.0.1:{postgres.port}/{database}"
    postgres.run("DROP OWNED BY limited", database)
    postgres.run("DROP ROLE limited", database)


def test_who_may_not_make_a_schema_is_told_what_to_ask_for(limited: str) -> None:
    with pytest.raises(NotAllowed, match=r"CREATE on the database.*PostgresStore\.sql"):
        PostgresStore(limited)


def test_who_may_not_use_the_schema_is_told_what_to_ask_for(
    limited: str, postgres_url: str
) -> None:
    PostgresStore(postgres_url).close()

    with pytest.raises(NotAllowed, match="USAGE on the schema"):
        PostgresStore(limited)


def test_a_schema_made_by_hand_serves_a_user_with_the_rights_that_it_names(
    limited: str, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(PostgresStore.sql("by-hand").encode())
        for grant in (
            'GRANT USAGE ON SCHEMA "by-hand" TO limited',
            'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "by-hand" TO limited',
            'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "by-hand" TO limited',
        ):
            admin.execute(grant.encode())

    with PostgresStore(limited, schema="by-hand") as store:
        point(store, value("x"))
        lease = store.acquire(SPACE, "grant/x", "me", 5)
        assert store.release(lease)
        store.commit(SPACE, [value("garbage")], share=True)
        assert store.gc(recent=0).freed == 1
        assert store.view(SPACE).sequence == 2


# Durability.


def test_full_is_refused_by_a_server_that_does_not_sync() -> None:
    with running_postgres() as server:
        server.stop()
        server.start(fsync=False)

        with pytest.raises(NotAllowed, match=r"fsync = on in postgresql\.conf.*relaxed"):
            PostgresStore(server.url())
        with PostgresStore(server.url(), durability="relaxed") as store:
            assert store.durability == "relaxed"


@pytest.mark.parametrize(("durability", "expected"), [("full", "on"), ("relaxed", "off")])
def test_durability_is_that_of_each_transaction_whatever_the_default(
    postgres: Postgres, database: str, postgres_url: str, durability: str, expected: str
) -> None:
    default = "off" if expected == "on" else "on"
    postgres.run(f"ALTER DATABASE {database} SET synchronous_commit = {default}")
    with PostgresStore(postgres_url, durability=durability) as store:  # type: ignore[arg-type]
        # What a commit sees is asked inside its own transaction.
        store._ask(
            "CREATE FUNCTION {s}.saw() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN CREATE TABLE IF NOT EXISTS {s}.seen (was text); "
            "INSERT INTO {s}.seen VALUES (current_setting('synchronous_commit')); "
            "RETURN NEW; END $$"
        )
        store._ask(
            "CREATE TRIGGER saw AFTER INSERT ON {s}.tail FOR EACH ROW EXECUTE FUNCTION {s}.saw()"
        )
        point(store, value("x"))

        assert store._ask("SELECT was FROM {s}.seen") == [(expected,)]
        assert store._ask("SHOW synchronous_commit") == [(default,)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_transactions_that_do_not_see_others_are_refused(
    postgres: Postgres, database: str, postgres_url: str, level: str
) -> None:
    PostgresStore(postgres_url).close()
    with PostgresStore(postgres_url) as store:
        postgres.run(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
        with pytest.raises(NotAllowed, match="default_transaction_isolation"):
            point(store, value("x"))

    with pytest.raises(NotAllowed, match=f"is {level}.*read committed"):
        PostgresStore(postgres_url)


def test_a_server_that_only_reads_is_named(
    postgres: Postgres, database: str, postgres_url: str
) -> None:
    PostgresStore(postgres_url).close()
    postgres.run(f"ALTER DATABASE {database} SET default_transaction_read_only = on")

    with (
        PostgresStore(postgres_url) as store,
        pytest.raises(NotAllowed, match="address of the primary"),
    ):
        point(store, value("x"))


# Care.


def test_check_names_an_index_that_is_not_valid(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        store._ask(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{s}.named_by'::regclass"
        )

        (problem,) = store.check().problems
        assert problem.subject == "named_by" and "REINDEX" in problem.message


def test_check_names_an_object_whose_frame_is_none(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        store.commit(SPACE, [value("x")], share=True)
        store._ask("UPDATE {s}.shared SET frame = 'x'::bytea")

        subjects = {problem.subject for problem in store.check(read_data=True).problems}
        assert value("x").id.hex() in subjects


def test_the_bytes_of_a_store_are_those_of_its_schema(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, PostgresStore(postgres_url, schema="b") as other:
        empty = other.stats().disk
        point(store, value(bytes(range(256)) * 4000))

        assert other.stats().disk == empty
        assert (store.stats().disk or 0) > (empty or 0) > 0


def test_options_that_make_no_sense_are_refused() -> None:
    for options in (
        {"durability": "none"},
        {"max_connections": 0},
        {"min_connections": 5, "max_connections": 4},
        {"timeout": "soon"},
        {"default_ttl_seconds": -1},
        {"dsn": 7},
    ):
        given = {"dsn": "postgresql://localhost/app", **options}
        with pytest.raises(InvalidInput):
            PostgresStore(**given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="size_limit"):
        ropewalk.open("postgresql://localhost/app", size_limit=1000)
