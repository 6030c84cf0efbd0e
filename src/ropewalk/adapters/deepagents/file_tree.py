"""Files as a value that each commit changes: texts as lists of lines, and an index beside them.

The value of each commit is `{"content": {path: lines or bytes}, "files": {path: {...}}}`. So a
listing reads the index only, an edit stores the lines it changed, `diff` and `blame` name lines,
and branches merge by line. Needs no framework.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from ropewalk.errors import MissingObjects, NotAllowed
from ropewalk.history import Branch, Commit, History
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import (
    Edited,
    Object,
    ObjectId,
    Reader,
    TreeWriter,
    diff,
    get,
    insert,
    put,
    remove,
)
from ropewalk.tree.build import reachable

CONTENT: Final = "content"
FILES: Final = "files"

Content: TypeAlias = str | bytes
Changes: TypeAlias = Mapping[str, Content | None]
"""New contents by path; None removes the file."""

_MOST_CACHED: Final = 32 << 20
"""Characters and bytes of contents that a snapshot keeps."""
_MOST_LINES: Final = 32
"""So many changed lines are replaced one by one; more are compared as a whole file."""
_LARGE: Final = 64 << 10
"""Of an edit that makes more bytes than this, nodes that are stored already are left out."""


class About(TypedDict):
    """What the index says about a file."""

    size: int
    """Bytes of its content, in UTF-8."""
    created_at: str
    modified_at: str


class Snapshot:
    """The files under one root, of which contents are read when they are asked for.

    It moves on to another root by what differs: contents that stayed equal are not read again.
    """

    def __init__(self, history: History) -> None:
        self._codec = history.codec
        self._read: Reader = history.read
        self._root: ObjectId | None = None
        self._contents: OrderedDict[str, Content] = OrderedDict()
        self._cached = 0
        self.files: dict[str, About] = {}
        """The index, in the order in which files were made."""

    def move_to(self, root: ObjectId | None, read: Reader) -> set[str] | None:
        """Show the files under a root; None has none.

        Returns the paths whose contents are others now, or None if that is not known.
        """
        self._read = read
        if root == self._root:
            return set()
        changed = self._changed(root)
        for path in list(self._contents) if changed is None else changed:
            self._drop(path)
        self.files = {} if root is None else get(root, (FILES,), read, self._codec)
        self._root = root
        return changed

    def content(self, path: str) -> Content:
        """What a file that is in the index contains."""
        found = self._contents.get(path)
        if found is not None:
            self._contents.move_to_end(path)
            return found
        assert self._root is not None
        content = _content(get(self._root, (CONTENT, path), self._read, self._codec))
        self._keep(path, content)
        return content

    def fetch(self, paths: Sequence[str]) -> None:
        """Read the contents of files together, if they are most of what there is."""
        wanted = sum(self.files[path]["size"] for path in paths if path not in self._contents)
        every = sum(about["size"] for about in self.files.values())
        if self._root is None or wanted <= every // 2 or every > _MOST_CACHED:
            return
        for path, stored in get(self._root, (CONTENT,), self._read, self._codec).items():
            if path not in self._contents:
                self._keep(path, _content(stored))

    def apply(self, edit: Edit) -> None:
        """Show what an edit of these files made of them."""
        for path, content in edit.changes.items():
            self._drop(path)
            if content is None:
                del self.files[path]
            else:
                self.files[path] = edit.abouts[path]
                self._keep(path, content)
        self._root = edit.edited.root

    def _changed(self, root: ObjectId | None) -> set[str] | None:
        """The files whose contents differ under another root; None if that is not known."""
        if root is None or self._root is None:
            return None
        try:
            paths = [one.path for one in diff(self._root, root, self._read, self._codec)]
        except MissingObjects:  # The old root was collected.
            return None
        changed = {path[1] for path in paths if path[0] == CONTENT and len(path) > 1}
        return None if any(len(path) < 2 for path in paths) else changed

    def _keep(self, path: str, content: Content) -> None:
        self._contents[path] = content
        self._cached += len(content)
        while self._cached > _MOST_CACHED and len(self._contents) > 1:
            self._drop(next(iter(self._contents)))

    def _drop(self, path: str) -> None:
        gone = self._contents.pop(path, None)
        self._cached -= 0 if gone is None else len(gone)


def _content(stored: Any) -> Content:
    return stored if isinstance(stored, bytes) else "\n".join(stored)


class Edit(NamedTuple):
    """Changes of files, and the value that they make."""

    changes: Changes
    abouts: dict[str, About]
    edited: Edited


class FileTree:
    """The files on a branch, or as of one commit. Safe to share between threads."""

    def __init__(self, history: History, branch: Branch | None, commit: Commit | None) -> None:
        self.history = history
        self._branch, self._commit = branch, commit
        self._snapshot = Snapshot(history)
        self._lock = freed_after_fork(threading.RLock())

    def head(self) -> Commit | None:
        """The commit whose files are shown: of a branch, the newest."""
        return self._commit if self._branch is None else self._branch.refresh()

    def read(self, look: Callable[[Snapshot], Any]) -> Any:
        """Hand the newest files to a function, and return what it makes of them."""
        with self._lock:
            while True:
                commit = self.head()
                try:
                    self._snapshot.move_to(commit and commit.root, self.history.read)
                    return look(self._snapshot)
                except MissingObjects:
                    again = self.head()
                    if (again and again.id) == (commit and commit.id):
                        raise  # Otherwise the branch moved, and the old files were collected.

    def change(self, action: str, decide: Callable[[Snapshot], Changes], **about: Any) -> Commit:
        """Commit what a function wants to change of the newest files, as one step.

        It is called again if the branch moves, and stores nothing if it raises.
        """
        if self._branch is None:
            raise NotAllowed("these are the files as of an earlier commit, which never change")
        with self._lock:
            edit: Edit | None = None

            def attempt(root: ObjectId | None, read: Reader) -> Edited:
                nonlocal edit
                self._snapshot.move_to(root, read)
                edit = _edit(self._snapshot, root, decide(self._snapshot), read, self.history)
                return edit.edited

            commit = self._branch.update(attempt, logic_step=action, **about)
            assert edit is not None
            if commit.root == edit.edited.root:
                self._snapshot.apply(edit)
            return commit


def _edit(
    files: Snapshot, root: ObjectId | None, changes: Changes, read: Reader, history: History
) -> Edit:
    abouts = {
        path: _about(content, files.files.get(path))
        for path, content in changes.items()
        if content is not None
    }
    if root is None:  # All at once is quicker than one by one.
        contents = {
            path: _lines(content) for path, content in changes.items() if content is not None
        }
        written = TreeWriter(history.codec).write({CONTENT: contents, FILES: abouts})
        return Edit(changes, abouts, Edited(written.root, list(written.objects), []))
    draft = _Draft(root, read, history)
    for path, content in changes.items():
        if content is None:
            draft.remove(path)
        else:
            before = files.content(path) if path in files.files else None
            draft.write(path, before, content)
            draft.put((FILES, path), abouts[path])
    return Edit(changes, abouts, draft.finish())


def _about(content: Content, before: About | None) -> About:
    now = datetime.now(UTC).isoformat()
    # What cannot be encoded cannot be stored, either: that is where it is refused.
    data = content.encode(errors="replace") if isinstance(content, str) else content
    created_at = now if before is None else before["created_at"]
    return {"size": len(data), "created_at": created_at, "modified_at": now}


def _lines(content: Content) -> list[str] | bytes:
    return content if isinstance(content, bytes) else content.split("\n")


class _Draft:
    """Several edits of one value, of which only the last result is stored."""

    def __init__(self, root: ObjectId, read: Reader, history: History) -> None:
        self._root = self._base = root
        self._stored, self._codec = read, history.codec
        self._made: dict[ObjectId, Object] = {}
        self._known: set[ObjectId] = set()

    def _take(self, edited: Edited) -> None:
        self._root = edited.root
        self._made.update((one.id, one) for one in edited.objects)

    def _read(self, ids: Sequence[ObjectId]) -> Sequence[Object]:
        stored = [id for id in ids if id not in self._made]
        if not stored:
            return [self._made[id] for id in ids]
        found = {**self._made, **dict(zip(stored, self._stored(stored), strict=True))}
        return [found[id] for id in ids]

    def put(self, path: tuple[Any, ...], value: Any) -> None:
        self._take(put(self._root, path, value, self._read, self._codec))

    def remove(self, path: str) -> None:
        for top in (CONTENT, FILES):
            self._take(remove(self._root, (top, path), self._read, self._codec))

    def write(self, path: str, before: Content | None, content: Content) -> None:
        """Replace what a file contains; of a text, only the lines that differ."""
        made, lines = len(self._made), _lines(content)
        runs = None
        if isinstance(before, str) and isinstance(lines, list):
            runs = _runs(before.split("\n"), lines)
        if runs is None:
            self.put((CONTENT, path), lines)
        for start, stop, new in reversed(runs or ()):
            self._splice((CONTENT, path), start, stop, new)
        if before is not None:
            new_objects = list(self._made.values())[made:]
            if sum(len(one.payload) for one in new_objects) > _LARGE:
                self._known |= self._stored_below(path)

    def _splice(self, path: tuple[Any, ...], start: int, stop: int, new: list[str]) -> None:
        for at, line in enumerate(new, start):
            if at < stop:
                self.put((*path, at), line)
            else:
                self._take(insert(self._root, (*path, at), line, self._read, self._codec))
        for _ in range(start + len(new), stop):
            self._take(remove(self._root, (*path, start + len(new)), self._read, self._codec))

    def _stored_below(self, path: str) -> set[ObjectId]:
        """The nodes of a file as it was."""
        seen: set[ObjectId] = set()

        def noting(ids: Sequence[ObjectId]) -> Sequence[Object]:
            seen.update(ids)
            return self._stored(ids)

        get(self._base, (CONTENT, path), noting, self._codec)
        return seen

    def finish(self) -> Edited:
        made = {id: one for id, one in self._made.items() if id not in self._known}
        return Edited(self._root, *reachable(self._root, made))


def _runs(old: list[str], new: list[str]) -> list[tuple[int, int, list[str]]] | None:
    """Which lines [start, stop) became which others; None if they are many."""
    if len(old) == len(new):
        differ = [at for at, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
        if len(differ) > _MOST_LINES:
            return None
        return [(at, at + 1, [new[at]]) for at in differ]
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    most = shorter - head
    tail = next((at for at in range(most) if old[-1 - at] != new[-1 - at]), most)
    start, stop, new_stop = head, len(old) - tail, len(new) - tail
    if max(stop, new_stop) - start > _MOST_LINES:
        return None
    return [(start, stop, new[start:new_stop])]
