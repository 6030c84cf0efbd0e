"""A process that talks in a session, until it has said enough or is killed.

    python -m ropewalk.testing.sessions MODULE:KIT PLACE ID LABEL [TURNS]

It prints each text once its turn is acknowledged. After a conflict it opens the session again.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import count, islice
from typing import Any

import ropewalk
from ropewalk.errors import Conflict
from ropewalk.testing.sessions.kit import SessionKit


def conflict_in(error: BaseException | None) -> Conflict | None:
    """The conflict of Ropewalk's that an error is, or that it was raised from."""
    while error is not None:
        if isinstance(error, Conflict):
            return error
        error = error.__cause__ or error.__context__
    return None


def kit_named(spec: str) -> SessionKit:
    """The kit of a module."""
    module, _, name = spec.partition(":")
    made: Any = import_module(module)
    for one in name.split("."):
        made = getattr(made, one)
    kit: SessionKit = made()
    return kit


async def settled(value: Any) -> Any:
    """What a method gave, awaited if it has to be."""
    return await value if inspect.isawaitable(value) else value


async def talk(kit: SessionKit, place: str, id: str, texts: Iterator[str]) -> None:
    """Say texts, each in a turn that is tried until it is stored."""
    with ropewalk.open(place) as store:
        session = await settled(kit.open(store, id))
        for text in texts:
            while True:
                try:
                    await settled(kit.say(session, text))
                except Exception as error:
                    if conflict_in(error) is None:
                        raise
                    await settled(kit.close(session))
                    session = await settled(kit.open(store, id))
                else:
                    sys.stdout.write(f"{text}\n")
                    sys.stdout.flush()
                    break
        await settled(kit.close(session))


def main(spec: str, place: str, id: str, label: str, turns: str = "") -> None:
    """Talk."""
    texts = islice((f"{label} {number}." for number in count()), int(turns) if turns else None)
    asyncio.run(talk(kit_named(spec), place, id, texts))


if __name__ == "__main__":
    main(*sys.argv[1:])
