"""A state on a store that fails at every call: it goes on, nothing is lost or done twice."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

from ropewalk.errors import Full, MergeConflict, StoreFull, Unavailable
from ropewalk.state import Versioned
from ropewalk.store import FileStore, MemoryStore, SqliteStore, Store
from ropewalk.testing import Fault, FaultStore
from tests.conftest import SOAK
from tests.state.large import messages

R = TypeVar("R")

TRACED = (
    "state/working_copy.py",
    "state/entries.py",
    "tree/map_writer.py",
    "history/branch.py",
)
RULES = {"n": "add", "log": "append", "chat": "append"}
KINDS: list[Callable[[int], Fault]] = [
    Fault.error,
    Fault.lost_reply,
    Fault.full,
    lambda at: Fault.dead(at, until=at + 9),
]


def insist(call: Callable[[], R]) -> R:
    """What a program does that does not give up."""
    for _ in range(9):
        try:
            return call()
        except (Unavailable, Full):
            pass
    return call()


@pytest.fixture(params=[MemoryStore, SqliteStore, FileStore] if SOAK else [MemoryStore])
def fresh(request: pytest.FixtureRequest, memory_folder: Path) -> Callable[[], Callable[[], Store]]:
    engine: type[SqliteStore | FileStore] = request.param
    if request.param is MemoryStore:
        return lambda: MemoryStore().another
    numbers = itertools.count()

    def fresh() -> Callable[[], Store]:
        place = memory_folder / str(next(numbers))
        return lambda: engine(place, durability="relaxed")

    return fresh


class Scene:
    """A handle whose store fails once, and another one on the same data that never does."""

    def __init__(self, open_store: Callable[[], Store], faults: list[Fault]) -> None:
        self.good = open_store()
        self.theirs = Versioned(self.good, mergers=RULES)
        self.theirs.update(n=0, log=[], chat=messages(120), plan={"stage": "begin"}, own={})
        self.theirs.commit()
        self.store = FaultStore(open_store(), faults)
        self.ours = insist(lambda: Versioned(self.store, mergers=RULES))

    def they(self, word: str) -> None:
        """Change, by the other handle, what ours changes too."""
        self.theirs["n"] += 1
        self.theirs["log"].append(word)
        self.theirs["chat"].append(word)
        self.theirs.commit()

    def we(self, word: str) -> None:
        """Change the same in ours, without a commit."""
        number = insist(lambda: self.ours["n"])
        insist(lambda: self.ours.__setitem__("n", number + 1))
        insist(lambda: self.ours["log"]).append(word)
        insist(lambda: self.ours["chat"]).append(word)

    def seen(self) -> dict[str, Any]:
        """What somebody sees who opens the state now."""
        state = Versioned(self.good)
        return {**state, "chat": state["chat"][120:]}

    def close(self) -> None:
        self.good.close()
        self.store.close()


@contextmanager
def scene(fresh: Callable[[], Callable[[], Store]], *faults: Fault) -> Iterator[Scene]:
    made = Scene(fresh(), list(faults))
    try:
        yield made
    except BaseException as error:
        error.add_note(f"with {faults}")
        raise
    finally:
        made.close()


def at_every_call(
    fresh: Callable[[], Callable[[], Store]], work: Callable[[Scene], None], least: int = 5
) -> None:
    """Do the work once for every call of the store in it, and every way in which that fails."""
    with scene(fresh) as whole:
        work(whole)
        calls = len(whole.store.calls)
    assert calls >= least
    dead = not SOAK and KINDS[-1]  # It is waited for, so a few of those are enough.
    for kind in KINDS:
        for number in range(1, calls + 1, 5 if kind is dead else 1):
            with scene(fresh, kind(number)) as one:
                work(one)
                assert one.store.met
                assert one.good.check(read_data=True).problems == ()


def counted(*words: str, **more: Any) -> dict[str, Any]:
    """The state after so many steps, each of which added one word."""
    begin = {"plan": {"stage": "begin"}, "own": {}}
    return {**begin, "n": len(words), "log": [*words], "chat": [*words], **more}


def test_a_commit_that_is_tried_again_is_made_once(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        scene.we("a")
        insist(scene.ours.commit)
        scene.we("b")
        insist(scene.ours.commit)

        assert scene.seen() == counted("a", "b")
        assert not insist(lambda: scene.ours.dirty)
        assert len(Versioned(scene.good).history()) == 3

    at_every_call(fresh, work)


def test_a_commit_that_is_merged_is_made_once(fresh: Callable[[], Callable[[], Store]]) -> None:
    def work(scene: Scene) -> None:
        scene.we("ours")
        scene.they("theirs")
        insist(scene.ours.commit)
        scene.we("ours again")
        insist(scene.ours.commit)

        assert scene.seen() == counted("theirs", "ours", "ours again")
        assert insist(lambda: scene.ours["log"]) == ["theirs", "ours", "ours again"]
        assert not insist(lambda: scene.ours.dirty)

    at_every_call(fresh, work)


def test_what_is_changed_after_a_commit_failed_is_kept_too(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        scene.we("ours")
        log, own = insist(lambda: scene.ours["log"]), insist(lambda: scene.ours["own"])
        insist(lambda: scene.ours.__setitem__("new", 1))
        scene.they("theirs")
        scene.ours.note({"kind": "first"})
        with suppress(Unavailable, Full):
            scene.ours.commit()
        scene.they("theirs again")
        log.append("late")
        own["late"] = True
        scene.ours.note({"kind": "second"})
        insist(lambda: scene.ours.__delitem__("new"))
        insist(scene.ours.commit)

        seen = scene.seen()
        assert seen["n"] == 3
        assert sorted(seen["log"]) == ["late", "ours", "theirs", "theirs again"]
        assert sorted(seen["chat"]) == ["ours", "theirs", "theirs again"]
        assert seen["own"] == {"late": True}
        assert "new" not in seen
        assert scene.ours["log"] is log
        assert log == seen["log"]
        kinds = [one.record["kind"] for one in Versioned(scene.good).records()]
        assert kinds == ["second", "first"]

    at_every_call(fresh, work)


def test_a_refresh_that_is_tried_again_brings_everything_once(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        scene.we("ours")
        held = insist(lambda: scene.ours["plan"])
        log = insist(lambda: scene.ours["log"])
        scene.they("theirs")
        insist(scene.ours.refresh)

        assert log == ["theirs", "ours"]
        scene.theirs["plan"]["stage"] = "read"
        scene.they("theirs again")
        log.append("late")
        insist(scene.ours.refresh)
        assert held == {"stage": "read"}
        assert scene.ours["log"] is log
        insist(scene.ours.commit)
        seen = scene.seen()
        assert seen["n"] == 3
        assert seen["log"] == log == ["theirs", "theirs again", "ours", "late"]
        assert seen["plan"] == {"stage": "read"}

    at_every_call(fresh, work)


def test_a_refresh_that_failed_leaves_a_state_that_takes_nothing_back(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        log = insist(lambda: scene.ours["log"])
        chat = insist(lambda: scene.ours["chat"])
        plan = insist(lambda: scene.ours["plan"])
        scene.they("theirs")
        scene.theirs["plan"]["theirs"] = 1
        scene.theirs.commit()
        with suppress(Unavailable, Full):
            scene.ours.refresh()
        log.append("ours")
        chat.append("ours")
        plan["ours"] = 1
        insist(scene.ours.commit)

        seen = scene.seen()
        assert sorted(seen["log"]) == ["ours", "theirs"]
        assert seen["plan"] == {"stage": "begin", "theirs": 1, "ours": 1}
        assert sorted(seen["chat"]) == ["ours", "theirs"]

    at_every_call(fresh, work)


def test_a_transaction_that_is_tried_again_happens_once(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        insist(lambda: scene.ours.__setitem__("before", ["not committed"]))

        def block() -> None:
            with scene.ours.transaction("block"):
                scene.ours["n"] += 1
                scene.ours["log"].append("block")
                scene.ours["chat"].append("block")
                scene.ours["before"].append("in the block")
                scene.ours["new"] = 1
                scene.ours.note({"kind": "block"})

        scene.they("theirs")
        tries = 0
        while True:
            tries += 1
            try:
                block()
                break
            except (Unavailable, Full):
                assert tries < 20
                if scene.ours._working_copy.is_unsure:
                    # The store did not answer for long: the changes stay, and are settled.
                    insist(scene.ours.commit)
                    break
                assert insist(lambda: scene.ours["before"]) == ["not committed"]
                assert not insist(lambda: "new" in scene.ours)

        assert scene.seen() == counted(
            "theirs", "block", before=["not committed", "in the block"], new=1
        )
        assert [one.record["kind"] for one in Versioned(scene.good).records()] == ["block"]

    at_every_call(fresh, work)


def test_a_block_that_raises_leaves_nothing_whatever_failed_before(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        scene.we("ours")
        with suppress(Unavailable, Full):
            scene.ours.commit()
        scene.they("theirs")

        def block() -> None:
            with scene.ours.transaction():
                scene.ours["log"].append("never")
                scene.ours["plan"]["never"] = True
                scene.ours["never"] = 1
                raise ZeroDivisionError

        def try_it() -> None:
            with pytest.raises(ZeroDivisionError):
                block()

        insist(try_it)
        insist(scene.ours.commit)
        insist(scene.ours.refresh)
        assert scene.seen()["n"] == 2
        assert sorted(scene.seen()["log"]) == ["ours", "theirs"]
        assert scene.seen()["plan"] == {"stage": "begin"}
        assert "never" not in scene.seen()

    at_every_call(fresh, work)


def test_a_merge_that_is_tried_again_is_made_once(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        side = scene.theirs.branch("side")
        side["n"] += 5
        side["log"].append("side")
        side.commit()
        scene.they("theirs")
        insist(lambda: scene.ours.merge("side", mergers=RULES))

        assert scene.seen()["n"] == 6
        assert sorted(scene.seen()["log"]) == ["side", "theirs"]
        assert not insist(lambda: scene.ours.dirty)
        assert insist(lambda: scene.ours["n"]) == 6

    at_every_call(fresh, work)


def test_a_reset_that_is_tried_again_puts_the_branch_back(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    def work(scene: Scene) -> None:
        begin = scene.theirs.commit_hash or ""
        scene.we("ours")
        insist(scene.ours.commit)
        scene.we("dropped")
        insist(lambda: scene.ours.reset(begin))

        assert scene.ours.commit_hash == begin
        assert scene.seen() == counted()
        scene.we("new")
        insist(scene.ours.commit)
        assert scene.seen() == counted("new")

    at_every_call(fresh, work)


def test_a_full_store_refuses_a_commit_and_takes_it_when_there_is_room(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    with scene(fresh, *[Fault.full(number, method="commit") for number in (1, 2, 3)]) as one:
        one.we("ours")
        one.ours.note({"kind": "noted"})
        for _ in range(3):
            with pytest.raises(StoreFull):
                one.ours.commit()
            assert one.ours["log"] == ["ours"]
            assert one.ours.dirty
        one.they("theirs")
        one.ours.commit()

        assert one.seen() == counted("theirs", "ours")
        assert [recorded.record for recorded in one.ours.records()] == [{"kind": "noted"}]


def test_a_conflict_with_what_came_after_a_lost_answer_is_told_and_can_be_settled(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    # The commit is merged and made, but nobody hears of it until others went on.
    faults = [Fault.lost_reply(1, method="commit"), Fault.dead(2, method="commit", until=50)]
    with scene(fresh, *faults) as one:
        plan = one.ours["plan"]
        one.ours["own"]["a"] = 1
        one.they("theirs")
        with pytest.raises(Unavailable):
            one.ours.commit()
        plan["stage"] = "ours"
        one.theirs.refresh()
        one.theirs["plan"]["stage"] = "theirs"
        one.theirs.commit()

        with pytest.raises((MergeConflict, Unavailable)):
            one.ours.commit()
        assert plan == {"stage": "ours"}
        insist_on: dict[Any, Any] = {**RULES, ("plan", "stage"): "ours"}
        for _ in range(60):
            try:
                one.ours.commit(mergers=insist_on)
                break
            except Unavailable:
                pass
        assert one.seen()["plan"] == {"stage": "ours"}
        assert one.seen()["own"] == {"a": 1}


# Interrupts.


class Interrupting(FaultStore):
    """Sends an interrupt at a call, before or after it happens."""

    interrupt: tuple[int, bool] | None = None

    def _call(self, method: str, call: Callable[[], R]) -> R:
        here = len(self.calls) + 1
        if self.interrupt == (here, False):
            signal.raise_signal(signal.SIGINT)
        result = super()._call(method, call)
        if self.interrupt == (here, True):
            signal.raise_signal(signal.SIGINT)
        return result


def interrupted(number: int, after: bool) -> bool:
    """Interrupt a commit that is merged; whether there were so many calls."""
    memory = MemoryStore()
    theirs = Versioned(memory, mergers=RULES)
    theirs.update(n=0, log=[], chat=messages(120))
    theirs.commit()
    store = Interrupting(memory.another())
    ours = Versioned(store, mergers=RULES)
    log = ours["log"]
    for handle, word in ((theirs, "theirs"), (ours, "ours")):
        handle["n"] += 1
        handle["log"].append(word)
        handle["chat"].append(word)
    theirs.commit()
    store.interrupt = len(store.calls) + number, after
    try:
        ours.commit()
        log_after: list[str] = []
    except KeyboardInterrupt:
        store.interrupt = None
        log_after = ["late"]
        log += log_after
        ours.commit()
    expected = ["theirs", "ours", *log_after]
    seen = Versioned(memory)

    assert seen["n"] == ours["n"] == 2
    assert seen["log"] == log == expected
    assert seen["chat"][120:] == ["theirs", "ours"]
    return bool(log_after)


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_at_any_call_loses_and_repeats_nothing(after: bool) -> None:
    # After a call that lost a race there is no interrupt.
    times = sum(interrupted(number, after) for number in range(1, 20))

    assert times > 5


def test_an_interrupt_anywhere_in_the_code_loses_and_repeats_nothing() -> None:
    # A trace function stops the commit at one line after another.
    count = 0
    while stopped_at_line(count):
        count += 1 if count < 40 else 7

    assert count > 200


def stopped_at_line(stop: int) -> bool:
    memory = MemoryStore()
    theirs = Versioned(memory, mergers=RULES)
    theirs.update(n=0, log=[])
    theirs.commit()
    ours = Versioned(memory.another(), mergers=RULES)
    for handle, word in ((theirs, "theirs"), (ours, "ours")):
        handle["n"] += 1
        handle["log"].append(word)
    theirs.commit()
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if "/ropewalk/" not in frame.f_code.co_filename:
            return None
        if event == "line" and frame.f_code.co_filename.endswith(TRACED):
            lines += 1
            if lines > stop:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ours.commit()
        return False
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    ours["log"].append("late")
    ours.commit()
    seen = Versioned(memory)

    assert seen["n"] == ours["n"] == 2, stop
    assert seen["log"] == ours["log"] == ["theirs", "ours", "late"], stop
    return True
