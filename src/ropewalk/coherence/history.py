"""The history of an artifact, as a timeline: to look at, compare and go through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final, cast

from ropewalk.codec import Codec
from ropewalk.coherence.authority import BRANCH, NAME, names_of
from ropewalk.coherence.protocol import Content, Version
from ropewalk.coherence.store_authority import _DELETED as DELETED
from ropewalk.coherence.store_authority import REPLACED, TENANT
from ropewalk.errors import NotFound
from ropewalk.history import Commit, Commits, History
from ropewalk.store import MemoryStore, Move, Operation, Store, ref_name, space_name, split_name
from ropewalk.timeline import BranchInfo, Checkpoint, Timeline, TreeLine
from ropewalk.timeline.drawing import one_line
from ropewalk.timeline.search import SHORTEST, Index, line_to
from ropewalk.timeline.timeline import refuse
from ropewalk.tree import ObjectId, TreeWriter, make_commit

_PAGE: Final = 2000
_MOST_DIGITS: Final = 18
"""No version has a longer number."""


class ArtifactStep(Checkpoint):
    """A version of an artifact, as a step of its timeline."""

    __slots__ = ()

    @property
    def version(self) -> int:
        """Its number. Numbers begin at 1 and are never used again."""
        return self.commit.generation

    @property
    def deleted(self) -> bool:
        """Whether the artifact was taken away; then `state` is None."""
        return _is_deletion(self.commit)

    @property
    def replaced(self) -> bool:
        """Whether it took the place of what its writer had not read."""
        return bool(self.commit.extension.get(REPLACED))

    def to_dict(self, *, state: bool = True) -> dict[str, Any]:
        """Everything about it as plain values; without its state if that is not wanted."""
        own = {"version": self.version, "deleted": self.deleted, "replaced": self.replaced}
        return {**super().to_dict(state=state), **own}


class ArtifactTimeline(Timeline):
    """A timeline whose steps are the versions of one artifact, which is its only branch.

    Only writes of agents add to it. A step of an older version is found as anywhere, and also
    by its number; what it holds can be written again. Raises `NotFound` for an artifact that
    never was; of one that was deleted, the deletion is a step.
    """

    def __init__(
        self, name: str, artifact: str, store: Store, codec: Codec, *, own: bool = False
    ) -> None:
        super().__init__(name, store, codec=codec, tenant=TENANT)
        self._owns_store = own
        self.name = artifact
        self._current, ref, _ = names_of(artifact)
        self._index = _VersionIndex(self._history, ref)
        self._history = _VersionHistory(self._history, artifact)
        if not self._history.branches():
            self.close()
            raise NotFound(f"there is no artifact {artifact!r:.80}, and there never was")

    def __repr__(self) -> str:
        return f"<ArtifactTimeline {self.name!r} in {self.store!r}>"

    @property
    def head(self) -> ArtifactStep:
        """The newest version."""
        return self._seen(self._branch_head(self.name))

    def get(self, checkpoint_id: str) -> ArtifactStep:
        """A version by its number, its id or a unique beginning of it."""
        return self._seen(self._find(checkpoint_id))

    # The list is the caller's own: nobody puts another kind of step into it.
    def history(  # type: ignore[override]
        self, branch_name: str | None = None, limit: int | None = 50
    ) -> list[ArtifactStep]:
        """The versions, newest first; at most `limit`, all with None."""
        return cast("list[ArtifactStep]", super().history(branch_name, limit))

    # The branch has the name of the artifact for people, whatever it is called in the store.

    @property
    def current_branch(self) -> str:
        """The name of the artifact."""
        return self.name

    def list_branches(self) -> list[BranchInfo]:
        """The only branch."""
        return [one._replace(is_current=True) for one in super().list_branches()]

    def tree(self, *, fold: int | None = 12, unicode: bool = True) -> list[TreeLine]:
        """The versions line by line, oldest first."""
        shown = (one_line(self.name),)
        return [
            line._replace(branches=shown) if line.branches else line
            for line in super().tree(fold=fold, unicode=unicode)
        ]

    # Inside.

    def _seen(self, commit: Commit) -> ArtifactStep:
        return ArtifactStep(self._history, commit, self._index.status)

    def _branch_head(self, name: str) -> Commit:
        if name not in (self.name, self._current):
            raise self._unknown_branch(name)
        return self._history.resolve(self.name)

    def _find(self, name: str) -> Commit:
        if name == self.name or not _is_number(name):
            return super()._find(name)
        found = self._numbered(int(name))
        if found is not None:
            return self._history.resolve(found)
        if len(name) < SHORTEST:
            raise NotFound(f"artifact {self.name!r:.80} has no version {name}, or not any more")
        return super()._find(name)  # The beginning of an id may be all digits.

    def _numbered(self, number: int) -> ObjectId | None:
        """The version of a number, if there is one."""
        head = self._branch_head(self.name)
        line = line_to(self._index.shape(), head)
        place = len(line) - 1 - (head.generation - number)
        return line[place] if 0 <= place < len(line) else None


class _VersionHistory(History):
    """Of the history of a set, what is about one artifact."""

    def __init__(self, whole: History, artifact: str) -> None:
        # What the other one checked is not asked for again.
        self.store, self.space, self.codec = whole.store, whole.space, whole.codec
        self.read = whole.read
        self.agent = artifact
        self._ref = names_of(artifact).ref
        self.commits = _NumberedCommits(whole.store, whole.space)

    def branches(self) -> dict[str, ObjectId]:
        """The artifact and its newest version."""
        target = self._target(BRANCH, self.agent)
        return {} if target is None else {self.agent: target}

    def tags(self) -> dict[str, ObjectId]:
        """None: a version is named by its number."""
        return {}

    def operations(self, after: int = 0, limit: int = 1000) -> list[Operation]:
        """The operations that made versions of it, from number `after + 1` on."""
        found: list[Operation] = []
        while len(found) < limit and (page := super().operations(after, _PAGE)):
            found += filter(self._is_own, page)
            after = page[-1].sequence
        return found[:limit]

    def newest_operations(self) -> Iterator[Operation]:
        """The same, from the last one back."""
        return filter(self._is_own, super().newest_operations())

    def watch(self, after: int | None = None, timeout: float | None = None) -> Iterator[Operation]:
        """The same, as they happen; ends when nothing happened to the set for that time."""
        return filter(self._is_own, super().watch(after, timeout))

    async def awatch(
        self,
        after: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> AsyncIterator[Operation]:
        """The asynchronous twin of `watch`."""
        async for one in super().awatch(after, timeout):
            if self._is_own(one):
                yield one

    def _is_own(self, operation: Operation) -> bool:
        return any(move.name == self._ref for move in operation.moves)

    def _target(self, kind: str, name: str) -> ObjectId | None:
        if kind != BRANCH or name != self.agent:
            return None
        ref = self.store.ref(self.space, self._ref)
        return None if ref is None else ref.target


class _VersionIndex(Index):
    """Follows the log of a set, and keeps what is about one artifact. No version is read."""

    def __init__(self, whole: History, ref: str) -> None:
        super().__init__(whole)
        self._ref = ref

    def _take(self, operation: Operation) -> None:
        moves = tuple(move for move in operation.moves if move.name == self._ref)
        if not moves:
            return
        # Whatever agents call it, a version follows the one that its writer expected.
        made = {"action": "commit"} if "versions" in operation.metadata else {}
        about = {**operation.metadata, **made}
        super()._take(operation._replace(moves=moves, metadata=about))


class _NumberedCommits(Commits):
    """Commits that say which versions they are. That is not stored: they know it."""

    def find(self, id: ObjectId) -> Commit:
        """The commit with an id; raises `NotFound`."""
        found = super().find(id)
        if found.description:
            return found
        gone = "deleted, " if _is_deletion(found) else ""
        about = f"{gone}version {found.generation} by {found.agent}"
        if found.extension.get(REPLACED):
            about += f", replaced version {found.generation - 1} unread"
        return found._replace(description=about)


def _is_number(name: str) -> bool:
    is_whole = isinstance(name, str) and name.isascii() and name.isdecimal()
    return is_whole and len(name) <= _MOST_DIGITS


def _is_deletion(commit: Commit) -> bool:
    return bool(commit.extension.get(DELETED))


def artifact_of(store: Store, space: str, ref: str) -> str:
    """The artifact that a ref of a set is about: some names are known to its versions only."""
    branch = split_name(ref)[1]
    if not branch.startswith("~"):
        return branch
    found = store.ref(space, ref_name(BRANCH, branch))
    if found is None:
        return branch
    return str(Commits(store, space).find(found.target).extension.get(NAME, branch))


def timeline_of_versions(
    name: str, artifact: str, versions: Iterable[tuple[Version, Content | None]], codec: Codec
) -> ArtifactTimeline:
    """Versions that are in memory, and what they hold, as a timeline in a store of its own."""
    store, space = MemoryStore(), space_name(TENANT, name)
    ref, last = names_of(artifact).ref, None
    for version, content in versions:
        value: Any = None if content is None else content.fresh()
        written = TreeWriter(codec).write(value)
        commit, made = make_commit(
            written.root,
            () if last is None else (last.id,),
            generation=version.number,
            time=version.time,
            agent=version.agent,
            branch=artifact,
            extension={
                key: True
                for key, is_so in ((DELETED, version.deleted), (REPLACED, version.replaced))
                if is_so
            },
        )
        needs = [*written.needs, *commit.parents]
        move = Move(ref, None if last is None else last.id, commit.id)
        about = {"action": "commit", "agent": version.agent}
        store.commit(space, [*written.objects, made], needs, [move], operation=about, step=commit)
        last = commit
    return ArtifactTimeline(name, artifact, store, codec, own=True)


_WRITE: Final = "Write it with write, edit or publish, as an agent."
_AGAIN: Final = "Read the older version, and write it: that is a new version."
_NUMBER: Final = "The number of a version names it for good."

refuse(
    ArtifactTimeline,
    "{name} is an artifact that agents share, and only their writes add to it",
    (
        ("checkpoint", "saving a state", _WRITE),
        ("safe_execute", "running a function", _WRITE),
        ("rollback", "rolling back", _AGAIN),
        ("undo", "undoing", _AGAIN),
        ("redo", "redoing", _AGAIN),
        ("branch", "making a branch", _WRITE),
        ("switch_branch", "switching branches", "Ask for the history of the other artifact."),
        ("delete_branch", "removing a branch", "Delete the artifact, as an agent."),
        ("merge", "merging", _WRITE),
        ("cherry_pick", "picking a step", _AGAIN),
        ("revert", "reverting a step", _AGAIN),
        ("fork", "forking", "Read it, and save what it holds in a timeline of its own."),
        ("tag", "tagging", _NUMBER),
        ("delete_tag", "removing a tag", _NUMBER),
        ("export_session", "writing a session", "`migrate` copies a whole store."),
    ),
)
