"""The file system of Deep Agents' tools, kept as a timeline."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from deepagents.backends.protocol import (
    BackendProtocol,
    DeleteResult,
    EditResult,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.utils import (
    InvalidGlobPatternError,
    _get_backend_read_file_type,
    compile_grep_include_glob,
    perform_string_replacement,
    slice_read_response,
)
from langgraph.config import get_config

from ropewalk.adapters.deepagents.file_tree import (
    FILES,
    About,
    Changes,
    Content,
    FileTree,
    Snapshot,
)
from ropewalk.codec import default_codec
from ropewalk.errors import Conflict, InvalidInput, NotAllowed, NotFound
from ropewalk.history import MAIN, At, Branch, History
from ropewalk.history.commits import BRANCH
from ropewalk.store import Store, ref_name, space_name
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.opening import store_of
from ropewalk.timeline import Timeline
from ropewalk.timeline.timeline import TENANT, check_agent
from ropewalk.tree import (
    ABSENT,
    CannotMerge,
    Edited,
    Merger,
    Object,
    ObjectId,
    Reader,
    put,
)
from ropewalk.tree.build import reachable

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from ropewalk.store import KVStore

BranchOf: TypeAlias = "Callable[[RunnableConfig], str]"
"""Names the branch of a run by the config of its graph."""

_MOST_TREES: Final = 64
"""Branches whose files stay in memory."""
_REFUSALS: Final = (InvalidInput, Conflict, NotAllowed)
"""What a model can do something about; everything else ends the run, which can be resumed."""


class FilesVersion(TypedDict):
    """A version of the files, as the state of a graph has it."""

    number: int
    """Of the timeline's last operation then: of two versions the higher is the later."""
    version: str | None


class _Refused(Exception):
    """Ends a change without a commit; the tool gets the message."""


