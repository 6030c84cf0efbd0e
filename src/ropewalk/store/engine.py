"""What an engine is made of, for who writes one. See docs/in-depth/engines.md.

An engine subclasses `LogStore` and supplies its abstract methods; a store that stands in front of
another subclasses `WrapperStore`. Users of stores need nothing from here.
"""

from __future__ import annotations

from ropewalk.store.collection import Sweep, names_of, touches, unreached
from ropewalk.store.contract import StoreOptions
from ropewalk.store.folder import Filesystem, FolderStore
from ropewalk.store.group import Group, Member, SendingGroup
from ropewalk.store.log import LogStore, Moved, expect_refs, shared_frame
from ropewalk.store.lookup import shared_object
from ropewalk.store.memory import Sizes
from ropewalk.store.model import (
    FORMAT_VERSION,
    REMEMBERED_WRITES,
    Capabilities,
    Header,
    Scalar,
    Stored,
    decode_header,
    decode_operation,
    encode_header,
    encode_operation,
)
from ropewalk.store.names import MAX_NAME_BYTES, decode_part, encode_part
from ropewalk.store.record import MAX_PAYLOAD, Append, Place, Row, fenced_off, seal
from ropewalk.store.scratch import Scratch
from ropewalk.store.search_index import TextIndex, Within
from ropewalk.store.segment import Packed
from ropewalk.store.wrappers import WrapperStore

__all__ = [
    "FORMAT_VERSION",
    "MAX_NAME_BYTES",
    "MAX_PAYLOAD",
    "REMEMBERED_WRITES",
    "Append",
    "Capabilities",
    "Filesystem",
    "FolderStore",
    "Group",
    "Header",
    "LogStore",
    "Member",
    "Moved",
    "Packed",
    "Place",
    "Row",
    "Scalar",
    "Scratch",
    "SendingGroup",
    "Sizes",
    "StoreOptions",
    "Stored",
    "Sweep",
    "TextIndex",
    "Within",
    "WrapperStore",
    "decode_header",
    "decode_operation",
    "decode_part",
    "encode_header",
    "encode_operation",
    "encode_part",
    "expect_refs",
    "fenced_off",
    "names_of",
    "seal",
    "shared_frame",
    "shared_object",
    "touches",
    "unreached",
]
