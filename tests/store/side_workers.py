"""Processes that bring one index forward together, and are killed.

    python -m tests.store.side_workers FOLDER LAST

Each takes the index from number to number by compare-and-set, up to the last one, and says
which numbers were its own. Position n has the words `own<n>` and `word`.
"""

from __future__ import annotations

import sys

from ropewalk.store import SqliteStore

SCOPE = "scope"


def say(line: str) -> None:
    """Tell the test something, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def advance(folder: str, last: int) -> None:
    """Bring the index to a number together with others."""
    with SqliteStore(folder, durability="relaxed") as store:
        index, scratch = store.text_index(), store.scratch()
        say("ready")
        while True:
            state = index.state(SCOPE)
            assert state is not None
            number = int(state)
            if number >= last:
                return
            said = [(number, {"word", f"own{number}x"})]
            if index.apply(SCOPE, state, b"%d" % (number + 1), said):
                scratch.put(f"key{number}", b"%d" % number)
                say(str(number))


if __name__ == "__main__":
    advance(sys.argv[1], int(sys.argv[2]))
