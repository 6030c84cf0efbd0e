from __future__ import annotations

from ropewalk.tree.build import Edited, finish
from ropewalk.tree.container import Container, find_part, nowhere, open_part, open_root, part_of

__all__ = [
    "Container",
    "Edited",
    "find_part",
    "finish",
    "nowhere",
    "open_part",
    "open_root",
    "part_of",
]
