"""Small, portable references to content in a store, and the pins that keep the content alive.

Each content has one pin, named by the hash of its root: a pin of a `History` in the space
`content/refs`, permanent or until an expiry time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import ormsgpack

from ropewalk.codec import Codec
from ropewalk.errors import (
    DamagedObject,
    InvalidInput,
    MissingContent,
    MissingObjects,
    UnresolvedReferenceError,
)
from ropewalk.history import Pin
from ropewalk.history.commits import PIN, Commits, commit_loop, looks_itself
from ropewalk.state.runtime import get_config
from ropewalk.store import Move, Ref, Store, ref_name
from ropewalk.store.reserved import CONTENT_SPACE as CONTENT
from ropewalk.store.reserved import EXPIRES_AT, drop_expired, hash_of
from ropewalk.tree import (
    Commit,
    Edited,
    Object,
    ObjectId,
    Written,
    links,
    load,
    make_commit,
    read_commit,
)

_BATCH = 256

_MANY = 64  # From this many objects on, checking first which ones exist saves more than it costs.
MARK: Final = "ropewalk_ref"
"""The one key of a reference's checkpoint form."""

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LARGEST = 1 << 63
_LONGEST = 1024
_KEYS = ("hash", "backend_id", "type_name", "size_bytes")


def heal(store: Store, objects: Sequence[Object]) -> list[Object]:
    """The objects that must be stored again; the damaged ones are deleted first."""
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


