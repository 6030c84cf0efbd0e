"""What is stored of an item, and what callers get of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph.store.base import Item, SearchItem

from ropewalk.adapters.langgraph._store_keys import Name

Stored: TypeAlias = dict[str, Any]
"""An item as it is stored: see `Record`."""
Entry: TypeAlias = tuple[str, Stored]
"""Its key in the map, and the item."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Versioned:
    """Says the version, where LangGraph's items tell of themselves."""

    __slots__ = ()

    version: int
    degraded: bool

    def __repr__(self) -> str:
        mark = ", degraded=True" if self.degraded else ""
        return f"{super().__repr__()[:-1]}, version={self.version}{mark})"


class StoreItem(_Versioned, Item):
    """An item that knows how often it was put."""

    __slots__ = ("degraded", "version")

    def __init__(self, *, version: int = 0, degraded: bool = False, **fields: Any) -> None:
        super().__init__(**fields)
        self.degraded = degraded
        """Whether a `CoherentStore` could not ask its engine: this is the last value known."""
        self.version = version
        """1 for the first put of a key, and 1 more for each since, also across a delete."""


class StoreSearchItem(_Versioned, SearchItem):
    """An item that a search found, which knows how often it was put."""

    __slots__ = ("degraded", "version")

    def __init__(self, *, version: int = 0, degraded: bool = False, **fields: Any) -> None:
        super().__init__(**fields)
        self.degraded = degraded
        self.version = version


class ItemVersion(NamedTuple):
    """One entry of the history of a key."""

    version: int
    """Of a deletion, the version that was deleted."""
    value: dict[str, Any] | None
    time: datetime
    deleted: bool


class Record(NamedTuple):
    """An item as it is stored."""

    value: dict[str, Any]
    version: int
    created_at: int
    """In microseconds since 1970, as all times here."""
    updated_at: int
    before: bytes
    """The root of the map that it was put into: there the version before is found."""
    vectors: int = 0
    ttl: float | None = None
    """In minutes."""
    expires_at: int | None = None

    def to_stored(self) -> dict[str, Any]:
        """As a plain dict; what is not set is left out."""
        defaults = self._field_defaults
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in defaults or value != defaults[name]
        }

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Record:
        """From a plain dict; what a newer version added to it is passed over."""
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
    """What is left of a deleted item, so that its versions go on."""

    version: int
    deleted_at: int
    before: bytes


class Counted(NamedTuple):
    """How many items a namespace has, and how many of them have no end."""

    items: int = 0
    lasting: int = 0


def to_datetime(microseconds: int) -> datetime:
    """A moment, in UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """A moment as it is stored; one without a zone is in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)
