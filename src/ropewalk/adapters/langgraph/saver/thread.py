"""`GraphThread`: one LangGraph thread in a store, with group commit of its puts and writes.

`send` queues a request and returns when it is stored. The caller that gets the lock leads: it lands
all queued requests with one commit of the store (`_lead`, `land`). Writes of a task wait a few
milliseconds in the queue (`_LINGER`), because the checkpoint that follows mostly comes at once;
then both land in one commit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.types import ERROR

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.saver.checkpoints import (
    CHECKPOINTS,
    INLINE,
    MIXED,
    UNSORTED,
    Address,
    Draft,
    Record,
    Step,
    Written,
    encode_record,
    events_of,
    part_of,
    record_of,
    short_id,
    space_of,
)
from ropewalk.adapters.langgraph.saver.codec import GraphCodec, SharingGraphCodec
from ropewalk.adapters.langgraph.saver.log import Landing, Listed, Log, Steps, listed
from ropewalk.adapters.langgraph.saver.retention import COUNTERS, Change, Trail, trail
from ropewalk.adapters.langgraph.saver.values import ChannelValues, Found, History
from ropewalk.codec import format_path, inspection_codec
from ropewalk.errors import MissingObjects, NotStorable, RefMoved, RopewalkError, ThreadConflict
from ropewalk.history.commits import Backoff, Commits, SharedObjects
from ropewalk.store import Operation, Store, View
from ropewalk.tree import Loader, Object, ObjectId, TreeWriter
from ropewalk.tree import Written as Tree

OnConflict = Literal["fork", "raise", "branch"]
T = TypeVar("T")

_RESENDS: Final = 8
_LINGER: Final = 0.02
"""How many seconds writes wait in the queue for the checkpoint that follows."""
_MOST_NAMESPACES: Final = 4
_MOST_REFUSED: Final = 16
_HIDDEN: Final = "__"
_MOST_SAID: Final = 1000


class Request:
    """A call of `put` or `put_writes`, until it is stored or refused."""

    is_last = is_done = False
    is_taken = False
    """Whether a leader has picked it up."""
    error: BaseException | None = None
    landed: threading.Lock | None = None
    """What a caller that lingers blocks on, until the request is done."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def finish(self, error: BaseException | None = None) -> None:
        """Mark it as done, stored or refused; only the first call counts."""
        if not self.is_done:
            self.error = error
            self.is_done = True
            if self.landed is not None:
                self.landed.release()


class Put(Request):
    """A checkpoint that is to be stored."""

    record: bytes | None
    """The encoded checkpoint without values; None if large, and stored as a value (`about`)."""
    about: Sequence[Object]
    values: Tree
    nodes: str
    """The names of the nodes that ran since the checkpoint before."""

    def __init__(
        self,
        address: Address,
        checkpoint: Mapping[str, Any],
        metadata: dict[str, Any],
        parent: str | None,
        forks_from: str | None,
    ) -> None:
        """`forks_from` is the id of the checkpoint that the run was asked to start from, if any."""
        self.address, self.metadata = address, metadata
        self.parent, self.forks_from = parent, forks_from
        # A copy, because the graph may change the dict while it is encoded.
        self.checkpoint = {**checkpoint}
        self.channels: dict[str, Any] = {**self.checkpoint.pop("channel_values")}


class Writes(Request):
    """Writes of a task that are to be stored."""

    content = b""
    """The encoding of writes."""
    events: Sequence[Object] = ()
    """The objects of large writes, the root last."""

    def __init__(
        self, address: Address, task_id: str, task_path: str, writes: Sequence[Sequence[Any]]
    ) -> None:
        """`writes` are numbers, channels and values."""
        self.address, self.task_id, self.task_path = address, task_id, task_path
        self.writes = writes
        self.is_last = min([one[0] for one in writes], default=0) < 0
        """Whether no checkpoint follows: they are those of an interrupt or an error."""


