"""One checkpoint as it stands in the index of its thread.

An entry is a list of parts: the record (what the checkpoint says of itself, its metadata,
its parent), its channel values, and what its delta channels were before it where the
checkpoints before it are gone. What is large stands in it as links, so an entry is small
and what it points to is shared. Its pending writes stand beside it under a key of their
own: these come later, and a thread that goes on only adds to its index.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.codec._codes import Code
from ropewalk.errors import FormatError
from ropewalk.tree import ObjectId, Reader
from ropewalk.tree._builder import Builder, Title
from ropewalk.tree._container import open_part
from ropewalk.tree._edit import embed_at
from ropewalk.tree._embed import Embedder
from ropewalk.tree._load import Loader
from ropewalk.tree._parts import link, linked
from ropewalk.tree._stack import reading

_LIST: Final = Title(Code.LIST)
_NOTHING: Final = b"\xc0"
_SEPARATOR: Final = "\0"
PUT: Final = "c"
WRITTEN: Final = "w"
"""What keys end with. Of one checkpoint, that of its writes is the greater one."""


class Address(NamedTuple):
    """Which checkpoint of a thread."""

    namespace: str
    id: str

    @property
    def key(self) -> str:
        """Its key in the index. Keys of one namespace and length are sorted by id."""
        return f"{prefix_of(self.namespace)}{self.id}{PUT}"

    @property
    def writes_key(self) -> str:
        """The key of its pending writes, which follows its own at once."""
        return f"{prefix_of(self.namespace)}{self.id}{WRITTEN}"

    @classmethod
    def of(cls, key: str) -> Address:
        """The checkpoint with a key."""
        namespace, _, id = key[:-1].partition(_SEPARATOR)
        return cls(namespace, id)


def prefix_of(namespace: str) -> str:
    """What the keys of a namespace begin with."""
    return f"{namespace}{_SEPARATOR}"


class Entry(NamedTuple):
    """A checkpoint in the index."""

    record: bytes
    """The part of a `Record`."""
    values: bytes
    """The part of its channel values, by name."""
    before: ObjectId | None = None
    """The root of the map of what delta channels were before it, where that is gone."""

    def part(self, builder: Builder) -> bytes:
        """The entry as a part."""
        before = _NOTHING if self.before is None else link(self.before)
        return builder.sequence(_LIST, [self.record, self.values, before]).part

    @classmethod
    def read(cls, part: bytes, read: Reader) -> Entry:
        """The entry that a part is; raises FormatError."""
        opened = open_part(part, read)
        if opened is not None and opened.title == _LIST and opened.view.total == len(cls._fields):
            record, values, before = [one.body for one in opened.view.entries(0, len(cls._fields))]
            return cls(record, values, linked(before))
        raise FormatError("the index of a LangGraph thread holds something else")


class Record(NamedTuple):
    """What is kept of a checkpoint beside its values and writes."""

    checkpoint: dict[str, Any]
    """The checkpoint without its channel values."""
    metadata: dict[str, Any]
    parent: str | None
    """The id of the checkpoint that it follows."""
    aside: bool = False
    """Whether it lost a race against another run, and is not on the way to the newest."""
    copy_of: str | None = None
    """The id of the checkpoint that it is a copy of: what led to that one led to it."""

    def part(self, codec: Codec, builder: Builder) -> bytes:
        """The record as a part; raises NotStorable."""
        embedder = Embedder(codec, builder, {})
        kept = self if self.copy_of is not None else self[:-1]
        return embed_at(embedder, codec, (), list(kept), None)

    @classmethod
    @reading
    def read(cls, entry: Entry, loader: Loader) -> Record:
        """The record of an entry; raises FormatError."""
        found = loader.part(entry.record)
        if type(found) is not list or len(cls._fields) - len(found) not in (0, 1):
            raise FormatError("a record of a LangGraph checkpoint is malformed")
        return cls(*found)
