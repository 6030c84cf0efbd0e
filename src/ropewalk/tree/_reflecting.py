"""Reading a value together with what is needed to see later what was changed in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ropewalk.codec import Codec
from ropewalk.codec._codes import Code
from ropewalk.codec._opened import Form, Opened
from ropewalk.tree._builder import Title
from ropewalk.tree._layout import CHUNKS, SETS, Root, layout_of
from ropewalk.tree._levels import View
from ropewalk.tree._load import Loader
from ropewalk.tree._objects import ObjectId, Reader
from ropewalk.tree.change_detection import (
    Budget,
    BytesMirror,
    Mirror,
    MappingMirror,
    Pairs,
    SequenceMirror,
    all_text,
    take,
)


class Reflector(Loader):
    """Loads values, and makes a mirror of every large part before anybody can change it."""

    def __init__(self, read: Reader, codec: Codec, budget: Budget | None = None) -> None:
        super().__init__(read, codec)
        self._budget = Budget() if budget is None else budget
        self.mirrors: dict[ObjectId, Mirror] = {}

    def _loaded(self, id: ObjectId, root: Root, value: Any) -> None:
        if root.code in (Code.MAP, Code.ENUM):
            return
        opened = self._codec.open_up(value)
        title = Title(root.code, root.head)
        if Title(opened.code, opened.head) == title:  # Else its class changed since.
            self.mirrors[id] = self._mirror(id, title, root, opened, value)

    def _mirror(self, id: ObjectId, title: Title, root: Root, opened: Opened, value: Any) -> Mirror:
        layout = layout_of(root.code)
        if opened.form is Form.BYTES:
            whole = root.data is not None
            view = None if whole else View(layout, root.height, root.entries, self._read)
            chunks = [] if whole else self._lowest(CHUNKS, root)
            held = value if type(value) in (str, bytes) else opened.parts
            if held is not value:
                held = self._budget.keep(held)
            return BytesMirror(id, title, view, chunks, held)
        view = View(layout, root.height, root.entries, self._read)
        if opened.form is Form.SEQUENCE:
            items = opened.parts
            if root.code in SETS:
                items = [item for _, item in self._sorted(items)]
            pieces = [piece for _, piece in take(self._codec, items, self._budget, live=False)]
            return SequenceMirror(id, title, view, pieces)
        return self._mapping_mirror(id, title, view, opened.parts, root.order)

    def _mapping_mirror(
        self,
        id: ObjectId,
        title: Title,
        view: View,
        mapping: dict[Any, Any],
        order: bytes | None,
    ) -> MappingMirror:
        in_turn = [key for _, key in self._sorted(mapping)]
        flat = [one for key in in_turn for one in (key, mapping[key])]
        runs: list[Pairs] = []
        at = 0
        for _, piece in take(self._codec, flat, self._budget, live=False, width=2):
            runs.append(Pairs.of(in_turn[at : at + piece.length], piece))
            at += piece.length
        plain = self._codec.encode(list(mapping))
        keys = dict.fromkeys(mapping)
        return MappingMirror(id, title, view, runs, keys, plain, all_text(keys), order)

    def _sorted(self, keys: Iterable[Any]) -> list[tuple[bytes, Any]]:
        return sorted([(self._codec.encode(key), key) for key in keys], key=_first)


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]
