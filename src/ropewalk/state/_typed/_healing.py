"""Content that is damaged or missing although it should be there, put right by who has it."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.errors import DamagedObject, MissingObjects
from ropewalk.store import Store
from ropewalk.tree import Object

_BATCH = 256


def heal(store: Store, objects: Sequence[Object]) -> list[Object]:
    """Those of the objects that must be stored anew; what is damaged is taken out for that.

    What other objects are stored against cannot be taken out, and stays damaged.
    """
    unsound: list[Object] = []
    for start in range(0, len(objects), _BATCH):
        batch = objects[start : start + _BATCH]
        if not _are_sound(store, batch):
            unsound += [one for one in batch if not _are_sound(store, [one])]
    if unsound:
        store.discard([one.id for one in unsound])
    return unsound


def _are_sound(store: Store, objects: Sequence[Object]) -> bool:
    try:
        store.read([one.id for one in objects])
    except (MissingObjects, DamagedObject):
        return False
    return True
