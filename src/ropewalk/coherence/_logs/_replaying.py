"""Going through the logs of a run, of all its processes, to see whether promises were kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ropewalk.coherence._logs._facts import (
    WRITES,
    ArtifactKey,
    Delivery,
    Facts,
    Promise,
    Turn,
    delivery_of,
    turn_of,
    written_by,
)
from ropewalk.coherence._logs._files import field_of, lines_of
from ropewalk.coherence._logs._records import (
    BEGIN,
    CONTENT_AUDIT_LOG,
    CONTROL,
    METRIC,
    SCHEMAS,
    STATE_LOG,
    Record,
)
from ropewalk.coherence._logs._rules import (
    INVARIANTS,
    OF_READS,
    Finding,
    Trust,
    blind_writes,
    findings_of,
)
from ropewalk.coherence._logs._validating import Gap, Wholeness
from ropewalk.errors import InvalidInput, NotFound

_SUFFIX = ".jsonl"
# The fields that only records of one stream have.
_TELLING = {STATE_LOG: "trigger", CONTENT_AUDIT_LOG: "outcome", METRIC: "operation"}


@dataclass(frozen=True, slots=True)
class Replay:
    """What the logs of a run show.

    `findings` are promises that were broken. `gaps` are records that are missing: a run
    without findings is proven only if there are none. `unbounded` counts reads of which no
    log says how late they may be, `unaudited` the processes whose reads were to be judged and
    are in no log (only a content audit log has reads), and `blind` the writes that replaced
    what their agents had not read, which is allowed.
    """

    findings: list[Finding]
    gaps: list[Gap]
    files: int
    records: int
    reads: int
    writes: int
    degraded: int
    unbounded: int
    unaudited: int
    blind: int
    artifacts: int
    agents: int
    instances: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found that is certain."""
        return not any(one.certain for one in self.findings)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing from the logs."""
        return not self.gaps and not self.unaudited

    @property
    def empty(self) -> bool:
        """Whether the logs tell of nothing that could be judged."""
        return not self.records


def replay(
    *paths: str | PathLike[str],
    invariants: Iterable[str] = tuple(INVARIANTS),
    skew_seconds: float = 0.0,
) -> Replay:
    """Look for stale reads, lost updates and other broken promises in recorded logs.

    `paths` are files, or folders whose files `*.jsonl` are read: the state logs and the
    content audit logs of all processes of one run. `invariants` are "stale-read",
    "lost-update", "single-writer", "monotonic-version" and "unwritten-version".
    `skew_seconds` is by how much the clocks of machines may differ.
    """
    wanted = tuple(invariants)
    for name in wanted:
        if name not in INVARIANTS:
            raise InvalidInput(
                f"there is no invariant {name!r}; there are {', '.join(INVARIANTS)}."
            )
    files = [file for path in paths for file in _files(Path(path))]
    run = _Run()
    for file in files:
        run.read(file)
    facts = Facts(run.deliveries, run.turns, run.doubtful)
    gaps = run.gaps()
    trust = Trust(complete=not gaps and not run.begun_late, skew=int(skew_seconds * 1_000_000))
    reads = [one for one in facts.reads if not one.degraded]
    seen: list[Delivery | Turn] = [*facts.deliveries, *facts.turns]
    return Replay(
        findings=findings_of(facts, trust, wanted),
        gaps=gaps,
        files=len(files),
        records=run.records,
        reads=len(reads),
        writes=sum(one.is_write for one in facts.deliveries),
        degraded=sum(one.degraded for one in facts.deliveries),
        unbounded=sum(one.promise[1:] == (None, None) for one in reads),
        unaudited=len(run.instances - run.audited) if OF_READS.intersection(wanted) else 0,
        blind=sum(1 for _ in blind_writes(facts)),
        artifacts=len({one.key for one in seen}),
        agents=len({one.agent for one in seen}),
        instances=len(run.instances),
    )


class _Run:
    """What was read so far."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.instances: set[str] = set()
        self.audited: set[str] = set()
        """Those whose content audit log was read."""
        self.records = 0
        self.begun_late = False
        self.doubtful: set[ArtifactKey] = set()
        self._audited: list[Delivery] = []
        self._committed: list[Delivery] = []
        self._wholes: list[Wholeness] = []
        self._promises: dict[str, Promise] = {}

    @property
    def deliveries(self) -> list[Delivery]:
        """What was delivered; of an instance without content audit log only what it wrote."""
        audited = {one.instance for one in self._audited}
        return self._audited + [one for one in self._committed if one.instance not in audited]

    def gaps(self) -> list[Gap]:
        """What is missing."""
        return [gap for one in self._wholes for gap in (*one.gaps, *one.open_ends(True))]

    def read(self, path: Path) -> None:
        """All records of a file."""
        wholes: dict[str, Wholeness] = {}
        for index, record in lines_of(path):
            if record is None:
                for whole in wholes.values():
                    whole.torn(index)
                continue
            stream = _stream_of(record, path, index)
            if stream == METRIC:
                continue
            if stream not in wholes:
                wholes[stream] = Wholeness(path, stream, SCHEMAS[stream])
            wholes[stream].see(index, record)
            self._see(stream, record, path, index)
        self._wholes += wholes.values()

    def _see(self, stream: str, record: Record, path: Path, index: int) -> None:
        instance = record["instance_id"]
        self.instances.add(instance)
        if stream == CONTENT_AUDIT_LOG:
            self.audited.add(instance)
        if record.get(CONTROL) == BEGIN:
            bounds = record.get("bound_seconds"), record.get("bound_reads")
            self._promises[instance] = Promise(record.get("space", ""), *bounds)
            self.begun_late |= not record.get("from_start", True)
        if CONTROL in record:
            return
        self.records += 1
        promise = self._promises.get(instance, Promise())
        at = f"{path.name}:{index + 1}"
        try:
            self._take(stream, record, promise, at)
        except KeyError as error:
            field_of(record, error.args[0], path, index)

    def _take(self, stream: str, record: Record, promise: Promise, at: str) -> None:
        if stream == STATE_LOG:
            self.turns.append(turn_of(record, promise, at))
            self._committed += written_by(record, promise, at)
        else:
            self._audited += delivery_of(record, promise, at)
            if record["outcome"] == "error" and record["source"] in WRITES:
                self.doubtful.add(ArtifactKey(promise.space, record["artifact_id"]))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.suffix == _SUFFIX)
    if not found:
        raise NotFound(
            f"there is no file *{_SUFFIX} in {path}. `record_to` makes them while a run goes on."
        )
    return found


def _stream_of(record: Record, path: Path, index: int) -> str:
    if CONTROL in record and record.get("stream") in SCHEMAS:
        return str(record["stream"])
    for stream, field in _TELLING.items():
        if field in record:
            return stream
    raise InvalidInput(
        f"line {index + 1} of {path} is no record of a state log or a content audit log. "
        "Name the files, or the folder, that a run was recorded to."
    )
