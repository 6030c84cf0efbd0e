"""A database in a task: use the connection, keep what it gives.

A connection or a cursor is not data, so a `Versioned` state does not hold it. The pattern
is one chained operation: `db.execute(...).fetchall()`. The state gets the rows.

    python examples/db.py
"""

from __future__ import annotations

import sqlite3

import ropewalk
from ropewalk import TaskStartEvent, Versioned, current_state, events, view


@ropewalk.task
def find_cafes(db: sqlite3.Connection, city: str) -> int:
    """The right way: the cursor lives and dies within one expression."""
    state = current_state()
    state["cafes"] = db.execute(
        "select name, rating from cafes where city = ? order by rating desc", (city,)
    ).fetchall()
    state["best"] = state["cafes"][0][0]
    return len(state["cafes"])


@ropewalk.task
def keep_the_cursor(db: sqlite3.Connection) -> None:
    """The wrong way: a cursor in the state is refused where it is assigned."""
    current_state()["cursor"] = db.execute("select name from cafes")


def make_database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("create table cafes (name text, city text, rating real)")
    rows = [
        ("Central", "Vienna", 4.5),
        ("Hawelka", "Vienna", 4.7),
        ("Florian", "Venice", 4.2),
    ]
    db.executemany("insert into cafes values (?, ?, ?)", rows)
    return db


def main() -> None:
    db = make_database()
    state = Versioned()

    print(f"found: {find_cafes(db, 'Vienna', state=state)}")
    print(view(state, focus="full"))

    print("\nA cursor in the state:")
    try:
        keep_the_cursor(db, state=state)
    except ropewalk.NotStorable as error:
        print(f"refused: {error}")
    assert "cursor" not in state, "the state is as it was"

    print("\nWhat was given to the tasks; the connection is only described:")
    for event in events(state, kind=TaskStartEvent):
        assert isinstance(event, TaskStartEvent)
        print(f"{event.task}: {dict(event.inputs)}")
    db.close()


if __name__ == "__main__":
    main()
