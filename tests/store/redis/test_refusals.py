"""What a store on Redis refuses, and how it says so: settings, credentials, addresses."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

import ropewalk
from ropewalk.errors import InvalidInput, NotAllowed, RopewalkError, Unavailable
from ropewalk.store import Move, RedisStore
from ropewalk.store.redis.address import Settings, judge, read_address
from ropewalk.testing.helpers import MAIN, SPACE, value
from tests.servers import _free_port
from tests.store.redis.servers import KEEPS_ALL, Configured, client, configured

SECRET = "hunter2"  # In percent code, as a URL has it.
SPECIAL = "p@ss/wo?rd#%"
SPECIAL_IN_URL = "p%40ss%2Fwo%3Frd%23%25"


# Durability, as the server's settings give it.


def settings(**config: str) -> Settings:
    return Settings(
        {"redis_version": "7.0.15"},
        {
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "maxmemory": "0",
            "maxmemory-policy": "noeviction",
            "save": "",
            **{name.replace("_", "-"): value for name, value in config.items()},
        },
    )


def test_a_server_that_keeps_all_is_believed() -> None:
    assert judge("x", settings(), "full") == "full"
    assert judge("x", settings(maxmemory="100"), "full") == "full"
    # Without a limit, no policy is ever applied.
    assert judge("x", settings(maxmemory_policy="allkeys-lru"), "full") == "full"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"appendonly": "no"}, "appendonly is no, and must be yes"),
        ({"appendfsync": "everysec"}, "appendfsync is everysec, and must be always"),
        ({"no_appendfsync_on_rewrite": "yes"}, "no-appendfsync-on-rewrite is yes"),
        ({"maxmemory": "1", "maxmemory_policy": "volatile-lru"}, "must be noeviction"),
    ],
)
def test_full_is_refused_with_what_to_set_or_to_ask_for(config: dict[str, str], said: str) -> None:
    with pytest.raises(NotAllowed, match=said) as caught:
        judge("redis://x:1/0", settings(**config), "full")

    assert "`appendfsync always`" in str(caught.value)
    assert 'durability="relaxed"' in str(caught.value)
    assert "redis://x:1/0" in str(caught.value)


def test_full_is_refused_where_it_cannot_be_confirmed() -> None:
    hidden = Settings({"redis_version": "7.2.4", "maxmemory": "0"}, None)

    with pytest.raises(NotAllowed, match="does not allow CONFIG GET"):
        judge("x", hidden, "full")
    assert judge("x", hidden, "relaxed") == "relaxed"


@pytest.mark.parametrize("asked", ["full", "relaxed"])
@pytest.mark.parametrize("hidden", [True, False])
def test_a_server_that_evicts_live_data_is_refused_at_every_level(asked: Any, hidden: bool) -> None:
    evicting = settings(maxmemory="100", maxmemory_policy="allkeys-lfu")
    if hidden:
        info = {"redis_version": "7.0", "maxmemory": "100", "maxmemory_policy": "allkeys-lfu"}
        evicting = Settings(info, None)

    with pytest.raises(NotAllowed, match="maxmemory-policy allkeys-lfu"):
        judge("x", evicting, asked)


def test_relaxed_takes_what_the_server_gives_and_says_what_that_is() -> None:
    snapshots = settings(appendonly="no", save="3600 1")

    assert judge("x", settings(appendfsync="everysec"), "relaxed") == "relaxed"
    assert judge("x", snapshots, "relaxed") == "relaxed"
    assert judge("x", settings(appendonly="no"), "relaxed") == "none"
    volatile = settings(maxmemory="1", maxmemory_policy="volatile-ttl")
    assert judge("x", volatile, "relaxed") == "relaxed"


def test_a_server_that_is_too_old_is_refused() -> None:
    with pytest.raises(NotAllowed, match="Redis 6"):
        judge("x", Settings({"redis_version": "5.0.14"}, None), "relaxed")


# Durability, on real servers.


def test_full_is_refused_by_a_server_that_keeps_nothing(redis_url: str) -> None:
    for opening in (RedisStore, ropewalk.open):
        with pytest.raises(NotAllowed, match="appendonly is no"):
            opening(redis_url)
    with client(redis_url) as other:
        assert other.keys() == []

    with RedisStore(redis_url, durability="relaxed") as store:
        assert store.durability == "none"


def test_a_server_is_asked_again_when_it_has_changed() -> None:
    with (
        configured(KEEPS_ALL) as server,
        RedisStore(server.url) as store,
        client(server.url) as other,
    ):
        assert store.durability == "full"
        store.commit(SPACE)
        other.config_set("appendfsync", "everysec")
        other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        with pytest.raises(NotAllowed, match="appendfsync is everysec"):
            store.commit(SPACE)
        other.config_set("appendfsync", "always")
        assert store.commit(SPACE).sequence == 2


def test_an_evicting_server_is_refused() -> None:
    evicting = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    with (
        configured(evicting) as server,
        pytest.raises(NotAllowed, match="would remove live data"),
    ):
        RedisStore(server.url, durability="relaxed")


# Credentials.


@pytest.fixture(scope="module")
def guarded() -> Iterator[Configured]:
    """A server with a password, and users that may do less."""
    with configured({"requirepass": SECRET}) as server:
        with client(with_user(server, f":{SECRET}")) as admin:
            keys = ("~{ropewalk:default}*", "resetchannels", "&{ropewalk:default}*")
            run = ("+@read", "+@write", "+@scripting", "+publish", "+subscribe", "+ping", "+info")
            for name, rules in {
                "special": (f">{SPECIAL}", "~*", "&*", "+@all"),
                "agent": (f">{SECRET}", *keys, *run),
                "deaf": (f">{SECRET}", *keys, *run, "resetchannels"),
                "blind": (f">{SECRET}", *keys, *run, "-info"),
                "mute": (f">{SECRET}", *keys, *run, "-@scripting"),
                "reader": (f">{SECRET}", *keys, *run, "-@write"),
                "half": (f">{SECRET}", *keys, *run, "-rpush"),
                "elsewhere": (f">{SECRET}", "~other*", *run),
            }.items():
                admin.execute_command("ACL", "SETUSER", name, "on", *rules)
        yield server


def with_user(server: Configured, user: str) -> str:
    return server.url.replace("redis://", f"redis://{user}@")


@pytest.mark.parametrize("user", ["", ":wrong-" + SECRET, "nobody:" + SECRET, "agent:wrong"])
def test_wrong_credentials_are_not_allowed_and_name_the_setting(
    guarded: Configured, user: str
) -> None:
    url = with_user(guarded, user) if user else guarded.url

    with pytest.raises(NotAllowed, match="user and the password in the URL") as caught:
        RedisStore(url, durability="relaxed")

    assert_secret_is_kept(caught.value)


def test_a_password_for_a_server_that_has_none_is_said(redis_url: str) -> None:
    url = redis_url.replace("redis://", f"redis://:{SECRET}@")

    with pytest.raises(NotAllowed, match="without any password") as caught:
        RedisStore(url, durability="relaxed")

    assert_secret_is_kept(caught.value)


def test_special_characters_of_a_password_are_in_percent_code(guarded: Configured) -> None:
    url = with_user(guarded, f"special:{SPECIAL_IN_URL}")

    with RedisStore(url, durability="relaxed", name="special") as store:
        store.commit(SPACE)

        assert "p%40" not in repr(store) and "p@ss" not in repr(store)


def test_a_user_with_few_rights_can_do_all_that_is_needed(guarded: Configured) -> None:
    with RedisStore(with_user(guarded, f"agent:{SECRET}"), durability="relaxed") as store:
        store.commit(SPACE, [value("x")], moves=[Move(MAIN, None, value("x").id)])
        store.gc(recent=1)

        assert next(store.watch(SPACE)).sequence == 1
        assert store.durability == "relaxed"  # It may not ask, so it cannot know better.
    with pytest.raises(NotAllowed, match="does not allow CONFIG GET"):
        RedisStore(with_user(guarded, f"agent:{SECRET}"))


def test_a_user_who_may_not_publish_commits_all_the_same(guarded: Configured) -> None:
    with RedisStore(with_user(guarded, f"deaf:{SECRET}"), durability="relaxed") as store:
        before = store.view(SPACE).sequence

        assert store.commit(SPACE).sequence == before + 1
        assert [one.sequence for one in store.watch(SPACE, before, timeout=0.1)] == [before + 1]


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("blind", "does not allow INFO"),
        ("mute", "ACL SETUSER"),
        ("reader", "ACL SETUSER"),
        ("half", "RPUSH"),
        ("elsewhere", "ACL SETUSER"),
    ],
)
def test_a_user_with_too_few_rights_is_told_which_are_missing(
    guarded: Configured, user: str, said: str
) -> None:
    with pytest.raises(NotAllowed, match=said) as caught:
        RedisStore(with_user(guarded, f"{user}:{SECRET}"), durability="relaxed", name="default")

    assert_secret_is_kept(caught.value)


# Addresses.


def test_a_wrong_port_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unavailable, match="host and port") as caught:
        RedisStore(f"redis://me:{SECRET}@127.0.0.1:{_free_port()}/0", timeout=600)

    assert_secret_is_kept(caught.value)
    assert SECRET not in caplog.text


def test_a_host_that_nobody_knows_is_said() -> None:
    with pytest.raises(Unavailable, match=r"redis://no-such-host\.invalid:6379/0"):
        RedisStore("redis://no-such-host.invalid")


def test_a_database_that_is_not_there_is_said(redis_url: str) -> None:
    with pytest.raises(InvalidInput, match="no database of that number"):
        RedisStore(redis_url.replace("/0", "/999"), durability="relaxed")


def test_a_server_that_is_no_redis_is_said() -> None:
    import http.server
    import threading

    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(RopewalkError) as caught:
            RedisStore(f"redis://:{SECRET}@127.0.0.1:{server.server_port}/0", timeout=5)
    finally:
        server.shutdown()
        server.server_close()

    assert isinstance(caught.value, Unavailable)
    assert_secret_is_kept(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/x@host:6379/0",
        f"redis://user:{SECRET}#@host:6379/0",
        f"redis://user:{SECRET}@host:port/0",
        f"redis://user:{SECRET}@host:6379/zero",
        f"redis://user:{SECRET}@host:99999/0",
        f"redis://user:{SECRET}@",
        f"redis://user:{SECRET}@host/0?decode_responses=1",
        f"redis://user:{SECRET}@host/0?name={{x}}",
        f"redis://user:{SECRET}@host/0?durability=some",
        f"redis://user:{SECRET}@host/0?ssl_cert_reqs=none",
        f"rediss://user:{SECRET}@host/0?ssl_cert_reqs=some",
        f"rediss://user:{SECRET}@host/0?ssl_nothing=1",
        f"redis://user:{SECRET}@[host/0",
        f"redis//user:{SECRET}@host/0",
        f"http://user:{SECRET}@host/0",
        f"unix://user:{SECRET}@",
        f"redis://user:1/{SECRET}@host/0",
        f"redis://user:1/0?{SECRET}=@host/0",
        f"unix://user:1/{SECRET}@/run/redis.sock",
        "redis://",
        "",
        7,
        None,
    ],
)
def test_a_url_with_a_typo_is_refused_without_being_shown(url: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        RedisStore(url)

    assert_secret_is_kept(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host", "redis://host:6379/0"),
        ("rediss://u:p@host:7/3", "rediss://host:7/3"),
        ("redis://:p@[::1]:7?db=4", "redis://::1:7/4"),
        ("redis://host/", "redis://host:6379/0"),
        ("unix://u:p@/run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert read_address(url).shown == shown


def test_a_url_is_read_as_the_driver_reads_it() -> None:
    options = read_address("rediss://u%40x:p%2F@host:7/3?ssl_cert_reqs=none").options

    assert options["username"] == "u@x" and options["password"] == "p/"
    assert (options["host"], options["port"], options["db"]) == ("host", 7, 3)
    assert options["ssl_cert_reqs"] == "none"


@pytest.mark.parametrize("option", [{"timeout": 0}, {"timeout": "x"}, {"connections": 0}])
def test_an_option_that_makes_no_sense_is_refused(redis_url: str, option: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(option))):
        RedisStore(redis_url, durability="relaxed", **option)


def assert_secret_is_kept(error: BaseException) -> None:
    """Neither the error nor what led to it shows a password."""
    shown = "".join(traceback.format_exception(error))
    # The lines of this file that are quoted there hold the URL; the messages must not.
    messages = [str(error), repr(error), str(error.__cause__), repr(error.__cause__)]
    assert not any(SECRET in message for message in messages)
    assert SECRET not in shown.replace("{SECRET}", "")
