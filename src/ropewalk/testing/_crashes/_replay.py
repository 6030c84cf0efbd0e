"""The folders that power losses may leave behind: a journal is replayed in memory.

A file system keeps what was synced. Of the rest it may keep any part: writes reach the disk in any
order, whole or torn; a file may have grown without its bytes; a rename may be delayed. Each file
therefore has its durable bytes and the changes since, each folder its durable names and the
changes since, and a crash chooses among the changes."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

from ropewalk.store.validation import expect_whole
from ropewalk.testing._crashes._journal import (
    Cut,
    Journal,
    Made,
    Mark,
    Removed,
    Renamed,
    Step,
    Synced,
    SyncedNames,
    Wrote,
)

SECTOR = 512


@dataclass(eq=False, slots=True)
class File:
    """The bytes of a file, independent of its name."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Wrote | Cut] = field(default_factory=list)
    size: int = 0
    """As the program sees it."""
    digest: bytes | None = None
    """The cached digest of the durable bytes."""

    def change(self, step: Wrote | Cut) -> None:
        self.pending.append(step)
        self.size = step.size if isinstance(step, Cut) else max(self.size, _end(step))

    def sync(self) -> None:
        for step in self.pending:
            _apply(self.durable, step)
        if self.pending:
            self.digest = None
        self.pending.clear()


@dataclass(eq=False, slots=True)
class Folder:
    """The names in a folder."""

    now: dict[str, Node] = field(default_factory=dict)
    """As the program sees them."""
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)


Node: TypeAlias = File | Folder


@dataclass(eq=False, slots=True)
class Change:
    """One change of the names in a folder: one may be removed, and one added."""

    gone: str | None
    come: str | None
    node: Node | None
    elsewhere: tuple[Folder, Change] | None = None
    """The new location of a file that was moved away: it is never lost between the two."""

    def apply(self, names: dict[str, Node]) -> None:
        if self.gone is not None:
            names.pop(self.gone, None)
        if self.come is not None and self.node is not None:
            names[self.come] = self.node


class Style(NamedTuple):
    """The probability that a crash keeps or tears unsynced changes."""

    bytes_kept: float
    names_kept: float
    torn: float

    @classmethod
    def choose(cls, random: Random) -> Style:
        """One in four keeps all or nothing: these images matter most often."""
        bytes_kept = random.choice([0.0, 1.0, random.random(), random.random()])
        names_kept = random.choice([0.0, 1.0, random.random(), random.random()])
        return cls(bytes_kept, names_kept, random.choice([0.0, random.random() / 2]))


class Image(NamedTuple):
    """A folder as a crash may leave it; None is a subfolder."""

    files: Mapping[str, bytes | None]
    digest: bytes


