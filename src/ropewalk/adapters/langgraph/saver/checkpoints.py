"""The checkpoints of a thread as commits: what is stored where, and under which keys.

A thread has one ref, which points to its head. Each commit has one parent, so a thread is one
chain, whatever its namespaces and forks. The root of a commit is the dict of channel values. One
field of its extension (`pack_step`, `read_step`) has the checkpoint without these, its metadata,
and the pending writes that landed with it; an interrupt is one of them. Large parts of that are
values of their own (`metadata`, `events`). Writes without a checkpoint are a commit too, with the
root of the commit before.

There is no index of a chain: an operation has a key, by which the store finds it (`key_of`). What
the head says about the whole chain is its `State`. Pruning and copying rewrite the chain with one
operation. The rewritten chain has an index, in the commit `State.base`, and an era of its own,
which is part of all keys, so that operations from before are not found.

This module does not import LangGraph, because the command line uses it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import ormsgpack
from ormsgpack import Ext, Fragment

from ropewalk.codec import Codec
from ropewalk.errors import FormatError, InvalidName
from ropewalk.history import MAIN
from ropewalk.store import ref_name, space_name, split_name
from ropewalk.tree import (
    Commit,
    Kind,
    Loader,
    Object,
    ObjectId,
    TreeWriter,
    link,
    make_object,
    read_commit,
)
from ropewalk.tree.objects import name_commit

ROOT: Final = ""
"""The namespace of the graph itself; others are those of its subgraphs."""
INLINE: Final = 16 << 10
"""A record, or the writes of a task, of at most so many bytes is stored in the commit itself."""
FIELD: Final = "langgraph"
"""The name of the field in the extension of a commit."""

UNSORTED: Final = 1
"""The ids of the graph's own checkpoints do not ascend along the chain, or some lost a race."""
MIXED: Final = 2
"""The ids of all namespaces together do not."""
EARLY: Final = 4
"""Some writes came before their checkpoint."""
SEVERAL: Final = 8
"""Some operations have several keys, which their metadata lists."""

_VERSION: Final = 1
PUT, WRITES, NAMESPACE, ALL = b"c", b"w", b"n", b"s"
"""What keys begin with: those of a put, of writes, of a subgraph, and of several of these."""
KEY_SIZE: Final = 16


class Address(NamedTuple):
    """Which checkpoint of a thread."""

    namespace: str
    id: str


class State(NamedTuple):
    """What a head says of its whole chain."""

    era: bytes = b""
    """Part of all keys. A rewritten chain has a new one."""
    flags: int = 0
    base: ObjectId | None = None
    """The last commit of the rewritten part of the chain, which has its index."""
    newest: ObjectId | None = None
    """The newest checkpoint of the root graph: the greatest id that is not `aside`."""
    notes: ObjectId | None = None
    """The commit that lists the pinned checkpoints."""


class Written(NamedTuple):
    """One call of `put_writes`: task, path, and the numbers, channels and values it wrote."""

    address: Address
    content: bytes | int
    """The encoding of it; or, if large, its index in the events of its commit."""
    children: Sequence[str] = ()
    """Checkpoints that followed already when it was written, so it did not lead to them."""


class Step(NamedTuple):
    """One commit of a thread."""

    commit: Commit
    state: State
    address: Address | None
    """Its checkpoint; None if it has only writes, or pins."""
    parent: str | None
    """The id of the checkpoint that it follows."""
    aside: bool
    """Whether it lost a race against another run, with `on_conflict="branch"`."""
    copy_of: str | None
    """The id of the checkpoint that it is a copy of, with the same ancestors."""
    record: bytes | None
    writes: Sequence[Written]
    pins: Mapping[str, Sequence[str]] | None

    @property
    def id(self) -> ObjectId:
        """The id of its commit."""
        return self.commit.id

    @property
    def origin(self) -> str:
        """The id of the checkpoint that it is, or is a copy of."""
        return self.copy_of or ("" if self.address is None else self.address.id)

    @property
    def roots(self) -> list[ObjectId]:
        """The roots of all values that it refers to."""
        found = (self.commit.root, self.commit.metadata, self.commit.events)
        return [one for one in found if one is not None]


class Record(NamedTuple):
    """A checkpoint without its values and writes."""

    checkpoint: dict[str, Any]
    """The checkpoint without its channel values."""
    metadata: dict[str, Any]
    before: dict[str, list[Any]] | None = None
    """The values of delta channels before it, if earlier checkpoints were pruned."""


