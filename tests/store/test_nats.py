"""The NATS server of the tests, and the example of a key-value store on it."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

import nats
import pytest
from nats.js.api import KeyValueConfig
from nats.js.errors import KeyWrongLastSequenceError

from examples.nats_store import NatsStore
from ropewalk import Timeline, Unavailable
from ropewalk.store import KeyValueStore
from ropewalk.testing import KVStoreContract
from ropewalk.testing.helpers import Opener
from ropewalk.testing.key_values import KVOpener
from tests.store.records.contract import CellContract

EXAMPLE = Path(__file__).parents[2] / "examples/nats_store.py"
_numbers = itertools.count()


def new_bucket() -> str:
    """A name that no other test has."""
    return f"test-{os.getpid()}-{next(_numbers)}"


class TestNatsStore(KVStoreContract):
    @pytest.fixture
    def open_kv(self, nats_url: str) -> KVOpener:
        bucket = new_bucket()
        return lambda: NatsStore(nats_url, bucket)


class TestStoreOnNats(CellContract):
    @pytest.fixture
    def open_store(self, nats_url: str) -> Opener:
        bucket = new_bucket()
        return lambda clock: KeyValueStore(NatsStore(nats_url, bucket), clock=clock)


def test_a_message_that_is_published_is_received(nats_url: str) -> None:
    async def talk() -> bytes:
        async with await nats.connect(nats_url) as client:
            subject = client.new_inbox()
            heard = await client.subscribe(subject)
            await client.publish(subject, b"hello")
            return (await heard.next_msg(timeout=10)).data

    assert asyncio.run(talk()) == b"hello"


def test_of_two_who_replace_one_revision_of_a_key_one_is_refused(nats_url: str) -> None:
    async def race() -> bytes | None:
        async with await nats.connect(nats_url) as client:
            config = KeyValueConfig(bucket=new_bucket())
            bucket = await client.jetstream().create_key_value(config)
            revision = await bucket.put("key", b"before")
            await bucket.update("key", b"first", last=revision)
            with pytest.raises(KeyWrongLastSequenceError):
                await bucket.update("key", b"second", last=revision)
            return (await bucket.get("key")).value

    assert asyncio.run(race()) == b"first"


def test_an_agent_on_nats_is_there_for_the_next_process(nats_url: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), nats_url], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    with NatsStore(nats_url).as_store() as store:
        state = Timeline("researcher", store=store).get_state()
        assert state == {"task": "find cafes", "stage": "parse"}
        assert store.check(read_data=True).ok


def test_a_nats_server_that_is_gone_is_unavailable(nats_url: str) -> None:
    kv = NatsStore(nats_url, new_bucket())
    store = kv.as_store()
    kv._run(kv._client.close())

    with pytest.raises(Unavailable, match=r"NatsStore\.get_many failed"):
        store.refs("test/one")
    kv._stop()
