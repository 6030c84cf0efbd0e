"""One commit to a thread: what several requests make of its index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from ropewalk.adapters.langgraph._codec import GraphCodec
from ropewalk.adapters.langgraph._entries import Address, Entry, Record
from ropewalk.adapters.langgraph._index import NOTES, THREAD, Index
from ropewalk.adapters.langgraph._names import CHECKPOINTS, is_hashed
from ropewalk.adapters.langgraph._reading import Kept
from ropewalk.adapters.langgraph._requests import Put, Writes
from ropewalk.codec import Codec, format_path, inspection_codec
from ropewalk.codec._codes import Code
from ropewalk.codec._msgpack import pack
from ropewalk.errors import FormatError, NotStorable, RopewalkError, ThreadConflict
from ropewalk.store import Move
from ropewalk.tree import ABSENT, Edited, Object, ObjectId, Reader
from ropewalk.tree._builder import Builder, Title
from ropewalk.tree._container import open_part
from ropewalk.tree._embed import retry_if_changed
from ropewalk.tree._load import Loader
from ropewalk.tree._map_writer import Kept as Changed
from ropewalk.tree._map_writer import Making, MapWriter, Shelf, Slot
from ropewalk.tree._parts import link, linked
from ropewalk.tree._stack import writing

OnConflict = Literal["fork", "raise", "branch"]

_DICT: Final = Title(Code.DICT)
_MOST_WARM: Final = 4
_FEW_TASKS: Final = 4
_MOST_REFUSED: Final = 16
_SMALL: Final = 320
"""Pending writes of so many bytes, of a few tasks, stand in the index."""
_SAMPLE: Final = 32
"""So many bytes in common mean that two objects resemble each other."""
_LIKELY: Final = 32
"""Among so many new objects it is looked for what pending writes resemble."""


class Seen(NamedTuple):
    """A thread as it was seen."""

    checkpoints: Index
    epoch: int | None
    """Until when nothing that the thread reaches need be looked up."""


class Landing(NamedTuple):
    """What is to be sent to the store."""

    objects: list[Object]
    needs: list[ObjectId]
    moves: list[Move]
    checkpoints: Index


class Warm:
    """The channel values that were stored last, ready to be compared with the next ones."""

    def __init__(self, codec: Codec, read: Reader) -> None:
        self._slots = SlotWriter(codec, read)
        self._read = read
        self._shelf = Shelf()
        self.part: bytes | None = None
        self.kept = Kept()
        """What was decoded of them."""

    @property
    def held(self) -> int:
        """About how many bytes are held of them."""
        mirrors = [one for slot in [*self._shelf.slots.values()] for one in slot.mirrors.values()]
        return 2 * sum(mirror.size for mirror in mirrors)  # And what was decoded.

    def load(self, part: bytes) -> dict[str, Any]:
        """The values of a part, which is the one to compare with from now on."""
        opened = open_part(part, self._read)
        if opened is None or not opened.is_mapping:
            raise FormatError("the values of a LangGraph checkpoint are malformed")
        shelf = Shelf()
        for pair in opened.view.entries(0, opened.view.total):
            key = self._slots.decode_key(pair.key)
            shelf.slots[pair.key] = self._slots.load(key, pair.body)
        self._shelf, self.part = shelf, part
        return {slot.key: slot.value for slot in self._shelf.slots.values()}

    def write(self, values: dict[str, Any], builder: Builder) -> bytes:
        """The part of values, of which only what changed makes new objects."""
        slots = self._shelf.slots
        for slot in slots.values():
            slot.value = ABSENT
        for channel, value in values.items():
            key = self._slots.encode_key(channel)
            slots.setdefault(key, Slot(channel, value)).value = value
        self._slots.take(self._shelf, builder)
        # Without those that a refused value left.
        keys = sorted(key for key, slot in slots.items() if slot.value is not ABSENT)
        parts = [slots[key].part or b"" for key in keys]
        self.part = builder.mapping(_DICT, keys, parts, None).part
        return self.part


class SlotWriter(MapWriter):
    """Finds out what changed on a shelf, for who puts the parts into something else."""

    def take(self, shelf: Shelf, builder: Builder) -> None:
        """Bring the parts of all slots up to date; raises `NotStorable` with the path."""
        for kept in retry_if_changed(lambda: self._changed(shelf, builder)):
            self.accept_one(kept, builder.read)

    @writing
    def _changed(self, shelf: Shelf, builder: Builder) -> list[Changed]:
        work = Making(builder, None)
        found = [self._kept(work, shelf, *one) for one in self._suspects(shelf)]
        return [one for one in found if one.part != one.slot.part]


class Coder:
    """What is known of a thread by whoever writes to it. Not for several threads at once."""

    def __init__(
        self,
        space: str,
        thread: str,
        codec: GraphCodec,
        read: Reader,
        remember: Callable[[Sequence[Object]], None],
        on_conflict: OnConflict,
    ) -> None:
        self.space, self.thread = space, thread
        self.codec, self.read = codec, read
        self.remember = remember
        self.on_conflict = on_conflict
        self.warm: OrderedDict[str, Warm] = OrderedDict()
        """By namespace."""
        self.tasks = MapWriter(codec, read)
        """For pending writes, by task."""
        self._refused: dict[Address, NotStorable] = {}
        """Why writes of some checkpoints could not be stored."""

    def named(self, wanted: Put | Writes, error: RopewalkError) -> RopewalkError:
        """A refusal with the node that wrote the value, also where its checkpoint is refused."""
        if not isinstance(error, NotStorable):
            return error
        if isinstance(wanted, Writes):
            self._refused[wanted.address] = error
            while len(self._refused) > _MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
            return error
        before = Address(wanted.address.namespace, wanted.parent or "")
        return self._refused.get(before, error)

    def loader(self) -> Loader:
        """What loads values of this thread."""
        return Loader(self.read, self.codec)

    def warmed(self, namespace: str) -> Warm:
        """What is warm of a namespace."""
        found = self.warm.pop(namespace, None) or Warm(self.codec, self.read)
        self.warm[namespace] = found
        while len(self.warm) > _MOST_WARM:
            self.warm.popitem(last=False)
        return found

    def forget(self) -> None:
        """Take nothing for stored any more."""
        self.warm.clear()
        self.tasks = MapWriter(self.codec, self.read)


class Work:
    """Changes of a thread in the making, on top of what was seen of it."""

    def __init__(self, coder: Coder, seen: Seen, unsent: Iterable[Object] = ()) -> None:
        self._coder, self._seen = coder, seen
        self._builder = Builder(coder.read)
        for one in unsent:  # What is warm may stand on these, which are not stored yet.
            self._builder.add(one)
        self._changed: dict[Address, Entry | None] = {}
        self._written: dict[Address, bytes | None] = {}
        """The parts of the pending writes that changed."""
        self._later: dict[ObjectId, Object] = {}
        """The objects of pending writes."""
        self._objects: dict[ObjectId, Object] = {}
        self._needs: dict[ObjectId, None] = {}
        self.notes: dict[str, Any] | None = None

    # Reading, with what was changed here.

    def entry(self, address: Address) -> Entry | None:
        """The entry of a checkpoint."""
        if address in self._changed:
            return self._changed[address]
        return self._seen.checkpoints.get(address)

    def writes(self, address: Address) -> bytes | None:
        """The part of the pending writes of a checkpoint."""
        if address in self._written:
            return self._written[address]
        return self._seen.checkpoints.writes(address)

    def record(self, entry: Entry) -> Record:
        """The record of an entry."""
        return Record.read(entry, self.loader())

    def newest(self, namespace: str) -> str | None:
        """The id of the newest checkpoint that is not aside."""
        made = [
            a.id for a, e in self._changed.items() if a.namespace == namespace and e is not None
        ]
        found = self._seen.checkpoints.newest(namespace, self.loader())
        return max(made if found is None else [found.address.id, *made], default=None)

    # Changing.

    def add(self, edited: Edited) -> None:
        """Take the objects of a value along."""
        self._objects.update((one.id, one) for one in edited.objects)
        self._needs.update(dict.fromkeys([*edited.needs, edited.root]))
        self._coder.remember(edited.objects)

    def need(self, ids: Sequence[ObjectId]) -> None:
        """Count on objects that are stored."""
        self._needs.update(dict.fromkeys(ids))

    def loader(self) -> Loader:
        """What loads values, also those that were made here."""
        return Loader(self._builder.read, self._coder.codec)

    def keeping_loader(self) -> Loader:
        """What loads values that are stored again as they are, even if their class is here."""
        return Loader(self._builder.read, inspection_codec)

    def map_of(self, value: dict[str, Any]) -> ObjectId:
        """A map, which is taken along."""
        maps = MapWriter(self._coder.codec, self._coder.read)
        shelf = Shelf({maps.encode_key(key): Slot(key, one) for key, one in value.items()})
        edited = maps.write(None, shelf).edited
        self.add(edited)
        return edited.root

    def set(self, address: Address, entry: Entry | None) -> None:
        """Put an entry, or remove it."""
        self._changed[address] = entry

    def drop(self, address: Address) -> None:
        """Remove a checkpoint and its pending writes."""
        self._changed[address] = self._written[address] = None

    def set_writes(self, address: Address, part: bytes) -> None:
        """Put the pending writes of a checkpoint."""
        self._written[address] = part

    def put(self, put: Put) -> None:
        """Put a checkpoint; raises NotStorable and ThreadConflict."""
        address = put.address
        old = self.entry(address)
        known = None if old is None else self.record(old)
        aside = self._is_aside(put, known)
        checkpoint = {k: v for k, v in put.checkpoint.items() if k != "channel_values"}
        before = None if old is None else old.before
        copy_of = None if known is None else known.copy_of
        if old is None and put.metadata.get("source") == "fork":
            copy_of, before = self._original(put)
        record = Record(checkpoint, put.metadata, put.parent, aside, copy_of)
        part = record.part(self._coder.codec, self._builder)
        warm = self._coder.warmed(address.namespace)
        values = warm.write(put.checkpoint["channel_values"], self._builder)
        self.set(address, Entry(part, values, before))
        self.need([] if before is None else [before])

    def _original(self, put: Put) -> tuple[str | None, ObjectId | None]:
        """The checkpoint that a fork is a copy of, and what its delta channels were before it.

        LangGraph does not say which one it is. It has the same parent and the same versions.
        """
        versions = put.checkpoint.get("channel_versions")
        for address, entry, _ in self._seen.checkpoints.newest_first(put.address.namespace):
            record = self.record(entry)
            if (
                record.parent == put.parent
                and record.checkpoint.get("channel_versions") == versions
            ):
                return record.copy_of or address.id, entry.before
        return None, None

    def _children(self, address: Address) -> list[str]:
        """The checkpoints that follow one: what is written to it from now on led to none."""
        found = []
        for other in self._seen.checkpoints.later(address):
            entry = self.entry(other)
            record = None if entry is None else self.record(entry)
            if record is not None and record.parent == address.id:
                found.append(record.copy_of or other.id)
        return found

    def _is_aside(self, put: Put, known: Record | None) -> bool:
        """Whether a checkpoint lost a race against that of another run."""
        if self._coder.on_conflict == "fork" or known is not None:
            return known is not None and known.aside
        address, parent = put.address, put.parent
        before = None if parent is None else self.entry(Address(address.namespace, parent))
        if before is not None and self.record(before).aside:
            return True
        newest = self.newest(address.namespace)
        if newest == parent or (parent is not None and parent == put.forks_from):
            return False
        if self._coder.on_conflict == "branch":
            return True
        raise ThreadConflict(
            f"another run put checkpoint {newest} of thread {self._coder.thread!r:.80} after "
            f"{parent or 'nothing'}, from where this run went on. Nothing of it is lost: run again "
            "from the newest checkpoint."
        )

    def put_writes(self, wanted: Writes) -> None:
        """Put the writes of a task; raises NotStorable."""
        part = self.writes(wanted.address)
        children = self._children(wanted.address)
        root = None if part is None else linked(part)
        if root is None:
            # Few and small ones stand in the index.
            there = {} if part is None else self.keeping_loader().part(part)
            path, old = there.get(wanted.task_id, ("", []))
            there[wanted.task_id] = [
                wanted.task_path or path,
                _joined(old, wanted.writes, children),
            ]
            small = self._small(there)
            if small is not None:
                self.set_writes(wanted.address, small)
                return
            self._put_apart(wanted, None, there)
            return
        _, pair = self._coder.tasks.open(root).view.locate(pack(wanted.task_id))
        stored = None if pair is None else pair.body
        path, old = ("", []) if stored is None else self.keeping_loader().part(stored)
        value = [wanted.task_path or path, _joined(old, wanted.writes, children)]
        self._put_apart(wanted, root, {wanted.task_id: value}, stored)

    def _small(self, writes: dict[str, Any]) -> bytes | None:
        """The part of writes, if it is small."""
        if len(writes) > _FEW_TASKS:
            return None
        try:
            plain = self._coder.codec.encode(writes)
        except NotStorable:
            return None  # Who looks closer says where.
        return plain if len(plain) <= _SMALL else None

    def _put_apart(
        self,
        wanted: Writes,
        root: ObjectId | None,
        writes: dict[str, Any],
        stored: bytes | None = None,
    ) -> None:
        """Put writes into a map of their own."""
        maps = self._coder.tasks
        slots = {maps.encode_key(task): Slot(task, value) for task, value in writes.items()}
        slots[maps.encode_key(wanted.task_id)].part = stored
        try:
            edited = maps.write(root, Shelf(slots)).edited
        except NotStorable as error:
            raise _at_its_node(error, wanted, writes[wanted.task_id]) from None
        self._coder.remember(edited.objects)
        self._later.update((one.id, one) for one in edited.objects)
        self._needs.update(dict.fromkeys([*edited.needs, edited.root]))
        self.set_writes(wanted.address, link(edited.root))

    # Sending.

    def landing(self) -> Landing | None:
        """What is to be sent; None if nothing changed."""
        parts = self._parts()
        if not parts:
            return None
        if self._seen.checkpoints.root is None and is_hashed(self._coder.space):
            parts[NOTES] = self._coder.codec.encode(
                {THREAD: self._coder.thread, **(self.notes or {})}
            )
        likely = [*islice(reversed(self._builder.objects.values()), _LIKELY)]
        checkpoints, edited = self._seen.checkpoints.edit(parts, self._builder)
        # What is stored against an index of before would keep alive all that is dropped.
        drops = None in parts.values()
        objects = {**self._objects, **{one.id: one for one in edited.objects}}
        if drops:
            objects = {id: one._replace(base=None) for id, one in objects.items()}
        later = [one for id, one in self._later.items() if id not in objects]
        objects.update((one.id, _beside(one, likely)) for one in later)
        needs = {**self._needs, **dict.fromkeys([*edited.needs, edited.root])}
        before = self._seen.checkpoints.root
        moves = [] if edited.root == before else [Move(CHECKPOINTS, before, edited.root)]
        self._coder.remember(edited.objects)
        self._builder.forget()
        needed = [id for id in needs if id not in objects]
        return Landing(list(objects.values()), needed, moves, checkpoints)

    def _parts(self) -> dict[str | int, bytes | None]:
        """What changed in the index."""
        parts: dict[str | int, bytes | None] = {}
        for address, entry in self._changed.items():
            parts[address.key] = None if entry is None else entry.part(self._builder)
        for address, part in self._written.items():
            parts[address.writes_key] = part
        if self.notes is not None:
            parts[NOTES] = self._coder.codec.encode(self.notes)
        return parts


def _beside(one: Object, others: Sequence[Object]) -> Object:
    """Pending writes with a base: mostly the values that they became are stored beside them."""
    middle = len(one.payload) // 2
    sample = one.payload[middle : middle + _SAMPLE]
    if len(sample) == _SAMPLE:
        for other in others:
            if sample in other.payload:
                return one._replace(base=other.id)
    return one


def _joined(
    old: list[list[Any]], new: Sequence[tuple[int, str, Any]], children: list[str]
) -> list[list[Any]]:
    """Writes with further ones: ordinary ones that are there stay, special ones are replaced."""
    joined = {one[0]: one for one in old}
    late = [children] if children else []
    for number, channel, value in new:
        if number < 0 or number not in joined:
            joined[number] = [number, channel, value, *late]
    return list(joined.values())


def _at_its_node(error: NotStorable, wanted: Writes, value: list[Any]) -> NotStorable:
    """The refusal of a value, with the node that wrote it and its place in a channel."""
    node = wanted.task_path.rpartition(", ")[2] or wanted.task_id
    place = error.path
    for at, (_, channel, _) in enumerate(value[1]):
        start = format_path((wanted.task_id, 1, at, 2))
        if place.startswith(start):
            place = f"{channel}{place.removeprefix(start)}"
            break
    return NotStorable(f"{error.reason} (node {node!r} wrote it)", place)