@dataclass(slots=True)
class Draft:
    """A commit that is to be made."""

    root: ObjectId
    address: Address | None = None
    parent: str | None = None
    aside: bool = False
    copy_of: str | None = None
    record: bytes | None = None
    metadata: ObjectId | None = None
    writes: Sequence[Written] = ()
    events: ObjectId | None = None
    description: str = ""
    logic_step: str = ""
    status: str = ""
    error: str = ""
    time: int | None = None

    @classmethod
    def of(cls, step: Step) -> Draft:
        """A commit as it is."""
        commit = step.commit
        is_put = step.address is not None
        return cls(
            commit.root,
            *step[2:7],
            metadata=commit.metadata if is_put else None,
            writes=step.writes,
            events=commit.events,
            description=commit.description,
            logic_step=commit.logic_step,
            status=commit.status,
            error=commit.error,
            time=commit.time,
        )


# What stands in a commit.


def read_step(source: Object) -> Step:
    """The commit of a thread that an object is; raises FormatError."""
    commit = read_commit(source)
    try:
        fields = ormsgpack.unpackb(commit.extension[FIELD])
        version, era, flags, base, newest, notes, where, record, writes = fields
        if version != _VERSION:
            raise ValueError(f"version {version}")
        namespace, id, parent, aside, copy_of = where or (ROOT, None, None, False, None)
        id, parent, copy_of = full_id(id), full_id(parent), full_id(copy_of)
        address = None if id is None else Address(namespace, id)
        led = [_written(namespace, parent, *one) for one in writes or ()]
        pins = notes if type(notes) is dict else None
        state = State(
            era,
            flags,
            commit.id if base is True else base,
            commit.id if newest is True else newest,
            commit.id if pins is not None else notes,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise FormatError(
            f"commit {commit.short} is not one of a LangGraph thread: {error}"
        ) from None
    return Step(commit, state, address, parent, aside, copy_of, record, led, pins)


def _written(
    namespace: str, parent: str | None, content: bytes | int, where: Any, children: Any = ()
) -> Written:
    address = Address(where[0], full_id(where[1])) if where else Address(namespace, parent or "")
    return Written(address, content, children)


def pack_step(
    draft: Draft, era: bytes, flags: int, base: object, newest: object, notes: object
) -> bytes:
    """The field of a commit, from what it says of the whole chain.

    There `True` stands for the id of the commit itself, and a dict for what is pinned.
    """
    address, where, writes = draft.address, None, None
    ahead: tuple[str, str | None] = ("", None)
    if address is not None:
        namespace, id = address
        parent, copy_of = short_id(draft.parent), short_id(draft.copy_of)
        where = (namespace, short_id(id), parent, draft.aside, copy_of)
        ahead = (namespace, draft.parent)
    if draft.writes:
        writes = []
        for place, content, children in draft.writes:
            at = None if place == ahead else (place.namespace, short_id(place.id))
            writes.append((content, at, children) if children else (content, at))
    return ormsgpack.packb((_VERSION, era, flags, base, newest, notes, where, draft.record, writes))


def make_steps(
    thread: str,
    drafts: Iterable[Draft],
    state: State,
    head: Step | None,
    *,
    newest: str = "",
    top: str = "",
    pins: Mapping[str, Address] | None = None,
    is_base: bool = False,
) -> tuple[list[Step], list[Object], list[ObjectId]]:
    """Make commits of drafts, each on top of the one before; their objects, and what they need.

    `state` is that of the chain up to `head`; `newest` and `top` are the greatest ids in it, of
    the graph's own checkpoints and of all. `pins` are listed in each, and `is_base` says that
    its metadata is the index of the chain.
    """
    steps: list[Step] = []
    objects: list[Object] = []
    needs: list[ObjectId] = []
    now = time.time_ns() // 1000
    agent = thread if thread.isascii() else thread.encode(errors="backslashreplace").decode()
    noted = None if pins is None else {name: list(where) for name, where in pins.items()}
    era, flags, base, newest_commit, notes = state
    for draft in drafts:
        address, is_newest = draft.address, False
        branch = MAIN
        if address is not None:
            namespace, id = address
            if id < top:
                flags |= MIXED
            else:
                top = id
            if namespace != ROOT:
                branch = namespace
            elif draft.aside or id < newest:
                flags |= UNSORTED
            else:
                newest, is_newest = id, True
        parents: tuple[ObjectId, ...] = ()
        generation = 1
        if head is not None:
            parents, generation = (head.commit.id,), head.commit.generation + 1
        needs += (draft.root, *parents)
        if draft.metadata is not None:
            needs.append(draft.metadata)
        if draft.events is not None:
            needs.append(draft.events)
        commit, made = name_commit(
            Commit(
                b"",
                draft.root,
                parents,
                generation,
                now if draft.time is None else draft.time,
                agent,
                branch,
                draft.description,
                draft.logic_step,
                draft.status,
                draft.error,
                draft.metadata,
                draft.events,
                {
                    FIELD: pack_step(
                        draft,
                        era,
                        flags,
                        is_base or base,
                        is_newest or newest_commit,
                        notes if noted is None else noted,
                    )
                },
            )
        )
        if is_base:
            base = commit.id
        if is_newest:
            newest_commit = commit.id
        if noted is not None:
            notes = commit.id
        head = Step(
            commit,
            State(era, flags, base, newest_commit, notes),
            address,
            draft.parent,
            draft.aside,
            draft.copy_of,
            draft.record,
            draft.writes,
            noted,
        )
        steps.append(head)
        objects.append(made)
    return steps, objects, needs


def encode_record(codec: Codec, record: Record, id: str) -> tuple[bytes | None, list[Object]]:
    """A record as it stands in a commit; None and the objects of a value if it is large.

    `id` is that of the commit's checkpoint.
    """
    fields: list[Any] = [_shortened(record.checkpoint, id), record.metadata]
    if record.before:
        fields.append(record.before)
    plain = codec.encode(fields)
    if len(plain) <= INLINE:
        return plain, []
    return None, TreeWriter(codec).write(fields).objects


def record_of(step: Step, loader: Loader) -> Record:
    """The record of a checkpoint; raises FormatError."""
    if step.record is not None:
        found = loader.part(step.record)
    else:
        assert step.commit.metadata is not None
        found = loader.root(step.commit.metadata)
    if type(found) is not list or len(found) not in (2, 3):
        raise FormatError("a record of a LangGraph checkpoint is malformed")
    return Record(_restored(found[0], step), *found[1:])


def _shortened(checkpoint: dict[str, Any], id: str) -> dict[str, Any]:
    """A checkpoint without its id, which its commit has, and with short versions."""
    versions, seen = checkpoint.get("channel_versions"), checkpoint.get("versions_seen")
    if checkpoint.get("id") != id or type(versions) is not dict or type(seen) is not dict:
        return checkpoint
    versions, nodes = {**versions}, {**seen}  # Copies, because others may be changing them.
    maps = [versions, *nodes.values()]
    if {*map(type, maps)} != {dict} or any(bytes in map(type, {**one}.values()) for one in maps):
        return checkpoint
    return {
        **checkpoint,
        "id": None,
        "channel_versions": _short_versions(versions),
        "versions_seen": {name: _short_versions({**one}) for name, one in nodes.items()},
    }


def _restored(checkpoint: Any, step: Step) -> dict[str, Any]:
    """A checkpoint as it was before it was shortened."""
    if type(checkpoint) is not dict:
        raise FormatError("a record of a LangGraph checkpoint is malformed")
    if "id" not in checkpoint or checkpoint["id"] is not None or step.address is None:
        return checkpoint
    seen = checkpoint.get("versions_seen")
    if type(seen) is not dict:
        raise FormatError("a record of a LangGraph checkpoint is malformed")
    return {
        **checkpoint,
        "id": step.address.id,
        "channel_versions": _full_versions(checkpoint.get("channel_versions")),
        "versions_seen": {name: _full_versions(one) for name, one in seen.items()},
    }


def _short_versions(versions: dict[str, Any]) -> dict[str, Any]:
    return {name: short_version(one) if type(one) is str else one for name, one in versions.items()}


def _full_versions(versions: Any) -> dict[str, Any]:
    if type(versions) is not dict:
        raise FormatError("a record of a LangGraph checkpoint is malformed")
    return {
        name: full_version(one) if type(one) is bytes else one for name, one in versions.items()
    }


# What LangGraph and the saver make of numbers is stored as these. In a space of many small
# checkpoints that is most of what no compression takes away.


_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GIVEN_OUT: Final = re.compile(r"[0-9]{32}\.[0-9]{10}")
_HALF: Final = 32


@lru_cache(1024)
def short_id(id: str | None) -> str | bytes | None:
    """The bytes of a UUID; any other id as it is."""
    if id is None or not _UUID.fullmatch(id):
        return id
    return bytes.fromhex(id.replace("-", ""))


@lru_cache(1024)
def full_id(id: Any) -> Any:
    """The id that was shortened; raises FormatError."""
    if type(id) is not bytes:
        return id
    if len(id) != 16:
        raise FormatError("an id in a LangGraph thread is malformed")
    text = id.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@lru_cache(1024)
def short_version(version: str) -> str | bytes:
    """A version as the saver gives them out in 8 bytes; any other one as it is."""
    if not _GIVEN_OUT.fullmatch(version):
        return version
    number, suffix = map(int, version.split("."))
    if number >> _HALF or suffix >> _HALF:
        return version
    return (number << _HALF | suffix).to_bytes(8, "big")


@lru_cache(1024)
def full_version(version: bytes) -> str:
    """The version that was shortened; raises FormatError."""
    if len(version) != 8:
        raise FormatError("a version of a channel of LangGraph is malformed")
    number = int.from_bytes(version, "big")
    return make_version(number >> _HALF, number & (1 << _HALF) - 1)


def make_version(number: int, suffix: int) -> str:
    """A version of a channel."""
    return f"{number:032}.{suffix:010}"


def part_of(objects: Sequence[Object]) -> bytes:
    """How a value stands in a list of events, from its objects, the last of which is its root."""
    root = objects[-1]
    return root.payload if root.kind == Kind.VALUE else link(root.id)


def events_of(parts: Sequence[bytes]) -> Object:
    """What a commit has as its events: a list of values."""
    return make_object(Kind.VALUE, ormsgpack.packb([Fragment(one) for one in parts]))


def parts_in(events: Object) -> list[bytes]:
    """The parts of a list of events."""
    return [ormsgpack.packb(one) for one in ormsgpack.unpackb(events.payload, ext_hook=Ext)]


def writes_of(
    found: Iterable[tuple[Step, Written]], loader: Loader, child: str | None = None
) -> list[tuple[str, str, int, str, Any]]:
    """Pending writes in the order in which a run applies them: path, task, number, channel, value.

    A write that repeats an earlier one is ignored; a special one, as of an interrupt or an error
    (its number is negative), replaces it. With the id of a `child`, writes that came after that
    checkpoint are left out.
    """
    tasks: dict[str, list[Any]] = {}
    for step, one in found:
        if type(one.content) is bytes:
            task, path, several = loader.part(one.content)
        else:
            assert step.commit.events is not None
            task, path, several = loader.root(step.commit.events)[one.content]
        there = tasks.setdefault(full_id(task), ["", {}])
        there[0] = path or there[0]
        for number, channel, value in several:
            if number < 0 or number not in there[1]:
                there[1][number] = channel, value, one.children
    merged = [
        (path, task, number, channel, value)
        for task, (path, numbered) in tasks.items()
        for number, (channel, value, children) in numbered.items()
        if child is None or child not in children
    ]
    return sorted(merged, key=lambda one: one[:3])


# Keys.


def key_of(era: bytes, kind: bytes, namespace: str, id: str = "") -> bytes:
    """The key of operations: of one put, of writes to it, of all in the namespace of a subgraph."""
    named = f"{namespace}\0{id}".encode(errors="surrogatepass")
    return kind + sha256(era + named).digest()[: KEY_SIZE - 1]


def put_key(era: bytes, address: Address) -> bytes:
    """The key of a put."""
    if address.namespace == ROOT:
        return key_of(era, PUT, *address)
    return key_of(era, NAMESPACE, address.namespace)


def writes_key(era: bytes, address: Address) -> bytes:
    """The key of writes that come without the checkpoint that follows."""
    if address.namespace == ROOT:
        return key_of(era, WRITES, *address)
    return key_of(era, NAMESPACE, address.namespace)


# Where a thread lives: its id as the name of a space, and back.
#
# LangGraph takes any text for the id of a thread; names of spaces have rules. What they do not
# allow is escaped. A very long id becomes its hash, and the thread itself notes what it was.


TENANT: Final = "langgraph"
CHECKPOINTS: Final = ref_name("langgraph", "checkpoints")
"""The ref that leads to the index of a thread."""

_ESCAPED: Final = "~"
_HASHED: Final = "~~"


def space_of(thread: str) -> str:
    """The space of a thread."""
    if not thread.startswith(_ESCAPED):
        try:
            return space_name(TENANT, thread)
        except InvalidName:
            pass
    escaped = quote(thread.encode(errors="surrogatepass"), safe="").replace(".", "%2E")
    try:
        return space_name(TENANT, _ESCAPED + escaped)
    except InvalidName:
        digest = sha256(thread.encode(errors="surrogatepass")).hexdigest()
        return space_name(TENANT, _HASHED + digest)


def thread_of(space: str) -> str | None:
    """The thread of a space; None if only the thread itself knows."""
    name = split_name(space)[1]
    if name.startswith(_HASHED):
        return None
    return unquote(name[1:], errors="surrogatepass") if name.startswith(_ESCAPED) else name


def is_hashed(space: str) -> bool:
    """Whether the id of a thread cannot be seen in the name of its space."""
    return thread_of(space) is None
