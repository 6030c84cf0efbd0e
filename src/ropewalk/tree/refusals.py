"""Why a value was refused, and where inside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ropewalk.codec import Codec, Field, Path, format_path
from ropewalk.codec.codec import Walk
from ropewalk.codec.msgpack import Code, Form, Opened
from ropewalk.errors import ChangedMeanwhile, NotStorable
from ropewalk.tree.nodes import INLINE_MAX, KEY_MAX, KEYED


def explain(codec: Codec, value: Any, refusal: Exception) -> NotStorable | ChangedMeanwhile:
    """The refusal of a value with the path from its top."""
    try:
        Walk(codec).encode(value)
    except (NotStorable, ChangedMeanwhile) as exc:
        return exc
    if isinstance(refusal, ChangedMeanwhile):
        return ChangedMeanwhile()
    # The codec has nothing against the value, so it is too much for a tree.
    reason = refusal.reason if isinstance(refusal, NotStorable) else "it is nested too deeply"
    return NotStorable(reason, format_path(_long_key(codec, value) or _deepest(codec, value)))


def _long_key(codec: Codec, value: Any) -> Path | None:
    """The path of a key that is too long."""
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, value = pending.pop()
        opened = codec.open_up(value)
        if opened.code in KEYED:
            for key in opened.parts:
                if len(codec.encode(key)) > KEY_MAX:
                    return (*path, key)
        pending += [((*path, *step), part) for step, part in _large_parts(codec, opened)]
    return None


def _deepest(codec: Codec, value: Any) -> Path:
    """The path of the large value that stands inside most others."""
    deepest: Path = ()
    depths = 0
    pending: list[tuple[Path, int, Any]] = [((), 0, value)]
    while pending:
        path, depth, value = pending.pop()
        if depth > depths:
            deepest, depths = path, depth
        for step, part in _large_parts(codec, codec.open_up(value)):
            pending.append(((*path, *step), depth + 1, part))
    return deepest


def _large_parts(codec: Codec, opened: Opened) -> Iterator[tuple[Path, Any]]:
    for step, part in _steps(opened):
        if len(codec.encode(part)) > INLINE_MAX:
            yield step, part


def _steps(opened: Opened) -> Iterator[tuple[Path, Any]]:
    if opened.form is Form.BYTES:
        return
    if opened.form is Form.MAPPING:
        record = opened.code == Code.RECORD
        for key, part in opened.parts.items():
            yield (Field(key) if record else key,), part
        return
    for index, part in enumerate(opened.parts):
        # What a declared class encodes itself to has no step of its own.
        yield (() if opened.code == Code.CUSTOM else (index,)), part
