"""The names of shared artifacts, from scopes and keys, and back.

An artifact is named like a path: the labels of its scope and its key, with slashes between
them. Slashes, percent signs and control characters inside a label or key are spelled `%XX`,
so no two of them are ever taken for each other: `("x:y",), "z"` is `x:y/z`, and
`("x",), "y:z"` is `x/y:z`.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from ropewalk.errors import InvalidInput

Scope: TypeAlias = tuple[str, ...]

_EMPTY: Final = "%"
"""An empty key. Every other percent sign is followed by two digits."""

_SPELLED: Final = re.compile(r"[%/\x00-\x1f\x7f]")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")


def artifact_name(scope: Scope, key: str) -> str:
    """The name of the artifact that has this key in this scope."""
    name = scope_prefix(scope) + _part(key)
    # A name that means a folder would be refused by an engine.
    return name.replace(".", "%2E") if name in (".", "..") else name


def scope_prefix(scope: Scope) -> str:
    """What the names of all artifacts in a scope, and below it, begin with."""
    return "".join([f"{_part(label)}/" for label in scope])


def split_artifact(name: str) -> tuple[Scope, str]:
    """The scope and key that a name stands for."""
    *scope, key = name.split("/")
    return tuple([_plain(label) for label in scope]), _plain(key)


def _part(text: str) -> str:
    if text.isidentifier():
        return text
    if not text:
        return _EMPTY
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"a namespace or key holds half a character, a lone surrogate: {text!r:.80}"
        ) from None
    return _SPELLED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _plain(part: str) -> str:
    if "%" not in part:
        return part
    if part == _EMPTY:
        return ""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), part)
