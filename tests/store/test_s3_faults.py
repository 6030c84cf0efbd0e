"""A store in a bucket whose requests fail: nothing told is lost, nothing is done twice."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ropewalk.errors import NotAllowed, RopewalkError, Unavailable
from ropewalk.history import History
from ropewalk.store import Move, S3Store, Store
from ropewalk.store.s3.bucket import Got
from ropewalk.testing import Fault, fail_every_call
from ropewalk.testing.faults import FAULTS
from ropewalk.testing.helpers import MAIN, SPACE, value
from tests.conftest import SOAK
from tests.history.test_faults import VALUES, Agent
from tests.s3_server import url_of
from tests.store.s3_memory import MemoryBucket, MemoryS3Store, no_answer


def test_a_history_tells_the_truth_whatever_call_fails(s3_endpoint: str) -> None:
    agent = Agent()

    def fresh() -> Callable[[], Store]:
        url = url_of(s3_endpoint, f"test-{os.urandom(6).hex()}")
        return lambda: S3Store(url)

    faults = FAULTS if SOAK else [Fault.lost_reply]
    assert fail_every_call(fresh, agent, agent.check, faults=faults) > len(VALUES)


def test_a_history_in_memory_tells_the_truth_whatever_call_fails() -> None:
    agent = Agent()

    def fresh() -> Callable[[], Store]:
        data: dict[str, bytes] = {}
        return lambda: MemoryS3Store(MemoryBucket(data))

    assert fail_every_call(fresh, agent, agent.check) > 4 * len(VALUES)


class Faulty(MemoryBucket):
    """Fails from the n-th request on, for as many as a test says."""

    def __init__(self, data: dict[str, bytes], at: int, times: int, lost: bool) -> None:
        super().__init__(data)
        self.count, self.at, self.times = 0, at, times
        if lost:
            self.after = self.fail
        else:
            self.before = self.fail

    def fail(self, request: str) -> None:
        self.count += 1
        if self.at <= self.count < self.at + self.times:
            no_answer()


def attempt(data: dict[str, bytes], at: int, times: int, lost: bool) -> tuple[int, bool]:
    """Let an agent work in a bucket; how many requests there were, and whether it finished."""
    agent = Agent()
    bucket = Faulty(data, at, times, lost)
    try:
        with MemoryS3Store(bucket) as store:
            agent(store)
        done = True
    except Unavailable:
        done = False
    with MemoryS3Store(MemoryBucket(data)) as again:
        history = History(again, SPACE)
        operations = history.operations()
        values = {name: history.value(name) for name in history.branches()}
        assert agent.told <= len(operations) <= agent.told + 1
        assert values == VALUES[len(operations)]
        assert again.check(read_data=True).problems == ()
        again.gc(recent=1)
        assert {name: history.value(name) for name in history.branches()} == values
        assert again.check(read_data=True).problems == ()
    return bucket.count, done


@pytest.mark.parametrize("lost", [False, True], ids=["not sent", "reply lost"])
@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "from there on"])
def test_whichever_request_fails_what_was_told_is_there(lost: bool, times: int) -> None:
    requests, done = attempt({}, 10**6, 0, lost)
    assert done

    finished = [attempt({}, at, times, lost)[1] for at in range(1, requests + 1)]

    assert finished.count(False) > 10


def test_a_conditional_put_whose_reply_was_lost_is_recognised() -> None:
    bucket = MemoryBucket({})
    store = MemoryS3Store(bucket)
    one = value("one")
    lost: list[str] = []

    def lose(request: str) -> None:
        if request == "put_if" and not lost:
            lost.append(request)
            no_answer()

    bucket.after = lose
    done = store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)])

    assert lost and done.sequence == 1
    assert store.operations(SPACE) == [done]


def test_a_put_that_comes_through_after_it_was_given_up_happens_once() -> None:
    bucket = MemoryBucket({})
    store = MemoryS3Store(bucket)
    store.commit(SPACE)
    late: list[Callable[[], object]] = []
    real = bucket.put_if

    def delayed(key: str, data: bytes, e_tag: str | None) -> str | None:
        if not late:
            late.append(lambda: real(key, data, e_tag))
            no_answer()
        if len(late) == 1:
            late.append(lambda: None)
            late[0]()  # The first arrives just before its repetition.
        return real(key, data, e_tag)

    bucket.put_if = delayed  # type: ignore[method-assign]
    one = value("one")
    done = store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)])

    assert done.sequence == 2
    assert store.view(SPACE).sequence == 2


def test_bytes_that_come_back_are_not_taken_for_the_same_version() -> None:
    data: dict[str, bytes] = {}
    slow, fast = (MemoryS3Store(MemoryBucket(data)) for _ in range(2))
    slow.commit(SPACE)
    for _ in range(3):
        lease = fast.acquire(SPACE, "lease/one", "a", 10)
        fast.release(lease)

    with pytest.raises(RopewalkError):
        slow.commit(SPACE, moves=[Move(MAIN, value("absent").id, None)])

    assert slow.commit(SPACE).sequence == 2


class DoesTwice(MemoryBucket):
    """Does each conditional put twice, and gives the second answer."""

    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        super().put_if(key, data, e_tag)
        return super().put_if(key, data, e_tag)


def test_a_server_that_does_each_put_twice_is_one_to_work_with() -> None:
    data: dict[str, bytes] = {}
    store = MemoryS3Store(DoesTwice(data))
    branch = History(store, SPACE).open()
    for step in range(40):
        branch.commit({"step": step})
    store.gc(recent=1)

    again = History(MemoryS3Store(MemoryBucket(data)), SPACE)
    assert [again.value(one)["step"] for one in again.steps()] == list(range(40))[::-1]
    assert again.store.check(read_data=True).ok


class IgnoresCreate(MemoryBucket):
    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        if e_tag is None:
            self.data.pop(key, None)
        return super().put_if(key, data, e_tag)


class IgnoresMatch(MemoryBucket):
    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        if e_tag is None:
            return super().put_if(key, data, e_tag)
        self.put(key, data)
        return "tag"


class RefusesEveryMatch(MemoryBucket):
    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        return super().put_if(key, data, e_tag) if e_tag is None else None


class GivesNoTags(MemoryBucket):
    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        return None if super().put_if(key, data, e_tag) is None else ""


@pytest.mark.parametrize("bucket", [RefusesEveryMatch, GivesNoTags])
def test_a_server_on_which_nothing_could_be_replaced_is_refused(bucket: type[MemoryBucket]) -> None:
    data: dict[str, bytes] = {}

    with pytest.raises(NotAllowed, match="refuses it"):
        MemoryS3Store(bucket(data))

    assert data == {}


@pytest.mark.parametrize(
    ("bucket", "condition"), [(IgnoresCreate, "If-None-Match"), (IgnoresMatch, "If-Match")]
)
def test_a_server_that_ignores_a_condition_is_refused_and_left_as_it_was(
    bucket: type[MemoryBucket], condition: str
) -> None:
    data: dict[str, bytes] = {"other": b"1"}

    with pytest.raises(NotAllowed, match=f"ignores {condition}"):
        MemoryS3Store(bucket(data))

    assert data == {"other": b"1"}


# How many requests there are.


def test_a_small_commit_is_one_request() -> None:
    bucket = MemoryBucket({})
    store = MemoryS3Store(bucket)
    branch = History(store, SPACE).open()
    branch.commit({"notes": []})
    counts: list[int] = []
    for step in range(100):
        bucket.requests.clear()
        branch.commit({"notes": [f"note {number}" for number in range(step)]})
        counts.append(len(bucket.requests))

    assert counts == [1] * 100


def test_a_new_process_reads_a_long_history_with_few_requests() -> None:
    data: dict[str, bytes] = {}
    store = MemoryS3Store(MemoryBucket(data))
    branch = History(store, SPACE).open()
    for step in range(300):
        branch.commit({"step": step, "notes": ["a note"] * step})
    store.close()
    bucket = MemoryBucket(data)
    again = MemoryS3Store(bucket)

    bucket.requests.clear()
    assert History(again, SPACE).value()["step"] == 299

    assert len(bucket.requests) < 12
    assert len([key for key in data if key.startswith("ropewalk/part/")]) < 10
    assert again.check(read_data=True).ok


def test_who_follows_another_process_asks_once_for_each_step() -> None:
    data: dict[str, bytes] = {}
    writer = History(MemoryS3Store(MemoryBucket(data)), SPACE).open()
    bucket = MemoryBucket(data)
    store = MemoryS3Store(bucket)
    seen = 0
    for step in range(20):
        writer.commit({"step": step})
        bucket.requests.clear()
        (operation,) = store.operations(SPACE, after=seen)
        seen = operation.sequence
        assert bucket.requests == ["get"] if step else len(bucket.requests) <= 2
        assert History(store, SPACE).value() == {"step": step}
        if step > 2:
            assert len(bucket.requests) <= 6


def test_a_value_that_has_not_changed_is_not_sent_again() -> None:
    bucket = MemoryBucket({})
    store = MemoryS3Store(bucket)
    store.commit(SPACE, [value("x" * 5000)])
    sent: list[int] = []
    real = bucket.get

    def noted(key: str, known: str | None = None) -> Got | None:
        found = real(key, known)
        sent.append(0 if found is None else len(found.data))
        return found

    bucket.get = noted  # type: ignore[method-assign]
    for _ in range(5):
        store.view(SPACE)

    assert sent == [0] * 5
