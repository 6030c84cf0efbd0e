"""Spaces as folders: each with a log, a snapshot of it, and its leases."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ropewalk.errors import FormatError, Unavailable
from ropewalk.store import _file_log as log
from ropewalk.store import _file_small as small
from ropewalk.store._decide import Recorded
from ropewalk.store._file_paths import (
    LEASES,
    LOG,
    SNAPSHOT,
    SPACE,
    SPACES,
    plain_space,
    space_folder,
)
from ropewalk.store._file_state import State, damaged
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._records import Durability

_STATES = 256  # Spaces that are kept in memory.
_SNAPSHOT_BYTES = 64 * 1024
_FIRST_LINES = 512 * 1024


class Spaces:
    """The spaces of one store. What changes them needs the right to write."""

    def __init__(self, root: Path, disk: Filesystem, durability: Durability) -> None:
        self._root, self._disk, self._durability = root, disk, durability
        self._folder = root / SPACES
        self._processes: dict[int, _States] = {}
        self._unsynced: set[str] = set()

    # Reading. Needs no right, and waits for nobody who writes.

    @contextmanager
    def looking(self, space: str) -> Iterator[State]:
        """A space as it is now."""
        state = self._here().get(space, self._folder)
        with state.lock:
            state.refresh()
            yield state

    def names(self, prefix: str) -> list[str]:
        """The spaces that have operations."""
        files = (path for name in (LOG, SPACE) for path in self._folder.glob(f"*/*/{name}"))
        found = [_name_of(folder) for folder in {path.parent for path in files}]
        return sorted(name for name in found if name is not None and name.startswith(prefix))

    def leases(self, space: str) -> small.Leases:
        """The leases of a space."""
        return small.read_leases(space_folder(self._folder, space) / LEASES)

    def examine(self) -> Iterator[tuple[str, str]]:
        """What is wrong with leases."""
        for path in sorted(self._folder.glob(f"*/*/{LEASES}")):
            try:
                small.read_leases(path)
            except FormatError as error:
                yield str(path), str(error)

    def _here(self) -> _States:
        pid = os.getpid()
        return self._processes.get(pid) or self._processes.setdefault(pid, _States())

    # Writing.

    def append(self, space: str, recorded: Recorded) -> None:
        """Add an operation to a log: the moment at which a commit happens."""
        with self.looking(space) as state:
            path, end, torn = state.log, state.end, state.size > state.end
            durable, snapshot_due = state.durable, self._snapshot_due(state)
        if torn:
            self._disk.truncate(path, end)
        full = self._durability == "full"
        if end == 0:
            self._make_folders(path.parent)
        elif full and not durable:
            # Nothing durable may stand behind what is not.
            self.sync(space)
        line = log.encode_line(recorded, self._durability)
        data = line if end else log.encode_start(space) + line
        try:
            self._disk.append(path, data, sync=full)
            if full and end == 0:
                self._sync_names(path.parent)
        except OSError as error:
            self._take_back(path, end, error)
            raise
        if full:
            self._witness(path, space, recorded.operation.sequence, begins=end == 0)
        else:
            self._unsynced.add(space)
        if snapshot_due:
            with suppress(OSError):  # Without one, the next process has more to read.
                self._write_snapshot(space)

    def sync(self, space: str) -> None:
        """Make durable what a log says, and its name."""
        path = space_folder(self._folder, space) / LOG
        if path.exists():
            self._disk.append(path, b"", sync=True)
        if path.parent.is_dir():
            self._sync_names(path.parent)

    def sync_relaxed(self) -> None:
        """Make durable what this store object wrote without syncing it."""
        for space in sorted(self._unsynced):
            self._sync_and_witness(space)
        self._unsynced.clear()

    def sync_all(self) -> None:
        """Make durable what anybody wrote without syncing it.

        What a log no longer reaches must not come back: somebody is about to delete it.
        """
        for path in self._folder.glob(f"*/*/{LOG}"):
            if not _ends_with_witness(path):
                space = _name_of(path.parent)
                if space is not None:
                    self._sync_and_witness(space)

    def _sync_and_witness(self, space: str) -> None:
        self.sync(space)
        with self.looking(space) as state:
            path, sequence, sound = state.log, state.sequence, state.size == state.end
        if sound and sequence:
            self._witness(path, space, sequence, begins=not (path.parent / SPACE).exists())

    def write_leases(self, space: str, leases: small.Leases, *, sync: bool) -> None:
        """Put leases in the place of those before."""
        path = space_folder(self._folder, space) / LEASES
        fresh = not path.exists()
        if fresh:
            self._make_folders(path.parent)
        small.replace_file(
            self._disk, self._root, path, small.encode_leases(leases), sync=sync and not fresh
        )
        if fresh:
            self._sync_names(path.parent)

    def _take_back(self, path: Path, end: int, error: OSError) -> None:
        """Cut off what a failed append left, so that it has not happened."""
        try:
            if path.exists():
                self._disk.truncate(path, end)
        except OSError:
            raise Unavailable(
                f"{path} could not be written ({error.strerror}), and not be cut either. The "
                "commit may have happened: send it again with the same write id."
            ) from error

    def _witness(self, path: Path, space: str, sequence: int, *, begins: bool) -> None:
        """Note what is durable: in the log, and of a log that begins also beside it."""
        # It only helps to tell damage from a power loss.
        with suppress(OSError):
            self._disk.append(path, log.encode_witness(sequence), sync=False)
            if begins:
                self._disk.append(path.parent / SPACE, log.encode_start(space), sync=False)

    def _make_folders(self, folder: Path) -> None:
        if not folder.is_dir():
            for one in (self._folder, folder.parent, folder):
                self._disk.make_folder(one)

    def _sync_names(self, folder: Path) -> None:
        for one in (folder, folder.parent, self._folder):
            self._disk.sync_folder(one)

    def _snapshot_due(self, state: State) -> bool:
        return state.end - state.snapshot_end > max(_SNAPSHOT_BYTES, 4 * state.snapshot_size)

    def _write_snapshot(self, space: str) -> None:
        if self._durability != "full":
            self.sync_relaxed()
        with self.looking(space) as state:
            path, data, end = state.folder / SNAPSHOT, state.snapshot(), state.end
        small.replace_file(self._disk, self._root, path, data, sync=False)
        with state.lock:
            state.snapshot_end, state.snapshot_size = end, len(data)


class _States:
    """The states that one process keeps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[str, State] = OrderedDict()

    def get(self, space: str, folder: Path) -> State:
        with self._lock:
            found = self._states.get(space)
            if found is None:
                found = self._states[space] = State(space_folder(folder, space), space)
                if len(self._states) > _STATES:
                    self._states.popitem(last=False)
            else:
                self._states.move_to_end(space)
            return found


def _ends_with_witness(path: Path) -> bool:
    with open(path, "rb", buffering=0) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - log.LONGEST_WITNESS))
        _, _, last = file.read().rpartition(b"\n{")
    return last.startswith(b'"synced":') and last.endswith(b"}\n")


def _name_of(folder: Path) -> str | None:
    """The name of the space of a folder; None if it has no operations."""
    with suppress(FileNotFoundError):
        start = log.unseal((folder / SPACE).read_bytes())
        if start is not None and isinstance(start.get("space"), str):
            return str(start["space"])
    path = folder / LOG
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(_FIRST_LINES)
    except FileNotFoundError:
        return plain_space(folder)  # There was a log: who asks for it is told so.
    first = data.find(b"\n") + 1
    start = log.unseal(data[:first])
    name = start.get("space") if start else plain_space(folder)
    try:
        lines = log.read_lines(data[first if start else 0 :], first, name or "", 0).lines
    except log.Broken as broken:
        if not isinstance(name, str):
            raise damaged(path, broken.place) from broken
        return name  # There were operations: who asks for them is told what is wrong.
    return name if lines else None
