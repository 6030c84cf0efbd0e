"""References to content in a store: small, portable, and never trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import ormsgpack

from ropewalk.codec import Codec
from ropewalk.errors import (
    InvalidInput,
    MissingContent,
    MissingObjects,
    UnresolvedReferenceError,
)
from ropewalk.state._typed._pins import drop
from ropewalk.state._typed._runtime import get_config
from ropewalk.store import Store
from ropewalk.tree import ObjectId, load

MARK: Final = "ropewalk_ref"
"""The one key of a reference as it stands in a checkpoint."""

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LARGEST = 1 << 63
_LONGEST = 1024
_KEYS = ("hash", "backend_id", "type_name", "size_bytes")


@dataclass(frozen=True, slots=True)
class ContentRef:
    """Names a value in a store: by its hash and the store's `backend_id`.

    `hash` is that of the value's root, so that equal values have equal references and
    values of different types do not. `type_name` and `size_bytes` are for people, and
    no part of what makes two references equal.
    It holds no value and no store. Raises `InvalidInput` for what cannot be a reference.
    """

    hash: str
    backend_id: str
    type_name: str = field(compare=False)
    size_bytes: int = field(compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.hash, str) or not _HASH.fullmatch(self.hash):
            raise InvalidInput(
                f"the hash of a reference is 64 lower-case hexadecimal digits, not "
                f"{_shown(self.hash)}"
            )
        for name in ("backend_id", "type_name"):
            text = getattr(self, name)
            if not isinstance(text, str) or not 1 <= len(text) <= _LONGEST:
                raise InvalidInput(
                    f"the {name} of a reference is a text of 1 to {_LONGEST} characters, not "
                    f"{_shown(text)}"
                )
        if type(self.size_bytes) is not int or not 0 <= self.size_bytes < _LARGEST:
            raise InvalidInput(
                f"the size_bytes of a reference is a whole number below 2**63, not "
                f"{_shown(self.size_bytes)}"
            )

    @property
    def id(self) -> ObjectId:
        """The root of the value, for `load`."""
        return bytes.fromhex(self.hash)

    # Reading.

    def resolve(self, backend: Store | None = None, *, codec: Codec | None = None) -> Any:
        """The value, loaded anew at each call, so that it is the caller's own.

        Raises `UnresolvedReferenceError` if the store does not answer to the reference's
        backend, `MissingContent` if the value is gone, and `Corrupt` or `Unavailable` as
        the store does. Without a backend, the one of `get_config()` is asked.
        """
        store = get_config().backend if backend is None else backend
        self.expect_answer(store)
        try:
            return load(self.id, store.read, get_config().codec if codec is None else codec)
        except MissingObjects as error:
            raise MissingContent(self.hash, error.ids) from error

    async def aresolve(self, backend: Store | None = None, *, codec: Codec | None = None) -> Any:
        """The asynchronous twin of `resolve`."""
        store = get_config().backend if backend is None else backend
        return await store._threads.run(lambda: self.resolve(store, codec=codec))

    def expect_answer(self, store: Store) -> None:
        """Raise `UnresolvedReferenceError` unless the reference is meant for this store."""
        if not store.answers_to(self.backend_id):
            raise UnresolvedReferenceError(
                f"reference {self.hash[:12]} names the backend {self.backend_id!r}, but this "
                f"store is {store.backend_id!r}. Hand over the store that it was made with; or, "
                f"if its content was copied here, open the store with "
                f"backend_aliases=[{self.backend_id!r}]."
            )

    # Portable forms.

    def to_dict(self) -> dict[str, Any]:
        """The reference as a dict that JSON can say."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> ContentRef:
        """The reference that `to_dict` gave; raises `InvalidInput` for anything else."""
        if not isinstance(given, Mapping) or set(given) != set(_KEYS):
            raise InvalidInput(f"a reference is a dict of {', '.join(_KEYS)}, not {_shown(given)}")
        return cls(**{key: given[key] for key in _KEYS})

    def to_json(self) -> str:
        """The reference as JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, given: str | bytes) -> ContentRef:
        """The reference that `to_json` gave; raises `InvalidInput` for anything else."""
        try:
            return cls.from_dict(json.loads(given))
        except (TypeError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise InvalidInput(f"this is not a reference in JSON: {error}") from error

    def to_msgpack(self) -> bytes:
        """The reference as msgpack."""
        return ormsgpack.packb(self.to_dict())

    @classmethod
    def from_msgpack(cls, given: bytes) -> ContentRef:
        """The reference that `to_msgpack` gave; raises `InvalidInput` for anything else."""
        try:
            return cls.from_dict(ormsgpack.unpackb(given))
        except (TypeError, ormsgpack.MsgpackDecodeError) as error:
            raise InvalidInput(f"this is not a reference in msgpack: {error}") from error


# The place of an externalized field in a checkpoint, where alone a reference is followed.


def checkpoint_form(ref: ContentRef) -> dict[str, Any]:
    """A reference as it stands in a checkpoint."""
    return {MARK: ref.to_dict()}


def is_checkpoint_form(given: object) -> bool:
    """Whether this looks like a reference in a checkpoint."""
    return isinstance(given, dict) and given.keys() == {MARK}


def read_place(name: str, given: Any) -> ContentRef:
    """The reference that stands in the place of an externalized field."""
    if isinstance(given, ContentRef):
        return given
    try:
        return ContentRef.from_dict(given[MARK] if is_checkpoint_form(given) else given)
    except InvalidInput as error:
        raise InvalidInput(
            f"the place of externalized field {name!r} holds no reference: {error}"
        ) from error


def _shown(given: object) -> str:
    try:
        return f"{given!r:.80}"
    except ValueError:  # Python does not spell out a huge number.
        return f"a {type(given).__name__}"


# Letting go.


def release(ref: ContentRef, backend: Store | None = None) -> bool:
    """Let a reference's content go; False if nothing kept it.

    Other checkpoints that hold the same reference lose it too, once `gc` has run.
    Raises `UnresolvedReferenceError` if the store does not answer to it.
    """
    if not isinstance(ref, ContentRef):
        raise InvalidInput(f"release takes a ContentRef, not {_shown(ref)}")
    store = get_config().backend if backend is None else backend
    ref.expect_answer(store)
    return drop(store, ref.id)


async def arelease(ref: ContentRef, backend: Store | None = None) -> bool:
    """The asynchronous twin of `release`."""
    store = get_config().backend if backend is None else backend
    return await store._threads.run(lambda: release(ref, store))
