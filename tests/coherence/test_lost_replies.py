"""A write whose answer is lost is recognised, however much others wrote since."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import Unavailable, VersionConflict
from ropewalk.store import MemoryStore
from ropewalk.store.engine import REMEMBERED_WRITES
from ropewalk.store.wrappers import WrapperStore

R = TypeVar("R")


class Lossy(WrapperStore):
    """A store in front of another, from which the answer to one commit does not come."""

    meanwhile: Callable[[], None] | None = None
    """What others do before the caller gives up waiting."""

    def _call(self, method: str, call: Callable[[], R]) -> R:
        found = call()
        if method == "commit" and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            raise Unavailable("no answer came")
        return found


@pytest.mark.parametrize("writes", [1, REMEMBERED_WRITES + 1])
def test_a_write_without_an_answer_is_found_behind_those_of_others(writes: int) -> None:
    memory = MemoryStore()
    store = Lossy(memory.another())
    with CoherenceCore(store, bus=False) as here, CoherenceCore(memory, bus=False) as there:
        here.write("A", "plan", {"by": "A", "n": 0})

        def others() -> None:
            for number in range(writes):
                there.read("B", "plan")
                there.write("B", "plan", {"by": "B", "n": number})

        here.read("A", "plan")
        store.meanwhile = others

        made = here.write("A", "plan", {"by": "A", "n": 1})

        assert made.version == 2
        assert there.read("C", "plan").value == {"by": "B", "n": writes - 1}


def test_a_write_that_others_were_faster_than_is_still_refused() -> None:
    memory = MemoryStore()
    with CoherenceCore(memory, bus=False) as here, CoherenceCore(memory, bus=False) as there:
        here.write("A", "plan", {"by": "A"})
        here.read("A", "plan")
        there.read("B", "plan")
        there.write("B", "plan", {"by": "B"})

        with pytest.raises(VersionConflict):
            here.write("A", "plan", {"by": "C"})
