"""The order in which a commit's objects are stored, where that is not one step.

Whoever finds an object may build on it. So what it points to is stored before it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.errors import FormatError
from ropewalk.tree import Object, ObjectId, links

Below = Mapping[ObjectId, frozenset[ObjectId]]
"""Of each object, those among the others that it points to."""


def below(objects: Sequence[Object]) -> Below:
    """What each object points to among the others."""
    ids = {one.id for one in objects}
    return {one.id: _links(one) & ids for one in objects}


def lowest_first(objects: Sequence[Object], below: Below) -> list[Object]:
    """The objects, none before one that it points to; otherwise as they were."""
    waiting = {one.id: one for one in objects}
    ordered: list[Object] = []
    for first in objects:
        path = [first.id]
        while path:
            id = path[-1]
            deeper = next((one for one in below[id] if one in waiting), None)
            if deeper is not None and id in waiting:
                path.append(deeper)
                continue
            path.pop()
            found = waiting.pop(id, None)
            if found is not None:
                ordered.append(found)
    return ordered


def _links(one: Object) -> frozenset[ObjectId]:
    try:
        return frozenset(links(one))
    except FormatError:
        return frozenset()  # No object of ours: nobody looks below it.