class RopewalkBackend(BackendProtocol):
    """Files for Deep Agents: each write, edit, upload or deletion is stored when it is made, as a
    step of the timeline `name`.

    All runs see one file system, the branch `branch`, as on a disk. With `branch=thread_branch`
    each thread has a branch of its own, which begins with the files of `main`; any function from
    the graph's config to a name does. Results and errors are those of `StateBackend`. What the
    model can act on is an error in the result; a store that does not answer, or that is damaged,
    raises, so that the run ends and can be resumed.

    `store` is a path, a URL or a store; without one the files are in memory. Safe to share
    between threads, processes and event loops: an edit that loses a race is made again on the
    newer file.
    """

    def __init__(
        self,
        store: Store | KVStore | str | PathLike[str] | None = None,
        *,
        name: str = FILES,
        branch: str | BranchOf = MAIN,
    ) -> None:
        self.name, self._branch = name, branch
        self.store, self._owns_store = store_of(store)
        self._history = History(
            self.store, space_name(TENANT, check_agent(name)), codec=default_codec, agent=name
        )
        self._fixed: FileTree | None = None
        self._trees: dict[str, FileTree] = {}
        self._lock = freed_after_fork(threading.Lock())

    def __repr__(self) -> str:
        shown = repr(self._branch) if isinstance(self._branch, str) else "the branch of the run"
        return f"<RopewalkBackend {self.name!r} on {shown} in {self.store!r}>"

    # Versions.

    @property
    def branch_name(self) -> str:
        """The branch whose files are shown: of the run that asks, if each has its own."""
        if isinstance(self._branch, str):
            return self._branch
        try:
            return self._branch(get_config())
        except RuntimeError:
            raise InvalidInput(
                "each run has a branch of its own here, and this is none: use backend.on(branch)"
            ) from None

    def branch_of(self, config: RunnableConfig) -> str:
        """The branch whose files the runs of a config see."""
        return self._branch if isinstance(self._branch, str) else self._branch(config)

    @property
    def timeline(self) -> Timeline:
        """The versions of the files: history, diff, blame, rollback, tags, and so on."""
        branch = self.branch_name
        self._tree()
        made = branch in self._history.branches()
        return Timeline(self.name, self.store, branch=branch if made else None)

    def version(self) -> str | None:
        """The id of the commit whose files are shown; None before the first."""
        head = self._tree().head()
        return None if head is None else head.id.hex()

    def numbered_version(self) -> FilesVersion:
        """The same, with the number of the timeline's last operation, both at one moment."""
        self._tree()
        full = ref_name(BRANCH, self.branch_name)
        view = self.store.view(self._history.space, full)
        version = next((ref.target.hex() for ref in view.refs if ref.name == full), None)
        return {"number": view.sequence, "version": version}

    def on(self, branch: str) -> RopewalkBackend:
        """The files of another branch of the same timeline."""
        return type(self)(self.store, name=self.name, branch=branch)

    def checkout(self, version: At) -> RopewalkBackend:
        """The files as of an earlier version, a branch or a tag, for reading."""
        made = self.on(self._branch if isinstance(self._branch, str) else MAIN)
        made._fixed = FileTree(self._history, None, self._history.resolve(version))
        return made

    def fork(self, branch: str, version: At | None = None) -> RopewalkBackend:
        """A new branch that begins with the files of a version, by default the newest.

        All that it has in common with other branches is shared. Raises `Conflict` if there is a
        branch of that name, and `NotFound` if there is no such version.
        """
        start = self.version() if version is None else version
        if start is None:
            raise NotFound(f"{self!r} has no files yet")
        self._history.create_branch(branch, start)
        return self.on(branch)

    def merge(self, source: At) -> str:
        """Bring the changes of another branch or version into this branch; returns its version.

        Texts merge by line. Raises `MergeConflict`, with nothing changed, where both sides
        changed the same lines.
        """
        into = self.branch_name
        self._tree()
        mergers = {(FILES, ...): Merger(_newer)}
        return self._history.merge(
            source,
            into,
            mergers=mergers,
            settle=self._sized,
            description=f"merge {source}" if isinstance(source, str) else "merge",
            logic_step="merge",
        ).id.hex()

    def _sized(self, merged: Edited, read: Reader) -> Edited:
        """A merged value whose index has the sizes of the merged contents."""
        made = {one.id: one for one in merged.objects}

        def both(ids: Sequence[ObjectId]) -> Sequence[Object]:
            return [made[id] if id in made else read([id])[0] for id in ids]

        head = self._history.resolve(self.branch_name)
        files = Snapshot(self._history)
        files.move_to(head.root, both)
        changed = files.move_to(merged.root, both)
        right = dict(files.files)
        for path in right if changed is None else changed & right.keys():
            right[path] = {**right[path], "size": len(_bytes(files.content(path)))}
        if right == files.files:
            return merged
        sized = put(merged.root, (FILES,), right, both, self._history.codec)
        made.update((one.id, one) for one in sized.objects)
        return Edited(sized.root, *reachable(sized.root, made))

    # Reading.

    def ls(self, path: str) -> LsResult:
        """The files and directories in a directory."""
        below = path if path.endswith("/") else path + "/"
        found: dict[str, FileInfo] = {}
        for name, about in self._index().items():
            if not name.startswith(below):
                continue
            inner, slash, _ = name[len(below) :].partition("/")
            if slash:
                folder = f"{below}{inner}/"
                found[folder] = FileInfo(path=folder, is_dir=True, size=0, modified_at="")
            else:
                found[name] = _info(name, about)
        return LsResult(entries=[found[name] for name in sorted(found)])

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """The lines of a text from `offset` on; a binary file whole, in base64."""

        def look(files: Snapshot) -> FileData | None:
            about = files.files.get(file_path)
            return None if about is None else _data(files.content(file_path), about)

        data = self._tree().read(look)
        if data is None:
            return ReadResult(error=f"File '{file_path}' not found")
        if _get_backend_read_file_type(file_path) != "text":
            return ReadResult(file_data=data)
        return slice_read_response(data, offset, limit)

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """The lines that contain a text. Contents that stayed equal are not read again."""

        def look(files: Snapshot) -> GrepResult:
            matches: list[GrepMatch] = []
            names = list(_matching(files.files, glob or None, path))
            files.fetch(names)
            for name in names:
                content = files.content(name)
                if isinstance(content, bytes) or pattern not in content:
                    continue
                for number, line in enumerate(content.split("\n"), 1):
                    if pattern not in line:
                        continue
                    if max_count is not None and len(matches) >= max_count:
                        return GrepResult(matches=matches, truncated=True)
                    matches.append({"path": name, "line": number, "text": line})
            return GrepResult(matches=matches)

        try:
            found: GrepResult = self._tree().read(look)
        except InvalidGlobPatternError as error:
            return GrepResult(error=str(error))
        return found

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """The files whose names match, last changed first. Only the index is read."""
        files = self._index()
        try:
            names = list(_matching(files, pattern, path))
        except InvalidGlobPatternError as error:
            return GlobResult(error=str(error))
        names.sort(key=lambda name: files[name]["modified_at"], reverse=True)
        return GlobResult(matches=[_info(name, files[name]) for name in names])

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The contents of files, all as of one version."""

        def look(files: Snapshot) -> list[FileDownloadResponse]:
            return [
                FileDownloadResponse(path=path, content=_bytes(files.content(path)))
                if path in files.files
                else FileDownloadResponse(path=path, error="file_not_found")
                for path in paths
            ]

        found: list[FileDownloadResponse] = self._tree().read(look)
        return found

    # Writing.

    def write(self, file_path: str, content: str) -> WriteResult:
        """Make a file, or replace what it contains."""
        error = self._change("write", f"write {file_path}", lambda files: {file_path: content})
        return WriteResult(path=file_path) if error is None else WriteResult(error=error)

    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
    ) -> EditResult:
        """Replace a text in a file; of the newest version, if others edit it at once."""
        occurrences = 0

        def decide(files: Snapshot) -> Changes:
            nonlocal occurrences
            if file_path not in files.files:
                raise _Refused(f"Error: File '{file_path}' not found")
            content = files.content(file_path)
            if isinstance(content, bytes):
                raise _Refused("Error: Cannot edit binary files with text replacements.")
            replaced = perform_string_replacement(content, old_string, new_string, replace_all)
            if isinstance(replaced, str):
                raise _Refused(replaced)
            text, occurrences = replaced
            return {file_path: text}

        error = self._change("edit", f"edit {file_path}", decide)
        if error is not None:
            return EditResult(error=error)
        return EditResult(path=file_path, occurrences=occurrences)

    def delete(self, file_path: str) -> DeleteResult:
        """Remove a file, or a directory with all that is in it."""
        base = file_path.rstrip("/")

        def decide(files: Snapshot) -> Changes:
            gone = [one for one in files.files if one == base or one.startswith(f"{base}/")]
            if not gone:
                raise _Refused(f"Error: File '{file_path}' not found")
            return dict.fromkeys(gone)

        error = self._change("delete", f"delete {file_path}", decide)
        return DeleteResult(path=file_path) if error is None else DeleteResult(error=error)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Make files, or replace what they contain, in one step."""
        if not files:
            return []
        contents: dict[str, Content | None] = {path: _decoded(data) for path, data in files}
        several = f"upload {files[0][0]}" if len(files) == 1 else f"upload {len(files)} files"
        error = self._change("upload", several, lambda _: contents)
        return [FileUploadResponse(path=path, error=error) for path, _ in files]

    # Inside.

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    def _tree(self) -> FileTree:
        if self._fixed is not None:
            return self._fixed
        name = self.branch_name
        with self._lock:
            tree = self._trees.pop(name, None)
            if tree is None:
                tree = FileTree(self._history, self._opened(name), None)
            self._trees[name] = tree  # Last, as the one that was used last.
            while len(self._trees) > _MOST_TREES:
                del self._trees[next(iter(self._trees))]
            return tree

    def _opened(self, name: str) -> Branch:
        """A handle on a branch; a new branch begins with the files of `main`."""
        if name != MAIN:
            branches = self._history.branches()
            if name not in branches and MAIN in branches:
                with suppress(Conflict):  # Another process was faster.
                    self._history.create_branch(name, MAIN)
        return self._history.open(name)

    def _index(self) -> dict[str, About]:
        found: dict[str, About] = self._tree().read(lambda files: dict(files.files))
        return found

    def _change(
        self, action: str, description: str, decide: Callable[[Snapshot], Changes]
    ) -> str | None:
        """Make a change; the error for the tool, if there is one."""
        try:
            self._tree().change(action, decide, description=description)
        except _Refused as refused:
            return str(refused)
        except _REFUSALS as error:
            return f"Error: {error}"
        return None

    def close(self) -> None:
        """Close the store if this backend opened it."""
        if self._owns_store:
            self.store.close()

    # The asynchronous interface.

    als = twin(ls)
    aread = twin(read)
    agrep = twin(grep)
    aglob = twin(glob)
    adownload_files = twin(download_files)
    awrite = twin(write)
    aedit = twin(edit)
    adelete = twin(delete)
    aupload_files = twin(upload_files)
    aversion = twin(version)
    anumbered_version = twin(numbered_version)
    acheckout = twin(checkout)
    afork = twin(fork)
    amerge = twin(merge)


