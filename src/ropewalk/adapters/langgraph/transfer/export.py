"""Export of a saver's threads to the databases of LangGraph's own savers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from ropewalk.adapters.langgraph.saver.checkpoints import Address, Record, Step, Written
from ropewalk.adapters.langgraph.saver.log import Log
from ropewalk.adapters.langgraph.saver.thread import GraphThread
from ropewalk.adapters.langgraph.saver.values import History
from ropewalk.adapters.langgraph.transfer.databases import Key, LeftOut, parents_first
from ropewalk.adapters.langgraph.transfer.targets import OfficialForms
from ropewalk.errors import NotFound, RopewalkError

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.saver.saver import RopewalkSaver
    from ropewalk.adapters.langgraph.transfer.takeover import TakeoverProgress
    from ropewalk.adapters.langgraph.transfer.targets import Target

_MOST_TOGETHER: Final = 64
_MOST_NAMED: Final = 1000


@dataclass(slots=True)
class Exported:
    """The result of `export_checkpoints`."""

    threads: int = 0
    checkpoints: int = 0
    """Checkpoints that were added."""
    writes: int = 0
    """Pending writes that were added."""
    present: int = 0
    """Checkpoints that already existed."""
    left_out: list[LeftOut] = field(default_factory=list)
    """The first ones that could not be exported."""
    left_counts: Counter[str] = field(default_factory=Counter)
    """How many could not be, by reason."""
    target_bytes: int = 0
    """The size of the target afterwards."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return not self.left_counts

    def leave(self, left: LeftOut) -> None:
        """Record an item that is not exported."""
        self.left_counts[left.reason] += 1
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(left)


def export_checkpoints(
    saver: RopewalkSaver,
    target: str | PathLike[str],
    *,
    threads: Iterable[str] | None = None,
    schema: str | None = None,
    progress: TakeoverProgress | None = None,
) -> Exported:
    """Write threads into a database of a `SqliteSaver` (a path) or a `PostgresSaver` (a URL).

    LangGraph's own saver can then read it, and graphs continue there. Ids are preserved. It can be
    repeated: only missing rows are added. Needs the package of that saver, which is imported here;
    raises `ImportError` without it, and `NotFound` if there is no such thread.
    """
    from ropewalk.adapters.langgraph.transfer.targets import open_target

    chosen = _chosen(saver, threads)
    with closing(open_target(fspath(target), schema)) as opened:
        done = _Export(saver, opened, progress).run(chosen)
        done.target_bytes = opened.size()
    return done


def _chosen(saver: RopewalkSaver, threads: Iterable[str] | None) -> list[str]:
    there = sorted(saver.threads())
    if threads is None:
        return there
    wanted = list(dict.fromkeys(map(str, threads)))
    missing = [one for one in wanted if one not in set(there)]
    if missing:
        raise NotFound(f"the store has no LangGraph thread {missing[0]!r:.80}")
    return wanted


class _Export:
    """One run of it."""

    def __init__(
        self, saver: RopewalkSaver, target: Target, progress: TakeoverProgress | None
    ) -> None:
        self._saver, self._target = saver, target
        self._tell = progress or (lambda step, done, total: None)
        self._forms = OfficialForms(saver._core.types)
        self._done = Exported()
        self._seen = self._total = 0

    def run(self, threads: list[str]) -> Exported:
        """Export some threads, one after another."""
        opened = [(id, self._thread(id)) for id in threads]
        self._total = sum(_count(thread.look()) for _, thread in opened)
        for id, thread in opened:
            self._done.threads += self._give(id, thread)
        return self._done

    def _thread(self, id: str) -> GraphThread:
        return GraphThread(self._saver.store, id, self._saver._core.types, "fork")

    def _reader(self, thread: GraphThread) -> History:
        return History.of(thread.look().read, self._forms)

    def _give(self, id: str, thread: GraphThread) -> bool:
        log = thread.look()
        there = self._target.checkpoints(id)
        before = self._done.checkpoints + self._done.writes
        reader = self._reader(thread)
        puts, writes = _everything(log)
        for number, address in enumerate(_in_order(puts, writes)):
            if number % _MOST_TOGETHER == 0:
                self._target.commit()
                reader = self._reader(thread)  # Bounds the memory of shared values.
            try:
                is_there = address in there
                self._give_one(id, address, puts, writes.get(address, []), reader, is_there)
            except RopewalkError as error:
                left = LeftOut("not_storable", id, *address, "the checkpoint", str(error))
                self._done.leave(left)
        self._target.commit()
        return self._done.checkpoints + self._done.writes > before

    def _give_one(
        self,
        id: str,
        address: Address,
        puts: dict[Address, Step],
        writes: list[tuple[Step, Written]],
        reader: History,
        is_there: bool,
    ) -> None:
        step = puts.get(address)
        if step is not None:
            self._seen += 1
            self._tell("giving back", self._seen, self._total)
            record = reader.record(step)
            if record.before:
                message = "its delta channels go on from checkpoints that were pruned"
                self._done.leave(LeftOut("pruned", id, *address, "the checkpoint", message))
                return
            if is_there:
                self._done.present += 1
            elif step.aside:
                message = "it lost a race, and LangGraph's saver might take it for the newest"
                self._done.leave(LeftOut("aside", id, *address, "the checkpoint", message))
                return
            else:
                self._put(id, address, record, puts, reader)
        known = self._target.writes(id, address) if is_there or step is None else set()
        for path, task, number, channel, value in reader.writes(writes):
            if (task, number) not in known:
                self._target.write(id, address, task, path, number, channel, value)
                self._done.writes += 1

    def _put(
        self,
        id: str,
        address: Address,
        record: Record,
        puts: dict[Address, Step],
        reader: History,
    ) -> None:
        step = puts[address]
        parent = puts.get(Address(address.namespace, step.parent or ""))
        before = {} if parent is None else _versions(reader.record(parent))
        changed = {
            channel: version
            for channel, version in _versions(record).items()
            if before.get(channel) != version
        }
        checkpoint = {**record.checkpoint, "channel_values": reader.values(step)}
        self._target.put(id, address, step.parent, checkpoint, record.metadata, changed)
        self._done.checkpoints += 1


def _everything(
    log: Log,
) -> tuple[dict[Address, Step], dict[Address, list[tuple[Step, Written]]]]:
    """All checkpoints, and all pending writes, including those without a checkpoint."""
    puts: dict[Address, Step] = {}
    writes: dict[Address, list[tuple[Step, Written]]] = {}
    for step in reversed([*log.walk()]):
        if step.address is not None:
            puts[step.address] = step
        for one in step.writes:
            writes.setdefault(one.address, []).append((step, one))
    return puts, writes


def _count(log: Log) -> int:
    return len({step.address for step in log.walk() if step.address is not None})


def _in_order(puts: dict[Address, Step], writes: Iterable[Address]) -> list[Address]:
    """All content of a thread, parents first."""
    addresses = sorted({*puts, *writes})
    keys = [Key(*one, puts[one].parent if one in puts else None) for one in addresses]
    return [Address(key.namespace, key.id) for key in parents_first(keys)]


def _versions(record: Record) -> dict[str, Any]:
    found = record.checkpoint.get("channel_versions")
    return found if isinstance(found, dict) else {}
