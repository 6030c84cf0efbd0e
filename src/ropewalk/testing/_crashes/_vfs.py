"""A SQLite VFS that records the changes to files.

SQLite accesses files through a table of functions, its VFS. The default one is copied here, and
the functions that change files are replaced by ones that call the original and record the step.
Locks, shared memory and reads are unchanged. The VFS is registered in the same library that
Python's sqlite3 uses, once per process, and stays there.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from typing import Any

from ropewalk.errors import NotAllowed
from ropewalk.testing._crashes._journal import Journal

NAME = "ropewalk-recording"

_OK = 0
_IO_ERROR = 10
_OPEN_CREATE = 0x00000004
# A rollback journal, one of several databases, or a WAL.
_OPEN_JOURNALS = 0x00000800 | 0x00004000 | 0x00080000

_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_Delete = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_Close = CFUNCTYPE(c_int, c_void_p)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`; fields that are not replaced are copied."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", _Open),
        ("xDelete", _Delete),
        ("others", c_void_p * 14),
    )


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`."""

    _fields_ = (
        ("iVersion", c_int),
        ("xClose", _Close),
        ("xRead", c_void_p),
        ("xWrite", _Write),
        ("xTruncate", _Truncate),
        ("xSync", _Sync),
        ("others", c_void_p * 13),
    )


class _File(ctypes.Structure):
    """The known beginning of `sqlite3_file`."""

    _fields_ = (("methods", POINTER(_Methods)),)


class _Opened:
    """A file that SQLite has open."""

    def __init__(self, path: str, journal: Journal, usual: _Methods, syncs_names: bool) -> None:
        self.path = path
        self.journal = journal
        self.usual = usual
        self.syncs_names = syncs_names
        """Whether its next sync also syncs its folder."""


class _Layer:
    """The replaced functions. Never freed, because SQLite may call them at any time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        library.sqlite3_vfs_register.argtypes = [POINTER(_Vfs), c_int]
        self._usual_place = library.sqlite3_vfs_find(None)
        self._usual: Any = self._usual_place.contents
        self._journals: weakref.WeakSet[Journal] = weakref.WeakSet()
        self._opened: dict[int, _Opened] = {}
        self._methods: dict[int, _Methods] = {}
        self._vfs = _Vfs.from_buffer_copy(self._usual)
        self._vfs.zName = NAME.encode()
        self._vfs.xOpen = _Open(_guarded(self._open))
        self._vfs.xDelete = _Delete(_guarded(self._delete))
        self._close = _Close(_guarded(self._close_file))
        self._write = _Write(_guarded(self._write_file))
        self._truncate = _Truncate(_guarded(self._truncate_file))
        self._sync = _Sync(_guarded(self._sync_file))
        if library.sqlite3_vfs_register(ctypes.byref(self._vfs), 0) != _OK:
            raise _no_layer("it refuses another layer for files")

    def follow(self, journal: Journal) -> None:
        self._journals.add(journal)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: Any) -> int:
        path = "" if name is None else os.fsdecode(ctypes.string_at(name))
        journal = next((one for one in self._journals if one.covers(path)), None)
        if journal is None:
            return int(self._usual.xOpen(self._usual_place, name, file, flags, out))
        with journal.lock:
            there = os.path.exists(path)
            done = int(self._usual.xOpen(self._usual_place, name, file, flags, out))
            if done == _OK:
                if not there:
                    journal.made(path)
                self._follow_file(path, journal, file, flags)
        return done

    def _follow_file(self, path: str, journal: Journal, file: int, flags: int) -> None:
        """From here on, SQLite's operations on this file are recorded."""
        opened = _File.from_address(file)
        place = ctypes.addressof(opened.methods.contents)
        usual = _Methods.from_address(place)
        if place not in self._methods:
            ours = _Methods.from_buffer_copy(usual)
            ours.xClose, ours.xWrite = self._close, self._write
            ours.xTruncate, ours.xSync = self._truncate, self._sync
            self._methods[place] = ours
        # The unix VFS syncs the folder of a journal with its first sync: SQLite relies on it.
        syncs_names = bool(flags & _OPEN_CREATE and flags & _OPEN_JOURNALS)
        self._opened[file] = _Opened(path, journal, usual, syncs_names)
        opened.methods = ctypes.pointer(self._methods[place])

    def _delete(self, vfs: int, name: int, sync_folder: int) -> int:
        path = os.fsdecode(ctypes.string_at(name))
        journal = next((one for one in self._journals if one.covers(path)), None)
        if journal is None:
            return int(self._usual.xDelete(self._usual_place, name, sync_folder))
        with journal.lock:
            there = os.path.lexists(path)
            done = journal.refuse("delete") or int(
                self._usual.xDelete(self._usual_place, name, sync_folder)
            )
            if done == _OK and there:
                journal.removed(path)
            if done == _OK and sync_folder & 1:
                journal.synced_folder(os.path.dirname(path))
        return done

    def _close_file(self, file: int) -> int:
        return int(self._opened.pop(file).usual.xClose(file))

    def _write_file(self, file: int, data: int, size: int, offset: int) -> int:
        opened = self._opened[file]
        with opened.journal.lock:
            done = opened.journal.refuse("write") or int(
                opened.usual.xWrite(file, data, size, offset)
            )
            if done == _OK:
                opened.journal.wrote(opened.path, offset, ctypes.string_at(data, size))
        return done

    def _truncate_file(self, file: int, size: int) -> int:
        opened = self._opened[file]
        with opened.journal.lock:
            done = opened.journal.refuse("truncate") or int(opened.usual.xTruncate(file, size))
            if done == _OK:
                opened.journal.cut(opened.path, size)
        return done

    def _sync_file(self, file: int, flags: int) -> int:
        opened = self._opened[file]
        with opened.journal.lock:
            done = opened.journal.refuse("sync") or int(opened.usual.xSync(file, flags))
            if done == _OK:
                opened.journal.synced(opened.path)
                if opened.syncs_names:
                    opened.journal.synced_folder(os.path.dirname(opened.path))
                    opened.syncs_names = False
        return done


_layer: _Layer | None = None
_making = threading.Lock()


def record(journal: Journal) -> str:
    """Record SQLite's operations in a journal's folder; returns the name of the VFS to use."""
    global _layer  # noqa: PLW0603 - one in a process
    with _making:
        if _layer is None:
            _layer = _Layer(_library())
        _layer.follow(journal)
    return NAME


def _library() -> ctypes.CDLL:
    """The library that Python's sqlite3 uses; another copy would not see our VFS."""
    import _sqlite3

    if os.name != "posix":
        raise _no_layer("only the unix layer of SQLite is known")
    # The module's own handle also finds linked symbols. It may be built in.
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    if not hasattr(library, "sqlite3_vfs_find") or not hasattr(library, "sqlite3_vfs_register"):
        raise _no_layer("its functions are hidden")
    return library


def _no_layer(reason: str) -> NotAllowed:
    return NotAllowed(
        f"what SQLite does to files cannot be recorded with this Python: {reason}. "
        "Use a Python whose sqlite3 is linked with the system's library."
    )


def _guarded(work: Callable[..., int]) -> Callable[..., int]:
    """An exception cannot cross SQLite: it becomes an I/O error of the file."""

    def guarded(*arguments: Any) -> int:
        try:
            return work(*arguments)
        except Exception:  # noqa: BLE001 - SQLite reports it
            return _IO_ERROR

    return guarded
