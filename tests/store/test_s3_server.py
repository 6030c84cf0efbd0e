"""A store in a bucket among processes, and on a server that dies, hangs or refuses."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

import ropewalk
from ropewalk.errors import (
    InvalidInput,
    NotAllowed,
    NotFound,
    RopewalkError,
    StoreFull,
    Unavailable,
)
from ropewalk.history import History
from ropewalk.store import CachedStore, Move, S3Store, Store
from ropewalk.store.records.cells import PACKS
from ropewalk.testing.helpers import MAIN, SPACE, in_threads, value
from ropewalk.tree import Kind, make_object
from tests.conftest import SOAK
from tests.patience import PATIENCE, patiently
from tests.proxy import Proxy
from tests.s3_server import (
    BUCKET,
    KEY,
    SECRET,
    STRANGER,
    STRANGERS_SECRET,
    own_server,
    url_of,
)
from tests.store.test_processes import ROOT, acknowledged, begin, check_log, lines_of, rest_of

CLIENT_ROUNDS = 50 if SOAK else 4
SERVER_ROUNDS = 10 if SOAK else 1
PROCESSES = 8


def start(url: str, *arguments: object) -> subprocess.Popen[str]:
    """A worker that is ready to begin."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.store.s3_workers", url, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


# Processes.


