"""Which store and which timeline a command is about."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ropewalk.cli._errors import SeveralTimelines, with_hint
from ropewalk.codec import inspection_codec
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.store import Store
from ropewalk.store import open as open_store
from ropewalk.timeline import Timeline

FOLDER = ".ropewalk"
VARIABLE = "ROPEWALK_STORE"


def store_url(given: str | None) -> str:
    """What was given, or what the environment says, or the nearest folder upwards."""
    if given is not None:
        return given
    told = os.environ.get(VARIABLE)
    if told:
        return told
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir():
            return str(folder / FOLDER)
    raise with_hint(
        NotFound(f"there is no store: no folder {FOLDER} in {here} or above it"),
        "make one with `ropewalk init`, or name one with --store",
    )


def new_store_url(given: str | None) -> str:
    """What was given, or what the environment says, or a folder here."""
    return given if given is not None else os.environ.get(VARIABLE) or FOLDER


@contextmanager
def opened_store(given: str | None, *, create: bool = False) -> Iterator[Store]:
    """The store of a command; nothing is made unless that is wanted."""
    url = new_store_url(given) if create else store_url(given)
    refuse_memory(url)
    try:
        store = open_store(url, create=create)
    except NotFound as error:
        raise with_hint(
            error, "make one with `ropewalk init`, or name another with --store"
        ) from None
    with store:
        yield store


def refuse_memory(url: str) -> None:
    """Raise `InvalidInput` for a store that would end with the command."""
    if url == "memory://":
        raise InvalidInput("a store in memory ends with its process: name a folder")


def timeline_in(store: Store, agent: str | None, branch: str | None) -> Timeline:
    """The timeline of a name; without one, the only timeline of a store.

    Raises `SeveralTimelines` if there are more.
    """
    names = Timeline.agents(store)
    if agent is None:
        if not names:
            raise with_hint(
                NotFound("the store has no timeline yet"),
                "`ropewalk demo` makes one, and so does the first checkpoint of a Timeline",
            )
        if len(names) > 1:
            raise with_hint(
                SeveralTimelines(f"the store has {len(names)} timelines: {listed(names)}"),
                "name the one to change with --timeline",
            )
        agent = names[0]
    made = Timeline(agent, store, codec=inspection_codec, branch=branch if agent in names else None)
    if agent not in names:
        raise NotFound(f"the store has no timeline {agent!r}; it has {listed(names) or 'none'}")
    return made


def changed_last(store: Store) -> str:
    """The name of the timeline whose last operation is the newest."""

    def when(name: str) -> int:
        operations = Timeline(name, store).last_operations(limit=1)
        return operations[0].time if operations else 0

    return max(Timeline.agents(store), key=when)


def listed(names: Sequence[str | None]) -> str:
    """Names, for a sentence; of many only the first."""
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
