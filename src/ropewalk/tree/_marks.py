"""Which fields of a pydantic model were set, where that does not go without saying."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.codec._models import set_unless_marked
from ropewalk.errors import FormatError
from ropewalk.tree._builder import Title
from ropewalk.tree._parts import unpack_part

_UNMARKED = 2
"""The head of a record is its name and its version, and then such marks."""


def kind_of(title: Title) -> Title:
    """What a container is, whatever marks it has."""
    return Title(title.code, title.head[:_UNMARKED])


def is_marked(title: Title) -> bool:
    """Whether a title says which fields were set."""
    return len(title.head) > _UNMARKED


def marks_of(title: Title, keys: Iterable[bytes]) -> set[str]:
    """The fields that were set, of a record with these encoded keys."""
    return set(title.head[_UNMARKED]) if is_marked(title) else _unless_marked(keys)


def with_marks(title: Title, keys: Iterable[bytes], marks: set[str]) -> Title:
    """The title of a record with these encoded keys, of which `marks` were set."""
    head = title.head[:_UNMARKED]
    if marks == _unless_marked(keys):
        return Title(title.code, head)
    return Title(title.code, (*head, sorted(marks)))


def _unless_marked(keys: Iterable[bytes]) -> set[str]:
    return set_unless_marked({field_of(key): None for key in keys})


def field_of(key: bytes) -> str:
    """The name of a field from its encoded key; raises FormatError."""
    name = unpack_part(key)
    if type(name) is not str:
        raise FormatError("a field of a record has no name")
    return name
