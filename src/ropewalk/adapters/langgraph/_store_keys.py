"""The keys of a memory's map: text that sorts by namespace, within classes of equal length.

A map sorts its keys by their encoding, in which a shorter text comes before a longer one.
So keys are filled up to one of a few lengths: among those of one length, all that begin alike
stand together. What begins with a namespace is then one range for each length that occurs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ropewalk.errors import InvalidInput

ITEM: Final = "i"
VECTORS: Final = "v"
GONE: Final = "g"
NAMESPACE: Final = "n"

SIZES: Final = (
    *(48, 64, 80, 96, 112, 128, 160, 192, 224, 256),
    *(384, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65000),
)
"""The lengths of keys, in bytes. They are stored, so they never change."""

_END: Final = "|"
"""Follows the key; what fills it up comes after it, so no key is taken for another."""


class Name(NamedTuple):
    """Whose entry it is: a namespace and the key of an item in it."""

    namespace: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        return f"{self.key!r:.80} in {self.namespace!r:.200}"


class Bounds(NamedTuple):
    """Two keys of one length: the first that may begin so, and the first after all of them."""

    start: str
    stop: str


def beginning(kind: str, namespace: tuple[str, ...]) -> str:
    """What the keys of a namespace, and of all below it, begin with."""
    # A label holds no dot and is not empty, so two dots end a namespace.
    return kind + "".join([f"{label}." for label in namespace])


def exactly(kind: str, namespace: tuple[str, ...]) -> str:
    """What the keys of a namespace begin with, without those below it."""
    return beginning(kind, namespace) + "."


def to_key(kind: str, name: Name) -> str:
    """The key of an entry; raises `InvalidInput` if it would be too long, or is not text."""
    text = f"{exactly(kind, name.namespace)}{name.key}{_END}"
    length = _length(text)
    for size in SIZES:
        if length <= size:
            return text + " " * (size - length)
    raise InvalidInput(
        f"a namespace and a key take {length} bytes together; the most is {SIZES[-1]}. "
        "Store a shorter key, such as a hash of it."
    )


def to_name(stored: str) -> Name:
    """What a key stands for."""
    text = stored.rstrip(" ")[1 : -len(_END)]
    if text.startswith("."):
        return Name((), text[1:])  # Not written by this module, but no reason to fail.
    labels, _, key = text.partition("..")
    return Name(tuple(labels.split(".")), key)


def order(stored: str) -> tuple[str, str]:
    """What sorts keys as their namespaces, label by label, and then as the keys in these."""
    labels, _, key = stored.rstrip(" ")[1 : -len(_END)].partition("..")
    return labels.replace(".", "\0"), key


def bounds(text: str) -> list[Bounds]:
    """The ranges in which the keys are that begin so, one for each length."""
    length, after = _length(text), text[:-1] + chr(ord(text[-1]) + 1)
    return [
        Bounds(text + "\0" * (size - length), after + "\0" * (size - length))
        for size in SIZES
        if size >= length
    ]


def _length(text: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInput(
            f"a namespace or key holds half a character, a lone surrogate: {text[1:]!r:.80}"
        ) from None
