"""What the tests of trees share: objects in memory, small nodes, exact comparison."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pyfastcdc

from ropewalk.codec import Codec
from ropewalk.errors import MissingObjects
from ropewalk.tree import (
    Kind,
    Object,
    ObjectId,
    TreeWriter,
    Written,
    build,
    links,
    load,
    make_object,
)
from ropewalk.tree.nodes import Root


class Objects(dict[ObjectId, Object]):
    """A store of objects that checks what it is given."""

    def add(self, written: Written) -> None:
        """Keep what was written: what is pointed to is always there before."""
        for needed in written.needs:
            assert needed in self, "a need is not stored"
        for made in written.objects:
            assert make_object(made.kind, made.payload).id == made.id
            assert all(target in self for target in links(made)), "a child comes too late"
            self[made.id] = made
        assert written.root in self

    def put(self, kind: Kind, payload: bytes) -> ObjectId:
        """Keep a payload that nobody checks."""
        made = make_object(kind, payload)
        self[made.id] = made
        return made.id

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        missing = [id for id in ids if id not in self]
        if missing:
            raise MissingObjects(missing)
        return [self[id] for id in ids]

    def load(self, root: ObjectId, codec: Codec | None = None) -> Any:
        return load(root, self.read, codec)


class History:
    """A value that is written again and again with one writer."""

    def __init__(self, *values: Any) -> None:
        self.writer = TreeWriter()
        self.objects = Objects()
        for value in values:
            self.write(value)

    def write(self, value: Any) -> Written:
        written = self.writer.write(value)
        self.objects.add(written)
        self.writer.accept(written)
        return written


def stored(value: Any) -> tuple[ObjectId, Objects]:
    """The root of a value, and its objects."""
    written, objects = TreeWriter().write(value), Objects()
    objects.add(written)
    return written.root, objects


def root_of(value: Any) -> ObjectId:
    """The root that a fresh writer gives."""
    return TreeWriter().write(value).root


def height_of(value: Any) -> int | None:
    """How many levels of indexes a value has; None if it is one small object."""
    root, objects = stored(value)
    found = objects[root]
    return Root.decode(found.payload).height if found.kind == Kind.ROOT else None


def size_of(written: Written) -> int:
    """The bytes of all new objects."""
    return sum(len(made.payload) for made in written.objects)


_SMALL_CUTTER = partial(
    pyfastcdc.FastCDC, 256, min_size=64, max_size=1024, normalized_chunking=1, seed=0
)


_TREE = "ropewalk.tree."


@contextlib.contextmanager
def small_nodes() -> Iterator[None]:
    """Nodes so small that a little value is a tall tree."""
    sizes = {"NODE_MIN": 48, "NODE_TARGET": 160, "NODE_MAX": 512, "_SPAN": 112, "INLINE_MAX": 64}
    sizes |= {"PIECE_TARGET": 200, "PIECE_MAX": 400, "VALUE_MAX": 500}
    with contextlib.ExitStack() as stack:
        for module in [found for name, found in sys.modules.items() if name.startswith(_TREE)]:
            for name in sizes.keys() & vars(module).keys():
                stack.enter_context(mock.patch.object(module, name, sizes[name]))
        cutter = _SMALL_CUTTER()
        stack.enter_context(mock.patch.multiple(build, CHUNK_MIN=64, _cutter=lambda: cutter))
        yield


MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
SEQUENCES = (list, tuple, deque)
_MUTABLE = (list, deque, dict, set, bytearray, np.ndarray)


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """The steps and parts directly inside a value, members of sets excepted."""
    if type(value) in MAPPINGS:
        return list(value.items())
    if type(value) in SEQUENCES:
        return list(enumerate(value))
    names = getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
    names = names or list(getattr(value, "__dataclass_fields__", ()))
    names = names or list(getattr(type(value), "__pydantic_fields__", ()))
    return [(name, getattr(value, name)) for name in names]


def like(value: Any, parts: Any) -> Any:
    """A container of the same type with other items, members, or keys and values."""
    if type(value) is deque:
        return deque(parts, value.maxlen)
    if type(value) is defaultdict:
        return defaultdict(value.default_factory, parts)
    if type(value) is Counter:
        made: Counter[Any] = Counter()
        dict.update(made, parts)
        return made
    return type(value)(parts)


def mutable_objects(value: Any) -> list[Any]:
    """Every mutable object in a value, once for each place where it stands."""
    found, pending = [], [value]
    while pending:
        one = pending.pop()
        parts = parts_of(one)
        if isinstance(one, _MUTABLE) or (parts and not isinstance(one, tuple)):
            found.append(one)
        pending += [part for _, part in parts]
    return found
