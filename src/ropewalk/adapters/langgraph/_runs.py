"""Runs of messages that are looked at together.

A list of messages is compared in runs at every step. What is remembered of its records is
held here side by side, so that one call looks at all of them.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph._memo import Seen
from ropewalk.codec._msgpack import array_header, pack

SHORTEST: Final = 4

_DICT: Final = attrgetter("__dict__")
_NAMED: Final = attrgetter("__pydantic_fields_set__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_PRIVATE: Final = attrgetter("__pydantic_private__")
_FIELDS: Final = itemgetter(*[Seen._fields.index(name) for name in ("keys", "named", "extra")])


class Run(NamedTuple):
    """Models that stood in a list one after another, as they were."""

    values: tuple[Any, ...]
    data: bytes
    """The encoding of a list of them."""
    keys: list[list[str]]
    held: tuple[Any, ...]
    """The values of all fields of all models, in turn."""
    named: list[frozenset[str]]
    extra: list[Any]
    empty: list[Any]
    busy: list[Any]
    busy_plain: bytes

    def is_same(self, values: list[Any]) -> bool:
        """Whether these are the same models, and as they were."""
        # No hook is called here, so this is safe while others change the values.
        if len(values) != len(self.values) or not all(map(is_, values, self.values)):
            return False
        fields = list(map(_DICT, values))
        return (
            list(map(_NAMED, values)) == self.named
            and list(map(list, fields)) == self.keys
            and all(map(is_, chain.from_iterable(map(dict.values, fields)), self.held))
            and not any(self.empty)
            and all(map(is_, map(_EXTRA, values), self.extra))
            and not any(map(_PRIVATE, values))
            and (not self.busy or _packed(self.busy) == self.busy_plain)
        )


def make_run(seen: list[Seen], data: bytes) -> Run | None:
    """A run of records that were just seen, of which the encoding is given."""
    if any(one.named is None for one in seen):
        return None
    busy = list(chain.from_iterable([one.busy for one in seen]))
    values = [value for value, _ in busy]
    if busy and _packed(values) is None:
        return None
    keys, named, extra = map(list, zip(*map(_FIELDS, seen), strict=True))
    return Run(
        values=tuple([one.value for one in seen]),
        data=data,
        keys=keys,
        held=tuple(chain.from_iterable([one.held for one in seen])),
        named=named,
        extra=extra,
        empty=list(chain.from_iterable([one.empty for one in seen])),
        busy=values,
        # What was seen, not what is there now: others may have changed it since.
        busy_plain=array_header(len(busy)) + b"".join([plain[2:] for _, plain in busy]),
    )


def _packed(values: list[Any]) -> bytes | None:
    try:
        return pack(values)
    except TypeError:
        return None
