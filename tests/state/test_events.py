"""Events: what is kept of the calls of tasks, and how it is found again."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ropewalk.errors import InvalidInput, NotFound
from ropewalk.state import (
    ActionEvent,
    Described,
    Event,
    FailEvent,
    Live,
    OutputEvent,
    State,
    SuccessEvent,
    TaskStartEvent,
    Versioned,
    events,
    record,
    task,
)
from ropewalk.store import MemoryStore, SqliteStore

KINDS = [TaskStartEvent, ActionEvent, OutputEvent, SuccessEvent]


@task
def add(number: int, state: State) -> int:
    """Add to a total."""
    state["total"] = state.get("total", 0) + number
    return int(state["total"])


@task
def fail(message: str, state: State) -> None:
    """Change something and fail."""
    state["half"] = "done"
    raise ValueError(message)


@pytest.fixture(params=[Live, Versioned])
def state(request: pytest.FixtureRequest) -> State:
    made: State = request.param()
    return made


def test_a_call_leaves_its_events_in_order(state: State) -> None:
    add(2, state=state)

    found = events(state)
    assert [type(one) for one in found] == KINDS
    assert {one.task for one in found} == {"add"}
    assert len({one.run for one in found}) == 1
    assert [one.kind for one in found] == [kind.__name__ for kind in KINDS]


def test_events_say_what_was_given_and_what_came_out(state: State) -> None:
    add(2, state=state)

    start, action, output, success = events(state)
    assert isinstance(start, TaskStartEvent) and start.inputs == {"number": 2}
    assert isinstance(action, ActionEvent) and action.name == "add"
    assert isinstance(output, OutputEvent) and output.output == 2
    assert isinstance(success, SuccessEvent) and success.result == 2
    assert success.duration >= 0


def test_a_failure_is_an_event_too(state: State) -> None:
    with pytest.raises(ValueError, match="no luck"):
        fail("no luck", state=state)

    start, action, failure = events(state)
    assert isinstance(start, TaskStartEvent) and isinstance(action, ActionEvent)
    assert isinstance(failure, FailEvent)
    assert (failure.error, failure.message) == ("ValueError", "no luck")
    assert "raise ValueError(message)" in failure.traceback


def test_times_are_in_utc_and_do_not_go_back(state: State) -> None:
    before = datetime.now(UTC)
    add(1, state=state)
    after = datetime.now(UTC)

    times = [one.time for one in events(state)]
    assert all(one.utcoffset() == timedelta(0) for one in times)
    assert before <= times[0] <= times[-1] <= after


def test_events_come_oldest_first_unless_asked_otherwise(state: State) -> None:
    add(1, state=state)
    add(2, state=state)

    outputs = [one.output for one in events(state) if isinstance(one, OutputEvent)]
    assert outputs == [1, 3]
    assert events(state, newest_first=True) == events(state)[::-1]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (None, 11),
        (Event, 11),
        (OutputEvent, 2),
        ("OutputEvent", 2),
        ([OutputEvent, FailEvent], 3),
        (("OutputEvent", FailEvent), 3),
        ("NoSuchEvent", 0),
        ([], 0),
    ],
)
def test_events_are_found_by_their_kind(state: State, kind: Any, count: int) -> None:
    add(1, state=state)
    add(2, state=state)
    with pytest.raises(ValueError, match="x"):
        fail("x", state=state)

    assert len(events(state, kind=kind)) == count


def test_events_are_found_by_task_and_by_run(state: State) -> None:
    add(1, state=state)
    add(2, state=state)
    with pytest.raises(ValueError, match="x"):
        fail("x", state=state)

    last_add = events(state, task="add")[-1]
    assert {one.task for one in events(state, task="fail")} == {"fail"}
    assert len(events(state, task="add")) == 8
    assert len(events(state, run=last_add.run)) == 4


def test_events_are_found_by_time(state: State) -> None:
    add(1, state=state)
    first = events(state)[-1].time
    add(2, state=state)

    assert len(events(state, until=first)) == 4
    assert len(events(state, since=first)) == 5
    assert events(state, since=first, until=first) == [events(state)[3]]


def test_a_limit_takes_the_newest(state: State) -> None:
    add(1, state=state)
    add(2, state=state)

    assert events(state, limit=3) == events(state)[-3:]
    assert events(state, limit=3, newest_first=True) == events(state)[:-4:-1]
    assert events(state, limit=0) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": 3},
        {"kind": int},
        {"since": datetime(2026, 1, 1)},
        {"until": "yesterday"},
        {"limit": -1},
        {"limit": True},
    ],
)
def test_what_cannot_be_asked_for_is_refused(state: State, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        events(state, **wrong)


def test_what_keeps_no_events_is_refused() -> None:
    with pytest.raises(InvalidInput, match="keeps no events"):
        events({"a": 1})  # type: ignore[call-overload]


def test_events_of_a_namespace_are_those_inside_it(state: State) -> None:
    add(1, state=state)
    add(2, state=state.namespace("a"))
    add(3, state=state.namespace("a").namespace("b"))

    assert len(events(state)) == 12
    assert len(events(state.namespace("a"))) == 8
    assert len(events(state, namespace="a")) == 8
    assert len(events(state, namespace=("a", "b"))) == 4
    assert len(events(state.namespace("a"), namespace="b")) == 4
    assert [one.namespace for one in events(state, kind=OutputEvent)] == [(), ("a",), ("a", "b")]


# Commits.


def test_an_event_names_the_commit_of_its_own_step() -> None:
    state = Versioned()
    add(1, state=state)
    first = state.commit_hash
    add(2, state=state)

    one, two = events(state, kind=ActionEvent)
    assert one.commit_hash == one.after == first
    assert two.commit_hash == state.commit_hash
    assert two.before == first
    assert one.commit_hash is not None and state.checkout(one.commit_hash)["total"] == 1
    assert two.commit_hash is not None and state.checkout(two.commit_hash)["total"] == 3


def test_all_events_of_a_call_are_in_one_commit() -> None:
    state = Versioned()
    add(1, state=state)

    assert {one.commit_hash for one in events(state)} == {state.commit_hash}
    assert len(state.history()) == 1


# Moments in the middle of a task.


@task
def research(topic: str, state: Any = None) -> None:
    state["found"] = [topic]
    record("searched")
    state["found"].append("more")
    record("read on")
    state["found"].append("last")


def moments(state: Any) -> list[Any]:
    noted = [one for one in events(state, kind=ActionEvent) if one.name != "research"]
    return [state.checkout(one.commit_hash)["found"] for one in noted]


def test_an_event_in_the_middle_of_a_task_names_what_the_task_held_then() -> None:
    state = Versioned()
    state["found"] = []
    state.commit()

    research("x", state=state)

    assert moments(state) == [["x"], ["x", "more"]]
    assert state["found"] == ["x", "more", "last"]
    assert [one.description for one in state.history()] == ["research", ""]


def test_a_moment_can_be_checked_out_before_the_task_ends() -> None:
    store = MemoryStore()
    state = Versioned(store)
    held = []

    @task
    def work(state: Any = None) -> None:
        state["n"] = 1
        record("half")
        state["n"] = 2
        (event,) = [one for one in events(state, kind=ActionEvent) if one.name == "half"]
        assert event.commit_hash is not None
        held.append(Versioned(store).checkout(event.commit_hash)["n"])
        assert "n" not in Versioned(store)

    work(state=state)

    assert held == [1]


def test_a_moment_at_which_nothing_changed_is_the_last_commit() -> None:
    state = Versioned()
    state["n"] = 1
    before = state.commit()

    @task
    def look(state: Any = None) -> None:
        record("looked")
        state["n"] = 2
        record("changed")
        record("again")

    look(state=state)

    looked, changed, again = events(state, kind=ActionEvent)[1:]
    assert looked.commit_hash == before
    assert changed.commit_hash == again.commit_hash != before
    assert changed.commit_hash is not None and state.checkout(changed.commit_hash)["n"] == 2


def test_moments_of_a_task_that_failed_stay() -> None:
    with MemoryStore() as store:
        state = Versioned(store)
        state["n"] = 0
        state.commit()

        @task
        def fail(state: Any = None) -> None:
            state["n"] = 7
            record("about to fail")
            raise ValueError

        with pytest.raises(ValueError):
            fail(state=state)
        state["n"] = 1
        state.commit()
        store.gc(recent=0)

        (event,) = [one for one in events(state, kind=ActionEvent) if one.name != "fail"]
        assert event.commit_hash is not None
        assert state.checkout(event.commit_hash)["n"] == 7
        assert state["n"] == 1


def test_moments_of_a_task_that_went_well_outlive_a_collection() -> None:
    with MemoryStore() as store:
        state = Versioned(store)
        state["found"] = []
        state.commit()
        research("x", state=state)
        state["found"] = "else"
        state.commit()
        store.gc(recent=0)

        assert moments(state) == [["x"], ["x", "more"]]
        assert {ref.name.split("/")[0] for ref in store.refs("states/default")} == {"branch"}


def test_moments_beside_another_writer_are_those_of_the_task() -> None:
    store = MemoryStore()
    state, other = Versioned(store), Versioned(store)
    state["found"] = []
    state.commit()
    other.refresh()

    @task
    def slow(state: Any = None) -> None:
        state["found"].append("x")
        record("half")
        other["theirs"] = 1
        other.commit()

    slow(state=state)

    assert dict(state) == {"found": ["x"], "theirs": 1}
    assert moments(state)[-1:] == [["x"]]


def test_a_moment_in_a_transaction_that_is_taken_back_stays() -> None:
    state = Versioned()
    state["found"] = ["before"]
    state.commit()

    with suppress(ValueError), state.transaction():
        research("x", state=state)
        found = events(state, kind=ActionEvent)[-1].commit_hash
        raise ValueError
    state["other"] = 1
    state.commit()

    assert found is not None and state.checkout(found)["found"] == ["x", "more"]
    assert dict(state) == {"found": ["before"], "other": 1}


def test_a_moment_that_cannot_be_stored_is_none_and_the_task_goes_on() -> None:
    state = Versioned()

    @task
    def work(state: Any = None) -> None:
        state["found"] = [1]
        state["found"].append(object())
        record("odd")
        state["found"].pop()

    work(state=state)

    (event,) = [one for one in events(state, kind=ActionEvent) if one.name == "odd"]
    assert event.commit_hash is None
    assert state["found"] == [1]


def test_events_in_process_have_no_commit() -> None:
    state = Live()
    add(1, state=state)

    assert {(one.before, one.after, one.commit_hash) for one in events(state)} == {(None,) * 3}


def test_a_checkout_has_the_events_that_led_to_it() -> None:
    state = Versioned()
    add(1, state=state)
    first = state.commit_hash
    add(2, state=state)

    assert first is not None
    past = state.checkout(first)
    assert events(past) == events(state)[:4]
    assert len(events(past, kind=OutputEvent)) == 1


def test_events_outlive_the_process(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        add(1, state=Versioned(store))
        before = events(Versioned(store))

    with SqliteStore(tmp_path / "store") as store:
        assert events(Versioned(store)) == before


def test_bytes_per_event_do_not_grow() -> None:
    def stored_by(calls: int, state: Versioned, store: MemoryStore) -> int:
        before = store.stats().stored
        for number in range(calls):
            add(number % 10, state=state)
        return store.stats().stored - before

    with MemoryStore() as store:
        state = Versioned(store)
        few = stored_by(25, state, store) / 25
        stored_by(200, state, store)
        many = stored_by(25, state, store) / 25

        assert len(events(state)) == 1_000
        assert many < 1.5 * few


# What an event holds.


class Color(Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Endless(list[int]):
    def __repr__(self) -> str:
        return "x" * 10_000_000


class OwnZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "own"


@task
def take(value: Any) -> Any:
    """Give back what is given."""
    return value


def kept(state: State, value: Any) -> Any:
    """What an event keeps of a value."""
    take(value, state=state)
    (start,) = events(state, kind=TaskStartEvent)
    assert isinstance(start, TaskStartEvent)
    return start.inputs["value"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        2**100,
        1.5,
        "text",
        "é" * 100,
        b"bytes",
        [1, [2, (3, {4})]],
        {"a": {"b": [1]}, 2: "two", (1, 2): "tuple"},
        frozenset({"a"}),
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal("1.10"),
        UUID(int=5),
        Path("/tmp/x"),
        {"$described": [1, 2]},
        {"$dict": {"$described": 1}},
    ],
)
def test_plain_values_are_kept_as_they_were(state: State, value: Any) -> None:
    found = kept(state, value)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (threading.Lock, "lock"),
        (lambda: sqlite3.connect(":memory:"), "sqlite3.Connection"),
        (lambda: (one for one in range(3)), "generator"),
        (lambda: Color.RED, "Color"),
        (lambda: Point(1, 2), "Point"),
        (Rude, "Rude"),
        (Endless, "Endless"),
        (lambda: print, "builtin_function_or_method"),
        (lambda: 1 << 100_000, "int"),
        (lambda: "x" * 1_000_000, "str"),
        (lambda: b"x" * 1_000_000, "bytes"),
        (lambda: list(range(100_000)), "list"),
        (lambda: {Color.RED: 1}, "dict"),
        (lambda: datetime(2026, 1, 1, tzinfo=OwnZone()), "datetime"),
    ],
)
def test_what_cannot_be_kept_is_described_in_short(
    state: State, make: Callable[[], Any], kind: str
) -> None:
    value = make()
    found = kept(state, value)
    if isinstance(value, sqlite3.Connection):
        value.close()

    assert isinstance(found, Described)
    assert kind in found.type
    assert len(found.text) < 1_200


def test_only_the_part_that_cannot_be_kept_is_described(state: State) -> None:
    found = kept(state, {"query": "x", "lock": threading.Lock(), "points": [Point(1, 2), 3]})

    assert found["query"] == "x"
    assert isinstance(found["lock"], Described)
    assert found["points"][0] == Described(f"{__name__}.Point", "Point(x=1, y=2)")
    assert found["points"][1] == 3


def test_a_value_that_contains_itself_is_described(state: State) -> None:
    value: list[Any] = [1]
    value.append(value)

    assert kept(state, value)[0] == 1


def test_text_that_is_no_valid_unicode_is_kept_readable(state: State) -> None:
    assert kept(state, "a\ud800b") == "a\\ud800b"


def test_an_event_holds_a_bounded_part_of_a_value(state: State) -> None:
    found = kept(state, {str(at): "x" * 500 for at in range(100)})

    assert len(repr(found)) < 60_000


def test_an_event_does_not_change_with_its_input(state: State) -> None:
    value = [1]
    kept(state, value)
    value.append(2)

    (start,) = events(state, kind=TaskStartEvent)
    assert isinstance(start, TaskStartEvent) and start.inputs == {"value": [1]}


def test_a_secret_may_be_hidden(state: State) -> None:
    @task(hide=["api_key", "more"])
    def ask(question: str, api_key: str, **more: str) -> str:
        return f"{question} {len(api_key)}"

    assert ask("why", api_key="s3cret", other="s3cret", state=state) == "why 6"

    (start,) = events(state, kind=TaskStartEvent)
    assert isinstance(start, TaskStartEvent)
    assert start.inputs["question"] == "why"
    assert start.inputs["api_key"] == start.inputs["more"] == Described("hidden", "hidden")
    assert "s3cret" not in repr(events(state))


def test_what_is_to_be_hidden_must_be_there() -> None:
    with pytest.raises(InvalidInput, match="no parameter 'key'"):
        task(hide=["key"])(lambda api_key: None)


def test_the_object_of_a_method_is_no_input() -> None:
    class Agent:
        @task
        def work(self, number: int) -> int:
            return number

    state = Live()
    Agent().work(3, state=state)

    (start,) = events(state, kind=TaskStartEvent)
    assert isinstance(start, TaskStartEvent) and start.inputs == {"number": 3}


def test_an_event_of_a_newer_version_comes_back(state: State) -> None:
    state.note(
        {
            "kind": "DreamEvent",
            "time": datetime.now(UTC),
            "task": "sleep",
            "content": {"of": ["sheep"]},
            "vividness": 3,
        }
    )

    (found,) = events(state)
    assert type(found) is Event
    assert (found.kind, found.task, found.content) == ("DreamEvent", "sleep", {"of": ["sheep"]})
    assert events(state, kind="DreamEvent") == [found]


def test_a_known_event_with_an_unknown_field_comes_back(state: State) -> None:
    state.note(
        {
            "kind": "OutputEvent",
            "time": datetime.now(UTC),
            "content": {"output": 1, "tokens": 2},
        }
    )

    (found,) = events(state)
    assert isinstance(found, OutputEvent)
    assert found.output == 1 and found.content["tokens"] == 2


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"kind": 3, "time": "noon", "task": None, "namespace": "a", "content": 5},
        {"own": "record"},
    ],
)
def test_a_record_that_somebody_else_made_is_an_event(state: State, odd: dict[str, Any]) -> None:
    state.note(odd)

    (found,) = events(state)
    assert type(found) is Event


# Records of one's own.


@task
def search(query: str) -> int:
    """Search, and say so."""
    record("searched", query=query, hits=3, name="by name", lock=threading.Lock())
    return 3


def test_a_task_records_actions_of_its_own(state: State) -> None:
    search("x", state=state)

    call, own = events(state, kind=ActionEvent)
    assert isinstance(own, ActionEvent)
    assert own.name == "searched"
    assert own.data["query"] == "x" and own.data["name"] == "by name"
    assert isinstance(own.data["lock"], Described)
    assert (own.task, own.run) == ("search", call.run)


def test_an_action_of_a_call_that_fails_is_kept(state: State) -> None:
    @task
    def doomed() -> None:
        record("tried", what="a lot")
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        doomed(state=state)

    assert [type(one) for one in events(state)] == [
        TaskStartEvent,
        ActionEvent,
        ActionEvent,
        FailEvent,
    ]


def test_outside_of_a_task_a_record_needs_a_state(state: State) -> None:
    with pytest.raises(NotFound, match="state="):
        record("lonely")
    record("said", state=state, words=2)

    (found,) = events(state)
    assert isinstance(found, ActionEvent)
    assert (found.name, found.data, found.task, found.run) == ("said", {"words": 2}, "", "")


def test_a_record_outside_of_a_task_is_stored_with_the_next_commit() -> None:
    state = Versioned()
    record("said", state=state)
    (before,) = events(state)
    state.commit()

    (after,) = events(state)
    assert before.commit_hash is None
    assert after.commit_hash == state.commit_hash


def test_a_stateless_task_may_record() -> None:
    assert search("x") == 3


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_action_has_a_name(name: Any) -> None:
    with pytest.raises(InvalidInput, match="name"):
        record(name, state=Live())


def test_calls_at_the_same_time_do_not_mix_their_events(state: State) -> None:
    @task
    async def work(number: int) -> int:
        for step in range(5):
            record("step", number=number, step=step)
            await asyncio.sleep(0)
        return number

    async def main() -> None:
        await asyncio.gather(*(work(number, state=state) for number in range(4)))

    asyncio.run(main())

    for start in events(state, kind=TaskStartEvent):
        assert isinstance(start, TaskStartEvent)
        own = events(state, run=start.run, kind=ActionEvent)
        steps = [one.data for one in own if isinstance(one, ActionEvent) and one.name == "step"]
        assert steps == [{"number": start.inputs["number"], "step": step} for step in range(5)]
