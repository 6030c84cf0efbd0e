"""The contracts, on the Redis example of the documentation and a real server."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import KVStore, Timeline, Unavailable
from holdfast.store import KeyValueStore
from holdfast.testing import KVStoreContract, StoreContract
from holdfast.testing._key_values import KVOpener
from holdfast.testing._stores._base import Opener

PAGE = Path(__file__).parents[2] / "docs/in-depth/own-storage.md"
LINES = 45


def source() -> str:
    """The block of the page that has the class."""
    found = re.search(
        r"^```python\n((?:(?!^```).)*class RedisStore.*?)^```", PAGE.read_text(), re.M | re.S
    )
    assert found
    return found[1]


@pytest.fixture(scope="module")
def redis_store() -> Callable[[str], KVStore]:
    """The class of the page."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(source(), str(PAGE), "exec", dont_inherit=True), names)
    found: Callable[[str], KVStore] = names["RedisStore"]
    return found


class TestRedisStore(KVStoreContract):
    @pytest.fixture
    def open_kv(self, redis_store: Callable[[str], KVStore], redis_url: str) -> KVOpener:
        return lambda: redis_store(redis_url)


class TestStoreOnRedis(StoreContract):
    @pytest.fixture
    def open_store(self, redis_store: Callable[[str], KVStore], redis_url: str) -> Opener:
        return lambda clock: KeyValueStore(redis_store(redis_url), clock=clock)


def test_the_example_is_short() -> None:
    written = source().partition("class RedisStore")[2].splitlines()

    assert len(written) <= LINES


def test_several_processes_share_an_agent_on_redis(
    redis_store: Callable[[str], KVStore], redis_url: str
) -> None:
    with redis_store(redis_url).as_store() as store:
        Timeline("agent", store=store).checkpoint({"step": 1})

    with redis_store(redis_url).as_store() as again:
        assert Timeline("agent", store=again).get_state() == {"step": 1}
        assert again.check(read_data=True).ok


def test_a_server_that_does_not_answer_is_unavailable(
    redis_store: Callable[[str], KVStore],
) -> None:
    kv = redis_store("redis://127.0.0.1:1/0")

    with pytest.raises(Unavailable, match=r"RedisStore\.get failed"):
        kv.as_store()
