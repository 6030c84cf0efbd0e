from __future__ import annotations

from ropewalk.tree.nodes import CHUNKS, ITEMS, PAIRS, Entry, Layout, Root, index_entry, layout_of

__all__ = ["CHUNKS", "ITEMS", "PAIRS", "Entry", "Layout", "Root", "index_entry", "layout_of"]