class GraphThread:
    """A LangGraph thread. Safe to share between threads of the process."""

    def __init__(self, store: Store, name: str, types: GraphTypes, on_conflict: OnConflict) -> None:
        self.space, self.name = space_of(name), name
        self._store, self._types, self._on_conflict = store, types, on_conflict
        self._objects = SharedObjects(store.reader(self.space))
        self._commits = Commits(store, self.space)
        self._steps = Steps(self._objects.read)
        self._codec = GraphCodec(types)
        self._coding = threading.RLock()
        """Held while values are encoded or decoded, and while the log is looked at."""
        self._log: Log | None = None
        self._epoch: int | None = None
        """The epoch at which all cached values were in the store."""
        self._channels: OrderedDict[str, ChannelValues] = OrderedDict()
        """The channel values that were stored or read last, by namespace."""
        self._refused: dict[Address, NotStorable] = {}
        """Errors of writes that were refused, so that the put that follows raises the same."""
        self._waiting: deque[Put | Writes] = deque()
        self._leading = threading.Lock()
        self._lingers = True
        """Whether writes wait for their checkpoint; off after a wait that was too short."""
        self._alone = False
        """Whether a leader is storing writes without a checkpoint."""
        self._delta: frozenset[str] = frozenset()
        """The delta channels: LangGraph puts a checkpoint only when writes to these are stored."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is queued or being stored."""
        return not self._waiting and not self._leading.locked()

    @property
    def held(self) -> int:
        """About how many bytes are cached of it."""
        channels = sum([one.held for one in [*self._channels.values()]])
        return self._objects.held + self._codec.memo.size + channels

    # Reading.

    def look(self) -> Log:
        """The log at the current head; the cached one if nobody else wrote."""
        view = self._store.view(self.space, CHECKPOINTS)
        with self._coding:
            log = self._log
            if log is not None and view.sequence < log.sequence:
                view = self._store.view(self.space, CHECKPOINTS)  # Older than what we landed.
            if log is None or not log.is_at(view):
                log = self._reload(view)
            return log

    def _reload(self, view: View | None = None) -> Log:
        """Replace the log, because others wrote. Cached values may not be in the store any more."""
        log = self._log = Log(self._store, self.space, self._objects.read, self._steps, view)
        self._epoch = None
        return log

    def find(self, namespace: str, id: str | None) -> Found | None:
        """A checkpoint by its id, or the newest one; None if there is none."""
        return self._consistently(lambda log: self._find(log, namespace, id))

    def _find(self, log: Log, namespace: str, id: str | None) -> Found | None:
        step = newest = log.newest(namespace)
        if id is not None and (step is None or step.address != (namespace, id)):
            put = log.find(Address(namespace, id)).put
            step = None if put is None else log.step(put)
        if step is None or step.address is None:
            return None
        address, history = step.address, History(Loader(self._objects.read, self._codec))
        writes = log.writes(log.find(address), address)
        record = history.record(step)
        if newest is step and log is self._log:
            values = self._channels_of(namespace).read(step.commit.root)
        else:
            values = history.values(step)  # Not the newest: no use in caching it.
        return Found(address, record, step.parent, values, history.pending(writes))

    def history(
        self, namespace: str | None, id: str | None = None, before: str | None = None
    ) -> Iterator[Listed]:
        """The checkpoints at the current head, by descending id; with `before`, only lower ones."""
        with self._coding:
            log = self.look()
            if id is None or namespace is None:
                found = listed(log, namespace)
            else:
                place = log.find(address := Address(namespace, id))
                there = [] if place.put is None else [log.step(place.put)]
                found = iter([Listed(step, log.writes(place, address)) for step in there])
        return (
            one
            for one in found
            if (before is None or one.address.id < before) and id in (None, one.address.id)
        )

    def reader(self) -> History:
        """A reader for many checkpoints, which decodes what they share only once."""
        return History.of(self._objects.read, SharingGraphCodec(self._types))

    def _consistently(self, call: Callable[[Log], T]) -> T:
        """Call with the current log; again, if that was replaced and collected meanwhile."""
        gone: ObjectId | None = None
        while True:
            log = self.look()
            try:
                with self._coding:
                    return call(log)
            except MissingObjects:
                if log.target == gone:
                    raise
                gone = log.target
                self._log = None

    def delta_history(
        self, namespace: str, id: str | None, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The seed and writes of delta channels at a checkpoint, or at the newest one."""

        def found(log: Log) -> Mapping[str, DeltaChannelHistory]:
            newest = log.newest(namespace) if id is None else None
            if id is None and (newest is None or newest.address is None):
                return Trail(channels)
            address = newest.address if newest and newest.address else Address(namespace, id or "")
            return trail(log, self.reader(), address, channels)

        return self._consistently(found) if channels else {}

    def pins(self) -> dict[str, Address]:
        """The checkpoints that are pinned, by name."""
        return self._consistently(Log.pins)

    # Writing.

    def send(self, request: Put | Writes) -> None:
        """Store a checkpoint or writes, in one commit with all requests queued meanwhile."""
        if isinstance(request, Put):
            self._lingers |= self._alone
            self._delta |= request.metadata.get(COUNTERS, {}).keys()
            self._waiting.append(request)
        else:
            self._encode_writes(request)
            if self._lingers and not request.is_last and not self._holds_up_its_put(request):
                # A checkpoint mostly follows at once, but not after an interrupt or an error.
                landed = request.landed = threading.Lock()
                landed.acquire()
                self._waiting.append(request)
                if not landed.acquire(timeout=_LINGER) and not request.is_taken:
                    self._lingers = False
            else:
                self._waiting.append(request)
        while not request.is_done:
            with self._leading:
                if not request.is_done:
                    self._lead()
        if request.error is not None:
            raise request.error

    def _holds_up_its_put(self, request: Writes) -> bool:
        """Whether LangGraph waits for these writes before it puts the checkpoint that follows."""
        return any(channel in self._delta for _, channel, _ in request.writes)

    def _lead(self) -> None:
        """Land all queued requests, as the leader."""
        puts: list[Put] = []
        writes: list[Writes] = []
        waiting, error = self._waiting, None
        self._alone = True
        while waiting:
            request = waiting.popleft()
            request.is_taken = True
            if isinstance(request, Put):
                self._alone = False
                puts.append(request)
            else:
                writes.append(request)
        try:
            self.land(puts, writes)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._alone = False
            for one in (*puts, *writes):
                one.finish(error)

    def land(self, puts: Sequence[Put], writes: Sequence[Writes]) -> None:
        """Land requests with one commit; a refused one is finished with its error."""
        backoff, missing, encoded = None, 0, False
        while True:
            try:
                with self._coding:
                    if not encoded:
                        puts = [one for one in puts if self._encode_put(one)]
                        encoded = True
                    landing = self._landing(puts, writes)
                if landing is not None:
                    self._land(landing, "put", puts)
                return
            except RefMoved:
                with self._coding:
                    self._reload()
                backoff = backoff or Backoff()
                backoff.wait()
            except MissingObjects:
                # A collection deleted values that were not sent again: now send everything.
                missing += 1
                if missing == _RESENDS:
                    raise
                encoded = False
                self._forget()
            except BaseException:
                self._forget()
                raise

    def land_all(self, batch: Sequence[Put | Writes]) -> None:
        """Store many requests with one commit; each has its `error` afterwards."""
        puts = [one for one in batch if isinstance(one, Put)]
        writes = [one for one in batch if isinstance(one, Writes)]
        for request in writes:
            try:
                self._encode_writes(request)
            except RopewalkError as error:
                request.finish(error)
        with self._leading:
            self.land(puts, writes)

    def change(self, call: Change, action: str) -> bool:
        """Land what `call` makes of the log, such as a prune; whether there was anything to do.

        The call is repeated if others write meanwhile.
        """
        with self._leading:
            while True:
                with self._coding:
                    landing = call(self.look())
                    if landing is None:
                        return False
                    self._forget()
                try:
                    self._land(landing, action)
                except RefMoved:
                    continue
                return True

    def _land(self, landing: Landing, action: str, puts: Sequence[Put] = ()) -> None:
        """Send commits; after a put the cached log is extended with them."""
        epoch = self._epoch
        landing.metadata["action"] = action
        operation: Operation = self._commits.land(
            landing.objects,
            landing.needs,
            (landing.move,),
            landing.metadata,
            step=landing.steps[-1].commit if landing.steps else None,
        )
        with self._coding:
            if action != "put":
                self._log = None
                return
            log = self._log
            if log is None or log.target != landing.move.expected:
                self._epoch = None
                return  # Another thread replaced the log meanwhile.
            log.extend(landing, operation.sequence)
            if operation.epoch != epoch:
                # The epoch changed: the store checked only what this commit needed.
                for namespace in self._channels.keys() - {one.address.namespace for one in puts}:
                    del self._channels[namespace]
                for channels in self._channels.values():
                    channels.trim()
                self._epoch = operation.epoch

    def _forget(self) -> None:
        """Drop all caches: nothing is known to be in the store."""
        with self._coding:
            self._channels.clear()
            self._log = self._epoch = None

    # Encoding.

    def _channels_of(self, namespace: str) -> ChannelValues:
        """The cached channel values of a namespace."""
        found = self._channels.get(namespace)
        if found is None:
            found = self._channels[namespace] = ChannelValues(self._codec, self._objects.read)
            while len(self._channels) > _MOST_NAMESPACES:
                self._channels.popitem(last=False)
        else:
            self._channels.move_to_end(namespace)
        return found

    def _encode_writes(self, request: Writes) -> None:
        """Encode writes, before the graph changes them; NotStorable names the node."""
        writes = [[*one] for one in request.writes]
        content = [short_id(request.task_id), request.task_path, writes]
        with self._coding:
            try:
                request.content = self._codec.encode(content)
                if len(request.content) > INLINE:
                    request.events = TreeWriter(self._codec).write(content).objects
            except NotStorable as error:
                error = self._refused[request.address] = _at_its_node(error, request)
                while len(self._refused) > _MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]
                raise error from None

    def _encode_put(self, put: Put) -> bool:
        """Encode a put as objects; False if it is refused."""
        if put.is_done:
            return False
        namespace = put.address.namespace
        try:
            said = Record(put.checkpoint, put.metadata)
            put.record, put.about = encode_record(self._codec, said, put.address.id)
            values = self._channels_of(namespace)
            put.values = values.write(put.channels)
            self._codec.turn()
            put.nodes = self._nodes(put, values)
        except MissingObjects:
            raise
        except RopewalkError as error:
            # If its writes were refused too, their error is better: it names the node.
            before = Address(namespace, put.parent or "")
            refused = self._refused.get(before) if isinstance(error, NotStorable) else None
            put.finish(refused or error)  # The other requests are still landed.
        except Exception as error:  # noqa: BLE001 - a class of the user's own may raise anything
            self._channels.pop(namespace, None)
            put.finish(error)
        return not put.is_done

    def _nodes(self, put: Put, values: ChannelValues) -> str:
        """The names of the nodes that ran between a checkpoint and the one before it."""
        now, before = put.checkpoint.get("versions_seen"), values.seen
        if type(now) is not dict:
            return ""
        if before is None and put.parent is not None:
            before = self._seen_at(Address(put.address.namespace, put.parent))
        if before is None:
            before, ran = {}, []
        else:
            ran = [name for name, one in now.items() if before.get(name) != one]
        for name in ran or now:
            one = now[name]
            before[name] = {**one} if type(one) is dict else one  # LangGraph changes it in place.
        for name in before.keys() - now.keys() if len(before) != len(now) else ():
            del before[name]
        values.seen = before
        return ", ".join([str(name) for name in ran if str(name)[:2] != _HIDDEN])

    def _seen_at(self, address: Address) -> dict[str, Any] | None:
        """`versions_seen` of a checkpoint, if it is the newest of its namespace."""
        newest = None if self._log is None else self._log.newest(address.namespace)
        if newest is None or newest.address != address:
            return None
        record = record_of(newest, Loader(self._objects.read, inspection_codec))
        return record.checkpoint.get("versions_seen")

    # On top of the head.

    def _landing(self, puts: Sequence[Put], writes: Sequence[Writes]) -> Landing | None:
        """Requests as commits on top of the head; None if none is left."""
        log = self._log or self._reload()
        objects: list[Object] = []
        needs: list[ObjectId] = []
        drafts: list[Draft] = []
        for put in puts:
            if put.is_done:
                continue
            try:
                drafts.append(self._draft(log, put, objects, drafts))
            except ThreadConflict as error:
                # Its values count as stored in that cache, and now will not be.
                self._channels.pop(put.address.namespace, None)
                put.finish(error)
                continue
            objects += put.values.objects
            needs += put.values.needs
        early = False
        writes = [one for one in writes if not one.is_done]
        if writes:
            if not drafts:
                drafts.append(self._draft_without_put(log, objects))
            early = self._attach(log, writes, drafts, objects)
        if not drafts:
            return None
        return log.landing(self.name, drafts, objects, needs, early=early)

    def _draft(self, log: Log, put: Put, objects: list[Object], before: Sequence[Draft]) -> Draft:
        """A put as a draft of a commit; raises ThreadConflict."""
        record, about, address = put.record, put.about, put.address
        replaced, newest = None, log.newest(address.namespace)
        if log.state.flags & (UNSORTED | MIXED) or (
            newest is not None and address.id <= (newest.address or address).id
        ):
            place = log.find(address).put
            replaced = None if place is None else log.step(place)
        copy_of, aside, original = None, False, replaced
        source = put.metadata.get("source", "put")
        if replaced is not None:
            copy_of, aside = replaced.copy_of, replaced.aside
        else:
            if self._on_conflict != "fork":
                aside = self._loses_race(log, put, before)
            if source == "fork":
                original = self._original(log, put)
                copy_of = None if original is None else original.origin
        if original is not None:
            earlier = record_of(original, Loader(self._objects.read, inspection_codec)).before
            if earlier:
                said = Record(put.checkpoint, put.metadata, earlier)
                record, about = encode_record(self._codec, said, address.id)
        objects += about
        step = put.metadata.get("step", "")
        return Draft(
            put.values.root,
            address,
            put.parent,
            aside,
            copy_of,
            record,
            about[-1].id if about else None,
            description=f"{source} {step}".rstrip(),
            logic_step=put.nodes,
        )

    def _original(self, log: Log, put: Put) -> Step | None:
        """The checkpoint that a fork is a copy of: the one with the same parent and versions.

        LangGraph does not say which one it is.
        """
        versions = put.checkpoint.get("channel_versions")
        loader = Loader(self._objects.read, inspection_codec)
        for one in listed(log, put.address.namespace):
            if one.step.parent != put.parent:
                continue
            if record_of(one.step, loader).checkpoint.get("channel_versions") == versions:
                return one.step
        return None

    def _loses_race(self, log: Log, put: Put, before: Sequence[Draft]) -> bool:
        """Whether another run put a checkpoint after the same parent first.

        Also if that happened to its parent. With `on_conflict="raise"` raises ThreadConflict.
        """
        namespace, parent = put.address.namespace, put.parent
        made = [one for one in before if one.address and one.address.namespace == namespace]
        if parent is not None:
            place = None
            for one in made:
                if one.address == (namespace, parent) and one.aside:
                    return True
            place = log.find(Address(namespace, parent))
            if place.put is not None and log.step(place.put).aside:
                return True
        there = log.newest(namespace)
        ids = [one.address.id for one in made if one.address and not one.aside]
        if there is not None and there.address is not None:
            ids.append(there.address.id)
        newest = max(ids, default=None)
        if newest == parent or (parent is not None and parent == put.forks_from):
            return False
        if self._on_conflict == "branch":
            return True
        raise ThreadConflict(
            f"another run put checkpoint {newest} of thread {self.name!r:.80} after "
            f"{parent or 'nothing'}, from where this run went on. Nothing of it is lost: run again "
            "from the newest checkpoint."
        )

    def _draft_without_put(self, log: Log, objects: list[Object]) -> Draft:
        """A draft for writes without a checkpoint: it keeps the root of the head."""
        if log.head is not None:
            return Draft(log.head.commit.root, description="writes")
        empty = TreeWriter(self._codec).write({})
        objects += empty.objects
        return Draft(empty.root, description="writes")

    def _attach(
        self, log: Log, writes: list[Writes], drafts: list[Draft], objects: list[Object]
    ) -> bool:
        """Assign writes to the drafts that they land with; whether some came early.

        Early: before the checkpoint that they belong to is stored. They land no later than the
        checkpoint that follows from them.
        """
        here, early = [draft.address for draft in drafts], False
        parts: dict[int, list[bytes]] = {}
        for request in writes:
            address = request.address
            at = _place_in(drafts, address) if len(drafts) > 1 else 0
            draft = drafts[at]
            content: bytes | int = request.content
            children: Sequence[str] = ()
            if address not in here and not log.follows(address):
                if log.is_ahead(address) or log.find(address).put is None:
                    early = True
                else:
                    children = log.children(address)
            if request.events:
                several = parts.setdefault(at, [])
                content = len(several)
                several.append(part_of(request.events))
                objects += request.events
            draft.writes = [*draft.writes, Written(address, content, children)]
            if request.is_last and not draft.status:
                _say_failed(draft, request)
        for at, several in parts.items():
            events = events_of(several)
            objects.append(events)
            drafts[at].events = events.id
        return early


def _say_failed(draft: Draft, request: Writes) -> None:
    """Note a failed task in a commit: its status, error and node."""
    for _, channel, value in request.writes:
        if channel == ERROR:
            draft.status = "failed"
            draft.error = str(value)[:_MOST_SAID].encode(errors="backslashreplace").decode()
            draft.logic_step = request.task_path.rpartition(", ")[2]
            return


def _place_in(drafts: Sequence[Draft], address: Address) -> int:
    """The commit with which writes to a checkpoint land: its own, or that of what follows it."""
    for at, draft in enumerate(drafts):
        if draft.address == address:
            return at
    for at, draft in enumerate(drafts):
        if draft.address and (draft.address.namespace, draft.parent) == address:
            return at
    return 0


def _at_its_node(error: NotStorable, wanted: Writes) -> NotStorable:
    """The refusal of a value, with the node that wrote it and its place in a channel."""
    node = wanted.task_path.rpartition(", ")[2] or wanted.task_id
    place = error.path
    for at, (_, channel, _) in enumerate(wanted.writes):
        start = format_path((2, at, 2))
        if place.startswith(start):
            place = f"{channel}{place.removeprefix(start)}"
            break
    return NotStorable(f"{error.reason} (node {node!r} wrote it)", place)
