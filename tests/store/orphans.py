"""Writers of equal content beside a collection, some of which give up or are killed half way."""

from __future__ import annotations

import random
from collections.abc import Callable

from ropewalk.errors import MissingObjects
from ropewalk.store import Move, Store
from ropewalk.store._own import manifest
from ropewalk.testing._stores._base import MAIN, SPACE
from ropewalk.tree import Object
from tests.store.test_key_value_races import KEPT, NEW_SPACE, NEXT, OLD, TOP, Stepping

ROOF = manifest([TOP.id], None)
BESIDE = manifest([NEXT.id], None)

Opener = Callable[[dict[str, bytes]], tuple[Stepping, Store]]
"""Opens a store that waits before each call, from the first on after this."""


def begin(store: Store, choose: random.Random) -> None:
    """Store what is no longer reached, in one of several ways."""
    store.commit(SPACE, [KEPT], moves=[Move(MAIN, None, KEPT.id)])
    stored = choose.choice([[OLD], [OLD, TOP], [OLD, NEXT], [OLD, TOP, NEXT]])
    for number, one in enumerate(stored):
        store.commit(SPACE, [one], moves=[Move(f"branch/old{number}", None, one.id)])
        store.commit(SPACE, moves=[Move(f"branch/old{number}", one.id, None)])
    store.commit(SPACE)
    if choose.random() < 0.5:
        # What was there once, and is known to somebody.
        store.gc(recent=1)
        store.commit(SPACE, [OLD], moves=[Move("branch/old", None, OLD.id)])
        store.commit(SPACE, moves=[Move("branch/old", OLD.id, None)])
        store.commit(SPACE)


def gives_up(store: Store, choose: random.Random, name: str) -> None:
    """Try once to commit what leads to `OLD`, or is stored against it."""
    objects, needs, target = choose.choice(
        [
            ([TOP], [OLD], TOP),
            ([NEXT], [], NEXT),
            ([TOP, ROOF], [OLD], ROOF),
            ([NEXT, BESIDE], [], BESIDE),
        ]
    )
    space = choose.choice([SPACE, NEW_SPACE])
    try:
        store.commit(space, objects, [one.id for one in needs], [Move(name, None, target.id)])
    except MissingObjects:
        return


def goes_on(store: Store, choose: random.Random, name: str) -> None:
    """Commit what needs what others write too; send again what is missing, until it is in."""
    every: dict[bytes, Object] = {one.id: one for one in (TOP, NEXT, OLD)}
    top, needs = choose.choice([(ROOF, [TOP]), (BESIDE, [NEXT]), (TOP, [OLD])])
    below = {TOP.id: [OLD.id], NEXT.id: [], OLD.id: []}
    sent, needed = {top.id: top}, {one.id for one in needs}
    for _ in range(20):
        try:
            store.commit(
                choose.choice([SPACE, NEW_SPACE]),
                list(sent.values()),
                needed - sent.keys(),
                [Move(name, None, top.id)],
            )
        except MissingObjects as error:
            for id in error.ids:
                sent[id] = every[id]
                needed.update(below[id])
        else:
            return
    raise AssertionError("what was sent again was called missing again and again")


class Campaign:
    """One round: writers and collections, call by call, in an order that a seed chooses."""

    def __init__(self, open_one: Opener, whole: Callable[[dict[str, bytes]], Store]) -> None:
        self._open, self._whole = open_one, whole

    def run(self, seed: int) -> None:
        """Play a round, and look at what is left."""
        choose = random.Random(seed)
        data: dict[str, bytes] = {}
        begin(self._whole(data), choose)
        players = [self._player(data, collect, choose, "")]
        if choose.random() < 0.3:
            players.append(self._player(data, collect, choose, ""))
        for play in (gives_up, goes_on):
            names = [f"branch/{play.__name__}{number}" for number in range(choose.randrange(1, 3))]
            players += [self._player(data, play, choose, name) for name in names]
        for _ in range(choose.randrange(4, 40)):
            one = choose.choice(players)
            one.go_on(choose.randrange(1, 8))
        choose.shuffle(players)
        for one in players:
            if choose.random() < 0.3:
                one.kill()
            else:
                one.go_on(None)
        self._expect_whole(data, choose)

    def _player(
        self, data: dict[str, bytes], play: Callable[..., None], choose: random.Random, name: str
    ) -> Stepping:
        steps, store = self._open(data)
        own = random.Random(choose.random())
        steps.run(lambda: play(store, own, name))
        return steps

    def _expect_whole(self, data: dict[str, bytes], choose: random.Random) -> None:
        store = self._whole(data)
        # Somebody who knows the content from before, and trusts what is said to be there.
        for number, one in enumerate((TOP, NEXT, ROOF, BESIDE)):
            if not store.missing([one.id]) and choose.random() < 0.7:
                store.commit(SPACE, moves=[Move(f"branch/late{number}", None, one.id)])
        assert store.check(read_data=True).problems == ()
        store.gc(recent=1)
        assert store.check(read_data=True).problems == ()
        self._whole(data).gc(recent=1)
        assert self._whole(data).check(read_data=True).problems == ()


def collect(store: Store, choose: random.Random, name: str) -> None:
    """Delete what nothing reaches."""
    store.gc(recent=1)
