"""Reading a value together with what is needed to see later what was changed in it."""

from __future__ import annotations

from typing import Any

from ropewalk.codec import Codec
from ropewalk.codec._codes import Code
from ropewalk.codec._opened import Form, Opened
from ropewalk.tree._builder import Title
from ropewalk.tree._embed import in_order
from ropewalk.tree._layout import CHUNKS, SETS, Root, layout_of
from ropewalk.tree._levels import View
from ropewalk.tree._load import Loader
from ropewalk.tree._mirrors import (
    BytesMirror,
    MappingMirror,
    Mirror,
    SequenceMirror,
    all_text,
    cut_pairs,
)
from ropewalk.tree._objects import ObjectId, Reader
from ropewalk.tree._pieces import cut_pieces, held_bytes


class Reflector(Loader):
    """Loads values, and makes a mirror of every large part before anybody can change it."""

    def __init__(self, read: Reader, codec: Codec, lean: bool = False) -> None:
        super().__init__(read, codec)
        self._lean = lean
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
            source = value if type(value) in (str, bytes) else opened.parts
            return BytesMirror(id, title, view, chunks, source)
        view = View(layout, root.height, root.entries, self._read)
        if opened.form is Form.SEQUENCE:
            items = opened.parts
            if root.code in SETS:
                items = in_order(self._codec, items)
            pieces = cut_pieces(self._codec, items, lean=self._lean)
            return SequenceMirror(id, title, view, pieces, held_bytes(pieces, len(pieces)))
        return self._mapping_mirror(id, title, view, opened.parts, root.order)

    def _mapping_mirror(
        self,
        id: ObjectId,
        title: Title,
        view: View,
        mapping: dict[Any, Any],
        order: bytes | None,
    ) -> MappingMirror:
        encode = self._codec.encode
        sorted_keys = [
            key for _, key in sorted([(encode(key), key) for key in mapping], key=_first)
        ]
        runs = cut_pairs(self._codec, sorted_keys, mapping, lean=self._lean)
        keys = dict.fromkeys(mapping)
        plain = encode(list(keys))
        held = held_bytes([run.piece for run in runs], len(runs)) + 100 * len(keys) + len(plain)
        return MappingMirror(id, title, view, runs, keys, plain, all_text(keys), order, held)


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]