class Replay:
    """The folder of a journal, replayed up to some step."""

    def __init__(self, start: Mapping[str, bytes | None]) -> None:
        self._root = Folder()
        for path, data in start.items():
            node: Node
            node = Folder() if data is None else File(bytearray(data), size=len(data))
            folder, name = self._place(path)
            folder.now[name] = folder.durable[name] = node

    def do(self, steps: Iterable[Step]) -> None:
        """Replay the next steps."""
        for step in steps:
            match step:
                case Mark():
                    pass
                case Made(path, is_folder):
                    folder, name = self._place(path)
                    self._change(folder, Change(None, name, Folder() if is_folder else File()))
                case Wrote() | Cut():
                    self._file(step.path).change(step)
                case Synced(path):
                    self._file(path).sync()
                case Removed(path):
                    folder, name = self._place(path)
                    self._change(folder, Change(name, None, None))
                case Renamed(path, target):
                    self._rename(path, target)
                case SyncedNames(path):
                    _sync_names(self._folder(path))

    def crash(self, random: Random) -> Image:
        """The result of a power failure now, chosen by a random generator."""
        style = Style.choose(random)
        files: dict[str, bytes | None] = {}
        digest = blake2b(digest_size=16)
        kept = _kept_names(self._folders(), random, style.names_kept)
        for path, node in _walk(self._root, kept):
            digest.update(f"{path}\0".encode())
            if isinstance(node, Folder):
                files[path] = None
                digest.update(b"/")
            else:
                files[path], part = _content(node, random, style)
                digest.update(part)
        return Image(files, digest.digest())

    def _rename(self, path: str, target: str) -> None:
        (source, old), (folder, new) = self._place(path), self._place(target)
        node = source.now[old]
        if source is folder:
            self._change(folder, Change(old, new, node))
            return
        come = Change(None, new, node)
        self._change(folder, come)
        self._change(source, Change(old, None, None, (folder, come)))

    @staticmethod
    def _change(folder: Folder, change: Change) -> None:
        assert change.gone is None or change.gone in folder.now, f"{change.gone} is not there"
        change.apply(folder.now)
        folder.pending.append(change)

    def _place(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _folder(self, path: str) -> Folder:
        found: Node = self._root
        for name in path.split("/") if path else ():
            assert isinstance(found, Folder), f"{path} is in no folder"
            found = found.now[name]
        assert isinstance(found, Folder), f"{path} is no folder"
        return found

    def _file(self, path: str) -> File:
        folder, name = self._place(path)
        found = folder.now[name]
        assert isinstance(found, File), f"{path} is no file"
        return found

    def _folders(self) -> list[Folder]:
        """Every folder that may be left, once, in a deterministic order."""
        found = [self._root]
        for folder in found:
            nodes = [*folder.durable.values(), *(change.node for change in folder.pending)]
            found += [one for one in nodes if isinstance(one, Folder) and one not in found]
        return found


def _sync_names(folder: Folder) -> None:
    pending, folder.pending = folder.pending, []
    folder.durable = dict(folder.now)
    for change in pending:
        if change.elsewhere is not None and change.elsewhere[1] in change.elsewhere[0].pending:
            _sync_names(change.elsewhere[0])


def _kept_names(folders: Iterable[Folder], random: Random, likely: float) -> dict[int, set[int]]:
    """The changes of names that are kept, for each folder."""
    kept = {
        id(folder): {id(change) for change in folder.pending if _happens(random, likely)}
        for folder in folders
    }
    for folder in folders:
        for change in folder.pending:
            if change.elsewhere is not None and id(change) in kept[id(folder)]:
                there, come = change.elsewhere
                kept[id(there)].add(id(come))
    return kept


def _walk(
    folder: Folder, kept: Mapping[int, set[int]], inside: str = ""
) -> Iterator[tuple[str, Node]]:
    names = dict(folder.durable)
    for change in folder.pending:
        if id(change) in kept[id(folder)]:
            change.apply(names)
    for name, node in sorted(names.items(), key=lambda item: item[0]):
        yield inside + name, node
        if isinstance(node, Folder):
            yield from _walk(node, kept, f"{inside}{name}/")


def _content(file: File, random: Random, style: Style) -> tuple[bytes, bytes]:
    """The bytes of a file after a crash, and their digest."""
    kept = [step for step in file.pending if _happens(random, style.bytes_kept)]
    grown = bool(file.pending) and random.random() < 0.2
    if not kept and not (grown and file.size > len(file.durable)):
        if file.digest is None:
            file.digest = blake2b(file.durable, digest_size=16).digest()
        return bytes(file.durable), file.digest
    left = bytearray(file.durable)
    for step in kept:
        torn = isinstance(step, Wrote) and len(step.data) > 1 and _happens(random, style.torn)
        for part in _tear(step, random) if torn and isinstance(step, Wrote) else [step]:
            _apply(left, part)
    if grown and file.size > len(left):
        left.extend(bytes(file.size - len(left)))  # Extended, but the bytes are missing.
    return bytes(left), blake2b(left, digest_size=16).digest()


def _tear(step: Wrote, random: Random) -> list[Wrote]:
    """Parts of a write: its beginning or its end, or some of its sectors."""
    path, offset, data = step
    at = random.randrange(1, len(data))
    how = random.randrange(3)
    if how == 0:
        return [Wrote(path, offset, data[:at])]
    if how == 1:
        return [Wrote(path, offset + at, data[at:])]
    first = SECTOR - offset % SECTOR
    cuts = [0, *range(first, len(data), SECTOR), len(data)]
    likely = random.random()
    return [
        Wrote(path, offset + begin, data[begin:end])
        for begin, end in itertools.pairwise(cuts)
        if random.random() < likely
    ]


def _apply(data: bytearray, step: Wrote | Cut) -> None:
    """Apply a step; a gap before a later write reads as zeros."""
    size = step.size if isinstance(step, Cut) else step.offset
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    if isinstance(step, Cut):
        del data[step.size :]
    else:
        data[step.offset : _end(step)] = step.data


def _end(step: Wrote) -> int:
    return step.offset + len(step.data)


def _happens(random: Random, likely: float) -> bool:
    return random.random() < likely


_PASSES = 100  # How often a journal is replayed if there are too few states.
_LEAST = 64  # Moments tried per replay, after the first.


@dataclass(frozen=True, slots=True)
class CrashState:
    """A folder as a power loss may leave it."""

    point: int
    """The number of journal steps before the crash."""
    marks: tuple[Mark, ...]
    """The notes recorded by then."""
    files: Mapping[str, bytes | None]
    """The bytes of each file by its path in the journal's folder; None is a folder."""
    digest: bytes
    """Identifies this state."""

    def marked(self, name: str) -> list[object]:
        """The values recorded under a name, in order."""
        return [mark.value for mark in self.marks if mark.name == name]

    def write_to(self, folder: str | PathLike[str]) -> Path:
        """Write the files into a real folder, replacing its content."""
        root = Path(folder)
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        for path, data in self.files.items():
            if data is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(data)
        return root

    def __repr__(self) -> str:
        return f"<CrashState {self.digest.hex()[:12]} after {self.point} steps>"


def crash_states(journal: Journal, *, seed: int, count: int) -> Iterator[CrashState]:
    """Up to `count` different folders that a power loss may leave.

    The crash happens at any moment of the journal. Everything that was synced before is intact.
    What was not synced is present, absent or partial: writes are dropped, reordered and torn at
    any byte or sector, files grow without their bytes, renames are delayed. The same journal and
    seed give the same states. There are fewer than `count` if no more are found. A folder that is
    also left at a moment with other notes is repeated: lacking a commit is right before the
    acknowledgement, and wrong after it.
    """
    expect_whole(count, 0, "count")
    steps, random = journal.steps, Random(seed)
    images, seen = set[bytes](), set[tuple[bytes, int]]()
    for _ in range(_PASSES):
        tries = max(count - len(images), _LEAST) if images else count
        points = sorted(random.randrange(len(steps) + 1) for _ in range(tries))
        replay, marks, done = Replay(journal.start), list[Mark](), 0
        for point in points:
            replay.do(steps[done:point])
            marks += [step for step in steps[done:point] if isinstance(step, Mark)]
            done = point
            if len(images) == count:
                return
            image = replay.crash(random)
            images.add(image.digest)
            if (image.digest, len(marks)) not in seen:
                seen.add((image.digest, len(marks)))
                yield CrashState(point, tuple(marks), image.files, image.digest)
