"""The command line on a store in Postgres."""

from __future__ import annotations

import json

import psycopg
import pytest

from ropewalk import Timeline
from ropewalk import open as open_store
from tests.cli.support import here
from tests.postgres import PASSWORD


def test_init_makes_a_store_and_shows_no_password(postgres_url: str) -> None:
    made = here("init", "--store", postgres_url, "--json")
    again = here("init", "--store", postgres_url)

    assert (made.code, made.records[0]["created"]) == (0, True)
    assert made.records[0]["engine"] == "PostgresStore"
    assert again.code == 0 and again.out.startswith("There is a store already in postgresql://")
    for said in (made, again):
        assert "%3A" not in said.out and PASSWORD not in said.out + said.err


def test_a_wrong_url_is_told_without_its_password() -> None:
    said = here("init", "--store", "postgresql://u:Gehe1m@127.0.0.1:1/app")

    assert said.code != 0
    assert "Check host and port" in said.err and "Gehe1m" not in said.err


def test_the_printed_sql_makes_a_store(postgres_url: str) -> None:
    script = here("sql", "--schema", "agents").out
    told = json.loads(here("sql", "--schema", "agents", "--json").out)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(script.encode())

    with open_store(f"{postgres_url}?schema=agents", create=False) as store:
        Timeline("a", store=store).checkpoint({"x": 1})
        assert store.check(read_data=True).ok
    assert told["sql"].strip() == script.strip()


def test_a_timeline_in_postgres_can_be_looked_at(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(postgres_url) as store:
        Timeline("researcher", store=store).checkpoint({"x": 1}, description="Parsed request")
    monkeypatch.setenv("ROPEWALK_STORE", postgres_url)

    assert "Parsed request" in here("log").out
    assert here("check", "--read-data").code == 0
