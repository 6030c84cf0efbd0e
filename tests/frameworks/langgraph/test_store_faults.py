"""A memory whose engine fails at every call, in every way: what was acknowledged stays."""

from __future__ import annotations

from langgraph.store.base import PutOp

from ropewalk.adapters.langgraph import RopewalkStore
from ropewalk.errors import RopewalkError
from ropewalk.store import MemoryStore, Store
from ropewalk.testing import Outcome, fail_every_call

NOTES = ("notes",)


def work(store: Store) -> int:
    """Put one item again and again beside others; how many puts were acknowledged."""
    memory, done = RopewalkStore(store), 0
    for number in range(4):
        try:
            memory.batch(
                [
                    PutOp(NOTES, "k", {"n": number}),
                    PutOp(("others", f"o{number}"), "k", {"n": number}),
                    PutOp(("others", f"o{number - 1}"), "k", None),
                ]
            )
        except RopewalkError:
            return done
        done += 1
    return done


def check(store: Store, outcome: Outcome[int]) -> None:
    memory, done = RopewalkStore(store), outcome.result or 0
    versions = [one.version for one in memory.history(NOTES, "k")]
    item = memory.get(NOTES, "k")
    put = 0 if item is None else item.version
    others = memory.list_namespaces(prefix=("others",))

    # One more may have been made than was acknowledged: its reply was lost for good.
    assert put in (done, done + 1)
    assert versions == list(range(put, 0, -1))
    assert others == [("others", f"o{put - 1}")] * (put > 0)
    assert item is None or item.value == {"n": put - 1}
    assert store.check(read_data=True).problems == ()


def test_whatever_fails_what_was_acknowledged_stays_and_nothing_is_half_done() -> None:
    times = fail_every_call(lambda: MemoryStore().another, work, check)

    assert times >= 40
