"""Stores that are named by a URL with a password: the password is never shown."""

from __future__ import annotations

import pytest

from ropewalk.cli.output import shown_url
from tests.cli.support import here
from tests.store.redis.servers import configured

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (".ropewalk", ".ropewalk"),
        ("file:///a/b@c:d", "file:///a/b@c:d"),
        ("redis://host:1/0", "redis://host:1/0"),
        (f"redis://:{SECRET}@host:1/0?name=x", "redis://:***@host:1/0?name=x"),
        (f"postgresql://me:{SECRET}@host/db", "postgresql://me:***@host/db"),
        (
            f"postgresql://me@host/db?password={SECRET}&a=b",
            "postgresql://me@host/db?password=***&a=b",
        ),
        (f"redis://me:a/{SECRET}@b@host/0", "redis://me:***@host/0"),
        (f"postgresql://me:{SECRET}?x@host/db", "postgresql://***@host/db"),
        (f"s3://bucket?refs=postgresql%3A%2F%2Fme%3A{SECRET}%40host", "s3://bucket?refs=***"),
        (f"s3://bucket?secret_access_key={SECRET}", "s3://bucket?secret_access_key=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_commands_on_a_server_show_no_password() -> None:
    with configured({"requirepass": SECRET}) as server:
        url = server.url.replace("redis://", f"redis://:{SECRET}@") + "?durability=relaxed"
        said = ""
        for command in (
            ["init"],
            ["init", "--json"],
            ["demo"],
            ["check"],
            ["log"],
            ["migrate", url],
        ):
            done = here(*command, "--store", url)
            assert done.code == 0 or command[0] == "migrate"
            said += done.out + done.err
        wrong = here("check", "--store", url.replace(SECRET, "wrong-" + SECRET))
        assert wrong.code != 0

    assert "sound" in said and "redis://:***@127.0.0.1" in said and "the same store" in said
    assert SECRET not in said + wrong.out + wrong.err
