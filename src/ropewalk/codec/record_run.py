"""Whether a run of objects is as it was, asked in a few C calls for all of them.

Messages are objects of pydantic models or dataclasses, and a conversation of 2,000 of them is
handed over whole at every step. Encoding each again takes 2 to 3 microseconds, because Python
runs for each. But what a plain object holds is in its `__dict__`: one call takes those of
all, and one call of ormsgpack encodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ormsgpack import Ext

from ropewalk.codec.msgpack import Code, binary_types, pack, unpack
from ropewalk.codec.records import plan_of, record_plan_of
from ropewalk.codec.registry import Entry, Registry

_BUILT_IN: Final = frozenset({dict, list, str, int, float, bool, type(None), tuple, bytes, Ext})
_DICT: Final = attrgetter("__dict__")
_NAMED: Final = attrgetter("__pydantic_fields_set__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_PRIVATE: Final = attrgetter("__pydantic_private__")


class RecordRun(NamedTuple):
    """How a run of objects of data classes looked.

    That they are of the same classes and hold the same means that they would be encoded as
    they were; it is exact, as encoding them again is. For fields that msgpack has no word
    for there is none.
    """

    registry: Registry
    entries: dict[type, Entry]
    types: list[type]
    named: list[frozenset[str]] | None
    """Which fields of pydantic models were set; None if they are other objects."""

    def held(self, values: Sequence[Any]) -> bytes | None:
        """What objects hold, as bytes; None if they are others than these in what is not held.

        No hook is called here, so this is safe while others change the values.
        """
        if list(map(type, values)) != self.types:
            return None
        of = self.registry.of
        if any(of(cls) is not entry for cls, entry in self.entries.items()):
            return None
        if self.named is not None:
            if list(map(_NAMED, values)) != self.named:
                return None
            if any(map(_EXTRA, values)) or any(map(_PRIVATE, values)):
                return None  # They hold what is no field.
        try:
            return pack(list(map(_DICT, values)))
        except TypeError:
            return None

    def joined(self, other: RecordRun) -> RecordRun | None:
        """This run and another one that follows, if they are of one kind."""
        if self.registry is not other.registry or (self.named is None) != (other.named is None):
            return None
        named = None if self.named is None else self.named + (other.named or [])
        return RecordRun(
            self.registry, self.entries | other.entries, self.types + other.types, named
        )


def may_be_records(values: Sequence[Any]) -> bool:
    """Whether it is worth to look at values."""
    return bool(values) and type(values[0]) not in _BUILT_IN


def look_at(
    registry: Registry, values: Sequence[Any], stored: Sequence[Any]
) -> tuple[RecordRun, bytes] | None:
    """The run of objects that were encoded, and what they hold; None for what is no such run.

    `stored` is their encoding, unpacked with extensions left closed. What is remembered is
    made of that, because others may have changed the objects since.
    """
    types = list(map(type, values))
    names: dict[type, list[str]] = {}
    entries: dict[type, Entry] = {}
    for cls in set(types):
        entry = None if cls in _BUILT_IN else registry.of(cls)
        plain = None if entry is None else _plain_fields(entry)
        if entry is None or plain is None:
            return None
        entries[cls], names[cls] = entry, plain
    are_models = {entry.shape == "model" for entry in entries.values()}
    if len(are_models) > 1:
        return None
    fields: list[dict[str, Any]] = []
    named: list[frozenset[str]] = []
    for cls, one in zip(types, stored, strict=True):
        entry = entries[cls]
        code, payload = unpack(pack([one]), _opened)[0] if type(one) is Ext else (None, b"")
        if code != Code.RECORD:
            return None
        name, version, *marks, held = unpack(payload)
        if (name, version) != (entry.name, entry.version) or list(held) != names[cls]:
            return None
        fields.append(held)
        if entry.shape == "model":
            model = plan_of(entry)
            named.append(model.set_of(marks[0]) if marks else model.public)
    if binary_types(fields):
        return None  # Also what is stored as an extension.
    run = RecordRun(registry, entries, types, named if True in are_models else None)
    plain_bytes = pack(fields)
    return None if run.held(values) != plain_bytes else (run, plain_bytes)


def _opened(code: int, payload: bytes) -> tuple[int, bytes]:
    return code, payload


def _plain_fields(entry: Entry) -> list[str] | None:
    """The names of the fields, if all that an object can hold is in its `__dict__`."""
    if entry.shape == "model":
        model = plan_of(entry)
        return model.names if model.is_simple else None
    if entry.shape not in ("dataclass", "attrs"):
        return None
    record = record_plan_of(entry)
    return record.names if record.only_dict and not record.caches_hash else None
