"""Values as they were at one moment.

A program may change a value while it is being saved. So what is stored is made of its
encoding, in which each container is as it was at one moment: the encoding is unpacked
again, with extensions left closed, and all that a tree consists of is derived from that.
No class is needed for it, and nobody else can change it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec._msgpack import array_header, pack, unpack
from ropewalk.codec._opened import Form, Opened, open_extension
from ropewalk.errors import NotStorable, RopewalkError
from ropewalk.tree._layout import KEYED


class Live(NamedTuple):
    """Stands in a snapshot for a value that is too deep to be encoded in one piece."""

    value: Any


class SnapshotCodec(Codec):
    """What a codec is for values, for snapshots of them.

    The keys of dicts are values beside that: they are looked up in other dicts.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec, self.registry = codec, codec.registry

    def encode(self, value: Any) -> bytes:
        """The encoding of what a snapshot is of."""
        try:
            return pack(value)
        except TypeError:
            if type(value) is Live:
                raise NotStorable("it is nested too deeply") from None
            if type(value) is list:
                return array_header(len(value)) + b"".join(map(self.encode, value))
            return self._codec.encode(value)

    def encode_again(self, value: Any) -> bytes | None:
        """The same; None for what cannot be encoded."""
        try:
            return self.encode(value)
        except NotStorable:
            return None

    def open_up(self, value: Any) -> Opened:
        """The parts of what a snapshot is of, as snapshots."""
        if type(value) is not Ext:
            return super().open_up(value)
        opened = open_extension(*unpack(pack(value), lambda code, data: (code, data)))
        if opened.code not in KEYED:
            return opened
        keys, parts = opened.parts[::2], opened.parts[1::2]
        return opened._replace(form=Form.MAPPING, parts=self._keyed(keys, parts))

    def _keyed(self, keys: list[Any], parts: list[Any]) -> dict[Any, Any]:
        try:
            decoder = self._codec.decoder()
            found = dict(zip([decoder.decode(pack(key)) for key in keys], parts, strict=True))
            if len(found) == len(keys):
                return found
        except (RopewalkError, TypeError):
            pass
        # The class of a key does not come back: the dict is made anew when it is next saved.
        return dict(zip(keys, parts, strict=True))