def _matching(files: dict[str, About], pattern: str | None, path: str | None) -> Iterator[str]:
    """The files at or below a path whose names, relative to it, match a pattern.

    Raises `InvalidGlobPatternError`.
    """
    root = path or "/"
    if not root.strip():
        return
    root = root if root.startswith("/") else f"/{root}"
    root = root if root == "/" else root.rstrip("/")
    fits = (lambda name: True) if pattern is None else compile_grep_include_glob(pattern)
    if root in files:
        if fits(root.rsplit("/", maxsplit=1)[-1]):
            yield root
        return
    below = root if root == "/" else f"{root}/"
    for name in files:
        if name.startswith(below) and fits(name[len(below) :]):
            yield name


def _info(path: str, about: About) -> FileInfo:
    return {
        "path": path,
        "is_dir": False,
        "size": about["size"],
        "modified_at": about["modified_at"],
    }


def _data(content: Content, about: About) -> FileData:
    text = isinstance(content, str)
    return {
        "content": content if isinstance(content, str) else base64.b64encode(content).decode(),
        "encoding": "utf-8" if text else "base64",
        "created_at": about["created_at"],
        "modified_at": about["modified_at"],
    }


def _decoded(data: bytes) -> Content:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _bytes(content: Content) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _newer(base: Any, ours: Any, theirs: Any) -> Any:
    """Of two times the later. A size is made right when the contents are merged."""
    if ABSENT in (ours, theirs):
        raise CannotMerge("one side removed the file")
    return max(ours, theirs)
