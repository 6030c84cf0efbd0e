from __future__ import annotations

from ropewalk.tree.map_writer import Draft, Kept, Making, MapWriter, Shelf, Slot

__all__ = ["Draft", "Kept", "Making", "MapWriter", "Shelf", "Slot"]