def keep(
    store: Store,
    contents: Sequence[Edited | Written],
    expires_at: int | None,
    slack: int = 0,
) -> None:
    """Store contents and pin them in one commit; a pin is extended, never shortened.

    Objects that should exist but are damaged or missing are stored again. A pin that expires at
    most `slack` microseconds too early is left as it is. Raises `MissingObjects` if an object that
    a content needs is gone: the content must then be written again in full.
    """
    commits = Commits(store, CONTENT)

    def attempt() -> None:
        moves: list[Move] = []
        step: Commit | None = None
        objects: list[Object] = []
        needs: list[ObjectId] = []
        for one in {one.root: one for one in contents}.values():
            name = ref_name(PIN, one.root.hex())
            found = store.ref(CONTENT, name)
            if found is not None and _lasts(store, found, expires_at, slack):
                healed = heal(store, one.objects)
                objects += healed
                needs += [link for made in healed for link in links(made)]
                continue
            extension = {} if expires_at is None else {EXPIRES_AT: expires_at}
            step, made = make_commit(one.root, time=time.time_ns() // 1000, extension=extension)
            moves.append(Move(name, None if found is None else found.target, made.id))
            objects += [*one.objects, made]
            needs += [*one.needs, one.root]
        if not moves and not objects:
            return
        sending, needed = _unknown(store, objects, needs)
        commits.land(sending, needed, moves, {"action": "pin"}, share=True, step=step)

    commit_loop(attempt, look=looks_itself)


def drop(store: Store, root: ObjectId) -> bool:
    """Drop the pin of a content; False if there was none."""
    commits = Commits(store, CONTENT)

    def attempt() -> bool:
        found = store.ref(CONTENT, ref_name(PIN, root.hex()))
        if found is None:
            return False
        commits.land((), (), [Move(found.name, found.target, None)], {"action": "unpin"})
        return True

    return commit_loop(attempt, look=looks_itself)


def prune_expired(backend: Store, now: int | None = None) -> list[str]:
    """Drop expired references and return their hashes. `gc` then frees the bytes.

    `now` is in microseconds since 1970. A reference that is renewed concurrently stays.
    `Store.prune_expired` does both steps.
    """
    return [hash_of(pin) for pin in drop_expired(backend, now)]


async def aprune_expired(backend: Store, now: int | None = None) -> list[str]:
    """The asynchronous twin of `prune_expired`."""
    return await backend._threads.run(lambda: prune_expired(backend, now))


def _lasts(store: Store, found: Ref, expires_at: int | None, slack: int) -> bool:
    """Whether the existing pin keeps its content at least as long as requested."""
    (stored,) = store.reader(CONTENT)([found.target])
    ends = Pin.of(found, read_commit(stored)).expires_at
    return ends is None or (expires_at is not None and expires_at - slack <= ends)


def _unknown(
    store: Store, objects: list[Object], needs: list[ObjectId]
) -> tuple[list[Object], list[ObjectId]]:
    """The objects the store lacks; those it has become needs of the commit."""
    if len(objects) < _MANY:
        return objects, needs
    absent = set(store.missing([one.id for one in objects]))
    present = [one.id for one in objects if one.id not in absent]
    return [one for one in objects if one.id in absent], [*needs, *present]


@dataclass(frozen=True, slots=True)
class ContentRef:
    """Names a value in a store by its hash and the store's `backend_id`.

    `hash` is the hash of the value's root: equal values have equal references, and values of
    different types do not. `type_name` and `size_bytes` are informative and do not affect
    equality.
    It holds neither the value nor a store. Raises `InvalidInput` for invalid fields.
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
        """Load the value; each call returns a new object that the caller owns.

        Raises `UnresolvedReferenceError` if the store is not the reference's backend,
        `MissingContent` if the value is gone, and `Corrupt` or `Unavailable` as the store does.
        `backend` defaults to that of `get_config()`.
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
        """Raise `UnresolvedReferenceError` unless the reference belongs to this store."""
        if not store.answers_to(self.backend_id):
            raise UnresolvedReferenceError(
                f"reference {self.hash[:12]} names the backend {self.backend_id!r}, but this "
                f"store is {store.backend_id!r}. Hand over the store that it was made with; or, "
                f"if its content was copied here, open the store with "
                f"backend_aliases=[{self.backend_id!r}]."
            )

    # Serialized forms.

    def to_dict(self) -> dict[str, Any]:
        """The reference as a JSON-compatible dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> ContentRef:
        """Read a reference from `to_dict`; raises `InvalidInput` for anything else."""
        if not isinstance(given, Mapping) or set(given) != set(_KEYS):
            raise InvalidInput(f"a reference is a dict of {', '.join(_KEYS)}, not {_shown(given)}")
        return cls(**{key: given[key] for key in _KEYS})

    def to_json(self) -> str:
        """The reference as JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, given: str | bytes) -> ContentRef:
        """Read a reference from `to_json`; raises `InvalidInput` for anything else."""
        try:
            return cls.from_dict(json.loads(given))
        except (TypeError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise InvalidInput(f"this is not a reference in JSON: {error}") from error

    def to_msgpack(self) -> bytes:
        """The reference as msgpack."""
        return ormsgpack.packb(self.to_dict())

    @classmethod
    def from_msgpack(cls, given: bytes) -> ContentRef:
        """Read a reference from `to_msgpack`; raises `InvalidInput` for anything else."""
        try:
            return cls.from_dict(ormsgpack.unpackb(given))
        except (TypeError, ormsgpack.MsgpackDecodeError) as error:
            raise InvalidInput(f"this is not a reference in msgpack: {error}") from error


# The checkpoint form: references are resolved only in the place of an externalized field.


def checkpoint_form(ref: ContentRef) -> dict[str, Any]:
    """The form of a reference in a checkpoint."""
    return {MARK: ref.to_dict()}


def is_checkpoint_form(given: object) -> bool:
    """Whether this looks like a reference in a checkpoint."""
    return isinstance(given, dict) and given.keys() == {MARK}


def read_place(name: str, given: Any) -> ContentRef:
    """Read the reference in the place of an externalized field."""
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
    except ValueError:  # Python refuses to format huge integers.
        return f"a {type(given).__name__}"


# Releasing content.


def release(ref: ContentRef, backend: Store | None = None) -> bool:
    """Release the content of a reference; False if nothing pinned it.

    Other checkpoints with the same reference lose the content too, once `gc` has run. Raises
    `UnresolvedReferenceError` if the store is not the reference's backend.
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
