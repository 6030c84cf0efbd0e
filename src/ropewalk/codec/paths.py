"""Paths inside a value, as Python would write them and as a person types them."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from ropewalk.errors import InvalidInput

Path: TypeAlias = tuple[Any, ...]
"""Keys, indexes and fields from the top of a value to a place inside it."""

_LONGEST = 40
_SHOWN = 12

_NAME = re.compile(r"[^\W\d][\w-]*")
_QUOTED = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'"
_STEP = re.compile(rf"\.?(?P<name>[^.\[\]\"'\s]+)|\[(?P<literal>(?:{_QUOTED}|[^\]\[\"'])+)\]")


class Field(str):
    """A step of a path that is a field of an object; equal to its name."""

    __slots__ = ()


def format_path(path: Path, top: str = "value") -> str:
    """A path as Python would write it: `value["docs"][3].meta`."""
    if len(path) > _SHOWN:
        path = (*path[: _SHOWN // 2], ..., *path[-_SHOWN // 2 :])
    return top + "".join(map(_format_step, path))


def _format_step(step: Any) -> str:
    if isinstance(step, Field):
        return f".{step}"
    if step is ...:
        return "..."
    if type(step) is str:
        text = step if len(step) <= _LONGEST else step[: _LONGEST - 3] + "..."
        escaped: str = text.encode("unicode_escape").decode()
        return '["' + escaped.replace('"', '\\"') + '"]'
    try:
        shown = repr(step)
    except Exception:  # noqa: BLE001 - a broken repr must not hide the error that names it
        shown = f"<{type(step).__qualname__}>"
    return f"[{shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + '...'}]"


def spell_path(path: Path) -> str:
    """A path as `parse_path` reads it, whole: `docs[3].title`, `["a b"]`."""
    spelled = "".join(map(_spell_step, path)).removeprefix(".")
    # The word for the whole value stands for itself only in brackets.
    return re.sub(r"^state(?=[.\[]|$)", '["state"]', spelled) or "state"


def parse_path(text: str) -> Path:
    """The path that a text spells; raises `InvalidInput`.

    `docs[3].title` leads from a key to an item to a key or field. A key with other
    characters is quoted: `["a b"]`; one that is no text is written as in Python:
    `[None]`. `state` at the beginning stands for the whole value, so paths can be
    taken as errors and diffs show them.
    """
    rest = text.removeprefix("state") if re.match(r"state(?=[.\[]|$)", text) else text
    steps: list[Any] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None or (at and found["name"] is not None and rest[at] != "."):
            raise InvalidInput(
                f"{text!r:.200} is not a path: write docs[3].title, and keys with other "
                'characters as ["a b"]'
            )
        name = found["name"]
        steps.append(name if name is not None else _literal(found["literal"], text))
        at = found.end()
    return tuple(steps)


def _spell_step(step: Any) -> str:
    if isinstance(step, str):
        if _NAME.fullmatch(step):
            return f".{step}"
        escaped: str = str(step).encode("unicode_escape").decode()
        return '["' + escaped.replace('"', '\\"') + '"]'
    return f"[{step!r}]"


def _literal(written: str, text: str) -> Any:
    from ast import literal_eval  # Needed only where a person types a path.

    try:
        key = literal_eval(written.strip())
        hash(key)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        key = ...
    if key is ...:
        raise InvalidInput(
            f"[{written:.80}] in {text!r:.200} is not a key: write a number, or a text in quotes"
        )
    return key
