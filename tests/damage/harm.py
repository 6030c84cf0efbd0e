"""Kinds of damage to a store that is seen as named pieces: files, objects, rows, values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

Pieces: TypeAlias = Mapping[str, bytes]

STEP: Final = 64
"""In a long campaign, every so many bytes are damaged."""
LOG_FRAME: Final = 24 + 1024
"""The bytes of a frame in SQLite's log."""


class Harm(NamedTuple):
    """One damage: what pieces become, None for one that goes."""

    note: str
    pieces: Mapping[str, bytes | None]


def flips(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """One bit is another."""
    for name, place in _places(pieces, chosen, random, every):
        data, bit = bytearray(pieces[name]), random.randrange(8)
        data[place] ^= 1 << bit
        yield Harm(f"{name}: bit {bit} of byte {place}", {name: bytes(data)})


def cuts(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """The end is gone."""
    for name, place in _places(pieces, chosen, random, every):
        if place:
            yield Harm(f"{name}: cut to {place} bytes", {name: pieces[name][:place]})


def deletions(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """All of a piece is gone."""
    for name in _names(chosen, random):
        yield Harm(f"{name}: deleted", {name: None})


def emptyings(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """Nothing is left inside."""
    for name in _names(chosen, random):
        if pieces[name]:
            yield Harm(f"{name}: emptied", {name: b""})


def garbage(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """As many other bytes."""
    for name in _names(chosen, random):
        if pieces[name]:
            yield Harm(f"{name}: garbage", {name: random.randbytes(len(pieces[name]))})


def swaps(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """Two pieces of one kind stand in each other's place."""
    names = _names(chosen, random)
    for one in names:
        others = [name for name in names if kind(name) == kind(one) and pieces[name] != pieces[one]]
        if others:
            other = random.choice(others)
            swapped = {one: pieces[other], other: pieces[one]}
            yield Harm(f"{one} and {other}: swapped", swapped)


def names(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """One bit of the name of a space or ref is another."""
    for name in _names(chosen, random):
        for found in re.finditer(rb"(agents|states)/[a-z]+|(branch|tag)/[a-z0-9]+", pieces[name]):
            data = bytearray(pieces[name])
            data[found.start() + 2] ^= 1
            yield Harm(f"{name}: the name at byte {found.start()}", {name: bytes(data)})


def folders(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """All that is in the folder of a piece is gone."""
    for name in _names(chosen, random):
        folder = name.rpartition("/")[0] + "/"
        gone = [one for one in pieces if one.startswith(folder)]
        yield Harm(f"{folder}: deleted", dict.fromkeys(gone))


def commits(pieces: Pieces, chosen: Sequence[str], random: Random, every: bool) -> Iterator[Harm]:
    """In a log of SQLite, one bit of the frame that ends the transaction before the last."""
    for name in _names(chosen, random):
        end = log_ends(pieces[name])[-2]
        for place in range(end - LOG_FRAME, end, STEP):
            data = bytearray(pieces[name])
            data[place] ^= 1 << random.randrange(8)
            yield Harm(f"{name}: byte {place}, in a frame that commits", {name: bytes(data)})


def log_ends(log: bytes) -> list[int]:
    """Where the transactions in a log of SQLite end."""
    frames = range(32, len(log), LOG_FRAME)
    return [at + LOG_FRAME for at in frames if any(log[at + 4 : at + 8])]


def kind(name: str) -> str:
    """What may be mistaken for each other: columns of a table, or any files."""
    return name.partition("|")[0] if "|" in name else ""


KINDS: Final[Mapping[str, Callable[[Pieces, Sequence[str], Random, bool], Iterator[Harm]]]] = {
    "flips": flips,
    "cuts": cuts,
    "deletions": deletions,
    "emptyings": emptyings,
    "garbage": garbage,
    "swaps": swaps,
    "names": names,
    "folders": folders,
    "commits": commits,
}
SPECIAL: Final = frozenset({"names", "folders", "commits"})
"""Those that are not for every medium."""


def _names(chosen: Sequence[str], random: Random) -> list[str]:
    names = list(chosen)
    random.shuffle(names)
    return names


def _places(
    pieces: Pieces, chosen: Sequence[str], random: Random, every: bool
) -> Iterator[tuple[str, int]]:
    """Places to damage: every 64th byte, or for ever a byte of a piece by chance."""
    filled = [name for name in chosen if pieces[name]]
    if every:
        yield from ((name, place) for name in filled for place in range(0, len(pieces[name]), STEP))
        return
    while filled:
        name = random.choice(filled)
        yield name, random.randrange(len(pieces[name]))
