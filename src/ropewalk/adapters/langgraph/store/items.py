"""The items of a memory: the encoding of their keys and values in its map.

A map sorts keys by their encoding, in which a shorter text comes before a longer one. Keys are
therefore padded to one of a few lengths: among keys of one length, those with a common prefix are
adjacent. A namespace is then one range for each length that occurs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph.store.base import Item, SearchItem

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
"""Separates the key from its padding, which keeps padded keys unique."""

Stored: TypeAlias = dict[str, Any]
"""The key of a stored item: see `Record`."""

Entry: TypeAlias = tuple[str, Stored]
"""Its key in the map, and the item."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Name(NamedTuple):
    """The name of an entry: a namespace and the key of an item in it."""

    namespace: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        return f"{self.key!r:.80} in {self.namespace!r:.200}"


class Bounds(NamedTuple):
    """A range of keys of one length: the first with a prefix, and the first after all of them."""

    start: str
    stop: str


def beginning(kind: str, namespace: tuple[str, ...]) -> str:
    """The key prefix of a namespace and everything below it."""
    # A label contains no dot and is not empty, so two dots end a namespace.
    return kind + "".join([f"{label}." for label in namespace])


def exactly(kind: str, namespace: tuple[str, ...]) -> str:
    """The key prefix of a namespace, without those below it."""
    return beginning(kind, namespace) + "."


def to_key(kind: str, name: Name) -> str:
    """The key of an entry; raises `InvalidInput` if it is too long or not valid text."""
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
    """The name of a key."""
    text = stored.rstrip(" ")[1 : -len(_END)]
    if text.startswith("."):
        return Name((), text[1:])  # Not written by this module, but no reason to fail.
    labels, _, key = text.partition("..")
    return Name(tuple(labels.split(".")), key)


def order(stored: str) -> tuple[str, str]:
    """The sort key: namespaces label by label, then keys."""
    labels, _, key = stored.rstrip(" ")[1 : -len(_END)].partition("..")
    return labels.replace(".", "\0"), key


def bounds(text: str) -> list[Bounds]:
    """The ranges of the keys with a prefix, one for each length."""
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


class _Versioned:
    """Adds the version to the representations of LangGraph's items."""

    __slots__ = ()

    version: int
    degraded: bool

    def __repr__(self) -> str:
        mark = ", degraded=True" if self.degraded else ""
        return f"{super().__repr__()[:-1]}, version={self.version}{mark})"


class StoreItem(_Versioned, Item):
    """An item with its version."""

    __slots__ = ("degraded", "version")

    def __init__(self, *, version: int = 0, degraded: bool = False, **fields: Any) -> None:
        super().__init__(**fields)
        self.degraded = degraded
        """Whether a `CoherentStore` could not ask its engine: this is the last value known."""
        self.version = version
        """1 for the first put of a key, and 1 more for each since, also across a delete."""


class StoreSearchItem(_Versioned, SearchItem):
    """A search result with its version."""

    __slots__ = ("degraded", "version")

    def __init__(self, *, version: int = 0, degraded: bool = False, **fields: Any) -> None:
        super().__init__(**fields)
        self.degraded = degraded
        self.version = version


class ItemVersion(NamedTuple):
    """One entry of the history of a key."""

    version: int
    """For a deletion, the deleted version."""
    value: dict[str, Any] | None
    time: datetime
    deleted: bool


class Record(NamedTuple):
    """A stored item."""

    value: dict[str, Any]
    version: int
    created_at: int
    """In microseconds since 1970, like all times here."""
    updated_at: int
    before: bytes
    """The root of the map it was put into, which contains the previous version."""
    vectors: int = 0
    ttl: float | None = None
    """In minutes."""
    expires_at: int | None = None

    def to_stored(self) -> dict[str, Any]:
        """A plain dict, without unset fields."""
        defaults = self._field_defaults
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in defaults or value != defaults[name]
        }

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Record:
        """Read a plain dict, ignoring fields of newer versions."""
        return cls(**{name: stored[name] for name in cls._fields if name in stored})

    def item(self, name: Name) -> StoreItem:
        """For `get`."""
        return StoreItem(version=self.version, **self._fields_of(name))

    def found(self, name: Name, score: float | None) -> StoreSearchItem:
        """For `search`."""
        return StoreSearchItem(version=self.version, score=score, **self._fields_of(name))

    def _fields_of(self, name: Name) -> dict[str, Any]:
        return {
            "value": self.value,
            "key": name.key,
            "namespace": name.namespace,
            "created_at": to_datetime(self.created_at),
            "updated_at": to_datetime(self.updated_at),
        }


class Tombstone(NamedTuple):
    """What remains of a deleted item, so that its version numbers continue."""

    version: int
    deleted_at: int
    before: bytes


class Counted(NamedTuple):
    """The number of items in a namespace, and how many of them never expire."""

    items: int = 0
    lasting: int = 0


def to_datetime(microseconds: int) -> datetime:
    """A stored time, in UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """A time as stored; a naive one is in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)
