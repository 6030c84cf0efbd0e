"""Large strings and bytes, cut where their content says so."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from ropewalk.tree._layout import Entry
from ropewalk.tree._objects import Kind, Object, ObjectId, make_object

# The algorithm (FastCDC 2020, normalization 1, seed 0) and these sizes are format.
CHUNK_MIN: Final = 2048
CHUNK_TARGET: Final = 8192
CHUNK_MAX: Final = 32768


@cache
def _cutter() -> Any:
    import pyfastcdc

    if not pyfastcdc.FastCDC.__module__.startswith("pyfastcdc.cy"):
        raise ImportError(
            "pyfastcdc runs without its compiled part, which is 500 times slower; "
            "install a wheel of pyfastcdc for this Python"
        )
    return pyfastcdc.FastCDC(
        CHUNK_TARGET, min_size=CHUNK_MIN, max_size=CHUNK_MAX, normalized_chunking=1, seed=0
    )


def cut_bytes(data: bytes) -> list[bytes]:
    """Cut bytes into chunks; the last one ends where the data does."""
    if len(data) <= CHUNK_MIN:
        return [data]
    return [bytes(chunk.data) for chunk in _cutter().cut_buf(data)]


def chunk_objects(
    pieces: list[bytes], olds: list[Entry], ends_old: bool
) -> tuple[list[Entry], list[Object]]:
    """Name the chunks, each with the old chunk in its place as base."""
    entries, objects = [], []
    for index, piece in enumerate(pieces):
        base = _base(index, len(pieces), olds, ends_old)
        made = make_object(Kind.CHUNK, piece, base)
        objects.append(made)
        entries.append(Entry(b"", made.id, len(piece)))
    return entries, objects


def _base(index: int, count: int, olds: list[Entry], ends_old: bool) -> ObjectId | None:
    if not olds:
        return None
    at = min(index, len(olds) - 1)
    # A chunk that grew at the end until it was full is stored whole from now on.
    sealed = ends_old and at == len(olds) - 1 and index < count - 1
    return None if sealed else olds[at].body
