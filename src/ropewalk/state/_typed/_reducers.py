"""Reducers: how two updates of one field become one, for frameworks that merge updates.

Declared as `docs: Annotated[Externalized[list[dict]], append_items]`. A field without a
reducer has none: two updates of it at once are for the framework to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Final, TypeVar

from ropewalk.errors import InvalidInput, MissingContent, MissingObjects
from ropewalk.state._typed import _edits
from ropewalk.state._typed._content import ContentRef
from ropewalk.state._typed._fields import Reduce
from ropewalk.state._typed._holding import Content, size_of, store_changes
from ropewalk.state._typed._pins import keep
from ropewalk.state._typed._runtime import Runtime

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_FEW: Final = 256
"""Up to so many parts are put into stored content one by one; more are worth loading it."""


def replace_value(left: T, right: T) -> T:
    """The later update wins, and the earlier one is dropped."""
    return right


def append_items(left: list[T], right: list[T]) -> list[T]:
    """The items of both lists, in the order of the updates; equal items stay."""
    if not isinstance(left, list) or not isinstance(right, list):
        raise InvalidInput(f"append_items joins two lists, not {_types(left, right)}")
    return [*left, *right]


def merge_keys(left: dict[K, V], right: dict[K, V]) -> dict[K, V]:
    """The keys of both dicts; where both have one, the later value wins."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        raise InvalidInput(f"merge_keys joins two dicts, not {_types(left, right)}")
    return {**left, **right}


_EDITS: Final[dict[Reduce, tuple[type[Sized], Callable[..., _edits.Kept]]]] = {
    append_items: (list, _edits.append),
    merge_keys: (dict, _edits.update),
}
"""What can be done without loading what is on the left."""


def combine(runtime: Runtime, reduce: Reduce, left: Any, right: Any) -> ContentRef:
    """Two updates of an externalized field, as one reference; each is a value or a reference."""
    if reduce is replace_value:
        return _reference(runtime, right)
    if isinstance(left, ContentRef) and reduce in _EDITS:
        kind, edit = _EDITS[reduce]
        value = _value(runtime, right)
        if isinstance(value, kind) and len(value) <= _FEW:
            return _edited(runtime, left, value, edit)
        right = value
    content = Content(runtime, left if isinstance(left, ContentRef) else None)
    held = content.value() if isinstance(left, ContentRef) else left
    store_changes(runtime, [content.assigned(reduce(held, _value(runtime, right)))])
    return _of(content)


def _edited(
    runtime: Runtime, left: ContentRef, value: Any, edit: Callable[..., _edits.Kept]
) -> ContentRef:
    left.expect_answer(runtime.backend)
    try:
        kept = edit(left.id, value, runtime.backend.read, runtime.coding)
        keep(runtime.backend, [kept], runtime.expires_at())
    except MissingObjects as error:
        raise MissingContent(left.hash, error.ids) from error
    size = left.size_bytes + size_of(runtime, value)
    return ContentRef(kept.root.hex(), runtime.backend.backend_id, left.type_name, size)


def _value(runtime: Runtime, given: Any) -> Any:
    if not isinstance(given, ContentRef):
        return given
    return given.resolve(runtime.backend, codec=runtime.coding)


def _reference(runtime: Runtime, given: Any) -> ContentRef:
    content = Content(runtime)
    store_changes(runtime, [content.assigned(given)])
    return _of(content)


def _of(content: Content) -> ContentRef:
    assert content.ref is not None
    return content.ref


def _types(left: object, right: object) -> str:
    return f"a {type(left).__name__} and a {type(right).__name__}"
