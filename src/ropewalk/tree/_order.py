"""The order of a dict's keys, which stands beside its sorted pairs."""

from __future__ import annotations

from collections.abc import Collection

from ropewalk.codec._codes import Code
from ropewalk.tree._builder import Builder, Title
from ropewalk.tree._compare import differing
from ropewalk.tree._container import Container, edit_sequence, open_order
from ropewalk.tree._layout import Entry
from ropewalk.tree._levels import Span
from ropewalk.tree._objects import Reader


def edited_order(
    builder: Builder, opened: Container, gone: Collection[bytes], added: list[bytes]
) -> bytes | None:
    """The order of a mapping without some keys, and with new ones at its end."""
    if opened.title.code == Code.MAP or not (gone or added):
        return opened.order
    if opened.order is not None:
        return _edited_list(builder, opened.order, gone, added)
    if not added or _stays_sorted(opened, added):
        return None
    keys = [key for key in opened.keys(builder.read) if key not in gone] + added
    if keys == sorted(keys):
        return None
    return builder.sequence(Title(Code.LIST), keys).part


def _stays_sorted(opened: Container, added: list[bytes]) -> bool:
    """Whether new keys come after all old ones by themselves."""
    total = opened.view.total
    last = opened.view.node_at(0, total - 1).entries[-1].key if total else b""
    return last < added[0] and added == sorted(added)


def _edited_list(
    builder: Builder, order: bytes, gone: Collection[bytes], added: list[bytes]
) -> bytes | None:
    listed = open_order(order, builder.read)
    total = listed.view.total
    spans: list[Span] = []
    if gone:
        keys = [entry.body for place in listed.view.leaves() for entry in place.entries]
        left = [key for key in keys if key not in gone] + added
        if left == sorted(left):
            return None
        spans = [Span(at, at + 1, []) for at, key in enumerate(keys) if key in gone]
    if added:
        spans.append(Span(total, total, [Entry(b"", key) for key in added]))
    return edit_sequence(builder, listed, spans)


def merged_order(
    builder: Builder,
    containers: tuple[Container, Container, Container],
    gone: set[bytes],
    added: set[bytes],
) -> bytes | None:
    """The order of base, ours and theirs merged; keys `gone` and `added` are as to ours.

    It is that of ours, and what theirs added comes last. But where ours has the keys
    and the order of base, it is that of theirs.
    """
    base, ours, theirs = containers
    read = builder.read
    if not gone and not added and theirs.order == base.order:
        return ours.order
    if not _same_keys(base, ours, read):
        return edited_order(builder, ours, gone, _sort_like(theirs, added, read))
    before, after = differing(base.view, theirs.view, read)
    old, new = {entry.key for entry in before}, {entry.key for entry in after}
    kept = _sort_like(ours, (old - new) - gone, read)
    return edited_order(builder, theirs, (new - old) - added, kept)


def _same_keys(one: Container, other: Container, read: Reader) -> bool:
    if one.order != other.order:
        return False
    if one.order is not None:
        return True
    left, right = differing(one.view, other.view, read)
    return {entry.key for entry in left} == {entry.key for entry in right}


def _sort_like(opened: Container, keys: set[bytes], read: Reader) -> list[bytes]:
    """Keys in the order in which a mapping has them."""
    if opened.order is None or len(keys) < 2:
        return sorted(keys)
    return [key for key in opened.keys(read) if key in keys]