def test_eight_processes_on_one_branch_lose_nothing(s3_url: str) -> None:
    S3Store(s3_url).close()
    names = [f"process {number}" for number in range(PROCESSES)]
    workers = [start(s3_url, "share", name, 1, 200 if SOAK else 60) for name in names]

    for worker in workers:
        begin(worker)
    outputs = [worker.communicate()[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    told = [acknowledged(output) for output in outputs]
    with S3Store(s3_url) as store:
        operations = store.operations(SPACE, limit=10_000)
        assert [one.sequence for one in operations] == list(range(1, len(operations) + 1))
        assert sum(map(len, told)) == len(operations)
        before = None
        for operation in operations:
            (move,) = operation.moves
            assert move.expected == before
            by = names.index(str(operation.metadata["by"]))
            assert told[by][operation.sequence] == move.target
            before = move.target
        store.reader(SPACE)([move.target or b"" for one in operations for move in one.moves])


def test_a_killed_writer_takes_nothing_that_was_acknowledged(s3_url: str) -> None:
    choose = random.Random(2024)
    told: dict[int, bytes] = {}
    for round_number in range(CLIENT_ROUNDS):
        worker = start(s3_url, "write", round_number)
        begin(worker)
        lines = "".join(lines_of(worker, choose.randrange(1, 30)))
        time.sleep(choose.random() * 0.02)  # Anywhere in a commit, not just after one.
        worker.kill()
        told |= acknowledged(lines + rest_of(worker))

        with S3Store(s3_url) as store:
            check_log(store, told)
    with S3Store(s3_url) as store:
        assert store.check(read_data=True).ok


def test_a_killed_collection_beside_a_killed_writer_harms_nothing(s3_url: str) -> None:
    choose, freed = random.Random(2025), 0
    for round_number in range(CLIENT_ROUNDS // 2):
        writer, collector = start(s3_url, "write", round_number), start(s3_url, "collect")
        begin(writer)
        lines = "".join(lines_of(writer, 20))
        begin(collector)
        freed += sum(map(int, lines_of(collector, choose.randrange(1, 4))))
        time.sleep(choose.random() * 0.05)
        workers = [writer, collector]
        choose.shuffle(workers)
        for worker in workers:
            worker.kill()
        told = acknowledged(lines + rest_of(writer))
        rest_of(collector)

        with S3Store(s3_url) as store:
            assert store.check(read_data=True).problems == ()
            head = store.ref(SPACE, MAIN)
            assert head is not None and head.sequence >= max(told)
            assert head.target == told.get(head.sequence, head.target)
    assert freed > 0


def test_a_killed_server_takes_nothing_that_was_acknowledged() -> None:
    choose = random.Random(2026)
    with own_server() as server:
        url = url_of(server.endpoint, "store")
        S3Store(url).close()
        workers = [start(url, "insist", name) for name in ("a", "b")]
        lines = dict.fromkeys(workers, "")
        for worker in workers:
            begin(worker)
        for _ in range(SERVER_ROUNDS):
            for worker in workers:
                lines[worker] += "".join(lines_of(worker, choose.randrange(5, 25)))
            server.kill()
            server.start()
        for worker in workers:
            lines[worker] += "".join(lines_of(worker, 5))
            worker.kill()
            lines[worker] += rest_of(worker)

        told = acknowledged("".join(lines.values()))
        with S3Store(url) as store:
            check_log(store, told)
            assert store.check(read_data=True).ok
    assert len(told) >= 10 * SERVER_ROUNDS


def test_two_hundred_tasks_share_a_store(s3_url: str) -> None:
    async def work(store: Store, number: int) -> int:
        one = value(f"task {number}")
        space = f"test/task-{number}"
        await store.acommit(space, [one], moves=[Move(MAIN, None, one.id)], share=True)
        ref = await store.aref(space, MAIN)
        assert ref is not None
        (read,) = await store.aread([ref.target])
        assert read == one
        return 1

    async def all_of_them() -> int:
        async with S3Store(s3_url) as store:
            ticks = 0
            tasks = asyncio.gather(*(work(store, number) for number in range(200)))
            while not tasks.done():
                await asyncio.sleep(0.001)
                ticks += 1
            assert ticks > 10  # The loop was free meanwhile.
            return sum(await tasks)

    assert asyncio.run(all_of_them()) == 200
    with S3Store(s3_url) as store:
        assert len(store.spaces()) == 200


def test_a_cache_in_front_of_a_bucket_serves_no_moved_ref_as_current(s3_url: str) -> None:
    with S3Store(s3_url) as writer, CachedStore(S3Store(s3_url)) as cached:
        branch = History(writer, SPACE).open()
        for step in range(5):
            branch.commit({"step": step})
            assert History(cached, SPACE).value() == {"step": step}


def test_threads_on_one_store_object_lose_nothing(s3_url: str) -> None:
    with S3Store(s3_url) as store:

        def work(number: int) -> None:
            for step in range(5):
                store.commit(SPACE, [make_object(Kind.CHUNK, f"{number} {step}".encode())])

        in_threads(8, work)

        assert store.view(SPACE).sequence == 40
        assert store.check(read_data=True).ok


def test_a_collection_that_has_long_logs_to_follow_comes_to_its_end(s3_url: str) -> None:
    spaces = [f"test/{number}" for number in range(20)]
    with S3Store(s3_url, threads=20) as store:

        def work(number: int) -> None:
            for _ in range(35):
                store.commit(spaces[number])

        in_threads(20, work)
        one = make_object(Kind.CHUNK, b"unreached")
        store.commit(spaces[0], [one])
    with S3Store(s3_url) as again:
        assert again.gc(recent=1).freed == 1
        assert again.spaces() == sorted(spaces)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_told_to_spawn(s3_url: str) -> None:
    script = (
        "import os, sys\n"
        "from ropewalk.store import S3Store\n"
        "store = S3Store(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for use in (store.spaces, lambda: S3Store(sys.argv[1])):\n"
        "        try:\n"
        "            use()\n"
        "        except Exception as error:\n"
        "            print(type(error).__name__, 'spawn' in str(error), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(store.spaces())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, s3_url], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines() == ["Unavailable True", "Unavailable True", "[]"], done.stderr


# A network that is bad.


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    place = urlsplit(s3_endpoint)
    assert place.hostname and place.port
    with Proxy(place.hostname, place.port) as between:
        yield between


def through(proxy: Proxy) -> str:
    return url_of(f"http://{proxy.host}:{proxy.port}", f"test-{os.urandom(6).hex()}")


def test_a_server_that_hangs_is_unavailable_and_then_found_again(proxy: Proxy) -> None:
    url = through(proxy)
    with patiently(lambda: S3Store(url, timeout=2)) as store:
        first = patiently(lambda: store.commit(SPACE, write_id="first"))
        proxy.stall()

        with pytest.raises(Unavailable, match="no reply in time"):
            store.commit(SPACE, write_id="second")
        with pytest.raises(Unavailable):
            store.view(SPACE)

        proxy.resume()
        assert patiently(lambda: store.commit(SPACE, write_id="first")) == first
        assert patiently(lambda: store.commit(SPACE, write_id="second")).sequence == 2
        assert patiently(lambda: store.view(SPACE)).sequence == 2


def test_a_server_that_hangs_at_opening_is_unavailable(proxy: Proxy) -> None:
    proxy.stall()

    with pytest.raises(Unavailable, match="endpoint"):
        S3Store(through(proxy), timeout=0.5)


def test_a_server_that_refuses_connections_is_unavailable_and_then_found_again(
    proxy: Proxy,
) -> None:
    url = through(proxy)
    with patiently(lambda: S3Store(url, timeout=5)) as store:
        patiently(lambda: store.commit(SPACE, write_id="first"))
        proxy.refuse()

        with pytest.raises(Unavailable, match="no connection"):
            store.commit(SPACE, write_id="second")

        proxy.accept()
        assert patiently(lambda: store.commit(SPACE, write_id="second")).sequence == 2


def test_connections_that_are_dropped_are_made_again(proxy: Proxy) -> None:
    with S3Store(through(proxy), timeout=PATIENCE) as store:
        for number in range(1, 11):
            one = value(f"value {number}")
            assert store.commit(SPACE, [one], share=True).sequence == number
            proxy.cut()
            assert store.read([one.id]) == [one]
            assert store.view(SPACE).sequence == number


def test_a_reply_that_is_lost_on_the_way_is_recognised(proxy: Proxy) -> None:
    with S3Store(through(proxy), timeout=PATIENCE) as store:
        store.commit(SPACE)
        proxy.drop_replies(after=b"if-match", once=True)

        done = store.commit(SPACE, [value("one")], write_id="w")

        assert proxy.lost.is_set()
        assert done.sequence == 2
        assert store.operations(SPACE)[-1] == done
        assert store.view(SPACE).sequence == 2


# What is wrong with a URL, and with who asks.


def refused(url: str, **options: object) -> RopewalkError:
    """What is said when a store is opened; no secret is in it."""
    with pytest.raises(RopewalkError) as caught:
        S3Store(url, timeout=2, **options)  # type: ignore[arg-type]
    shown: BaseException | None = caught.value
    while shown is not None:
        text = f"{shown} {shown!r}"
        assert "secret" not in re.sub("secret_access_key|key:secret", "", text)
        shown = shown.__cause__
    return caught.value


def test_wrong_credentials_are_not_allowed(s3_endpoint: str) -> None:
    wrong = refused(url_of(s3_endpoint, "x", f"{KEY}:wrong-secret"))
    unknown = refused(url_of(s3_endpoint, "x", "nobody:some-secret"))

    assert isinstance(wrong, NotAllowed) and "SignatureDoesNotMatch" in str(wrong)
    assert isinstance(unknown, NotAllowed) and "access_key_id" in str(unknown)


def test_a_bucket_that_does_not_exist_is_not_found(s3_endpoint: str) -> None:
    error = refused(url_of(s3_endpoint, "x", f"{STRANGER}:{STRANGERS_SECRET}", bucket="nowhere"))

    assert isinstance(error, NotFound) and "no such bucket" in str(error)


def test_a_store_that_does_not_exist_is_not_made_unasked(s3_url: str) -> None:
    assert isinstance(refused(s3_url, create=False), NotFound)
    with pytest.raises(NotFound):
        ropewalk.open(s3_url, create=False)

    ropewalk.open(s3_url).close()
    ropewalk.open(s3_url, create=False).close()


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://nowhere.invalid"])
def test_an_endpoint_with_a_typo_is_unavailable(endpoint: str) -> None:
    error = refused(url_of(endpoint, "x"))

    assert isinstance(error, Unavailable) and "endpoint" in str(error)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://", "no name of a bucket"),
        ("s3:///prefix", "no name of a bucket"),
        ("s3://key-secret@bucket/x", "both"),
        ("s3://key:secret@buc ket/x", "no name of a bucket"),
        ("s3://key:secret/+x@bucket/x", "%2F"),
        ("s3://key:x/secret@bucket/x", "%2F"),
        ("s3://key:secret?x@bucket/x", "%2F"),
        ("s3://bucket/a/../b", "prefix"),
        ("s3://bucket/a b", "prefix"),
        ("s3://bucket/x?endpont=https://host", "no setting 'endpont'"),
        ("s3://bucket/x?endpoint", "name=value"),
        ("s3://bucket/x?endpoint=ftp://host", "endpoint"),
        ("s3://bucket/x?endpoint=http://host:port", "endpoint"),
        ("s3://bucket/x?region=", "region"),
        ("s3://bucket/x#y", "#"),
        ("https://bucket/x", "s3://"),
    ],
)
def test_a_url_with_a_typo_is_refused(url: str, reason: str) -> None:
    error = refused(url)

    assert isinstance(error, InvalidInput) and reason in str(error)


def test_a_size_limit_is_refused(s3_url: str) -> None:
    with pytest.raises(InvalidInput, match="quota"):
        ropewalk.open(s3_url, size_limit=10**9)


def test_no_secret_is_shown(s3_url: str) -> None:
    with S3Store(s3_url) as store:
        shown = f"{store!r} {store} {store.url} {vars(store)!r}"

    assert SECRET in s3_url and SECRET not in shown
    assert store.url.startswith(f"s3://{BUCKET}/")


def test_keys_may_be_given_by_name(s3_url: str) -> None:
    bare = s3_url.replace(f"{KEY}:{SECRET}@", "")

    with S3Store(bare, access_key_id=KEY, secret_access_key=SECRET) as store:
        assert store.commit(SPACE).sequence == 1
        assert store.durability == "full"


def test_keys_that_are_given_are_not_mixed_with_those_of_the_environment(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")

    with S3Store(s3_url) as store:
        assert store.commit(SPACE).sequence == 1


class IgnoresConditions(BaseHTTPRequestHandler):
    """A server as there are some: it takes every put."""

    data: dict[str, bytes]

    def do_PUT(self) -> None:
        self.data[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"", ETag='"tag"')

    def do_GET(self) -> None:
        if "list-type" in self.path:
            self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated>"
                              b"</ListBucketResult>")  # fmt: skip
        elif self.path in self.data:
            self._answer(200, self.data[self.path], ETag='"tag"',
                         **{"Last-Modified": "Mon, 16 Nov 2026 00:00:00 GMT"})  # fmt: skip
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>(.*?)</Key>", asked)
        for key in keys:
            self.data.pop(f"{urlsplit(self.path).path}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, content in headers.items():
            self.send_header(name, content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "code", "kind", "hint"),
    [
        (301, "PermanentRedirect", NotAllowed, "region"),
        (400, "ExpiredToken", NotAllowed, "session_token"),
        (403, "RequestTimeTooSkewed", NotAllowed, "clock"),
        (403, "AccessDenied", NotAllowed, "access_key_id"),
        (409, "OperationAborted", Unavailable, "OperationAborted"),
        (412, "PreconditionFailed", Unavailable, "PreconditionFailed"),
        (503, "SlowDown", Unavailable, "SlowDown"),
        (507, "InsufficientStorage", StoreFull, "quota"),
    ],
)
def test_what_a_server_says_names_the_setting_and_is_not_quoted(
    status: int, code: str, kind: type[RopewalkError], hint: str
) -> None:
    said = f"<Error><Code>{code}</Code><Message>your secret is secret</Message></Error>".encode()
    refuses = {"do_GET": lambda handler: handler._answer(status, said)}
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (IgnoresConditions,), {"data": {}, **refuses})
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        error = refused(url_of(f"http://127.0.0.1:{server.server_port}", "x"))
    finally:
        server.shutdown()
        server.server_close()

    assert isinstance(error, kind) and hint in str(error)


def test_a_server_that_ignores_conditions_is_refused() -> None:
    handler = type("Handler", (IgnoresConditions,), {"data": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            error = refused(url_of(f"http://127.0.0.1:{server.server_port}", "x"))
        finally:
            server.shutdown()
            thread.join()

    assert isinstance(error, NotAllowed) and "ignores If-None-Match" in str(error)
    assert handler.data == {}  # type: ignore[attr-defined]


# Damage.


def test_a_lost_header_is_not_taken_for_an_empty_store(s3_url: str) -> None:
    with S3Store(s3_url) as store:
        store.commit(SPACE, [value("one")])
        store._bucket.delete(["ropewalk/header"])

    with pytest.raises(ropewalk.Corrupt, match="header"):
        S3Store(s3_url)


def test_a_pack_that_is_gone_is_missed_and_nothing_else(s3_url: str) -> None:
    with S3Store(s3_url) as store:
        first, second = value("first"), value("second")
        store.commit(SPACE, [first], moves=[Move("branch/first", None, first.id)], share=True)
        (pack,) = store._parts.keys(PACKS)
        store.commit(SPACE, [second], moves=[Move("branch/second", None, second.id)], share=True)
        store._parts.remove([pack])
    with S3Store(s3_url) as again:
        with pytest.raises(ropewalk.Corrupt, match="pack"):
            again.read([first.id])
        assert again.read([second.id]) == [second]
        problems = again.check().problems

    assert [one.code for one in problems] == ["bad-engine", "damaged-object"]
    assert problems[0].subject == pack


def test_a_store_from_before_the_first_release_is_refused(s3_url: str) -> None:
    with S3Store(s3_url) as store:
        store._bucket.put("ropewalk/header", bytes(8) + b"ropewalk\x01" + bytes(40))

    with pytest.raises(NotAllowed, match="has format 1, from before the first release"):
        S3Store(s3_url)
