"""Names of spaces, refs and leases.

A full ref name is `tenant/space/kind/name`: two parts name the space, two parts
name the ref inside it. Each part is percent-encoded, so a part may hold any text
and an engine sees only `A-Z a-z 0-9 . _ ~ - %`. One text has one spelling.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ropewalk.errors import InvalidName

MAX_NAME_BYTES = 512
"""The most bytes that `tenant/space/kind/name` may take, encoded, with its slashes."""

_PART = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")
_PREFIX = re.compile(r"[A-Za-z0-9._~%/-]*")
_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_PLAIN = re.compile(r"[A-Za-z0-9._~-]*")
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SPELLINGS = [chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"%{byte:02X}" for byte in range(256)]


def encode_part(text: str) -> str:
    """Spell any text as one part of a name.

    Raises `InvalidName` for an empty text, `.`, `..`, control characters and lone
    surrogates.
    """
    _check_text(text)
    if _PLAIN.fullmatch(text):
        return text
    return "".join([_SPELLINGS[byte] for byte in text.encode("utf-8")])


def decode_part(part: str) -> str:
    """The text that a part spells."""
    if not isinstance(part, str) or not _PART.fullmatch(part):
        raise InvalidName(
            f"{_show(part)} is not a percent-encoded part of a name: "
            "space_name() and ref_name() spell names from any texts"
        )
    if "%" not in part and part not in (".", "..") and len(part) <= MAX_NAME_BYTES:
        return part
    try:
        text = _ESCAPE.sub(_unescape, part).encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidName(f"{_show(part)} does not spell valid UTF-8") from None
    if encode_part(text) != part:
        raise InvalidName(f"{_show(part)} has another spelling: write {encode_part(text)!r}")
    return text


def space_name(tenant: str, space: str) -> str:
    """The name of a space: `tenant/space`."""
    name = f"{encode_part(tenant)}/{encode_part(space)}"
    _check_length(name)
    return name


def ref_name(kind: str, name: str) -> str:
    """The name of a ref or lease inside its space: `kind/name`."""
    joined = f"{encode_part(kind)}/{encode_part(name)}"
    _check_length(joined)
    return joined


def split_name(name: str) -> tuple[str, str]:
    """The two texts of a space's or ref's name; the reverse of the two above."""
    parts = name.split("/") if isinstance(name, str) else ()
    if len(parts) != 2:
        raise InvalidName(
            f"{_show(name)} must have two parts with one slash between them, as in 'tenant/space' "
            "and 'kind/name': space_name() and ref_name() make them"
        )
    _check_length(name)
    return decode_part(parts[0]), decode_part(parts[1])


def check_space(space: str) -> None:
    """Raise `InvalidName` unless this names a space."""
    _check_string(space)
    known_space(space)


def check_name(space: str, name: str) -> None:
    """Raise `InvalidName` unless this names a ref or lease of that space."""
    _check_string(name)
    known_name(space, name)


@lru_cache(maxsize=4096)
def known_space(space: str) -> None:
    """As `check_space`, without a call for one that is known; `TypeError` for a list or dict."""
    _check_string(space)
    split_name(space)


@lru_cache(maxsize=4096)
def known_name(space: str, name: str) -> None:
    """As `check_name`, likewise."""
    _check_string(name)
    split_name(name)
    _check_length(f"{space}/{name}")


def check_prefix(prefix: str) -> None:
    """Raise `InvalidName` unless a name could begin so."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidName(f"no name begins with {_show(prefix)}: names are percent-encoded")


def _check_string(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidName(f"a name must be a string, not {type(name).__name__}")


def _check_text(text: str) -> None:
    _check_string(text)
    if text == "":
        raise InvalidName("a part of a name is empty")
    if text in (".", ".."):
        raise InvalidName(f"{text!r} cannot be a part of a name: it means a folder")
    if len(text) > MAX_NAME_BYTES:
        raise InvalidName(f"{_show(text)} is longer than {MAX_NAME_BYTES} bytes")
    refused = _REFUSED.search(text)
    if refused is not None:
        what = "lone surrogate" if refused[0] >= "\ud800" else "control character"
        raise InvalidName(f"{_show(text)} holds the {what} {refused[0]!r}")


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _check_length(name: str) -> None:
    if len(name) > MAX_NAME_BYTES:
        raise InvalidName(
            f"{_show(name)} takes {len(name)} bytes when encoded; the most is {MAX_NAME_BYTES}"
        )


def _show(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else text[:77] + "..."
